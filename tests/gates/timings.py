"""Synthetic measurements of gate timing: two arms of constant speed over several processes, to be changed by tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from qualify import program, timed
from qualify.contract import Timing
from qualify.gate import Surroundings
from qualify.pacing import Paced
from qualify.paired import spread
from qualify.paired_session import LongRun
from qualify.readings import Attempt, Reading
from qualify.seeds import coin, permutation
from qualify.steps import ArmName
from qualify.subject import Subject
from qualify.timed import Seen, TimedFacts
from tests.gates import beds
from tests.gates.beds import Bed, script
from tests.gates.build import series_ref, subject

FLUSH = program.flush_bytes(subject()) or 0
LONG_NS = 500_000_000


@cache
def order(number: int, sets: int) -> tuple[int, ...]:
    """The order of a segment's sets, drawn by its number: the same in every measurement."""
    return permutation(f"{number:016x}", sets)


@dataclass
class Measured:
    """Two constant speeds, in nanoseconds a pass, of passes longer than a unit; `ppm` moves single windows."""

    candidate_ns: int = 400_000
    incumbent_ns: int = 600_000
    wanted: tuple[int, ...] = spread(101, 11)
    about: Subject = field(default_factory=subject)
    windows: list[Seen] = field(default_factory=list)
    series: dict[str, Sequence[int]] = field(default_factory=dict)
    long: list[LongRun] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.units = program.units_of_a_segment(min(self.candidate_ns, self.incumbent_ns))
        self.sets = 2 * self.units
        places = [process for process, count in enumerate(self.wanted) for _ in range(count)]
        self.windows = [Seen(process, Surroundings(), self.attempt(n)) for n, process in enumerate(places)]
        count, kept = len(self.wanted), self.sets * len(program.kept(self.about))
        for arm in ("candidate", "incumbent"):
            self.series |= {
                f"probe_{arm}": [3 * self.pass_ns(arm)] * 4,
                f"warm_{arm}": [self.pass_ns(arm)] * 21 * count,
            }
        self.series |= {"loads": [n % 2 for n in range(count)], "warm_counts": [21] * 2 * count}
        self.series |= {"inputs": [1000 + n for n in range(kept)] * (count + 1)}
        self.series |= {"long_inputs": [1000 + n for n in range(kept)] * 2}
        self.long = [self.run(arm, 10**15 + n * 10**10) for n, arm in enumerate(program.window_arms(False) * 3)]

    def pass_ns(self, arm: str) -> int:
        return self.candidate_ns if arm == "candidate" else self.incumbent_ns

    def attempt(self, number: int) -> Attempt:
        """One window, its order and its sets drawn by its number."""
        candidate_first = coin(f"{number:016x}")
        arms = program.window_arms(candidate_first)
        return Attempt(candidate_first, tuple(self.reading(arm, 4 * number + i) for i, arm in enumerate(arms)))

    def reading(self, arm: str, number: int) -> Reading:
        """One segment of units as long as the arm's pass; a set's digest is its number."""
        sets, start = order(number, self.sets), 10**9 * (number + 1)
        ends = tuple(start + self.pass_ns(arm) * (unit + 1) for unit in range(self.units))
        return Reading(sets, start, ends, tuple((each,) for each in sets), 0, host_bound=False)

    def run(self, arm: str, start: int) -> LongRun:
        """A slice of a run in a row, a third of half a second, and what its request and answer take."""
        rounds = -(-LONG_NS // (3 * self.sets * self.pass_ns(arm)))
        took, sets = rounds * self.sets * self.pass_ns(arm), tuple(range(self.sets))
        reading = Reading(sets, start, (start + took,), tuple((each,) for each in sets), 0, host_bound=False)
        return LongRun(rounds * self.sets, took + 100_000, reading)

    def each(self, change: Callable[[Seen, ArmName, Reading], Reading]) -> Measured:
        """Change every reading, given its window and its arm."""
        self.windows = [replace(seen, attempt=self._changed(seen, change)) for seen in self.windows]
        return self

    def _changed(self, seen: Seen, change: Callable[[Seen, ArmName, Reading], Reading]) -> Attempt:
        pairs = zip(seen.attempt.arms, seen.attempt.readings, strict=True)
        return replace(seen.attempt, readings=tuple(change(seen, arm, reading) for arm, reading in pairs))

    def around(self, *windows: int, events: Sequence[str] = (), clock: str | None = None) -> Measured:
        """What the parent saw around some windows."""
        for at in windows:
            self.windows[at] = replace(self.windows[at], around=Surroundings(frozenset(events), clock))
        return self

    def facts(self, **changes: object) -> tuple[TimedFacts, dict[str, Sequence[int]]]:
        """The facts and their series as the gate leaves them."""
        own, names = timed.as_series(self.windows)
        series: dict[str, Sequence[int]] = {**self.series, **own, **timed.long_series(self.long)}
        kept = timed.sifted(self.windows, self.wanted).kept
        spans = timed.spans([self.windows[at].attempt.window for at in kept])
        pace = Paced(passes=1, units=self.units, flush_bytes=FLUSH, more_bytes=None)
        refs = {name: series_ref(name, values) for name, values in series.items()}
        fields = {"flush_bytes": FLUSH, "pace": pace, **names, **spans, **refs, **changes}
        return TimedFacts.model_validate(fields), series


def slower(reading: Reading, ppm: int) -> Reading:
    """A reading in which everything takes so much longer."""
    ends = tuple(
        reading.start_ns + (end - reading.start_ns) * (1_000_000 + ppm) // 1_000_000 for end in reading.unit_end_ns
    )
    return replace(reading, unit_end_ns=ends)


def disturbed(number: int, more: int, **seen: Any) -> Measured:
    """A measurement in which the first windows of the first process were disturbed, and so many more measured."""
    found = Measured(wanted=(10 + more, *spread(101, 11)[1:])).around(*range(number), **seen)
    found.wanted = spread(101, 11)
    return found


def host_bound(measured: Measured, windows: int, value: bool | None) -> Measured:
    places = [seen.attempt for seen in measured.windows[:windows]]
    return measured.each(lambda seen, _, r: replace(r, host_bound=value) if seen.attempt in places else r)


def long(measured: Measured, **changes: Any) -> Measured:
    """Change the candidate's slices, the second and third of each block."""
    measured.long = [run._replace(**changes) if at % 4 in (1, 2) else run for at, run in enumerate(measured.long)]
    return measured


def stretched(run: LongRun, parts: int) -> LongRun:
    """A run that took so many thousandths of its time by both clocks."""
    start, end = run.reading.start_ns, run.reading.unit_end_ns[0]
    reading = replace(run.reading, unit_end_ns=(start + (end - start) * parts // 1000,))
    return run._replace(parent_ns=run.parent_ns * parts // 1000, reading=reading)


def change_one(measured: Measured, process: int, arm: str, **fields: Any) -> Measured:
    """Change the readings of one arm in the windows of one process."""
    return measured.each(lambda seen, who, r: replace(r, **fields) if (seen.process, who) == (process, arm) else r)


#: Three processes, and a level that three can reach; the parent's clock and what it may differ by on a busy machine.
FEW: dict[str, Any] = {
    "windows": 18,
    "processes": 3,
    "alpha_ppm": 250_000,
    "long_run_ms": 60,
    "clock_tolerance_ppm": 900_000,
}


def timing(
    bed: Bed, candidate: bytes, incumbent: bytes | None = None, *, settings: dict[str, Any] = FEW, **changes: Any
) -> beds.Measured:
    """A hot subject of 32 elements, unless said otherwise: a cold one goes round 160 sets in its long runs."""
    fields = {"n": 32, "timing": Timing(cache="hot"), **changes}
    return bed.judge("timing", bed.subject(candidate, incumbent or script(pass_ns=600_000), **fields), **settings)
