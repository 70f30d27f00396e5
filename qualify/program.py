"""Steps that several gates compose from a subject: the arena, fills, one checked run, one window of segments.

Pure: a subject and seeds in, steps out. What a worker makes of them is `qualify.workers`' business, what the records
mean is a gate's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from qualify.arena import Layout, layout, layout_of_each
from qualify.contract import Argument, Arm, PointerTable, TensorMap, Variant
from qualify.domain import Runtime
from qualify.fill import recipe
from qualify.passing import is_symbol, pointers, scalar_bytes, struct_bytes
from qualify.seeds import common, permutation, split
from qualify.steps import (
    MAX_HELD_CALLS,
    Arena,
    ArmName,
    Fill,
    Fills,
    Patch,
    Record,
    Run,
    Segment,
    Slot,
    Stage,
    Step,
    Table,
)
from qualify.strides import under
from qualify.subject import Subject

#: A reading shorter than this is mostly the clock's (R10.1).
UNIT_NS = 50_000
#: A segment shorter than this is mostly its own beginning (R10.1).
SEGMENT_NS = 1_000_000
#: Fewer units than this have no tail (R10.1).
LEAST_UNITS = 3
#: What a CPU device reports as its cache is the host's; a pass over this much is cold (R10.3).
CPU_CACHE_BYTES = 64 << 20

R = TypeVar("R")


def outputs(subject: Subject) -> tuple[Argument, ...]:
    """The arguments that a route computes and that have elements: outputs and inouts."""
    return tuple(argument for argument in subject.buffers("output", "inout") if argument.elements)


def kept(subject: Subject) -> tuple[Argument, ...]:
    """The arguments that a launch must leave as it found them: inputs, constants, scratch that is zero at load."""
    return tuple(
        argument
        for argument in subject.buffers("input", "constant", "scratch")
        if argument.elements and (argument.kind != "scratch" or argument.init == "zero-at-load")
    )


def poisoned(subject: Subject) -> tuple[Argument, ...]:
    """The arguments that hold poison before a launch: outputs, and scratch that does not say zero at load."""
    return tuple(
        argument
        for argument in subject.buffers("output", "scratch")
        if argument.elements and argument.init != "zero-at-load"
    )


def buffers(arguments: Iterable[Argument], number: int = 0) -> tuple[str, ...]:
    """The names of the arguments' buffers in one set."""
    return tuple(f"{argument.name}.{number}" for argument in arguments)


def arena(
    subject: Subject, sets: int, zone_seed: str, variant: Variant = "ordinary", *, complement: bool = False
) -> Arena:
    """The session's one arena for so many sets, placed for a variant and those that are placed alike.

    The sets lie in a secret order: no address tells a set's number. `complement` inverts every byte outside the
    buffers, and moves none.
    """
    made = layout(subject.arguments, sets, _order(zone_seed, sets), variant=variant)
    return _arena(subject, made, sets, zone_seed, complement=complement)


def arena_of_each(subject: Subject, zone_seed: str) -> Arena:
    """One set for each variant, placed as that one wants it: for devices that watch kernels, and lay out no zones."""
    sets = len(subject.variants)
    made = layout_of_each(subject.arguments, subject.variants, _order(zone_seed, sets))
    return _arena(subject, made, sets, zone_seed)


def _order(zone_seed: str, sets: int) -> Sequence[int]:
    return permutation(split(zone_seed, "places"), sets)


def _arena(subject: Subject, made: Layout, sets: int, zone_seed: str, *, complement: bool = False) -> Arena:
    tables = tuple(_table(each, number) for number in range(sets) for each in subject.buffers("pointers"))
    return Arena(
        size_bytes=made.size_bytes,
        placements=made.placements,
        zone_seed=zone_seed,
        zone_complement=complement,
        tables=tables,
    )


def _table(argument: Argument, number: int) -> Table:
    held = argument.holds
    if not isinstance(held, PointerTable):
        raise ValueError(f"{argument.name}: pointers to nothing")
    to = tuple(f"{name}.{number}" for name in held.to)
    return Table(buffer=f"{argument.name}.{number}", to=to, count=held.count, step_bytes=held.step_bytes)


