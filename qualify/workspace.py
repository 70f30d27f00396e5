"""The workspace: the folder with pipelines.yaml, cohorts/ and evidence/."""

from __future__ import annotations

from pathlib import Path

from qualify.errors import UsageError

PIPELINES = "pipelines.yaml"


def find_workspace(given: Path | None) -> Path:
    """The folder named on the command line, else the nearest parent with a pipelines.yaml. Raises UsageError."""
    if given is not None:
        if not (given / PIPELINES).is_file():
            raise UsageError(
                f"expected a workspace at {given}, got a folder without {PIPELINES}",
                fix=f"name the folder that holds {PIPELINES} and cohorts/",
            )
        return given.resolve()
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / PIPELINES).is_file():
            return folder
    raise UsageError(
        f"no {PIPELINES} in {here} or any folder above it",
        fix="go to a workspace, or name one with --workspace DIR",
    )


def operations(workspace: Path) -> tuple[str, ...]:
    """Every operation that has a cohort, by name."""
    return tuple(sorted(path.parent.name for path in (workspace / "cohorts").glob("*/cohort.yaml")))


def check_operation(workspace: Path, operation: str) -> None:
    """Raises UsageError unless the workspace has the operation."""
    known = operations(workspace)
    if operation not in known:
        raise UsageError(
            f"expected an operation of this workspace ({', '.join(known) or 'there is none'}), got {operation}",
            fix=f"name one of them, or add cohorts/{operation}/cohort.yaml",
        )


def evidence_root(workspace: Path) -> Path:
    """The workspace's evidence store."""
    return workspace / "evidence"
