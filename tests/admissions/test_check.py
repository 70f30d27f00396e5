"""`check`: every byte that an admission rests on closes it loudly; nothing else does."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qualify import inventory
from qualify.errors import Exit, InputError
from qualify.evidence.store import Store
from qualify.identity import content, identify
from qualify.model import canonical_bytes
from tests.admissions import beds
from tests.cli.workspaces import Workspace, clean, unoptimised
from tests.conftest import part

#: What is told for people, or for a later comparison, and is no part of what holds.
TOLD = {"counts", "outputs", "admitted_utc"}


def check(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> tuple[Exit, str]:
    capsys.readouterr()
    code = inventory.check(workspace.path, None)
    return code, capsys.readouterr().out


def file(workspace: Workspace) -> Path:
    return next(workspace.path.glob("cohorts/add/admissions/*.json"))


def edit(workspace: Workspace, change: Callable[[dict[str, Any]], object], cell: str = "large") -> None:
    """Change the newest admission of a cell and write the file as promote would."""
    found = json.loads(file(workspace).read_bytes())
    change(found[cell][-1])
    file(workspace).write_bytes(canonical_bytes(found))


def append(workspace: Workspace, name: str, text: str = "// reworded\n") -> None:
    path = workspace.path / "cohorts" / name
    path.write_text(path.read_text() + text)


def test_what_was_admitted_is_open_through_the_command(workspace: Workspace) -> None:
    done = workspace.run("check")
    assert done.code == 0, done
    assert done.out.startswith("3 open, 0 closed; ")
    assert "not compared here" in done.out


def test_a_workspace_without_admissions_is_fine_and_says_so(tmp_path: Path) -> None:
    done = beds.make(tmp_path / "w").here("check")
    assert (done.code, done.out) == (0, "no admission: plain serves every cell\n")


@pytest.mark.parametrize("fragment", ["add/fast.k", "add/plain.k", "common/opencl.h"])
def test_a_reworded_comment_closes_every_cell_that_the_fragment_serves(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], fragment: str
) -> None:
    append(workspace, fragment)
    code, out = check(workspace, capsys)
    assert code is Exit.REJECTED
    cause, *closed = out.splitlines()[:4]
    assert cause.startswith(f"cohorts/{fragment} moved: admitted ")
    assert [line.split()[2] for line in closed] == ["large", "ragged", "tiny"]
    assert all("; plain serves it" in line for line in closed)
    assert all(", now " in line for line in closed) == (fragment != "add/plain.k")


def test_a_fragment_of_a_route_that_is_not_admitted_closes_nothing(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    append(workspace, "add/other.k")
    append(workspace, "add/reference.py", "")
    assert check(workspace, capsys)[0] is Exit.DONE


def test_the_same_bytes_again_open_it_again(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    path = workspace.path / "cohorts/add/fast.k"
    before = path.read_bytes()
    append(workspace, "add/fast.k")
    assert check(workspace, capsys)[0] is Exit.REJECTED
    path.write_bytes(before)
    assert check(workspace, capsys)[0] is Exit.DONE


FAST = unoptimised(
    'fast: {fragments: [common/opencl.h, fast.k], launches: [{symbol: add, grid: ["ceil_div(n, 64)"], block: [64]}]'
)
MOVES = {
    "an option": (
        FAST,
        FAST.replace("opt-disable", "mad-enable"),
        "route fast options 0 moved: admitted -cl-opt-disable, now -cl-mad-enable",
    ),
    "a define": (FAST, FAST + ", defines: {N: '1'}", "route fast defines moved: "),
    "a launch": (FAST, FAST.replace("block: [64]", "block: [32]"), "route fast launches 0 moved: "),
    "another fragment": (FAST, FAST.replace("fast.k", "other.k"), "cohorts/add/fast.k moved: "),
    "an order": (
        FAST,
        FAST.replace("common/opencl.h, fast.k", "fast.k, common/opencl.h"),
        "route fast fragments moved: admitted common/opencl.h, add/fast.k, now add/fast.k, common/opencl.h",
    ),
    "no route": ("\n  fast:", "\n  slow:", "route fast moved: admitted admitted, now no route of "),
    "no longer applies": (FAST, FAST + ', admits: "n > 5000"', "route fast moved: admitted admitted, now not for"),
    "an alignment": ("name: y, kind: output, dtype: float32, shape: [n], align: 16", "name: y, kind: output, "
        "dtype: float32, shape: [n], align: 32", "arguments y moved: "),
    "a tolerance": ("floor_ulp: 4", "floor_ulp: 5", "numeric moved: "),
    "the bits": ("bits: own", "bits: identical", "bits moved: admitted own, now identical"),
    "the dispatcher": ("dispatcher_revision: 1", "dispatcher_revision: 2", "dispatcher_revision moved: admitted 1"),
    "the cache": ("bits: own", "bits: own\ntiming: {cache: hot}", "timing moved: "),
    "work": ("bits: own", "bits: own\nmoved_bytes: 12 * n", "moved_bytes moved: admitted None"),
}  # fmt: skip


@pytest.mark.parametrize("what", MOVES)
def test_a_contract_that_moved_closes_and_is_named(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    old, new, says = MOVES[what]
    workspace.replace("cohorts/add/cohort.yaml", old, new)
    code, out = check(workspace, capsys)
    assert code is Exit.REJECTED
    assert says in out
    assert out.splitlines()[-1].startswith("0 open, 3 closed")


def test_a_reworded_reference_closes(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    append(workspace, "add/reference.py", "# reworded\n")
    code, out = check(workspace, capsys)
    assert code is Exit.REJECTED
    assert "reference sha256 moved: " in out


def test_a_cell_of_another_size_closes_alone(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    workspace.replace("cohorts/add/cohort.yaml", "n: 77}", "n: 78}")
    code, out = check(workspace, capsys)
    assert code is Exit.REJECTED
    assert {line.split()[2] for line in out.splitlines() if line.startswith("  closes")} == {"ragged"}
    assert "2 open, 1 closed" in out


def test_a_cell_that_is_gone_closes(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    workspace.replace("cohorts/add/cohort.yaml", "  - {id: ragged, n: 77}\n", "")
    code, out = check(workspace, capsys)
    assert code is Exit.REJECTED
    assert "cell ragged moved: admitted admitted, now gone\n  closes add ragged in " in out


@pytest.mark.parametrize("broken", ["operation: [", None], ids=["unreadable", "gone"])
def test_a_cohort_that_cannot_be_read_closes_everything(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], broken: str | None
) -> None:
    path = workspace.path / "cohorts/add/cohort.yaml"
    if broken is None:
        path.unlink()
    else:
        path.write_text(broken)
    code, out = check(workspace, capsys)
    assert code is Exit.REJECTED
    assert "cohorts/add/cohort.yaml" in out
    assert "0 open, 3 closed" in out


# The admission itself, and the evidence that it rests on.


def forge(workspace: Workspace) -> None:
    """Edit the fragment, then the admission, so that the live identity is the admitted one."""
    append(workspace, "add/fast.k")
    digest = content((workspace.path / "cohorts/add/fast.k").read_bytes())

    def change(found: dict[str, Any]) -> None:
        found["candidate"]["fragments"][1]["blake3"] = digest
        made = beds.admission(found)
        found["subject"]["candidate"]["identity"] = identify("module", made.modules[0])

    for cell in ("large", "ragged", "tiny"):
        edit(workspace, change, cell)


def test_an_admission_that_was_edited_to_fit_an_edited_fragment_is_caught(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    forge(workspace)
    code, out = check(workspace, capsys)
    assert code is Exit.EVIDENCE
    assert "evidence: the subject of " in out
    assert "moved" not in out


def leaves(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The place of every value inside a JSON value."""
    if isinstance(value, dict | list) and value:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return [place for key, item in pairs for place in leaves(item, (*at, key))]
    return [at]


