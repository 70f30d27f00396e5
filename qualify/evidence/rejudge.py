"""Judging a run again from its bytes, as the auditor does: verdict.json must be what it gives (R5.1).

Everything here is pure: documents from bytes, problems out. What the bytes allow is decided by
`qualify.judgement`; here is only what judgement takes for granted: that every measurement is the planned one, stands
on the files that its gate needs, and was due.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from qualify.errors import DocumentError, ShapeError
from qualify.evidence import layout
from qualify.evidence.problems import Problem, ProblemError
from qualify.gate import Measurement
from qualify.judgement import ADMITTING, Rules, RunVerdict, SubjectVerdict, conclude, judge_subject
from qualify.model import Document
from qualify.plan import Plan, Planned, RunRecord

D = TypeVar("D", bound=Document)
Files = Mapping[str, bytes]
#: A subject's measurements with their series, by gate.
Found = dict[str, tuple[Measurement, dict[str, bytes]]]


def document(model: type[D], data: bytes, path: str) -> D:
    """The document in a file. Raises ProblemError: J06, M11, J12, or V07 for a format of another version."""
    try:
        return model.parse(data)
    except ShapeError as error:
        raise ProblemError("J06", path, str(error)) from error
    except DocumentError as error:
        code = "V07" if _is_newer(model, data) else "J12" if error.__cause__ else "M11"
        raise ProblemError(code, path, str(error)) from error


def _is_newer(model: type[Document], data: bytes) -> bool:
    """Whether a document that does not parse says a format number that this version does not know."""
    if "format" not in model.model_fields:
        return False
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return False
    written = value.get("format") if isinstance(value, dict) else None
    return type(written) is int and written != model.model_fields["format"].default


@dataclass(frozen=True)
class Judged:
    """A run's verdict with every problem on the way to it; `verdict` is None where this version cannot judge.

    `series` holds the paths of all series that belong to a measurement.
    """

    verdict: RunVerdict | None
    series: frozenset[str]
    problems: tuple[Problem, ...]


def rejudge(plan: Plan, record: RunRecord, files: Files, gates: Mapping[str, Rules]) -> Judged:
    """Read every measurement of a plan and judge it again, one subject's in memory at a time."""
    unread, wrong = [*_unknown_judgement(plan)], [*_beyond_their_rules(plan, gates)]
    series: set[str] = set()
    judged: list[SubjectVerdict] = []
    for planned in plan.subjects:
        key = planned.subject.key
        found = _measurements(planned, files, unread)
        series |= {layout.series_path(key, gate, name) for gate, (_, values) in found.items() for name in values}
        unread += _unknown_rules(plan, key, found, gates)
        if not unread:
            judged.append(judge_subject(plan, planned, found, gates))
            wrong += _wrong_uses(plan, planned, found, files)
    if unread:
        return Judged(None, frozenset(series), tuple(unread))
    verdict = conclude(plan, record.ended, tuple(judged), gates)
    return Judged(verdict, frozenset(series), (*wrong, *_wrong_order(plan, record, verdict)))


def _measurements(planned: Planned, files: Files, problems: list[Problem]) -> Found:
    """What was recorded for one subject; files that are missing are the caller's finding."""
    found: Found = {}
    key = planned.subject.key
    for gate in planned.gates:
        path = layout.measurement_path(key, gate)
        if path not in files:
            continue
        try:
            measurement = document(Measurement, files[path], path)
            if measurement.gate != gate:
                raise ProblemError("V09", path, f"expected a measurement of {gate}, got one of {measurement.gate}")
            found[gate] = measurement, _series(key, measurement, files)
        except ProblemError as error:
            problems.append(error.problem)
    return found


