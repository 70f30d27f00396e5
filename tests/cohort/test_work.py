"""What a pass cannot do without: formulas of a cell, or nothing."""

from pathlib import Path

import pytest

from qualify.errors import InputError
from tests.cohort.bench import COHORT, refusal, subject, write


def test_bytes_and_operations_are_formulas_of_the_cell(tmp_path: Path) -> None:
    text = COHORT + 'moved_bytes: "8 * rows * cols"\noperations: rows * cols\n'
    found = subject(write(tmp_path, scale_cohort_yaml=text), "plain")
    assert (found.moved_bytes, found.operations) == (256, 32)
    nothing = subject(write(tmp_path), "plain")
    assert (nothing.moved_bytes, nothing.operations) == (None, None)


def test_a_formula_of_what_is_no_integer_of_the_cell_is_refused_at_its_line(tmp_path: Path) -> None:
    error = refusal(write(tmp_path, scale_cohort_yaml=COHORT + "operations: rows * depth\n"))
    assert (error.field, error.where.rpartition(":")[2]) == ("operations", str(COHORT.count("\n") + 1))


def test_no_operation_at_all_is_refused(tmp_path: Path) -> None:
    workspace = write(tmp_path, scale_cohort_yaml=COHORT + "operations: rows - 8\n")
    with pytest.raises(InputError, match="at least 1"):
        subject(workspace, "plain")
