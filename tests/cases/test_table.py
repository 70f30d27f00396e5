"""Every case has tests, and they are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cases.table import CASES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("case", CASES)
def test_its_tests_exist(case: str) -> None:
    what, named = CASES[case]
    assert what
    assert named
    for node in named:
        path, _, name = node.partition("::")
        text = (ROOT / path).read_text()
        assert re.search(rf"^def {name}\(", text, flags=re.MULTILINE), node


def test_cases_are_in_order_and_none_was_dropped() -> None:
    assert list(CASES) == sorted(CASES)
    assert len(CASES) == 52


def test_every_file_of_a_case_is_read_by_a_test() -> None:
    """Inputs that nothing reads cover nothing."""
    texts = "".join(path.read_text() for path in ROOT.glob("tests/**/*.py"))
    files = [path.name for path in (ROOT / "tests/data/cases").iterdir() if path.name != "README.md"]
    assert {name[:3] for name in files} <= set(CASES)
    assert [name for name in files if name not in texts] == []
