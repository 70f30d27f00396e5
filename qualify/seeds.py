"""Seeds: everything random in a run derives by label from the run's one secret of 32 bytes (R5.6).

Keyed BLAKE3, so that no seed tells another. Labels are framed: ("ab", "c") is not ("a", "bc"), and 1 is not "1".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from struct import iter_unpack

from blake3 import blake3

_SPLIT = "qualify 2026 seeds split"
_DRAW = "qualify 2026 seeds draw"
_NUMBERED = "qualify 2026 seeds numbered"
SEED_BYTES = 32
_BLOCK_BYTES = 512  # Of the words that are drawn from: a coin takes one, the order of hundreds of sets a few blocks.
_COMMON_DIGITS = 6  # Sets differ in the ten others: two of a thousand are equal once in two million sessions.


def derive(seed: bytes, label: str) -> str:
    """The seed of 16 hexadecimal digits that the run's secret gives for a label. Raises ValueError unless 32 bytes."""
    if len(seed) != SEED_BYTES:
        raise ValueError(f"a run's seed has {SEED_BYTES} bytes, not {len(seed)}")
    return blake3(label.encode(), key=seed).hexdigest(length=8)


def split(seed: str, *labels: str | int) -> str:
    """The seed that a derived seed gives for a path of labels; every path gives another."""
    hasher = blake3(bytes.fromhex(seed), derive_key_context=_SPLIT)
    for label in labels:
        data = f"{'i' if isinstance(label, int) else 's'}{label}".encode()
        hasher.update(len(data).to_bytes(8, "little") + data)
    return hasher.hexdigest(length=8)


def numbered(seed: str, count: int) -> Sequence[str]:
    """Seeds number 0 to `count` - 1 of a seed, for what there are hundreds of; more of them begin with the same."""
    digits = blake3(bytes.fromhex(seed), derive_key_context=_NUMBERED).hexdigest(length=8 * count)
    return [digits[at : at + 16] for at in range(0, 16 * count, 16)]


def common(seed: str) -> str:
    """What the seeds of all sets of a session begin with; their constants derive from it."""
    return seed[:_COMMON_DIGITS]


def coin(seed: str) -> bool:
    """One fair flip."""
    return _below(_words(seed), 2) == 1


def permutation(seed: str, n: int) -> tuple[int, ...]:
    """The numbers 0 to n - 1 in an order drawn evenly from all orders (Fisher and Yates)."""
    order, words = list(range(n)), _words(seed)
    for last in range(n - 1, 0, -1):
        other = _below(words, last + 1)
        order[last], order[other] = order[other], order[last]
    return tuple(order)


def _below(words: Iterator[int], bound: int) -> int:
    """An even draw from 0 to bound - 1 by rejection."""
    even = (1 << 64) // bound * bound
    return next(word for word in words if word < even) % bound


def _words(seed: str) -> Iterator[int]:
    """The seed's stream of 64-bit words, made a block at a time."""
    stream = blake3(bytes.fromhex(seed), derive_key_context=_DRAW)
    for block in count():
        data = stream.digest(length=_BLOCK_BYTES, seek=block * _BLOCK_BYTES)
        yield from (word for (word,) in iter_unpack("<Q", data))
