"""Checked runs: what they find of a subject's bits, what was planned, and how a judge compares them (R9.1 to R9.4).

Pure: facts in, names of variants and checks out. `checked_session` makes the runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated, Literal

from pydantic import Field

from qualify import program
from qualify.arena import layout
from qualify.contract import Argument, Memset, Variant
from qualify.gate import holds
from qualify.model import Document, Hex16, Name
from qualify.steps import Arena, Census, Damage
from qualify.subject import Subject
from qualify.verdict import Check

#: Runs of one session by the inputs that they read: six on the first (five repeats), two on others, the first again;
#: two more on others still, since an output of few bits may be the same for two inputs.
FIRST_ZONES: tuple[int, ...] = (0, 0, 0, 0, 0, 0, 1, 1, 0, 2, 3)
#: The second session has other bytes outside the buffers.
OTHER_ZONES: tuple[int, ...] = (0, 0)
#: The incumbent's bits are asked for once on each inputs.
INCUMBENT: tuple[int, ...] = (0, 1)
#: Replays of one graph, by the inputs that lie in its buffers.
REPLAYS: tuple[int, ...] = (0, 1, 0)
#: Runs beside a busy queue, by what that queue does; the run reads the first inputs, the route's other instance these.
CROWDS: tuple[Crowd, ...] = ("work", "itself")
TWIN_INPUTS = 1
#: A queue that was not busy throughout is given so many tries; a loaded machine may take both of them away.
CROWD_TRIES = 3
#: What two sets leave of the device's memory for everything else, as a divisor.
_MEMORY_LEFT = 8
#: Two sets of this size fit every device.
_SURE_BYTES = 128 << 20

Crowd = Literal["work", "itself"]
Count = Annotated[int, Field(ge=0)]


class CheckedRun(Document):
    """One launch on freshly poisoned outputs: digests in the order of outputs and of kept arguments.

    `poisoned` counts, for each plain output, the elements that still equal this run's poison.
    """

    inputs: int
    complement: bool
    kept_before: tuple[Hex16, ...]
    outputs: tuple[Hex16, ...]
    kept_after: tuple[Hex16, ...]
    damage: Damage
    poisoned: tuple[int, ...]
    later: tuple[Hex16, ...]


class Untouched(Document):
    """Elements of an output that equal their poison in two complementary runs on the same inputs."""

    inputs: int
    output: Name
    elements: int
    first_index: int | None


class VariantRuns(Document):
    """One variant: the candidate's two sessions, what stayed untouched, then the incumbent's bits if they count.

    `untouched` is None unless some output had poisoned elements in both polarities on the same inputs.
    """

    variant: Variant
    first: tuple[CheckedRun, ...]
    idle: tuple[Hex16, ...]
    untouched: tuple[Untouched, ...] | None
    other: tuple[CheckedRun, ...]
    incumbent: tuple[tuple[Hex16, ...], ...] | None

    @property
    def runs(self) -> tuple[CheckedRun, ...]:
        """Every run of the candidate's."""
        return (*self.first, *self.other)


class ReplayedRuns(Document):
    """One graph of the candidate's launches: its nodes, and its replays."""

    census: Census
    runs: tuple[CheckedRun, ...]


class CrowdedRun(Document):
    """A run beside a busy queue: whether that was busy throughout, and what its own launches left, if they count.

    `twin` is None beside neutral work, and where an inout changes from launch to launch.
    """

    beside: Crowd
    busy: bool
    run: CheckedRun
    twin: tuple[Hex16, ...] | None


class FullRuns(VariantRuns):
    """One variant with graph replays, where the runtime has graphs, and with contention."""

    replayed: ReplayedRuns | None
    crowded: tuple[CrowdedRun, ...]

    @property
    def runs(self) -> tuple[CheckedRun, ...]:
        """Every run of the candidate's."""
        replays = () if self.replayed is None else self.replayed.runs
        return (*self.first, *replays, *(each.run for each in self.crowded), *self.other)


# The plan ------------------------------------------------------------------------------------------------------------


def poisoned_outputs(subject: Subject) -> tuple[Argument, ...]:
    """The outputs that are poisoned; an inout holds its input instead, which an element may rightly keep."""
    return tuple(argument for argument in program.outputs(subject) if argument.kind == "output")


def crowds(subject: Subject) -> tuple[Crowd, ...]:
    """What the other queue does: neutral work, and the route itself where two sets fit the device's memory."""
    return CROWDS if sets(subject) > 1 else CROWDS[:1]


