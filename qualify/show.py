"""What a person sees: progress while it works, a table of subjects and gates, one sentence on why each loser lost."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from qualify.engine import Gates
from qualify.errors import RigError
from qualify.judgement import GateVerdict, RunVerdict, SubjectVerdict
from qualify.plan import Plan, Planned
from qualify.verdict import Check, Verdict

MARKS = {"pass": "pass", "fail": "FAIL", "inconclusive": "open", "not-run": "-"}
FASTER = "faster"  # The check of every gate that compares times.
MAX_SHOWN_CHARS = 160
SILENCE_S = 5.0  # So long nobody wonders whether it still works.


class Reading(Protocol):
    """A reading as it is shown."""

    def canonical(self) -> bytes:
        """Its bytes."""
        ...

    def lines(self) -> Iterator[str]:
        """All of it, for a person."""
        ...


class Lines:
    """Progress as lines on standard error: one a gate, one a subject that closes, and a count every few seconds."""

    def __init__(self, *, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet, self._clock = quiet, clock
        self._decided = self._subjects = 0
        self._said_s = clock()

    def gate(self, gate: str, subjects: int) -> None:
        """A gate starts."""
        self._decided, self._subjects = 0, subjects
        self._say(f"{gate}: {subjects} {'subject' if subjects == 1 else 'subjects'}")

    def measuring(self, planned: Planned, gate: str) -> None:
        """A subject meets a gate."""

    def decided(self, planned: Planned, gate: str, verdict: Verdict) -> None:
        """A gate has decided; only what closes is worth a line, and how far it is after a silence."""
        self._decided += 1
        if verdict.outcome != "pass":
            cell, route = planned.subject.key
            self._say(f"  {cell}/{route}: {_brief(verdict.checks)}")
        elif self._clock() - self._said_s >= SILENCE_S and self._decided < self._subjects:
            self._say(f"  {gate}: {self._decided} of {self._subjects}")

    def _say(self, text: str) -> None:
        self._said_s = self._clock()
        if not self._quiet:
            print(printable(text), file=sys.stderr, flush=True)


class Readings:
    """Readings as they come, as lines or as JSON; what is measured on standard error."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def measuring(self, text: str) -> None:
        """A comparator meets a cell."""
        print(printable(text), file=sys.stderr, flush=True)

    def read(self, reading: Reading) -> None:
        """There is a reading."""
        lines = (reading.canonical().decode().rstrip(),) if self._as_json else reading.lines()
        for line in lines:
            print(printable(line), flush=True)


