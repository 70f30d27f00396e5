"""The paired decision: exact null, exact bound, and the rules of R10.6 and R10.7."""

from __future__ import annotations

import ast
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualify import paired, windows
from qualify.paired import Mean, Reading, signed_rank

ONE = Fraction(1)
PERCENT = Fraction(1, 100)
LIMIT = paired.delta(None, ONE)

#: Few distinct values, so that ties, zeros and ratios at the limit are the rule.
coarse = st.builds(Fraction, st.integers(1, 6), st.integers(1, 6))
#: Times of a real clock: every ratio distinct, some only far behind the precision of a float.
fine = st.builds(Fraction, st.integers(10**18, 10**18 + 50), st.integers(10**18, 10**18 + 50))
ratios = st.one_of(st.lists(coarse, min_size=5, max_size=14), st.lists(fine, min_size=5, max_size=14))
levels = st.sampled_from([Fraction(1, 10), Fraction(1, 20), PERCENT])


def means(values: list[Fraction]) -> list[Mean]:
    return [Mean(value) for value in values]


def session(windows: int = 101, processes: int = 11, gain: Fraction = Fraction(102, 100)) -> list[Reading]:
    """A clear winner: every window of every process within 0.1 % of `gain`, tails equal."""
    sizes = paired.spread(windows, processes)
    order = [process for process, size in enumerate(sizes) for _ in range(size)]
    return [
        Reading(process, gain * Fraction(100_000 + index % 7, 100_000), ONE + Fraction(index % 5, 1_000))
        for index, process in enumerate(order)
    ]


def decide(readings: list[Reading], limit: Fraction = LIMIT, level: Fraction = PERCENT) -> paired.Decision:
    return paired.decide(readings, windows=101, level=level, limit=limit, tail_margin=PERCENT)


# The null distribution


@pytest.mark.parametrize(
    ("n", "level", "least", "exact_ppm"),
    [
        (11, Fraction(5, 100), 53, 41_504),
        (11, PERCENT, 59, 9_277),
        (21, Fraction(5, 100), 164, 47_900),
        (21, PERCENT, 182, 9_737),
        (21, Fraction(1, 1000), 201, 929),
        (101, Fraction(5, 100), 3062, 49_916),
        (101, PERCENT, 3261, 9_930),
        (101, Fraction(9, 1000), 3272, 8_966),
        (101, Fraction(1, 1000), 3480, 991),
    ],
)
def test_smallest_rejecting_rank_sums(n: int, level: Fraction, least: int, exact_ppm: int) -> None:
    assert paired.critical(n, level) == least
    assert round(Fraction(paired.patterns_at_least(n)[least], 2**n) * 1_000_000) == exact_ppm