def sets(subject: Subject) -> int:
    """Sets of the arena: two where they leave an eighth of the device's memory, else one."""
    largest = max(layout(subject.arguments, 2, variant=variant).size_bytes for variant in subject.variants)
    return 2 if largest <= _most_bytes(subject) else 1


def compares(subject: Subject, made: Arena) -> bool:
    """Whether the device can lay two runs of an output beside each other.

    Each has a set of its own, and where elements lie apart there is memory for two buffers of them in rows.
    """
    apart = any(place.axes for place in made.placements)
    rows_bytes = 2 * max(place.size_bytes for place in made.placements) if apart else 0
    return sets(subject) > 1 and made.size_bytes + rows_bytes <= _most_bytes(subject)


def _most_bytes(subject: Subject) -> int:
    """So much of the device's memory may be taken."""
    memory = subject.limits.memory_bytes
    return _SURE_BYTES if memory is None else memory - memory // _MEMORY_LEFT


def twin_counts(subject: Subject) -> bool:
    """Whether the other instance's bits are compared: without inouts every pass of it leaves the same."""
    return not any(argument.elements for argument in subject.buffers("inout"))


def nodes(subject: Subject) -> Census:
    """The nodes that the candidate's launches are: a memset of nothing is none."""
    empty = {argument.name for argument in subject.arguments if argument.is_buffer and not argument.elements}
    launches = subject.candidate.launches
    memsets = sum(isinstance(each, Memset) and each.memset not in empty for each in launches)
    return Census(kernels=len(subject.candidate.kernels), memsets=memsets, others=0)


def whole(subject: Subject, each: VariantRuns) -> bool:
    """Whether every planned run of both sessions is there, in order, with a figure for every argument."""
    counts = tuple(map(len, (program.outputs(subject), program.kept(subject), poisoned_outputs(subject))))
    planned = _as_planned(each.first, FIRST_ZONES) and _as_planned(each.other, OTHER_ZONES)
    return planned and len(each.idle) == counts[0] > 0 and all(_shaped(counts, run) for run in each.runs)


def _shaped(counts: tuple[int, ...], run: CheckedRun) -> bool:
    """Whether a run has figures for so many outputs, kept arguments and poisoned outputs."""
    return (
        (len(run.outputs), len(run.kept_before), len(run.poisoned)) == counts
        and len(run.later) == len(run.outputs)
        and len(run.kept_after) == len(run.kept_before)
        and min(run.poisoned, default=0) >= 0
        and (run.damage.bytes == 0) == (run.damage.first_offset is None)
    )


def _as_planned(runs: Sequence[CheckedRun], plan: tuple[int, ...]) -> bool:
    return [(run.inputs, run.complement) for run in runs] == [(inputs, i % 2 == 1) for i, inputs in enumerate(plan)]


def whole_replays(subject: Subject, each: FullRuns) -> bool:
    """Whether the planned replays are there, and none where there are no graphs."""
    if each.replayed is None or not subject.domain.has_graphs:
        return each.replayed is None and not subject.domain.has_graphs
    return _as_planned(each.replayed.runs, REPLAYS)


def whole_crowds(subject: Subject, each: FullRuns) -> bool:
    """Whether each crowd has its runs: at most so many, and none after the first whose queue was busy."""
    tries = [(beside, list(runs)) for beside, runs in groupby(each.crowded, lambda run: run.beside)]
    kept = all(len(runs) <= CROWD_TRIES and not any(run.busy for run in runs[:-1]) for _, runs in tries)
    order = all(_as_planned([run.run], (0,)) for run in each.crowded)
    counted = len(program.outputs(subject)) if twin_counts(subject) else None
    want = {"work": None, "itself": counted}
    twins = all((None if run.twin is None else len(run.twin)) == want[run.beside] for run in each.crowded)
    return tuple(beside for beside, _ in tries) == crowds(subject) and kept and order and twins


# What runs say -------------------------------------------------------------------------------------------------------


def changed_inputs(each: VariantRuns) -> bool:
    """Whether kept arguments digest otherwise after a run, or in another run that reads the same inputs."""
    first: dict[int, tuple[str, ...]] = {}
    wants = [(first.setdefault(run.inputs, run.kept_before), run) for run in each.runs]
    return any((run.kept_before, run.kept_after) != (want, want) for want, run in wants)


