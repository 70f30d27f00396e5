"""The table of threats: each has a fixture that is there, and each fixture of an attack has its threat."""

import ast
from functools import cache
from pathlib import Path

import pytest

from qualify.cli import app
from tests.evidence import disguises, forgeries  # noqa: F401 -- they register their attacks.
from tests.evidence.attacks import ATTACKS
from tests.evidence.threats import THREATS
from tests.house.tree import ROOT

HERE = Path(__file__).parent


@cache
def functions(path: Path) -> frozenset[str]:
    return frozenset(node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("code", THREATS)
def test_every_threat_has_fixtures_that_are_there(code: str) -> None:
    attacks = {attack.apply.__name__ for attack in ATTACKS}
    for fixture in THREATS[code]:
        file, found, function = fixture.partition("::")
        assert function in functions((HERE / file).resolve()) if found else fixture in attacks, fixture


@pytest.mark.parametrize("family", ["C", "S", "P", "N", "M", "J"])
def test_no_code_of_a_family_is_left_out_without_a_reason(family: str) -> None:
    """P18: modes and owners are not covered, which the report says. J05, J13: integers are whole, nothing is packed."""
    numbers = [int(code[1:]) for code in THREATS if code[0] == family]
    left_out = {f"{family}{number:02}" for number in range(1, max(numbers) + 1)} - set(THREATS)
    assert left_out <= {"P18", "J05", "J13"}


def test_verification_has_no_quicker_word() -> None:
    """No option makes `verify-evidence` look at less and still say verified."""
    (command,) = [each for each in app.registered_commands if each.name == "verify-evidence"]
    assert command.callback is not None
    assert set(command.callback.__annotations__) - {"return"} == {"runs", "workspace"}


def test_no_file_is_mapped_into_memory() -> None:
    """A file that is cut while it is mapped ends the process; one that is read does not."""
    assert not [path for path in (ROOT / "qualify/evidence").glob("*.py") if "mmap" in path.read_text()]
