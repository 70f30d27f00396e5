"""OpenCL on a CPU device (PoCL): one arena of shared virtual memory, arguments that point into it.

Launches are asynchronous and a crash would show late, so every checked launch is waited for. Machine code is made at
the first launch of each local size; a checked run precedes every timed one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyopencl as cl

from qualify.arena import BASE_ALIGN_BYTES
from qualify.contract import Kernel, Launch, Memset
from qualify.domain import Board
from qualify.errors import RigError
from qualify.placement import Placement
from qualify.steps import (
    MAX_HELD_CALLS,
    Answer,
    ArmName,
    Contend,
    Damage,
    Equal,
    Poison,
    Run,
    Segment,
    Slot,
    Spans,
    Stage,
    Stamps,
    Values,
)
from qualify.workers import pocl
from qualify.workers.devices.base import Content, Device, ZonePattern
from qualify.workers.devices.binding import Bound, StepRefused, in_a_row
from qualify.workers.devices.opencl_events import Held, has_started, is_pending, took_ns
from qualify.workers.devices.opencl_harness import Harness, Memory, rigged
from qualify.workers.devices.opencl_launches import enqueue, refusing
from qualify.workers.devices.segments import backlog, rows

_BUSY_BYTES = 8 << 20  # What neutral work of a second queue reads in one go: some tenths of a millisecond.
_FINE_GRAIN = cl.device_svm_capabilities.FINE_GRAIN_BUFFER


class OpenclDevice(Device):
    """The first CPU device of PoCL. Raises RigError if there is none, or none with shared virtual memory."""

    def __init__(self, harness: bytes | None = None) -> None:
        super().__init__()
        self._pocl = pocl.find()
        if not self._pocl.device.svm_capabilities & _FINE_GRAIN:
            raise RigError(
                f"{self._pocl.device.name} has no fine-grained shared virtual memory, so it cannot hold an arena",
                fix="run on a device that has it",
            )
        self._harness = Harness(self._pocl.device, harness)
        self._memory: Memory | None = None
        self._slack: tuple[tuple[int, Memory], ...] = ()
        self._neutral: Memory | None = None
        self._kernels: dict[tuple[ArmName, str], Any] = {}
        self._held: Held | None = None
        self._second: Any = None

    def board(self) -> Board:
        """The CPU device as PoCL describes it."""
        return self._pocl.board

    def canary(self) -> None:
        """Seeded values and their digest against their definitions. Raises RigError."""
        self._harness.canary()

    def close(self) -> None:
        """Wait for the queue; memory goes with the process."""
        rigged(self._harness.queue.finish, "the end of the queue")

    # Memory ----------------------------------------------------------------------------------------------------------

    def _load(self, arm: ArmName, code: bytes, symbols: Mapping[str, str]) -> None:
        with refusing(f"object of {len(code)} bytes"):
            program = cl.Program(self._harness.context, [self._pocl.device], [code]).build()
        for symbol, name in symbols.items():
            with refusing(f"kernel {symbol}"):
                self._kernels[arm, symbol] = cl.Kernel(program, name)

    def _arena(self, size_bytes: int, zones: ZonePattern) -> None:
        limit = self._pocl.board.limits.memory_bytes
        if limit is not None and size_bytes > limit:
            raise StepRefused(f"an arena of {size_bytes} bytes on a device of {limit}")
        with refusing(f"arena of {size_bytes} bytes"):
            whole = self._harness.allocate(size_bytes + BASE_ALIGN_BYTES)
        start = BASE_ALIGN_BYTES - whole.ctypes.data % BASE_ALIGN_BYTES
        self._memory = whole[start : start + size_bytes]
        self._slack = ((-start, whole[:start]), (size_bytes, whole[start + size_bytes :]))
        for memory in (self._memory, *(memory for _, memory in self._slack if len(memory))):
            self._harness.wait(self._harness.zone_write(memory, zones))

    @property
    def _whole(self) -> Memory:
        if self._memory is None:
            raise StepRefused("there is no arena")
        return self._memory

    def _at(self, place: Placement) -> Memory:
        in_a_row(place)
        return self._whole[place.offset_bytes : place.offset_bytes + place.size_bytes]

    def _gathered(self, place: Placement, use: str = "packed") -> Memory:
        """A buffer's elements in a row: where they are, or in the harness's memory of that use until the next call."""
        if not place.axes:
            return self._at(place)
        packed = self._harness.packed(place.size_bytes, use)
        self._harness.wait(self._harness.gather(self._whole, packed, place))
        return packed

    def _fill(self, contents: Sequence[Content]) -> None:
        for event in [self._written(each) for each in contents if each.place.size_bytes]:
            self._harness.wait(event)

    def _written(self, content: Content) -> Any:
        """The event of the last kernel that writes a buffer; elements that lie apart lie in a row first."""
        place, recipe = content
        memory = self._harness.packed(place.size_bytes) if place.axes else self._at(place)
        match recipe:
            case Values():
                event = self._harness.values(memory, recipe)
            case Poison():
                event = self._harness.poison(memory, recipe)
            case _:
                event = self._harness.set_bytes(memory, 0)
        if place.axes:
            event = self._harness.scatter(self._whole, memory, place)
            self._harness.wait(event)  # The next one has the same row.
        return event

    def _scrub(self, seed: str) -> None:
        self._harness.scrub(int(seed, 16))

    def _digest(self, places: Sequence[Placement]) -> tuple[str, ...]:
        if not any(place.axes for place in places):
            return self._harness.digest(self._whole, places) if places else ()
        return tuple(digest for place in places for digest in self._gathered_digest(place))

    def _gathered_digest(self, place: Placement) -> tuple[str, ...]:
        return self._harness.digest(self._gathered(place), (place.model_copy(update={"offset_bytes": 0, "axes": ()}),))

    def _zones(self) -> Damage:
        """All zones, and what alignment left of the allocation before and behind the arena."""
        pattern = self._zoned("zones")
        found = [(0, *self._harness.zone_check(self._whole, self._gaps, pattern))]
        for offset, memory in self._slack:
            if len(memory):
                found.append((offset, *self._harness.zone_check(memory, ((0, len(memory)),), pattern)))
        firsts = [offset + first for offset, _, first in found if first is not None]
        return Damage(bytes=sum(wrong for _, wrong, _ in found), first_offset=min(firsts, default=None))

    def _unwritten(self, place: Placement, poison: Poison, beside: Placement | None) -> Equal:
        memory = self._gathered(place)
        other = None if beside is None else self._gathered(beside, "beside")
        elements, first = self._harness.unwritten(memory, poison, other) if len(memory) else (0, None)
        return Equal(elements=elements, first_index=first)

    def _read(self, place: Placement) -> bytes:
        return self._gathered(place).tobytes()

    def _kernel(self, arm: ArmName, symbol: str, launch: Kernel | None) -> Answer:
        """The kernel's work-group limit and its local and private bytes, as PoCL reports them."""
        kernel, device, ask = self._kernels[arm, symbol], self._pocl.device, cl.kernel_work_group_info
        facts = {
            "block_threads": ask.WORK_GROUP_SIZE,
            "shared_bytes": ask.LOCAL_MEM_SIZE,
            "private_bytes": ask.PRIVATE_MEM_SIZE,
        }
        with refusing(f"kernel {symbol}"):
            return Answer(facts={name: int(kernel.get_work_group_info(what, device)) for name, what in facts.items()})

    # Launches --------------------------------------------------------------------------------------------------------

    def _run(self, step: Run) -> None:
        with refusing(f"launch of {step.arm}"):
            for event in self._enqueue_pass(step.arm, step.launches, step.slots, step.set):
                event.wait()

    def _enqueue_pass(
        self, arm: ArmName, launches: Sequence[Launch], slots: Sequence[Slot], number: int, queue: Any = None
    ) -> list[Any]:
        """One pass on one set, in the first queue if no other is named; the events of its commands, in order."""
        events = []
        for launch in launches:
            match launch:
                case Memset():
                    memory = self._at(self._memset_place(launch, slots, number))
                    if len(memory):
                        events.append(self._harness.set_bytes(memory, launch.byte, queue))
                case Kernel():
                    events.append(self._enqueue_kernel(arm, launch, self._bind(launch, slots, number), queue))
        return events

    def _enqueue_kernel(self, arm: ArmName, launch: Kernel, bound: Sequence[Bound], queue: Any) -> Any:
        arguments = [self._pointer(each) if isinstance(each, Placement) else each for each in bound]
        to = self._harness.queue if queue is None else queue
        return enqueue(to, self._kernels[arm, launch.symbol], launch, arguments)

    def _pointer(self, place: Placement) -> Any:
        """A pointer to the buffer's start, which is in the arena even if the buffer is empty."""
        return cl.SVM(self._whole[place.offset_bytes : place.offset_bytes + max(place.size_bytes, 1)])

    # A second queue --------------------------------------------------------------------------------------------------

    def _contend(self, step: Contend) -> bool:
        if self._second is None:
            self._second = self._harness.new_queue()
        other = self._neutral_work() if step.beside is None else self._pass_again(step, step.beside)
        with refusing(f"launch of {step.arm} beside another queue"):
            ahead = backlog(took_ns(other), MAX_HELD_CALLS)
            own, others = self._together(step, other, ahead)
            while is_pending(own[-1]):
                others += other()
                self._second.flush()
                others[-min(ahead, len(others))].wait()
            for event in (*own, *others):
                event.wait()
            first, last = others[0].profile, others[-1].profile
            return bool(first.start <= own[0].profile.start and last.end >= own[-1].profile.end)

    def _together(self, step: Contend, other: Callable[[], list[Any]], ahead: int) -> tuple[list[Any], list[Any]]:
        """Launches that start when the second queue has done the first of much work; the events of both.

        All of it is enqueued before any of it runs, so that the host sets no pace.
        """
        held = Held(cl.UserEvent(self._harness.context))
        try:
            cl.enqueue_marker(self._second, wait_for=[held.gate])
            others = [event for _ in range(ahead) for event in other()]
            if not others:
                raise StepRefused("passes that launch nothing keep no queue busy")
            cl.enqueue_marker(self._harness.queue, wait_for=[others[0]])
            own = self._enqueue_pass(step.arm, step.launches, step.slots, step.set)
            self._second.flush()
            self._harness.queue.flush()
        finally:
            held.open()
        return own, others

    def _neutral_work(self) -> Callable[[], list[Any]]:
        memory = self._neutral_memory(_BUSY_BYTES)
        return lambda: [self._harness.busy(memory, self._second)]

    def _pass_again(self, step: Contend, number: int) -> Callable[[], list[Any]]:
        return lambda: self._enqueue_pass(step.arm, step.launches, step.slots, number, self._second)

    # Timing ----------------------------------------------------------------------------------------------------------

    def _segment(self, step: Segment) -> Stamps:
        neutral = self._neutral_memory(step.flush_bytes) if step.flush_bytes else None
        self._scrub(step.seed)
        gate = cl.UserEvent(self._harness.context)
        try:
            with refusing(f"segment of {step.arm}"):
                cl.enqueue_marker(self._harness.queue, wait_for=[gate])
                self._prepare(step, neutral)
                lead_in = self._enqueue_units(step, step.lead_in)
                timed = self._enqueue_units(step, step.timed)
                self._harness.queue.flush()
                host_bound = has_started((lead_in or timed)[0][0])
        finally:
            gate.set_status(cl.command_execution_status.COMPLETE)
        with refusing(f"segment of {step.arm}"):
            for unit in (*lead_in, *timed):
                for event in unit:
                    event.wait()
        return self._stamps(step, timed, host_bound)

    def _stage(self, step: Stage) -> None:
        held = Held(cl.UserEvent(self._harness.context))
        try:
            with refusing(f"passes of {step.arm}"):
                cl.enqueue_marker(self._harness.queue, wait_for=[held.gate])
                for _ in range(step.rounds):
                    for number in step.sets:
                        held.take(self._enqueue_pass(step.arm, step.launches, step.slots, number))
                self._harness.queue.flush()
        except BaseException:
            held.open()
            raise
        self._held = held

    def _go(self) -> Spans:
        held, self._held = self._held, None
        if held is None or held.last is None:
            raise StepRefused("passes that launch nothing have no time")
        held.open()
        with refusing("staged passes"):
            held.last.wait()
            return Spans(start_ns=(held.first.profile.start,), end_ns=(held.last.profile.end,))

    def _copy(self, size_bytes: int, times: int) -> Sequence[tuple[int, int]]:
        """Nothing waits in between, so that copies follow each other as launches of a pass do."""
        memory = self._neutral_memory(2 * size_bytes)
        events = [self._harness.copy(memory[:size_bytes], memory[size_bytes:]) for _ in range(times)]
        for event in events:
            self._harness.wait(event)
        return [(event.profile.start, event.profile.end) for event in events]

    def _prepare(self, step: Segment, neutral: Memory | None) -> None:
        """R10.3, steps 1 and 4; step 2 is done, because only the host can see that it reached every unit.

        There are no persisting lines on a CPU. Without flush bytes the timed sets are read.
        """
        for content in self._poisons(step):
            if content.place.size_bytes:
                self._written(content)
        if neutral is not None:
            self._harness.touch(neutral)
            return
        for number in step.timed:
            for slot in step.slots:
                if slot.buffer is not None and self._place(f"{slot.buffer}.{number}").size_bytes:
                    self._harness.touch(self._at(self._place(f"{slot.buffer}.{number}")))

    def _neutral_memory(self, size_bytes: int) -> Memory:
        """Memory that no kernel uses, written once so that reading it goes to real pages."""
        if self._neutral is None or len(self._neutral) < size_bytes:
            self._neutral = rigged(lambda: self._harness.allocate(size_bytes), f"{size_bytes} bytes to flush with")
            self._neutral[:] = 1
        return self._neutral[:size_bytes]

    def _enqueue_units(self, step: Segment, sets: Sequence[int]) -> list[list[Any]]:
        units = []
        for start in range(0, len(sets), step.passes):
            unit: list[Any] = []
            for number in sets[start : start + step.passes]:
                unit += self._enqueue_pass(step.arm, step.launches, step.slots, number)
            if not unit:
                raise StepRefused("a unit that launches nothing has no time")
            units.append(unit)
        return units

    def _stamps(self, step: Segment, timed: Sequence[Sequence[Any]], host_bound: bool) -> Stamps:
        sets = (*step.lead_in, *step.timed)
        digests = self._digest([self._place(f"{name}.{number}") for number in sets for name in step.digested])
        return Stamps(
            start_ns=timed[0][0].profile.start,
            unit_end_ns=tuple(unit[-1].profile.end for unit in timed),
            digests=rows(digests, len(sets)),
            damage=self._zones(),
            host_bound=host_bound,
        )
