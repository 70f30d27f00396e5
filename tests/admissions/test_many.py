"""Hundreds of admissions in several operations are checked side by side and told as one after the other."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.check import CELLS, make
from qualify.inventory import MANY_BYTES
from tests.cli.workspaces import clean

OPERATIONS = 3
#: The command, on as many cores as the first word says.
RUN = """
import os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv.pop(1))])
from qualify.cli import main
main()
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace = tmp_path_factory.mktemp("many")
    (workspace / "pipelines.yaml").touch()
    for number in range(OPERATIONS):
        make(workspace, f"operation_{number}")
    found = sum(path.stat().st_size for path in workspace.glob("cohorts/*/admissions/*.json"))
    assert found > MANY_BYTES
    return workspace


@pytest.fixture
def many(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "w"))


def check(workspace: Path, cores: int) -> tuple[int, str, str]:
    command = (sys.executable, "-c", RUN, str(cores), "check", "--workspace", str(workspace))
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=clean())
    return done.returncode, done.stdout, done.stderr


def test_many_are_told_alike_on_one_core_and_on_all(many: Path) -> None:
    count = OPERATIONS * CELLS
    alone, all_of_them = check(many, 1), check(many, os.cpu_count() or 1)
    assert alone == all_of_them
    assert (alone[0], alone[2]) == (0, "")
    assert alone[1].startswith(f"{count} open, 0 closed")


def test_a_cause_of_several_operations_is_told_once(many: Path) -> None:
    (many / "cohorts/common/opencl.h").write_text("/* reworded */\n")
    (many / "cohorts/operation_1/fast.k").write_text("/* reworded too */\n")
    alone, all_of_them = check(many, 1), check(many, os.cpu_count() or 1)
    assert alone == all_of_them
    code, out, _ = alone
    assert code == 10
    assert out.count("cohorts/common/opencl.h moved: ") == 1
    assert out.count("  closes operation_1 ") == 2 * CELLS
    assert out.splitlines()[-1].startswith(f"0 open, {OPERATIONS * CELLS} closed")


def test_what_cannot_be_read_is_refused_from_any_process(many: Path) -> None:
    (broken,) = many.glob("cohorts/operation_2/admissions/*.json")
    broken.write_bytes(broken.read_bytes()[:-9])
    alone, all_of_them = check(many, 1), check(many, os.cpu_count() or 1)
    assert alone == all_of_them
    assert alone[:2] == (2, "")
    assert "admissions as promote wrote them" in alone[2]
