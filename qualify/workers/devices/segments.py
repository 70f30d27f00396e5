"""What devices share about segments and busy queues: poison, rows of digests, how much work lies ahead."""

from __future__ import annotations

from collections.abc import Sequence

from qualify.seeds import numbered, split
from qualify.steps import Poison, Segment

#: For so long a second queue has work ahead, so that it is busy until more comes.
BUSY_NS = 10_000_000


def backlog(other_ns: int, most: int) -> int:
    """How often a second queue is given work ahead that takes it `other_ns` each time."""
    return max(2, min(most, -(-BUSY_NS // max(other_ns, 1))))


def poisons_of(step: Segment, sets: Sequence[int]) -> dict[str, Poison]:
    """What a segment writes to the outputs and scratch of these sets before it runs; no two buffers hold the same."""
    found: dict[str, Poison] = {}
    for argument, dtype in step.poisoned:
        seeds = numbered(split(step.seed, argument), 1 + max(sets))
        found |= {f"{argument}.{number}": Poison(dtype=dtype, seed=seeds[number]) for number in sets}
    return found


def rows(digests: Sequence[str], sets: int) -> tuple[tuple[str, ...], ...]:
    """The digests of a segment, one row a set."""
    width = len(digests) // sets
    return tuple(tuple(digests[number * width : (number + 1) * width]) for number in range(sets))
