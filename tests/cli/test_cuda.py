"""CUDA domains through the command, on any machine: host gates need no board, and what needs one says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qualify.telemetry import Telemetry
from tests.cli.workspaces import Workspace, make
from tests.rigs import CUDA

HEAD = 'extern "C" __global__ void add(float *y, const float *a, const float *b, int n)'
PLAIN = HEAD + " {\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) y[i] = a[i] + b[i];\n}\n"
TEMPLATE = """#include <cuda_fp16.h>
template <typename T, int N> __global__ void added(T *y, const T *a, const T *b, int n) {
#ifndef __CUDA_ARCH_FEAT_SM90_ALL
#error compiled for another target than the route's
#endif
  extern __shared__ T tile[];
  tile[threadIdx.x % N] = a[0];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a[i] + b[i];
}
"""
GRID = '"2 * ceil_div(n, 128)"'
NAMED = f'{{symbol: "added<float, 8>", grid: [{GRID}], block: [64], cluster: [2], shared: 65536, carve_out: 50}}'
ELSEWHERE = "sm_86"  # A board that no machine of ours has; sm_90 may be here.


def workspace(path: Path, arch: str) -> Workspace:
    """The honest workspace in a CUDA domain; `candidate` is an instance of a template for the board's own variant."""
    made = make(path, "simulated-1.0")
    made.replace("pipelines.yaml", "{toolkit: simulated-1.0, arch: native}", f"{{toolkit: {CUDA}, arch: {arch}}}")
    for name, text in (("plain.k", PLAIN), ("next.k", PLAIN.replace("a[i] + b[i]", "b[i] + a[i]"))):
        made.write(name, text)
    made.write("candidate.k", TEMPLATE)
    return made


def named(made: Workspace) -> None:
    """The candidate's launch as its own, in a cluster, with more shared memory than a block has unasked."""
    text = (made.path / "cohorts/add/cohort.yaml").read_text()
    line = next(line for line in text.splitlines() if line.startswith("  candidate:"))
    route = f"{{fragments: [candidate.k], target: sm_90a, launches: [{NAMED}]}}"
    made.write("cohort.yaml", text.replace(line, f"  candidate: {route}"))


def test_host_gates_run_anywhere_and_leave_evidence_that_verifies(tmp_path: Path) -> None:
    made = workspace(tmp_path / "w", "sm_90")
    named(made)
    done = made.screen_here("--domain", f"{CUDA}/sm_90", "--until", "compile")
    assert done.code == 0, done.err
    assert done.outcome("candidate") == done.outcome("next") == ("pass", None)
    assert done.verdict["partial"]
    assert done.verdict["trust"] == "hostile"
    (run,) = made.sealed()
    plan = json.loads((run / "plan.json").read_text())
    assert plan["toolkit_build"].startswith(f"{CUDA}.")
    targets = {subject["subject"]["candidate"]["target"] for subject in plan["subjects"]}
    assert targets == {"sm_90", "sm_90a"}
    told = json.loads((run / "run.json").read_text())["rig"]["device_environment"]
    assert told["CUDA_MODULE_LOADING"] == "EAGER"
    assert made.here("verify-evidence").code == 0


@pytest.mark.gpu
def test_readings_of_the_board_lie_beside_the_verdicts_and_verify(tmp_path: Path) -> None:
    made = workspace(tmp_path / "w", "native")
    made.write("candidate.k", PLAIN.replace("int i =", "const int i ="))
    made.replace("cohorts/add/cohort.yaml", ", timed: false", "")
    made.replace("pipelines.yaml", "compile, digest]", "compile, digest, trial]")
    made.replace(
        "pipelines.yaml", "pipelines:", "  trial: {cost_s: 2, needs: [digest], settings: {windows: 3}}\npipelines:"
    )
    done = made.screen()
    assert done.code in (0, 11), done.err  # Equal routes: three windows may favour one of them, and are too few.
    (run,) = made.sealed()
    for route in ("candidate", "next"):
        told = Telemetry.parse((run / f"telemetry/small/{route}/trial.json").read_bytes())
        (session,) = told.sessions  # The probe's asks nothing.
        assert len(session.snapshots) >= 3 + 3
    assert not (run / "telemetry/small/plain").exists()
    settings = json.loads((run / "run.json").read_text())["rig"]["board"]
    assert settings.keys() >= {"driver", "ecc", "mig", "power_limit_mw", "unsupported"}
    assert made.run("verify-evidence").code == 0


def test_device_gates_need_the_board_and_say_how_far_it_goes_without(tmp_path: Path) -> None:
    made = workspace(tmp_path / "w", ELSEWHERE)
    done = made.screen_here()
    assert done.code == 4, done.err
    assert "Traceback" not in done.err
    assert f"{CUDA}/{ELSEWHERE}: no " in done.err
    assert "fix: --until compile runs the host gates here" in done.err
    assert not made.opened()


@pytest.mark.parametrize(
    ("domain", "why"),
    [
        ("cuda-9.9, arch: sm_90", "expected cuda-9.9 here, found cuda-"),
        (f"{CUDA}, arch: {ELSEWHERE}", "(--until compile runs the host gates here)"),
        (f"{CUDA}, arch: sm_90a", "write target: sm_90a in the route"),
    ],
)
def test_a_domain_that_is_not_here_is_one_line_beside_those_that_are(tmp_path: Path, domain: str, why: str) -> None:
    made = make(tmp_path / "w", "simulated-1.0")
    made.replace("pipelines.yaml", "domains:\n", f"domains:\n  - {{toolkit: {domain}}}\n")
    done = made.screen_here("--route", "next")
    assert done.code == 0, done.err
    (line,) = [line for line in done.err.splitlines() if " is not here: " in line]
    assert why in line