def _series(key: tuple[str, str], measurement: Measurement, files: Files) -> dict[str, bytes]:
    """The series beside a measurement. Raises ProblemError (V05) unless they are the ones that its facts name."""
    series: dict[str, bytes] = {}
    try:
        refs = layout.named_series(measurement)
    except ValueError as error:
        raise ProblemError("V05", layout.measurement_path(key, measurement.gate), "a series without shape") from error
    for ref in refs:
        path = layout.series_path(key, measurement.gate, ref.name)
        data = files.get(path)
        if data is None or len(data) != 8 * ref.count or hashlib.sha256(data).hexdigest() != ref.sha256:
            raise ProblemError("V05", path, f"expected the {ref.count} values that the facts name")
        series[ref.name] = data
    return series


def _unknown_judgement(plan: Plan) -> Iterator[Problem]:
    if plan.judgement not in ADMITTING:
        known = ", ".join(map(str, ADMITTING))
        yield Problem(layout.PLAN, "V07", f"expected judgement {known}, got {plan.judgement}")


def _beyond_their_rules(plan: Plan, gates: Mapping[str, Rules]) -> Iterator[Problem]:
    """What a plan says that a gate's pass is enough for, and its rule does not."""
    for node in plan.nodes:
        rule = gates.get(node.gate, {}).get(node.rule)
        if node.conclusive and rule is not None and rule.shows != "times":
            yield Problem(layout.PLAN, "V09", f"it says that {node.gate} admits a time, and rule {node.rule} does not")


def _unknown_rules(plan: Plan, key: tuple[str, str], found: Found, gates: Mapping[str, Rules]) -> Iterator[Problem]:
    for gate, (measurement, _) in found.items():
        rule = plan.node(gate).rule
        if measurement.state == "measured" and rule not in gates.get(gate, {}):
            path = layout.measurement_path(key, gate)
            yield Problem(path, "V07", f"rule {rule} of {gate} is unknown to this version")


def _wrong_uses(plan: Plan, planned: Planned, found: Found, files: Files) -> Iterator[Problem]:
    """A measurement stands on exactly the planned gates that its own gate needs, by the digests of their files."""
    key = planned.subject.key
    for gate, (measurement, _) in found.items():
        needs = set(plan.node(gate).needs) & set(planned.gates) if measurement.state != "not-run" else set()
        path = layout.measurement_path(key, gate)
        if set(measurement.uses) != needs:
            yield Problem(path, "V18", f"expected uses of {sorted(needs)}, got {sorted(measurement.uses)}")
            continue
        for need, digest in measurement.uses.items():
            if hashlib.sha256(files.get(layout.measurement_path(key, need), b"")).hexdigest() != digest:
                yield Problem(path, "V18", f"{need}.json is not the file that it was measured on")


def _wrong_order(plan: Plan, record: RunRecord, verdict: RunVerdict) -> Iterator[Problem]:
    """Only a pass opens the next gate, and only something that did not pass may close one (R8.3)."""
    position = {node.gate: index for index, node in enumerate(plan.nodes)}
    unsound = {
        subject.cell: position[subject.closed_by]
        for subject in verdict.subjects
        if subject.role == "plain" and subject.closed_by is not None
    }
    for subject in verdict.subjects:
        last_due = len(position) if subject.role == "plain" else unsound.get(subject.cell, len(position))
        yield from _wrong_states(subject, position, last_due, interrupted=record.ended == "interrupted")


def _wrong_states(
    subject: SubjectVerdict, position: Mapping[str, int], incumbent_closed: int, *, interrupted: bool
) -> Iterator[Problem]:
    """`incumbent_closed` is the position of the gate that closed the cell's plain route, or past the last one."""
    closed_by: str | None = None
    for item in subject.gates:
        path = layout.measurement_path((subject.cell, subject.route), item.gate)
        unsound = position[item.gate] >= incumbent_closed
        if item.state != "not-run" and closed_by is not None:
            yield Problem(path, "V19", f"it was measured although {closed_by} did not pass")
        elif item.state != "not-run" and unsound:
            yield Problem(path, "V19", "it was measured although the plain route of its cell did not pass")
        elif item.state == "not-run" and not (closed_by or unsound or interrupted):
            yield Problem(path, "V20", "it was not run although everything before it passed")
        if item.outcome != "pass" and closed_by is None:
            closed_by = item.gate
