"""Label-blind rejection of windows (R10.8): what disturbed a window counts, never how long it took."""

from __future__ import annotations

import pytest

from qualify import paired
from qualify.paired import Condition, sift


def conditions(process: int, count: int, *events: str, clock: str | None = "1980") -> list[Condition]:
    return [Condition(process, frozenset(events), clock) for _ in range(count)]


def test_quiet_session_keeps_every_window() -> None:
    found = sift(conditions(0, 10) + conditions(1, 11), (10, 11))
    assert found.kept == tuple(range(21))
    assert not found.missing
    assert not found.over_cap


@pytest.mark.parametrize("event", sorted(paired.REJECTING))
def test_disturbed_window_is_rejected_and_measured_again(event: str) -> None:
    seen = [*conditions(0, 4), *conditions(0, 1, event), *conditions(0, 5)]
    found = sift(seen, (10,))
    assert found.rejected == {4: (event,)}
    assert found.missing == {0: 1}
    assert sift([*seen, *conditions(0, 1)], (10,)).kept == (0, 1, 2, 3, 5, 6, 7, 8, 9, 10)


def test_power_cap_is_recorded_and_rejects_nothing() -> None:
    assert not sift(conditions(0, 10, "power-cap"), (10,)).rejected


def test_clock_state_off_the_majority_of_its_own_process_is_rejected() -> None:
    seen = [*conditions(0, 9), *conditions(0, 1, clock="1905"), *conditions(1, 10, clock="1905")]
    assert sift(seen, (10, 10)).rejected == {9: ("clock-state",)}


def test_without_a_majority_no_window_counts() -> None:
    found = sift([*conditions(0, 5), *conditions(0, 5, clock="1905")], (10,))
    assert not found.kept
    assert found.over_cap


def test_unreadable_clocks_are_a_state_like_any_other() -> None:
    assert not sift(conditions(0, 10, clock=None), (10,)).rejected
    assert sift([*conditions(0, 9), *conditions(0, 1, clock=None)], (10,)).rejected == {9: ("clock-state",)}


@pytest.mark.parametrize(("windows", "cap"), [(21, 2), (101, 10)])
def test_more_rejections_than_the_cap_put_the_session_in_doubt(windows: int, cap: int) -> None:
    good = conditions(0, windows)
    assert not sift([*conditions(0, cap, "thermal"), *good], (windows,)).over_cap
    assert sift([*conditions(0, cap + 1, "thermal"), *good], (windows,)).over_cap


def test_windows_beyond_the_planned_number_are_not_used() -> None:
    assert sift(conditions(0, 12), (10,)).kept == tuple(range(10))


def test_window_of_an_unplanned_process_is_refused() -> None:
    with pytest.raises(ValueError, match="process 2"):
        sift(conditions(2, 1), (10, 10))
