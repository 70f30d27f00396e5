"""A gate lives in five places; they agree."""

import re
from typing import Any

import pytest
import yaml

from gates import GATES
from qualify.gate import Gate
from tests.house.tree import ROOT


def sections() -> list[str]:
    return re.findall(r"^## `?([a-z]+)`?$", (ROOT / "docs/gates.md").read_text(), flags=re.MULTILINE)


def test_the_five_places_name_the_same_gates() -> None:
    pipelines: dict[str, Any] = yaml.safe_load((ROOT / "pipelines.yaml").read_text())
    tests = (ROOT / "tests/gates").glob("test_*.py")
    places = {
        "gates/__init__.py": set(GATES),
        "gates/<id>.py": {path.stem for path in (ROOT / "gates").glob("*.py")} - {"__init__"},
        "pipelines.yaml": set(pipelines["gates"]),
        "tests/gates/test_<id>.py": {path.stem.removeprefix("test_").partition("_")[0] for path in tests},
        "docs/gates.md": set(sections()),
    }
    everywhere = set().union(*places.values())
    missing = {place: sorted(everywhere - names) for place, names in places.items() if names != everywhere}
    assert not missing, f"missing: {missing}"


def test_the_documentation_has_the_order_of_the_table() -> None:
    assert sections() == list(GATES)


@pytest.mark.parametrize("name", GATES)
def test_a_gate_is_what_its_name_says(name: str) -> None:
    gate: Gate[Any, Any] = GATES[name]
    assert (gate.id, type(gate).__module__) == (name, f"gates.{name}")
    numbers = [rule.number for rule in gate.rules]
    assert numbers == sorted(set(numbers)), "rules are numbered upwards, newest last"
    assert gate.claim in (ROOT / "docs/gates.md").read_text(), "docs/gates.md states the claim in the gate's words"
