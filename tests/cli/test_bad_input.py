"""Bad input and a bad rig, through the command: the exit code, the file and line where there is a file, the fix."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.workspaces import HONEST, Done, Workspace, make, with_routes


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A workspace on the virtual board, which needs no device and no compiler."""
    return make(tmp_path / "w", "simulated-1.0")


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Done]:
    """Such a workspace as `screen` left it: tests that change it work on a copy."""
    made = make(tmp_path_factory.mktemp("honest") / "w", "simulated-1.0")
    return made, made.screen_here()


@pytest.fixture
def screened(honest: tuple[Workspace, Done], tmp_path: Path) -> Workspace:
    """A copy of the screened workspace."""
    return Workspace(Path(shutil.copytree(honest[0].path, tmp_path / "screened")))


def refused(done: Done, code: int, *says: str) -> None:
    """The command ended with that code, said each of these and what to do, and no traceback."""
    assert done.code == code, done.err
    assert "Traceback" not in done.err
    for text in (*says, "fix: "):
        assert text in done.err


def test_the_honest_workspace_passes(honest: tuple[Workspace, Done]) -> None:
    _, done = honest
    assert done.code == 0, done.err
    assert {subject["outcome"] for subject in done.verdict["subjects"]} == {"pass"}
    assert done.verdict["trust"] == "simulated"
    assert not done.verdict["admissible"]


CHANGES = {
    "unknown gate": ("pipelines.yaml", "[contract, compile, digest], promote", "[contract, telepathy], promote", 8),
    "a cycle": ("pipelines.yaml", "contract: {cost_s: 0.001}", "contract: {cost_s: 0.001, needs: [digest]}", 4),
    "broken YAML": ("pipelines.yaml", "gates:\n", "gates: [\n", 5),
    "an alias": ("pipelines.yaml", "{toolkit: simulated-1.0, arch: native}", "&a {toolkit: *a, arch: native}", 2),
    "a duplicate key": ("pipelines.yaml", "cost_s: 0.001", "cost_s: 0.001, cost_s: 1", 4),
    "an unknown setting": ("pipelines.yaml", "timeout_s: 10", "time_out: 10", 6),
    "an unknown dtype": ("cohorts/add/cohort.yaml", "output, dtype: float32", "output, dtype: float31", 4),
    "a zero shape": ("cohorts/add/cohort.yaml", "n: 1000", "n: 0", 4),
    "a wrong name": ("cohorts/add/cohort.yaml", "value: n", "value: m", 7),
    "a kind of later": ("cohorts/add/cohort.yaml", "kind: scalar", "kind: tensormap", 7),
    "code for an expression": ("cohorts/add/cohort.yaml", "value: n", "value: n.real", 7),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_a_malformed_file_is_named_with_its_line(workspace: Workspace, what: str) -> None:
    name, old, new, line = CHANGES[what]
    workspace.replace(name, old, new)
    refused(workspace.screen_here(), 2, f"{name}:{line}")
    assert not workspace.opened()


#: Includes of what is no fragment of the route, by the route that has each.
INCLUDES = {
    "absolute": '#include "/etc/passwd"\n',
    "computed": '#define F "x.h"\n#include F\n',
    "neighbour": '#include "x.h"\n',
    "system": "#include <stdio.h>\n",
    "spliced": '#inc\\\nlude "/etc/passwd"\n',
}


@pytest.fixture(scope="module")
def including(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """A screen of a route for each include, honest ones beside them."""
    kernels = {route: line + HONEST for route, line in INCLUDES.items()}
    workspace = with_routes(tmp_path_factory.mktemp("including") / "w", kernels)
    (workspace.path / "x.h").write_text("int x;\n")
    return workspace.screen_here("--until", "contract")


@pytest.mark.parametrize("route", INCLUDES)
def test_an_include_of_anything_but_a_fragment_closes_its_route(including: Done, route: str) -> None:
    assert including.outcome(route) == ("fail", "contract")
    assert f"{route}.k:" in including.out
    assert including.outcome("candidate") == including.outcome("next") == ("pass", None)


@pytest.mark.parametrize("grid", ["0", '"n - n"', '"0 - 1"'])
def test_an_empty_grid_closes_its_route(workspace: Workspace, grid: str) -> None:
    text = (workspace.path / "cohorts/add/cohort.yaml").read_text()
    before, after = text.split("  candidate:")
    workspace.write("cohort.yaml", before + "  candidate:" + after.replace('"ceil_div(n, 64)"', grid, 1))
    done = workspace.screen_here("--until", "contract")
    assert done.outcome("candidate") == ("fail", "contract"), done.err
    assert done.outcome("next") == ("pass", None)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nothing"], 2, "add"),
        (["--cell", "large"], 2, "small"),
        (["--route", "fastest"], 2, "candidate"),
        (["--pipeline", "nightly"], 2, "default"),
        (["--until", "telepathy"], 2, "digest"),
        (["--domain", "cuda-9.9/sm_90"], 2, "simulated-1.0/native"),
        (["--workspace", "/nowhere"], 2, "pipelines.yaml"),
    ],
)
def test_a_name_that_does_not_exist_is_usage(workspace: Workspace, arguments: list[str], code: int, says: str) -> None:
    refused(workspace.screen_here(*arguments), code, says)


