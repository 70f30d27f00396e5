"""Gate digest: the bits of the outputs depend on the inputs and on nothing else, and every element is written.

The candidate runs alone, in fresh workers; no expected bit is anywhere near (R9.2). What the bits mean is not asked
here (R9.4).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from qualify import program
from qualify.contract import Argument, Variant
from qualify.fill import generate, recipe
from qualify.gate import Bench, Facts, Gate, Rule, Series, Session, Settings, holds
from qualify.model import Document, Hex16, Name
from qualify.seeds import split
from qualify.steps import ArmName, Damage, Digest, Digests, Equal, Poison, Read, Record, Scrub, Step, Unwritten, Zones
from qualify.subject import Subject
from qualify.verdict import Check

#: Runs of one session by the inputs that they read: six on the first (five repeats), two on others, the first again;
#: two more on others still, since an output of few bits may be the same for two inputs.
FIRST_ZONES: tuple[int, ...] = (0, 0, 0, 0, 0, 0, 1, 1, 0, 2, 3)
#: The second session has other bytes outside the buffers.
OTHER_ZONES: tuple[int, ...] = (0, 0)
#: The incumbent's bits are asked for once on each inputs.
INCUMBENT: tuple[int, ...] = (0, 1)
#: Work that goes on after a launch returned would show within this time.
IDLE_S = 0.02

_ALWAYS = frozenset({"runs", "zones", "inputs_unchanged", "unwritten", "repeats", "stable", "zone_independent"})


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


class DigestFacts(Facts):
    """Bits of every variant."""

    variants: tuple[VariantRuns, ...]


class DigestSettings(Settings):
    """`timeout_s` is for one run with its fills and digests."""

    timeout_s: Annotated[int, Field(ge=1)] = 60


def checks(subject: Subject) -> frozenset[str]:
    """Required names: bits depend on inputs where there are any, and equal the incumbent's where the cohort says so."""
    names = set(_ALWAYS)
    if _has_inputs(subject):
        names.add("input_dependent")
    if _compares(subject):
        names.add("incumbent")
    return frozenset(names)


def _has_inputs(subject: Subject) -> bool:
    return any(argument.elements for argument in subject.buffers("input", "inout"))


def _compares(subject: Subject) -> bool:
    return subject.role == "candidate" and subject.bits == "identical"


def _outputs(subject: Subject) -> tuple[Argument, ...]:
    """The outputs that are poisoned; an inout holds its input instead, which an element may rightly keep."""
    return tuple(argument for argument in program.outputs(subject) if argument.kind == "output")


# Judgement -----------------------------------------------------------------------------------------------------------


def judge(subject: Subject, facts: DigestFacts, series: Series, settings: DigestSettings) -> Iterable[Check]:
    """Every check of rule 1. Raises ValueError for facts that no measurement gives."""
    yield _planned(subject, facts)
    runs = [run for each in facts.variants for run in (*each.first, *each.other)]
    damaged = [run.damage for run in runs if run.damage.bytes]
    got = f"{damaged[0].bytes} bytes, the first at {damaged[0].first_offset}" if damaged else "0 bytes"
    yield holds("zones", got, "no byte written outside the buffers", not damaged)
    yield _inputs_unchanged(facts)
    left = [entry for each in facts.variants for entry in _left(each)]
    yield _unwritten(subject, facts, left)
    yield from _same_bits(subject, facts, written=not left)
    if _compares(subject):
        yield _incumbent(facts)


def _planned(subject: Subject, facts: DigestFacts) -> Check:
    """Whether every planned run is there, in order, with a figure for every argument."""
    variants = tuple(each.variant for each in facts.variants)
    whole = variants == subject.variants and bool(variants) and all(_whole(subject, each) for each in facts.variants)
    count = sum(len(each.first) + len(each.other) for each in facts.variants)
    planned = len(subject.variants) * (len(FIRST_ZONES) + len(OTHER_ZONES))
    return holds("runs", f"{count} runs", f"{planned} runs as planned", whole or None)


