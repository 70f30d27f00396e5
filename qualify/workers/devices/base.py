"""A device: one method a step, and what every device refuses before it touches memory.

A device interprets steps and knows no verdict. Whatever the candidate can cause (an unknown symbol, a bad launch)
is a `StepRefused` with the reason; what only the rig can cause is a `RigError`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import prod
from typing import ClassVar, NamedTuple

from blake3 import blake3

from qualify.arena import gaps
from qualify.contract import Kernel, Launch
from qualify.domain import Board
from qualify.elements import DTYPES
from qualify.placement import Placement
from qualify.steps import (
    Answer,
    Arena,
    ArmName,
    Capture,
    Census,
    Contend,
    Contended,
    Copy,
    Damage,
    Digest,
    Digests,
    Equal,
    Fill,
    Fills,
    Go,
    Load,
    Poison,
    Query,
    Read,
    Recipe,
    Replay,
    Run,
    Scrub,
    Segment,
    Source,
    Spans,
    Stage,
    Stamps,
    Step,
    Told,
    Unwritten,
    Values,
    Zeros,
    Zones,
)
from qualify.workers.devices.binding import Binding, StepRefused, in_a_row
from qualify.workers.devices.bystander import Bystander
from qualify.workers.devices.segments import poisons_of

#: Outer axes of a strided buffer that harness kernels walk.
MOST_AXES = 3
#: The seed of the values that a canary makes on the device and compares with their definition.
CANARY_SEED = "c0ffee5eed00cafe"


class ZonePattern(NamedTuple):
    """What bytes outside all buffers carry: a hash of their place, or its complement."""

    seed: int
    complement: bool = False

    @property
    def flip(self) -> int:
        """What every 8 bytes of the hash are combined with, by exclusive or."""
        return (1 << 64) - 1 if self.complement else 0


class Content(NamedTuple):
    """A buffer and what goes into it, checked."""

    place: Placement
    recipe: Recipe


class Device(Binding, ABC):
    """One device with one arena, for one session. Steps end before they return (DESIGN section 3).

    Public methods check what is the same for every device, then call the one with an underscore.
    """

    #: Whether launches can be captured once and replayed, as `Domain.has_graphs` says of its runtime.
    has_graphs: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self._zone_pattern: ZonePattern | None = None
        self._arena_bytes = 0
        self._gaps: tuple[tuple[int, int], ...] = ()
        self._loaded: dict[ArmName, tuple[str, ...]] = {}
        self._staged: ArmName | None = None
        self._captured: set[ArmName] = set()

    @property
    def unapplied(self) -> tuple[str, ...]:
        """What the device's driver refused to set, each with its reason; it goes on record."""
        return ()

    @abstractmethod
    def board(self) -> Board:
        """The device as a board that times belong to."""

    @abstractmethod
    def canary(self) -> None:
        """Run a harness kernel and check its answer. Raises RigError: no kernel can be blamed after that."""

    def load(self, step: Load, code: bytes) -> None:
        """Load an arm's object code. Raises StepRefused for other bytes than the step names, or unknown symbols."""
        if blake3(code).hexdigest() != step.object_blake3:
            raise StepRefused(f"{len(code)} bytes that are not object {step.object_blake3}")
        if step.arm in self._loaded:
            raise StepRefused(f"{step.arm} is loaded already")
        self._load(step.arm, code, {symbol: step.linkage_names.get(symbol, symbol) for symbol in step.symbols})
        self._loaded[step.arm] = step.symbols

    def source(self, step: Source, fragments: Sequence[bytes]) -> None:
        """Compile and load a module. Raises StepRefused where only object code is taken."""
        raise StepRefused(f"{step.arm} as source, and this device takes object code")

    def plant(self) -> None:
        """Run kernels with known errors. Raises StepRefused where no sanitizer would see them."""
        raise StepRefused("errors are planted under a sanitizer only")

    def told(self, step: Told) -> bytes:
        """What the sanitizer in this process said. Raises StepRefused where there is none."""
        raise StepRefused(f"no sanitizer's {step.stream} in this process")

    def arena(self, step: Arena) -> None:
        """Allocate the session's one arena and write the zone pattern over it. Raises StepRefused."""
        if self._zone_pattern is not None:
            raise StepRefused("the session's one arena is there already")
        names = [placement.buffer for placement in step.placements]
        if len(set(names)) != len(names):
            raise StepRefused("two buffers of one name")
        for placement in step.placements:
            dtype = DTYPES.get(placement.dtype)
            if dtype is None or placement.size_bytes % dtype.size_bytes:
                raise StepRefused(
                    f"{placement.buffer}: {placement.size_bytes} bytes of unknown or cut {placement.dtype}"
                )
            if len(placement.axes) > MOST_AXES or placement.size_bytes % prod(count for count, _ in placement.axes):
                raise StepRefused(f"{placement.buffer}: runs along {placement.axes} do not make its elements")
        try:
            self._gaps = gaps(step.placements, step.size_bytes)
        except ValueError as error:
            raise StepRefused(str(error)) from error
        pattern = ZonePattern(int(step.zone_seed, 16), complement=step.zone_complement)
        self._arena(step.size_bytes, pattern)
        self._arena_bytes, self._zone_pattern = step.size_bytes, pattern
        self._places = {placement.buffer: placement for placement in step.placements}
        for table in step.tables:
            self._table(self._place(table.buffer), self._addresses(table))

    def fill(self, step: Fill) -> None:
        """Write a recipe to a buffer. Raises StepRefused for an unknown buffer or another dtype than its own."""
        self._fill([self._content(step)])

    def fills(self, step: Fills) -> None:
        """Write many, in any order. Raises StepRefused as `fill` does, and for a buffer that is named twice."""
        if len({fill.buffer for fill in step.fills}) != len(step.fills):
            raise StepRefused("a buffer is filled twice in one step")
        self._fill([self._content(fill) for fill in step.fills])

    def _content(self, step: Fill) -> Content:
        place = self._place(step.buffer)
        _check_recipe(place, step.recipe)
        return Content(place, step.recipe)

    def scrub(self, step: Scrub) -> None:
        """Overwrite shared memory everywhere."""
        self._scrub(step.seed)

    def run(self, step: Run) -> None:
        """Execute the launches once on one set and wait. Raises StepRefused for anything the launch gets wrong."""
        self._check_arm(step.arm, step.launches)
        self._run(step)

    def segment(self, step: Segment) -> Stamps:
        """One timed segment in the order of R10.3. Raises StepRefused; a set named twice is refused too (R10.4)."""
        self._check_arm(step.arm, step.launches)
        sets = (*step.lead_in, *step.timed)
        if len({*sets, step.bystander}) != len(sets) + 1:
            raise StepRefused("a set is used twice in one segment")
        if step.graph and not self.has_graphs:
            raise StepRefused("this device has no graphs")
        if not step.timed or len(step.timed) % step.passes or len(step.lead_in) % step.passes:
            raise StepRefused(f"{len(step.lead_in)} and {len(step.timed)} passes are no whole units of {step.passes}")
        for argument, dtype in step.poisoned:
            for number in sets:
                place = self._place(f"{argument}.{number}")
                if place.dtype != dtype:
                    raise StepRefused(f"{place.buffer} holds {place.dtype}, not {dtype}")
        for argument in step.digested:
            for number in sets:
                in_a_row(self._place(f"{argument}.{number}"))
        if step.bystander is None:
            return self._segment(step)
        names = {name: f"{name}.{step.bystander}" for name in (*dict(step.poisoned), *step.digested)}
        places = {name: self._place(name) for name in names.values()}
        bystander = Bystander(self, places, poisons_of(step, (step.bystander,)))
        stamps = self._segment(step)
        return stamps.model_copy(update={"damage": bystander.added_to(stamps.damage)})

    def expect(self, step: Step) -> None:
        """Raises StepRefused for a Go without its Stage, and for anything else between the two."""
        if (step.arm if isinstance(step, Go) else None) != self._staged:
            raise StepRefused(f"{step.do} where {'nothing' if self._staged is None else self._staged} is staged")

    def stage(self, step: Stage) -> None:
        """Hold passes ready. Raises StepRefused for anything a launch of them gets wrong."""
        self._check_arm(step.arm, step.launches)
        for number in step.sets:
            for launch in step.launches:
                if isinstance(launch, Kernel):
                    self._bind(launch, step.slots, number)
        self._stage(step)
        self._staged = step.arm

    def go(self) -> Spans:
        """Run what is staged and wait; one span. Raises StepRefused if a launch fails."""
        self._staged = None
        return self._go()

    def capture(self, step: Capture) -> Census:
        """Record launches as the arm's graph. Raises StepRefused where there are no graphs, and for bad launches."""
        self._check_arm(step.arm, step.launches)
        census = self._capture(step)
        self._captured.add(step.arm)
        return census

    def replay(self, step: Replay) -> None:
        """Run the arm's graph once and wait. Raises StepRefused without one, or if the launch fails."""
        if step.arm not in self._captured:
            raise StepRefused(f"nothing is captured for {step.arm}")
        self._replay(step.arm)

    def contend(self, step: Contend) -> Contended:
        """Execute launches once beside a busy queue. Raises StepRefused; a set has one user at a time."""
        self._check_arm(step.arm, step.launches)
        if step.beside == step.set:
            raise StepRefused(f"set {step.set} is used twice at once")
        return Contended(busy=self._contend(step))

    def copy(self, step: Copy) -> Spans:
        """Copies of neutral memory in a row, one span each. Raises RigError: no kernel is to blame."""
        spans = self._copy(step.size_bytes, step.times)
        return Spans(start_ns=tuple(start for start, _ in spans), end_ns=tuple(end for _, end in spans))

    def digest(self, step: Digest) -> Digests:
        """FNV-1a 64 of each buffer, in the order asked. Raises StepRefused for an unknown buffer."""
        places = tuple(self._place(buffer) for buffer in step.buffers)
        return Digests(values=self._digest(places))

    def zones(self, step: Zones) -> Damage:
        """Count the bytes outside every placement that changed. Raises StepRefused without an arena."""
        self._zoned(step.do)
        return self._zones()

    def unwritten(self, step: Unwritten) -> Equal:
        """Count the elements that still equal the poison.

        Raises StepRefused for an unknown buffer, for two that are not alike, and for no memory to lay elements in rows.
        """
        place = self._place(step.buffer)
        _check_recipe(place, step.poison)
        if step.beside is None:
            return self._unwritten(place, step.poison, None)
        beside = self._place(step.beside)
        if (beside.size_bytes, beside.dtype) != (place.size_bytes, place.dtype):
            raise StepRefused(f"{step.beside} is not of {step.buffer}'s kind")
        return self._unwritten(place, step.poison, beside)

    def read(self, step: Read) -> bytes:
        """A buffer's bytes. Raises StepRefused for an unknown buffer."""
        return self._read(self._place(step.buffer))

    def query(self, step: Query) -> Answer:
        """The board, a loaded kernel's attributes, or the trace. Raises StepRefused for what is not there."""
        if step.what == "device":
            return Answer(board=self.board())
        if step.what == "trace":
            return self._trace()
        if step.arm is None or step.symbol not in self._loaded.get(step.arm, ()):
            raise StepRefused(f"no kernel {step.symbol} is loaded as {step.arm}")
        if step.launch is not None and step.launch.symbol != step.symbol:
            raise StepRefused(f"a launch of {step.launch.symbol} asks nothing of {step.symbol}")
        return self._kernel(step.arm, step.symbol, step.launch)

    @abstractmethod
    def close(self) -> None:
        """Let go of the device and its memory."""

    # What a device does ----------------------------------------------------------------------------------------------

    @abstractmethod
    def _load(self, arm: ArmName, code: bytes, symbols: Mapping[str, str]) -> None:
        """`symbols` gives each kernel's name in the object."""

    @abstractmethod
    def _arena(self, size_bytes: int, zones: ZonePattern) -> None: ...

    @abstractmethod
    def _fill(self, contents: Sequence[Content]) -> None:
        """All are written when it returns; no two are of one buffer."""

    @abstractmethod
    def _scrub(self, seed: str) -> None: ...

    @abstractmethod
    def _run(self, step: Run) -> None: ...

    @abstractmethod
    def _segment(self, step: Segment) -> Stamps: ...

    @abstractmethod
    def _stage(self, step: Stage) -> None: ...

    @abstractmethod
    def _go(self) -> Spans: ...

    def _capture(self, step: Capture) -> Census:
        raise StepRefused("this device has no graphs")

    def _replay(self, arm: ArmName) -> None:
        raise StepRefused("this device has no graphs")

    @abstractmethod
    def _contend(self, step: Contend) -> bool:
        """Whether the second queue was at work from before the launches' beginning until after their end."""

    @abstractmethod
    def _copy(self, size_bytes: int, times: int) -> Sequence[tuple[int, int]]: ...

    @abstractmethod
    def _digest(self, places: Sequence[Placement]) -> tuple[str, ...]: ...

    @abstractmethod
    def _zones(self) -> Damage: ...

    @abstractmethod
    def _unwritten(self, place: Placement, poison: Poison, beside: Placement | None) -> Equal:
        """With `beside` of the same size."""

    @abstractmethod
    def _read(self, place: Placement) -> bytes: ...

    @abstractmethod
    def _kernel(self, arm: ArmName, symbol: str, launch: Kernel | None) -> Answer: ...

    def _trace(self) -> Answer:
        raise StepRefused("this device keeps no trace")

    def _poisons(self, step: Segment) -> list[Content]:
        """What a segment's outputs and scratch hold before it runs, of every set that it names."""
        poisons = poisons_of(step, (*step.lead_in, *step.timed))
        return [Content(self._place(buffer), poison) for buffer, poison in poisons.items()]

    # Shared checks ---------------------------------------------------------------------------------------------------

    def _zoned(self, what: str) -> ZonePattern:
        if self._zone_pattern is None:
            raise StepRefused(f"{what} without an arena")
        return self._zone_pattern

    def _check_arm(self, arm: ArmName, launches: Sequence[Launch]) -> None:
        if arm not in self._loaded:
            raise StepRefused(f"{arm} is not loaded")
        if not launches:
            raise StepRefused(f"{arm} launches nothing")
        for launch in launches:
            if isinstance(launch, Kernel):
                self._check_kernel(arm, launch)

    def _check_kernel(self, arm: ArmName, kernel: Kernel) -> None:
        if kernel.symbol not in self._loaded[arm]:
            raise StepRefused(f"no kernel {kernel.symbol} is loaded as {arm}")
        if min(*kernel.grid, *kernel.block) < 1:
            raise StepRefused(f"{kernel.symbol}: grid {kernel.grid} of blocks {kernel.block} has an empty side")


def _check_recipe(place: Placement, recipe: Recipe) -> None:
    if isinstance(recipe, Zeros):
        return
    if recipe.dtype != place.dtype:
        raise StepRefused(f"{place.buffer} holds {place.dtype}, not {recipe.dtype}")
    if isinstance(recipe, Values) and max(abs(recipe.base), abs(recipe.scale)) >= 1 << 62:
        raise StepRefused(f"{place.buffer}: values beyond the fixed point of fills")
