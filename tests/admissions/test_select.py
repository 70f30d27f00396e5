"""`select` and `status`: what a dispatcher gets and what a person sees, open and closed."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from qualify import inventory, serving
from qualify.errors import Exit, UsageError
from tests.admissions import beds
from tests.cli.workspaces import Workspace


def domain(workspace: Workspace) -> str:
    return next(workspace.path.glob("cohorts/add/admissions/*.json")).stem.replace("--", "/")


def select(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], cell: str = "large", where: str | None = None
) -> tuple[Exit, dict[str, Any]]:
    capsys.readouterr()
    code = serving.select(workspace.path, "add", cell, where or domain(workspace))
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def reword(workspace: Workspace) -> None:
    path = workspace.path / "cohorts/add/fast.k"
    path.write_text(path.read_text() + "// reworded\n")


def test_a_dispatcher_gets_the_admitted_route_through_the_command(workspace: Workspace) -> None:
    done = workspace.here("select", "add", "large", "--domain", domain(workspace))
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["route"], found["kind"], found["closed"], found["bound"]) == ("fast", "measured", [], "1.250000")
    assert [each["path"] for each in found["fragments"]] == ["common/opencl.h", "add/fast.k"]
    assert found["launches"][0]["grid"] == [16, 1, 1]
    assert (found["trust"], found["elements"]) == ("cooperative", 1000)


def test_no_time_is_shown_of_what_is_proven(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = select(workspace, capsys, "tiny")
    assert (code, found["route"], found["kind"], found["bound"]) == (Exit.DONE, "fast", "proven", None)


def test_plain_serves_where_nothing_is_admitted(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = select(workspace, capsys, where="pocl-3.0/elsewhere")
    assert (code, found["route"], found["kind"], found["closed"]) == (Exit.DONE, "plain", "plain", [])
    assert "bound" not in found


def test_plain_serves_where_the_admission_is_closed_and_the_exit_code_is_loud(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    reword(workspace)
    code, found = select(workspace, capsys)
    assert (code, found["route"]) == (Exit.REJECTED, "plain")
    assert found["closed"][0].startswith("cohorts/add/fast.k moved")
    assert [each["path"] for each in found["fragments"]] == ["common/opencl.h", "add/plain.k"]
    shutil.rmtree(workspace.path / "evidence")
    code, found = select(workspace, capsys)
    assert (code, found["route"]) == (Exit.EVIDENCE, "plain")


@pytest.mark.parametrize(
    ("operation", "cell", "where", "says"),
    [("mul", "large", "", "an operation"), ("add", "huge", "", "a cell of add"), ("add", "large", "x", "a domain")],
)
def test_what_is_not_there_is_refused(workspace: Workspace, operation: str, cell: str, where: str, says: str) -> None:
    with pytest.raises(UsageError, match=f"expected {says}"):
        serving.select(workspace.path, operation, cell, where or domain(workspace))


def status(workspace: Workspace, capsys: pytest.CaptureFixture[str], later: timedelta) -> list[list[str]]:
    """The table's rows."""
    capsys.readouterr()
    assert inventory.status(workspace.path, None, datetime.now(UTC) + later) is Exit.DONE
    lines = capsys.readouterr().out.splitlines()
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]


def test_status_shows_every_cell_in_every_domain(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    workspace.replace("pipelines.yaml", "native}\n", "native}\n  - {toolkit: cuda-13.2, arch: sm_90}\n")
    where, board = domain(workspace), beds.board(workspace)
    rows = status(workspace, capsys, timedelta(days=3))
    assert rows == [
        ["add", "large", where, "fast", "measured, at least 1.250000 x", "1000", "3 d", board, ""],
        ["add", "ragged", where, "fast", "measured, at least 1.250000 x", "77", "3 d", board, ""],
        ["add", "tiny", where, "fast", "proven", "7", "3 d", board, ""],
        *(["add", cell, "cuda-13.2/sm_90", "plain", "none", "", "", "", ""] for cell in ("large", "ragged", "tiny")),
    ]


def test_status_says_what_closed_an_admission(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    reword(workspace)
    first = status(workspace, capsys, timedelta(hours=2))[0]
    assert first[3:7] == ["plain", "closed", "1000", "2 h"]
    assert first[8].startswith("cohorts/add/fast.k moved")


def test_status_through_the_command_without_admissions(screened: Workspace) -> None:
    done = screened.here("status")
    assert done.code == 0, done.err
    assert "pocl-3.0/native" in done.out


def export(workspace: Workspace, *words: str) -> tuple[int, str]:
    done = workspace.here("export", "add", "--domain", domain(workspace), *words)
    return done.code, done.out


def test_an_export_says_of_every_cell_what_select_says(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = export(workspace)
    assert (code, json.loads(out)) == (
        0,
        {cell: select(workspace, capsys, cell)[1] for cell in ("large", "ragged", "tiny")},
    )


def test_a_header_has_a_row_a_cell_and_a_closed_cell_is_plain_in_it(workspace: Workspace) -> None:
    code, header = export(workspace, "--c")
    assert code == 0
    assert header.count('ADD_FAST, "') == 3
    reword(workspace)
    code, header = export(workspace, "--c")
    assert code == 10
    assert header.count("ADD_PLAIN, 0}") == 3
    assert "ADD_FAST" not in header
