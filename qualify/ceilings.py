"""What copies show of a board, in integers: the copy ceiling, what a launch costs in a row, the steps of its clock."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

NS = 1_000_000_000


def copy_per_s(size_bytes: int, times_ns: Sequence[int]) -> int:
    """Bytes a second, read and written, of the best of some copies. Raises ValueError for a time not positive."""
    if min(times_ns, default=0) <= 0:
        raise ValueError("copies whose times are not positive")
    return 2 * size_bytes * NS // min(times_ns)


def launch_ns(stamps: Sequence[int]) -> int:
    """Nanoseconds of one of some launches in a row, from start and end of each in turns.

    Raises ValueError for times that do not rise.
    """
    if len(stamps) < 2 or len(stamps) % 2 or stamps[-1] <= stamps[0]:
        raise ValueError(f"{len(stamps)} stamps of launches")
    return -(-(stamps[-1] - stamps[0]) // (len(stamps) // 2))


def quantum_ns(stamps: Sequence[int]) -> int:
    """The greatest step that every duration among some launches is a multiple of. Raises ValueError for none."""
    found = gcd(*(end - start for start, end in zip(stamps[::2], stamps[1::2], strict=True)))
    if found < 1:
        raise ValueError(f"{len(stamps)} stamps of launches that took no time")
    return found
