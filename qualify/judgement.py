"""`decide`, the only way to a verdict: the engine and the auditor call it on the same bytes (R5.1)."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

from qualify.domain import Domain, Trust
from qualify.errors import DocumentError
from qualify.gate import Facts, Gate, Measurement, Rule, Series, SeriesRef, Settings, Shows
from qualify.model import Document, Segment, canonical_by_items, canonical_bytes
from qualify.plan import Node, Plan, Planned
from qualify.subject import Role, Subject
from qualify.verdict import Check, Note, Outcome, Verdict, combine

#: The version of this module's own tables; a plan names it, an unknown number is never a pass.
JUDGEMENT = 3
#: The commands whose runs may admit, by the version of judgement.
ADMITTING: Mapping[int, tuple[str, ...]] = {1: ("promote",), 2: ("promote", "prove"), 3: ("promote", "prove")}
#: The first version that admits only what gates showed the bits of.
_SHOWN_SINCE = 3
#: What has to be shown of a candidate, by its `bits`: own ones mean nothing until they lie beside exact values.
_WANTED: Mapping[str, tuple[Shows, ...]] = {"identical": ("bits",), "own": ("bits", "values")}
#: What arithmetic on facts that no measurement can produce may raise; such facts decide nothing.
_IMPOSSIBLE_FACTS = (ArithmeticError, LookupError, ValueError)

Rules = Mapping[int, Rule[Any, Any]]
#: Per subject (cell, route) and gate: the measurement and its series.
Measured = Mapping[tuple[str, str], Mapping[str, tuple[Measurement, Mapping[str, bytes]]]]


def rules_of(gate: Gate[Any, Any]) -> Rules:
    """A gate's released rules by number."""
    return {rule.number: rule for rule in gate.rules}


def decide(
    node: Node, subject: Subject, measurement: Measurement, series: Mapping[str, bytes], rules: Rules
) -> Verdict:
    """The verdict of one gate on one subject: pure, closed on anything missing, unknown or impossible."""
    if measurement.gate != node.gate or measurement.rule != node.rule:
        got = f"{measurement.gate} rule {measurement.rule}"
        return _unknown("planned", got, f"{node.gate} rule {node.rule}")
    if measurement.state != "measured":
        return Verdict(checks=(_state_check(measurement),))
    rule = rules.get(node.rule)
    if rule is None:
        return _unknown("rule", f"rule {node.rule}", f"a rule of {node.gate} that this version knows")
    return _judge(rule, node, subject, measurement, series)


def _state_check(measurement: Measurement) -> Check:
    """The fixed table for measurements that have no facts (every version of judgement)."""
    want = "a measurement"
    loss = measurement.loss
    if measurement.state == "lost" and loss is not None:
        ended = f"signal {loss.signal}" if loss.signal is not None else f"exit {loss.exit_code}"
        got = f"worker {loss.how} ({ended}) in step {loss.step}, arm {loss.arm}"
        return Check(name="measured", got=got, want=want, holds=False if loss.arm == "candidate" else None)
    got = f"{measurement.state}: {measurement.reason}"
    return Check(name="measured", got=got, want=want, holds=None)


def _judge(
    rule: Rule[Any, Any], node: Node, subject: Subject, measurement: Measurement, series: Mapping[str, bytes]
) -> Verdict:
    try:
        model: type[Settings] = rule.settings
        settings = settings_of(model, node)
        facts: Facts = rule.facts.parse(canonical_bytes(measurement.facts))
        values = _read_series(facts, series)
    except (DocumentError, ValueError) as error:
        return _unknown("facts", str(error), f"facts of {node.gate} rule {rule.number}")
    try:
        found = tuple(rule.judge(subject, facts, values, settings))
        required = rule.checks(subject)
    except _IMPOSSIBLE_FACTS as error:
        return _unknown("facts", f"{type(error).__name__}: {error}", "facts that a measurement can produce")
    return _complete(found, required)


def settings_of(model: type[Settings], node: Node) -> Settings:
    """A node's settings, read once for all its subjects. Raises DocumentError, each time."""
    return _settings(model, canonical_bytes(node.settings))