def printable(text: str) -> str:
    """Text with every control character escaped: evidence and logs may hold anything (N10)."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode() for char in text
    )


def table(verdict: RunVerdict, plan: Plan) -> None:
    """Print one run: a row a subject, a column a gate, then why each loser lost and what fell back."""
    from rich.console import Console
    from rich.table import Table

    gates = [node.gate for node in plan.nodes]
    view = Table(title=f"{verdict.operation} in {verdict.domain}", title_justify="left")
    for column in ("cell", "route", *gates, "outcome"):
        view.add_column(column, no_wrap=True)
    for subject in verdict.subjects:
        by_gate = {item.gate: item for item in subject.gates}
        cells = [mark(by_gate.get(gate), plan) for gate in gates]
        view.add_row(subject.cell, subject.route, *cells, subject.outcome)
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 140)
    console.print(view)


def mark(item: GateVerdict | None, plan: Plan) -> str:
    """What a table says of a gate. That a route is faster, by a gate that admits no time, is a promise only (R10.6)."""
    if item is None:
        return ""
    if item.state == "not-run":
        return MARKS["not-run"]
    faster = any(check.name == FASTER for check in item.checks)
    if item.outcome == "pass" and faster and not plan.node(item.gate).conclusive:
        return "promising"
    return MARKS[item.outcome]


def reasons(verdict: RunVerdict, plan: Plan, gates: Gates) -> Iterable[str]:
    """One sentence on why each loser lost, with what to do; then gates, cells and routes that were left out."""
    for subject in verdict.subjects:
        if subject.outcome != "pass":
            yield printable(_sentence(subject, gates))
    yield from dict.fromkeys(_without(plan, gates))
    for cell in plan.left_out:
        yield f"{cell.cell} is left out: it {cell.reason}"
    for fallen in plan.falls_back:
        yield f"{fallen.cell}/{fallen.route} falls back to plain: it admits only {fallen.admits}"


def _without(plan: Plan, gates: Gates) -> Iterator[str]:
    """Gates of this run that policy keeps out of a cell; that plain is not timed goes without saying."""
    run = {node.gate for node in plan.nodes if node.gate in gates and not gates[node.gate].timed}
    for planned in plan.subjects:
        for item in planned.omitted:
            if item.gate in run:
                yield f"{planned.subject.cell.id} goes without {item.gate}: {item.reason}"


def _sentence(subject: SubjectVerdict, gates: Gates) -> str:
    name = f"{subject.cell}/{subject.route}"
    closing = next((item for item in subject.gates if item.gate == subject.closed_by), None)
    if closing is None:
        return f"{name} has no gate to pass"
    check = _decisive(closing.checks)
    verb = "failed" if closing.outcome == "fail" else "could not be decided by"
    fix = _fix(gates, closing, check)
    return f"{name} {verb} {closing.gate}: {_says(check)}{f' ({fix})' if fix else ''}"


def _decisive(checks: tuple[Check, ...]) -> Check | None:
    """The first check that fails, else the first unknown one."""
    failing = next((check for check in checks if check.holds is False), None)
    return failing or next((check for check in checks if check.holds is None), None)


def _says(check: Check | None) -> str:
    if check is None:
        return "there was nothing to check"
    got = "unknown" if check.got is None else _short(check.got)
    return f"{check.name} is {got}, wanted {_short(check.want)}"


def _brief(checks: tuple[Check, ...]) -> str:
    return _says(_decisive(checks))


def _short(text: str) -> str:
    """The last line of a text, fixes aside, cut to what fits on a terminal line."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("fix: ")]
    line = lines[-1] if lines else "empty"
    return line if len(line) <= MAX_SHOWN_CHARS else line[: MAX_SHOWN_CHARS - 3] + "..."


def _fix(gates: Gates, closing: GateVerdict, check: Check | None) -> str:
    gate: Any = gates.get(closing.gate)
    if gate is None or check is None:
        return ""
    by_number: Mapping[int, Any] = {rule.number: rule for rule in gate.rules}
    rule = by_number.get(closing.rule)
    return str(rule.fixes.get(check.name, "")) if rule else ""


def findings(verdict: RunVerdict) -> Iterable[str]:
    """The notes of every gate, all that is said of the same subjects in one line; they decide nothing."""
    places: dict[tuple[str, str], list[SubjectVerdict]] = {}
    for subject in verdict.subjects:
        for item in subject.gates:
            for note in item.notes:
                places.setdefault((item.gate, f"{note.name} {note.got} ({note.says})"), []).append(subject)
    lines: dict[tuple[str, str], list[str]] = {}
    for (gate, said), found in places.items():
        lines.setdefault((gate, _where(found, verdict.subjects)), []).append(said)
    if lines:
        yield "findings, which decide nothing:"
    for (gate, where), said_there in lines.items():
        yield printable(f"  {gate} of {where}: {'; '.join(said_there)}")


def _where(found: list[SubjectVerdict], subjects: tuple[SubjectVerdict, ...]) -> str:
    """Some subjects in few words: all, a route in every cell, or each of them."""
    if len(found) == len(subjects):
        return "every subject"
    routes = {subject.route for subject in found}
    if len(found) > 1 and found == [subject for subject in subjects if subject.route in routes]:
        return f"{', '.join(sorted(routes))} in every cell"
    return ", ".join(f"{subject.cell}/{subject.route}" for subject in found)


def say(*lines: str) -> None:
    """Lines on standard error."""
    for line in lines:
        print(line, file=sys.stderr)


def absent(domains: Mapping[str, RigError]) -> Iterable[str]:
    """One line on each domain that is not here: why, and what to do."""
    for name, error in domains.items():
        yield printable(f"{name} is not here: {error.args[0]} ({error.fix})")


def rig_errors(found: Iterable[tuple[str, str]]) -> Iterable[str]:
    """The rig's failures as (where, text), each text once with how often it came; a traceback keeps its end."""
    places: dict[str, list[str]] = {}
    for where, text in found:
        places.setdefault(text, []).append(where)
    for text, found_at in places.items():
        more = f" and {len(found_at) - 1} more" if len(found_at) > 1 else ""
        yield printable(f"rig error: {found_at[0]}{more}: {text}")
