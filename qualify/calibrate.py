"""`qualify calibrate`: plain against itself and against its own rebuild, and what copies show of the board (R10.10).

One evidence run an operation, like any other. The line for pipelines.yaml is for a person to put there: it cites the
runs, and nothing ever looks for them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qualify import ceilings, cohort, pipeline, program, timed
from qualify.bench import Rig
from qualify.contract import Composed
from qualify.domain import Board, Calibrated, Domain
from qualify.engine import Gates, Progress
from qualify.errors import Exit, NothingSelected, RigError, UsageError, worst
from qualify.evidence import layout
from qualify.evidence.store import Store
from qualify.gate import Measurement
from qualify.identity import identify
from qualify.judgement import RunVerdict
from qualify.model import canonical_bytes
from qualify.paired import MARGIN_PPM
from qualify.plan import Plan
from qualify.running import Finished, Task, begin, finish
from qualify.subject import Subject
from qualify.timed import TimedFacts
from qualify.workspace import check_operation, evidence_root, operations

#: What the controls of a cell are called: plain as it is once more, and plain of another build.
AGAIN, REBUILT = "again", "rebuilt"
#: A define that no source reads: another identity, so another build of the same text.
REBUILD = {"QUALIFY_REBUILT": "1"}


@dataclass(frozen=True)
class Request:
    """What is calibrated; None or empty selects everything."""

    workspace: Path
    operation: str | None = None
    domain: str | None = None
    cells: frozenset[str] = frozenset()
    pipeline: str = pipeline.DEFAULT


@dataclass
class Figures:
    """What the controls of one board show: by how much identical arms differ, each unit mode apart, and ceilings."""

    apart_ppm: dict[str, int] = field(default_factory=dict)
    copies_per_s: list[int] = field(default_factory=list)
    launches_ns: list[int] = field(default_factory=list)
    quanta_ns: list[int] = field(default_factory=list)
    segments_ns: list[int] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)

    def calibrated(self, board: Board) -> Calibrated | None:
        """What pipelines.yaml may cite, None where no control passed.

        A margin is never under 1,000 ppm nor under two steps of the clock in the shortest segment.
        """
        if not self.apart_ppm or not self.runs:
            return None
        least = max(MARGIN_PPM, -(-2 * timed.PPM * max(self.quanta_ns, default=0) // min(self.segments_ns)))
        return Calibrated(
            calibration=tuple(self.runs),
            driver=board.driver,
            copy_bytes_per_s=max(self.copies_per_s, default=None),
            launch_ns=min(self.launches_ns, default=None),
            quantum_ns=max(self.quanta_ns, default=None),
            **{name: max(ppm, least) for name, ppm in self.apart_ppm.items()},
        )


@dataclass
class Calibration:
    """Sealed runs, figures by board, domains that are not here, and what went wrong."""

    runs: list[tuple[Path, Plan, RunVerdict]] = field(default_factory=list)
    boards: dict[str, tuple[Board, Figures]] = field(default_factory=dict)
    absent: dict[str, RigError] = field(default_factory=dict)
    rig_errors: list[tuple[str, str]] = field(default_factory=list)
    interrupted: bool = False

    def exit_code(self) -> Exit:
        """The command's exit code; a control that does not pass leaves the board undecided."""
        codes: set[Exit] = {Exit.INTERRUPTED} if self.interrupted else set()
        if self.rig_errors:
            codes.add(Exit.RIG)
        if any(subject.outcome != "pass" for _, _, verdict in self.runs for subject in verdict.subjects):
            codes.add(Exit.INCONCLUSIVE)
        return worst(codes)

    def lines(self) -> Iterator[str]:
        """The block for pipelines.yaml, one line a board that has figures."""
        found = {uuid: figures.calibrated(board) for uuid, (board, figures) in self.boards.items()}
        rows = {uuid: each for uuid, each in found.items() if each is not None}
        if rows:
            yield "boards:"
        for uuid, each in rows.items():
            values = {name: value for name, value in each.model_dump(mode="json").items() if value is not None}
            yield f"  {json.dumps(uuid)}: {{{', '.join(f'{name}: {json.dumps(v)}' for name, v in values.items())}}}"


def calibrate(request: Request, gates: Gates, progress: Progress) -> Calibration:
    """Time the controls of every selected operation in every selected domain that is here.

    Raises UsageError or InputError for what the workspace or the command line gets wrong, RigError if no selected
    domain is here, NothingSelected if no cell is timed.
    """
    work = _Calibrating(request, gates, progress)
    for wanted in work.pipelines.selected(request.domain):
        work.domain(wanted)
        if work.done.interrupted:
            return work.done
    done = work.done
    if not done.runs and done.absent:
        raise pipeline.nowhere(done.absent)
    if not done.runs:
        raise NothingSelected("no timed cell is selected", fix="name other cells or another operation")
    return done


