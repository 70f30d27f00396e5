"""How a list of buffers is laid out for `fnv.cu`: tiles of 64 KiB, in the order in which blocks take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

FNV_TILE_BYTES = 1 << 16
FNV_THREADS = 512
FNV_SHARED_BYTES = FNV_THREADS * 33 * 4  # A row of 32 words a thread, and one of padding.
#: How the low byte goes from tile to tile of a buffer: whole, in a chain; or bit by bit, by looking back (`fnv.cu`).
FNV_CHAIN, FNV_LOOKBACK = "qualify_fnv_tiles", "qualify_fnv_ahead"


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
    import numpy as np

    tiles = np.array([-(-size // FNV_TILE_BYTES) for _, size in ranges], dtype=np.uint64)
    first = np.cumsum(tiles) - tiles
    rows = b"".join(
        address.to_bytes(8, "little") + size.to_bytes(8, "little") + int(start).to_bytes(8, "little")
        for (address, size), start in zip(ranges, first, strict=True)
    )
    number, buffer = np.nonzero(np.arange(int(tiles.max()))[:, None] < tiles[None, :])
    return Listed(rows, len(ranges), number.astype(np.uint32).tobytes(), buffer.astype(np.uint32).tobytes())


def warps_back(blocks: int, buffers: int) -> int:
    """So many tiles of one buffer as may run at a time, and 32 more: a warp looks at 32."""
    return min(FNV_THREADS // 32, -(-blocks // (32 * buffers)) + 1)