@lru_cache(maxsize=64)
def _settings(model: type[Settings], data: bytes) -> Settings:
    return model.parse(data)


def _complete(found: tuple[Check | Note, ...], required: frozenset[str]) -> Verdict:
    """The judge's checks, an unknown for each required name that is missing, and no name twice."""
    checks = [item for item in found if isinstance(item, Check)]
    names = [check.name for check in checks]
    for name in sorted(required - set(names)):
        checks.append(Check(name=name, got=None, want="a check of this name", holds=None))
    for name in sorted({name for name in names if names.count(name) > 1}):
        checks.append(Check(name=f"{name} once", got="twice", want="one check of this name", holds=None))
    return Verdict(checks=tuple(checks), notes=tuple(item for item in found if isinstance(item, Note)))


def _unknown(name: str, got: str, want: str) -> Verdict:
    return Verdict(checks=(Check(name=name, got=got, want=want, holds=None),))


def series_refs(facts: Facts) -> tuple[SeriesRef, ...]:
    """The series that facts name, in field order."""
    values = (getattr(facts, name) for name in type(facts).model_fields)
    return tuple(value for value in values if isinstance(value, SeriesRef))


def _read_series(facts: Facts, series: Mapping[str, bytes]) -> Series:
    """The int64 values of every series that the facts name. Raises ValueError unless names and bytes agree."""
    refs = series_refs(facts)
    if {ref.name for ref in refs} != set(series) or len(refs) != len(series):
        raise ValueError(f"series {sorted(series)} where the facts name {sorted(ref.name for ref in refs)}")
    values: dict[str, tuple[int, ...]] = {}
    for ref in refs:
        data = series[ref.name]
        if len(data) != 8 * ref.count or hashlib.sha256(data).hexdigest() != ref.sha256:
            raise ValueError(f"series {ref.name} is not the {ref.count} values that the facts name")
        values[ref.name] = struct.unpack(f"<{ref.count}q", data)
    return values


def unshown(bits: str, rules: Iterable[Rule[Any, Any] | None]) -> tuple[Shows, ...]:
    """What is not shown of a candidate, whose cohort says that of its `bits`, where these rules pass it."""
    shown = {rule.shows for rule in rules if rule is not None}
    return tuple(each for each in _WANTED[bits] if each not in shown)


class GateVerdict(Document):
    """One gate of one subject in verdict.json."""

    gate: str
    rule: int
    state: Literal["measured", "lost", "error", "not-run"]
    outcome: Outcome
    checks: tuple[Check, ...]
    notes: tuple[Note, ...]


class SubjectVerdict(Document):
    """One subject in verdict.json; `closed_by` is the first gate that did not pass, in the plan's order."""

    cell: Segment
    route: Segment
    role: Role
    outcome: Outcome
    closed_by: str | None
    gates: tuple[GateVerdict, ...]


class RunVerdict(Document):
    """verdict.json: derived, so deleting it and deriving it again gives the same bytes."""

    format: Literal[1] = 1
    run: Segment
    operation: Segment
    domain: Domain
    trust: Trust
    addressing: str
    partial: bool
    admissible: bool
    reasons: tuple[str, ...]
    subjects: tuple[SubjectVerdict, ...]

    def canonical(self) -> bytes:
        """The document's bytes, a subject at a time."""
        return canonical_by_items(self, "subjects")


def judge_gate(
    plan: Plan, subject: Subject, measurement: Measurement, series: Mapping[str, bytes], gates: Mapping[str, Rules]
) -> GateVerdict:
    """One planned gate of one subject, as verdict.json has it."""
    gate = measurement.gate
    verdict = decide(plan.node(gate), subject, measurement, series, gates.get(gate, {}))
    return GateVerdict(
        gate=gate,
        rule=measurement.rule,
        state=measurement.state,
        outcome=verdict.outcome,
        checks=verdict.checks,
        notes=verdict.notes,
    )


