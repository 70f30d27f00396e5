"""Imports point down: the contracts of pyproject.toml hold, and each of them would notice."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.house.tree import ROOT, pyproject

CONTRACTS: list[dict[str, Any]] = pyproject()["tool"]["importlinter"]["contracts"]
#: One planted import that each contract must refuse: file and line.
PLANTS = {
    "layers": ("qualify/verdict.py", "import qualify.plan"),
    "gates-independent": ("gates/digest.py", "import gates.compile"),
    "gates-see": ("gates/digest.py", "import qualify.engine"),
    "registry": ("qualify/engine.py", "import gates"),
    "workers-unimported": ("qualify/bench.py", "import qualify.workers.measure"),
    "workers-see": ("qualify/workers/measure.py", "import qualify.judgement"),
    "devices": ("qualify/show.py", "import pyopencl"),
    "no-numpy": ("qualify/judgement.py", "import numpy"),
}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = (Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo")
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)


def rows() -> list[set[str]]:
    """The modules of each row of the layers, top first."""
    layers = next(contract["layers"] for contract in CONTRACTS if contract["id"] == "layers")
    return [set(re.findall(r"\w+", row)) for row in layers]


def down_to(module: str) -> set[str]:
    """Every module from the top row to the module's own row."""
    return set().union(*rows()[: 1 + next(index for index, row in enumerate(rows()) if module in row)])


def test_every_contract_holds() -> None:
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_documented_rows_are_the_rows() -> None:
    table = re.findall(r"^\| (`.+?`) \|", (ROOT / "ARCHITECTURE.md").read_text(), flags=re.MULTILINE)
    documented = [set(re.findall(r"`(\w+)`", row)) for row in table]
    assert documented[: len(rows())] == rows()


def test_each_contract_refuses_its_planted_import(tmp_path: Path) -> None:
    assert PLANTS.keys() == {contract["id"] for contract in CONTRACTS}
    for package in ("qualify", "gates"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for file, line in PLANTS.values():
        with (tmp_path / file).open("a") as source:
            source.write(f"\n{line}\n")
    output = lint(tmp_path).stdout
    for contract in CONTRACTS:
        assert f"{contract['name']} BROKEN" in output, output


def test_a_gate_is_kept_from_the_plan_and_every_row_above_it() -> None:
    assert forbidden("gates-see") == down_to("plan") | {"workers"}


def test_a_worker_is_kept_from_verdicts_and_from_every_row_down_to_the_gate_but_the_channel() -> None:
    assert forbidden("workers-see") == down_to("gate") - {"channel", "toolkits", "documents"} | {"verdict", "gates"}


def forbidden(contract_id: str) -> set[str]:
    contract = next(contract for contract in CONTRACTS if contract["id"] == contract_id)
    return {name.removeprefix("qualify.") for name in contract["forbidden_modules"]}
