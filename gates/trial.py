"""Gate trial: 21 paired windows, cheap and biased to pass; what they say is "promising", never an admission."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from qualify import paired, program, readings
from qualify.contract import Argument
from qualify.elements import DTYPES
from qualify.gate import Bench, Facts, Gate, Rule, Series, SeriesRef, Settings, at_least, holds
from qualify.model import Document, Name
from qualify.nearness import Bound, Compared, Distance, Element, checked, close, remoteness, under_cap, whole
from qualify.paired_session import ARMS, Known, PairedSession, arena_bytes, probe
from qualify.program import LEAST_UNITS, Pace
from qualify.readings import Attempt
from qualify.seeds import permutation, split
from qualify.steps import ArmName
from qualify.subject import Subject
from qualify.verdict import Check, Note

#: A candidate that is slower by more than this is not worth windows (R10.1).
HOPELESS = 10
#: Timed passes of each arm, so that a tail is more than one bad moment (R10.1).
LEAST_PASSES = 100
#: A pass of less than about 0.3 us would need more sets than this; no launch is that short.
MOST_SETS = 8192
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


class Paced(Document):
    """How segments were cut. `more_bytes` is the arena of one unit more, where memory and not time set `units`."""

    passes: Annotated[int, Field(ge=1)]
    units: Annotated[int, Field(ge=1)]
    flush_bytes: Annotated[int, Field(ge=0)]
    more_bytes: int | None


class Pair(Document):
    """Both arms' untimed outputs of every set beside each other: elements, those of another class, the farthest."""

    output: Name
    elements: int
    other_class: int
    farthest: Element | None


class Chosen(Document):
    """One set, drawn by the run's seed, beside its exact values."""

    set: Annotated[int, Field(ge=0)]
    outputs: tuple[Distance, ...]


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
    if facts.probe_candidate is None or facts.probe_incumbent is None:
        yield holds("pace", None, "three units of each arm in the device's memory", None)
        return
    candidate_ns, incumbent_ns = (readings.pass_ns(series[f"probe_{arm}"]) for arm in ARMS)
    hopeful = candidate_ns <= HOPELESS * incumbent_ns
    got = f"{candidate_ns} ns against {incumbent_ns} ns"
    yield holds("within_tenfold", got, f"at most {HOPELESS} x the incumbent's pass", hopeful)
    if facts.pace is None:
        if hopeful:
            yield holds("pace", None, "three units of each arm in the device's memory", None)
        return
    yield _paced(subject, facts, min(candidate_ns, incumbent_ns))
    yield from _warmed(series)
    pace = Pace(facts.pace.passes, facts.pace.units, facts.pace.flush_bytes)
    attempts = readings.from_series(series, pace, len(program.outputs(subject)))
    yield from _sound(subject, facts, series, pace, attempts)
    yield from _decided(settings, pace, attempts)


def _paced(subject: Subject, facts: TrialFacts, pass_ns: int) -> Check:
    """Passes, units and flush are what R10.1 and R10.3 ask for; units fewer only where memory ends."""
    pace = facts.pace
    flush = program.flush_bytes(subject)
    if pace is None or flush is None or (pace.flush_bytes, facts.flush_bytes) != (flush, flush):
        return holds("pace", None, "a flush of twice the cache", None)
    passes, units = program.passes_of_a_unit(pass_ns), program.units_of_a_segment(pass_ns)
    budget = program.memory_budget(subject, flush)
    lowered = budget is not None and pace.more_bytes is not None and pace.more_bytes > budget
    enough = pace.units == units if pace.more_bytes is None else LEAST_UNITS <= pace.units < units and lowered
    got = f"{pace.units} units of {pace.passes} passes"
    return holds("pace", got, f"{units} units of {passes} passes", (enough and pace.passes == passes) or None)


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
    known = _known(subject, series, pace)
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
        yield _pairs(subject, facts, pace)
        yield _exact(subject, facts, pace)


def _known(subject: Subject, series: Series, pace: Pace) -> Mapping[ArmName, Mapping[int, tuple[int, ...]]] | None:
    """Each arm's digests of its untimed launches by set; None where both arms must agree instead."""
    if subject.bits == "identical":
        return None
    width = len(program.outputs(subject))
    found: dict[ArmName, Mapping[int, tuple[int, ...]]] = {}
    for arm in ARMS:
        values = series[f"known_{arm}"]
        if len(values) != pace.sets * width:
            raise ValueError(f"{len(values)} known digests of {pace.sets} sets")
        found[arm] = {number: tuple(values[number * width :][:width]) for number in range(pace.sets)}
    return found


