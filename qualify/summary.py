"""`qualify report`: a store's runs as tables for people, with what each gate cost beside what was declared (R8.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from qualify import show
from qualify.errors import EvidenceError, NothingSelected, UsageError
from qualify.evidence import layout
from qualify.gate import Measurement
from qualify.judgement import GateVerdict, Rules, RunVerdict
from qualify.model import ratio
from qualify.plan import Plan


@dataclass(frozen=True)
class Cost:
    """One gate over all subjects that it measured: declared seconds of one, measured seconds of their mean."""

    gate: str
    subjects: int
    declared_s: Fraction
    measured_s: Fraction


def report(root: Path, names: Iterable[str], gates: Mapping[str, Rules]) -> Iterator[str]:
    """Lines of markdown, run after run, in the order of their names; each run is verified first, history apart.

    Raises EvidenceError for a run that does not verify, UsageError for a name that is no sealed run, NothingSelected
    for a store without one.
    """
    from qualify.evidence.audit import verify_run

    folders = [_folder(root, name) for name in names] or sorted((root / layout.RUNS).glob("*"))
    if not folders:
        raise NothingSelected(f"no run is sealed in {root}", fix="run qualify screen first")
    for folder in folders:
        audit = verify_run(folder, gates)
        if audit.plan is None or audit.verdict is None or audit.outcome != "verified":
            raise EvidenceError(f"{folder.name} does not verify", fix="see qualify verify-evidence")
        yield from _run(folder, audit.plan, audit.verdict)


def _folder(root: Path, name: str) -> Path:
    folder = root / layout.RUNS / Path(name).name
    if not folder.is_dir():
        raise UsageError(f"expected a sealed run of {root}, got {name}", fix="ls names them")
    return folder


def _run(folder: Path, plan: Plan, verdict: RunVerdict) -> Iterator[str]:
    board = f" on {plan.board.name}" if plan.board else ""
    yield f"## {verdict.operation} in {verdict.domain}: {plan.command}"
    yield ""
    yield f"Run {plan.run}{board}, toolkit {plan.toolkit_build}, trust {verdict.trust}."
    yield ""
    columns = [node.gate for node in plan.nodes]
    yield from _table(("cell", "route", "elements", *columns, "outcome"), _rows(plan, verdict, columns))
    yield ""
    costs = [
        (cost.gate, str(cost.subjects), _seconds(cost.declared_s), _seconds(cost.measured_s))
        for cost in costs_of(folder, plan)
    ]
    yield from _table(("gate", "subjects", "declared s", "measured s"), costs)
    yield ""


def _rows(plan: Plan, verdict: RunVerdict, columns: list[str]) -> Iterator[tuple[str, ...]]:
    elements = {planned.subject.key: str(planned.subject.most_elements) for planned in plan.subjects}
    for subject in verdict.subjects:
        by_gate: dict[str, GateVerdict] = {item.gate: item for item in subject.gates}
        marks = (show.mark(by_gate.get(gate), plan) for gate in columns)
        yield (subject.cell, subject.route, elements[subject.cell, subject.route], *marks, subject.outcome)


def costs_of(folder: Path, plan: Plan) -> Iterator[Cost]:
    """What each gate of a run cost, by the parent's clock; gates that measured nothing are left out."""
    for node in plan.nodes:
        spent_ns = [
            found.host_ns
            for planned in plan.subjects
            if node.gate in planned.gates
            and (found := _measurement(folder, planned.subject.key, node.gate)).state != "not-run"
        ]
        if spent_ns:
            mean_s = Fraction(sum(spent_ns), len(spent_ns) * 10**9)
            yield Cost(node.gate, len(spent_ns), ratio(node.cost_s), mean_s)


def _measurement(folder: Path, key: tuple[str, str], gate: str) -> Measurement:
    return Measurement.parse((folder / layout.measurement_path(key, gate)).read_bytes())


def _seconds(value: Fraction) -> str:
    """Three decimals, rounded to the nearest."""
    thousandths = round(value * 1000)
    return f"{thousandths // 1000}.{thousandths % 1000:03}"


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """A markdown table whose columns line up, so that it reads as plain text too."""
    cells = [header, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for number, row in enumerate(cells):
        yield "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |"
        if number == 0:
            yield "|" + "|".join("-" * (width + 2) for width in widths) + "|"
