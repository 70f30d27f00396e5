"""The level under disturbances, by simulation (`benchmarks/paired_level.py` runs the long version)."""

from __future__ import annotations

from fractions import Fraction

import pytest

from benchmarks import paired_level as simulation
from benchmarks.paired_level import Disturbance
from qualify import paired

REPLICATES = 300
LEVEL = Fraction(5, 100)  # Enough expected false admissions to see a level that is broken by half.
ONE = Fraction(1)
LIMIT = paired.delta(None, ONE)


def false_admissions(disturbance: Disturbance, limit: Fraction = ONE, gain: Fraction = ONE) -> int:
    sessions = simulation.simulate(disturbance, REPLICATES, seed=7, gain=gain)
    return simulation.admitted(sessions, lambda ratios, at: simulation.over_windows(ratios, at, LEVEL), limit)


def test_ratios_are_those_of_the_windows() -> None:
    sessions = simulation.simulate(simulation.drift, 2, seed=7)
    for session in range(2):
        assert sessions.ratios(session) == [window.total for window in sessions.windows(session)]


@pytest.mark.parametrize("name", simulation.KEPT)
def test_level_is_kept_under(name: str) -> None:
    assert false_admissions(simulation.KEPT[name]) <= simulation.most(REPLICATES, LEVEL)


@pytest.mark.parametrize("name", ["drift", "first segment"])
def test_level_is_kept_for_a_true_gain_of_just_the_margin(name: str) -> None:
    assert false_admissions(simulation.KEPT[name], LIMIT, gain=LIMIT) <= simulation.most(REPLICATES, LEVEL)


def test_without_the_lead_in_an_after_effect_breaks_the_level() -> None:
    assert false_admissions(simulation.after_effect_without_lead_in) > 2 * simulation.most(REPLICATES, LEVEL)


def test_bias_of_processes_is_caught_by_the_test_over_processes_only() -> None:
    sessions = simulation.simulate(simulation.process_bias, REPLICATES, seed=7)
    by_windows = simulation.admitted(sessions, lambda r, at: simulation.over_windows(r, at, LEVEL), ONE)
    by_both = simulation.admitted(sessions, lambda r, at: simulation.both(r, at, LEVEL), ONE)
    assert by_both <= simulation.most(REPLICATES, LEVEL) < by_windows


def test_true_gain_is_found_under_drift() -> None:
    sessions = simulation.simulate(simulation.drift, 50, seed=7, gain=Fraction(1005, 1000))
    assert simulation.admitted(sessions, simulation.both, LIMIT) == 50


def test_super_batch_is_slower_however_its_launches_look() -> None:
    windows = simulation.super_batch(seed=7)
    totals = [window.total for window in windows]
    assert not simulation.naive(totals, ONE)
    assert not simulation.over_windows(totals, ONE)
    assert simulation.over_windows([1 / total for total in totals], ONE)
    assert paired.median([window.tail(short=False) for window in windows]).exceeds(Fraction(2))
