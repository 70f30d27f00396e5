"""The processes of a rig, seen from outside."""

import time
from collections.abc import Callable
from pathlib import Path

TEMPLATE = "qualify.workers.template"


def state_and_parent(pid: int) -> tuple[str, int]:
    """A process's state letter and its parent; ("gone", 0) where there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "gone", 0
    return fields[0], int(fields[1])


def workers(parent: int) -> set[int]:
    """The worker processes of a process: what its templates forked."""
    above, started = parents(), templates(parent)
    return {pid for pid, one in above.items() if one in started}


def templates(parent: int) -> set[int]:
    """The templates of a process."""
    return {pid for pid, above in parents().items() if above == parent and TEMPLATE in words(pid)}


def parents() -> dict[int, int]:
    """The parent of every process."""
    return {int(entry.name): state_and_parent(int(entry.name))[1] for entry in Path("/proc").glob("[0-9]*")}


def words(pid: int) -> list[str]:
    """A process's command line; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []


def kind(pid: int) -> str:
    """What kind of worker a process is; "gone" where there is none."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "gone"


def children(parent: int) -> dict[str, int]:
    """One worker of each kind that a process has."""
    return {named: pid for pid in workers(parent) if (named := kind(pid)) != "gone"}


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds. Raises AssertionError if it never does."""
    for _ in range(1000):
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come true")
