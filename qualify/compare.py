"""`qualify compare`: outside implementations beside the route that serves a cell, as readings for the record.

A reading decides nothing, admits nothing and is no evidence: it is printed. Each comparator has a paired session of its
own with the route, segment for segment as gate trial has them, in a worker that no candidate ever enters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from qualify import cohort, own_bits, pacing, paired, pipeline, program, readings, timed
from qualify.anchors import Anchors
from qualify.bench import GateBench, Rig
from qualify.cohort.cohort import comparators
from qualify.cohort.rows import ComparatorRow
from qualify.comparators import Comparator
from qualify.contract import Arm, Kernel, ReferenceSource
from qualify.domain import Board, Domain
from qualify.errors import Exit, InputError, NothingSelected, RigError, UsageError
from qualify.gate import Session, WorkerLost
from qualify.identity import content
from qualify.live import standings
from qualify.model import Document
from qualify.nearness import PARTS, Distance, Element
from qualify.own_bits import OwnBits
from qualify.pacing import Paced
from qualify.paired_session import ARMS, PairedSession, probe
from qualify.processes import windows
from qualify.program import LEAST_UNITS, Pace
from qualify.seeds import permutation, split
from qualify.sessions import MeasuringSession
from qualify.steps import Answer, ArmName, Load, Query
from qualify.subject import Subject
from qualify.timed import Seen
from qualify.windows import nearest_rank
from qualify.workspace import check_operation, evidence_root

WINDOWS = 21
TIMEOUT_S = 120
#: Errors of a library that is not here, or lies where its bindings do not look.
_LACKING = re.compile(r"(Import|NotFound|NotSupported)Error")


@dataclass(frozen=True)
class Request:
    """What is compared; None or empty selects everything."""

    workspace: Path
    operation: str
    domain: str | None = None
    cells: frozenset[str] = frozenset()


class Side(Document):
    """One arm: a pass's p50 and p95 over units, and how far its farthest element is, in 1/1024 ulp (None: by class)."""

    p50_ns: int
    p95_ns: int
    error: int | None


class ComparatorReading(Document):
    """One comparator beside one route on one cell. `ratio` is the route's time over the comparator's.

    `doubts` say why the figures may not be those of this work; `passes` are those of one unit.
    """

    operation: str
    cell: str
    domain: Domain
    comparator: str
    source: str
    library: str
    route: str
    symbols: tuple[str, ...]
    outputs: tuple[str, ...]
    cache: str
    windows: int
    rejected: int
    passes: int
    ratio: str
    of_comparator: Side
    of_route: Side
    doubts: tuple[str, ...]
    toolkit_build: str
    board: Board
    date: str

    def lines(self) -> Iterator[str]:
        """All of it, for a person."""
        ours, theirs, what = self.of_route, self.of_comparator, f"{self.route} ({', '.join(self.symbols)})"
        yield f"{self.operation} {self.cell} in {self.domain}: {self.comparator}"
        yield f"  {self.library}, by {self.source}"
        yield f"  {self.ratio} x, the time of {what} over the comparator's: median of {self.windows} windows"
        units = "" if self.passes == 1 else f", units of {self.passes} passes"
        figures = f"comparator {_us(theirs)}, route {_us(ours)}"
        yield f"  p50 / p95 of a pass{units}, {self.cache} cache: {figures}"
        yield f"  farthest from exact, {', '.join(self.outputs)}: comparator {_ulp(theirs)}, route {_ulp(ours)}"
        yield f"  {self.toolkit_build}; {self.board.name}, driver {self.board.driver}; {self.date}"
        yield from (f"  doubt: {text}" for text in self.doubts)


@dataclass
class Compared:
    """Readings, what could not be measured and why, and domains that are not here."""

    readings: list[ComparatorReading] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    absent: dict[str, RigError] = field(default_factory=dict)

    def exit_code(self) -> Exit:
        """The command's exit code: a comparator without a reading is what this machine cannot do."""
        return Exit.RIG if self.unread else Exit.DONE


class Listener(Protocol):
    """Whoever watches: each may take a minute, and an early end keeps what was read."""

    def measuring(self, text: str) -> None:
        """A comparator meets a cell."""
        ...

    def read(self, reading: ComparatorReading) -> None:
        """There is a reading."""
        ...


def compare(request: Request, listener: Listener) -> Compared:
    """Measure every comparator of an operation on its timed cells, domain by domain.

    Raises UsageError or InputError for what the workspace or the command line gets wrong, RigError if no selected
    domain is here, NothingSelected if there is no comparator or no timed cell.
    """
    check_operation(request.workspace, request.operation)
    item, done = cohort.load(request.workspace, request.operation), Compared()
    if unknown := sorted(request.cells - {*item.cell_ids}):
        fix = f"the cells are {', '.join(item.cell_ids)}"
        raise UsageError(f"expected a cell of {item.operation}, got {', '.join(unknown)}", fix=fix)
    for wanted in pipeline.load(request.workspace).selected(request.domain):
        try:
            rig = Rig.open(wanted.toolkit, wanted.arch)
        except RigError as error:
            done.absent[str(wanted)] = error
            continue
        with rig:
            _domain(request, item, rig, done, listener)
    if not done.readings and not done.unread:
        _nothing(item, done)
    return done


