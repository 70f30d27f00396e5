"""The CUDA device: one board, one stream, one arena of plain device memory, nothing pinned and nothing managed.

The harness's own kernels (`harness.cu`, `fnv.cu`) come as object code from the compile worker of the same toolkit.
Checked runs wait after every launch, so that an error belongs to the step that was announced; a segment waits once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from cuda.bindings import driver

from qualify.arena import BASE_ALIGN_BYTES
from qualify.contract import Kernel, Memset, TensorMap
from qualify.domain import Board
from qualify.errors import RigError
from qualify.placement import Placement
from qualify.steps import (
    MAX_HELD_CALLS,
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
    Spans,
    Stage,
    Stamps,
)
from qualify.workers.devices.base import Content, Device, ZonePattern
from qualify.workers.devices.binding import Bound, StepRefused
from qualify.workers.devices.cuda_arguments import Watch, tensor_map
from qualify.workers.devices.cuda_board import board
from qualify.workers.devices.cuda_contention import Contention
from qualify.workers.devices.cuda_driver import DriverError, Function, call, load, prepare, reached, variable_of
from qualify.workers.devices.cuda_graphs import Graph, capture, holds
from qualify.workers.devices.cuda_harness import CudaHarness
from qualify.workers.devices.cuda_residency import figures, resident
from qualify.workers.devices.cuda_strides import Row
from qualify.workers.devices.segments import rows

#: A board maps memory in pages of this size; smaller allocations share one.
PAGE_BYTES = 2 << 20


class CudaDevice(Device):
    """The board that CUDA_VISIBLE_DEVICES leaves, in its primary context."""

    has_graphs = True

    def __init__(self, harness: bytes | None) -> None:
        super().__init__()
        if harness is None:
            raise RigError("expected the harness's object code, got none", fix="report it: the fault is the tool's own")
        self._harness = CudaHarness(harness)
        self._device, self._stream = self._harness.device, self._harness.stream
        self._functions: dict[str, dict[str, Function]] = {}
        self._modules: dict[ArmName, Any] = {}
        self._row_of, self._row_beside = Row(self._harness), Row(self._harness)
        self._graphs: list[Graph] = []
        self._known: dict[tuple[ArmName, int], tuple[tuple[object, ...], dict[int, list[Callable[[], None]]]]] = {}
        self._captures: dict[ArmName, tuple[Graph, Capture]] = {}
        self._contention: Contention | None = None
        self._memory = self._base = 0
        self._outside: tuple[tuple[int, int], ...] = ()
        self._held: tuple[Callable[[], None], int] | None = None
        self._watch = Watch(self._harness)

    # The board -------------------------------------------------------------------------------------------------------

    def board(self) -> Board:
        """Name, UUID, driver and limits as the driver gives them."""
        return board(self._device)

    @property
    def unapplied(self) -> tuple[str, ...]:
        """What keeps lines in L2 by a kernel's choice, where the driver does not let us end it (R10.3)."""
        return self._harness.unapplied

    def canary(self) -> None:
        """Run the harness's own kernels and check their answer. Raises RigError."""
        self._harness.canary()

    def close(self) -> None:
        """Let go of the context and everything in it."""
        self._harness.close()

    # Steps -----------------------------------------------------------------------------------------------------------

    def _load(self, arm: ArmName, code: bytes, symbols: Mapping[str, str]) -> None:
        self._modules[arm], self._functions[arm] = load(code, symbols)

    def _arena(self, size_bytes: int, zones: ZonePattern) -> None:
        """One allocation; the zone pattern also covers what alignment leaves of it before and behind the arena.

        It takes whole pages, because a kernel may reach what a page has left, and could keep something there.
        """
        whole = -(-(size_bytes + BASE_ALIGN_BYTES) // PAGE_BYTES) * PAGE_BYTES
        try:
            self._memory = int(call(driver.cuMemAlloc, whole))
        except DriverError as error:
            raise StepRefused(f"arena of {size_bytes} bytes: {error}") from error
        self._base = (self._memory // BASE_ALIGN_BYTES + 1) * BASE_ALIGN_BYTES
        before = self._base - self._memory
        inside = ((start + before, end + before) for start, end in self._gaps)
        self._outside = ((0, before), *inside, (before + size_bytes, whole))
        self._harness.zones(self._memory, whole, zones)
        self._harness.wait()

    def _fill(self, contents: Sequence[Content]) -> None:
        self._enqueue(contents)
        self._harness.wait()
        for place, _ in contents:
            self._watch.refilled(place)

    def _enqueue(self, contents: Sequence[Content]) -> None:
        """Poison of elements in a row goes to all its buffers at once."""
        poisons = []
        for place, recipe in contents:
            if isinstance(recipe, Poison) and not place.axes:
                poisons.append((self._address(place), place.size_bytes, recipe))
            else:
                self._row_of.fill(self._address(place), place, recipe)
        self._harness.poison(poisons)

    def _scrub(self, seed: str) -> None:
        self._harness.scrub_all(seed)

    def _run(self, step: Run) -> None:
        self._restore(step, step.set)
        for launch in step.launches:
            try:
                self._ready(step, launch, step.set, self._stream)()
                self._harness.wait()
            except DriverError as error:
                what = launch.symbol if isinstance(launch, Kernel) else f"memset of {launch.memset}"
                raise StepRefused(f"{what}: {error}") from error

    def _restore(self, step: Launching, number: int) -> None:
        """Copy a set's constants to the variables of the arm's module; all sets of a session have the same."""
        for slot in step.slots:
            if slot.symbol is not None:
                place = self._place(f"{slot.buffer}.{number}")
                variable = variable_of(self._modules[step.arm], slot.symbol, place.size_bytes)
                self._watch.constant(variable, place, self._address(place))

    def _bytes_of(self, bound: Bound) -> bytes:
        if isinstance(bound, bytes):
            return bound
        return self._address(bound).to_bytes(8, "little")

    def _segment(self, step: Segment) -> Stamps:
        try:
            lead_in = self._unit_calls(step, step.lead_in)
            timed = self._unit_calls(step, step.timed)
            self._restore(step, step.timed[-1])
            self._before(step)  # Last, so that the host has little left to do while the board reads neutral memory.
            start, ends, host_bound = self._clocked(lead_in, timed, hold=holds(step))
        except DriverError as error:
            raise StepRefused(f"{error}") from error
        sets = (*step.lead_in, *step.timed)
        places = tuple(self._place(f"{argument}.{number}") for number in sets for argument in step.digested)
        digests = rows(self._digest(places), len(sets))
        return Stamps(start_ns=start, unit_end_ns=ends, digests=digests, damage=self._zones(), host_bound=host_bound)

    def _before(self, step: Segment) -> None:
        """R10.3 steps 1 to 4: poison, scrub, reset persisting lines, read neutral memory or, hot, the timed sets."""
        self._enqueue(self._poisons(step))
        self._harness.scrub(step.seed)
        self._harness.reset_persisting()
        if step.flush_bytes:
            self._harness.flush(step.flush_bytes)
            return
        for number in step.timed:
            for slot in step.slots:
                if slot.buffer is not None:
                    place = self._place(f"{slot.buffer}.{number}")
                    self._harness.touch(self._address(place), place.size_bytes)

    def _stage(self, step: Stage) -> None:
        """One graph of a pass over each set; Go replays it, so that the host does not set the pace of short kernels.

        The graph stays until the next one: the parent's clock runs until Go answers, and destroying takes milliseconds.
        """
        try:
            self._forget_graphs()
            self._held = self._graph(step, step.sets), step.rounds
            self._restore(step, step.sets[-1])
        except DriverError as error:
            raise StepRefused(f"{error}") from error

    def _go(self) -> Spans:
        held, self._held = self._held, None
        if held is None:
            raise StepRefused("nothing is staged")
        replay, rounds = held
        try:
            ((_, end_ns),) = self._spans([lambda: [replay() for _ in range(rounds)]])
        except DriverError as error:
            raise StepRefused(f"{error}") from error
        return Spans(start_ns=(0,), end_ns=(end_ns,))

    def _copy(self, size_bytes: int, times: int) -> Sequence[tuple[int, int]]:
        try:
            self._harness.copy(size_bytes)  # The first one pays for memory.
            self._harness.wait()
            hold = 2 * times + 1 <= MAX_HELD_CALLS  # A launch and an event a copy.
            return self._spans([lambda: self._harness.copy(size_bytes)] * times, hold=hold)
        except DriverError as error:
            fix = "leave the board to this run alone"
            raise RigError(f"expected {size_bytes} bytes to be copied, got {error}", fix=fix) from error

    def _spans(self, works: Sequence[Callable[[], object]], *, hold: bool = False) -> list[tuple[int, int]]:
        """When each work started and ended, in nanoseconds of the device's clock after the first one's start."""
        events = [call(driver.cuEventCreate, 0) for _ in range(len(works) + 1)]
        with self._harness.held() if hold else nullcontext():
            call(driver.cuEventRecord, events[0], self._stream)
            for work, event in zip(works, events[1:], strict=True):
                work()
                call(driver.cuEventRecord, event, self._stream)
        self._harness.wait()
        at = [0, *(_elapsed_ns(events[0], event) for event in events[1:])]
        for event in events:
            call(driver.cuEventDestroy, event)
        return list(itertools.pairwise(at))

    def _unit_calls(self, step: Segment, sets: Sequence[int]) -> list[Callable[[], None]]:
        """What enqueues each unit: its prepared launches in a row, or one graph of them all."""
        units = [sets[at : at + step.passes] for at in range(0, len(sets), step.passes)]
        return [self._graph(step, unit) if step.graph else self._row(step, unit) for unit in units]

    def _row(self, step: Launching, sets: Sequence[int], stream: Any = None) -> Callable[[], None]:
        to = self._stream if stream is None else stream
        known = self._passes(step, to)
        for number in sets:
            if number not in known:
                known[number] = [self._ready(step, launch, number, to) for launch in step.launches]
        prepared = [one for number in sets for one in known[number]]

        def enqueue() -> None:
            for one in prepared:
                one()

        return enqueue

    def _passes(self, step: Launching, stream: Any) -> dict[int, list[Callable[[], None]]]:
        """Prepared launches of an arm by set, kept as long as the arm is asked for the same: buffers never move."""
        what, (asked, known) = (step.launches, step.slots), self._known.get((step.arm, int(stream)), ((), {}))
        if asked != what:
            self._known[step.arm, int(stream)] = what, (known := {})
        return known

    def _ready(self, step: Launching, launch: Kernel | Memset, number: int, stream: Any) -> Callable[[], None]:
        """One launch, prepared: what is left is the driver call."""
        if isinstance(launch, Kernel):
            bound = tuple(self._bytes_of(each) for each in self._bind(launch, step.slots, number))
            return prepare(self._functions[step.arm][launch.symbol], launch, bound, stream).enqueue
        place = self._memset_place(launch, step.slots, number)
        address, size, byte = self._address(place), place.size_bytes, launch.byte

        def memset() -> None:
            if size:
                call(driver.cuMemsetD8Async, address, byte, size, stream)

        return memset

    def _graph(self, step: Segment | Stage, sets: Sequence[int]) -> Callable[[], None]:
        """One executable graph of the passes, captured from the stream, uploaded before anything is timed."""
        graph = capture(self._row(step, sets), self._stream)
        self._graphs.append(graph)
        wanted = self._nodes(step, sets[0]) * len(sets)  # Sets are alike in all but their place.
        if not graph.nodes:
            raise StepRefused("passes that launch nothing have no time")
        if graph.nodes != wanted:
            raise StepRefused(f"{wanted} launches were captured as {graph.nodes} nodes")
        return graph.replay

    def _nodes(self, step: Segment | Stage, number: int) -> int:
        """The nodes that a pass has: every launch but memsets of nothing."""
        return sum(
            isinstance(launch, Kernel) or bool(self._memset_place(launch, step.slots, number).size_bytes)
            for launch in step.launches
        )

    def _clocked(
        self, lead_in: Sequence[Callable[[], None]], timed: Sequence[Callable[[], None]], *, hold: bool
    ) -> tuple[int, tuple[int, ...], bool]:
        """R10.3 steps 5 to 9: lead-in, clock, units, clock, without a host wait; then the error.

        Held, nothing of it starts before all of it is enqueued, so the host cannot set the pace of short kernels.
        """
        events = [call(driver.cuEventCreate, 0) for _ in range(len(timed) + 1)]
        with self._harness.held() if hold else nullcontext():
            for unit in lead_in:
                unit()
            call(driver.cuEventRecord, events[0], self._stream)
            for unit, event in zip(timed, events[1:], strict=True):
                unit()
                call(driver.cuEventRecord, event, self._stream)
            host_bound = reached(events[0])
        self._harness.wait()
        ends = tuple(_elapsed_ns(events[0], event) for event in events[1:])
        for event in events:
            call(driver.cuEventDestroy, event)
        self._forget_graphs()
        return 0, ends, host_bound

    def _forget_graphs(self) -> None:
        """Destroy a segment's graphs once nothing of them runs; their launches' memory was kept until now."""
        for graph in self._graphs:
            graph.forget()
        self._graphs.clear()

    # Graphs and a second stream --------------------------------------------------------------------------------------

    def _capture(self, step: Capture) -> Census:
        try:
            old = self._captures.pop(step.arm, None)
            if old is not None:
                old[0].forget()
            graph = capture(self._row(step, (step.set,)), self._stream)
            self._captures[step.arm] = graph, step
        except DriverError as error:
            raise StepRefused(f"{error}") from error
        return graph.census

    def _replay(self, arm: ArmName) -> None:
        try:
            graph, step = self._captures[arm]
            self._restore(step, step.set)
            graph.replay()
            self._harness.wait()
        except DriverError as error:
            raise StepRefused(f"replay: {error}") from error

    def _contend(self, step: Contend) -> bool:
        try:
            if self._contention is None:
                self._contention = Contention(self._harness)
            beside = self._contention
            self._restore(step, step.set)
            other = beside.neutral() if step.beside is None else self._row(step, (step.beside,), beside.second)
            return beside.beside(self._row(step, (step.set,)), other, len(step.launches))
        except DriverError as error:
            raise StepRefused(f"beside another stream: {error}") from error

    # Digests and checks ----------------------------------------------------------------------------------------------

    def _digest(self, places: Sequence[Placement]) -> tuple[str, ...]:
        if not any(place.axes for place in places):
            return self._harness.hashes(tuple((self._address(place), place.size_bytes) for place in places))
        return tuple(self._row_of.hash(self._address(place), place) for place in places)

    def _zones(self) -> Damage:
        count, first = self._harness.damage(self._memory, self._outside, self._zoned("zones"))
        around = Damage(bytes=count, first_offset=None if first is None else first - (self._base - self._memory))
        return self._watch.with_damage(around)

    def _tensor_map(self, place: Placement, held: TensorMap) -> bytes:
        return tensor_map(self._address(place), place.dtype, held)

    def _table(self, place: Placement, data: bytes) -> None:
        self._watch.table(place, self._address(place), data)

    def _unwritten(self, place: Placement, poison: Poison, beside: Placement | None) -> Equal:
        try:
            address = self._row_of.gathered(self._address(place), place)
            other = 0 if beside is None else self._row_beside.gathered(self._address(beside), beside)
        except DriverError as error:
            raise StepRefused(f"elements in a row: {error}") from error
        count, first = self._harness.unwritten(address, place.size_bytes, poison, other)
        return Equal(elements=count, first_index=first)

    def _read(self, place: Placement) -> bytes:
        address = self._row_of.gathered(self._address(place), place)
        self._harness.wait()
        return self._harness.download(address, place.size_bytes)

    def _address(self, place: Placement) -> int:
        return self._base + place.offset_bytes

    def _kernel(self, arm: ArmName, symbol: str, launch: Kernel | None) -> Answer:
        function = self._functions[arm][symbol]
        return Answer(facts=figures(function) | ({} if launch is None else resident(function, launch, self._stream)))


def _elapsed_ns(start: Any, end: Any) -> int:
    return round(float(call(driver.cuEventElapsedTime, start, end)) * 1_000_000)
