"""The demo: screen real kernels in a fresh folder, promote the winner, close its admission by rewording one comment.

It uses the `qualify` command that lies beside the running Python, as any user would, and imports nothing of the
project; so the wheel job runs the same file from a clean environment. Exit 0 only if everything is as expected.json
says, subject by subject. Bits do not depend on the machine's load, and a time does: where the load leaves the winner's
time undecided, which is no fault of the kernel's, a cell that nobody times is promoted by its bits instead, so that
there is an admission to close. A time that is decided against the winner is not expected anywhere.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
QUALIFY = Path(sys.executable).with_name("qualify")  # Not resolved: the link's folder is the environment.
DONE, REJECTED, INCONCLUSIVE = 0, 10, 11
LARGE, TINY, WINNER, LOSER = "f32-1048576", "f32-7", "quad", "persistent"
#: In a tiny cell of each operation, the one route of it that is quietly wrong.
TRAPS = {TINY: "tail", "f32-19x53": "split", "f32-61x1": "first", "f32-13x5": "bare", "f32-3x5": "vectors"}
FRAGMENT = f"cohorts/vector_add/{WINNER}.k"

Ends = dict[str, str]


def main() -> int:
    """Copy, screen, promote, edit, verify, compare. Returns the exit code."""
    started = time.monotonic()
    workspace = fresh_workspace(arguments().into)
    expected = json.loads((HERE / "expected.json").read_text())
    run = screen(workspace, expected["domain"])
    screened = found(workspace)
    wanted = expected["promoted"] | promote(workspace, run, expected["promoted where no time could be decided"])
    promoted = found(workspace, command="promote")
    differences = compare(expected["screened"], screened) + compare(wanted, promoted)
    if not differences:
        differences = reworded(workspace, next(cell for cell in (LARGE, TINY) if is_admitted(promoted, cell)))
    qualify(workspace, "verify-evidence")
    for line in differences:
        print(f"demo: {line}", file=sys.stderr)
    print(f"\nworkspace: {workspace}")
    print(f"demo: {'not ' if differences else ''}as expected, in {time.monotonic() - started:.0f} s")
    return 1 if differences else 0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, help="a folder that does not exist yet; else one under .demo/")
    return parser.parse_args()


def fresh_workspace(into: Path | None) -> Path:
    """A new folder with this repository's cohorts and pipelines.yaml, no evidence, and nothing that rests on any."""
    folder = into or REPOSITORY / ".demo" / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    folder.mkdir(parents=True)
    shutil.copy(REPOSITORY / "pipelines.yaml", folder)
    ignored = shutil.ignore_patterns("__pycache__", "admissions")
    shutil.copytree(REPOSITORY / "cohorts", folder / "cohorts", ignore=ignored)
    return folder.resolve()


# Steps ---------------------------------------------------------------------------------------------------------------


def screen(workspace: Path, domain: str) -> str:
    """Two routes through all gates, then what is wrong in every operation. Returns the run to promote from."""
    words = (f"--cell={LARGE}", f"--cell={TINY}", f"--route={WINNER}", f"--route={LOSER}")
    qualify(workspace, "screen", "vector_add", "--domain", domain, *words, accepted=(DONE, INCONCLUSIVE))
    (run,) = (workspace / "evidence/runs").iterdir()
    traps = (word for cell, route in TRAPS.items() for word in (f"--cell={cell}", f"--route={route}"))
    qualify(workspace, "screen", "--domain", domain, "--until=numeric", *traps)
    return run.name


def promote(workspace: Path, run: str, untimed: dict[str, list[str]]) -> dict[str, list[str]]:
    """The winner of the large cell; where its time stays undecided that of the tiny one. Returns what that one adds."""
    words = ("promote", run, "--pipeline=cpu", f"--route={WINNER}")
    if qualify(workspace, *words, f"--cell={LARGE}", accepted=(DONE, REJECTED, INCONCLUSIVE))[0] != INCONCLUSIVE:
        return {}
    print("\ndemo: this machine is too busy to decide a time; the tiny cell is admitted by its bits instead")
    qualify(workspace, *words, f"--cell={TINY}", accepted=(DONE, REJECTED, INCONCLUSIVE))
    return untimed


def reworded(workspace: Path, cell: str) -> list[str]:
    """Check an admission as it is, with one comment of its fragment reworded, and with the comment put back."""
    fragment = workspace / FRAGMENT
    text = fragment.read_text()
    _, before = qualify(workspace, "check")
    fragment.write_text(text.replace("// ", "// In other words: ", 1))
    print(f"\ndemo: one comment of {FRAGMENT} is reworded")
    _, edited = qualify(workspace, "check", accepted=(REJECTED,))
    fragment.write_text(text)
    print("\ndemo: the comment is put back")
    _, after = qualify(workspace, "check")
    said = {
        "1 open, 0 closed": (before, after),
        "0 open, 1 closed": (edited,),
        f"{FRAGMENT} moved": (edited,),
        f"closes vector_add {cell} in ": (edited,),
    }
    return [f"check: expected '{text}'" for text, outputs in said.items() for output in outputs if text not in output]


def qualify(workspace: Path, *words: str, accepted: tuple[int, ...] = (DONE,)) -> tuple[int, str]:
    """One command on the workspace: its exit code and what it printed, which is shown as it comes.

    Ends the demo with the command's exit code if it is not an accepted one.
    """
    command = ("qualify", *words, "--workspace", str(workspace))
    print(f"\n$ {' '.join(command)}", flush=True)
    printed = []
    with subprocess.Popen([QUALIFY, *command[1:]], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            printed.append(line)
    if process.returncode not in accepted:
        wanted = " or ".join(map(str, accepted))
        print(f"demo: expected exit {wanted}, got {process.returncode}", file=sys.stderr)
        sys.exit(process.returncode or 1)
    return process.returncode, "".join(printed)


# What came of it -----------------------------------------------------------------------------------------------------


def found(workspace: Path, command: str = "screen") -> Ends:
    """How each subject of the runs of a command ended, by `operation/cell/route`."""
    ended: Ends = {}
    for run in sorted(workspace.glob("evidence/runs/*")):
        if json.loads((run / "plan.json").read_bytes())["command"] == command:
            verdict = json.loads((run / "verdict.json").read_bytes())
            for subject in verdict["subjects"]:
                ended[f"{verdict['operation']}/{subject['cell']}/{subject['route']}"] = end(subject)
    return ended


def end(subject: dict[str, Any]) -> str:
    """`pass`, or `<outcome> at <gate>: <the checks that do not hold>`."""
    if subject["closed_by"] is None:
        return str(subject["outcome"])
    gate = next(gate for gate in subject["gates"] if gate["gate"] == subject["closed_by"])
    checks = [check["name"] for check in gate["checks"] if check["holds"] is not True]
    return f"{gate['outcome']} at {gate['gate']}: {', '.join(checks)}"


def is_admitted(promoted: Ends, cell: str) -> bool:
    """Whether the winner passed its promotion in a cell."""
    return promoted.get(f"vector_add/{cell}/{WINNER}") == "pass"


def compare(expected: dict[str, list[str]], ended: Ends) -> list[str]:
    """Every subject that ended in another way than expected, every one that is missing or was not expected."""
    differences = []
    for subject in sorted(expected.keys() | ended.keys()):
        wanted, got = expected.get(subject, []), ended.get(subject, "no verdict")
        if not any(got.startswith(beginning) for beginning in wanted):
            differences.append(f"{subject}: expected {' or '.join(wanted) or 'no such subject'}, got {got}")
    return differences


if __name__ == "__main__":
    sys.exit(main())