def _nothing(item: cohort.Cohort, done: Compared) -> None:
    if done.absent:
        raise pipeline.nowhere(done.absent)
    raise NothingSelected(
        f"{item.operation} has no comparator for a timed cell that is selected",
        fix="name other cells, or add comparators to its cohort.yaml",
    )


def _domain(request: Request, item: cohort.Cohort, rig: Rig, done: Compared, listener: Listener) -> None:
    """Every comparator of one domain, beside what serves each cell."""
    domain = Domain(toolkit=rig.domain.toolkit, arch=rig.domain_arch)
    chosen = [each for each in comparators(item) if domain.runtime in each[0].runtimes]
    if not chosen:
        return
    if rig.board is None:
        done.absent[str(domain)] = rig.lacking
        return
    for subject in served(request, item, domain, rig):
        for row, source in chosen:
            listener.measuring(f"{subject.cell.id} in {domain}: {row.name}")
            try:
                reading = _Comparing(rig, rig.board, subject, row, source).reading()
            except WorkerLost as lost:
                last = lost.loss.log.strip().splitlines()[-1:] or [lost.loss.how]
                done.unread.append(_unread(subject, row, f"{lost.loss.how} in {lost.loss.step}: {last[0]}"))
            except _NoWindows as why:
                done.unread.append(_unread(subject, row, str(why)))
            else:
                done.readings.append(reading)
                listener.read(reading)


def _unread(subject: Subject, row: ComparatorRow, why: str) -> str:
    fix = f"\n  fix: {row.needs}" if row.needs and _LACKING.search(why) else ""
    return f"no reading of {row.name} on {subject.cell.id}: {why}{fix}"


def served(request: Request, item: cohort.Cohort, domain: Domain, rig: Rig) -> Iterator[Subject]:
    """The timed cells, each with the route that serves it as candidate and incumbent; the rig has their modules."""
    found = standings(item, domain, rig.toolkit_build, Anchors(evidence_root(request.workspace)))
    routes = {standing.cell: standing.route for standing in found if standing.is_open}
    selection = cohort.subjects(
        item,
        domain,
        rig.limits,
        rig.toolkit_build,
        cells=request.cells or None,
        routes={item.row.plain, *routes.values()},
    )
    rig.supply(selection.composed, selection.reference, os.urandom(32))
    for subject in selection.subjects:
        cell, route = subject.key
        if subject.cell.timed and route == routes.get(cell, item.row.plain):
            yield subject.model_copy(update={"incumbent": subject.candidate})


class _NoWindows(Exception):
    """No windows can be measured; the text says why."""


@contextmanager
def _rising() -> Iterator[None]:
    """Stamps that do not rise are a comparator's that enqueues nothing on the stream."""
    try:
        yield
    except ValueError as error:
        raise _NoWindows(f"passes take no time on the stream: {error}") from error


class _Bench(GateBench):
    """A bench whose candidate is a comparator."""

    def __init__(self, rig: Rig, subject: Subject, comparator: Comparator) -> None:
        super().__init__(rig, subject, {})
        self._comparator = comparator

    def _measuring(self) -> AbstractContextManager[MeasuringSession]:
        return self._rig.measuring(compared=True)

    def _loadable(self, name: ArmName, arm: Arm) -> tuple[Load, bytes]:
        if name == "incumbent":
            return super()._loadable(name, arm)
        data = self._comparator.canonical()
        return Load(arm=name, object_blake3=content(data), symbols=arm.symbols), data


