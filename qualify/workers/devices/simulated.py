"""The virtual board: a device like any other behind the same worker, with a clock that runs as scripts say.

Memory, poison, zones and digests are real; kernels are scripts (`qualify.workers.virtual`); time is a virtual clock
with seeded noise, so that the same steps give the same stamps. Every operation is traced in the order in which it
happened.
"""

from __future__ import annotations

import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from blake3 import blake3

from qualify.contract import Kernel, Launch, Memset
from qualify.domain import Board
from qualify.elements import DTYPES
from qualify.errors import DocumentError, RigError
from qualify.fill import generate, zone_bytes
from qualify.fnv import fnv1a64
from qualify.placement import Placement
from qualify.steps import (
    Answer,
    ArmName,
    Capture,
    Census,
    Contend,
    Damage,
    Equal,
    Launching,
    Poison,
    Run,
    Segment,
    Slot,
    Spans,
    Stage,
    Stamps,
)
from qualify.workers.devices.base import Content, Device, ZonePattern
from qualify.workers.devices.binding import Bound, StepRefused, in_a_row
from qualify.workers.devices.segments import rows
from qualify.workers.devices.simulated_kernels import Beside, Call, execute
from qualify.workers.devices.simulated_memory import Memory, digests_of, elements
from qualify.workers.virtual import BOARD, LIMITS, Entry, Script

_TRACED = 10_000  # Operations that a trace keeps: some hundred windows, and a message under a megabyte.
_MEMSET_NS = 1_000
#: What a kernel that does the work of many passes in one launch takes, against as many honest passes.
_BATCH_PER_MILLE = 1_056
#: What the launches after it take, as a part of an honest pass.
_REST = {"superbatch": 1000, "ahead": 2}
_NO_SEED = "0" * 16  # Of noise, for passes that nobody times.
_COPY_START_NS, _COPY_BYTES_PER_US = 2_000, 100_000


class Phase(NamedTuple):
    """What a kernel can do with one launch beside its own pass: the sets of its part of a segment, and of all."""

    part: Sequence[int]
    whole: Sequence[int]


class _Node(NamedTuple):
    """One node of a captured graph and what a replay does of it."""

    launch: Launch
    replay: Callable[[], None]


