"""A small workspace that tests write, break and load; nothing of it is real."""

from pathlib import Path

import pytest

from qualify import cohort
from qualify.domain import Domain, Limits
from qualify.errors import Exit, InputError
from qualify.subject import Subject

OPENCL = Domain(toolkit="pocl-3.0", arch="cpu")
CUDA = Domain(toolkit="cuda-13.2", arch="sm_90")
LIMITS = Limits(source="test")

COHORT = """\
operation: scale
dispatcher_revision: 1
arguments:
  - {name: y, kind: output, dtype: "{dtype}", shape: [rows, cols]}
  - {name: x, kind: input, dtype: "{dtype}", shape: [rows, cols]}
  - {name: rows, kind: scalar, dtype: int32, value: rows}
cells:
  - {id: big, dtype: float32, rows: 8, cols: 4}
  - {id: small, dtype: float32, rows: 1, cols: 3, timed: false}
routes:
  plain: {fragments: ["common/{runtime}.h", plain.k], launches: [{symbol: plain, grid: [rows], block: [cols]}]}
  fast:
    fragments: ["common/{runtime}.h", fast.k]
    launches:
      - {memset: y}
      - {symbol: fast, grid: ["rows // 4"], block: [64]}
    admits: "cols % 2 == 0"
    options: []
    defines: {T: "{dtype}"}
plain: plain
bits: own
numeric: {cap_relative: 1e-5}
reference: reference.py:scale
"""
FILES = {
    "common/opencl.h": "#define A 1\n",
    "common/cuda.h": "#define A 2\n",
    "scale/plain.k": "void plain() {}\n",
    "scale/fast.k": '#include "common/opencl.h"\nvoid fast() {}\n',
    "scale/reference.py": "def scale(cell, inputs):\n    return {}\n",
    "scale/cohort.yaml": COHORT,
}


def write(folder: Path, **changed: str) -> Path:
    """A workspace below `folder`; `changed` replaces a file's text, `scale_fast_k="..."`."""
    for path, text in FILES.items():
        file = folder / "cohorts" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(changed.get(path.replace("/", "_").replace(".", "_"), text))
    return folder


def edited(old: str, new: str) -> str:
    """The cohort with the last occurrence of `old` changed."""
    head, found, tail = COHORT.rpartition(old)
    assert found, old
    return head + new + tail


def changed_lines(text: str) -> set[int]:
    """The lines in which a text differs from the cohort."""
    pairs = zip(text.split("\n"), COHORT.split("\n"), strict=False)
    return {number for number, (a, b) in enumerate(pairs, start=1) if a != b}


def subject(workspace: Path, route: str, cell: str = "big", domain: Domain = OPENCL) -> Subject:
    """One subject of the workspace."""
    found = select(workspace, domain).subjects
    return next(item for item in found if item.key == (cell, route))


def select(workspace: Path, domain: Domain = OPENCL) -> cohort.Selection:
    """All subjects of the workspace's one cohort."""
    return cohort.subjects(cohort.load(workspace, "scale"), domain, LIMITS, "build 1")


def identity(workspace: Path, route: str = "fast", domain: Domain = OPENCL) -> str:
    """The identity of a route in the cell `big`; the route must be composed."""
    arm = subject(workspace, route, domain=domain).candidate
    assert arm.identity is not None, arm.error
    return arm.identity


def refusal(workspace: Path) -> InputError:
    """Why the cohort is not loaded."""
    with pytest.raises(InputError) as caught:
        cohort.load(workspace, "scale")
    assert caught.value.exit is Exit.USAGE
    assert caught.value.fix
    return caught.value
