"""The outcome is computed from checks: nothing, or anything unknown, never passes."""

import itertools

from qualify.verdict import Check, Verdict, combine


def check(holds: bool | None) -> Check:
    return Check(name="x", got="1", want="1", holds=holds)


def test_every_combination_of_three_checks() -> None:
    for states in itertools.product((True, False, None), repeat=3):
        outcome = Verdict(checks=tuple(map(check, states))).outcome
        want = "fail" if False in states else "inconclusive" if None in states else "pass"
        assert outcome == want, states


def test_no_check_at_all_is_inconclusive() -> None:
    assert Verdict(checks=()).outcome == "inconclusive"


def test_gates_combine_the_same_way() -> None:
    assert combine([]) == "inconclusive"
    assert combine(["pass", "pass"]) == "pass"
    assert combine(["pass", "inconclusive"]) == "inconclusive"
    assert combine(["inconclusive", "fail", "pass"]) == "fail"
