"""The harness on an OpenCL device: kernels of our own that fill, poison, check, digest and flush the arena.

Making their machine code takes more than a second, so it is made once (`make_binary`) and loaded by every measuring
worker after that. Whatever fails here is the rig's error: no candidate's code runs in these calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any, TypeVar

import numpy as np
import pyopencl as cl

from qualify.elements import DTYPES
from qualify.errors import RigError
from qualify.fill import generate
from qualify.fnv import PRIME, fnv1a64
from qualify.patterns import poison_masks
from qualify.placement import Placement
from qualify.steps import Poison, Values
from qualify.workers.devices.base import CANARY_SEED, MOST_AXES, ZonePattern

Memory = np.ndarray[Any, np.dtype[np.uint8]]
Found = np.ndarray[Any, np.dtype[np.uint64]]
T = TypeVar("T")

#: Work-items of a group where neighbours write neighbouring bytes, and where each item is a task of its own.
_WIDE, _ALONE = 64, 1
_RANGE_BYTES = 16 << 10  # A zone check is cut into pieces of this, so that all compute units share it.
_RUN_WORDS = 4096
_CHAINS = 3  # Buffers that one work-item digests side by side.
_ELEMENTS_AN_ITEM = 4  # Of values: four Philox counters fill a vector.
_TOUCH_BYTES = 64 << 10
_GROUPS_A_UNIT = 64  # A unit of PoCL takes 32 groups in a row, so each unit finds some left.
_LEAST_SHARED_BYTES = 64 << 10
_SCRUB_S, _PAUSE_S = 2.0, 0.0002  # A unit that never comes in such a time does not run.
_FIX = "the OpenCL platform of this machine does not work; reinstall PoCL, or run where it does"
_FLAGS = cl.svm_mem_flags.READ_WRITE | cl.svm_mem_flags.SVM_FINE_GRAIN_BUFFER


def rigged(call: Callable[[], T], what: str) -> T:
    """A call of the harness. Raises RigError for what the platform raises."""
    try:
        return call()
    except (cl.Error, RuntimeError, MemoryError) as error:
        raise RigError(f"{what} fails on the OpenCL device: {error}", fix=_FIX) from error


class Harness:
    """The harness kernels on one queue. Enqueueing methods return the event and do not wait."""

    def __init__(self, device: Any, binary: bytes | None = None) -> None:
        self.device = device
        self.context = rigged(lambda: cl.Context([device]), "a context")
        self.queue = self.new_queue()
        self._program = rigged(lambda: self._build(binary), "the harness")
        self._kernels: dict[str, Any] = {}
        self._scalars: dict[tuple[str, int], Any] = {}  # Kernels keep what they are given; giving takes 10 us.
        self._kept: list[Any] = []
        self._uses: dict[str, Memory] = {}

    def _build(self, binary: bytes | None) -> Any:
        if binary is not None:
            return cl.Program(self.context, [self.device], [binary]).build()
        source = files(__package__).joinpath("harness.cl").read_text(encoding="ascii")
        return cl.Program(self.context, source).build()

    def new_queue(self) -> Any:
        """A queue of this context whose events tell their times."""
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        return rigged(lambda: cl.CommandQueue(self.context, self.device, profiling), "a queue")

    @property
    def binary(self) -> bytes:
        """The program with the machine code of every kernel that has run so far."""
        data: bytes = self._program.get_info(cl.program_info.BINARIES)[0]
        return data

    # Memory ----------------------------------------------------------------------------------------------------------

    def allocate(self, size_bytes: int) -> Memory:
        """Shared virtual memory that is never freed. Raises cl.Error or RuntimeError if there is not enough."""
        allocation = cl.SVMAllocation(self.context, size_bytes, 0, _FLAGS)
        self._kept.append(allocation)
        memory: Memory = np.frombuffer(allocation.buf, dtype=np.uint8)
        return memory

    def table(self, numbers: Sequence[int]) -> Memory:
        """Device memory that holds these 64-bit numbers, until the next table."""
        memory = self._shared("table", len(numbers))
        memory.view(np.uint64)[: len(numbers)] = np.array(numbers, dtype=np.uint64)
        return memory

    def results(self, count: int) -> Memory:
        """Device memory for `count` 64-bit numbers, until the next results."""
        return self._shared("results", count)

    def _shared(self, use: str, count: int) -> Memory:
        """The first `count` numbers (at least one) of the one memory of that use, which grows."""
        count = max(count, 1)
        memory = self._uses.get(use)
        if memory is None or len(memory) < 8 * count:
            size = max(8 * count, _LEAST_SHARED_BYTES)
            memory = self._uses[use] = rigged(lambda: self.allocate(size), f"{size} bytes of {use}")
        return memory[: 8 * count]

    # Kernels ---------------------------------------------------------------------------------------------------------

    def _enqueue(self, name: str, items: int, group: int, *arguments: Any, queue: Any = None) -> Any:
        kernel = self._kernels.get(name)
        if kernel is None:
            kernel = self._kernels[name] = rigged(lambda: cl.Kernel(self._program, name), f"kernel {name}")
        for position, argument in enumerate(arguments):
            if isinstance(argument, np.ndarray):
                kernel.set_arg(position, cl.SVM(argument))
            elif self._scalars.get((name, position)) != argument:
                kernel.set_arg(position, argument)
                self._scalars[name, position] = argument
        size = max(-(-items // group), 1) * group
        to = self.queue if queue is None else queue
        return rigged(lambda: cl.enqueue_nd_range_kernel(to, kernel, (size,), (group,)), f"kernel {name}")

    def zone_write(self, arena: Memory, pattern: ZonePattern) -> Any:
        """Write the zone pattern over the whole arena."""
        sizes = (_u64(len(arena)), _u64(pattern.seed), _u64(pattern.flip))
        return self._enqueue("zone_write", -(-len(arena) // 8), _WIDE, arena, *sizes)

    def zone_check(
        self, arena: Memory, gaps: Sequence[tuple[int, int]], pattern: ZonePattern
    ) -> tuple[int, int | None]:
        """How many bytes of the gaps differ from the pattern, and the first one's offset."""
        pieces = [
            (start, min(start + _RANGE_BYTES, end)) for low, end in gaps for start in range(low, end, _RANGE_BYTES)
        ]
        ranges, found = self.table([edge for piece in pieces for edge in piece]), self.results(2 * len(pieces))
        figures = (_u64(len(pieces)), _u64(pattern.seed), _u64(pattern.flip))
        self.wait(self._enqueue("zone_check", len(pieces), _ALONE, arena, ranges, *figures, found))
        return _first(found, len(pieces))

    def poison(self, memory: Memory, poison: Poison) -> Any:
        """Poison a buffer of at least one byte."""
        items = -(-len(memory) // (8 * _RUN_WORDS))
        sizes = (_u64(len(memory)), _u64(_RUN_WORDS))
        return self._enqueue("poison", items, _ALONE, memory, *sizes, *_poison_arguments(poison))

    def unwritten(self, memory: Memory, poison: Poison, beside: Memory | None = None) -> tuple[int, int | None]:
        """How many elements equal the poison, and its complement in `beside` if any; and the first one's index."""
        items = -(-len(memory) // (8 * _RUN_WORDS))
        found = self.results(2 * items)
        sizes = (_u64(len(memory)), _u64(DTYPES[poison.dtype].size_bytes), _u64(_RUN_WORDS))
        both = (memory if beside is None else beside, _u64(beside is not None))
        self.wait(self._enqueue("unwritten", items, _ALONE, memory, *both, *sizes, *_poison_arguments(poison), found))
        return _first(found, items)

    def values(self, memory: Memory, values: Values) -> Any:
        """Write seeded values to a buffer of at least one element."""
        dtype = DTYPES[values.dtype]
        elements = len(memory) // dtype.size_bytes
        is_float = dtype.kind == "float"
        return self._enqueue(
            "values",
            -(-elements // _ELEMENTS_AN_ITEM),
            _WIDE,
            memory,
            _u64(elements),
            np.uint32(dtype.size_bytes),
            np.uint32(values.distribution == "normal"),
            np.int64(values.base),
            np.int64(values.scale),
            _u64(int(values.seed, 16)),
            np.uint32(is_float),
            np.uint32(dtype.mantissa_bits),
            np.int32(dtype.bias if is_float else 0),
            _u64(dtype.sign_bit),
            _u64(dtype.greatest),
            _u64(dtype.overflow if is_float else 0),
            self.table(values.specials),
            np.uint32(len(values.specials)),
        )

    def digest(self, arena: Memory, places: Sequence[Placement]) -> tuple[str, ...]:
        """FNV-1a 64 of each placement: one launch; equal sizes side by side, so that none waits alone."""
        order = sorted(range(len(places)), key=lambda at: places[at].size_bytes)
        table = self.table([number for at in order for number in (places[at].offset_bytes, places[at].size_bytes)])
        found, items = self.results(len(places)), -(-len(places) // _CHAINS)
        numbers = (_u64(len(places)), _u64(PRIME))
        self.wait(self._enqueue("digest", items, _ALONE, arena, table, *numbers, found))
        digests = dict(zip(order, found.view(np.uint64)[: len(places)], strict=True))
        return tuple(f"{int(digests[at]):016x}" for at in range(len(places)))

    def scrub(self, seed: int) -> None:
        """Overwrite the local memory of every compute unit, and wait. Raises RigError unless each was reached."""
        size, units = self.device.local_mem_size, self.device.max_compute_units
        table, end = self.table([0] * (units + 1)), time.monotonic() + _SCRUB_S
        local = (cl.LocalMemory(size), _u64(size // 8), _u64(seed), np.uint32(units))
        while True:
            self.wait(self._enqueue("scrub", _GROUPS_A_UNIT * units, _ALONE, *local, table))
            reached = int(table.view(np.uint32)[0])
            if reached >= units:
                return
            if time.monotonic() > end:
                break
            time.sleep(_PAUSE_S)  # Whoever has the unit's core may be done then.
        raise RigError(
            f"the local memory of {reached} of {units} compute units could be overwritten",
            fix="leave the device to this run alone",
        )

    def packed(self, size_bytes: int, use: str = "packed") -> Memory:
        """Memory for elements that lie apart, in a row, until the next call for that use."""
        return self._shared(use, -(-size_bytes // 8))[:size_bytes]

    def gather(self, arena: Memory, packed: Memory, place: Placement) -> Any:
        """Copy a strided buffer's elements into a row."""
        return self._move("gather", arena, packed, place)

    def scatter(self, arena: Memory, packed: Memory, place: Placement) -> Any:
        """Copy elements from a row to where a strided buffer has them."""
        return self._move("scatter", arena, packed, place)

    def _move(self, name: str, arena: Memory, packed: Memory, place: Placement) -> Any:
        axes = ((1, 0),) * (MOST_AXES - len(place.axes)) + place.axes
        counts = (_u64(axes[1][0]), _u64(axes[2][0]))
        strides = tuple(_u64(stride) for _, stride in axes)
        items = place.size_bytes // place.run_bytes
        at = (_u64(place.offset_bytes), _u64(place.run_bytes))
        return self._enqueue(name, items, _ALONE, arena, packed, *at, *counts, *strides)

    def touch(self, memory: Memory) -> Any:
        """Read memory through every cache."""
        items = -(-len(memory) // _TOUCH_BYTES)
        sums = self._shared("sums", items)
        return self._enqueue("touch", items, _ALONE, memory, _u64(len(memory)), _u64(_TOUCH_BYTES), sums)

    def busy(self, memory: Memory, queue: Any) -> Any:
        """Read memory with one work-item of another queue, which leaves the other compute units to this one's."""
        size = _u64(len(memory))
        return self._enqueue("touch", 1, _ALONE, memory, size, size, self._shared("busy", 1), queue=queue)

    def copy(self, to: Memory, source: Memory) -> Any:
        """Copy as many bytes as `to` has, on all compute units."""
        items = -(-len(to) // _TOUCH_BYTES)
        return self._enqueue("copy", items, _ALONE, to, source, _u64(len(to)), _u64(_TOUCH_BYTES))

    def set_bytes(self, memory: Memory, byte: int, queue: Any = None) -> Any:
        """Set every byte of a buffer of at least one."""
        to = self.queue if queue is None else queue
        return cl.enqueue_svm_memfill(to, cl.SVM(memory), bytes([byte]))

    def wait(self, event: Any) -> None:
        """Wait for a harness kernel. Raises RigError if it fails."""
        rigged(event.wait, "a harness kernel")

    # Truth -----------------------------------------------------------------------------------------------------------

    def canary(self) -> None:
        """Values and their digest, made on the device and compared with the definition. Raises RigError."""
        want = generate(_CANARY, _CANARY_ELEMENTS)
        memory = rigged(lambda: self.allocate(len(want)), "memory for the canary")
        self.wait(self.values(memory, _CANARY))
        place = Placement(buffer="canary.0", dtype="float32", offset_bytes=0, size_bytes=len(want))
        if memory.tobytes() != want or self.digest(memory, (place,)) != (fnv1a64(want),):
            raise RigError("the canary kernel computes wrong bits on the OpenCL device", fix=_FIX)


_CANARY_ELEMENTS = 1000
_CANARY = Values(dtype="float32", distribution="normal", base=1 << 31, scale=1 << 32, seed=CANARY_SEED)
_APART = Placement(buffer="apart.0", dtype="uint8", offset_bytes=0, size_bytes=32, axes=((4, 16),))
#: PoCL makes other machine code for more than 65,535 work-items; so many bytes have them in every kernel of ours.
_LARGE_BYTES = 2 << 20


def make_binary(device: Any) -> bytes:
    """The harness as a program binary with the machine code of every kernel. Raises RigError."""
    harness = Harness(device)
    harness.canary()
    large = rigged(lambda: harness.allocate(_LARGE_BYTES), f"{_LARGE_BYTES} bytes of memory")
    memory, poison = large[:64], Poison(dtype="float32", seed="0" * 16)
    for event in (
        harness.zone_write(memory, ZonePattern(0)),
        harness.zone_write(large, ZonePattern(0)),
        harness.values(large, _CANARY),
        harness.poison(memory, poison),
        harness.touch(memory),
        harness.copy(memory[:32], memory[32:]),
        harness.scatter(memory, large[64:96], _APART),
        harness.gather(memory, large[64:96], _APART),
    ):
        harness.wait(event)
    harness.scrub(0)
    harness.zone_check(memory, [(0, 64)], ZonePattern(0))
    harness.unwritten(memory, poison)
    return harness.binary


def _u64(number: int) -> Any:
    return np.uint64(number)


def _poison_arguments(poison: Poison) -> tuple[Any, ...]:
    top, below = poison_masks(poison.dtype)
    flip = (1 << 64) - 1 if poison.complement else 0
    return tuple(_u64(number) for number in (int(poison.seed, 16), top, below, flip))


def _first(found: Memory, count: int) -> tuple[int, int | None]:
    """The sum of the counts and the lowest position of pairs (count, first position)."""
    pairs = found.view(np.uint64)[: 2 * count].reshape(count, 2)
    hits = pairs[pairs[:, 0] > 0]
    return int(pairs[:, 0].sum()), int(hits[:, 1].min()) if len(hits) else None
