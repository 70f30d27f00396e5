"""docs/gates.md says of every check what its rule says."""

import re
from pathlib import Path
from typing import Any

import pytest

from gates import GATES
from qualify.contract import Argument
from qualify.gate import Gate
from tests.gates.build import arguments, arm, kernel, subject

#: Checks that contract and board together make possible, so that no subject alone requires them.
WHERE_BOTH_STATE_IT = {"roofline": {"operations_floor"}}
DOCUMENT = Path(__file__).resolve().parents[1] / "docs/gates.md"
SUBJECTS = [
    subject(toolkit, bits=bits, role=role, arguments=passed)
    for toolkit in ("simulated-1.0", "pocl-3.0", "cuda-13.2")
    for bits in ("identical", "own")
    for role in ("plain", "candidate", "control")
    for passed in (arguments(), arguments()[:1])
]
SUBJECTS.append(subject("cuda-13.2", candidate=arm("wide", kernel(cooperative=True, cluster=(2, 1, 1)))))
SUBJECTS.append(
    subject(
        "cuda-13.2",
        arguments=(*arguments(), Argument(name="p", kind="struct", dtype="uint8", shape=(8,))),
    )
)


def table(gate: str) -> dict[str, str]:
    """Check and fix of each row in a gate's section."""
    section = DOCUMENT.read_text().split(f"\n## {gate}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([a-z_]+) \| (.+?) \| (.+) \|$", section, flags=re.MULTILINE)
    return {name: fix for name, holds, fix in rows if name != "check"}


@pytest.mark.parametrize("name", GATES)
def test_the_table_is_the_newest_rules(name: str) -> None:
    assert table(name) == dict(GATES[name].rule.fixes)


@pytest.mark.parametrize("name", GATES)
def test_every_required_check_has_a_fix_and_is_required_somewhere_or_set(name: str) -> None:
    gate: Gate[Any, Any] = GATES[name]
    for rule in gate.rules:
        required = frozenset().union(*(rule.checks(about) for about in SUBJECTS))
        assert required <= set(rule.fixes)
        assert set(rule.fixes) - required <= {*rule.settings.model_fields, *WHERE_BOTH_STATE_IT.get(name, ())}
