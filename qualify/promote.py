"""`qualify promote` and `prove`: finalists of screens on a fresh build, and admissions of what passes.

`promote` takes them through the whole graph, against what serves the cell. `prove` takes one of each cell through the
gates of bits alone, against plain, on a board that has no admission of the cell (R12.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from qualify import admission as admissions
from qualify import cohort, pipeline
from qualify.admission import Admission
from qualify.admitting import admission, counts, winners
from qualify.anchors import Anchors
from qualify.bench import Rig
from qualify.domain import Board, Domain
from qualify.engine import Gates, Progress
from qualify.errors import Exit, NothingSelected, UsageError, worst
from qualify.evidence.promotions import attempt, contest
from qualify.evidence.store import Store
from qualify.finalists import Finalist, Screened, check_unmoved, choose, passed, screened
from qualify.judgement import RunVerdict
from qualify.live import read, standings
from qualify.plan import Plan
from qualify.promised import check_stage, kept_out
from qualify.running import Finished, Opened, Task, begin, finish
from qualify.standing import Standing, closed
from qualify.subject import Subject
from qualify.workspace import evidence_root


@dataclass(frozen=True)
class Request:
    """What is promoted or proven: runs by name or folder; empty filters select everything that passed.

    Without a `pipeline` it is the one that the run was screened with.
    """

    workspace: Path
    runs: tuple[str, ...]
    cells: frozenset[str] = frozenset()
    routes: frozenset[str] = frozenset()
    pipeline: str | None = None


@dataclass
class Promoted:
    """What a promotion or a proof left: sealed runs, admissions with their files, what was not admitted and why."""

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
            faster = f"at least {each.bound} x {subject.incumbent.route}, attempt {subject.attempt}"
            said = "bits only" if each.kind == "proven" else faster
            yield f"admitted: {where}: {each.route}, {each.kind} on {each.board_name}, {said}"
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
    return _carry_out(_Promotion, request, gates, progress)


def prove(request: Request, gates: Gates, progress: Progress) -> Promoted:
    """Prove by their bits what passed in the named runs, whatever board they were made on. Raises as `promote` does."""
    return _carry_out(_Proof, request, gates, progress)


def _carry_out(kind: type[_Promotion], request: Request, gates: Gates, progress: Progress) -> Promoted:
    store = Store(evidence_root(request.workspace))
    runs = screened(request.workspace, request.runs, store.history(), gates)
    groups: dict[tuple[str, Domain], list[Screened]] = {}
    for run in runs:
        groups.setdefault((run.plan.operation, run.plan.domain), []).append(run)
    promoted = Promoted()
    for (operation, domain), group in groups.items():
        kind(request, store, gates, progress, promoted, operation, domain).carry_out(group)
        if promoted.interrupted:
            break
    if not promoted.runs:
        raise NothingSelected("; ".join(promoted.notes) or "no candidate passed", fix="screen other candidates")
    return promoted


@dataclass
class _Promotion:
    """One operation in one domain."""

    stage: ClassVar[pipeline.Stage] = "promote"

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
        cells = {finalist.cell for finalist in finalists}
        check_stage(pipelines, name, self.stage, self.domain, self.gates, item, cells)
        with Rig.open(self.domain.toolkit, self.domain.arch) as rig:
            if rig.board is None:
                raise rig.lacking
            check_unmoved(finalists, item, self.domain, rig.toolkit_build)
            self._measure(finalists, Task(item, _nothing(item), self.domain, rig, pipelines, self.stage, name))

    def _finalists(self, runs: list[Screened]) -> list[Finalist]:
        found: list[Finalist] = []
        for cell, of_cell in passed(runs, self.request.cells, self.gates).items():
            chosen = self._choose(of_cell)
            found += chosen
            if not chosen and of_cell.keys() & (self.request.routes or of_cell.keys()):
                several = ", ".join(of_cell)
                self._note(f"{cell}: {several} passed and nothing ranks them; name one with --route")
                self.promoted.undecided = True
            elif not chosen:
                self._note(f"{cell}: no candidate passed")
        return found

    def _choose(self, of_cell: Mapping[str, Finalist]) -> tuple[Finalist, ...]:
        return choose(of_cell, self.request.routes)

    def _measure(self, finalists: list[Finalist], task: Task) -> None:
        anchors = Anchors(self.store.root)
        with admissions.alone(self.request.workspace, self.operation):
            found, build, board = read(task.item, self.domain), task.rig.toolkit_build, task.rig.board
            name = None if board is None else board.name
            standing = standings(task.item, self.domain, build, anchors, found=found, board=name)
            before = {each.cell: each for each in standing}
            task = replace(task, selection=self._selection(finalists, before, task))
            task = replace(task, selection=self._admissible(task))
            if not task.selection.subjects:
                self.promoted.notes += [
                    f"{each.cell} is left out: it {each.reason}" for each in task.selection.left_out
                ]
                return
            opened = begin(task, self.store, self.gates)
        finished = finish(opened, self.gates, self.progress)
        self.promoted.runs.append((finished.folder, finished.plan, finished.verdict))
        self.promoted.rig_errors += finished.rig_errors
        self.promoted.interrupted = finished.interrupted
        self._admit(opened, finished, found)

    def _selection(self, finalists: list[Finalist], before: Mapping[str, Standing], task: Task) -> cohort.Selection:
        """Plain and the finalists of each cell against its incumbent, attempts counted."""
        chosen = self._rivals(finalists, before, task.rig.board)
        incumbents = self._incumbents(chosen, before)
        parts = [
            cohort.subjects(
                task.item,
                self.domain,
                task.rig.limits,
                task.rig.toolkit_build,
                cells={cell},
                routes={rival.route for rival in rivals},
                incumbents=incumbents,
            )
            for cell, rivals in chosen.items()
        ]
        subjects = [subject for part in parts for subject in part.subjects]
        composed = {identity: made for part in parts for identity, made in part.composed.items()}
        left_out = tuple(each for part in parts for each in part.left_out)
        counted = tuple(self._counted(subjects))
        return replace(_nothing(task.item), subjects=counted, composed=composed, left_out=left_out)

    def _admissible(self, task: Task) -> cohort.Selection:
        """The selection without the cells of which no pass would admit a route; a note on each."""
        without = kept_out(task, self.gates)
        for cell, why in without.items():
            self.promoted.undecided = True
            self._note(f"{cell} is left out: {why}")
        left = tuple(subject for subject in task.selection.subjects if subject.cell.id not in without)
        used = {arm.identity for subject in left for arm in (subject.candidate, subject.incumbent)}
        composed = {identity: made for identity, made in task.selection.composed.items() if identity in used}
        return replace(task.selection, subjects=left, composed=composed)

    def _rivals(
        self, finalists: list[Finalist], before: Mapping[str, Standing], board: Board | None
    ) -> dict[str, list[Finalist]]:
        """The finalists of each cell that may be admitted; a note on every other, and on closed admissions."""
        chosen: dict[str, list[Finalist]] = {}
        for finalist in finalists:
            standing = before[finalist.cell]
            if (why := self._why_not(finalist, standing, board)) is not None:
                self._note(f"{finalist.cell}: {why}")
                continue
            if standing.admission is not None and not standing.is_open and finalist.cell not in chosen:
                self._note(closed(standing))
            chosen.setdefault(finalist.cell, []).append(finalist)
        return chosen

    def _why_not(self, finalist: Finalist, standing: Standing, board: Board | None) -> str | None:
        """Why a finalist has nothing to gain: it serves the cell, with a time of this board where the cell is timed."""
        if standing.admission is None or not _serves(finalist, standing):
            return None
        timed = standing.admission.subject.cell.timed
        if timed and not (standing.admission.kind == "measured" and _is_of(standing.admission, board)):
            return None
        return f"{finalist.route} serves it already"

    def _incumbents(self, chosen: Mapping[str, list[Finalist]], before: Mapping[str, Standing]) -> dict[str, str]:
        """The route that serves each cell today, unless it is to get a time of its own here: that is against plain."""
        return {
            cell: before[cell].route
            for cell, rivals in chosen.items()
            if before[cell].is_open and not any(_serves(rival, before[cell]) for rival in rivals)
        }

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

    def _admit(self, opened: Opened, finished: Finished, before: admissions.Admissions) -> None:
        """Append what won, unless another route was admitted to the cell meanwhile."""
        workspace, root = self.request.workspace, self.store.root
        self._say_why_nothing(finished.verdict)
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

    def _say_why_nothing(self, verdict: RunVerdict) -> None:
        """A note where candidates passed and the run may admit none of them."""
        passed = any(subject.role == "candidate" and subject.outcome == "pass" for subject in verdict.subjects)
        if passed and not verdict.admissible:
            self.promoted.undecided = True
            self._note(f"nothing is admitted: {'; '.join(verdict.reasons)}")

    def _in_time(self, cells: Iterable[str], before: admissions.Admissions) -> list[str]:
        """The cells whose admissions are those that were there when the run was opened."""
        now = admissions.read(self.request.workspace, self.operation, self.domain)
        late = [cell for cell in cells if now.get(cell) != before.get(cell)]
        for cell in late:
            self.promoted.undecided = True
            self._note(f"{cell}: another route was admitted meanwhile; {self.stage} again")
        return [cell for cell in cells if cell not in late]

    def _note(self, text: str) -> None:
        self.promoted.notes.append(text)


class _Proof(_Promotion):
    """Bits alone, against plain: one route of each cell that this board has no admission of."""

    stage: ClassVar[pipeline.Stage] = "prove"

    def _choose(self, of_cell: Mapping[str, Finalist]) -> tuple[Finalist, ...]:
        """One finalist or none: bits rank nothing."""
        chosen = super()._choose(of_cell)
        return chosen if len(chosen) == 1 else ()

    def _why_not(self, finalist: Finalist, standing: Standing, board: Board | None) -> str | None:
        """Why bits prove nothing new: the cell is served here, or by another route, from which they take nothing."""
        if standing.admission is None or not standing.is_open:
            return None
        kind, name = standing.admission.kind, standing.admission.board_name
        if _is_of(standing.admission, board):
            return f"{standing.route} serves it, {kind} on this board"
        if not _serves(finalist, standing):
            return f"{standing.route} serves it, {kind} on {name}; bits take no cell from it, promote {finalist.route}"
        return None

    def _incumbents(self, *_: object) -> dict[str, str]:
        return {}

    def _counted(self, subjects: list[Subject]) -> Iterator[Subject]:
        """The subjects as they are: where no statistic is drawn there is no attempt at one."""
        yield from subjects


def _serves(finalist: Finalist, standing: Standing) -> bool:
    """Whether a finalist is, byte for byte, what serves its cell by an admission."""
    return standing.is_open and standing.live_identity == finalist.identity


def _is_of(admission: Admission, board: Board | None) -> bool:
    """Whether an admission was made on such a board as this one."""
    return admission.board is not None and board is not None and board.keeps_times_of(admission.board)


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
