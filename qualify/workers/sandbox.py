"""What a worker does to itself before it reads its first message (DESIGN sections 3 and 13).

The parent gives a clean environment, a session and a private folder; limits are set here, by the worker, because
code between fork and exec is not safe in a parent with threads. Each limit that this machine refuses is named, so
that the run's record can say it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

from qualify.workers import landlock

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
#: What a worker that drives a board apart is not held to.
WAIVED = ("memory limit where a driver reserves addresses", "file, network and signal limits beside a board's driver")
MAX_FILE_BYTES = 1 << 30  # Compilers write objects of a few megabytes.
MAX_PROCESSES = 4096  # Counted over all processes and threads of the user, so it only stops a flood.


def apply(parent: int, memory_bytes: int | None, *, drives_board: bool = False) -> tuple[str, ...]:
    """Die with process `parent`, no core dumps, bounded memory and files. Returns what could not be applied.

    A driver of a board apart reserves addresses for all memory there is, and opens files and devices of its own
    whenever it likes; its worker has no memory limit and keeps the rights of files, and the names say so.
    """
    measures: dict[str, Callable[[], None]] = {
        "death with the parent": lambda: die_with(parent),
        "no new privileges": lambda: _prctl(_PR_SET_NO_NEW_PRIVS, 1),
        "no core dumps": lambda: _limit(resource.RLIMIT_CORE, 0, 0),
        "file size limit": lambda: _limit(resource.RLIMIT_FSIZE, MAX_FILE_BYTES, MAX_FILE_BYTES),
        "process limit": _limit_processes,
        "file, network and signal limits": _landlock_is_here,
    }
    if memory_bytes is not None:
        soft, hard = memory_bytes, memory_bytes + physical_bytes()
        measures["memory limit"] = lambda: _limit(resource.RLIMIT_AS, soft, hard)
    waived = WAIVED if drives_board else ()
    return (*(name for name, measure in measures.items() if not _applied(measure)), *waived)


def confine(readable: Iterable[Path] = ()) -> None:
    """From now on this worker sees the system, Python, its tools, its private folder and what is `readable`."""
    folder = Path.cwd().parent
    platforms = [Path(os.environ[name]) for name in ("OCL_ICD_VENDORS",) if name in os.environ]
    tools = [tool.resolve().parent for tool in (folder / "bin").iterdir()]
    landlock.confine(folder, [*readable, *platforms, *(path for tool in tools for path in (tool, tool.parent / "lib"))])


def allow(extra_bytes: int) -> None:
    """Raise the memory limit by what an arena needs, up to the machine's memory; a failure leaves it as it is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        _limit(resource.RLIMIT_AS, min(soft + extra_bytes, hard), hard)


def physical_bytes() -> int:
    """The machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _applied(measure: Callable[[], None]) -> bool:
    try:
        measure()
    except (OSError, ValueError):
        return False
    return True


def die_with(parent: int) -> None:
    """Ask the kernel for SIGKILL at the parent's death; a parent that died before this call is seen here."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _landlock_is_here() -> None:
    if not landlock.version():
        raise OSError("no Landlock in this kernel")


def _limit_processes() -> None:
    if os.geteuid() == 0:
        raise PermissionError("the kernel does not count root's processes")
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    few = MAX_PROCESSES if hard == resource.RLIM_INFINITY else min(MAX_PROCESSES, hard)
    _limit(resource.RLIMIT_NPROC, few, few)


def _limit(which: int, soft: int, hard: int) -> None:
    _, ceiling = resource.getrlimit(which)
    if ceiling != resource.RLIM_INFINITY:
        hard = min(hard, ceiling)
    resource.setrlimit(which, (min(soft, hard), hard))


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
