"""Finalists: what passed in sealed screens that verify, and is still what was screened (R12.1)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

from qualify import cohort
from qualify.anchors import Anchors, speed_up
from qualify.contract import Module
from qualify.differences import module_differences
from qualify.domain import Domain
from qualify.errors import EvidenceError, Exit, QualifyError, UsageError
from qualify.evidence.audit import RunAudit, verify_run
from qualify.evidence.history import History
from qualify.identity import identify
from qualify.judgement import RunVerdict, SubjectVerdict, rules_of
from qualify.pipeline import Gates
from qualify.plan import Plan
from qualify.workspace import evidence_root

MAX_SHOWN = 5


class Refused(QualifyError):
    """What was screened is not what would be promoted."""

    exit: ClassVar[Exit] = Exit.REJECTED


@dataclass(frozen=True)
class Screened:
    """A sealed run that verifies, whose candidates may be promoted."""

    folder: Path
    plan: Plan
    verdict: RunVerdict

    def module(self, identity: str) -> Module | None:
        """The module that a route was, from the run's own copy."""
        for path in sorted((self.folder / "objects").glob("*.module.json")):
            module = Module.parse(path.read_bytes())
            if identify("module", module) == identity:
                return module
        return None


@dataclass(frozen=True)
class Finalist:
    """A candidate that passed its screen. `figure` is the speed-up that the screen saw, None where it saw none."""

    cell: str
    route: str
    identity: str
    figure: Fraction | None
    screened: Screened


def screened(workspace: Path, names: Iterable[str], history: History, gates: Gates) -> tuple[Screened, ...]:
    """The runs of these names or folders. Raises EvidenceError unless each verifies, UsageError for what is no screen.

    `history` is that of the store, which verified.
    """
    anchors = Anchors(evidence_root(workspace))
    return tuple(_screened(workspace, name, history, anchors, gates) for name in names)


def _screened(workspace: Path, name: str, history: History, anchors: Anchors, gates: Gates) -> Screened:
    runs = evidence_root(workspace) / "runs"
    folder = runs / name if "/" not in name else Path(name).absolute()
    if folder.resolve().parent != runs.resolve():
        raise UsageError(
            f"expected a run of this workspace's evidence, got {folder}", fix=f"copy it to {runs}, with its plan"
        )
    audit = verify_run(folder, {gate: rules_of(each) for gate, each in gates.items()})
    _check_verified(folder, audit, history)
    withdrawn = anchors.withdrawn(audit.run)
    if withdrawn is not None:
        raise EvidenceError(f"{audit.run} was withdrawn: {withdrawn}", fix="screen again")
    if audit.plan is None or audit.verdict is None:
        raise EvidenceError(f"{audit.run} has no verdict", fix="screen again")
    _check_screen(audit.plan)
    return Screened(folder, audit.plan, audit.verdict)


def _check_verified(folder: Path, audit: RunAudit, history: History) -> None:
    if audit.outcome != "verified":
        lines = "".join(f"\n  {problem}" for problem in audit.problems[:MAX_SHOWN])
        raise EvidenceError(f"{folder} does not verify:{lines}", fix="screen again; see verify-evidence")
    entry = history.entries.get(audit.run)
    if entry is None or (entry.plan_sha256, entry.manifest_sha256) != (audit.plan_sha256, audit.manifest_sha256):
        raise EvidenceError(
            f"{folder} is not the run that was opened as {audit.run}", fix="see verify-evidence on the whole store"
        )


def _check_screen(plan: Plan) -> None:
    if plan.domain.runtime == "simulated":
        raise UsageError(
            f"{plan.run}: expected a domain with a board, got {plan.domain}",
            fix="screen in a real domain: the simulated device proves nothing about a board",
        )
    if plan.command not in ("screen", "promote", "prove"):
        raise UsageError(f"{plan.run}: expected a screen, got {plan.command}", fix="name a run of qualify screen")
    if plan.until is not None:
        raise UsageError(
            f"{plan.run}: expected a whole screen, got one that stopped after {plan.until}",
            fix="screen again without --until",
        )


def passed(runs: Iterable[Screened], cells: Collection[str], gates: Gates) -> Mapping[str, Mapping[str, Finalist]]:
    """Each cell's candidates that passed, by route; of several runs the last word counts. Empty `cells` selects all."""
    found: dict[str, dict[str, Finalist]] = {}
    for run in runs:
        identities = {planned.subject.key: planned.subject.candidate.identity for planned in run.plan.subjects}
        for subject in run.verdict.subjects:
            if subject.role != "candidate" or (cells and subject.cell not in cells):
                continue
            identity = identities[subject.cell, subject.route]
            found.setdefault(subject.cell, {}).pop(subject.route, None)
            if subject.outcome == "pass" and identity is not None:
                finalist = Finalist(subject.cell, subject.route, identity, _figure(subject, gates), run)
                found[subject.cell][subject.route] = finalist
    return found


def _figure(subject: SubjectVerdict, gates: Gates) -> Fraction | None:
    """What the last timed gate saw of the speed-up."""
    timed = [item.gate for item in subject.gates if item.gate in gates and gates[item.gate].timed]
    shown = speed_up(subject.model_dump(mode="json"), timed[-1]) if timed else None
    return None if shown is None else Fraction(shown)


def choose(of_cell: Mapping[str, Finalist], routes: Collection[str]) -> tuple[Finalist, ...]:
    """The finalists of one cell: the named routes, else the one that the screen saw fastest; none if nothing ranks."""
    if routes:
        return tuple(finalist for route, finalist in of_cell.items() if route in routes)
    ranked = [finalist for finalist in of_cell.values() if finalist.figure is not None or len(of_cell) == 1]
    if len(ranked) < len(of_cell) or not ranked:
        return ()
    return (max(ranked, key=lambda finalist: finalist.figure or Fraction(0)),)


def check_unmoved(finalists: Iterable[Finalist], item: cohort.Cohort, domain: Domain, toolkit_build: str) -> None:
    """Refuse what is not, byte for byte, what was screened. Raises Refused with every fragment that moved."""
    moved = [text for finalist in finalists for text in _moved(finalist, item, domain, toolkit_build)]
    if moved:
        lines = "".join(f"\n  {text}" for text in dict.fromkeys(moved))
        raise Refused(f"expected what was screened, got something else:{lines}", fix="screen again, then promote")


def _moved(finalist: Finalist, item: cohort.Cohort, domain: Domain, toolkit_build: str) -> Iterator[str]:
    name = f"{finalist.cell}/{finalist.route}"
    cell = next((each for each in item.cells if each.id == finalist.cell), None)
    route = item.routes.get(finalist.route)
    if cell is None or route is None:
        what = "cell" if cell is None else "route"
        yield f"{name}: {item.source.where} has no such {what}; a candidate becomes a route there before it is promoted"
        return
    live = cohort.compose(item, cell, route, domain, toolkit_build)
    if live.composed is None:
        yield f"{name}: {live.arm.error if live.arm else f'it admits only {live.falls_back}'}"
    elif live.composed.identity != finalist.identity:
        was = finalist.screened.module(finalist.identity)
        found = list(module_differences(was, live.composed.module, finalist.route)) if was else []
        identities = f"identity {finalist.identity[:16]} as screened, {live.composed.identity[:16]} now"
        yield f"{name}: {identities}" + "".join(f"; {difference}" for difference in found)