def other(value: Any) -> Any:
    match value:
        case bool() | None:
            return not value
        case int():
            return value + 1
        case str():
            return value[:-1] + ("0" if value[-1:] != "0" else "1")
    return [value, value]


@pytest.mark.parametrize("cell", ["large", "tiny"])
def test_no_edit_of_an_admission_goes_unnoticed(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], cell: str
) -> None:
    before = file(workspace).read_bytes()
    unnoticed = []
    for place in part(leaves(json.loads(before)[cell][-1])):

        def change(found: Any, place: tuple[Any, ...] = place) -> None:
            for key in place[:-1]:
                found = found[key]
            found[place[-1]] = other(found[place[-1]])

        edit(workspace, change, cell)
        try:
            code, _ = check(workspace, capsys)
        except InputError:
            code = Exit.USAGE
        if code is Exit.DONE:
            unnoticed.append(place)
        file(workspace).write_bytes(before)
    assert {place[0] for place in unnoticed} <= TOLD, unnoticed


def test_an_admission_of_another_cell_is_none_of_this_one(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(file(workspace).read_bytes())
    file(workspace).write_bytes(canonical_bytes({**found, "ragged": found["large"]}))
    code, out = check(workspace, capsys)
    assert code is Exit.EVIDENCE
    assert "it is an admission of add/" in out


@pytest.mark.parametrize("text", ['{"large":[]}\n', "{}", "[]\n", '{"large": [{}]}\n', '{"large":[{}]}\n', "\xff\n"])
def test_a_file_that_promote_did_not_write_is_refused(workspace: Workspace, text: str) -> None:
    file(workspace).write_text(text)
    with pytest.raises(InputError, match=r"cohorts/add/admissions/pocl-3\.0--") as found:
        inventory.check(workspace.path, None)
    assert found.value.fix.startswith("restore ")


def promotion(workspace: Workspace) -> Path:
    """The run that the admissions rest on."""
    name = json.loads(file(workspace).read_bytes())["large"][-1]["run"]
    return workspace.path / "evidence/runs" / str(name)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "the run": shutil.rmtree,
    "the store": lambda run: shutil.rmtree(run.parent.parent),
    "the manifest": lambda run: (run / "SHA256SUMS").unlink(),
    "a byte of the manifest": lambda run: _flip(run / "SHA256SUMS"),
    "a byte of the verdict": lambda run: _flip(run / "verdict.json"),
    "a byte of the plan": lambda run: _flip(run / "plan.json"),
    "another run in its place": lambda run: _replace(run),  # noqa: PLW0108 -- defined below.
}


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _replace(run: Path) -> None:
    (screen,) = (other for other in run.parent.glob("*") if other != run)
    shutil.rmtree(run)
    shutil.copytree(screen, run)


