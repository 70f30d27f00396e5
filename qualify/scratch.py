"""Private folders on disk: all of one process lie in one folder, whose lock says that the process lives.

A process that is killed cannot tidy up, so the next one does: it removes each folder of this name, of this user, whose
lock nobody holds. The kernel gives a lock back however a process ends, so nothing here asks for ages or numbers.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
import threading
from pathlib import Path

PREFIX = "qualify-work-"

_lock = threading.Lock()
_root: Path | None = None
_handle: int | None = None


def folder() -> Path:
    """A new private folder of this process. Raises OSError if there can be none."""
    return Path(tempfile.mkdtemp(dir=_own()))


def _own() -> Path:
    """The folder of this process, made and locked when it is first asked for."""
    global _root, _handle
    with _lock:
        if _root is None:
            parent = Path(tempfile.gettempdir())
            sweep(parent)
            _root, _handle = _made(parent)
            atexit.register(shutil.rmtree, _root, ignore_errors=True)
        return _root


def _made(parent: Path) -> tuple[Path, int]:
    """A new locked folder. Another process may sweep one away before it is locked; then it is not the one."""
    while True:
        made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        handle = _locked(made)
        if handle is not None:
            return made, handle


def sweep(parent: Path) -> None:
    """Remove what processes of this user left when they were killed."""
    for left in sorted(parent.glob(f"{PREFIX}*")):
        handle = _locked(left)
        if handle is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(handle)


def _locked(path: Path) -> int | None:
    """A descriptor that holds the folder's lock; None if it is no folder of ours, is gone, or another one holds it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.fstat(handle).st_uid == os.getuid():
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), os.lstat(path)):
                return handle
    except OSError:
        pass
    os.close(handle)
    return None
