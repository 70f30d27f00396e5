"""Synthetic trials: what a session of two arms of constant speed leaves behind, to be changed by tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from gates.trial import WatchedFacts
from qualify import program, timed
from qualify.gate import Surroundings
from qualify.pacing import Paced
from qualify.readings import Attempt, Reading
from qualify.seeds import coin, permutation
from qualify.subject import Subject
from qualify.timed import Seen
from tests.gates.build import series_ref, subject

FLUSH = program.flush_bytes(subject()) or 0


@dataclass
class Session:
    """A trial of two constant speeds, in nanoseconds a pass, of passes longer than a unit."""

    candidate_ns: int = 400_000
    incumbent_ns: int = 600_000
    windows: int = 21
    about: Subject = field(default_factory=subject)
    attempts: list[Attempt] = field(default_factory=list)
    series: dict[str, Sequence[int]] = field(default_factory=dict)
    seen: dict[int, Surroundings] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.units = program.units_of_a_segment(min(self.candidate_ns, self.incumbent_ns))
        self.sets = 2 * self.units
        self.attempts = [self.attempt(number) for number in range(self.windows)]
        for arm, pass_ns in (("candidate", self.candidate_ns), ("incumbent", self.incumbent_ns)):
            self.series[f"probe_{arm}"] = [3 * pass_ns] * 4
            self.series[f"warm_{arm}"] = [pass_ns] * 21
        kept = [1000 + number for number in range(self.sets * len(program.kept(self.about)))]
        self.series |= {"inputs_before": kept, "inputs_after": kept}

    def attempt(self, number: int) -> Attempt:
        """One window, its order and its sets drawn by its number."""
        candidate_first = coin(f"{number:016x}")
        arms = program.window_arms(candidate_first)
        return Attempt(candidate_first, tuple(self.reading(arm, 4 * number + i) for i, arm in enumerate(arms)))

    def reading(self, arm: str, number: int) -> Reading:
        """One segment of units as long as the arm's pass; a set's digest is its number."""
        pass_ns = self.candidate_ns if arm == "candidate" else self.incumbent_ns
        sets, start = permutation(f"{number:016x}", self.sets), 10**9 * (number + 1)
        ends = tuple(start + pass_ns * (unit + 1) for unit in range(self.units))
        return Reading(sets, start, ends, tuple((each,) for each in sets), 0, host_bound=False)

    def each(self, change: Callable[[int, str, Reading], Reading]) -> Session:
        """Change every reading, given its attempt's number and its arm."""
        self.attempts = [
            replace(
                attempt,
                readings=tuple(change(n, arm, r) for arm, r in zip(attempt.arms, attempt.readings, strict=True)),
            )
            for n, attempt in enumerate(self.attempts)
        ]
        return self

    def around(self, *windows: int, events: Sequence[str] = (), clock: str | None = None) -> Session:
        """What the parent saw around some windows."""
        self.seen |= dict.fromkeys(windows, Surroundings(frozenset(events), clock))
        return self

    def facts(self, **changes: object) -> tuple[WatchedFacts, dict[str, Sequence[int]]]:
        """The facts and their series as the gate leaves them."""
        quiet = Surroundings()
        own, names = timed.as_series([Seen(0, self.seen.get(n, quiet), each) for n, each in enumerate(self.attempts)])
        del own["processes"]
        series = {**self.series, **own}
        pace = Paced(passes=1, units=self.units, flush_bytes=FLUSH, more_bytes=None)
        refs = {name: series_ref(name, values) for name, values in series.items()}
        return WatchedFacts.model_validate({"flush_bytes": FLUSH, "pace": pace, **names, **refs, **changes}), series