class _Calibrating:
    """One command's work: the workspace read once, then domain by domain, operation by operation."""

    def __init__(self, request: Request, gates: Gates, progress: Progress) -> None:
        self.request, self.gates, self.progress = request, gates, progress
        self.pipelines, self.done = pipeline.load(request.workspace), Calibration()
        self.cohorts = [cohort.load(request.workspace, name) for name in _operations(request)]
        _check_cells(request, self.cohorts)

    def domain(self, wanted: pipeline.PlannedDomain) -> None:
        """Every operation in one domain, or one line on why the domain is not here."""
        try:
            rig = Rig.open(wanted.toolkit, wanted.arch)
        except RigError as error:
            self.done.absent[str(wanted)] = error
            return
        with rig:
            if rig.board is None:
                self.done.absent[str(wanted)] = rig.lacking
                return
            for item in self.cohorts:
                self._operation(item, Domain(toolkit=wanted.toolkit, arch=rig.domain_arch), rig, rig.board)
                if self.done.interrupted:
                    return

    def _operation(self, item: cohort.Cohort, domain: Domain, rig: Rig, board: Board) -> None:
        """Plan the controls of one operation and carry them to their sealed run."""
        request, plain = self.request, {item.row.plain}
        cells = request.cells or None
        selection = controls(cohort.subjects(item, domain, rig.limits, rig.toolkit_build, cells=cells, routes=plain))
        if all(subject.role == "plain" for subject in selection.subjects):
            return
        task = Task(item, selection, domain, rig, self.pipelines, "calibrate", request.pipeline)
        finished = finish(begin(task, Store(evidence_root(request.workspace)), self.gates), self.gates, self.progress)
        self.done.runs.append((finished.folder, finished.plan, finished.verdict))
        self.done.rig_errors += finished.rig_errors
        self.done.interrupted = finished.interrupted
        _, figures = self.done.boards.setdefault(board.uuid, (board, Figures()))
        take(finished, figures)


def controls(selection: cohort.Selection) -> cohort.Selection:
    """Plain of each cell, and for a timed one plain against itself, loaded twice, and against its own rebuild."""
    subjects: list[Subject] = []
    composed = dict(selection.composed)
    for plain in selection.subjects:
        subjects.append(plain)
        own = composed.get(str(plain.candidate.identity))
        if own is None or not plain.cell.timed:
            continue
        rebuilt = _rebuilt(own)
        composed[rebuilt.identity] = rebuilt
        for name, identity in ((AGAIN, own.identity), (REBUILT, rebuilt.identity)):
            changes = {"route": f"{plain.candidate.route}.{name}", "identity": identity}
            arm = plain.candidate.model_copy(update=changes)
            subjects.append(plain.model_copy(update={"role": "control", "candidate": arm}))
    return replace(selection, subjects=tuple(subjects), composed=composed)


def _rebuilt(own: Composed) -> Composed:
    """The same text under another identity, which no build is shared with."""
    module = own.module.model_copy(update={"defines": {**own.module.defines, **REBUILD}})
    return Composed(module=module, identity=identify("module", module), fragments=own.fragments)


def take(finished: Finished, figures: Figures) -> None:
    """Add what the controls of a sealed run show; one that did not pass shows nothing."""
    passed = {(each.cell, each.route) for each in finished.verdict.subjects if each.outcome == "pass"}
    found = [each.subject for each in finished.plan.subjects if each.subject.role == "control"]
    for subject in found:
        if subject.key in passed:
            for node in finished.plan.nodes:
                _take_gate(finished.folder, subject, node.gate, figures)
    if any(subject.key in passed for subject in found):
        figures.runs.append(finished.plan.run)


def _take_gate(folder: Path, subject: Subject, gate: str, figures: Figures) -> None:
    """Whatever the facts of one gate tell of arms or copies."""
    measurement = Measurement.parse((folder / layout.measurement_path(subject.key, gate)).read_bytes())
    facts: Mapping[str, Any] = measurement.facts if isinstance(measurement.facts, dict) else {}
    series = {ref.name: _values(folder, subject, gate, ref.name) for ref in layout.named_series(measurement)}
    if "long_parent" in series:
        seen = TimedFacts.parse(canonical_bytes(measurement.facts))
        apart = timed.apart_ppm(seen, series, len(program.outputs(subject)))
        name = "delta_ppm" if seen.pace is not None and seen.pace.passes == 1 else "short_delta_ppm"
        figures.apart_ppm[name] = max(apart, figures.apart_ppm.get(name, 0))
        figures.segments_ns += [span.median_ns for span in (seen.candidate, seen.incumbent) if span is not None]
    if "copies" in series:
        figures.copies_per_s.append(ceilings.copy_per_s(int(facts["copy_bytes"]), series["copies"]))
        figures.launches_ns.append(ceilings.launch_ns(series["launches"]))
        figures.quanta_ns.append(ceilings.quantum_ns(series["launches"]))


def _values(folder: Path, subject: Subject, gate: str, name: str) -> tuple[int, ...]:
    data = (folder / layout.series_path(subject.key, gate, name)).read_bytes()
    return struct.unpack(f"<{len(data) // 8}q", data)


def _operations(request: Request) -> tuple[str, ...]:
    if request.operation is None:
        return operations(request.workspace)
    check_operation(request.workspace, request.operation)
    return (request.operation,)


def _check_cells(request: Request, cohorts: list[cohort.Cohort]) -> None:
    known = {cell for item in cohorts for cell in item.cell_ids}
    if unknown := sorted(request.cells - known):
        expected = f"a cell of {', '.join(item.operation for item in cohorts)}"
        raise UsageError(
            f"expected {expected}, got {', '.join(unknown)}", fix=f"the cells are {', '.join(sorted(known))}"
        )
