"""`init` and `report`: a cohort that screens at once, and what its runs look like."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gates import GATES
from qualify import cohort, pipeline, starter
from qualify.errors import UsageError
from tests.cli.workspaces import ROOT, Workspace, make


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace that `init` made in an empty folder."""
    made = Workspace(tmp_path_factory.mktemp("begun"))
    done = made.here("init", "my_add")
    assert done.code == 0, done.err
    assert "now: qualify screen my_add" in done.out
    return made


def test_what_init_writes_screens_at_once_and_its_report_shows_it(begun: Workspace) -> None:
    done = begun.here("screen", "my_add", "--domain", "pocl-3.0", "--cell", "f32-7", "--until", "numeric")
    assert done.code == 0, done.out + done.err
    (run,) = begun.sealed()
    said = begun.here("report", run.name)
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert lines[0].startswith("## my_add in pocl-3.0/")
    assert [line.split()[1:6:2] for line in lines if line.startswith("| f32-7 ")] == [
        ["f32-7", "plain", "7"],
        ["f32-7", "mine", "7"],
    ]
    (digest,) = [line for line in lines if line.startswith("| digest ")]
    _, _, subjects, declared, measured, _ = (cell.strip() for cell in digest.split("|"))
    assert (subjects, declared) == ("2", "1.000")
    assert float(measured) > 0


def test_the_whole_cohort_composes_in_every_planned_domain(begun: Workspace) -> None:
    item = cohort.load(begun.path, "my_add")
    assert item.cell_ids == ("f32-262144", "f32-99991", "f32-7")
    assert set(pipeline.load(begun.path).row.gates) == set(GATES)


def test_init_touches_nothing_that_is_there(tmp_path: Path) -> None:
    made = make(tmp_path / "w", "simulated-1.0")
    before = (made.path / "pipelines.yaml").read_bytes()
    written = starter.init(made.path, "next_one")
    assert (made.path / "pipelines.yaml").read_bytes() == before
    assert "pipelines.yaml" not in written
    with pytest.raises(UsageError, match="already"):
        starter.init(made.path, "add")


@pytest.mark.parametrize("name", ["Add", "../add", "a-b", "", "common", "7up"])
def test_init_refuses_names_that_are_no_operation(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="expected a name"):
        starter.init(tmp_path, name)
    assert not list(tmp_path.iterdir())


def test_no_board_of_ours_comes_along(tmp_path: Path) -> None:
    starter.init(tmp_path, "add")
    assert "boards:" not in [line[:7] for line in (tmp_path / "pipelines.yaml").read_text().splitlines()]
    assert (tmp_path / "cohorts/common/opencl.h").read_bytes() == (ROOT / "cohorts/common/opencl.h").read_bytes()


def test_report_shows_nothing_of_a_run_that_does_not_verify(tmp_path: Path) -> None:
    made = Workspace(tmp_path)
    (tmp_path / "pipelines.yaml").touch()
    run = sorted((ROOT / "evidence/runs").iterdir())[0]
    shutil.copytree(run, tmp_path / "evidence/runs" / run.name)
    assert made.here("report").out.startswith("## ")
    edited = next((tmp_path / "evidence/runs").glob("*/run.json"))
    edited.write_bytes(edited.read_bytes() + b" ")
    done = made.here("report")
    assert (done.code, done.out) == (12, "")
    assert made.here("report", "no-such-run").code == 2
