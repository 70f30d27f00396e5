"""What copies show of a board."""

import pytest

from qualify.ceilings import copy_per_s, launch_ns, quantum_ns


def test_the_best_copy_counts_its_bytes_twice() -> None:
    assert copy_per_s(1000, [20, 10, 30]) == 200 * 10**9
    for wrong in ([], [10, 0], [-1]):
        with pytest.raises(ValueError, match="positive"):
            copy_per_s(1000, wrong)


def test_a_launch_in_a_row_costs_what_the_row_takes() -> None:
    assert launch_ns([10, 20, 30, 41]) == 16
    for wrong in ([], [10], [20, 10]):
        with pytest.raises(ValueError, match="stamps"):
            launch_ns(wrong)


def test_a_clock_steps_by_what_divides_every_duration() -> None:
    assert quantum_ns([5, 37, 40, 136]) == 32
    for wrong in ([], [3, 3, 9, 9]):
        with pytest.raises(ValueError, match="no time"):
            quantum_ns(wrong)