@pytest.mark.parametrize("what", DAMAGES)
def test_evidence_that_is_gone_or_changed_exits_12(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    DAMAGES[what](promotion(workspace))
    code, out = check(workspace, capsys)
    assert code is Exit.EVIDENCE
    assert "evidence: " in out
    assert "0 open, 3 closed" in out


def test_a_withdrawn_run_closes_what_rests_on_it(workspace: Workspace) -> None:
    run = promotion(workspace).name
    done = workspace.here("withdraw", run, "--reason", "the clock was wrong")
    assert done.code == 0, done.err
    done = workspace.here("check")
    assert done.code == 10
    assert done.out.startswith("its run was withdrawn: the clock was wrong\n  closes add large in ")
    assert "0 open, 3 closed" in done.out
    assert workspace.here("withdraw", run, "--reason", "again").code == 2


def test_any_mark_withdraws_even_one_that_cannot_be_read(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace.path / "evidence/withdrawn").mkdir()
    (workspace.path / f"evidence/withdrawn/{promotion(workspace).name}.json").write_bytes(b"{}")
    code, out = check(workspace, capsys)
    assert code is Exit.REJECTED
    assert "for a reason that cannot be read" in out


def test_checking_writes_nothing(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    Store(workspace.path / "evidence").heads()
    before = {path: path.stat().st_mtime_ns for path in workspace.path.rglob("*")}
    check(workspace, capsys)
    assert {path: path.stat().st_mtime_ns for path in workspace.path.rglob("*")} == before


LOADED = """
import atexit, sys
atexit.register(lambda: sys.stderr.write("loaded: " + " ".join(sorted(sys.modules))))
from qualify.cli import main
main()
"""


@pytest.mark.parametrize(("edited", "code"), [("other.k", 0), ("fast.k", 10)])
def test_a_check_loads_neither_gates_nor_a_heavy_library(workspace: Workspace, edited: str, code: int) -> None:
    append(workspace, f"add/{edited}")
    command = (sys.executable, "-c", LOADED, "check")
    done = subprocess.run(command, cwd=workspace.path, check=False, capture_output=True, text=True, env=clean())
    assert done.returncode == code, done
    loaded = set(done.stderr.partition("loaded: ")[2].split())
    assert "qualify.anchors" in loaded
    assert not loaded & {"numpy", "pyopencl", "rich", "ml_dtypes", "yaml", "gates", "qualify.cohort"}
