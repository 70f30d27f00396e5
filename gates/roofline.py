"""Gate roofline: no segment is faster than memory and arithmetic allow, and what binds is said (DESIGN section 9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from qualify import program
from qualify.ceilings import NS, copy_per_s, launch_ns, quantum_ns
from qualify.contract import Argument
from qualify.domain import Calibrated
from qualify.elements import DTYPES
from qualify.gate import Bench, Facts, Gate, Rule, Series, SeriesRef, Settings, holds
from qualify.steps import Copy, Spans
from qualify.subject import Subject
from qualify.timed import Span, TimedFacts
from qualify.verdict import Check, Note

#: Where no peak is stated: no copy of large buffers gets less than half of what its memory can move.
PEAK_OVER_COPY = 2
#: Copies of the fewest bytes that a work-item takes tell what a launch costs.
LAUNCH_BYTES, LAUNCHES = 64, 100
#: Below this share of every roof, none of them is what the kernel waits for.
BINDS_PERCENT = 50


class RoofFacts(Facts):
    """Of gate timing: timed passes of a segment, and the totals of each arm's.

    Of copies, if they were measured here: bytes copied, nanoseconds of each, and the stamps of launches in a row,
    start and end in turns.
    """

    passes: Annotated[int, Field(ge=1)] | None = None
    candidate: Span | None = None
    incumbent: Span | None = None
    copy_bytes: int | None = None
    copies: SeriesRef | None = None
    launches: SeriesRef | None = None


class GraphedFacts(RoofFacts):
    """And whether the units were graphs, which launch for less than what is launched one by one."""

    graphs: bool


class RoofSettings(Settings):
    """What calibration found of the board; without its copy ceiling so many copies are measured here."""

    board: Calibrated | None = None
    copies: Annotated[int, Field(ge=3, le=100)] = 24
    timeout_s: Annotated[int, Field(ge=1)] = 120


def checks(subject: Subject) -> frozenset[str]:
    """Required names. Operations are checked where contract and board both state them."""
    return frozenset({"ceiling", "memory_floor", "incumbent_floor"})


def moved_bytes(subject: Subject) -> int:
    """What one pass cannot do without: every input read once, every output written once, or what the cohort says."""
    if subject.moved_bytes is not None:
        return subject.moved_bytes
    once = sum(map(_bytes, subject.buffers("input", "output", "inout")))
    return once + sum(map(_bytes, subject.buffers("inout")))


def _bytes(argument: Argument) -> int:
    return argument.elements * DTYPES[argument.dtype].size_bytes


def copy_bytes(subject: Subject) -> int | None:
    """Bytes of one copy: twice the cache, so that source and target are four times as large; None if unknown."""
    cache = subject.limits.cache_bytes
    if cache is None:
        return None
    return 2 * (cache if subject.domain.runtime == "cuda" else min(cache, program.CPU_CACHE_BYTES))


# Judgement -----------------------------------------------------------------------------------------------------------


def first_judge(subject: Subject, facts: RoofFacts, series: Series, settings: RoofSettings) -> Iterable[Check | Note]:
    """Every check of rule 1, which took launches in a row for a roof of graphs too. Raises as `judge` does."""
    return _judged(_Roofs(subject, facts, series, settings, graphs=False))


def judge(subject: Subject, facts: GraphedFacts, series: Series, settings: RoofSettings) -> Iterable[Check | Note]:
    """Every check of rule 2. Raises ValueError for times that are not positive."""
    return _judged(_Roofs(subject, facts, series, settings, graphs=facts.graphs))


def _judged(roofs: _Roofs) -> Iterator[Check | Note]:
    yield roofs.found()
    yield from roofs.floors()
    yield from roofs.notes()


class _Roofs:
    """What memory, arithmetic and launches allow one segment; None where that is not known."""

    def __init__(
        self, subject: Subject, facts: RoofFacts, series: Series, settings: RoofSettings, *, graphs: bool
    ) -> None:
        self._subject, self._facts, self._graphs = subject, facts, graphs
        self._board = None if subject.role == "control" else settings.board
        self._measured = _ceiling(subject, facts, series, settings.copies)
        self._launches = series.get("launches", ())
        stated = None if self._board is None else self._board.copy_bytes_per_s
        if stated is not None and (facts.copy_bytes, facts.copies, facts.launches) != (None, None, None):
            raise ValueError("copies where a ceiling is cited")
        self.copy_per_s = stated or self._measured
        spans = (facts.candidate, facts.incumbent)
        if any(span is not None and not 0 < span.fastest_ns <= span.median_ns for span in spans):
            raise ValueError("segments whose times are not positive and in order")

    @property
    def peak_per_s(self) -> int | None:
        """Bytes a second that nothing exceeds: stated, or a multiple of the copy ceiling."""
        if self._board is not None and self._board.peak_bytes_per_s is not None:
            return self._board.peak_bytes_per_s
        return None if self.copy_per_s is None else PEAK_OVER_COPY * self.copy_per_s

    @property
    def _on_record(self) -> bool:
        """Whether the peak is stated, or follows from a ceiling that a calibration run is cited for."""
        board = self._board
        return board is not None and (board.peak_bytes_per_s or board.copy_bytes_per_s) is not None

    @property
    def bytes(self) -> int | None:
        """Compulsory bytes of a segment's timed passes."""
        return None if self._facts.passes is None else self._facts.passes * moved_bytes(self._subject)

    @property
    def operations(self) -> int | None:
        """Operations of a segment's timed passes."""
        passes, each = self._facts.passes, self._subject.operations
        return None if passes is None or each is None else passes * each

    def found(self) -> Check:
        """The copy ceiling, cited or measured."""
        whence = f"measured by copies of {self._facts.copy_bytes} bytes"
        if self._board is not None and self._board.copy_bytes_per_s is not None:
            whence = f"from {', '.join(self._board.calibration)}"
        got = None if self.copy_per_s is None else f"{self.copy_per_s} bytes a second, {whence}"
        return holds("ceiling", got, "a copy ceiling of this board", got is not None)

    def floors(self) -> Iterator[Check]:
        """No segment takes less than its bytes, but for a cacheful, or its operations need at the peak.

        Against copies measured just now nothing fails: a busy machine may have slowed all of them.
        """
        cache, amount, peak = self._subject.limits.cache_bytes, self.bytes, self.peak_per_s
        beyond = None if cache is None or amount is None else max(0, amount - cache)
        candidate = _floor("memory_floor", self._facts.candidate, beyond, peak, "bytes")
        incumbent = _floor("incumbent_floor", self._facts.incumbent, beyond, peak, "bytes")
        doubt = {"holds": None}
        yield candidate if candidate.holds or self._on_record else candidate.model_copy(update=doubt)
        yield incumbent if incumbent.holds else incumbent.model_copy(update=doubt)
        peak_operations = None if self._board is None else self._board.peak_operations_per_s
        if self.operations is not None and peak_operations is not None:
            yield _floor("operations_floor", self._facts.candidate, self.operations, peak_operations, "operations")

    def notes(self) -> Iterator[Note]:
        """Which roof binds, how near the candidate comes to it, and what is not known."""
        shares = self._shares()
        if not shares or self._facts.candidate is None or self.bytes is None or self.copy_per_s is None:
            return
        per_s = self.bytes * NS // self._facts.candidate.median_ns
        name, share = max(shares.items(), key=lambda item: item[1])
        got = f"{_percent(share)} of the roof of {name}"
        yield Note(name="binds", got=got, says=_ADVICE[name if share * 100 >= BINDS_PERCENT else "nothing"])
        yield Note(
            name="achieved",
            got=f"{per_s} bytes a second, {_percent(shares['memory'])} of a copy",
            says=f"compulsory bytes of {self._subject.candidate.route} over the median segment",
        )
        if shares["memory"] > 1:
            yield Note(name="over_ceiling", got=_percent(shares["memory"]), says="bytes miscounted, or from a cache")
        if "operations" not in shares:
            lacking = "the board's peak" if self.operations is not None else "the cohort's operations"
            yield Note(name="operations_roof", got="unknown", says=f"{lacking} are not stated")
        if self._launches:
            got = f"{self._launch_ns} ns, clock in steps of {quantum_ns(self._launches)} ns"
            yield Note(name="launch", got=got, says=f"of {len(self._launches) // 2} launches in a row")

    def _shares(self) -> dict[str, Fraction]:
        """Of each roof that is known: the time that it allows over the candidate's median."""
        if self._facts.candidate is None or self._facts.passes is None or self.bytes is None or self.copy_per_s is None:
            return {}
        median_ns = self._facts.candidate.median_ns
        shares = {"memory": Fraction(self.bytes * NS, self.copy_per_s * median_ns)}
        peak = None if self._board is None else self._board.peak_operations_per_s
        if self.operations is not None and peak is not None:
            shares["operations"] = Fraction(self.operations * NS, peak * median_ns)
        if self._launch_ns is not None and not self._graphs:
            launches = self._facts.passes * len(self._subject.candidate.launches)
            shares["launches"] = Fraction(launches * self._launch_ns, median_ns)
        return shares

    @property
    def _launch_ns(self) -> int | None:
        """What a launch of nearly nothing costs in a row."""
        if self._board is not None and self._board.launch_ns is not None:
            return self._board.launch_ns
        return launch_ns(self._launches) if self._launches else None


