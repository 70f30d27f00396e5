"""How a list of buffers is laid out for `fnv.cu`: tiles of 64 KiB, in the order in which blocks take them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from cuda.bindings import driver

from qualify.contract import Kernel
from qualify.workers.devices.cuda_driver import call

FNV_TILE_BYTES = 1 << 16
FNV_THREADS = 512
FNV_SHARED_BYTES = FNV_THREADS * 33 * 4  # A row of 32 words a thread, and one of padding.
#: Lists of so many different sizes keep their memory; a session has few: one launch's outputs, a segment's, all inputs.
MOST_TABLES = 4
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
    counts = tuple(-(-size // FNV_TILE_BYTES) for _, size in ranges)
    first = (0, *accumulate(counts))
    rows = b"".join(
        address.to_bytes(8, "little") + size.to_bytes(8, "little") + start.to_bytes(8, "little")
        for (address, size), start in zip(ranges, first, strict=False)
    )
    return Listed(rows, len(ranges), *_order(counts))


@lru_cache(maxsize=MOST_TABLES)
def _order(counts: tuple[int, ...]) -> tuple[bytes, bytes]:
    """Number and buffer of every tile, of buffers of so many tiles each."""
    import numpy as np

    number, buffer = np.nonzero(np.arange(max(counts))[:, None] < np.array(counts)[None, :])
    return number.astype(np.uint32).tobytes(), buffer.astype(np.uint32).tobytes()


def warps_back(blocks: int, buffers: int) -> int:
    """So many tiles of one buffer as may run at a time, and 32 more: a warp looks at 32."""
    return min(FNV_THREADS // 32, -(-blocks // (32 * buffers)) + 1)


class Board(Protocol):
    """What a hasher needs of the harness: its stream, its launches, and how many multiprocessors there are."""

    stream: Any
    units: int

    def launch(self, kernel: Kernel, *parameters: tuple[int, int] | bytes) -> None:
        """Enqueue one harness kernel."""
        ...

    def wait(self) -> None:
        """Wait for everything on the device."""
        ...

    def download(self, address: int, size_bytes: int) -> bytes:
        """Device memory as bytes."""
        ...


class _Table(NamedTuple):
    """The device's memory for lists of the same sizes: addresses of its parts, one behind the other."""

    rows: int
    buffers: int
    tiles: int

    @property
    def digests(self) -> int:
        """A word of 8 bytes a buffer."""
        return self.rows + 24 * self.buffers

    @property
    def partial(self) -> int:
        """A word of 8 bytes a tile."""
        return self.digests + 8 * self.buffers

    @property
    def ticket(self) -> int:
        """What starts as zeros begins here: the ticket, and what every tile says."""
        return self.partial + 8 * self.tiles

    @property
    def said(self) -> int:
        """A word of 4 bytes a tile."""
        return self.ticket + 8

    @property
    def which(self) -> int:
        """Every tile's buffer, then every tile's number."""
        return self.said + 4 * self.tiles

    @property
    def size_bytes(self) -> int:
        """All of it."""
        return self.which + 8 * self.tiles - self.rows


class Hasher:
    """Digests of lists of buffers. What depends on their sizes alone stays on the device: segments ask again."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._tables: OrderedDict[tuple[int, ...], _Table] = OrderedDict()

    def hashes(self, ranges: Sequence[tuple[int, int]], by: str) -> tuple[str, ...]:
        """FNV-1a 64 of a list of (address, bytes), all at once, by one of the two kernels. Raises DriverError."""
        if not ranges:
            return ()
        work, stream = listed(ranges), self._board.stream
        table = self._table(tuple(size for _, size in ranges), work)
        call(driver.cuMemcpyHtoDAsync, table.rows, work.rows, len(work.rows), stream)
        call(driver.cuMemsetD32Async, table.ticket, 0, 2 + table.tiles, stream)
        if table.tiles:
            blocks = min(table.tiles, 2 * self._board.units)
            kernel = Kernel(symbol=by, grid=(blocks, 1, 1), block=(FNV_THREADS, 1, 1), shared_bytes=FNV_SHARED_BYTES)
            back = ((warps_back(blocks, table.buffers), 4),) if by == FNV_LOOKBACK else ()
            numbers = table.which + 4 * table.tiles
            head = ((table.rows, 8), (table.which, 8), (numbers, 8), (table.tiles, 4), (table.ticket, 8))
            self._board.launch(kernel, *head, (table.said, 8), (table.partial, 8), *back)
        fold = Kernel(symbol="qualify_fnv_fold", grid=(table.buffers, 1, 1), block=(FNV_THREADS, 1, 1))
        self._board.launch(fold, (table.rows, 8), (table.partial, 8), (table.digests, 8))
        self._board.wait()
        found = self._board.download(table.digests, 8 * table.buffers)
        return tuple(f"{int.from_bytes(found[at : at + 8], 'little'):016x}" for at in range(0, len(found), 8))

    def _table(self, sizes: tuple[int, ...], work: Listed) -> _Table:
        """The memory of lists of these sizes, made the first time; the one that was not asked for longest goes."""
        if sizes not in self._tables:
            if len(self._tables) == MOST_TABLES:
                call(driver.cuMemFree, self._tables.popitem(last=False)[1].rows)
            shape = _Table(0, work.buffers, work.tiles)
            made = shape._replace(rows=int(call(driver.cuMemAlloc, shape.size_bytes)))
            self._tables[sizes] = made
            if made.tiles:
                tiles = work.buffer + work.number
                call(driver.cuMemcpyHtoDAsync, made.which, tiles, len(tiles), self._board.stream)
        self._tables.move_to_end(sizes)
        return self._tables[sizes]
