"""How a list of buffers is laid out for `fnv.cu`: tiles of 64 KiB, in the order in which blocks take them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from struct import Struct
from typing import NamedTuple

FNV_TILE_BYTES = 1 << 16
FNV_THREADS = 512
FNV_SHARED_BYTES = FNV_THREADS * 33 * 4  # A row of 32 words a thread, and one of padding.
#: Lists of so many different sizes have their order kept: one launch's outputs, a segment's, all inputs.
MOST_ORDERS = 4
_ROW = Struct("<3Q")  # Address, bytes, number of the first tile.


class Listed(NamedTuple):
    """Buffers as `fnv.cu` takes them, and for every tile the number in its buffer and the buffer's."""

    rows: bytes
    buffers: int
    number: bytes
    buffer: bytes

    @property
    def tiles(self) -> int:
        """How many tiles all buffers have."""
        return len(self.number) // 4


def listed(ranges: Sequence[tuple[int, int]]) -> Listed:
    """A list of (address, bytes), not empty: number first, buffer second; see fnv.cu for why that order."""
    counts = tuple(-(-size // FNV_TILE_BYTES) for _, size in ranges)
    first = (0, *accumulate(counts))
    rows = b"".join(_ROW.pack(*buffer, start) for buffer, start in zip(ranges, first, strict=False))
    return Listed(rows, len(ranges), *_order(counts))


@lru_cache(maxsize=MOST_ORDERS)
def _order(counts: tuple[int, ...]) -> tuple[bytes, bytes]:
    """Number and buffer of every tile, of buffers of so many tiles each."""
    import numpy as np

    number, buffer = np.nonzero(np.arange(max(counts))[:, None] < np.array(counts)[None, :])
    return number.astype(np.uint32).tobytes(), buffer.astype(np.uint32).tobytes()


def warps_back(blocks: int, buffers: int) -> int:
    """So many tiles of one buffer as may run at a time, and 32 more: a warp looks at 32."""
    return min(FNV_THREADS // 32, -(-blocks // (32 * buffers)) + 1)
