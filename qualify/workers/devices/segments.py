"""What devices share about segments and busy queues: poison, rows of digests, how much work lies ahead."""

from __future__ import annotations

from collections.abc import Sequence

from qualify.seeds import split
from qualify.steps import Poison, Segment

#: For so long a second queue has work ahead, so that it is busy until more comes.
BUSY_NS = 10_000_000


def backlog(other_ns: int, most: int) -> int:
    """How often a second queue is given work ahead that takes it `other_ns` each time."""
    return max(2, min(most, -(-BUSY_NS // max(other_ns, 1))))


def poison_of(step: Segment, argument: str, dtype: str, number: int) -> Poison:
    """What a segment writes to one output or scratch buffer before it runs; no two buffers hold the same."""
    return Poison(dtype=dtype, seed=split(step.seed, argument, number))


def rows(digests: Sequence[str], sets: int) -> tuple[tuple[str, ...], ...]:
    """The digests of a segment, one row a set."""
    width = len(digests) // sets
    return tuple(tuple(digests[number * width : (number + 1) * width]) for number in range(sets))
