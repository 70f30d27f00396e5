"""Targets of CUDA by release, against the measured table."""

from pathlib import Path

import pytest

from qualify.targets import board, knows, limits, number, variants

TABLE = (Path(__file__).parent / "data/cases/B07.txt").read_text().splitlines()
NAMES = next(line for line in TABLE if line.startswith("ptxas ")).split()[1:]
ROWS = [line.split() for line in TABLE if len(line.split()) == len(NAMES) + 1 and line[0].isdigit()]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_measured_table(row: list[str]) -> None:
    major, minor = row[0].split(".")[:2]
    for name, mark in zip(NAMES, row[1:], strict=True):
        assert knows((int(major), int(minor)), f"sm_{name}") is (mark == "y"), name


def test_what_was_not_measured_is_unknown() -> None:
    assert len(ROWS) == 10
    assert knows((11, 7), "sm_80") is None
    assert knows((14, 0), "sm_90") is None
    assert knows((13, 2), "sm_130") is None
    assert knows((13, 3), "sm_90") is True
    assert knows((12, 3), "sm_120") is False
    assert knows((12, 7), "sm_100") is None


def test_names() -> None:
    assert (number("sm_90a"), number("sm_120"), number("compute_90"), number("sm_90x")) == (90, 120, None, None)
    assert (board("sm_90a"), board("sm_100f"), board("sm_100"), board("gfx906")) == ("sm_90", "sm_100", "sm_100", None)
    assert (variants("sm_90"), variants("sm_100"), variants("sm_80")) == (("sm_90a",), ("sm_100a", "sm_100f"), ())


def test_limits_of_a_target_and_of_its_variant_are_the_boards() -> None:
    new = (13, 2)
    assert limits("sm_90a", new) == limits("sm_90", new)
    assert (limits("sm_90", new).shared_bytes, limits("sm_120", new).shared_bytes) == (232_448, 101_376)
    assert limits("sm_88", new).shared_bytes is None
    assert limits("sm_88", new).block_threads == 1024
    assert [limits("sm_90", release).parameter_bytes for release in ((11, 8), (12, 1))] == [4096, 32_764]
