"""Gate timing: 101 paired windows over processes of their own; the one gate that says "faster" (R10)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from qualify import own_bits, pacing, paired, program, readings, timed
from qualify.domain import Calibrated
from qualify.gate import Bench, Gate, Rule, Series, Settings, at_least, holds
from qualify.model import Ratio, ratio
from qualify.own_bits import KnownDigests
from qualify.paired import Decision, SignedRank
from qualify.paired_session import ARMS, LongRun
from qualify.processes import Processes
from qualify.program import LEAST_UNITS, Pace
from qualify.readings import SEGMENTS, Attempt
from qualify.seeds import split
from qualify.subject import Subject
from qualify.timed import Seen, TimedFacts
from qualify.verdict import Check, Note
from qualify.windows import nearest_rank

PPM = 1_000_000
#: Identical arms that differ by more are no matter of a margin: something is wrong with the board.
CONTROL = Fraction(1, 20)

_ABBA = program.window_arms(candidate_first=False)

_SOUND = frozenset(
    {"within_tenfold", "pace", "warm_up", "sets", "digests", "zones", "inputs_unchanged", "windows", "passes"}
)
_CLOCKS = frozenset({"clocks", "clock_ratio"})
_FASTER = frozenset({"faster", "faster_processes", "tail", "tail_processes"})


class TimingSettings(Settings):
    """What is measured and what decides.

    `processes` replaces R10.6's number, `floor` is the speed-up that the bound must exceed, `board` what calibration
    found. `alpha_ppm` is the chance of a false admission over all attempts. `long_run_ms` and `clock_tolerance_ppm`
    are of the parent's own clock (R10.9). `timeout_s` is for one message of steps.
    """

    windows: Annotated[int, Field(ge=1, le=paired.MAX_RATIOS)] = 101
    processes: Annotated[int, Field(ge=1, le=paired.MAX_RATIOS)] | None = None
    alpha_ppm: Annotated[int, Field(ge=1, lt=PPM)] = 10_000
    tail_margin_ppm: Annotated[int, Field(ge=0, lt=PPM)] = 10_000
    floor: Ratio = "1"
    long_run_ms: Annotated[int, Field(ge=1, le=10_000)] = 500
    clock_tolerance_ppm: Annotated[int, Field(ge=1, lt=PPM)] = 30_000
    board: Calibrated | None = None
    timeout_s: Annotated[int, Field(ge=1)] = 120


@dataclass(frozen=True)
class Promise:
    """What a subject and the settings ask for, known before anything is measured."""

    level: Fraction
    wanted: tuple[int, ...]
    limit: Fraction
    tail_margin: Fraction


def promise(subject: Subject, settings: TimingSettings, *, short: bool) -> Promise:
    """Level, windows of each process, and limit; `short` where a unit is several passes (R10.6, R10.7).

    Raises ValueError where fewer windows than processes are asked for.
    """
    level = paired.alpha(subject.attempt, subject.finalists, Fraction(settings.alpha_ppm, PPM))
    board = settings.board
    margin = None if board is None else board.short_delta_ppm if short else board.delta_ppm
    return Promise(
        level=level,
        wanted=paired.spread(settings.windows, settings.processes or paired.processes(level)),
        limit=paired.delta(margin, ratio(settings.floor)),
        tail_margin=Fraction(settings.tail_margin_ppm, PPM),
    )


def checks(subject: Subject) -> frozenset[str]:
    """Required names; a control says how far identical arms are apart, and never that one is faster."""
    own = {"pairs", "exact"} if subject.bits == "own" else set()
    return _SOUND | _CLOCKS | own | ({"equal"} if subject.role == "control" else _FASTER)


# Judgement -----------------------------------------------------------------------------------------------------------


def judge(subject: Subject, facts: TimedFacts, series: Series, settings: TimingSettings) -> Iterable[Check | Note]:
    """Every check of rule 2, from the series alone. Raises ValueError for series that no measurement gives."""
    return _judged(subject, facts, series, settings, both_ways=subject.role == "control")


def judge_both_ways(
    subject: Subject, facts: TimedFacts, series: Series, settings: TimingSettings
) -> Iterable[Check | Note]:
    """Rule 1: a gain that is greater in a row than in windows was held against the candidate too (docs/adr)."""
    return _judged(subject, facts, series, settings, both_ways=True)


def _judged(
    subject: Subject, facts: TimedFacts, series: Series, settings: TimingSettings, *, both_ways: bool
) -> Iterator[Check | Note]:
    if facts.probe_candidate is None or facts.probe_incumbent is None:
        yield pacing.no_pace()
        return
    candidate_ns, incumbent_ns = (readings.pass_ns(series[f"probe_{arm}"]) for arm in ARMS)
    hopeful = pacing.hopeful(candidate_ns, incumbent_ns)
    yield hopeful
    if facts.pace is None:
        if hopeful.holds:
            yield pacing.no_pace()
        return
    yield pacing.as_asked(subject, facts.pace, facts.flush_bytes, min(candidate_ns, incumbent_ns))
    seen = _Windows(subject, facts, series, settings)
    yield from seen.warmed()
    yield from seen.sound()
    yield from seen.counted()
    if seen.kept:
        yield from seen.decided()
        yield from seen.clocks(both_ways=both_ways)
        yield from seen.notes()


def judge_watched(
    subject: Subject, facts: TimedFacts, series: Series, settings: TimingSettings
) -> Iterable[Check | Note]:
    """Rule 3: rule 2, and what the board did not tell is said."""
    yield from judge(subject, facts, series, settings)
    if facts.pace is not None:
        yield from timed.hidden(timed.seen_events(facts, series))


class _Windows:
    """One subject's windows and long runs, read from their series again."""

    def __init__(self, subject: Subject, facts: TimedFacts, series: Series, settings: TimingSettings) -> None:
        if facts.pace is None:
            raise ValueError("windows without a pace")
        self._subject, self._facts, self._series, self._settings = subject, facts, series, settings
        self._pace, self._outputs = facts.pace.pace, len(program.outputs(subject))
        self._promise = promise(subject, settings, short=self._pace.passes > 1)
        self._seen = timed.from_series(facts, series, self._pace, self._outputs)
        self._sifted = timed.sifted(self._seen, self._promise.wanted)
        self.kept = [self._seen[index] for index in self._sifted.kept]
        self._windows = [each.attempt.window for each in self.kept]
        self._long = self._long_runs()
        spans = timed.spans(self._windows)
        if (facts.candidate, facts.incumbent) != (spans.get("candidate"), spans.get("incumbent")):
            raise ValueError("spans that are not those of the windows")

    def _long_runs(self) -> tuple[LongRun, ...]:
        if self._facts.long_passes is None:
            return ()
        return timed.long_runs(self._series, 0 if self._subject.buffers("inout") else self._outputs)

    def warmed(self) -> Iterator[Check | Note]:
        """Every process warmed both arms up, in an order of its own."""
        loads, units = self._series["loads"], timed.warm_ups(self._series)
        if not set(loads) <= {0, 1} or len(loads) != len(units):
            raise ValueError(f"{len(loads)} orders of loading for {len(units)} warm-ups")
        yield from pacing.warmed(units)

    def sound(self) -> Iterator[Check]:
        """Every timed launch is a checked launch (R10.4, R10.5), the long runs' too."""
        attempts = [each.attempt for each in self._seen]
        once = readings.every_set_once(attempts, self._pace)
        yield holds("sets", "each once" if once else "reused", "each set once a segment", once)
        wrong, compared = self._disagreements(attempts)
        whose = "each arm's own" if self._subject.bits == "own" else "both arms"
        got = f"{wrong} of {compared} differ"
        yield holds("digests", got, f"every launch's bits as known of {whose}", (wrong == 0) if compared else None)
        damaged = sum(reading.damage_bytes for attempt in attempts for reading in attempt.readings)
        damaged += sum(run.reading.damage_bytes for run in self._long)
        yield holds("zones", f"{damaged} bytes", "no byte written outside the buffers", damaged == 0)
        yield self._inputs()
        if self._subject.bits == "own":
            yield from own_bits.near(self._subject, self._pace.sets, self._facts.pairs, self._facts.chosen)

    def _disagreements(self, attempts: Sequence[Attempt]) -> tuple[int, int]:
        """Launches with other bits, and how many were compared. A set beyond the windows' is known by its first run."""
        known: KnownDigests | None = None
        if self._subject.bits == "own":
            series = {arm: self._series[f"known_{arm}"] for arm in ARMS}
            known = own_bits.known(series, self._pace.sets, self._outputs)
        compared = [*attempts]
        runs = [run.reading for run in self._long if any(run.reading.digests)]
        if runs:
            compared += [Attempt(False, tuple(runs[at : at + SEGMENTS])) for at in range(0, len(runs), SEGMENTS)]
            if known is not None:
                first = {"incumbent": timed.rows(runs[0]), "candidate": timed.rows(runs[1])}
                known = {arm: {**first[arm], **known[arm]} for arm in ARMS}
        launches = sum(len(reading.sets) for attempt in compared for reading in attempt.readings)
        return readings.disagreements(compared, known), launches

    def _inputs(self) -> Check:
        """Nothing that a launch may not change has changed, in no process; all of them began with the same."""
        width = self._pace.sets * len(program.kept(self._subject))
        values, sessions = self._series["inputs"], 1 + len(self._series["loads"])
        same = [values[width * row :][:width] == values[:width] for row in range(sessions)]
        whole = len(values) == width * sessions
        if self._long:
            once = len(self._long[0].reading.sets) * len(program.kept(self._subject))
            long = self._series["long_inputs"]
            same += [long[:once] == long[once:], long[:width] == values[:width]]
            whole = whole and len(long) == 2 * once
        got = "equal" if all(same) else "differ"
        return holds("inputs_unchanged", got, "equal before and after", all(same) if whole else None)

    @cached_property
    def _decision(self) -> Decision:
        return decision(self._promise, self.kept, short=self._pace.passes > 1)

    @property
    def _counts(self) -> bool:
        """Whether exactly the planned windows were measured, no more rejected than allowed, and nothing unknown."""
        known = all(r.host_bound is not None for each in self._seen for r in each.attempt.readings)
        whole = not self._sifted.missing and len(self._seen) == len(self._sifted.kept) + len(self._sifted.rejected)
        per_process = [each.process for each in self.kept]
        planned = [process for process, count in enumerate(self._promise.wanted) for _ in range(count)]
        processes = len(self._series["loads"]) == len(self._promise.wanted)
        return known and whole and processes and per_process == planned and not self._sifted.over_cap

    def counted(self) -> Iterator[Check]:
        """What was measured is what was planned (R10.6, R10.8)."""
        wanted, rejected = self._promise.wanted, len(self._sifted.rejected)
        got = f"{len(self.kept)} in {len({each.process for each in self.kept})} processes, {rejected} rejected"
        most = f"at most {self._sifted.cap} rejected"
        yield holds("windows", got, f"{sum(wanted)} in {len(wanted)} processes, {most}", self._counts or None)
        passes = 2 * self._pace.passes * self._pace.units * len(self.kept)
        few = at_least("passes", passes, pacing.LEAST_PASSES, "timed passes an arm")
        yield few if few.holds else few.model_copy(update={"holds": None})

    def decided(self) -> Iterator[Check]:
        """The four tests, or for a control the distance; unknown where the windows do not count."""
        found = self._decision
        if self._subject.role == "control":
            apart = found.speed_up.exceeds(1 + CONTROL) or not found.speed_up.reaches(1 - CONTROL)
            want = f"from {paired.Mean(1 - CONTROL)} to {paired.Mean(1 + CONTROL)}"
            yield holds("equal", str(found.speed_up), want, (self._counts and not apart) or None)
            return
        tests = {
            "faster": found.windows,
            "faster_processes": found.process_windows,
            "tail": found.tails,
            "tail_processes": found.process_tails,
        }
        both = found.windows.rejects and found.process_windows.rejects
        for name, test in tests.items():
            yield _tested(name, test, found.bound if name == "faster" and both else test.bound, self._counts)

    def clocks(self, *, both_ways: bool) -> Iterator[Check]:
        """The parent's own clock, from request to answer, agrees with the device's and confirms the windows (R10.9)."""
        settings, runs = self._settings, self._long
        tolerance = Fraction(settings.clock_tolerance_ppm, PPM)
        want = f"the same within {settings.clock_tolerance_ppm} ppm"
        arms = {arm: [run for at, run in enumerate(runs) if _ABBA[at % SEGMENTS] == arm] for arm in ARMS}
        parent = {arm: sum(run.parent_ns for run in arms[arm]) for arm in ARMS}
        if min(parent.values()) < 2 * settings.long_run_ms * PPM:
            yield holds("clocks", None, f"two runs an arm of {settings.long_run_ms} ms by both clocks", None)
            yield holds("clock_ratio", None, f"in a row {want} as in windows", None)
            return
        device = {arm: sum(run.reading.timed.total_ns for run in arms[arm]) for arm in ARMS}
        within = all(run.reading.timed.total_ns <= run.parent_ns for run in runs)
        agreed = within and all(parent[arm] <= device[arm] * (1 + tolerance) for arm in ARMS)
        got = ", ".join(f"{arm} {parent[arm]} ns for {device[arm]} ns" for arm in ARMS)
        yield holds("clocks", got, f"the device's time within the parent's, {want}", agreed or None)
        row = timed.in_a_row(runs)
        median = paired.median([window.total for window in self._windows])
        near = not median.exceeds(row * (1 + tolerance))
        if both_ways:
            near = near and median.reaches(row / (1 + tolerance))
        want = want if both_ways else f"in a row no less than in windows, within {settings.clock_tolerance_ppm} ppm"
        yield holds("clock_ratio", f"{paired.Mean(row)} in a row, {median} in windows", want, near or None)

    def notes(self) -> Iterator[Note]:
        """The reading, with what it is a reading of (R10.10), and what stands behind it."""
        subject, found, pace = self._subject, self._decision, self._pace
        bound = "no bound" if found.bound is None else f"at least {found.bound.floor()} x"
        what = f"{subject.candidate.route} over {subject.incumbent.route} in {subject.cell.id}, {subject.domain}"
        mode = f"{subject.timing.use}, {subject.timing.cache}, {pace.passes} passes a unit"
        yield Note(name="speed_up", got=f"{found.speed_up} x, {bound}", says=f"{what}; {mode}")
        for arm in ARMS:
            windows = [getattr(window, arm) for window in self._windows]
            units = [unit for segments in windows for segment in segments for unit in segment.units_ns]
            got = f"p50 {nearest_rank(units, 50)} ns, p95 {nearest_rank(units, 95)} ns"
            yield Note(name=f"units of {arm}", got=got, says=f"{len(units)} units of {pace.passes} passes")
        yield Note(name="chance", got=_power_of_ten(found.windows.p), says="of such windows if the gain were the limit")
        yield from timed.notes(self._seen, self._sifted)