def _pairs(subject: Subject, facts: TrialFacts, pace: Pace) -> Check:
    """Both arms' results of every set lie within twice the cap of each other, as two results under the cap do."""
    outputs, want = program.outputs(subject), "within twice the cap of each other on every set"
    found = facts.pairs or ()
    if [(each.output, each.elements) for each in found] != [(o.name, o.elements * pace.sets) for o in outputs]:
        return holds("pairs", None, want, None)
    cap = Bound(Fraction(0), 2 * Fraction(subject.numeric.cap_relative))
    far = [each.output for each, output in zip(found, outputs, strict=True) if not _pair_near(each, output, cap)]
    return holds("pairs", f"apart in {', '.join(far)}" if far else "near", want, not far)


def _pair_near(pair: Pair, output: Argument, cap: Bound) -> bool:
    if DTYPES[output.dtype].kind != "float":
        return pair.other_class == 0
    if pair.other_class < 0 or pair.farthest is None:
        raise ValueError(f"{pair.output}: {pair.other_class} elements of another class, and no farthest")
    return pair.other_class == 0 and under_cap(checked(pair.farthest, output.dtype), cap)


def _exact(subject: Subject, facts: TrialFacts, pace: Pace) -> Check:
    """One set is judged as gate numeric judges."""
    outputs, want = program.outputs(subject), "a set that is near the exact values"
    chosen = facts.chosen
    if (
        chosen is None
        or not 0 <= chosen.set < pace.sets
        or [d.output for d in chosen.outputs] != [o.name for o in outputs]
    ):
        return holds("exact", None, want, None)
    pairs = tuple(zip(chosen.outputs, outputs, strict=True))
    if not all(whole(found, output.dtype, output.elements, plain=False) for found, output in pairs):
        return holds("exact", None, want, None)
    far = [found.output for found, _ in pairs if not close(found, subject.numeric, plain=False)]
    return holds("exact", f"set {chosen.set}: {'far in ' + ', '.join(far) if far else 'near'}", want, not far)


def _decided(settings: TrialSettings, pace: Pace, attempts: Sequence[Attempt]) -> Iterator[Check | Note]:
    """The medians of the windows that count (R10.6)."""
    seen = readings.sifted(attempts, settings.windows)
    unknown = any(reading.host_bound is None for attempt in attempts for reading in attempt.readings)
    counted = (
        len(seen.kept) == settings.windows
        and not seen.over_cap
        and len(attempts) == len(seen.kept) + len(seen.rejected)
    )
    got = f"{len(seen.kept)} kept, {len(seen.rejected)} rejected"
    want = f"{settings.windows} kept, at most {paired.rejection_cap(settings.windows)} rejected"
    yield holds("windows", None if unknown else got, want, counted or None)
    passes = 2 * pace.passes * pace.units * len(seen.kept)
    few = at_least("passes", passes, LEAST_PASSES, "timed passes an arm")
    yield few if few.holds else few.model_copy(update={"holds": None})
    windows = [attempts[index].window for index in seen.kept]
    ratios = [paired.Reading(0, window.total, window.tail(short=pace.passes > 1)) for window in windows]
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


class TrialGate(Gate[TrialFacts, TrialSettings]):
    """A first look at the time."""

    id: ClassVar[str] = "trial"
    claim: ClassVar[str] = "In 21 paired windows both medians favour the candidate, and every timed launch is right."
    runs_on: ClassVar[Literal["host", "device"]] = "device"
    timed: ClassVar[bool] = True
    rules: ClassVar[tuple[Rule[TrialFacts, TrialSettings], ...]] = (
        Rule(1, TrialFacts, TrialSettings, checks, judge, FIXES),
    )

    def measure(self, subject: Subject, bench: Bench, settings: TrialSettings) -> TrialFacts:
        """A probe for the pace, then one session on as many sets as the pace needs."""
        seed = bench.seed("trial")
        flush = program.flush_bytes(subject)
        if flush is None or not _fits(subject, Pace(1, LEAST_UNITS, flush)):
            return TrialFacts(flush_bytes=flush)
        totals = _probe(subject, bench, split(seed, "probe"), flush, settings)
        found: dict[str, object] = {f"probe_{arm}": bench.series(f"probe_{arm}", totals[arm]) for arm in ARMS}
        pace = _pace(subject, totals, flush)
        if pace is not None:
            found |= {"pace": pace, **_windows(subject, bench, pace, split(seed, "windows"), settings)}
        return TrialFacts.model_validate({"flush_bytes": flush, **found})


# Measurement ---------------------------------------------------------------------------------------------------------


def _fits(subject: Subject, pace: Pace) -> bool:
    budget = program.memory_budget(subject, pace.flush_bytes)
    return budget is not None and arena_bytes(subject, pace) <= budget


