"""The harness on a CUDA board: its own kernels, its memory, its stream (`harness.cu`, `fnv.cu`).

Nothing is pinned and nothing is managed: what a kernel can reach is the arena and a few tables of the harness, none
of which holds an expected value.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from struct import Struct, iter_unpack
from typing import Any

from cuda.bindings import driver

from qualify.contract import Kernel
from qualify.elements import DTYPES
from qualify.errors import RigError
from qualify.fill import generate
from qualify.fnv import fnv1a64
from qualify.patterns import poison_masks
from qualify.placement import Placement
from qualify.steps import Poison, Recipe, Values, Zeros
from qualify.workers.devices.base import CANARY_SEED, ZonePattern
from qualify.workers.devices.binding import StepRefused
from qualify.workers.devices.cuda_driver import DriverError, ask, attribute, call, load, prepare
from qualify.workers.devices.cuda_fnv import (
    FNV_SHARED_BYTES,
    FNV_THREADS,
    FNV_TILE_BYTES,
    Listed,
    listed,
    warps_back,
)

HARNESS_SYMBOLS = (
    "qualify_zone_fill",
    "qualify_zone_check",
    "qualify_poison",
    "qualify_unwritten",
    "qualify_values",
    "qualify_scrub",
    "qualify_flush",
    "qualify_copy",
    "qualify_move",
    "qualify_fnv_tiles",
    "qualify_fnv_fold",
)
THREADS = 256
MOST_UNITS = 1024  # Numbers of multiprocessors are far below.
SCRUBS = 20  # A multiprocessor that no block comes to in so many launches does not run.
MAX_GRID_Y = 65_535
TABLE_BYTES = 1 << 16  # Of the list of a segment's outputs, to begin with.
_CANARY, _CANARY_BYTES = Poison(dtype="uint8", seed=CANARY_SEED), 3 * FNV_TILE_BYTES + 5
#: By the definition, which takes tens of milliseconds: made with a template's libraries, so that no session waits.
_CANARY_DIGEST = fnv1a64(generate(_CANARY, _CANARY_BYTES))
_POISON_ROW = Struct("<6Q")
_NEVER = (1 << 64) - 1  # atomicMin starts from here.
#: A number and its size in bytes, or raw bytes: one parameter of a harness kernel.
Parameter = tuple[int, int] | bytes


class CudaHarness:
    """The board's primary context, one stream, and the harness's kernels in it."""

    def __init__(self, code: bytes) -> None:
        ask(driver.cuInit, 0)
        self.device = ask(driver.cuDeviceGet, 0)
        self._context = ask(driver.cuDevicePrimaryCtxRetain, self.device)
        ask(driver.cuCtxSetCurrent, self._context)
        self.stream = self.new_stream()
        self._gate: tuple[int, Any] | None = None
        self._turn = 0
        self.unapplied = tuple(self._no_persisting())
        self.units = attribute(self.device, "MULTIPROCESSOR_COUNT") or 1
        self._shared = attribute(self.device, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN") or 0
        self._neutral: tuple[int, int] | None = None
        self._reached: int | None = None
        self._table: tuple[int, int] | None = None
        try:
            self._module, self._functions = load(code, {symbol: symbol for symbol in HARNESS_SYMBOLS})
        except StepRefused as error:
            fix = "update the driver, or plan a toolkit that it knows"
            raise RigError(f"expected the harness's own kernels to load, got {error}", fix=fix) from error

    def new_stream(self) -> Any:
        """A stream that waits for no other. Raises RigError."""
        return ask(driver.cuStreamCreate, driver.CUstream_flags.CU_STREAM_NON_BLOCKING)

    def _no_persisting(self) -> Iterator[str]:
        """No line stays in L2 by a kernel's choice; what the driver refuses, as on a part of a board, is named."""
        limit = driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
        self._resets = True
        try:
            call(driver.cuCtxSetLimit, limit, 0)
        except DriverError as error:
            yield f"a limit of 0 for persisting L2: {error}"
        try:
            call(driver.cuCtxResetPersistingL2Cache)
        except DriverError as error:
            self._resets = False
            yield f"a reset of persisting L2: {error}"

    def reset_persisting(self) -> None:
        """Make every persisting line an ordinary one, where the driver can; it is on record where it cannot."""
        if self._resets:
            call(driver.cuCtxResetPersistingL2Cache)

    @contextmanager
    def held(self, stream: Any = None) -> Iterator[None]:
        """Nothing that is enqueued inside starts before the end: the stream waits for a word in device memory.

        Without a `stream` it is the harness's own.
        """
        if self._gate is None:
            self._gate = int(call(driver.cuMemAlloc, 8)), self.new_stream()
            call(driver.cuMemsetD32Async, self._gate[0], 0, 2, self.stream)
            self.wait()
        word, other = self._gate
        self._turn += 1
        wait = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        call(driver.cuStreamWaitValue32, self.stream if stream is None else stream, word, self._turn, wait)
        try:
            yield
        finally:
            call(driver.cuStreamWriteValue32, other, word, self._turn, 0)

    def close(self) -> None:
        """Let go of the context and everything in it."""
        call(driver.cuDevicePrimaryCtxRelease, self.device)

    def canary(self) -> None:
        """Fill, hash and read a small buffer with the harness's kernels and compare with the parent's definitions.

        Raises RigError: after that no kernel can be blamed.
        """
        try:
            memory = int(call(driver.cuMemAlloc, _CANARY_BYTES + 8))
            self.poison(((memory, _CANARY_BYTES, _CANARY),))
            (got,) = self.hashes(((memory, _CANARY_BYTES),))
            call(driver.cuMemFree, memory)
        except DriverError as error:
            fix = "check the board with nvidia-smi"
            raise RigError(f"expected the canary kernel to run, got {error}", fix=fix) from error
        if got != _CANARY_DIGEST:
            raise RigError(
                f"expected the canary digest {_CANARY_DIGEST}, got {got}", fix="do not trust this board; check it"
            )

    # Patterns and values ---------------------------------------------------------------------------------------------

    def zones(self, base: int, size_bytes: int, pattern: ZonePattern) -> None:
        """Write the zone pattern over `size_bytes` (a multiple of 8) from `base`."""
        words = size_bytes // 8
        self.over(words, "qualify_zone_fill", (base, 8), (words, 8), (pattern.seed, 8), (pattern.flip, 8))

    def fill(self, address: int, place: Placement, recipe: Recipe) -> None:
        """Write a recipe to a buffer at `address`; enqueued, not awaited."""
        if place.size_bytes == 0:
            return
        match recipe:
            case Zeros():
                call(driver.cuMemsetD8Async, address, 0, place.size_bytes, self.stream)
            case Poison():
                self.poison(((address, place.size_bytes, recipe),))
            case Values():
                self._values(address, place.size_bytes, recipe)

    def poison(self, buffers: Sequence[tuple[int, int, Poison]]) -> None:
        """Write poison to a list of (address, bytes, recipe), all at once; enqueued, not awaited."""
        words = max((-(-size // 8) for _, size, _ in buffers), default=0)
        if words == 0:
            return
        table = self._staged(b"".join(map(_row, buffers)))
        side_by_side = min(-(-words // THREADS), -(-32 * self.units // len(buffers)))
        grid = (side_by_side, min(len(buffers), MAX_GRID_Y), 1)
        kernel = Kernel(symbol="qualify_poison", grid=grid, block=(THREADS, 1, 1))
        self.launch(kernel, (table, 8), (len(buffers), 4))

    def _staged(self, data: bytes) -> int:
        """Device memory that holds these bytes for what is enqueued next, until the next call of this."""
        if self._table is None or self._table[1] < len(data):
            if self._table is not None:
                call(driver.cuMemFree, self._table[0])
            size = max(len(data), TABLE_BYTES)
            self._table = int(call(driver.cuMemAlloc, size)), size
        call(driver.cuMemcpyHtoDAsync, self._table[0], data, len(data), self.stream)
        return self._table[0]

    def _values(self, address: int, size_bytes: int, recipe: Values) -> None:
        kind = DTYPES[recipe.dtype]
        elements = size_bytes // kind.size_bytes
        table = self.upload(b"".join(bits.to_bytes(8, "little") for bits in recipe.specials)) if recipe.specials else 0
        self.over(
            elements,
            "qualify_values",
            *((address, 8), (elements, 8), _dtype_struct(recipe.dtype), (int(recipe.distribution == "normal"), 4)),
            *((recipe.base & _NEVER, 8), (recipe.scale & _NEVER, 8), (int(recipe.seed, 16), 8)),
            *((table, 8), (len(recipe.specials), 4)),
        )
        if table:
            self.wait()
            call(driver.cuMemFree, table)

    def scrub(self, seed: str) -> None:
        """Overwrite shared memory: one block a multiprocessor with all that a block can have. Enqueued.

        The carve-out is the greatest, so that what a launch finds there was written under its own division.
        """
        shape: dict[str, Any] = {"grid": (self.units, 1, 1), "block": (1024, 1, 1), "carve_out_percent": 100}
        kernel = Kernel(symbol="qualify_scrub", shared_bytes=self._shared, **shape)
        self.launch(kernel, (int(seed, 16), 8), (self._shared // 4, 4), (self._units_seen(), 8), (MOST_UNITS, 4))

    def scrub_all(self, seed: str) -> None:
        """Overwrite shared memory of every multiprocessor, and wait. Raises RigError unless each was reached."""
        call(driver.cuMemsetD32Async, self._units_seen(), 0, MOST_UNITS, self.stream)
        reached = 0
        for _ in range(SCRUBS):
            self.scrub(seed)
            self.wait()
            reached = self.download(self._units_seen(), 4 * MOST_UNITS)[::4].count(1)
            if reached >= self.units:
                return
        raise RigError(
            f"expected the shared memory of {self.units} multiprocessors to be overwritten, got {reached}",
            fix="leave the board to this run alone",
        )

    def _units_seen(self) -> int:
        """One word for each multiprocessor that a scrub can reach."""
        if self._reached is None:
            self._reached = int(call(driver.cuMemAlloc, 4 * MOST_UNITS))
        return self._reached

    def flush(self, size_bytes: int) -> None:
        """Read so much neutral memory, allocated once. Enqueued."""
        if size_bytes:
            self.touch(self.neutral(size_bytes), size_bytes)

    def touch(self, address: int, size_bytes: int) -> None:
        """Read memory, but for what lies before its first and behind its last whole 16 bytes. Enqueued."""
        start = -(-address // 16) * 16
        count = (address + size_bytes - start) // 16
        if count > 0:
            self.over(count, "qualify_flush", (start, 8), (count, 8), (0, 8))

    def copy(self, size_bytes: int, *, blocks: int | None = None, stream: Any = None) -> None:
        """Copy one half of twice so much neutral memory to the other, in whole units of 16 bytes. Enqueued.

        `blocks` and `stream` say how widely and where; by default as widely as helps, on the harness's own stream.
        """
        count = -(-size_bytes // 16)
        memory = self.neutral(32 * count)
        kernel = Kernel(symbol="qualify_copy", grid=(blocks or self._blocks(count), 1, 1), block=(THREADS, 1, 1))
        self.launch(kernel, (memory + 16 * count, 8), (memory, 8), (count, 8), stream=stream)

    def neutral(self, size_bytes: int) -> int:
        """Memory that no kernel uses, at least so much, written once. Raises DriverError."""
        if self._neutral is None or self._neutral[1] < size_bytes:
            self._neutral = int(call(driver.cuMemAlloc, size_bytes)), size_bytes
            call(driver.cuMemsetD8Async, self._neutral[0], 0x5A, size_bytes, self.stream)
        return self._neutral[0]

    # Digests and checks ----------------------------------------------------------------------------------------------

    def hashes(self, ranges: Sequence[tuple[int, int]]) -> tuple[str, ...]:
        """FNV-1a 64 of a list of (address, bytes), all at once (R9.5)."""
        return self._hash_tiles(listed(ranges)) if ranges else ()

    def _hash_tiles(self, work: Listed) -> tuple[str, ...]:
        """Hash tiles in the order given, number first, buffer second; see fnv.cu for why that order."""
        rows, buffers, tiles = work.rows, work.buffers, work.tiles
        memory = self.upload(rows + bytes(8 * buffers + 8 * tiles + 8) + work.buffer + work.number + bytes(4 * tiles))
        digests = memory + len(rows)
        partial = digests + 8 * buffers
        ticket = partial + 8 * tiles
        which, numbers, said = (ticket + 8 + 4 * tiles * part for part in range(3))
        if tiles:
            blocks = min(tiles, 2 * self.units)
            kernel = Kernel(
                symbol="qualify_fnv_tiles",
                grid=(blocks, 1, 1),
                block=(FNV_THREADS, 1, 1),
                shared_bytes=FNV_SHARED_BYTES,
            )
            head = ((memory, 8), (which, 8), (numbers, 8), (tiles, 4), (ticket, 8))
            self.launch(kernel, *head, (said, 8), (partial, 8), (warps_back(blocks, buffers), 4))
        fold = Kernel(symbol="qualify_fnv_fold", grid=(buffers, 1, 1), block=(FNV_THREADS, 1, 1))
        self.launch(fold, (memory, 8), (partial, 8), (digests, 8))
        self.wait()
        found = self.download(digests, 8 * buffers)
        call(driver.cuMemFree, memory)
        return tuple(f"{digest:016x}" for (digest,) in iter_unpack("<Q", found))

    def damage(self, base: int, gaps: Sequence[tuple[int, int]], pattern: ZonePattern) -> tuple[int, int | None]:
        """How many bytes of the gaps (from, to) changed, and the first one's offset."""
        table = b"".join(start.to_bytes(8, "little") + end.to_bytes(8, "little") for start, end in gaps)
        memory = self.upload(bytes(8) + _NEVER.to_bytes(8, "little") + table)
        grid = (min(len(gaps), 64 * self.units), 1, 1)
        kernel = Kernel(symbol="qualify_zone_check", grid=grid, block=(THREADS, 1, 1))
        head = ((base, 8), (memory + 16, 8), (len(gaps), 4))
        self.launch(kernel, *head, (pattern.seed, 8), (pattern.flip, 8), (memory, 8))
        return self._counted(memory)

    def unwritten(self, address: int, size_bytes: int, poison: Poison, beside: int = 0) -> tuple[int, int | None]:
        """How many elements equal the poison, and its complement at `beside` if any; and the first one's index."""
        size = DTYPES[poison.dtype].size_bytes
        elements = size_bytes // size
        if elements == 0:
            return 0, None
        memory = self.upload(bytes(8) + _NEVER.to_bytes(8, "little"))
        head, rest = ((address, 8), (beside, 8)), _poisoned(poison)
        self.over(elements, "qualify_unwritten", *head, (elements, 8), (size, 4), *rest, (memory, 8))
        return self._counted(memory)

    def _counted(self, memory: int) -> tuple[int, int | None]:
        self.wait()
        found = self.download(memory, 16)
        call(driver.cuMemFree, memory)
        count, first = int.from_bytes(found[:8], "little"), int.from_bytes(found[8:], "little")
        return count, first if count else None

    # Memory and launches ---------------------------------------------------------------------------------------------

    def over(self, work: int, symbol: str, *parameters: Parameter) -> None:
        """One of the grid-stride kernels over so much work."""
        self.launch(Kernel(symbol=symbol, grid=(self._blocks(work), 1, 1), block=(THREADS, 1, 1)), *parameters)

    def _blocks(self, work: int) -> int:
        return min(max(1, -(-work // THREADS)), 32 * self.units)

    def launch(self, kernel: Kernel, *parameters: Parameter, stream: Any = None) -> None:
        """Enqueue one harness kernel, on the harness's own stream if no other is named. Raises DriverError."""
        values = tuple(each if isinstance(each, bytes) else each[0].to_bytes(each[1], "little") for each in parameters)
        to = self.stream if stream is None else stream
        prepare(self._functions[kernel.symbol], kernel, values, to).enqueue()

    def upload(self, data: bytes) -> int:
        """New device memory with these bytes in it, for the kernels that are enqueued next.

        The copy is in our own stream: one in the default stream returns once it is staged, and a kernel of a stream
        that does not wait for that one can read the memory before the bytes are there.
        """
        memory = int(call(driver.cuMemAlloc, max(len(data), 8)))
        call(driver.cuMemcpyHtoDAsync, memory, data, len(data), self.stream)
        return memory

    def write(self, address: int, data: bytes) -> None:
        """Bytes to device memory, and wait."""
        if data:
            call(driver.cuMemcpyHtoDAsync, address, data, len(data), self.stream)
        self.wait()

    def download(self, address: int, size_bytes: int) -> bytes:
        """Device memory as bytes."""
        if size_bytes == 0:
            return b""
        target = ctypes.create_string_buffer(size_bytes)
        call(driver.cuMemcpyDtoH, ctypes.addressof(target), address, size_bytes)
        return target.raw

    def wait(self) -> None:
        """Wait for everything on the device and read the error where it happened. Raises DriverError."""
        call(driver.cuCtxSynchronize)


def _row(buffer: tuple[int, int, Poison]) -> bytes:
    """`struct poison_row` of harness.cu."""
    address, size_bytes, recipe = buffer
    return _POISON_ROW.pack(address, size_bytes, *(value for value, _ in _poisoned(recipe)))


def _poisoned(recipe: Poison) -> tuple[tuple[int, int], ...]:
    """The four parameters that make one poison: seed, two masks, inversion."""
    top, below = poison_masks(recipe.dtype)
    return (int(recipe.seed, 16), 8), (top, 8), (below, 8), (_NEVER if recipe.complement else 0, 8)


def _dtype_struct(name: str) -> bytes:
    """`struct dtype` of harness.cu."""
    kind = DTYPES[name]
    is_float = kind.exponent_bits > 0
    small = (kind.bits, kind.exponent_bits, kind.mantissa_bits, kind.bias if is_float else 0)
    large = (kind.sign_bit, kind.greatest, kind.overflow if is_float else 0)
    return b"".join(value.to_bytes(4, "little") for value in small) + b"".join(
        value.to_bytes(8, "little") for value in large
    )