def decision(promised: Promise, windows: Sequence[Seen], *, short: bool) -> Decision:
    """The four tests on windows that count. Raises ValueError for none."""
    ratios = [
        paired.Reading(each.process, each.attempt.window.total, each.attempt.window.tail(short=short))
        for each in windows
    ]
    return paired.decide(
        ratios,
        windows=sum(promised.wanted),
        level=promised.level,
        limit=promised.limit,
        tail_margin=promised.tail_margin,
    )


def _tested(name: str, test: SignedRank, bound: paired.Mean | None, counts: bool) -> Check:
    """One test; where so few ratios cannot reject at the level, the settings and not the kernel are to blame.

    `faster` of a candidate that is admitted shows the bound that windows and processes both support.
    """
    got = f"no bound from {test.n}" if bound is None else f"at least {bound.floor()}"
    want = f"above {paired.Mean(test.limit)} at a level of {test.level}"
    return holds(name, got, want, test.rejects if counts and test.critical is not None else None)


def _power_of_ten(chance: Fraction) -> str:
    """A chance as a power of ten, rounded up."""
    exponent = 0
    while chance <= Fraction(1, 10 ** (exponent + 1)) and exponent < 40:
        exponent += 1
    return f"at most {Decimal(1).scaleb(-exponent)}"