def _whole(subject: Subject, each: VariantRuns) -> bool:
    counts = tuple(map(len, (program.outputs(subject), program.kept(subject), _outputs(subject))))
    shape = all(
        (len(run.outputs), len(run.kept_before), len(run.poisoned)) == counts
        and len(run.later) == len(run.outputs)
        and len(run.kept_after) == len(run.kept_before)
        and min(run.poisoned, default=0) >= 0
        and (run.damage.bytes == 0) == (run.damage.first_offset is None)
        for run in (*each.first, *each.other)
    )
    planned = _as_planned(each.first, FIRST_ZONES) and _as_planned(each.other, OTHER_ZONES)
    return shape and planned and len(each.idle) == counts[0] > 0


def _as_planned(runs: Sequence[CheckedRun], plan: tuple[int, ...]) -> bool:
    return [(run.inputs, run.complement) for run in runs] == [(inputs, i % 2 == 1) for i, inputs in enumerate(plan)]


def _inputs_unchanged(facts: DigestFacts) -> Check:
    """Inputs digest the same before and after every run, and in every run that reads the same inputs."""
    changed = []
    for each in facts.variants:
        first: dict[int, tuple[str, ...]] = {}
        for run in (*each.first, *each.other):
            want = first.setdefault(run.inputs, run.kept_before)
            if (run.kept_before, run.kept_after) != (want, want):
                changed.append(each.variant)
    return holds("inputs_unchanged", ", ".join(dict.fromkeys(changed)) or "all", "the same digests after", not changed)


def _left(each: VariantRuns) -> list[Untouched]:
    return [entry for entry in each.untouched or () if entry.elements]


def _unwritten(subject: Subject, facts: DigestFacts, left: list[Untouched]) -> Check:
    """Every element is written; raises ValueError where both polarities had poison and nobody looked closer."""
    for each in facts.variants:
        suspected = [(inputs, output.name) for inputs, output in _suspected(_outputs(subject), each.first)]
        found = [(entry.inputs, entry.output) for entry in each.untouched or ()]
        if found != suspected:
            raise ValueError(f"untouched elements of {found} where {suspected} were in question")
    shown = dict.fromkeys(f"{e.elements} elements of {e.output}, the first at {e.first_index}" for e in left)
    return holds("unwritten", "; ".join(list(shown)[:2]) or "0 elements", "every element written", not left)


def _suspected(outputs: Sequence[Argument], runs: Sequence[CheckedRun]) -> tuple[tuple[int, Argument], ...]:
    """Outputs that had poisoned elements in both polarities, by the inputs of those runs."""
    found = []
    for inputs in sorted(set(FIRST_ZONES)):
        for index, argument in enumerate(outputs):
            sides = {run.complement for run in runs if run.inputs == inputs and run.poisoned[index]}
            found += [(inputs, argument)] if len(sides) == 2 else []
    return tuple(found)


def _same_bits(subject: Subject, facts: DigestFacts, *, written: bool) -> Iterator[Check]:
    """Repeats, later looks and other zones. Different repeats are unknown, never a pass (R9.3)."""
    differ = [each.variant for each in facts.variants if not _repeats(each)]
    steady = written and not differ
    why = "not compared: elements are unwritten" if not written else "nondeterministic" if differ else "equal"
    yield holds("repeats", _in(differ, "nondeterministic") if written else why, "equal bits", steady or None)
    restless = [each.variant for each in facts.variants if not _stable(each)]
    yield holds("stable", _in(restless, "changed"), "outputs as they were when the launch returned", not restless)
    moved = [each.variant for each in facts.variants if each.other[0].outputs != each.first[0].outputs]
    got = _in(moved, "differ") if steady else why
    yield holds("zone_independent", got, "the same bits beside other zones", not moved if steady else None)
    if _has_inputs(subject):
        bits = {run.outputs for each in facts.variants if each.variant == "ordinary" for run in each.first}
        yield holds(
            "input_dependent", f"{len(bits)} different", "other bits for other inputs", len(bits) > 1 if bits else None
        )


def _in(variants: Sequence[str], what: str) -> str:
    return f"{what} in {', '.join(variants)}" if variants else "equal"