@pytest.mark.parametrize("n", range(1, 12))
def test_null_distribution_equals_full_enumeration(n: int) -> None:
    sums = [sum(rank for rank, sign in enumerate(signs, start=1) if sign) for signs in product((0, 1), repeat=n)]
    counted = tuple(sum(found >= least for found in sums) for least in range(n * (n + 1) // 2 + 1))
    assert paired.patterns_at_least(n) == counted


@given(values=st.lists(coarse, min_size=1, max_size=9), level=st.sampled_from([Fraction(1, 4), Fraction(1, 20)]))
def test_level_holds_over_all_sign_patterns_with_ties_and_zeros(values: list[Fraction], level: Fraction) -> None:
    least = paired.critical(len(values), level)
    flips = product((1, -1), repeat=len(values))
    sums = [paired.rank_sum([v**sign for v, sign in zip(values, signs, strict=True)], ONE) for signs in flips]
    rejected = sum(least is not None and found >= least for found in sums)
    assert rejected <= level * 2 ** len(values)


def test_without_ties_the_level_is_spent_in_full() -> None:
    values = [1 + Fraction(1, 10 + index) for index in range(11)]
    flips = product((1, -1), repeat=11)
    sums = [paired.rank_sum([v**sign for v, sign in zip(values, signs, strict=True)], ONE) for signs in flips]
    assert sum(found >= 59 for found in sums) == paired.patterns_at_least(11)[59] == 19


def test_too_few_ratios_never_reject() -> None:
    six, seven = means([Fraction(2)] * 6), means([Fraction(2)] * 7)
    assert not signed_rank(six, ONE, PERCENT).rejects
    assert signed_rank(six, ONE, PERCENT).bound is None
    assert signed_rank(seven, ONE, PERCENT).rejects


def test_ties_and_zeros_count_against_the_candidate() -> None:
    up, down = Fraction(3, 2), Fraction(2, 3)
    assert paired.rank_sum([up, down], ONE) == 1
    assert paired.rank_sum([up, ONE], ONE) == 2
    assert paired.rank_sum([ONE, ONE, ONE], ONE) == 0


@pytest.mark.parametrize("level", [Fraction(0), Fraction(1, 2), ONE, Fraction(-1, 100)])
def test_level_at_which_both_directions_could_pass_is_refused(level: Fraction) -> None:
    with pytest.raises(ValueError, match="level"):
        paired.critical(21, level)


@pytest.mark.parametrize("n", [0, paired.MAX_RATIOS + 1])
def test_number_of_ratios_that_no_session_has_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match="ratios"):
        paired.patterns_at_least(n)


@pytest.mark.parametrize("ratio", [Fraction(0), Fraction(-1)])
def test_ratio_that_times_cannot_have_is_refused(ratio: Fraction) -> None:
    with pytest.raises(ValueError, match="times are positive"):
        signed_rank(means([ONE, ratio, ONE]), ONE, PERCENT)


def test_nothing_that_decides_is_a_float() -> None:
    for module in (paired, windows):
        nodes = list(ast.walk(ast.parse(Path(str(module.__file__)).read_text())))
        assert not [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, float)]
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        assert not (names | imported) & {"float", "numpy", "statistics"}


# The test and its bound


@given(values=ratios, limit=coarse, level=levels)
def test_bound_exceeds_the_limit_exactly_when_the_test_rejects(
    values: list[Fraction], limit: Fraction, level: Fraction
) -> None:
    found = signed_rank(means(values), limit, level)
    assert found.rejects == (found.bound is not None and found.bound.exceeds(limit))


@given(values=ratios, level=levels)
def test_a_limit_at_the_bound_is_not_exceeded(values: list[Fraction], level: Fraction) -> None:
    squares = [Mean(value**2) for value in values]
    bound = signed_rank(means(values), ONE, level).bound
    if bound is not None:
        assert not signed_rank(squares, bound.to_count(2), level).rejects
        assert signed_rank(squares, bound.to_count(2) * Fraction(10**40 - 1, 10**40), level).rejects


@given(values=ratios, limit=coarse, level=levels)
def test_rank_sum_counts_the_pairwise_means_above_the_limit(
    values: list[Fraction], limit: Fraction, level: Fraction
) -> None:
    above = sum(a * b > limit**2 for index, a in enumerate(values) for b in values[index:])
    assert paired.rank_sum(values, limit) == above


@given(values=ratios, limit=coarse, squared=st.sets(st.integers(0, 13)))
def test_medians_of_even_and_odd_numbers_are_tested_together(
    values: list[Fraction], limit: Fraction, squared: set[int]
) -> None:
    mixed = [Mean(v**2, 2) if index in squared else Mean(v) for index, v in enumerate(values)]
    plain, found = (signed_rank(each, limit, Fraction(1, 10)) for each in (means(values), mixed))
    assert (found.rank_sum, found.rejects) == (plain.rank_sum, plain.rejects)
    assert str(found.bound) == str(plain.bound)


@given(values=ratios, level=levels)
def test_exchanged_arms_never_both_pass(values: list[Fraction], level: Fraction) -> None:
    forth, back = means(values), means([1 / value for value in values])
    assert not (signed_rank(forth, ONE, level).rejects and signed_rank(back, ONE, level).rejects)


@given(values=ratios, limits=st.tuples(coarse, coarse), level=levels)
def test_greater_limit_never_admits_more(
    values: list[Fraction], limits: tuple[Fraction, Fraction], level: Fraction
) -> None:
    low, high = (signed_rank(means(values), limit, level) for limit in sorted(limits))
    assert low.rejects or not high.rejects
    assert low.bound == high.bound