class _Comparing:
    """One comparator on one cell: a session for the pace, then one with known outputs, warm-up and windows."""

    def __init__(self, rig: Rig, board: Board, served: Subject, row: ComparatorRow, source: ReferenceSource) -> None:
        launch = Kernel(symbol=source.function, grid=(1, 1, 1), block=(1, 1, 1))
        arm = Arm(route="comparator", identity=None, launches=(launch,))
        self._subject = served.model_copy(update={"role": "candidate", "candidate": arm, "bits": "own"})
        self._rig, self._board, self._row, self._source = rig, board, row, source
        comparator = Comparator(
            path=source.path,
            code=_text(source),
            function=source.function,
            cell=served.cell,
            arguments=served.arguments,
        )
        self._bench = _Bench(rig, self._subject, comparator)
        self._seed = self._bench.seed(f"compare {row.source}")
        self._doubts: list[str] = []

    def reading(self) -> ComparatorReading:
        """Measure it. Raises WorkerLost, RigError, _NoWindows."""
        if self._subject.incumbent.identity is None:
            raise _NoWindows(f"{self._subject.incumbent.route}: {self._subject.incumbent.error}")
        paced = self._paced()
        pace, seed = paced.pace, split(self._seed, "windows")
        own, seen = OwnBits(self._subject, permutation(split(seed, "chosen"), pace.sets)[0]), list[Seen]()
        with self._bench.session(self._subject, *ARMS) as session:
            both = PairedSession(self._subject, session, seed, pace, TIMEOUT_S)
            before = both.inputs()
            own.see(pace.sets, both.known)
            with _rising():
                both.warm_up()
                windows(session, both, 0, seen, (WINDOWS,))
            self._doubt(before != both.inputs(), "inputs changed")
            library = self._library(session)
            inputs = both.set_seed(own.chosen)
        self._check(own, seen, pace)
        return self._figures(seen, pace, library, own.judged(self._bench, inputs).outputs)

    def _paced(self) -> Paced:
        """How segments are cut; the library is made ready by a launch before anything of it is captured."""
        subject, flush = self._subject, program.flush_bytes(self._subject)
        short = None if flush is None else Pace(1, LEAST_UNITS, flush)
        if flush is None or short is None or not pacing.fits(subject, short):
            raise _NoWindows("three units of each arm do not fit into the device's memory, or its cache is unknown")
        with self._bench.session(subject, *ARMS) as session:
            both = PairedSession(subject, session, split(self._seed, "probe"), short, TIMEOUT_S)
            both.known(0)
            with _rising():
                totals = probe(both)
        paced = pacing.cut(subject, totals, flush)
        if paced is None:
            theirs, ours = (readings.pass_ns(totals[arm]) for arm in ARMS)
            raise _NoWindows(f"{theirs} ns a pass against the route's {ours}: over ten times slower, or too many sets")
        return paced

    def _library(self, session: Session) -> str:
        asked = Query(what="kernel", arm="candidate", symbol=self._source.function)
        (answer,) = program.only(session.run([asked], TIMEOUT_S), Answer)
        facts: Any = answer.facts
        return str(facts["library"])

    def _doubt(self, doubtful: bool, text: str) -> None:
        if doubtful:
            self._doubts.append(text)

    def _check(self, own: OwnBits, seen: Sequence[Seen], pace: Pace) -> None:
        """What gate trial would want of the same windows."""
        attempts = [each.attempt for each in seen]
        known = own_bits.known(own.digests, pace.sets, len(program.outputs(self._subject)))
        wrong = readings.disagreements(attempts, known)
        self._doubt(bool(wrong), f"{wrong} timed launches differ from the untimed ones of their arm and set")
        damaged = sum(reading.damage_bytes for attempt in attempts for reading in attempt.readings)
        self._doubt(bool(damaged), f"{damaged} bytes were written outside the buffers")
        found = timed.sifted(seen, (WINDOWS,))
        self._doubt(found.over_cap, f"{len(found.rejected)} windows were rejected for what disturbed them")

    def _figures(
        self, seen: Sequence[Seen], pace: Pace, library: str, distances: Sequence[Distance]
    ) -> ComparatorReading:
        subject, found = self._subject, timed.sifted(seen, (WINDOWS,))
        kept = [seen[index].attempt.window for index in found.kept]
        if not kept:
            raise _NoWindows("every window was rejected for what disturbed it")
        other = sum(each.candidate.other_class for each in distances)
        self._doubt(bool(other), f"{other} elements are NaN or infinite where the exact ones are not, or the reverse")
        theirs = [unit for window in kept for half in window.candidate for unit in half.units_ns]
        ours = [unit for window in kept for half in window.incumbent for unit in half.units_ns]
        return ComparatorReading(
            operation=subject.operation,
            cell=subject.cell.id,
            domain=subject.domain,
            comparator=self._row.name,
            source=self._row.source,
            library=library,
            route=subject.incumbent.route,
            symbols=subject.incumbent.symbols,
            outputs=tuple(f"{output.name} of {output.dtype}" for output in program.outputs(subject)),
            cache=subject.timing.cache,
            windows=len(kept),
            rejected=len(found.rejected),
            passes=pace.passes,
            ratio=str(paired.median([window.total for window in kept])),
            of_comparator=_side(theirs, pace, [each.candidate.worst for each in distances]),
            of_route=_side(ours, pace, [each.incumbent for each in distances]),
            doubts=tuple(self._doubts),
            toolkit_build=self._rig.toolkit_build,
            board=self._board,
            date=f"{datetime.now(UTC):%Y-%m-%d}",
        )


def _text(source: ReferenceSource) -> str:
    try:
        return source.code.decode()
    except UnicodeDecodeError as error:
        raise InputError(source.path, expected="UTF-8", got=str(error), fix="save the file as UTF-8") from error


def _side(units_ns: Sequence[int], pace: Pace, worst: Sequence[Element | None]) -> Side:
    errors = [int(each.error) for each in worst if each is not None and each.error is not None]
    p50_ns, p95_ns = (nearest_rank(units_ns, percent) // pace.passes for percent in (50, 95))
    return Side(p50_ns=p50_ns, p95_ns=p95_ns, error=max(errors, default=None))


def _us(side: Side) -> str:
    return f"{side.p50_ns / 1000:.3f} / {side.p95_ns / 1000:.3f} us"


def _ulp(side: Side) -> str:
    return "no distance" if side.error is None else f"{side.error / PARTS:.2f} ulp"