FIXES = {
    "pace": "make the cell smaller, or give the device more memory: every pass needs a set of its own",
    "within_tenfold": "profile the candidate; no window was measured",
    "warm_up": "promote again; the record of the warm-up is not whole",
    "sets": "promote again; the record of the sets is not whole",
    "digests": "give the same bits in timed launches as in checked ones; keep nothing from launch to launch",
    "zones": "stay inside the buffers on every set",
    "inputs_unchanged": "write outputs and scratch only",
    "windows": "keep the machine quiet: windows were rejected for what disturbed them",
    "passes": "plan more windows",
    "faster": "the gain does not stand out from chance, margin and floor; profile the candidate on this cell",
    "faster_processes": "some processes do not show the gain: look for what differs from one start to the next",
    "tail": "find the slow launches: the candidate's p95 is worse than the setting allows",
    "tail_processes": "find the slow launches: in some processes the candidate's p95 is worse",
    "equal": "leave the board to this run alone, or mend it: identical arms differ by more than a margin should hide",
    "clocks": "keep the machine quiet; if it stays, time runs on a queue that the device's clock does not see",
    "clock_ratio": "the gain of short segments is not there in a row: look for work done before the clock starts",
    "pairs": "compute the same result for every set of inputs, whatever their place",
    "exact": "read gate numeric: the timed outputs are farther from the exact ones than it allows",
}


