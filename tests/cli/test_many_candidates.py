"""Many candidates at host gates: an interrupt seals what is there and leaves no file and no process behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from tests.cli.test_cuda import HEAD, workspace
from tests.cli.workspaces import Workspace, clean, command

MANY = 80
KERNEL = (
    HEAD + " {\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) y[i] = a[i] + b[i] + 0.0f * %d;\n}\n"
)
ROUTE = 'fragments: [add.k]\nlaunches: [{symbol: add, grid: ["ceil_div(n, 64)"], block: [64]}]\n'


def candidates(folder: Path) -> Path:
    """A folder of candidates that no compiler can take for one another."""
    for number in range(MANY):
        candidate = folder / f"c{number}"
        candidate.mkdir(parents=True)
        (candidate / "route.yaml").write_text(ROUTE)
        (candidate / "add.k").write_text(KERNEL % number)
    return folder


def interrupted(made: Workspace, temporary: Path) -> tuple[int, str]:
    """A screen of all candidates, interrupted once the first of them meets the compiler."""
    words = ("screen", "--until", "compile", "--candidates", str(candidates(made.path.parent / "candidates")))
    with subprocess.Popen(
        command(*words),
        cwd=made.path,
        env=clean({"TMPDIR": str(temporary)}),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        said = ""
        assert process.stderr is not None
        while "compile:" not in said:
            said += process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=60)
    return process.returncode, said + rest


def running(folder: Path) -> list[str]:
    """Processes that work below a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cwd"):
        try:
            found += [str(process)] if Path(os.readlink(process)).is_relative_to(folder) else []
        except OSError:  # It ended, or is another user's.
            continue
    return found


def test_an_interrupt_among_many_candidates_seals_what_is_there_and_leaves_nothing_else(tmp_path: Path) -> None:
    made, temporary = workspace(tmp_path / "w", "sm_90"), tmp_path / "temporary"
    temporary.mkdir()
    code, said = interrupted(made, temporary)
    assert code == 130, said
    assert f"compile: {MANY + 3} subjects" in said
    (run,) = made.sealed()
    assert json.loads((run / "run.json").read_bytes())["ended"] == "interrupted"
    unreached = [gate for gate in map(reached, run.glob("subjects/*/*/compile.json")) if gate == "not-run"]
    assert unreached
    assert made.here("verify-evidence").code == 0
    assert list(temporary.iterdir()) == []
    assert running(temporary) == []


def reached(measurement: Path) -> str:
    """The state of a measurement."""
    return str(json.loads(measurement.read_bytes())["state"])
