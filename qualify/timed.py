"""Facts of a paired measurement over several processes, and what a judge reads out of their series.

Gate timing leaves them, gate roofline reads them too. Series hold what was measured, in order, rejected windows too;
everything that decides is derived from them (R5.1, R5.3).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Protocol

from qualify import readings
from qualify.gate import Facts, Series, SeriesRef, Surroundings
from qualify.model import Document
from qualify.own_bits import Chosen, Pair
from qualify.pacing import Paced
from qualify.paired import Condition, Mean, Sifted, hodges_lehmann, sift
from qualify.paired_session import ARMS, LongRun
from qualify.program import Pace
from qualify.readings import SEGMENTS, Attempt, Reading
from qualify.steps import ArmName
from qualify.verdict import Note
from qualify.windows import Window

PPM = 1_000_000
#: Of the blocks that the parent's own clock timed, the same series as of windows, under names of their own.
LONG = "long_"
#: How the name of an event ends that a board does not tell.
UNKNOWN = " unknown"


class Span(Document):
    """The totals of an arm's kept segments, for gates that read no series of another: the least and the median."""

    fastest_ns: int
    median_ns: int


class TimedFacts(Facts):
    """What the processes of one subject saw.

    Of each process: `loads` (1 where the candidate was loaded first), `warm_counts` (units of the warm-up, the
    candidate's first), a row of `inputs` (a digest of everything that no launch may change; the first row is from
    before the first window). Of each window: `processes`, `events` (bits over `event_names`), `clocks` (an index into
    `clock_names`, -1 where nothing tells), and the series of `qualify.readings`. Of the long runs (R10.9) the
    same series again, their passes, and the parent's time.
    """

    flush_bytes: int | None
    probe_candidate: SeriesRef | None = None
    probe_incumbent: SeriesRef | None = None
    pace: Paced | None = None
    loads: SeriesRef | None = None
    warm_counts: SeriesRef | None = None
    warm_candidate: SeriesRef | None = None
    warm_incumbent: SeriesRef | None = None
    inputs: SeriesRef | None = None
    event_names: tuple[str, ...] = ()
    clock_names: tuple[str, ...] = ()
    processes: SeriesRef | None = None
    events: SeriesRef | None = None
    clocks: SeriesRef | None = None
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
    candidate: Span | None = None
    incumbent: Span | None = None
    long_passes: SeriesRef | None = None
    long_parent: SeriesRef | None = None
    long_inputs: SeriesRef | None = None
    long_orders: SeriesRef | None = None
    long_sets: SeriesRef | None = None
    long_stamps: SeriesRef | None = None
    long_digests: SeriesRef | None = None
    long_damage: SeriesRef | None = None
    long_host_bound: SeriesRef | None = None


@dataclass(frozen=True)
class Seen:
    """One window as measured: its process, what the parent saw around the board, and the window."""

    process: int
    around: Surroundings
    attempt: Attempt

    @property
    def condition(self) -> Condition:
        """What may reject it, blind to arms and times (R10.8)."""
        host = {"host-bound"} if any(reading.host_bound for reading in self.attempt.readings) else set()
        return Condition(self.process, self.around.events | host, self.around.clock)


def sifted(windows: Sequence[Seen], wanted: Sequence[int]) -> Sifted:
    """Which windows count, and what is still missing. Raises ValueError for a process that was not planned."""
    return sift([window.condition for window in windows], wanted)


# To series and back --------------------------------------------------------------------------------------------------


def as_series(windows: Sequence[Seen]) -> tuple[dict[str, list[int]], dict[str, tuple[str, ...]]]:
    """The series of windows, and the names that two of them point to."""
    events = sorted({event for window in windows for event in window.around.events})
    clocks = sorted({window.around.clock for window in windows} - {None}, key=str)
    series = readings.as_series([window.attempt for window in windows])
    series["processes"] = [window.process for window in windows]
    series["events"] = [
        sum(1 << bit for bit, name in enumerate(events) if name in window.around.events) for window in windows
    ]
    series["clocks"] = [-1 if (clock := window.around.clock) is None else clocks.index(clock) for window in windows]
    return series, {"event_names": tuple(events), "clock_names": tuple(map(str, clocks))}


class Named(Protocol):
    """Facts that name what two of their series point to."""

    @property
    def event_names(self) -> tuple[str, ...]:
        """What `events` has bits over."""
        ...

    @property
    def clock_names(self) -> tuple[str, ...]:
        """What `clocks` has indices into."""
        ...


def from_series(facts: Named, series: Series, pace: Pace, outputs: int) -> tuple[Seen, ...]:
    """The windows again. Raises ValueError for series that no measurement gives."""
    attempts = readings.from_series(series, pace, outputs)
    rows = zip(series["processes"], seen_events(facts, series), series["clocks"], attempts, strict=True)
    if any(after < before for before, after in pairwise(series["processes"])):
        raise ValueError("windows of a process after those of a later one")
    return tuple(
        Seen(process, Surroundings(events, _clock(facts.clock_names, clock)), attempt)
        for process, events, clock, attempt in rows
    )


def seen_events(facts: Named, series: Series) -> list[frozenset[str]]:
    """What was seen around each window. Raises ValueError for what has no name."""
    return [_events(facts.event_names, bits) for bits in series["events"]]


def notes(windows: Sequence[Seen], found: Sifted) -> Iterator[Note]:
    """Why windows were rejected, and whether the clocks' state is known."""
    if found.rejected:
        reasons = sorted({reason for each in found.rejected.values() for reason in each})
        yield Note(name="rejected", got=f"{len(found.rejected)} windows", says=", ".join(reasons))
    if any(window.around.clock is None for window in windows):
        yield Note(name="clock_state", got="unknown", says="nothing tells the state of this board's clocks")