class TimingGate(Gate[TimedFacts, TimingSettings]):
    """The judgement on time."""

    id: ClassVar[str] = "timing"
    claim: ClassVar[str] = (
        "In 101 paired windows over fresh processes the candidate is faster beyond chance and margin."
    )
    runs_on: ClassVar[Literal["host", "device"]] = "device"
    timed: ClassVar[bool] = True
    rules: ClassVar[tuple[Rule[TimedFacts, TimingSettings], ...]] = (
        Rule(1, TimedFacts, TimingSettings, checks, judge_both_ways, FIXES, shows="times"),
        Rule(2, TimedFacts, TimingSettings, checks, judge, FIXES, shows="times"),
        Rule(3, TimedFacts, TimingSettings, checks, judge_watched, FIXES, shows="times"),
    )

    def measure(self, subject: Subject, bench: Bench, settings: TimingSettings) -> TimedFacts:
        """A probe for the pace, then every process, then the parent's own clock. Raises WorkerLost."""
        seed, flush = bench.seed("timing"), program.flush_bytes(subject)
        if flush is None or not pacing.fits(subject, Pace(1, LEAST_UNITS, flush)):
            return TimedFacts(flush_bytes=flush)
        probed = pacing.probed(subject, bench, split(seed, "probe"), flush, settings.timeout_s)
        found: dict[str, object] = {f"probe_{arm}": bench.series(f"probe_{arm}", probed[arm]) for arm in ARMS}
        paced = pacing.cut(subject, probed, flush)
        if paced is not None:
            promised = promise(subject, settings, short=paced.passes > 1)
            seen = Processes(subject, bench, seed, paced.pace, settings.timeout_s)
            found |= {"pace": paced, **seen.facts(promised.wanted, settings.long_run_ms)}
        return TimedFacts.model_validate({"flush_bytes": flush, **found})