def _repeats(each: VariantRuns) -> bool:
    """Whether all runs on the same inputs in the same session gave the same bits."""
    return all(
        len({run.outputs for run in runs if run.inputs == inputs}) == 1
        for runs in (each.first, each.other)
        for inputs in {run.inputs for run in runs}
    )


def _stable(each: VariantRuns) -> bool:
    return all(run.later == run.outputs for run in (*each.first, *each.other)) and each.idle == each.first[-1].outputs


def _incumbent(facts: DigestFacts) -> Check:
    """The incumbent's bits on both inputs, variant by variant."""
    differ, unknown = [], []
    for each in facts.variants:
        own = [next((run.outputs for run in each.first if run.inputs == i), None) for i in INCUMBENT]
        if each.incumbent is None or len(each.incumbent) != len(INCUMBENT):
            unknown.append(each.variant)
        elif list(each.incumbent) != own:
            differ.append(each.variant)
    verdict = False if differ else None if unknown else True
    return holds("incumbent", _in(differ, "differ") if verdict is not None else None, "the incumbent's bits", verdict)


FIXES = {
    "runs": "screen again; the record of the runs is not whole",
    "zones": "stay inside the buffers: guard the tail, and check strides and grid",
    "inputs_unchanged": "write outputs and scratch only, and leave zero-at-load scratch as it was",
    "unwritten": "write every element; the last of a ragged shape are the usual ones",
    "repeats": "make the order of additions fixed: no float atomics, no state between launches, no reads of the output",
    "stable": "end all work before the kernel returns",
    "zone_independent": "read inside the buffers only",
    "input_dependent": "compute from the inputs of this launch; if no output can depend on them, declare no inputs",
    "incumbent": "keep the incumbent's order of operations, or let the cohort say `bits: own`",
}


class DigestGate(Gate[DigestFacts, DigestSettings]):
    """Bits under poison, zones and repeats."""

    id: ClassVar[str] = "digest"
    claim: ClassVar[str] = "Every element is written, and its bits depend on the inputs and on nothing else."
    runs_on: ClassVar[Literal["host", "device"]] = "device"
    rules: ClassVar[tuple[Rule[DigestFacts, DigestSettings], ...]] = (
        Rule(1, DigestFacts, DigestSettings, checks, judge, FIXES),
    )

    def measure(self, subject: Subject, bench: Bench, settings: DigestSettings) -> DigestFacts:
        """The candidate alone in two fresh workers, and only then the incumbent in a third (R9.2)."""
        seed = bench.seed("digest")
        found: dict[str, _Seen] = {}
        with bench.session(subject, "candidate") as session:
            runner = _Runner(subject, session, seed, settings, zones=0)
            for variant in subject.variants:
                found[variant] = runner.look(variant)
        with bench.session(subject, "candidate") as session:
            runner = _Runner(subject, session, seed, settings, zones=1)
            other = {variant: runner.runs(variant, OTHER_ZONES) for variant in subject.variants}
        bits = _incumbent_bits(subject, bench, seed, settings) if _compares(subject) else {}
        return DigestFacts(
            variants=tuple(
                VariantRuns(
                    variant=variant,
                    first=found[variant].first,
                    idle=found[variant].idle,
                    untouched=found[variant].untouched,
                    other=other[variant],
                    incumbent=bits.get(variant),
                )
                for variant in subject.variants
            )
        )


# Measurement ---------------------------------------------------------------------------------------------------------


def _incumbent_bits(
    subject: Subject, bench: Bench, seed: str, settings: DigestSettings
) -> dict[str, tuple[tuple[str, ...], ...]]:
    with bench.session(subject, "incumbent") as session:
        runner = _Runner(subject, session, seed, settings, zones=0, arm="incumbent")
        return {variant: tuple(run.outputs for run in runner.runs(variant, INCUMBENT)) for variant in subject.variants}


class _Seen(NamedTuple):
    first: tuple[CheckedRun, ...]
    idle: tuple[str, ...]
    untouched: tuple[Untouched, ...] | None


