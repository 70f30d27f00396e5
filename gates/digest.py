"""Gate digest: the bits of the outputs depend on the inputs and on nothing else, and every element is written.

The candidate runs alone, in fresh workers; no expected bit is anywhere near (R9.2). What the bits mean is not asked
here (R9.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from qualify import checked
from qualify.checked import FIRST_ZONES, INCUMBENT, OTHER_ZONES, REPLAYS, CheckedRun, FullRuns, VariantRuns
from qualify.checked_session import Runner, Seen
from qualify.contract import Variant
from qualify.gate import Bench, Facts, Gate, Rule, Series, Settings, holds
from qualify.steps import Census
from qualify.strides import placed_alike
from qualify.subject import Subject
from qualify.verdict import Check, Note

_ALWAYS = frozenset({"runs", "zones", "inputs_unchanged", "unwritten", "repeats", "stable", "zone_independent"})


class FirstFacts(Facts):
    """Bits of every variant, in plain launches."""

    variants: tuple[VariantRuns, ...]


class DigestFacts(Facts):
    """Bits of every variant, in plain launches, in replays and beside a busy queue."""

    variants: tuple[FullRuns, ...]


class DigestSettings(Settings):
    """`timeout_s` is for one run with its fills and digests."""

    timeout_s: Annotated[int, Field(ge=1)] = 60


def first_checks(subject: Subject) -> frozenset[str]:
    """Required names: bits depend on inputs where there are any, and equal the incumbent's where the cohort says so."""
    names = set(_ALWAYS)
    if _has_inputs(subject):
        names.add("input_dependent")
    if _compares(subject):
        names.add("incumbent")
    return frozenset(names)


def checks(subject: Subject) -> frozenset[str]:
    """Required names of rule 2: graphs are asked for where the runtime has them."""
    graphs = {"node_census", "replay"} if subject.domain.has_graphs else set()
    return first_checks(subject) | {"contention"} | graphs


def _has_inputs(subject: Subject) -> bool:
    return any(argument.elements for argument in subject.buffers("input", "inout"))


def _compares(subject: Subject) -> bool:
    return subject.role == "candidate" and subject.bits == "identical"


# Judgement -----------------------------------------------------------------------------------------------------------


def first_judge(subject: Subject, facts: FirstFacts, series: Series, settings: DigestSettings) -> Iterable[Check]:
    """Every check of rule 1. Raises ValueError for facts that no measurement gives."""
    planned = len(FIRST_ZONES) + len(OTHER_ZONES)
    yield _planned(subject, facts.variants, planned, [checked.whole(subject, each) for each in facts.variants])
    yield from _bits(subject, facts.variants)


def judge(subject: Subject, facts: DigestFacts, series: Series, settings: DigestSettings) -> Iterable[Check | Note]:
    """Every check of rule 2: rule 1's, and those of replays and contention. Raises ValueError as rule 1 does."""
    variants = facts.variants
    planned = len(FIRST_ZONES) + len(OTHER_ZONES) + len(checked.crowds(subject))
    planned += len(REPLAYS) if subject.domain.has_graphs else 0
    yield _planned(subject, variants, planned, [_whole(subject, each) for each in variants])
    yield from _bits(subject, variants)
    yield _contention(subject, variants)
    if subject.domain.has_graphs:
        yield _node_census(subject, variants)
        yield _replay(variants)
    if checked.sets(subject) < 2:
        says = "two sets do not fit the device's memory, so the route was never beside itself"
        yield Note(name="contention", got="neutral work only", says=says)


def _planned(subject: Subject, variants: Sequence[VariantRuns], planned: int, whole: Sequence[bool]) -> Check:
    """Whether every planned run is there, in order, with a figure for every argument."""
    named = tuple(each.variant for each in variants) == subject.variants and bool(variants)
    count = sum(len(each.runs) for each in variants)
    return holds("runs", f"{count} runs", f"{planned * len(subject.variants)} runs as planned", _sure(named, *whole))


def _whole(subject: Subject, each: FullRuns) -> bool:
    parts = (checked.whole, checked.whole_replays, checked.whole_crowds)
    return all(part(subject, each) for part in parts)


def _sure(*conditions: bool) -> bool | None:
    return all(conditions) or None


def _bits(subject: Subject, variants: Sequence[VariantRuns]) -> Iterator[Check]:
    """The checks of both rules."""
    yield checked.zones(variants)
    yield checked.inputs_unchanged(variants)
    yield checked.unwritten(subject, variants)
    yield from _same_bits(subject, variants)
    if _compares(subject):
        yield checked.incumbent(variants)


def _steady(variants: Sequence[VariantRuns]) -> str | None:
    """Why bits cannot be compared any further, or None if repeats agree and all elements are written (R9.3)."""
    if any(checked.left(each) for each in variants):
        return "not compared: elements are unwritten"
    return None if all(checked.repeats(each) for each in variants) else "nondeterministic"