def values(subject: Subject, variant: Variant, seed: str, number: int = 0, *, again: bool = False) -> tuple[Fill, ...]:
    """Fill what goes into one set, and scratch that is zero at load, from `seed`; `again` only the inouts."""
    inouts = tuple(argument for argument in subject.buffers("inout") if argument.elements)
    return _fills(inouts if again else (*kept(subject), *inouts), variant, seed, number, complement=False)


def poison(subject: Subject, seed: str, number: int = 0, *, complement: bool = False) -> tuple[Fill, ...]:
    """Poison one set's outputs and scratch under `seed` or under its complement (R9.1)."""
    return _fills(poisoned(subject), "ordinary", seed, number, complement=complement)


def _fills(
    arguments: Iterable[Argument], variant: Variant, seed: str, number: int, *, complement: bool
) -> tuple[Fill, ...]:
    return tuple(
        Fill(buffer=f"{argument.name}.{number}", recipe=recipe(argument, variant, seed, complement=complement))
        for argument in arguments
    )


def slots(subject: Subject, variant: Variant = "ordinary") -> tuple[Slot, ...]:
    """Every argument as launched, in ABI order: a buffer's name, or a value's little-endian bytes."""
    return tuple(_slot(argument, subject.domain.runtime) for argument in under(subject.arguments, variant))


def _slot(argument: Argument, runtime: Runtime) -> Slot:
    if is_symbol(argument, runtime):
        return Slot(argument=argument.name, buffer=argument.name, symbol=argument.name)
    if argument.is_buffer:
        return Slot(argument=argument.name, buffer=argument.name)
    if argument.kind == "struct":
        patches = tuple(Patch(offset_bytes=each.offset_bytes, buffer=each.to) for each in pointers(argument))
        return Slot(argument=argument.name, value=struct_bytes(argument).hex(), patches=patches)
    if isinstance(argument.holds, TensorMap):
        return Slot(argument=argument.name, tensor=argument.holds)
    if argument.value is None:
        raise ValueError(f"{argument.name}: a scalar without a value")
    return Slot(argument=argument.name, value=scalar_bytes(argument.dtype, argument.value).hex())


def run(subject: Subject, arm: ArmName, number: int = 0, variant: Variant = "ordinary") -> Run:
    """Execute an arm's launches once on one set and wait."""
    return Run(arm=arm, launches=arm_of(subject, arm).launches, slots=slots(subject, variant), set=number)


def arm_of(subject: Subject, arm: ArmName) -> Arm:
    """The arm of that name."""
    return subject.candidate if arm == "candidate" else subject.incumbent


# Timed segments ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pace:
    """How segments are cut: passes of a unit, units of a segment, bytes of neutral memory read before it."""

    passes: int
    units: int
    flush_bytes: int

    @property
    def sets(self) -> int:
        """Every pass has a set of its own, and so has every pass of the lead-in (R10.3, R10.4)."""
        return 2 * self.passes * self.units

    @property
    def places(self) -> int:
        """The sets of the arena: those of a segment, and the bystander, which no launch of a segment names."""
        return self.sets + 1


