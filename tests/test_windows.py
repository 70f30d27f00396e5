"""One window: which arm ran where, and what its two ratios say."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualify.windows import Timed, Window, nearest_rank, timed


def segment(*units_ns: int) -> Timed:
    return Timed(sum(units_ns), units_ns)


def test_order_bit_says_whose_segments_are_outside() -> None:
    segments = (segment(10), segment(20), segment(30), segment(50))
    assert Window(False, segments).total == Fraction(10 + 50, 20 + 30)
    assert Window(True, segments).total == Fraction(20 + 30, 10 + 50)


def test_a_linear_drift_cancels() -> None:
    rising = (segment(1_000), segment(1_010), segment(1_020), segment(1_030))
    assert Window(False, rising).total == Window(True, rising).total == 1


@given(times_ns=st.tuples(*[st.integers(1, 10**9)] * 4), factor=st.integers(2, 10**6), candidate_first=st.booleans())
def test_another_unit_of_time_changes_nothing(
    times_ns: tuple[int, int, int, int], factor: int, candidate_first: bool
) -> None:
    a, b, c, d = times_ns
    window = Window(candidate_first, (segment(a), segment(b), segment(c), segment(d)))
    scaled = Window(
        candidate_first, (segment(a * factor), segment(b * factor), segment(c * factor), segment(d * factor))
    )
    assert (window.total, window.tail(short=True)) == (scaled.total, scaled.tail(short=True))


def test_tail_is_p95_of_both_segments_of_an_arm() -> None:
    steady = segment(*[100] * 10)
    one_slow = segment(*[100] * 9, 400)
    two_slow = segment(*[100] * 8, 400, 400)
    assert Window(False, (steady, steady, one_slow, steady)).tail(short=False) == 1  # 1 of 20 units lies above p95.
    assert Window(False, (steady, steady, two_slow, steady)).tail(short=False) == Fraction(1, 4)


def test_short_mode_tail_is_the_slower_segment() -> None:
    segments = (segment(90), segment(80), segment(120), segment(100))
    assert Window(False, segments).tail(short=True) == Fraction(100, 120)
    assert Window(True, segments).tail(short=True) == Fraction(120, 100)


@pytest.mark.parametrize(
    ("count", "rank"),
    [(1, 1), (6, 6), (12, 12), (19, 19), (20, 19), (24, 23), (40, 38), (41, 39)],
)
def test_nearest_rank_is_the_least_value_that_covers_the_share(count: int, rank: int) -> None:
    assert nearest_rank(list(range(count, 0, -1)), 95) == rank


def test_work_done_in_the_first_unit_counts_in_the_total() -> None:
    honest = segment(*[1_000] * 24)
    lump = segment(25_000, *[10] * 23)
    window = Window(False, (honest, lump, lump, honest))
    assert window.total < 1
    assert window.tail(short=False) > 1


def test_stamps_become_units_that_add_up() -> None:
    assert timed(100, (150, 210, 300)) == Timed(200, (50, 60, 90))
    assert timed(100, (150, 210, 300)).adds_up


def test_units_may_miss_one_percent_of_the_total_and_no_more() -> None:
    assert Timed(1_000, (990,)).adds_up
    assert not Timed(1_000, (989,)).adds_up
    assert not Timed(1_000, (1_011,)).adds_up


@pytest.mark.parametrize("ends", [(), (100,), (150, 150), (150, 140)])
def test_stamps_that_do_not_rise_are_refused(ends: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="times are positive"):
        timed(100, ends)


@pytest.mark.parametrize(("total", "units"), [(0, (1,)), (-5, (5,)), (5, (5, 0)), (5, ())])
def test_times_that_no_clock_gives_are_refused(total: int, units: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="times are positive"):
        Timed(total, units)