def _same_bits(subject: Subject, variants: Sequence[VariantRuns]) -> Iterator[Check]:
    """Repeats, later looks and other zones. Different repeats are unknown, never a pass (R9.3)."""
    why = _steady(variants)
    differ = [each.variant for each in variants if not checked.repeats(each)]
    got = checked.within(differ, "nondeterministic") if why in {None, "nondeterministic"} else why
    yield holds("repeats", got, "equal bits", _sure(why is None))
    restless = [each.variant for each in variants if not checked.stable(each)]
    wanted = "outputs as they were when the launch returned"
    yield holds("stable", checked.within(restless, "changed"), wanted, not restless)
    moved = [each.variant for each in variants if each.other[0].outputs != each.first[0].outputs]
    yield _compared("zone_independent", why, moved, "the same bits beside other zones")
    if _has_inputs(subject):
        bits = {run.outputs for each in variants if each.variant == "ordinary" for run in each.first}
        yield holds(
            "input_dependent", f"{len(bits)} different", "other bits for other inputs", len(bits) > 1 if bits else None
        )


def _compared(name: str, why: str | None, differ: Sequence[str], want: str) -> Check:
    """A comparison that says something only where bits are steady."""
    return holds(name, why or checked.within(differ, "differ"), want, None if why else not differ)


def _contention(subject: Subject, variants: Sequence[FullRuns]) -> Check:
    """The same bits beside a queue that was busy throughout; if it never was, nothing is known."""
    want = "the same bits beside a busy queue"
    why = _steady(variants)
    differ = [f"{each.variant} beside {crowd}" for each in variants for crowd in checked.disturbed(each)]
    idle = [each.variant for each in variants if checked.idle_crowds(each)]
    if why is None and not differ and (idle or not all(checked.whole_crowds(subject, each) for each in variants)):
        return holds("contention", None, want, None)
    return _compared("contention", why, list(dict.fromkeys(differ)), want)


def _node_census(subject: Subject, variants: Sequence[FullRuns]) -> Check:
    """The graph's nodes are the route's launches, and there are some."""
    want = checked.nodes(subject)
    found = [each.replayed.census for each in variants if each.replayed is not None]
    wrong = next((census for census in found if census != want), want)
    equal = all(census == want for census in found) and want.kernels + want.memsets > 0
    got = _shown(wrong) if len(found) == len(variants) and found else None
    return holds("node_census", got, f"{_shown(want)}, as launched", equal)


def _shown(census: Census) -> str:
    return f"{census.kernels} kernels, {census.memsets} memsets, {census.others} others"


def _replay(variants: Sequence[FullRuns]) -> Check:
    """Replays give the bits of plain launches; without any, nothing is known."""
    want = "the bits of plain launches"
    if not all(each.replayed is not None and each.replayed.runs for each in variants):
        return holds("replay", None, want, None)
    return _compared(
        "replay", _steady(variants), [each.variant for each in variants if not checked.replays(each)], want
    )


_FIRST_FIXES = {
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
FIXES = {
    **_FIRST_FIXES,
    "contention": "share nothing between launches but the arguments, and count on no multiprocessor being free",
    "node_census": "report it: what was captured are not the route's launches",
    "replay": "do in every launch what the first one does; count no launches and keep nothing between them",
}


class DigestGate(Gate[DigestFacts, DigestSettings]):
    """Bits under poison, zones, repeats, replays and contention."""

    id: ClassVar[str] = "digest"
    claim: ClassVar[str] = "Every element is written, and its bits depend on the inputs and on nothing else."
    runs_on: ClassVar[Literal["host", "device"]] = "device"
    rules: ClassVar[tuple[Rule[FirstFacts, DigestSettings] | Rule[DigestFacts, DigestSettings], ...]] = (
        Rule(1, FirstFacts, DigestSettings, first_checks, first_judge, _FIRST_FIXES),
        Rule(2, DigestFacts, DigestSettings, checks, judge, FIXES, shows="bits"),
    )

    def measure(self, subject: Subject, bench: Bench, settings: DigestSettings) -> DigestFacts:
        """The candidate alone in two fresh workers for each placement, and only then the incumbent (R9.2)."""
        seed, timeout_s = bench.seed("digest"), settings.timeout_s
        seen: dict[Variant, Seen] = {}
        other: dict[Variant, tuple[CheckedRun, ...]] = {}
        for alike in placed_alike(subject.variants):
            with bench.session(subject, "candidate") as session:
                runner = Runner(subject, session, seed, timeout_s, complement=False, placed=alike[0])
                seen |= {variant: runner.look(variant) for variant in alike}
            with bench.session(subject, "candidate") as session:
                runner = Runner(subject, session, seed, timeout_s, complement=True, placed=alike[0])
                other |= {variant: runner.runs(variant, OTHER_ZONES) for variant in alike}
        bits = _incumbent_bits(subject, bench, seed, timeout_s) if _compares(subject) else {}
        return DigestFacts(
            variants=tuple(
                FullRuns(variant=variant, **seen[variant]._asdict(), other=other[variant], incumbent=bits.get(variant))
                for variant in subject.variants
            )
        )


def _incumbent_bits(
    subject: Subject, bench: Bench, seed: str, timeout_s: float
) -> dict[str, tuple[tuple[str, ...], ...]]:
    found: dict[str, tuple[tuple[str, ...], ...]] = {}
    for alike in placed_alike(subject.variants):
        with bench.session(subject, "incumbent") as session:
            runner = Runner(subject, session, seed, timeout_s, complement=False, placed=alike[0], arm="incumbent")
            found |= {variant: tuple(run.outputs for run in runner.runs(variant, INCUMBENT)) for variant in alike}
    return found