class SimulatedDevice(Device):
    """A device that obeys scripts. Its verdicts prove nothing about any board."""

    has_graphs = True

    def __init__(self) -> None:
        super().__init__()
        self._memory: Memory = np.zeros(0, dtype=np.uint8)
        self._pattern: Memory = self._memory
        self._outside = np.zeros(0, dtype=np.bool_)
        self._shared: Memory = np.zeros(64, dtype=np.uint8)
        self._entries: dict[tuple[ArmName, str], Entry] = {}
        self._launched: Counter[tuple[ArmName, str]] = Counter()
        self._memos: dict[tuple[ArmName, str], dict[int, bytes]] = {}
        self._segments: Counter[ArmName] = Counter()
        self._wake: tuple[ArmName, Entry, int] | None = None
        self._held: Stage | None = None
        self._graphs: dict[ArmName, list[_Node]] = {}
        self._beside: Beside | None = None
        self._clock_ns = 1_000_000_000
        self._ticks = 0
        self._traced: deque[str] = deque(maxlen=_TRACED)

    def board(self) -> Board:
        """The virtual board, the same everywhere."""
        return BOARD

    def canary(self) -> None:
        """A digest against its published value. Raises RigError."""
        if fnv1a64(b"foobar") != "85944171f73967e8":
            raise RigError("the simulated device cannot digest", fix="reinstall qualify")

    def close(self) -> None:
        """Nothing is held."""

    # Memory ----------------------------------------------------------------------------------------------------------

    def _load(self, arm: ArmName, code: bytes, symbols: Mapping[str, str]) -> None:
        try:
            script = Script.parse(code)
        except DocumentError as error:
            raise StepRefused(f"object of {len(code)} bytes: {error}") from error
        for symbol in symbols:
            if symbol not in script.entries:
                raise StepRefused(f"kernel {symbol}: not in the object")
            self._entries[arm, symbol] = script.entries[symbol]

    def _arena(self, size_bytes: int, zones: ZonePattern) -> None:
        if size_bytes > (LIMITS.memory_bytes or 0):
            raise StepRefused(f"an arena of {size_bytes} bytes on a device of {LIMITS.memory_bytes}")
        self._trace_of(f"arena {size_bytes}")
        data = zone_bytes(f"{zones.seed:016x}", 0, size_bytes, complement=zones.complement)
        self._pattern = np.frombuffer(data, dtype=np.uint8)
        self._memory = self._pattern.copy()
        self._outside = np.zeros(size_bytes, dtype=np.bool_)
        for start, end in self._gaps:
            self._outside[start:end] = True

    def _at(self, place: Placement) -> Memory:
        return elements(self._memory, in_a_row(place))

    def _fill(self, contents: Sequence[Content]) -> None:
        for place, recipe in contents:
            self._trace_of(f"{'poison' if isinstance(recipe, Poison) else recipe.make} {place.buffer}")
            count = place.size_bytes // DTYPES[place.dtype].size_bytes
            data = generate(recipe, count, size_bytes=place.size_bytes)
            view = elements(self._memory, place)
            view[...] = np.frombuffer(data, dtype=np.uint8).reshape(view.shape)

    def _scrub(self, seed: str) -> None:
        self._trace_of("scrub")
        self._shared[:] = np.frombuffer(zone_bytes(seed, 0, len(self._shared)), dtype=np.uint8)

    def _digest(self, places: Sequence[Placement]) -> tuple[str, ...]:
        for place in places:
            self._trace_of(f"digest {place.buffer}")
        return digests_of([elements(self._memory, place).reshape(-1) for place in places])

    def _zones(self) -> Damage:
        self._trace_of("zones")
        wrong = np.flatnonzero((self._memory != self._pattern) & self._outside)
        return Damage(bytes=len(wrong), first_offset=int(wrong[0]) if len(wrong) else None)

    def _unwritten(self, place: Placement, poison: Poison, beside: Placement | None) -> Equal:
        self._trace_of(f"unwritten {place.buffer}")
        width = DTYPES[place.dtype].size_bytes
        wrote = np.frombuffer(generate(poison, place.size_bytes // width), dtype=f"<u{width}")
        equal = elements(self._memory, place).reshape(-1).view(f"<u{width}") == wrote
        if beside is not None:
            equal &= elements(self._memory, beside).reshape(-1).view(f"<u{width}") == ~wrote
        same = np.flatnonzero(equal)
        return Equal(elements=len(same), first_index=int(same[0]) if len(same) else None)

    def _read(self, place: Placement) -> bytes:
        self._trace_of(f"read {place.buffer}")
        return elements(self._memory, place).tobytes()

    def _kernel(self, arm: ArmName, symbol: str, launch: Kernel | None) -> Answer:
        """The script's own figures, under the names that OpenCL devices use; of residency it knows nothing."""
        entry = self._entries[arm, symbol]
        names = ("block_threads", "shared_bytes", "private_bytes")
        return Answer(facts={name: getattr(entry, name) for name in names})

    def _trace(self) -> Answer:
        return Answer(facts=[*self._traced])

    def _trace_of(self, operation: str) -> None:
        self._traced.append(operation)

    # Launches --------------------------------------------------------------------------------------------------------

    def _run(self, step: Run) -> None:
        self._pass(step, step.set, _alone(step.set), _NO_SEED)
        self._trace_of("wait")

    def _pass(self, step: Launching, number: int, phase: Phase, seed: str) -> None:
        """One pass on one set."""
        for launch in step.launches:
            self._launch(step, launch, number, phase, seed)

    def _launch(self, step: Launching, launch: Launch, number: int, phase: Phase, seed: str) -> None:
        match launch:
            case Memset():
                self._trace_of(f"memset {step.arm} {launch.memset}.{number}")
                self._at(self._memset_place(launch, step.slots, number))[:] = launch.byte
                self._clock_ns += _MEMSET_NS
            case Kernel():
                self._trace_of(f"launch {step.arm} {launch.symbol} {number}")
                self._kernel_pass(step, launch, number, phase, seed)

    def _kernel_pass(self, step: Launching, launch: Kernel, number: int, phase: Phase, seed: str) -> None:
        entry = self._entries[step.arm, launch.symbol]
        _check_launch(launch, entry)
        pass_ns = self._pass_ns(entry, seed) * self._waking_ppm(step.arm) // 1_000_000
        batch = {"superbatch": phase.part, "ahead": phase.whole}.get(entry.does, ())
        for each in batch if batch and number == batch[0] else ():
            execute(self._call(step.arm, launch, step.slots, each))
        if not batch:
            pass_ns //= execute(self._call(step.arm, launch, step.slots, number))
        elif number == batch[0]:
            pass_ns = pass_ns * len(batch) * _BATCH_PER_MILLE // 1000
        else:
            pass_ns //= _REST[entry.does]
        self._clock_ns += max(pass_ns, 1)
        self._launched[step.arm, launch.symbol] += 1
        if entry.wake_ppm:
            self._wake = step.arm, entry, entry.wake_passes

    def _waking_ppm(self, arm: ArmName) -> int:
        """What a pass takes after what another arm's kernel left behind, in parts of its own time."""
        if self._wake is None or self._wake[0] == arm or not self._wake[2]:
            return 1_000_000
        other, entry, left = self._wake
        self._wake = other, entry, left - 1
        return 1_000_000 + entry.wake_ppm

    def _call(self, arm: ArmName, launch: Kernel, slots: Sequence[Slot], number: int) -> Call:
        entry, bound = self._entries[arm, launch.symbol], self._bind(launch, slots, number)
        return Call(
            entry=entry,
            memory=self._memory,
            shared=self._shared,
            out=_buffer(launch, bound, entry.out),
            inputs=tuple(_buffer(launch, bound, position) for position in entry.inputs),
            earlier=self._launched[arm, launch.symbol],
            memo=self._memos.setdefault((arm, launch.symbol), {}),
            beside=self._beside,
        )

    def _pass_ns(self, entry: Entry, seed: str) -> int:
        """The script's time with seeded noise (twelve summed words) and drift; the same steps give the same time."""
        self._ticks += 1
        words = blake3(f"{seed} {self._ticks}".encode()).digest(length=24)
        total: int = sum(struct.unpack("<12H", words))
        centred = total - 12 * 65535 // 2
        ppm = 1_000_000 + entry.noise_ppm * centred // 65536 + entry.drift_ppm_per_s * self._clock_ns // 10**9
        return max(entry.pass_ns * ppm // 1_000_000, 1)

    # Graphs and a second queue ---------------------------------------------------------------------------------------

    def _capture(self, step: Capture) -> Census:
        self._trace_of(f"capture {step.arm} {step.set}")
        nodes = [node for launch in step.launches for node in self._nodes(step, launch)]
        self._graphs[step.arm] = nodes
        kernels = sum(isinstance(node.launch, Kernel) for node in nodes)
        return Census(kernels=kernels, memsets=len(nodes) - kernels, others=0)

    def _nodes(self, step: Capture, launch: Launch) -> list[_Node]:
        """What a launch becomes in a graph; a memset of nothing leaves no node."""
        run = partial(self._launch, step, launch, step.set, _alone(step.set), _NO_SEED)
        if isinstance(launch, Memset):
            return [_Node(launch, run)] if self._memset_place(launch, step.slots, step.set).size_bytes else []
        entry = self._entries[step.arm, launch.symbol]
        _check_launch(launch, entry)
        out = self._at(self._call(step.arm, launch, step.slots, step.set).out)
        match entry.captured:
            case "work":
                return [_Node(launch, run)]
            case "nothing":
                return []
            case "elsewhere":
                run()
                return []
            case "idle":
                return [_Node(launch, lambda: None)]
            case "answer":
                run()
                return [_Node(launch, partial(out.__setitem__, slice(None), out.copy()))]

    def _replay(self, arm: ArmName) -> None:
        self._trace_of(f"replay {arm}")
        for node in self._graphs[arm]:
            node.replay()
        self._trace_of("wait")

    def _contend(self, step: Contend) -> bool:
        """The other queue's launches come right after; a kernel cannot tell, but for what scripts say."""
        self._trace_of(f"contend {step.arm} {step.set} {'work' if step.beside is None else step.beside}")
        self._beside = "work" if step.beside is None else "itself"
        try:
            for number in (step.set, *(() if step.beside is None else (step.beside,))):
                self._pass(step, number, _alone(number), _NO_SEED)
        finally:
            self._beside = None
        self._trace_of("wait")
        return True

    # Timing ----------------------------------------------------------------------------------------------------------

    def _segment(self, step: Segment) -> Stamps:
        self._prepare(step)
        self._segments[step.arm] += 1
        self._units(step, step.lead_in)
        self._trace_of("clock")
        start_ns = self._clock_ns
        ends = self._units(step, step.timed)
        self._trace_of("clock")
        self._trace_of("wait")
        sets = (*step.lead_in, *step.timed)
        digests = self._digest([self._place(f"{name}.{number}") for number in sets for name in step.digested])
        return Stamps(
            start_ns=start_ns,
            unit_end_ns=ends,
            digests=rows(digests, len(sets)),
            damage=self._zones(),
            host_bound=self._host_bound(step),
        )

    def _host_bound(self, step: Segment) -> bool:
        every = [self._entries[step.arm, each.symbol].host_bound_every for each in _kernels(step)]
        return any(number and self._segments[step.arm] % number == 0 for number in every)

    def _stage(self, step: Stage) -> None:
        self._held = step

    def _go(self) -> Spans:
        """The first round is executed, the others only take their time; then as much real time has passed."""
        step, self._held = self._held, None
        if step is None:
            raise StepRefused("nothing is staged")
        started_s, start_ns = time.monotonic(), self._clock_ns
        for number in step.sets:
            self._pass(step, number, Phase(step.sets, step.sets), _NO_SEED)
        self._clock_ns += (self._clock_ns - start_ns) * (step.rounds - 1)
        wall = max((self._entries[step.arm, each.symbol].wall_ppm for each in _kernels(step)), default=1_000_000)
        until_s = started_s + (self._clock_ns - start_ns) * wall / 1e15
        time.sleep(max(0.0, until_s - time.monotonic()))
        return Spans(start_ns=(start_ns,), end_ns=(self._clock_ns,))

    def _copy(self, size_bytes: int, times: int) -> Sequence[tuple[int, int]]:
        took_ns = _COPY_START_NS + 1000 * size_bytes // _COPY_BYTES_PER_US
        start_ns, self._clock_ns = self._clock_ns, self._clock_ns + times * took_ns
        return [(start_ns + n * took_ns, start_ns + (n + 1) * took_ns) for n in range(times)]

    def _prepare(self, step: Segment) -> None:
        """R10.3, steps 1 to 4."""
        self._fill(self._poisons(step))
        self._scrub(step.seed)
        self._trace_of(f"flush {step.flush_bytes}")

    def _units(self, step: Segment, sets: Sequence[int]) -> tuple[int, ...]:
        """Every pass on its own set; the clock at the end of each unit."""
        ends = []
        for position, number in enumerate(sets, start=1):
            self._pass(step, number, Phase(sets, (*step.lead_in, *step.timed)), step.seed)
            if position % step.passes == 0:
                ends.append(self._clock_ns)
        return tuple(ends)


def _alone(number: int) -> Phase:
    """A pass that is all there is."""
    return Phase((number,), (number,))


def _buffer(launch: Launch, bound: Sequence[Bound], position: int) -> Placement:
    argument = bound[position] if position < len(bound) else None
    if not isinstance(argument, Placement):
        raise StepRefused(f"the script of {getattr(launch, 'symbol', launch)} has no buffer at position {position}")
    return in_a_row(argument)


def _kernels(step: Segment | Stage) -> list[Kernel]:
    return [launch for launch in step.launches if isinstance(launch, Kernel)]


def _check_launch(launch: Kernel, entry: Entry) -> None:
    if launch.cluster is not None or launch.cooperative or launch.carve_out_percent is not None:
        raise StepRefused(
            f"{launch.symbol}: the virtual board has neither clusters nor cooperative launches nor a carve-out"
        )
    if launch.threads > entry.block_threads:
        raise StepRefused(f"{launch.symbol}: {launch.threads} threads in a block of at most {entry.block_threads}")
    if launch.shared_bytes + entry.shared_bytes > (LIMITS.shared_bytes or 0):
        raise StepRefused(f"{launch.symbol}: more shared memory than {LIMITS.shared_bytes} bytes")
