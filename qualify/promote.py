"""`qualify promote`: finalists of screens through the whole graph on a fresh build, and admissions of what passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from qualify import admission as admissions
from qualify import cohort, pipeline
from qualify.admission import Admission
from qualify.admitting import admission, counts, winners
from qualify.anchors import Anchors
from qualify.bench import Rig
from qualify.domain import Domain
from qualify.engine import Gates, Progress
from qualify.errors import Exit, NothingSelected, UsageError, worst
from qualify.evidence.promotions import attempt, contest
from qualify.evidence.store import Store
from qualify.finalists import Finalist, Screened, check_unmoved, choose, passed, screened
from qualify.judgement import RunVerdict
from qualify.live import standings
from qualify.plan import Plan
from qualify.running import Finished, Opened, Task, begin, finish
from qualify.standing import Standing, closed
from qualify.subject import Subject
from qualify.workspace import PIPELINES, evidence_root


@dataclass(frozen=True)
class Request:
    """What is promoted: runs by name or folder; empty filters select everything that passed.

    Without a `pipeline` it is the one that the run was screened with.
    """

    workspace: Path
    runs: tuple[str, ...]
    cells: frozenset[str] = frozenset()
    routes: frozenset[str] = frozenset()
    pipeline: str | None = None


@dataclass
class Promoted:
    """What a promotion left: sealed runs, admissions with their files, what was not admitted and why."""

    runs: list[tuple[Path, Plan, RunVerdict]] = field(default_factory=list)
    admitted: list[tuple[Admission, Path]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rig_errors: list[tuple[str, str]] = field(default_factory=list)
    interrupted: bool = False
    undecided: bool = False

    def lines(self) -> Iterator[str]:
        """What was admitted, then what was not and why."""
        for each, path in self.admitted:
            subject = each.subject
            where = f"{subject.operation} {subject.cell.id} in {subject.domain}"
            faster = "bits only" if each.bound is None else f"at least {each.bound} x {subject.incumbent.route}"
            board = f" on {each.board.name}" if each.board else ""
            yield f"admitted: {where}: {each.route}, {each.kind}{board}, {faster}, attempt {subject.attempt}"
            yield f"  in {path}"
        yield from self.notes

    def exit_code(self) -> Exit:
        """DONE if every finalist was admitted; REJECTED if one failed, INCONCLUSIVE if one stays undecided."""
        subjects = [subject for _, _, verdict in self.runs for subject in verdict.subjects]
        outcomes = {subject.outcome for subject in subjects if subject.role == "candidate"}
        found = {
            Exit.INTERRUPTED: self.interrupted,
            Exit.RIG: bool(self.rig_errors),
            Exit.INCONCLUSIVE: self.undecided or "inconclusive" in outcomes,
            Exit.REJECTED: "fail" in outcomes,
        }
        return worst({code for code, holds in found.items() if holds})


def promote(request: Request, gates: Gates, progress: Progress) -> Promoted:
    """Promote what passed in the named runs, one new run for an operation in a domain.

    Raises EvidenceError for evidence that does not verify, Refused for what is not what was screened, UsageError for
    what cannot be promoted at all, RigError if the domain is not here, NothingSelected if nothing is left.
    """
    store = Store(evidence_root(request.workspace))
    runs = screened(request.workspace, request.runs, store.history(), gates)
    groups: dict[tuple[str, Domain], list[Screened]] = {}
    for run in runs:
        groups.setdefault((run.plan.operation, run.plan.domain), []).append(run)
    promoted = Promoted()
    for (operation, domain), group in groups.items():
        promotion = _Promotion(request, store, gates, progress, promoted, operation, domain)
        promotion.carry_out(group)
        if promoted.interrupted:
            break
    if not promoted.runs:
        raise NothingSelected("; ".join(promoted.notes) or "no candidate passed", fix="screen other candidates")
    return promoted


@dataclass
class _Promotion:
    """One operation in one domain."""

    request: Request
    store: Store
    gates: Gates
    progress: Progress
    promoted: Promoted
    operation: str
    domain: Domain

    def carry_out(self, runs: list[Screened]) -> None:
        """Choose, check, measure, admit."""
        workspace, request = self.request.workspace, self.request
        pipelines = pipeline.load(workspace)
        item = cohort.load(workspace, self.operation)
        _check_names(request, item)
        finalists = self._finalists(runs)
        if not finalists:
            return
        name = request.pipeline or _pipeline(runs)
        self._check_timing(pipelines, name, item, finalists)
        with Rig.open(self.domain.toolkit, self.domain.arch) as rig:
            if rig.board is None:
                raise rig.lacking
            check_unmoved(finalists, item, self.domain, rig.toolkit_build)
            self._measure(finalists, Task(item, _nothing(item), self.domain, rig, pipelines, "promote", name))

    def _finalists(self, runs: list[Screened]) -> list[Finalist]:
        found: list[Finalist] = []
        for cell, of_cell in passed(runs, self.request.cells, self.gates).items():
            chosen = choose(of_cell, self.request.routes)
            found += chosen
            if not chosen and of_cell and not self.request.routes:
                several = ", ".join(of_cell)
                self._note(f"{cell}: {several} passed and nothing ranks them; name one with --route")
                self.promoted.undecided = True
            elif not chosen:
                self._note(f"{cell}: no candidate passed")
        return found

    def _check_timing(
        self, pipelines: pipeline.Pipelines, name: str, item: cohort.Cohort, finalists: list[Finalist]
    ) -> None:
        """A time is admitted by a gate that is enough for one, or not at all."""
        nodes = pipelines.order(name, "promote", self.domain, self.gates)
        if any(node.conclusive for node in nodes):
            return
        timed = {cell.id for cell in item.cells if cell.timed} & {finalist.cell for finalist in finalists}
        if timed:
            ran, cells = ", ".join(node.gate for node in nodes), ", ".join(sorted(timed))
            raise UsageError(
                f"the promote stage has no timing gate: {name} of {PIPELINES} runs {ran}; none of them shows what "
                f"is faster in {cells}",
                fix="add a timing gate to the promote stage",
            )

    def _measure(self, finalists: list[Finalist], task: Task) -> None:
        anchors = Anchors(self.store.root)
        with admissions.alone(self.request.workspace, self.operation):
            before = {
                standing.cell: standing
                for standing in standings(task.item, self.domain, task.rig.toolkit_build, anchors)
            }
            task = replace(task, selection=self._selection(finalists, before, task))
            if not task.selection.subjects:
                return
            opened = begin(task, self.store, self.gates)
        finished = finish(opened, self.gates, self.progress)
        self.promoted.runs.append((finished.folder, finished.plan, finished.verdict))
        self.promoted.rig_errors += finished.rig_errors
        self.promoted.interrupted = finished.interrupted
        self._admit(opened, finished, before)

    def _selection(self, finalists: list[Finalist], before: Mapping[str, Standing], task: Task) -> cohort.Selection:
        """Plain and the finalists of each cell against the route that serves it today, attempts counted."""
        incumbents = {cell: standing.route for cell, standing in before.items() if standing.is_open}
        chosen = self._rivals(finalists, before)
        parts = [
            cohort.subjects(
                task.item,
                self.domain,
                task.rig.limits,
                task.rig.toolkit_build,
                cells={cell},
                routes=routes,
                incumbents=incumbents,
            )
            for cell, routes in chosen.items()
        ]
        subjects = [subject for part in parts for subject in part.subjects]
        composed = {identity: made for part in parts for identity, made in part.composed.items()}
        return replace(_nothing(task.item), subjects=tuple(self._counted(subjects)), composed=composed)

    def _rivals(self, finalists: list[Finalist], before: Mapping[str, Standing]) -> dict[str, set[str]]:
        """The routes of each cell that do not serve it already; a note on every other, and on closed admissions."""
        chosen: dict[str, set[str]] = {}
        for finalist in finalists:
            standing = before[finalist.cell]
            if standing.is_open and standing.live_identity == finalist.identity:
                self._note(f"{finalist.cell}: {finalist.route} serves it already")
                continue
            if standing.admission is not None and not standing.is_open and finalist.cell not in chosen:
                self._note(closed(standing))
            chosen.setdefault(finalist.cell, set()).add(finalist.route)
        return chosen

    def _counted(self, subjects: list[Subject]) -> Iterator[Subject]:
        """The subjects with the number of this attempt and of the finalists that share it (R10.7)."""
        plans = [entry.plan for entry in self.store.listing()]
        plain = {subject.cell.id: subject.candidate.identity for subject in subjects if subject.role == "plain"}
        for subject in subjects:
            if subject.role == "plain":
                yield subject
                continue
            cell = subject.cell.id
            number = attempt(contest(subject, plain[cell]), plans)
            together = sum(other.cell.id == cell and other.role == "candidate" for other in subjects)
            yield subject.model_copy(update={"attempt": number, "finalists": together})

    def _admit(self, opened: Opened, finished: Finished, before: Mapping[str, Standing]) -> None:
        """Append what won, unless another promotion was admitted to the cell meanwhile."""
        workspace, root = self.request.workspace, self.store.root
        won = {subject.cell.id: (subject, verdict) for subject, verdict in winners(finished)}
        won = {cell: won[cell] for cell in self._in_time(won, before)}
        if not won:
            return
        entries = self.store.listing()
        made: dict[str, Admission] = {}
        for cell, (subject, verdict) in won.items():
            seen = counts(entries, self.operation, self.domain, cell, root)
            made[cell] = admission(opened, finished, subject, verdict, seen)
        with admissions.alone(workspace, self.operation):
            made = {cell: made[cell] for cell in self._in_time(made, before)}
            if made:
                path = admissions.append(workspace, self.operation, self.domain, made)
                self.promoted.admitted += [(each, path) for each in made.values()]

    def _in_time(self, cells: Iterable[str], before: Mapping[str, Standing]) -> list[str]:
        """The cells whose admission is the one that was there when the promotion was opened."""
        newest = admissions.read(self.request.workspace, self.operation, self.domain)
        late = [cell for cell in cells if newest.get(cell, (None,))[-1] != before[cell].admission]
        for cell in late:
            self.promoted.undecided = True
            self._note(f"{cell}: another route was admitted meanwhile; promote again, against that one")
        return [cell for cell in cells if cell not in late]

    def _note(self, text: str) -> None:
        self.promoted.notes.append(text)


def _nothing(item: cohort.Cohort) -> cohort.Selection:
    return cohort.Selection(subjects=(), falls_back=(), left_out=(), composed={}, reference=item.reference)


def _pipeline(runs: Iterable[Screened]) -> str:
    """The one pipeline that all of some runs were screened with."""
    names = sorted({run.plan.pipeline for run in runs})
    if len(names) > 1:
        raise UsageError(f"the runs were screened with {', '.join(names)}", fix="name one with --pipeline")
    return names[0]


def _check_names(request: Request, item: cohort.Cohort) -> None:
    for kind, wanted, known in (
        ("cell", request.cells, set(item.cell_ids)),
        ("route", request.routes, set(item.route_names)),
    ):
        unknown = sorted(wanted - known)
        if unknown:
            raise UsageError(
                f"expected a {kind} of {item.operation}, got {', '.join(unknown)}",
                fix=f"the {kind}s are {', '.join(sorted(known))}",
            )
