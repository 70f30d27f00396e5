"""`prove`: bits alone against plain, where this board has no admission; what it refuses, and what others then say."""

import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from qualify import inventory, serving
from qualify.domain import Board
from qualify.errors import Exit, NothingSelected, UsageError
from qualify.evidence.audit import verify_store
from qualify.evidence.store import Store
from qualify.finalists import Refused
from qualify.judgement import rules_of
from qualify.plan import Omitted, Plan
from qualify.promote import Promoted
from tests.admissions import beds
from tests.cli.workspaces import HEAD, Workspace

RULES = {name: rules_of(gate) for name, gate in beds.gates().items()}
OTHER_BOARD = "another board"


def file(workspace: Workspace) -> Path:
    return next(workspace.path.glob("cohorts/add/admissions/*.json"))


def admitted(workspace: Workspace, cell: str = "large") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(file(workspace).read_bytes())[cell]
    return found


def reword(workspace: Workspace, name: str) -> None:
    path = workspace.path / "cohorts/add" / name
    path.write_text(path.read_text() + "// reworded\n")


def select(workspace: Workspace, capsys: pytest.CaptureFixture[str], board: str | None = None) -> dict[str, Any]:
    capsys.readouterr()
    assert serving.select(workspace.path, "add", "large", file(workspace).stem.replace("--", "/"), board) is Exit.DONE
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def status(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Route, admission and boards of the large cell."""
    capsys.readouterr()
    inventory.status(workspace.path, None, datetime.now(UTC))
    row = next(line for line in capsys.readouterr().out.splitlines() if " large " in line)
    columns = [cell.strip() for cell in row.strip("│").split("│")]
    return [columns[3], columns[4], columns[7]]


@pytest.fixture
def elsewhere(workspace: Workspace) -> Workspace:
    """The promoted workspace, its promotion made on another board."""
    beds.made_on(workspace, OTHER_BOARD)
    assert verify_store(workspace.path / "evidence", RULES).outcome == "verified"
    return workspace


def test_bits_are_admitted_without_a_time_and_no_gate_took_one(proven: Workspace, proof: Promoted) -> None:
    assert proof.exit_code() is Exit.DONE, list(proof.lines())
    ((folder, plan, verdict),) = proof.runs
    assert (plan.command, [node.gate for node in plan.nodes], verdict.reasons) == (
        "prove",
        ["contract", "digest", "numeric"],
        (),
    )
    for planned in plan.subjects:
        subject = planned.subject
        assert (subject.cell.timed, subject.incumbent.route, subject.attempt) == (True, "plain", 1)
        assert planned.omitted == tuple(
            Omitted(gate=gate, reason="prove takes no times") for gate in ("trial", "timing")
        )
    ((made, _),) = proof.admitted
    assert (made.kind, made.bound, made.route, made.run) == ("proven", None, "fast", folder.name)
    assert made.counts.model_dump() == {"opened": 2, "passed": 2, "failed": 0, "inconclusive": 0, "left_open": 0}
    assert made.outputs is not None
    assert verify_store(proven.path / "evidence", RULES).outcome == "verified"


def test_no_command_shows_a_time_of_what_is_proven(
    proven: Workspace, proof: Promoted, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(proven, capsys) == ["fast", "proven", beds.board(proven)]
    found = select(proven, capsys)
    assert (found["route"], found["kind"], found["bound"], found["closed"]) == ("fast", "proven", None, [])
    assert inventory.check(proven.path, None) is Exit.DONE
    said = "\n".join((*proof.lines(), capsys.readouterr().out, json.dumps(found)))
    assert "bits only" in said
    assert not re.search(r"1\.25|[0-9] x\b|attempt", said)


def test_a_proof_is_closed_by_what_closes_any_admission(proven: Workspace) -> None:
    reword(proven, "plain.k")
    assert inventory.check(proven.path, None) is Exit.REJECTED
    shutil.rmtree(proven.path / "evidence")
    assert inventory.check(proven.path, None) is Exit.EVIDENCE


def test_a_proof_that_was_edited_into_a_time_is_caught(proven: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    text = file(proven).read_bytes()
    file(proven).write_bytes(
        text.replace(b'"bound":null', b'"bound":"1.25"').replace(b'"kind":"proven"', b'"kind":"measured"')
    )
    assert inventory.check(proven.path, None) is Exit.EVIDENCE
    assert "measured that fast is faster" in capsys.readouterr().out
    file(proven).write_bytes(text.replace(b'"bound":null', b'"bound":"1.25"'))
    assert inventory.check(proven.path, None) is Exit.EVIDENCE


# Refused.


@pytest.mark.parametrize("route", ["fast", "other"])
def test_a_cell_with_an_admission_of_this_board_has_nothing_to_prove(
    workspace: Workspace, run: str, route: str
) -> None:
    before, opened = file(workspace).read_bytes(), len(workspace.opened())
    with pytest.raises(NothingSelected, match="large: fast serves it, measured on this board"):
        beds.proved(workspace, run, routes={route})
    assert (file(workspace).read_bytes(), len(workspace.opened())) == (before, opened)


def test_what_is_proven_here_is_not_proven_again(proven: Workspace, run: str) -> None:
    with pytest.raises(NothingSelected, match="large: fast serves it, proven on this board"):
        beds.proved(proven, run)


def test_what_moved_since_is_refused_and_nothing_is_opened(screened: Workspace, run: str) -> None:
    reword(screened, "fast.k")
    with pytest.raises(Refused, match=r"cohorts/add/fast\.k moved"):
        beds.proved(screened, run)
    assert len(screened.opened()) == 1


def test_what_did_not_pass_its_screen_is_not_proven(screened: Workspace) -> None:
    run = beds.screened(screened, {"fast": 900_000, "other": 900_000})
    with pytest.raises(NothingSelected, match="large: no candidate passed"):
        beds.proved(screened, run)


def test_bits_rank_nothing(screened: Workspace, run: str) -> None:
    with pytest.raises(NothingSelected, match="large: fast, other passed and nothing ranks them; name one"):
        beds.proved(screened, run, routes={"fast", "other"})


def test_a_cell_that_this_device_does_not_hold_is_left_out_on_record(screened: Workspace, run: str) -> None:
    screened.replace("cohorts/add/cohort.yaml", "timed: false}", "timed: false, where_memory_allows: [cuda]}")
    with pytest.raises(NothingSelected, match="tiny is left out: it is planned on cuda only"):
        beds.proved(screened, run, cells={"tiny"})
    ((_, plan, _),) = beds.proved(screened, run, cells={"tiny", "large"}).runs
    assert [each.cell for each in plan.left_out] == ["tiny"]


def test_the_simulated_device_proves_nothing(tmp_path: Path) -> None:
    workspace = beds.make(tmp_path / "w")
    workspace.replace("pipelines.yaml", "pocl-3.0", "simulated-1.0")
    workspace.write("cohort.yaml", beds.ROUTES.replace("common/opencl.h, ", ""))
    with pytest.raises(UsageError, match="expected a domain with a board"):
        beds.proved(workspace, beds.screened(workspace))


@pytest.mark.parametrize(
    ("pipeline", "shows", "gate"), [("no-bits", "bits", "digest"), ("no-values", "values", "numeric")]
)
def test_a_stage_that_shows_no_bits_proves_nothing(
    screened: Workspace, run: str, pipeline: str, shows: str, gate: str
) -> None:
    with pytest.raises(UsageError, match=f"no gate of {shows}: {pipeline} of .* in prove") as found:
        beds.proved(screened, run, pipeline=pipeline)
    assert found.value.fix == f"add {gate} to the promote stage"
    assert len(screened.opened()) == 1


# An admission of another board.


def test_what_was_measured_on_another_board_is_proven_at_most_here(
    elsewhere: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    found = select(elsewhere, capsys, beds.board(elsewhere))
    assert (found["route"], found["kind"], found["bound"], found["board"]) == ("fast", "proven", None, OTHER_BOARD)
    for board in (None, OTHER_BOARD):
        found = select(elsewhere, capsys, board)
        assert (found["kind"], found["bound"], found["board"]) == ("measured", "1.250000", OTHER_BOARD)


def test_its_bits_are_proven_here_beside_its_time_there(
    elsewhere: Workspace, run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = beds.proved(elsewhere, run)
    assert done.exit_code() is Exit.DONE, list(done.lines())
    assert [each["kind"] for each in admitted(elsewhere)] == ["measured", "proven"]
    here, time = beds.board(elsewhere), "measured, at least 1.250000 x"
    assert status(elsewhere, capsys) == ["fast", time, f"{OTHER_BOARD}; proven on {here}"]
    found = select(elsewhere, capsys, here)
    assert (found["kind"], found["bound"], found["board"]) == ("proven", None, here)
    assert found["run"] == done.runs[0][0].name
    for board in (None, OTHER_BOARD):
        assert select(elsewhere, capsys, board)["bound"] == "1.250000"
    assert select(elsewhere, capsys, "a third board")["kind"] == "proven"
    assert inventory.check(elsewhere.path, None) is Exit.DONE


def test_bits_take_no_cell_from_another_route(elsewhere: Workspace, run: str) -> None:
    before = file(elsewhere).read_bytes()
    says = f"large: fast serves it, measured on {OTHER_BOARD}; bits take no cell from it, promote other"
    with pytest.raises(NothingSelected, match=says):
        beds.proved(elsewhere, run, routes={"other"})
    assert file(elsewhere).read_bytes() == before


def test_each_of_two_boards_holds_where_the_other_was_withdrawn(
    elsewhere: Workspace, run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    beds.proved(elsewhere, run)
    store, (measured, proven) = Store(elsewhere.path / "evidence"), admitted(elsewhere)
    store.withdraw(measured["run"], "the clock was wrong", "2026-01-01T00:00:00Z")
    assert status(elsewhere, capsys) == ["fast", "proven", beds.board(elsewhere)]
    store.withdraw(proven["run"], "the board was", "2026-01-01T00:00:00Z")
    assert status(elsewhere, capsys) == ["plain", "closed", beds.board(elsewhere)]


def test_what_is_proven_gets_its_time_by_a_promotion_against_plain(
    proven: Workspace, proof: Promoted, capsys: pytest.CaptureFixture[str]
) -> None:
    run = proof.runs[0][0].name
    done = beds.promoted(proven, run)
    assert done.exit_code() is Exit.DONE, list(done.lines())
    ((made, _),) = done.admitted
    assert (made.kind, made.subject.incumbent.route, made.subject.attempt) == ("measured", "plain", 1)
    assert status(proven, capsys) == ["fast", "measured, at least 1.250000 x", beds.board(proven)]
    with pytest.raises(NothingSelected, match="large: fast serves it already"):
        beds.promoted(proven, run)


def test_another_route_is_promoted_against_the_proven_one(proven: Workspace, run: str) -> None:
    done = beds.promoted(proven, run, cells={"large"}, routes={"other"})
    assert [each.subject.incumbent.route for each, _ in done.admitted] == ["fast"]


def test_what_has_a_time_there_gets_one_here(elsewhere: Workspace, run: str) -> None:
    done = beds.promoted(elsewhere, run, cells={"large"}, routes={"fast"})
    ((made, _),) = done.admitted
    assert (made.kind, made.subject.incumbent.route) == ("measured", "plain")
    assert made.subject.attempt == 2, "it is the second attempt at plain in this domain"


def test_a_time_is_a_board_s_own_and_any_difference_makes_another_board(screened: Workspace) -> None:
    board = Plan.parse((screened.sealed()[0] / "plan.json").read_bytes()).board
    assert board is not None
    changes: list[dict[str, Any]] = [
        {"name": "x"},
        {"driver": "x"},
        {"limits": board.limits.model_copy(update={"memory_bytes": 1})},
        {"limits": board.limits.model_copy(update={"compute_units": None})},
    ]
    others: list[Board] = [board.model_copy(update=change) for change in changes]
    assert not any(board.keeps_times_of(other) or other.keeps_times_of(board) for other in others)
    assert board.keeps_times_of(board.model_copy(update={"uuid": "another piece"}))


# The command.

BROKEN = HEAD + " {\n  int i = get_global_id(0);\n  if (i < n && i % 50) y[i] = a[i] + b[i];\n}\n"


@pytest.fixture(scope="module")
def real_base(screened_base: tuple[Workspace, str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, str]:
    """A workspace with gates of the tool's own, and a screen of its two candidates that ran none of them."""
    screened = Workspace(Path(shutil.copytree(screened_base[0].path, tmp_path_factory.mktemp("real") / "w")))
    screened.replace("pipelines.yaml", "  digest:", "  compile: {cost_s: 1, needs: [contract]}\n  digest:")
    screened.replace("pipelines.yaml", "screen: [contract, trial]", "screen: [contract, compile]")
    screened.write("other.k", BROKEN)
    before = screened.sealed()
    done = screened.here("screen", "add", "--cell", "large")
    assert done.code == 0, done
    (run,) = set(screened.sealed()) - set(before)
    return screened, run.name


@pytest.fixture
def real(real_base: tuple[Workspace, str], tmp_path: Path) -> tuple[Workspace, str]:
    """A copy of it, and the screen."""
    workspace, run = real_base
    return Workspace(Path(shutil.copytree(workspace.path, tmp_path / "real"))), run


def test_the_command_proves_what_holds_and_rejects_what_does_not(real: tuple[Workspace, str]) -> None:
    workspace, run = real
    done = workspace.here("prove", run, "--route", "other")
    assert done.code == 10, done
    assert "large/other failed digest: unwritten" in done.out
    assert not list(workspace.path.glob("cohorts/add/admissions/*"))
    done = workspace.here("prove", run, "--route", "fast")
    assert done.code == 0, done
    assert re.search(r"admitted: add large in pocl-3.0/\S+: fast, proven on .*, bits only\n", done.out)
    assert not {"trial", "timing"} & set(done.out.split())
    assert len(workspace.sealed()) == 4, "the losing run stays"
    made = [workspace.path / "evidence/runs" / run, *beds.runs_of(workspace, "prove")]
    assert workspace.here("verify-evidence", *map(str, made)).code == 0
    assert workspace.here("check").code == 0


def test_the_command_says_what_is_wrong(real: tuple[Workspace, str]) -> None:
    workspace, run = real
    assert workspace.here("prove").code == 2
    assert workspace.here("prove", "run-9").code == 2
    assert workspace.here("prove", run, "--cell", "huge").code == 2
    assert workspace.here("prove", run).code == 3, "two passed, and bits rank nothing"
    workspace.replace("pipelines.yaml", "promote: all", "promote: [trial]")
    workspace.replace("pipelines.yaml", "trial: {cost_s: 2, needs: [contract]}", "trial: {cost_s: 2}")
    done = workspace.here("prove", run, "--route", "fast")
    assert (done.code, "no gate of bits" in done.err) == (2, True), done
    assert len(workspace.opened()) == 2