@given(values=ratios, order=st.randoms(use_true_random=False))
def test_order_of_the_windows_changes_nothing(values: list[Fraction], order: Random) -> None:
    shuffled = list(values)
    order.shuffle(shuffled)
    assert signed_rank(means(shuffled), ONE, PERCENT) == signed_rank(means(values), ONE, PERCENT)
    assert paired.hodges_lehmann(shuffled) == paired.hodges_lehmann(values)


@given(values=ratios)
def test_exchanged_arms_invert_the_estimates(values: list[Fraction]) -> None:
    inverse = [1 / value for value in values]
    assert paired.median(inverse).product == 1 / paired.median(values).product
    assert paired.hodges_lehmann(inverse).product == 1 / paired.hodges_lehmann(values).product


@given(values=st.lists(fine, min_size=1, max_size=21).filter(lambda values: len(values) % 2 == 1))
def test_differences_beyond_the_precision_of_a_float_are_ordered(values: list[Fraction]) -> None:
    assert paired.median(values).product == sorted(values)[len(values) // 2]


def test_hodges_lehmann_is_the_median_pairwise_mean() -> None:
    assert str(paired.hodges_lehmann([Fraction(1), Fraction(4), Fraction(16)])) == "4.00000"
    assert str(paired.hodges_lehmann([Fraction(1), Fraction(4)])) == "2.00000"


@pytest.mark.parametrize(
    ("mean", "nearest", "floor"),
    [
        (Mean(Fraction(1)), "1.00000", "1.00000"),
        (Mean(Fraction(2), 2), "1.41421", "1.41421"),
        (Mean(Fraction(11, 10) - Fraction(1, 10**9)), "1.10000", "1.09999"),
        (Mean(Fraction(11, 10) ** 2, 2), "1.10000", "1.10000"),
        (Mean(Fraction(11, 10) ** 4 - Fraction(1, 10**80), 4), "1.10000", "1.09999"),
        (Mean(Fraction(1234565, 10**6)), "1.23456", "1.23456"),
        (Mean(Fraction(9999999, 10**6)), "10.0000", "9.99999"),
        (Mean(Fraction(1, 16), 4), "0.500000", "0.500000"),
        (Mean(Fraction(123456789)), "123457000", "123456000"),
    ],
)
def test_texts_have_six_digits_and_a_bound_is_rounded_down(mean: Mean, nearest: str, floor: str) -> None:
    assert str(mean) == nearest
    assert mean.floor() == floor


# Attempts, processes, margin


def test_levels_of_all_attempts_stay_under_one_percent() -> None:
    assert paired.alpha(1) == Fraction(1, 200)
    assert paired.alpha(2, finalists=3) == Fraction(1, 1800)
    assert sum(paired.alpha(attempt) for attempt in range(1, 400)) < PERCENT
    assert sum(paired.alpha(1, finalists=7) for _ in range(7)) == paired.alpha(1)


@pytest.mark.parametrize(("attempt", "finalists"), [(0, 1), (1, 0), (-1, -1)])
def test_attempts_and_finalists_count_from_one(attempt: int, finalists: int) -> None:
    with pytest.raises(ValueError, match="count from 1"):
        paired.alpha(attempt, finalists)


@pytest.mark.parametrize(
    ("level", "count"),
    [(PERCENT, 11), (Fraction(1, 256), 11), (Fraction(1, 257), 12), (Fraction(2, 513), 12), (Fraction(1, 4096), 15)],
)
def test_processes_grow_as_the_level_shrinks(level: Fraction, count: int) -> None:
    assert paired.processes(level) == count


@pytest.mark.parametrize("attempt", [1, 2, 5, 30, 400])
def test_at_every_attempt_the_processes_can_reject_with_one_of_them_against(attempt: int) -> None:
    level = paired.alpha(attempt)
    medians = [Mean(Fraction(1001 + index, 1000)) for index in range(1, paired.processes(level))]
    assert signed_rank([*medians, Mean(Fraction(999_999, 1_000_000))], ONE, level).rejects


def test_windows_are_spread_evenly() -> None:
    assert paired.spread(101, 11) == (10, 10, *(9,) * 9)
    assert paired.spread(21, 1) == (21,)
    with pytest.raises(ValueError, match="cannot be spread"):
        paired.spread(10, 11)


def test_limit_is_the_greater_of_margin_and_floor() -> None:
    assert paired.delta(None, ONE) == Fraction(1001, 1000)
    assert paired.delta(200, ONE) == Fraction(10_002, 10_000)
    assert paired.delta(200, Fraction(11, 10)) == Fraction(11, 10)
    with pytest.raises(ValueError, match="margin"):
        paired.delta(0, ONE)


# The decision


def test_clear_winner_is_admitted() -> None:
    decision = decide(session())
    assert decision.admits
    assert decision.bound is not None
    assert decision.bound.exceeds(LIMIT)
    assert decision.bound.floor() == "1.02002"
    assert str(decision.speed_up) == "1.02003"
    assert decision.windows.p == Fraction(1, 2**101)


def test_bound_must_reach_the_floor_not_the_estimate() -> None:
    readings = session(gain=Fraction(110_000, 100_000))
    lower = [replace(r, total=r.total - Fraction(r.process % 3, 50)) for r in readings]
    limit = paired.delta(None, Fraction(108, 100))
    assert decide(lower).speed_up.exceeds(limit)
    assert not decide(lower, limit=limit).admits
    assert decide(readings, limit=limit).admits


def test_identical_arms_are_not_admitted() -> None:
    assert not decide([replace(r, total=ONE) for r in session()]).admits


def test_gain_within_the_margin_is_not_admitted() -> None:
    assert not decide(session(gain=Fraction(10_009, 10_000))).admits


def test_worse_tail_closes_a_faster_total() -> None:
    worse = [replace(r, tail=r.tail * Fraction(98, 100)) for r in session()]
    decision = decide(worse)
    assert decision.windows.rejects
    assert not decision.tails.rejects
    assert not decision.process_tails.rejects
    assert not decision.admits


def test_gain_of_some_processes_only_is_not_admitted() -> None:
    decision = decide([replace(r, total=r.total if r.process < 7 else 1 / Fraction(1005, 1000)) for r in session()])
    assert decision.windows.rejects
    assert not decision.process_windows.rejects
    assert not decision.admits


def test_tail_that_is_worse_in_some_processes_is_not_admitted() -> None:
    decision = decide([replace(r, tail=r.tail if r.process < 7 else Fraction(988, 1000)) for r in session()])
    assert decision.tails.rejects
    assert not decision.process_tails.rejects
    assert not decision.admits


def test_bound_is_the_smaller_of_windows_and_processes() -> None:
    decision = decide([replace(r, total=r.total + Fraction(r.process, 100)) for r in session()])
    assert decision.windows.bound is not None
    assert decision.process_windows.bound is not None
    bounds = {decision.windows.bound.floor(), decision.process_windows.bound.floor()}
    assert decision.bound is not None
    assert decision.bound.floor() == min(bounds)
    assert len(bounds) == 2


@pytest.mark.parametrize(
    "readings",
    [
        session()[:100],
        [*session(), session()[-1]],
        session(processes=10),
        [replace(r, process=0) if r.process == 1 and index % 2 else r for index, r in enumerate(session())],
    ],
    ids=["a window short", "a window more", "too few processes", "uneven"],
)
def test_windows_that_were_not_so_planned_admit_nothing(readings: list[Reading]) -> None:
    assert not decide(readings).layout_holds
    assert not decide(readings).admits


def test_smaller_level_needs_more_processes() -> None:
    assert not decide(session(), level=paired.alpha(40)).admits
    assert decide(session(processes=21), level=paired.alpha(40)).admits


def test_limit_without_a_margin_is_refused() -> None:
    with pytest.raises(ValueError, match="margin"):
        decide(session(), limit=ONE)


def test_no_windows_decide_nothing() -> None:
    with pytest.raises(ValueError, match="no ratios"):
        decide([])


def test_trial_wants_both_medians() -> None:
    even = [Reading(0, ONE, Fraction(99, 100)) for _ in range(21)]
    ahead = [Reading(0, Fraction(1001, 1000), Fraction(99, 100)) for _ in range(21)]
    assert paired.trial(ahead, PERCENT).promising
    assert not paired.trial(even, PERCENT).promising
    assert not paired.trial([replace(r, tail=Fraction(9899, 10_000)) for r in ahead], PERCENT).promising
    assert not paired.trial([*ahead[:10], *even[:11]], PERCENT).promising
