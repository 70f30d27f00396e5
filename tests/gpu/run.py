"""Every test that needs a board, in one call: `make gpu`, or `python3 tests/gpu/run.py` with any Python.

Workers start in a clean environment, so packages that are on PYTHONPATH only would not reach them. The tests run in
an environment made for this call, which has every folder that this Python imports from, and leaves nothing behind.
Several boards share the tests, a process each. Arguments go to pytest. One closing line; exit 0 only if tests ran and
all passed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
MARK = "mark.gpu"
OPTIONS = ("-m", "gpu", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "--import-mode=importlib")


def main() -> int:
    """Make the environment, say what is here, run the tests, close with one line."""
    with TemporaryDirectory(prefix="qualify-gpu-") as folder:
        python = environment(Path(folder))
        board = described(python)
        report = Path(folder) / "report.xml"
        here = boards()
        shared = ("--numprocesses", str(len(here)), "--dist", "worksteal") if len(here) > 1 else ()
        command = [str(python), "-m", "pytest", *OPTIONS, *shared, f"--junitxml={report}", *files(), *sys.argv[1:]]
        variables = {**clean(), "CUDA_VISIBLE_DEVICES": ",".join(here)} if here else clean()
        code = subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode
        counts = counted(report)
    bad = counts["failed"] + counts["skipped"]
    more = f" and {len(here) - 1} more" if len(here) > 1 else ""
    print(f"gpu: {counts['passed']} passed, {bad} failed on {board}{more}")
    return code or int(bad > 0 or counts["passed"] == 0)


def environment(folder: Path) -> Path:
    """The Python of a new environment that imports from wherever this one does, and from this tree."""
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", folder / "env"), check=True)
    library = Path(sysconfig.get_path("stdlib")).resolve()
    own = {library, library / "lib-dynload", Path(__file__).parent}
    paths = [Path(entry).resolve() for entry in sys.path if entry and Path(entry).is_dir()]
    lines = [str(ROOT)]
    for number, path in enumerate(dict.fromkeys(path for path in paths if path not in own)):
        link = folder / f"carried-{number}" / "site-packages"  # The name by which workers know what they may read.
        link.parent.mkdir()
        link.symlink_to(path)
        lines.append(str(link))
    (site,) = (folder / "env/lib").glob("python*/site-packages")
    (site / "carried.pth").write_text("\n".join(lines) + "\n")
    return folder / "env/bin/python"


def clean() -> dict[str, str]:
    """This process's variables but for those that would hide a package that workers do not find."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def boards() -> list[str]:
    """The boards that are here, by UUID or as the user names them; none where the driver's tool does not say."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return named.split(",")
    try:
        command = ("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader")
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return []


def described(python: Path) -> str:
    """What is here, printed; and the board, if one can be measured on."""
    command = (python, "-m", "qualify", "toolkits", "list")
    said = subprocess.run(command, cwd=ROOT, env=clean(), check=False, capture_output=True, text=True)
    print(said.stdout + said.stderr, flush=True)
    measures = [line.partition("measures on ")[2] for line in said.stdout.splitlines()]
    return next((line for line in measures if "GPU-" in line or "MIG-" in line), "no board")


def files() -> list[str]:
    """The test files that plant the mark, and those whose devices do."""
    marked = {path for path in ROOT.glob("tests/**/test_*.py") if MARK in path.read_text()}
    return sorted(str(path.relative_to(ROOT)) for path in {*marked, *ROOT.glob("tests/devices/test_*.py")})


def counted(report: Path) -> Counter[str]:
    """How many tests ended how; none where there is no report."""
    counts: Counter[str] = Counter()
    if report.exists():
        for case in ElementTree.parse(report).iter("testcase"):
            kinds = {child.tag for child in case}
            counts["failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"] += 1
    return counts


if __name__ == "__main__":
    sys.exit(main())
