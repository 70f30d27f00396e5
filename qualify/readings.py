"""What paired sessions leave behind as series, and how a judge reads it again: windows, sets, digests.

One attempt is one window as it was measured, kept or not. The series hold attempt after attempt, four segments each,
so that everything that decides is derived from them and from the pace (R5.1, R5.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from operator import ne
from struct import unpack

from qualify.gate import Series
from qualify.program import LEAST_UNITS, Pace, window_arms
from qualify.steps import ArmName, Segment, Stamps
from qualify.windows import Timed, Window, timed

#: Readings of an arm before the warm-up may end, and after which it ends in any case (R10.1).
WARM_UNITS, MOST_WARM_UNITS = 20, 200
#: The medians of the last two tens of units differ by at most this, in percent (R10.1).
FLAT_PERCENT = 2
#: The series of attempts, by name.
SERIES = ("orders", "sets", "stamps", "digests", "damage", "host_bound")
SEGMENTS = 4


@dataclass(frozen=True)
class Reading:
    """One segment: its sets (lead-in, then timed), its stamps, one row of digests a set, and its checks."""

    sets: tuple[int, ...]
    start_ns: int
    unit_end_ns: tuple[int, ...]
    digests: tuple[tuple[int, ...], ...]
    damage_bytes: int
    host_bound: bool | None

    @property
    def timed(self) -> Timed:
        """Its total and its units. Raises ValueError unless the stamps rise."""
        return timed(self.start_ns, self.unit_end_ns)


@dataclass(frozen=True)
class Attempt:
    """One window as measured: four segments in order."""

    candidate_first: bool
    readings: tuple[Reading, ...]

    @property
    def arms(self) -> tuple[ArmName, ...]:
        """The arm of each segment."""
        return window_arms(self.candidate_first)

    @cached_property
    def window(self) -> Window:
        """The two ratios that it yields."""
        first, second, third, fourth = (reading.timed for reading in self.readings)
        return Window(self.candidate_first, (first, second, third, fourth))


def reading(step: Segment, stamps: Stamps) -> Reading:
    """One segment's record beside what was asked."""
    return Reading(
        sets=(*step.lead_in, *step.timed),
        start_ns=stamps.start_ns,
        unit_end_ns=stamps.unit_end_ns,
        digests=tuple(signed(row) for row in stamps.digests),
        damage_bytes=stamps.damage.bytes,
        host_bound=stamps.host_bound,
    )


def signed(digests: Sequence[str]) -> tuple[int, ...]:
    """Digests as int64 of a series."""
    return unpack(f">{len(digests)}q", bytes.fromhex("".join(digests)))


def as_series(attempts: Sequence[Attempt]) -> dict[str, list[int]]:
    """The series of attempts, by name."""
    readings = [reading for attempt in attempts for reading in attempt.readings]
    return {
        "orders": [int(attempt.candidate_first) for attempt in attempts],
        "sets": [number for reading in readings for number in reading.sets],
        "stamps": [stamp for reading in readings for stamp in (reading.start_ns, *reading.unit_end_ns)],
        "digests": [value for reading in readings for row in reading.digests for value in row],
        "damage": [reading.damage_bytes for reading in readings],
        "host_bound": [-1 if reading.host_bound is None else int(reading.host_bound) for reading in readings],
    }


def from_series(series: Series, pace: Pace, outputs: int) -> tuple[Attempt, ...]:
    """The attempts again. Raises ValueError for series that do not have the lengths of so many segments."""
    orders = series["orders"]
    count = SEGMENTS * len(orders)
    widths = {
        "sets": pace.sets,
        "stamps": 1 + pace.units,
        "digests": pace.sets * outputs,
        "damage": 1,
        "host_bound": 1,
    }
    if not set(orders) <= {0, 1}:
        raise ValueError("an order that is neither 0 nor 1")
    rows = {name: _rows(series[name], count, width, name) for name, width in widths.items()}
    launches = tuple(zip(*[iter(series["digests"])] * outputs, strict=True))
    digests = (launches[index * pace.sets : (index + 1) * pace.sets] for index in range(count))
    each = zip(rows["sets"], rows["stamps"], rows["damage"], rows["host_bound"], digests, strict=True)
    readings = iter([_reading(*row) for row in each])
    return tuple(Attempt(bool(order), tuple(islice(readings, SEGMENTS))) for order in orders)


def _rows(values: Sequence[int], count: int, width: int, name: str) -> list[Sequence[int]]:
    if len(values) != count * width:
        raise ValueError(f"{len(values)} values of {name} where {count} segments have {count * width}")
    return [values[index * width : (index + 1) * width] for index in range(count)]


def _reading(
    sets: Sequence[int],
    stamps: Sequence[int],
    damage: Sequence[int],
    host_bound: Sequence[int],
    digests: tuple[tuple[int, ...], ...],
) -> Reading:
    (damage_bytes,), (bound,) = damage, host_bound
    if bound not in {-1, 0, 1} or damage_bytes < 0:
        raise ValueError(f"host-bound {bound}, {damage_bytes} damaged bytes")
    held = None if bound == -1 else bool(bound)
    return Reading(tuple(sets), stamps[0], tuple(stamps[1:]), digests, damage_bytes, held)


def every_set_once(attempts: Iterable[Attempt], pace: Pace) -> bool:
    """Whether each segment used each set exactly once, lead-in and timed together (R10.4)."""
    every = set(range(pace.sets))
    readings = (reading for attempt in attempts for reading in attempt.readings)
    return all(len(each.sets) == pace.sets and set(each.sets) == every for each in readings)


def disagreements(attempts: Iterable[Attempt], known: Mapping[ArmName, Mapping[int, tuple[int, ...]]] | None) -> int:
    """Launches whose digests are not the known ones of their arm and set.

    Without `known` both arms and all windows must agree: the first digests seen of a set are the known ones (R10.5).
    """
    agreed: dict[int, tuple[int, ...]] = {}
    wrong = 0
    for attempt in attempts:
        for arm, each in zip(attempt.arms, attempt.readings, strict=True):
            wanted = agreed if known is None else known[arm]
            if tuple(map(wanted.get, each.sets)) == each.digests:
                continue  # Nearly always, so all are compared at once.
            if known is None:
                for number, row in zip(each.sets, each.digests, strict=True):
                    agreed.setdefault(number, row)
            wrong += sum(map(ne, map(wanted.get, each.sets), each.digests))
    return wrong


# Warm-up -------------------------------------------------------------------------------------------------------------


def median_ns(values: Sequence[int]) -> int:
    """The median of times, the lower of the middle two of an even number. Raises ValueError for none."""
    if not values or min(values) <= 0:
        raise ValueError(f"the median of {len(values)} times where all are positive")
    return sorted(values)[(len(values) - 1) // 2]


def pass_ns(probe_ns: Sequence[int]) -> int:
    """How long a pass takes by the totals of probing segments of LEAST_UNITS passes. Raises ValueError for none."""
    return max(median_ns(probe_ns) // LEAST_UNITS, 1)


def flat(units_ns: Sequence[int]) -> bool:
    """Whether the medians of the last two tens of units differ by at most 2 %."""
    if len(units_ns) < WARM_UNITS:
        return False
    before, after = median_ns(units_ns[-20:-10]), median_ns(units_ns[-10:])
    return abs(after - before) * 100 <= before * FLAT_PERCENT


def warm(units_ns: Sequence[int]) -> bool:
    """Whether an arm's warm-up may end."""
    return len(units_ns) >= WARM_UNITS and (flat(units_ns) or len(units_ns) >= MOST_WARM_UNITS)