def suspected(outputs: Sequence[Argument], runs: Sequence[CheckedRun]) -> tuple[tuple[int, Argument], ...]:
    """Outputs that had poisoned elements in both polarities, by the inputs of those runs."""
    found = []
    for inputs in sorted(set(FIRST_ZONES)):
        for index, argument in enumerate(outputs):
            sides = {run.complement for run in runs if run.inputs == inputs and run.poisoned[index]}
            found += [(inputs, argument)] if len(sides) == 2 else []
    return tuple(found)


def left(each: VariantRuns) -> list[Untouched]:
    """Outputs with elements that no run wrote."""
    return [entry for entry in each.untouched or () if entry.elements]


def repeats(each: VariantRuns) -> bool:
    """Whether all runs on the same inputs in the same session gave the same bits."""
    return all(
        len({run.outputs for run in runs if run.inputs == inputs}) == 1
        for runs in (each.first, each.other)
        for inputs in {run.inputs for run in runs}
    )


def stable(each: VariantRuns) -> bool:
    """Whether outputs stayed as they were when their launch returned."""
    return all(run.later == run.outputs for run in each.runs) and each.idle == each.first[-1].outputs


def eager(each: VariantRuns, inputs: int) -> tuple[str, ...] | None:
    """The bits of the first plain launch on those inputs."""
    return next((run.outputs for run in each.first if run.inputs == inputs), None)


def replays(each: FullRuns) -> bool:
    """Whether every replay gave the bits of a plain launch on the same inputs."""
    found = () if each.replayed is None else each.replayed.runs
    return all(run.outputs == eager(each, run.inputs) for run in found)


def disturbed(each: FullRuns) -> Iterator[Crowd]:
    """Beside what the bits were others than alone, the other instance's own among them."""
    for crowd in each.crowded:
        twin = crowd.twin is None or crowd.twin == eager(each, TWIN_INPUTS)
        if crowd.run.outputs != eager(each, crowd.run.inputs) or not twin:
            yield crowd.beside


def idle_crowds(each: FullRuns) -> list[Crowd]:
    """Crowds whose queue was not busy in any try."""
    busy = {run.beside for run in each.crowded if run.busy}
    return [run.beside for run in each.crowded if run.beside not in busy]


# Checks --------------------------------------------------------------------------------------------------------------


def zones(variants: Sequence[VariantRuns]) -> Check:
    """No byte outside the buffers' elements changed in any run."""
    damaged = [run.damage for each in variants for run in each.runs if run.damage.bytes]
    got = f"{damaged[0].bytes} bytes, the first at {damaged[0].first_offset}" if damaged else "0 bytes"
    return holds("zones", got, "no byte written outside the buffers", not damaged)


def inputs_unchanged(variants: Sequence[VariantRuns]) -> Check:
    """Inputs digest the same before and after every run, and in every run that reads the same inputs."""
    changed = [each.variant for each in variants if changed_inputs(each)]
    return holds("inputs_unchanged", ", ".join(dict.fromkeys(changed)) or "all", "the same digests after", not changed)


def unwritten(subject: Subject, variants: Sequence[VariantRuns]) -> Check:
    """Every element is written; raises ValueError where both polarities had poison and nobody looked closer."""
    for each in variants:
        asked = [(inputs, output.name) for inputs, output in suspected(poisoned_outputs(subject), each.first)]
        found = [(entry.inputs, entry.output) for entry in each.untouched or ()]
        if found != asked:
            raise ValueError(f"untouched elements of {found} where {asked} were in question")
    entries = [entry for each in variants for entry in left(each)]
    shown = dict.fromkeys(f"{e.elements} elements of {e.output}, the first at {e.first_index}" for e in entries)
    return holds("unwritten", "; ".join(list(shown)[:2]) or "0 elements", "every element written", not entries)


def incumbent(variants: Sequence[VariantRuns]) -> Check:
    """The incumbent's bits on both inputs, variant by variant."""
    differ, unknown = [], []
    for each in variants:
        if each.incumbent is None or len(each.incumbent) != len(INCUMBENT):
            unknown.append(each.variant)
        elif list(each.incumbent) != [eager(each, inputs) for inputs in INCUMBENT]:
            differ.append(each.variant)
    verdict = False if differ else None if unknown else True
    return holds(
        "incumbent", within(differ, "differ") if verdict is not None else None, "the incumbent's bits", verdict
    )


def within(variants: Sequence[str], what: str) -> str:
    """What is wrong and where, or that all is equal."""
    return f"{what} in {', '.join(variants)}" if variants else "equal"
