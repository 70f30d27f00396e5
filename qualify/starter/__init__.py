"""`qualify init`: a workspace with a cohort of your own that screens at once, to be edited into what you have."""

from __future__ import annotations

import re
from pathlib import Path

from qualify.errors import RigError, UsageError
from qualify.workspace import PIPELINES

HERE = Path(__file__).resolve().parent
#: Of this project's own workspace; a wheel holds copies, made when it is built.
SHARED = {PIPELINES: PIPELINES, "opencl.h": "cohorts/common/opencl.h", "cuda.h": "cohorts/common/cuda.h"}
#: Beside this file, and their names in a cohort.
OWN = {"cohort.yaml": "cohort.yaml", "plain.k": "plain.k", "mine.k": "mine.k", "reference.txt": "reference.py"}
_OPERATION = re.compile(r"[a-z][a-z0-9_]{0,40}")


def init(workspace: Path, operation: str) -> tuple[str, ...]:
    """Write the files that are not there yet; their names. Raises UsageError for a name, RigError for the disk.

    A cohort of that name is never touched, nor any other file that is there.
    """
    if not _OPERATION.fullmatch(operation) or operation == "common":
        raise UsageError(
            f"expected a name of lower-case letters, digits and _, got {operation}", fix="call it my_add, for instance"
        )
    cohort = workspace / "cohorts" / operation
    if cohort.exists():
        raise UsageError(f"there is {cohort} already", fix="choose another name, or edit what is there")
    files = {path: _shared(name) for name, path in SHARED.items() if not (workspace / path).exists()}
    for name, inside in OWN.items():
        text = (HERE / name).read_text(encoding="utf-8").replace("OPERATION", operation)
        files[f"cohorts/{operation}/{inside}"] = text
    try:
        for path, text in files.items():
            (workspace / path).parent.mkdir(parents=True, exist_ok=True)
            (workspace / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise RigError(
            f"expected to write {error.filename}, got {error.strerror}", fix="name another folder"
        ) from error
    return tuple(files)


def _shared(name: str) -> str:
    """A file of this project's workspace, from the wheel or from the repository; no board of ours is yours."""
    shipped = HERE / name
    text = (shipped if shipped.exists() else HERE.parents[1] / SHARED[name]).read_text(encoding="utf-8")
    return text.partition("\nboards:")[0].rstrip("\n") + "\n" if name == PIPELINES else text