def passes_of_a_unit(pass_ns: int) -> int:
    """How many passes one reading encloses where the faster arm's pass takes `pass_ns` (R10.1)."""
    return 1 if pass_ns >= UNIT_NS else -(-UNIT_NS // pass_ns)


def units_of_a_segment(pass_ns: int) -> int:
    """K, the units of a segment, where the faster arm's pass takes `pass_ns` (R10.1)."""
    return max(LEAST_UNITS, -(-SEGMENT_NS // (passes_of_a_unit(pass_ns) * pass_ns)))


def flush_bytes(subject: Subject) -> int | None:
    """Neutral memory to read before a cold segment: twice the cache; 0 where it is hot, None where unknown (R10.3)."""
    if subject.timing.cache == "hot":
        return 0
    cache = subject.limits.cache_bytes
    if subject.domain.runtime == "cuda":
        return None if cache is None else 2 * cache
    return 2 * min(CPU_CACHE_BYTES if cache is None else cache, CPU_CACHE_BYTES)


def memory_budget(subject: Subject, flush: int) -> int | None:
    """Bytes that an arena may take beside the memory that a flush reads; None where the device does not say."""
    memory = subject.limits.memory_bytes
    return None if memory is None else memory - flush


def as_graphs(subject: Subject, pace: Pace) -> bool:
    """Whether each unit of both arms is one replay of a graph (R10.1), so that the host sets no pace (docs/adr).

    It is where a unit is several passes, and where a queue does not take all calls of one arm's segment at once.
    """
    launches = max(len(arm_of(subject, arm).launches) for arm in window_arms(candidate_first=False))
    calls = pace.sets * (launches + 1)  # With an event after every pass, which a warm-up has.
    return subject.domain.has_graphs and (pace.passes > 1 or calls > MAX_HELD_CALLS)


def segment(subject: Subject, arm: ArmName, seed: str, pace: Pace) -> Segment:
    """One timed segment; it draws its own secret order of its sets, the lead-in's first (R10.3, R10.4)."""
    order = permutation(seed, pace.sets)
    half = pace.sets // 2
    return Segment(
        arm=arm,
        launches=arm_of(subject, arm).launches,
        slots=slots(subject),
        lead_in=order[:half],
        timed=order[half:],
        bystander=pace.sets,
        passes=pace.passes,
        graph=as_graphs(subject, pace),
        poisoned=tuple((argument.name, argument.dtype) for argument in poisoned(subject)),
        digested=tuple(argument.name for argument in outputs(subject)),
        seed=split(seed, "poison"),
        flush_bytes=pace.flush_bytes,
    )


def stage(subject: Subject, arm: ArmName, sets: Sequence[int], rounds: int) -> Stage:
    """Passes in a row for the parent's own clock (R10.9)."""
    return Stage(arm=arm, launches=arm_of(subject, arm).launches, slots=slots(subject), sets=tuple(sets), rounds=rounds)


def warm_up(subject: Subject, arm: ArmName, seed: str, pace: Pace) -> Segment:
    """A segment whose times decide nothing: every set is timed, without a lead-in, and no bits are compared."""
    whole = segment(subject, arm, seed, pace)
    return whole.model_copy(update={"lead_in": (), "timed": (*whole.lead_in, *whole.timed), "digested": ()})


def window_arms(candidate_first: bool) -> tuple[ArmName, ArmName, ArmName, ArmName]:
    """The arms of a window's four segments: ABBA, or BAAB where the candidate is first."""
    first: ArmName = "candidate" if candidate_first else "incumbent"
    other: ArmName = "incumbent" if candidate_first else "candidate"
    return first, other, other, first


def segments(subject: Subject, arms: Sequence[ArmName], seed: str, inputs_seed: str, *, pace: Pace) -> tuple[Step, ...]:
    """Segments of `arms` in a row; inouts hold their inputs again before each."""
    steps: list[Step] = []
    restored = [fill for number in range(pace.sets) for fill in inputs(subject, inputs_seed, number, again=True)]
    for position, arm in enumerate(arms):
        steps += [Fills(fills=tuple(restored))] if restored else []
        steps.append(segment(subject, arm, split(seed, position), pace))
    return tuple(steps)


def inputs(subject: Subject, seed: str, number: int, *, again: bool = False) -> tuple[Fill, ...]:
    """Fill what goes into one set of a timed session; every set has values of its own."""
    return values(subject, "ordinary", set_seed(seed, number), number, again=again)


def set_seed(seed: str, number: int) -> str:
    """The seed of one set's inputs; every set has values of its own (R10.4), but for what `seeds.common` tells."""
    return common(seed) + split(seed, "set", number)[len(common(seed)) :]


# Records -------------------------------------------------------------------------------------------------------------


def only(records: Sequence[Record], kind: type[R]) -> tuple[R, ...]:
    """The records of one kind, in order."""
    return tuple(record for record in records if isinstance(record, kind))
