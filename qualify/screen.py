"""`qualify screen`: plan, open, measure, decide, seal; one evidence run for an operation in a domain.

What it does once its first rig is on its way is imported then: the two take about as long.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from qualify import pipeline
from qualify.bench import Rig
from qualify.domain import Domain
from qualify.errors import Exit, NothingSelected, RigError, UsageError, worst
from qualify.opening import Opening
from qualify.workspace import check_operation, evidence_root, operations

if TYPE_CHECKING:
    from qualify import cohort
    from qualify.engine import Gates, Progress
    from qualify.evidence.store import Store
    from qualify.judgement import RunVerdict
    from qualify.plan import Plan


@dataclass(frozen=True)
class Request:
    """What a screen is asked for; None or empty selects everything."""

    workspace: Path
    operation: str | None = None
    domain: str | None = None
    cells: frozenset[str] = frozenset()
    routes: frozenset[str] = frozenset()
    pipeline: str = "default"
    until: str | None = None
    candidates: Path | None = None


@dataclass
class Screened:
    """What a screen left: sealed runs with their verdicts, domains that are not here, closed incumbents, errors."""

    runs: list[tuple[Path, Plan, RunVerdict]] = field(default_factory=list)
    absent: dict[str, RigError] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    rig_errors: list[tuple[str, str]] = field(default_factory=list)
    interrupted: bool = False

    def exit_code(self, *, fail_on_reject: bool) -> Exit:
        """The command's exit code (DESIGN section 14)."""
        codes: set[Exit] = set()
        outcomes = {subject.outcome for _, _, verdict in self.runs for subject in verdict.subjects}
        if self.interrupted:
            codes.add(Exit.INTERRUPTED)
        if self.rig_errors:
            codes.add(Exit.RIG)
        if "inconclusive" in outcomes:
            codes.add(Exit.INCONCLUSIVE)
        if fail_on_reject and "fail" in outcomes:
            codes.add(Exit.REJECTED)
        return worst(codes)


class Screening:
    """One command's work: the workspace read once, then domain by domain, operation by operation.

    The rig of the first domain is opened meanwhile, and closed with this. Raises UsageError or InputError for what the
    workspace or the command line gets wrong.
    """

    def __init__(self, request: Request) -> None:
        self.request, self.screened = request, Screened()
        self.pipelines = pipeline.load(request.workspace)
        self.domains = self.pipelines.selected(request.domain)
        names = _selected_operations(request)
        self._opening = Opening(self.domains[0].toolkit, self.domains[0].arch)
        try:
            from qualify import cohort

            self.cohorts = [cohort.load(request.workspace, name, candidates=request.candidates) for name in names]
            _check_names(request, self.cohorts)
        except BaseException:
            self._opening.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opening.close()

    def run(self, gates: Gates, progress: Progress) -> Screened:
        """Screen every selected operation in every selected domain that is here.

        Raises UsageError or InputError as above, RigError if no selected domain is here, NothingSelected if the filters
        leave no subject.
        """
        self.gates, self.progress = gates, progress
        for wanted in self.domains:
            self._domain(wanted)
            if self.screened.interrupted:
                return self.screened
        if not self.screened.runs and self.screened.absent:
            raise pipeline.nowhere(self.screened.absent)
        if not self.screened.runs:
            raise NothingSelected("the filters leave no subject", fix="name other cells, routes or domains")
        return self.screened

    def _domain(self, wanted: pipeline.PlannedDomain) -> None:
        """Every cohort in one domain, or the reason why the domain is not here."""
        try:
            first = wanted is self.domains[0]
            rig = self._opening.rig() if first else Rig.open(wanted.toolkit, wanted.arch)
        except RigError as error:
            self.screened.absent[str(wanted)] = error
            return
        with rig:
            domain = Domain(toolkit=wanted.toolkit, arch=rig.domain_arch)
            lacking = self._unmeasured(domain, rig)
            if lacking is not None:
                self.screened.absent[str(wanted)] = lacking
                return
            for item in self.cohorts:
                self._operation(item, domain, rig)
                if self.screened.interrupted:
                    return

    def _unmeasured(self, domain: Domain, rig: Rig) -> RigError | None:
        """Why a rig cannot run what was asked for: gates on a device, and no board. Host gates need none."""
        request = self.request
        nodes = self.pipelines.order(request.pipeline, "screen", domain, self.gates, request.until)
        if rig.board is not None or all(node.runs_on == "host" for node in nodes):
            return None
        host = [node.gate for node in itertools.takewhile(lambda node: node.runs_on == "host", nodes)]
        why = rig.lacking
        return RigError(why.args[0], fix=f"--until {host[-1]} runs the host gates here" if host else why.fix)

    def _operation(self, item: cohort.Cohort, domain: Domain, rig: Rig) -> None:
        """Plan one operation and carry it to its sealed run; a cohort without a selected candidate leaves none."""
        from qualify import cohort
        from qualify.evidence.store import Store
        from qualify.running import Task, begin, finish

        request, store = self.request, Store(evidence_root(self.request.workspace))
        selection = cohort.subjects(
            item,
            domain,
            rig.limits,
            rig.toolkit_build,
            cells=request.cells or None,
            routes=request.routes or None,
            incumbents=self._incumbents(item, domain, rig, store),
        )
        if not any(subject.role == "candidate" for subject in selection.subjects):
            return
        task = Task(item, selection, domain, rig, self.pipelines, "screen", request.pipeline, request.until)
        opened = begin(task, store, self.gates)
        finished = finish(opened, self.gates, self.progress)
        self.screened.runs.append((finished.folder, finished.plan, finished.verdict))
        self.screened.rig_errors += finished.rig_errors
        self.screened.interrupted = finished.interrupted

    def _incumbents(self, item: cohort.Cohort, domain: Domain, rig: Rig, store: Store) -> dict[str, str]:
        """The admitted route of each cell whose admission is open here; plain is the incumbent of every other."""
        from qualify.anchors import Anchors
        from qualify.live import standings
        from qualify.standing import closed

        found = standings(item, domain, rig.toolkit_build, Anchors(store.root))
        for standing in found:
            if standing.admission is not None and not standing.is_open:
                self.screened.notes.append(closed(standing))
        return {standing.cell: standing.route for standing in found if standing.is_open}


def _selected_operations(request: Request) -> tuple[str, ...]:
    known = operations(request.workspace)
    if request.operation is None:
        if not known:
            raise NothingSelected("the workspace has no cohort", fix="add cohorts/<operation>/cohort.yaml")
        return known
    check_operation(request.workspace, request.operation)
    return (request.operation,)


def _check_names(request: Request, cohorts: list[cohort.Cohort]) -> None:
    """Cells and routes on the command line must exist somewhere in what is selected."""
    for kind, wanted, known in (
        ("cell", request.cells, {cell for item in cohorts for cell in item.cell_ids}),
        ("route", request.routes, {route for item in cohorts for route in item.route_names}),
    ):
        unknown = sorted(wanted - known)
        if unknown:
            raise UsageError(
                f"expected a {kind} of {', '.join(item.operation for item in cohorts)}, got {', '.join(unknown)}",
                fix=f"the {kind}s are {', '.join(sorted(known))}",
            )