def hidden(around: Iterable[frozenset[str]]) -> Iterator[Note]:
    """What of R10.8 the board did not tell of some window's events, which nothing of the kind can have rejected."""
    names = sorted({event for events in around for event in events if event.endswith(UNKNOWN)})
    if names:
        yield Note(name="watch", got=", ".join(names), says="what a board does not tell rejects no window")


def _events(names: Sequence[str], bits: int) -> frozenset[str]:
    if not 0 <= bits < 1 << len(names):
        raise ValueError(f"events {bits} of {len(names)} names")
    return frozenset(name for bit, name in enumerate(names) if bits >> bit & 1)


def _clock(names: Sequence[str], index: int) -> str | None:
    if not -1 <= index < len(names):
        raise ValueError(f"clock {index} of {len(names)} names")
    return None if index == -1 else names[index]


def long_series(runs: Sequence[LongRun]) -> dict[str, list[int]]:
    """The series of the long runs, in blocks of four, incumbent first and last."""
    blocks = [tuple(run.reading for run in runs[at : at + SEGMENTS]) for at in range(0, len(runs), SEGMENTS)]
    series = readings.as_series([Attempt(candidate_first=False, readings=block) for block in blocks])
    series |= {"passes": [run.passes for run in runs], "parent": [run.parent_ns for run in runs]}
    return {LONG + name: values for name, values in series.items()}


def long_runs(series: Series, outputs: int) -> tuple[LongRun, ...]:
    """The long runs again, in blocks of four. Raises ValueError for series that they do not leave."""
    own = {name.removeprefix(LONG): values for name, values in series.items() if name.startswith(LONG)}
    sets = len(own["sets"]) // max(SEGMENTS * len(own["orders"]), 1)
    attempts = readings.from_series(own, Pace(passes=sets // 2, units=1, flush_bytes=0), outputs)
    found = [reading for attempt in attempts for reading in attempt.readings]
    rows = zip(own["passes"], own["parent"], found, strict=True)
    runs = tuple(LongRun(passes, parent_ns, reading) for passes, parent_ns, reading in rows)
    for run in runs:
        if run.passes < sets or run.passes % sets or run.parent_ns <= 0 or sorted(run.reading.sets) != [*range(sets)]:
            raise ValueError(f"{run.passes} passes over {sets} sets in {run.parent_ns} ns")
    if not runs or any(attempt.candidate_first for attempt in attempts):
        raise ValueError(f"{len(runs)} long runs in another order than ABBA")
    return runs


def in_a_row(runs: Sequence[LongRun]) -> Fraction:
    """The incumbent's time of a pass over the candidate's by the parent's clock: the median of the blocks' ratios."""
    each = [Fraction(run.parent_ns, run.passes) for run in runs]
    blocks = [each[at : at + SEGMENTS] for at in range(0, len(each), SEGMENTS)]
    return sorted((one + four) / (two + three) for one, two, three, four in blocks)[(len(blocks) - 1) // 2]


def warm_ups(series: Series) -> list[dict[ArmName, Sequence[int]]]:
    """The warm-up's units, process by process. Raises ValueError if the counts are not those of the units."""
    counts = series["warm_counts"]
    found: list[dict[ArmName, Sequence[int]]] = [{} for _ in range(len(counts) // len(ARMS))]
    for place, arm in enumerate(ARMS):
        units, ends = series[f"warm_{arm}"], [0, *accumulate(counts[place :: len(ARMS)])]
        if len(counts) % len(ARMS) or min(counts, default=0) < 0 or ends[-1] != len(units):
            raise ValueError(f"{len(units)} units of {arm} where {ends[-1]} were counted")
        for process, (start, end) in enumerate(pairwise(ends)):
            found[process][arm] = units[start:end]
    return found


# What other gates read -----------------------------------------------------------------------------------------------


def spans(windows: Sequence[Window]) -> dict[str, Span]:
    """The least and the median total of each arm's segments in these windows; nothing for no windows."""
    if not windows:
        return {}
    totals = {
        "candidate": [segment.total_ns for window in windows for segment in window.candidate],
        "incumbent": [segment.total_ns for window in windows for segment in window.incumbent],
    }
    return {arm: Span(fastest_ns=min(ns), median_ns=readings.median_ns(ns)) for arm, ns in totals.items()}


def apart_ppm(facts: TimedFacts, series: Series, outputs: int) -> int:
    """By how much identical arms differ, in parts per million rounded up: the distance of the estimate from 1.

    Every window that nothing disturbed counts. Raises ValueError for facts without one.
    """
    if facts.pace is None:
        raise ValueError("no windows were measured")
    windows = from_series(facts, series, facts.pace.pace, outputs)
    counts = Counter(window.process for window in windows)
    kept = sifted(windows, [counts[process] for process in range(max(counts, default=-1) + 1)]).kept
    found = hodges_lehmann([windows[index].attempt.window.total for index in kept])
    return 1 + bisect_left(range(1, PPM), True, key=lambda ppm: _within(found, 1 + Fraction(ppm, PPM)))


def _within(found: Mean, limit: Fraction) -> bool:
    return not found.exceeds(limit) and found.reaches(1 / limit)


def rows(reading: Reading) -> dict[int, tuple[int, ...]]:
    """The digests of one segment by set."""
    return dict(zip(reading.sets, reading.digests, strict=True))