def absent(plan: Plan, gate: str) -> Measurement:
    """What a planned gate without a measurement counts as."""
    return Measurement(gate=gate, rule=plan.node(gate).rule, state="not-run", reason="no measurement on record")


def judge_subject(
    plan: Plan,
    planned: Planned,
    measured: Mapping[str, tuple[Measurement, Mapping[str, bytes]]],
    gates: Mapping[str, Rules],
) -> SubjectVerdict:
    """All planned gates of one subject; a gate without a file counts as not run."""
    found = (measured[gate] if gate in measured else (absent(plan, gate), {}) for gate in planned.gates)
    return conclude_subject(planned, tuple(judge_gate(plan, planned.subject, *each, gates) for each in found))


def conclude_subject(planned: Planned, verdicts: tuple[GateVerdict, ...]) -> SubjectVerdict:
    """A subject whose planned gates are judged, in the plan's order."""
    cell, route = planned.subject.key
    return SubjectVerdict(
        cell=cell,
        route=route,
        role=planned.subject.role,
        outcome=combine(verdict.outcome for verdict in verdicts),
        closed_by=next((verdict.gate for verdict in verdicts if verdict.outcome != "pass"), None),
        gates=verdicts,
    )


def judge_run(plan: Plan, ended: str, measured: Measured, gates: Mapping[str, Rules]) -> RunVerdict:
    """verdict.json of a run, from its plan and its measurements alone."""
    judged = (judge_subject(plan, planned, measured.get(planned.subject.key, {}), gates) for planned in plan.subjects)
    return conclude(plan, ended, tuple(judged), gates)


def conclude(plan: Plan, ended: str, subjects: tuple[SubjectVerdict, ...], gates: Mapping[str, Rules]) -> RunVerdict:
    """verdict.json of a run whose planned subjects are judged, in the plan's order."""
    reasons = tuple(_why_not_admissible(plan, ended, subjects, gates))
    return RunVerdict(
        run=plan.run,
        operation=plan.operation,
        domain=plan.domain,
        trust=plan.domain.trust,
        addressing=plan.board.addressing if plan.board else "unknown",
        partial=plan.until is not None,
        admissible=not reasons,
        reasons=reasons,
        subjects=subjects,
    )


def _why_not_admissible(
    plan: Plan, ended: str, subjects: tuple[SubjectVerdict, ...], gates: Mapping[str, Rules]
) -> list[str]:
    """Admissibility is a positive statement: every reason against it, none missing."""
    reasons, admitting = [], ADMITTING.get(plan.judgement, ())
    if not admitting:
        reasons.append(f"judgement {plan.judgement} is unknown to this version")
    elif plan.command not in admitting:
        admit = "admit" if len(admitting) > 1 else "admits"
        reasons.append(f"{plan.command} discovers; only {' and '.join(admitting)} {admit}")
    if plan.domain.runtime == "simulated":
        reasons.append("the simulated device proves nothing about a board")
    if plan.until is not None:
        reasons.append(f"partial: stopped after {plan.until}")
    if ended != "complete":
        reasons.append(f"the run was {ended}")
    if not any(subject.role == "candidate" and subject.outcome == "pass" for subject in subjects):
        reasons.append("no candidate passed")
    if plan.judgement >= _SHOWN_SINCE:
        reasons += _unshown_reasons(plan, subjects, gates)
    return reasons


def _unshown_reasons(plan: Plan, subjects: tuple[SubjectVerdict, ...], gates: Mapping[str, Rules]) -> Iterator[str]:
    """What no gate showed of candidates that passed: one of them is enough to admit nothing."""
    found: dict[Shows, list[str]] = {}
    for planned, subject in zip(plan.subjects, subjects, strict=True):
        if subject.role == "candidate" and subject.outcome == "pass":
            passed = (item for item in subject.gates if item.outcome == "pass")
            rules = (gates.get(item.gate, {}).get(item.rule) for item in passed)
            for each in unshown(planned.subject.bits, rules):
                found.setdefault(each, []).append(f"{subject.cell}/{subject.route}")
    for each, names in found.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"no gate showed the {each} of {names[0]}{more}"