def _probe(subject: Subject, bench: Bench, seed: str, flush: int, settings: TrialSettings) -> dict[ArmName, list[int]]:
    with bench.session(subject, *ARMS) as session:
        return probe(PairedSession(subject, session, seed, Pace(1, LEAST_UNITS, flush), settings.timeout_s))


def _pace(subject: Subject, probe_ns: Mapping[ArmName, Sequence[int]], flush: int) -> Paced | None:
    """The pace that R10.1 asks for, lowered to what fits; None if windows are pointless or do not fit."""
    candidate_ns, incumbent_ns = (readings.pass_ns(probe_ns[arm]) for arm in ARMS)
    if candidate_ns > HOPELESS * incumbent_ns:
        return None
    pass_ns = min(candidate_ns, incumbent_ns)
    passes, units, more_bytes = program.passes_of_a_unit(pass_ns), program.units_of_a_segment(pass_ns), None
    while units >= LEAST_UNITS and not _fits(subject, Pace(passes, units, flush)):
        more_bytes = arena_bytes(subject, Pace(passes, units, flush))
        units -= 1
    if units < LEAST_UNITS or Pace(passes, units, flush).sets > MOST_SETS:
        return None
    return Paced(passes=passes, units=units, flush_bytes=flush, more_bytes=more_bytes)


def _windows(subject: Subject, bench: Bench, paced: Paced, seed: str, settings: TrialSettings) -> dict[str, object]:
    """Known outputs, warm-up and windows in one session; the exact values only after it has ended."""
    pace = Pace(paced.passes, paced.units, paced.flush_bytes)
    own = _Own(subject, permutation(split(seed, "chosen"), pace.sets)[0]) if subject.bits == "own" else None
    series: dict[str, Sequence[int]] = {}
    with bench.session(subject, *ARMS) as session:
        both = PairedSession(subject, session, seed, pace, settings.timeout_s)
        series["inputs_before"] = both.inputs()
        if own is not None:
            for number in range(pace.sets):
                own.see(number, both.known(number))
            series |= {f"known_{arm}": own.digests[arm] for arm in ARMS}
        series |= {f"warm_{arm}": units for arm, units in both.warm_up().items()}
        series |= readings.as_series(both.windows(settings.windows))
        series["inputs_after"] = both.inputs()
        chosen_seed = both.set_seed(own.chosen) if own is not None else ""
    found: dict[str, object] = {name: bench.series(name, values) for name, values in series.items()}
    return found if own is None else found | {"pairs": own.pairs(), "chosen": own.judged(bench, chosen_seed)}


class _Own:
    """The untimed outputs of both arms, where bits are an arm's own."""

    def __init__(self, subject: Subject, chosen: int) -> None:
        self._subject, self.chosen = subject, chosen
        self.digests: dict[ArmName, list[int]] = {arm: [] for arm in ARMS}
        self._pairs: dict[str, Pair] = {}
        self._kept: dict[ArmName, dict[str, bytes]] = {}

    def see(self, number: int, known: Mapping[ArmName, Known]) -> None:
        """Take one set's outputs: digests of all, distances between the arms, the bytes of the chosen set only."""
        from qualify import comparison

        outputs = program.outputs(self._subject)
        data = {arm: dict(zip((o.name for o in outputs), known[arm].data, strict=True)) for arm in ARMS}
        for arm in ARMS:
            self.digests[arm] += known[arm].digests
        for output in outputs:
            other = comparison.oracle(data["incumbent"][output.name], output.dtype, output.dtype, output.shape)
            self._add(output.name, comparison.compare(data["candidate"][output.name], other))
        if number == self.chosen:
            self._kept = data

    def _add(self, name: str, found: Compared) -> None:
        old = self._pairs.get(name, Pair(output=name, elements=0, other_class=0, farthest=None))
        both = [each for each in (old.farthest, found.farthest) if each is not None]
        self._pairs[name] = Pair(
            output=name,
            elements=old.elements + found.elements,
            other_class=old.other_class + found.other_class,
            farthest=max(both, key=remoteness, default=None),
        )

    def pairs(self) -> tuple[Pair, ...]:
        """Both arms beside each other, output by output."""
        return tuple(self._pairs[output.name] for output in program.outputs(self._subject))

    def judged(self, bench: Bench, seed: str) -> Chosen:
        """The chosen set beside its exact values."""
        from qualify import comparison

        subject, exact = self._subject, bench.exact(self._subject, "ordinary", seed)
        outputs, kept = program.outputs(subject), self._kept
        found = comparison.distances(outputs, kept["candidate"], kept["incumbent"], exact, subject.numeric)
        return Chosen(set=self.chosen, outputs=tuple(distance for distance, _ in found))
