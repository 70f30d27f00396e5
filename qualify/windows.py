"""One window of four segments, ABBA or BAAB, and the two ratios that it yields (R10.2).

Times are integer nanoseconds and ratios are exact: an incumbent's time over the candidate's, so above 1 favours the
candidate. What many windows decide is `qualify.paired`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise


@dataclass(frozen=True)
class Timed:
    """One segment's reading: from the start of its first launch to the end of its last, and its units."""

    total_ns: int
    units_ns: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.total_ns <= 0 or not self.units_ns or min(self.units_ns) <= 0:
            raise ValueError(f"a segment of {self.total_ns} ns in units of {self.units_ns} where times are positive")

    @property
    def adds_up(self) -> bool:
        """Whether the units make up the total within 1 %; no time may hide between them."""
        return abs(self.total_ns - sum(self.units_ns)) * 100 <= self.total_ns


@dataclass(frozen=True)
class Window:
    """Four segments in the order in which they ran: the arms are ABBA, or BAAB where the candidate is first."""

    candidate_first: bool
    segments: tuple[Timed, Timed, Timed, Timed]

    @property
    def incumbent(self) -> tuple[Timed, Timed]:
        """The incumbent's two segments."""
        return self._inner if self.candidate_first else self._outer

    @property
    def candidate(self) -> tuple[Timed, Timed]:
        """The candidate's two segments."""
        return self._outer if self.candidate_first else self._inner

    @property
    def total(self) -> Fraction:
        """d: the ratio of totals. A drift that is linear over the window cancels."""
        return Fraction(_total_ns(self.incumbent), _total_ns(self.candidate))

    def tail(self, *, short: bool) -> Fraction:
        """u: the ratio of the p95 of units; of the slower segment where a unit is several passes (`short`)."""
        if short:
            return Fraction(_slower_ns(self.incumbent), _slower_ns(self.candidate))
        return Fraction(_p95_ns(self.incumbent), _p95_ns(self.candidate))

    @property
    def _outer(self) -> tuple[Timed, Timed]:
        return self.segments[0], self.segments[3]

    @property
    def _inner(self) -> tuple[Timed, Timed]:
        return self.segments[1], self.segments[2]


def timed(start_ns: int, unit_end_ns: Sequence[int]) -> Timed:
    """A segment from its stamps: unit i is END_i - END_(i-1). Raises ValueError unless the stamps rise."""
    units = tuple(end - start for start, end in pairwise((start_ns, *unit_end_ns)))
    return Timed(sum(units), units)


def nearest_rank(values: Sequence[int], percent: int) -> int:
    """The smallest of `values` that at least `percent` of them do not exceed."""
    return sorted(values)[-(-len(values) * percent // 100) - 1]


def _total_ns(arm: tuple[Timed, Timed]) -> int:
    return sum(segment.total_ns for segment in arm)


def _slower_ns(arm: tuple[Timed, Timed]) -> int:
    return max(segment.total_ns for segment in arm)


def _p95_ns(arm: tuple[Timed, Timed]) -> int:
    return nearest_rank([unit for segment in arm for unit in segment.units_ns], 95)
