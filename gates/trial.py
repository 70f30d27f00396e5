"""Gate trial: 21 paired windows, cheap and biased to pass; what they say is "promising", never an admission."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from qualify import own_bits, pacing, paired, program, readings, timed
from qualify.gate import Bench, Facts, Gate, Rule, Series, SeriesRef, Settings, Surroundings, at_least, holds
from qualify.own_bits import Chosen, OwnBits, Pair
from qualify.pacing import Paced
from qualify.paired import Sifted
from qualify.paired_session import ARMS, PairedSession
from qualify.processes import windows
from qualify.program import LEAST_UNITS, Pace
from qualify.readings import Attempt
from qualify.seeds import permutation, split
from qualify.subject import Subject
from qualify.timed import Seen
from qualify.verdict import Check, Note

PPM = 1_000_000

_ALWAYS = frozenset(
    {
        "pace",
        "within_tenfold",
        "warm_up",
        "windows",
        "passes",
        "sets",
        "digests",
        "zones",
        "inputs_unchanged",
        "faster",
        "tail",
    }
)


class TrialFacts(Facts):
    """Every stamp, order, set and digest as a series; nothing here is derived from them."""

    flush_bytes: int | None
    probe_candidate: SeriesRef | None = None
    probe_incumbent: SeriesRef | None = None
    pace: Paced | None = None
    warm_candidate: SeriesRef | None = None
    warm_incumbent: SeriesRef | None = None
    inputs_before: SeriesRef | None = None
    inputs_after: SeriesRef | None = None
    orders: SeriesRef | None = None
    sets: SeriesRef | None = None
    stamps: SeriesRef | None = None
    digests: SeriesRef | None = None
    damage: SeriesRef | None = None
    host_bound: SeriesRef | None = None
    known_candidate: SeriesRef | None = None
    known_incumbent: SeriesRef | None = None
    pairs: tuple[Pair, ...] | None = None
    chosen: Chosen | None = None


class WatchedFacts(TrialFacts):
    """Of rule 2: what the parent saw around each window too, as `timed.TimedFacts` holds it."""

    event_names: tuple[str, ...] = ()
    clock_names: tuple[str, ...] = ()
    events: SeriesRef | None = None
    clocks: SeriesRef | None = None


class TrialSettings(Settings):
    """How many windows, by how much the tail may be worse, and seconds for one window."""

    windows: Annotated[int, Field(ge=1, le=400)] = 21
    tail_margin_ppm: Annotated[int, Field(ge=0, lt=PPM)] = 10_000
    timeout_s: Annotated[int, Field(ge=1)] = 120


def checks(subject: Subject) -> frozenset[str]:
    """Required names; a route with bits of its own shows that its timed outputs are near the exact ones (R10.5)."""
    return _ALWAYS | ({"pairs", "exact"} if subject.bits == "own" else set())


# Judgement -----------------------------------------------------------------------------------------------------------


def judge(subject: Subject, facts: TrialFacts, series: Series, settings: TrialSettings) -> Iterable[Check | Note]:
    """Every check of rule 1, from the series alone. Raises ValueError for series that no session gives."""

    def unseen(pace: Pace) -> list[Seen]:
        attempts = readings.from_series(series, pace, len(program.outputs(subject)))
        return [Seen(0, Surroundings(), attempt) for attempt in attempts]

    seen = yield from _judge(subject, facts, series, settings, unseen)
    if facts.pace is not None and seen is not None:
        yield from _favoured(settings, facts.pace.pace, seen)


def judge_watched(
    subject: Subject, facts: WatchedFacts, series: Series, settings: TrialSettings
) -> Iterable[Check | Note]:
    """Rule 2: rule 1, but windows are rejected for all of R10.8, and what the board did not tell is said.

    Windows that do not count decide nothing, where rule 1 let what was left of them fail a candidate.
    """

    def around(pace: Pace) -> Sequence[Seen]:
        whole = {**series, "processes": [0] * len(series["orders"])}
        return timed.from_series(facts, whole, pace, len(program.outputs(subject)))

    seen = yield from _judge(subject, facts, series, settings, around)
    if facts.pace is None or seen is None:
        return
    found = timed.sifted(seen, (settings.windows,))
    for each in _favoured(settings, facts.pace.pace, seen) if found.kept else ():
        counts = isinstance(each, Note) or _counts(settings, seen, found)
        yield each if counts else each.model_copy(update={"holds": None})
    yield from timed.notes(seen, found)
    yield from timed.hidden(window.around.events for window in seen)


def _judge(
    subject: Subject,
    facts: TrialFacts,
    series: Series,
    settings: TrialSettings,
    around: Callable[[Pace], Sequence[Seen]],
) -> Generator[Check | Note, None, Sequence[Seen] | None]:
    """All but whom the windows favour; the windows, or None where none were measured."""
    if facts.probe_candidate is None or facts.probe_incumbent is None:
        yield pacing.no_pace()
        return None
    candidate_ns, incumbent_ns = (readings.pass_ns(series[f"probe_{arm}"]) for arm in ARMS)
    hopeful = pacing.hopeful(candidate_ns, incumbent_ns)
    yield hopeful
    if facts.pace is None:
        if hopeful.holds:
            yield pacing.no_pace()
        return None
    yield pacing.as_asked(subject, facts.pace, facts.flush_bytes, min(candidate_ns, incumbent_ns))
    yield from _warmed(series)
    pace = facts.pace.pace
    seen = around(pace)
    yield from _sound(subject, facts, series, pace, [each.attempt for each in seen])
    yield from _counted(settings, pace, seen)
    return seen


def _warmed(series: Series) -> Iterator[Check | Note]:
    units = {arm: series[f"warm_{arm}"] for arm in ARMS}
    counts = ", ".join(f"{arm} {len(values)} units" for arm, values in units.items())
    yield holds(
        "warm_up", counts, "at least 20 units, until flat or 200", all(map(readings.warm, units.values())) or None
    )
    restless = [arm for arm, values in units.items() if not readings.flat(values)]
    if restless:
        yield Note(name="warm_up", got=f"{' and '.join(restless)} not flat", says="medians of tens still moved by 2 %")


def _sound(
    subject: Subject, facts: TrialFacts, series: Series, pace: Pace, attempts: Sequence[Attempt]
) -> Iterator[Check]:
    """Every timed launch is a checked launch (R10.4, R10.5)."""
    once = readings.every_set_once(attempts, pace)
    yield holds("sets", "each once" if once else "reused", "each set once a segment", once)
    width = len(program.outputs(subject))
    known = None
    if subject.bits == "own":
        known = own_bits.known({arm: series[f"known_{arm}"] for arm in ARMS}, pace.sets, width)
    wrong, launches = readings.disagreements(attempts, known), pace.sets * 4 * len(attempts)
    whose = "each arm's own" if known else "both arms"
    agreed = (wrong == 0 and launches > 0) if known is not None or subject.bits == "identical" else None
    yield holds("digests", f"{wrong} of {launches} differ", f"every launch's bits as known of {whose}", agreed)
    damaged = sum(reading.damage_bytes for attempt in attempts for reading in attempt.readings)
    yield holds("zones", f"{damaged} bytes", "no byte written outside the buffers", damaged == 0)
    before, after = series["inputs_before"], series["inputs_after"]
    whole = len(before) == pace.sets * len(program.kept(subject))
    yield holds(
        "inputs_unchanged", "equal" if before == after else "differ", "equal", before == after if whole else None
    )
    if subject.bits == "own":
        yield from own_bits.near(subject, pace.sets, facts.pairs, facts.chosen)


def _counted(settings: TrialSettings, pace: Pace, seen: Sequence[Seen]) -> Iterator[Check]:
    """Whether what was measured is what was planned (R10.6, R10.8)."""
    found = timed.sifted(seen, (settings.windows,))
    unknown = any(reading.host_bound is None for each in seen for reading in each.attempt.readings)
    got = f"{len(found.kept)} kept, {len(found.rejected)} rejected"
    want = f"{settings.windows} kept, at most {paired.rejection_cap(settings.windows)} rejected"
    yield holds("windows", None if unknown else got, want, _counts(settings, seen, found) or None)
    passes = 2 * pace.passes * pace.units * len(found.kept)
    few = at_least("passes", passes, pacing.LEAST_PASSES, "timed passes an arm")
    yield few if few.holds else few.model_copy(update={"holds": None})


def _counts(settings: TrialSettings, seen: Sequence[Seen], found: Sifted) -> bool:
    """Whether exactly the planned windows are left, and no more were rejected than may be."""
    whole = len(seen) == len(found.kept) + len(found.rejected)
    return whole and len(found.kept) == settings.windows and not found.over_cap


def _favoured(settings: TrialSettings, pace: Pace, seen: Sequence[Seen]) -> Iterator[Check | Note]:
    """The medians of the windows that count (R10.6). Raises ValueError for none."""
    kept = [seen[index].attempt.window for index in timed.sifted(seen, (settings.windows,)).kept]
    ratios = [paired.Reading(0, window.total, window.tail(short=pace.passes > 1)) for window in kept]
    found = paired.trial(ratios, Fraction(settings.tail_margin_ppm, PPM))
    yield holds("faster", str(found.total), "a median of total times above 1", found.total.exceeds(Fraction(1)))
    tail = found.tail.reaches(found.tail_limit)
    yield holds("tail", str(found.tail), f"a median of p95 of at least {paired.Mean(found.tail_limit)}", tail)
    yield Note(name="gain", got=f"{found.total} x", says="the incumbent's time over the candidate's: at most promising")


FIXES = {
    "pace": "make the cell smaller, or give the device more memory: every pass needs a set of its own",
    "within_tenfold": "profile the candidate; no window was measured",
    "warm_up": "screen again; the record of the warm-up is not whole",
    "windows": "keep the machine quiet: windows were rejected for what disturbed them",
    "passes": "plan more windows",
    "sets": "screen again; the record of the sets is not whole",
    "digests": "give the same bits in timed launches as in checked ones; keep nothing from launch to launch",
    "zones": "stay inside the buffers on every set",
    "inputs_unchanged": "write outputs and scratch only",
    "faster": "the candidate is not faster in total; profile it on this cell",
    "tail": "find the slow launches: the candidate's p95 is worse than the setting allows",
    "pairs": "compute the same result for every set of inputs, whatever their place",
    "exact": "read gate numeric: the timed outputs are farther from the exact ones than it allows",
}


class TrialGate(Gate[WatchedFacts, TrialSettings]):
    """A first look at the time."""

    id: ClassVar[str] = "trial"
    claim: ClassVar[str] = "In 21 paired windows both medians favour the candidate, and every timed launch is right."
    runs_on: ClassVar[Literal["host", "device"]] = "device"
    timed: ClassVar[bool] = True
    rules: ClassVar[tuple[Rule[Any, Any], ...]] = (
        Rule(1, TrialFacts, TrialSettings, checks, judge, FIXES),
        Rule(2, WatchedFacts, TrialSettings, checks, judge_watched, FIXES),
    )

    def measure(self, subject: Subject, bench: Bench, settings: TrialSettings) -> WatchedFacts:
        """A probe for the pace, then one session on as many sets as the pace needs."""
        seed = bench.seed("trial")
        flush = program.flush_bytes(subject)
        if flush is None or not pacing.fits(subject, Pace(1, LEAST_UNITS, flush)):
            return WatchedFacts(flush_bytes=flush)
        totals = pacing.probed(subject, bench, split(seed, "probe"), flush, settings.timeout_s)
        found: dict[str, object] = {f"probe_{arm}": bench.series(f"probe_{arm}", totals[arm]) for arm in ARMS}
        pace = pacing.cut(subject, totals, flush)
        if pace is not None:
            found |= {"pace": pace, **_windows(subject, bench, pace, split(seed, "windows"), settings)}
        return WatchedFacts.model_validate({"flush_bytes": flush, **found})


# Measurement ---------------------------------------------------------------------------------------------------------


def _windows(subject: Subject, bench: Bench, paced: Paced, seed: str, settings: TrialSettings) -> dict[str, object]:
    """Known outputs, warm-up and windows in one session; the exact values only after it has ended."""
    pace = paced.pace
    own = OwnBits(subject, permutation(split(seed, "chosen"), pace.sets)[0]) if subject.bits == "own" else None
    series: dict[str, Sequence[int]] = {}
    seen: list[Seen] = []
    with bench.session(subject, *ARMS) as session:
        both = PairedSession(subject, session, seed, pace, settings.timeout_s)
        series["inputs_before"] = both.inputs()
        if own is not None:
            own.see(pace.sets, both.known)
            series |= {f"known_{arm}": own.digests[arm] for arm in ARMS}
        series |= {f"warm_{arm}": units for arm, units in both.warm_up().items()}
        windows(session, both, 0, seen, (settings.windows,))
        series["inputs_after"] = both.inputs()
        chosen_seed = both.set_seed(own.chosen) if own is not None else ""
    around, names = timed.as_series(seen)
    del around["processes"]  # All of them are of one.
    found: dict[str, object] = {name: bench.series(name, values) for name, values in (series | around).items()}
    found |= names
    return found if own is None else found | {"pairs": own.pairs(), "chosen": own.judged(bench, chosen_seed)}
