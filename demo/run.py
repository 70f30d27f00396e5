"""The demo: screen real kernels in a fresh folder, verify the evidence, compare every subject with what is expected.

It uses the `qualify` command that lies beside the running Python, as any user would, and imports nothing of the
project; so the wheel job runs the same file from a clean environment. Exit 0 only if everything is as expected.
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
#: 11: a small gain drowned in the noise of shared cores; the expectation says for which subjects that is allowed.
SCREENED = (0, 11)


def main() -> int:
    """Copy, screen, verify, compare. Returns the exit code."""
    started = time.monotonic()
    workspace = fresh_workspace(arguments().into)
    expected = json.loads((HERE / "expected.json").read_text())
    for operation in sorted({subject.partition("/")[0] for subject in expected["subjects"]}):
        qualify(workspace, "screen", operation, "--domain", expected["domain"], accepted=SCREENED)
    qualify(workspace, "verify-evidence", accepted=(0,))
    differences = compare(expected["subjects"], found(workspace))
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
    """A new folder with this repository's cohorts and pipelines.yaml and no evidence. Raises FileExistsError."""
    folder = into or REPOSITORY / ".demo" / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    folder.mkdir(parents=True)
    shutil.copy(REPOSITORY / "pipelines.yaml", folder)
    shutil.copytree(REPOSITORY / "cohorts", folder / "cohorts", ignore=shutil.ignore_patterns("__pycache__"))
    return folder.resolve()


def qualify(workspace: Path, *words: str, accepted: tuple[int, ...]) -> None:
    """Run one command on the workspace. Ends the demo with the command's exit code if it is not an accepted one."""
    command = ("qualify", *words, "--workspace", str(workspace))
    print(f"\n$ {' '.join(command)}", flush=True)
    code = subprocess.run([QUALIFY, *command[1:]], check=False).returncode
    if code not in accepted:
        print(f"demo: expected exit {' or '.join(map(str, accepted))}, got {code}", file=sys.stderr)
        sys.exit(code or 1)


def found(workspace: Path) -> dict[str, str]:
    """How each subject of the workspace's evidence ended, by `operation/cell/route`."""
    ended: dict[str, str] = {}
    for path in sorted(workspace.glob("evidence/runs/*/verdict.json")):
        verdict = json.loads(path.read_bytes())
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


def compare(expected: dict[str, list[str]], ended: dict[str, str]) -> list[str]:
    """Every subject that ended in another way than expected, every one that is missing or was not expected."""
    differences = []
    for subject in sorted(expected.keys() | ended.keys()):
        wanted, got = expected.get(subject, []), ended.get(subject, "no verdict")
        if not any(got.startswith(beginning) for beginning in wanted):
            differences.append(f"{subject}: expected {' or '.join(wanted) or 'no such subject'}, got {got}")
    return differences


if __name__ == "__main__":
    sys.exit(main())
