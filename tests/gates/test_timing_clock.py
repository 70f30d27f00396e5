"""Gate timing and the parent's own clock (R10.9): what long runs confirm, and what they cannot be read for."""

from dataclasses import replace
from typing import Any

import pytest

from qualify.timed import TimedFacts
from tests.gates.build import not_held, subject, verdict
from tests.gates.timings import Measured, long, stretched

Closed = dict[str, bool | None]


def judged(measured: Measured, settings: dict[str, Any] | None = None) -> Closed:
    facts, series = measured.facts()
    return not_held(verdict("timing", measured.about, facts, series, settings))


@pytest.mark.parametrize(("parts", "closed"), [(960, {}), (1025, {}), (1040, {"clock_ratio": None})])
def test_a_row_of_passes_shows_no_less_than_the_gain_of_the_windows(parts: int, closed: Closed) -> None:
    measured = Measured()
    measured.long = [stretched(run, parts) if at % 4 in (1, 2) else run for at, run in enumerate(measured.long)]
    assert judged(measured, {"long_run_ms": 450}) == closed
    assert not judged(measured, {"long_run_ms": 450, "clock_tolerance_ppm": 50_000})


@pytest.mark.parametrize(("parts", "holds"), [(960, None), (975, True), (1025, True), (1040, None)])
def test_identical_arms_are_as_far_apart_in_a_row_as_in_windows(parts: int, holds: bool | None) -> None:
    measured = Measured(600_000, 600_000)
    measured.long = [stretched(run, parts) if at % 4 in (1, 2) else run for at, run in enumerate(measured.long)]
    facts, series = measured.facts()
    found = verdict("timing", subject().model_copy(update={"role": "control"}), facts, series, {"long_run_ms": 400})
    assert {check.name: check.holds for check in found.checks}["clock_ratio"] is holds


def test_a_burst_of_other_work_in_one_block_decides_nothing() -> None:
    burst = Measured()
    burst.long[1:3] = [stretched(run, 4000) for run in burst.long[1:3]]
    assert not judged(burst)
    burst.long[5:7] = [stretched(run, 4000) for run in burst.long[5:7]]
    assert judged(burst) == {"clock_ratio": None}


def test_work_that_the_devices_clock_does_not_see_is_inconclusive() -> None:
    """Five times as long by the parent's clock: events on one queue, work on another."""
    slow = Measured()
    found = judged(long(slow, parent_ns=5 * slow.long[1].parent_ns))
    assert found == {"clocks": None, "clock_ratio": None}
    quick = Measured()
    assert judged(long(quick, parent_ns=quick.long[1].parent_ns - 100_001)) == {"clocks": None}


def test_long_runs_that_are_short_missing_or_wrong() -> None:
    neither = {"clocks": None, "clock_ratio": None}
    assert judged(Measured(), {"long_run_ms": 600}) == neither
    without = {name: None for name in TimedFacts.model_fields if name.startswith("long_")}
    facts, series = Measured().facts(**without)
    kept = {name: values for name, values in series.items() if not name.startswith("long_")}
    assert not_held(verdict("timing", subject(), facts, kept)) == neither
    other = Measured()
    wrong = replace(other.long[1].reading, digests=tuple((77,) for _ in range(6)))
    assert judged(long(other, reading=wrong)) == {"digests": False}
    damaged = Measured()
    assert judged(long(damaged, reading=replace(damaged.long[1].reading, damage_bytes=1))) == {"zones": False}
    twice = Measured()
    sets = replace(twice.long[1].reading, sets=(0, 0, 1, 2, 3, 4))
    assert judged(long(twice, reading=sets)) == {"facts": None}
