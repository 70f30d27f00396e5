"""Seeds: everything random in a run derives by label from the run's one secret of 32 bytes (R5.6).

Keyed BLAKE3, so that no seed tells another. Labels are framed: ("ab", "c") is not ("a", "bc"), and 1 is not "1".
"""

from __future__ import annotations

from blake3 import blake3

_SPLIT = "qualify 2026 seeds split"
_DRAW = "qualify 2026 seeds draw"
SEED_BYTES = 32
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


def common(seed: str) -> str:
    """What the seeds of all sets of a session begin with; their constants derive from it."""
    return seed[:_COMMON_DIGITS]


def coin(seed: str) -> bool:
    """One fair flip."""
    return _below(seed, 0, 2)[0] == 1


def permutation(seed: str, n: int) -> tuple[int, ...]:
    """The numbers 0 to n - 1 in an order drawn evenly from all orders (Fisher and Yates)."""
    order = list(range(n))
    position = 0
    for last in range(n - 1, 0, -1):
        other, position = _below(seed, position, last + 1)
        order[last], order[other] = order[other], order[last]
    return tuple(order)


def _below(seed: str, position: int, bound: int) -> tuple[int, int]:
    """An even draw from 0 to bound - 1 by rejection, and the stream's next position in bytes."""
    stream = blake3(bytes.fromhex(seed), derive_key_context=_DRAW)
    even = (1 << 64) // bound * bound
    while True:
        word = int.from_bytes(stream.digest(length=8, seek=position), "little")
        position += 8
        if word < even:
            return word % bound, position