def test_a_wrong_flag_is_usage(workspace: Workspace) -> None:
    done = workspace.here("screen", "--frobnicate")
    assert done.code == 2
    assert "--frobnicate" in done.err


def test_only_the_plain_route_is_nothing_to_screen(workspace: Workspace) -> None:
    refused(workspace.screen_here("--route", "plain"), 3, "no subject")


def test_a_partial_screen_says_so(workspace: Workspace) -> None:
    done = workspace.screen_here("--until", "compile")
    assert done.verdict["partial"] is True
    assert "partial: stopped after compile" in done.verdict["reasons"]


def test_a_cohort_that_is_a_link_out_of_the_workspace_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (workspace.path / "cohorts/add").rename(outside)
    (workspace.path / "cohorts/add").symlink_to(outside)
    refused(workspace.screen_here(), 2, "cohorts/add")


def test_no_linker_is_the_rigs_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = make(tmp_path / "w")
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    refused(workspace.screen_here(), 4, "`ld`", "binutils")


def test_no_opencl_device_is_the_rigs_error(tmp_path: Path) -> None:
    workspace = make(tmp_path / "w")
    refused(workspace.screen(environment={"OCL_ICD_VENDORS": str(tmp_path / "none")}), 4, "OpenCL")


@pytest.mark.parametrize("command", [("screen",), ("calibrate",), ("compare", "add")], ids=lambda command: command[0])
def test_no_domain_here_is_the_rigs_error_with_every_fix(command: tuple[str, ...], workspace: Workspace) -> None:
    planned = "{toolkit: simulated-1.0, arch: native}"
    absent = [f"{{toolkit: cuda-{release}, arch: sm_90}}" for release in ("8.8", "9.9")]
    workspace.replace("pipelines.yaml", planned, absent[0])
    done = workspace.here(*command)
    refused(done, 4, "no planned domain is here: cuda-8.8/sm_90: expected cuda-8.8 here, found cuda-")
    assert done.err.endswith("fix: qualify toolkits install 8.8\n")
    workspace.replace("pipelines.yaml", absent[0], "\n  - ".join(absent))
    done = workspace.here(*command)
    refused(done, 4, "cuda-8.8/sm_90: expected ", "(qualify toolkits install 8.8)", "(qualify toolkits install 9.9)")
    assert done.err.endswith("fix: run where one of these domains is, or plan another domain in pipelines.yaml\n")
    assert not workspace.opened()


def test_no_space_while_sealing_keeps_the_plan_and_no_run(screened: Workspace) -> None:
    sizes = {file.name: file.stat().st_size for file in sorted(screened.sealed()[0].rglob("*")) if file.is_file()}
    others = max(size for name, size in sizes.items() if name != "verdict.json")
    assert others < sizes["verdict.json"], "the verdict, which sealing writes, is not the largest file"
    limit = (others + sizes["verdict.json"]) // 2

    def few_bytes() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = screened.screen(preexec_fn=few_bytes)
    assert done.code == 4, done.err
    assert "fix: " in done.err
    assert "verdict.json: File too large" in done.err
    assert len(screened.opened()) == 2
    assert len(screened.sealed()) == 1
    verified = screened.here("verify-evidence")
    assert verified.code == 0, verified.err


def test_evidence_that_was_edited_is_named(screened: Workspace) -> None:
    file = screened.sealed()[0] / "verdict.json"
    os.chmod(file, 0o644)
    file.write_bytes(file.read_bytes().replace(b'"pass"', b'"fail"', 1))
    done = screened.here("verify-evidence")
    assert done.code == 12
    assert "C01" in done.out + done.err


def test_no_evidence_at_all_is_nothing_selected(workspace: Workspace) -> None:
    assert workspace.here("verify-evidence").code == 3


def test_a_fold_of_gates_that_is_not_ours_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    fake = tmp_path / "fake"
    (fake / "gates").mkdir(parents=True)
    (fake / "gates/__init__.py").write_text("GATES = {}\n")
    done = workspace.run("screen", environment={"PYTHONPATH": f"{fake}{os.pathsep}{sys.path[0]}"})
    refused(done, 4, "gates")