def _ceiling(subject: Subject, facts: RoofFacts, series: Series, count: int) -> int | None:
    """Bytes a second, read and written, of the best copy. Raises ValueError for times that are not positive."""
    times = series.get("copies")
    if times is None or facts.copy_bytes is None:
        return None
    found = copy_per_s(facts.copy_bytes, times)
    return found if len(times) == count and facts.copy_bytes == copy_bytes(subject) else None


def _floor(name: str, span: Span | None, amount: int | None, per_s: int | None, unit: str) -> Check:
    """The fastest segment against what `amount` takes at `per_s`, compared as products."""
    if span is None or amount is None or per_s is None:
        return holds(name, None, f"a time that {unit} at the peak allow", None)
    floor_ns = -(-amount * NS // per_s)
    want = f"at least {floor_ns} ns for {amount} {unit} at {per_s} a second"
    return holds(name, f"{span.fastest_ns} ns", want, span.fastest_ns * per_s >= amount * NS)


def _percent(share: Fraction) -> str:
    return f"{share * 100 // 1} %"


_ADVICE = {
    "memory": "memory binds: only fewer bytes, or bytes that stay in a cache, make it faster",
    "operations": "arithmetic binds: only fewer operations, or faster units for them, make it faster",
    "launches": "launching binds: fewer launches, or more work in each, make it faster",
    "nothing": "no roof binds: it waits for something else, such as latency, too few blocks, or uneven work",
}
FIXES = {
    "ceiling": "run `qualify calibrate`, and cite its run under boards in pipelines.yaml",
    "memory_floor": "compute all of it in every launch; state moved_bytes if not all is needed; calibrate the board",
    "operations_floor": "compute all of it in every launch; correct the operations of the cohort if they are too many",
    "incumbent_floor": "correct moved_bytes of the cohort or the board's peak: plain is faster than they allow",
}


class RooflineGate(Gate[GraphedFacts, RoofSettings]):
    """Physics as a check, and a sentence for the author."""

    id: ClassVar[str] = "roofline"
    claim: ClassVar[str] = "No segment is faster than its compulsory bytes and operations allow at the board's peak."
    runs_on: ClassVar[Literal["host", "device"]] = "device"
    timed: ClassVar[bool] = True
    rules: ClassVar[tuple[Rule[RoofFacts, RoofSettings] | Rule[GraphedFacts, RoofSettings], ...]] = (
        Rule(1, RoofFacts, RoofSettings, checks, first_judge, FIXES),
        Rule(2, GraphedFacts, RoofSettings, checks, judge, FIXES),
    )

    def measure(self, subject: Subject, bench: Bench, settings: RoofSettings) -> GraphedFacts:
        """What gate timing saw, and copies if no ceiling is on record. Raises WorkerLost."""
        seen = bench.needed("timing", TimedFacts)
        passes = None if seen.pace is None else seen.pace.passes * seen.pace.units
        graphs = seen.pace is not None and program.as_graphs(subject, seen.pace.pace)
        facts = GraphedFacts(passes=passes, candidate=seen.candidate, incumbent=seen.incumbent, graphs=graphs)
        cited = subject.role != "control" and settings.board is not None
        size = copy_bytes(subject)
        if size is None or (cited and settings.board is not None and settings.board.copy_bytes_per_s is not None):
            return facts
        large = Copy(size_bytes=size, times=settings.copies)
        small = Copy(size_bytes=LAUNCH_BYTES, times=LAUNCHES)
        with bench.session(subject) as session:
            copies, launches = program.only(session.run([large, small], settings.timeout_s), Spans)
        times = [end - start for start, end in zip(copies.start_ns, copies.end_ns, strict=True)]
        stamps = [stamp for pair in zip(launches.start_ns, launches.end_ns, strict=True) for stamp in pair]
        found = {"copies": bench.series("copies", times), "launches": bench.series("launches", stamps)}
        return facts.model_copy(update={"copy_bytes": size, **found})