class _Runner:
    """Checked runs of one arm in one session, whose arena is laid out when this is made."""

    def __init__(
        self,
        subject: Subject,
        session: Session,
        seed: str,
        settings: DigestSettings,
        *,
        zones: int,
        arm: ArmName = "candidate",
    ) -> None:
        self._subject, self._session, self._arm = subject, session, arm
        self._seed, self._zones, self._timeout_s = seed, zones, settings.timeout_s
        self._filled: tuple[Variant, int] | None = None
        self._run([program.arena(subject, 1, split(seed, "zones", zones))])

    def look(self, variant: Variant) -> _Seen:
        """The runs of the first session, a later look at the last outputs, and a closer one where it is needed."""
        first = self.runs(variant, FIRST_ZONES)
        time.sleep(IDLE_S)
        idle = program.only(self._run([_digest(program.outputs(self._subject))]), Digests)[0].values
        suspected = _suspected(_outputs(self._subject), first)
        found = tuple(self._untouched(variant, inputs, output) for inputs, output in suspected)
        return _Seen(first, idle, found or None)

    def runs(self, variant: Variant, plan: Sequence[int]) -> tuple[CheckedRun, ...]:
        """One checked run for each entry of the plan; run i + 1 uses the complement of run i's poison."""
        return tuple(self._checked(variant, number, inputs) for number, inputs in enumerate(plan))

    def _untouched(self, variant: Variant, inputs: int, output: Argument) -> Untouched:
        """Run in both polarities once more, and look at every element of an output."""
        from qualify.comparison import untouched

        seed = split(self._seed, "untouched")
        read: list[bytes] = []
        for complement in (False, True):
            steps = self._prepared(variant, inputs, seed, complement=complement)
            self._run([*steps, program.run(self._subject, self._arm), Read(buffer=f"{output.name}.0")])
            read += self._session.taken()
        plain, turned = (generate(recipe(output, variant, seed, complement=c), output.elements) for c in (False, True))
        count, first = untouched(read[0], read[1], (plain, turned), output.dtype)
        return Untouched(inputs=inputs, output=output.name, elements=count, first_index=first)

    def _checked(self, variant: Variant, number: int, inputs: int) -> CheckedRun:
        subject, complement = self._subject, number % 2 == 1
        kept, outputs, plain = program.kept(subject), program.outputs(subject), _outputs(subject)
        seed = split(self._seed, "poison", variant, self._zones, number // 2)
        fills = program.poison(subject, seed, complement=complement)
        poisons = {fill.buffer: fill.recipe for fill in fills if isinstance(fill.recipe, Poison)}
        records = self._run(
            [
                *self._prepared(variant, inputs, seed, complement=complement),
                _digest(kept),
                program.run(subject, self._arm),
                _digest(outputs),
                _digest(kept),
                Zones(),
                *(Unwritten(buffer=name, poison=poisons[name]) for name in program.buffers(plain)),
                Scrub(seed=split(seed, "after")),
                _digest(outputs),
            ]
        )
        before, found, after, later = (record.values for record in program.only(records, Digests))
        return CheckedRun(
            inputs=inputs,
            complement=complement,
            kept_before=before,
            outputs=found,
            kept_after=after,
            damage=program.only(records, Damage)[0],
            poisoned=tuple(record.elements for record in program.only(records, Equal)),
            later=later,
        )

    def _prepared(self, variant: Variant, inputs: int, seed: str, *, complement: bool) -> tuple[Step, ...]:
        """Shared memory scrubbed, outputs and scratch poisoned, inputs filled where the last run had others."""
        again, self._filled = self._filled == (variant, inputs), (variant, inputs)
        values = program.values(self._subject, variant, split(self._seed, "inputs", variant, inputs), again=again)
        return (Scrub(seed=seed), *values, *program.poison(self._subject, seed, complement=complement))

    def _run(self, steps: Sequence[Step]) -> Sequence[Record]:
        return self._session.run(steps, self._timeout_s)


def _digest(arguments: Sequence[Argument]) -> Digest:
    return Digest(buffers=program.buffers(arguments))
