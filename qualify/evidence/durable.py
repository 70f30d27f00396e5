"""Writing that survives a crash: exclusive creates, full writes, fsync, a rename that never replaces (R11.3).

What is on record is on the device before its rename: a file by itself, or many at once, which costs little more. Every
file operation is announced before and after, so that a test can stop the process at each of them. A failed operation
ends the run: nothing is tried again (an fsync that failed once may report success the second time and has lost the
data), and what was written stays for a person.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import TypeVar

from qualify.errors import RigError
from qualify.evidence.problems import printable

T = TypeVar("T")
#: Called with `before <operation> <path>` and `after <operation> <path>`; what it raises, the operation raises.
Announce = Callable[[str], None]

_SYNCED_AT_ONCE = 16  # One by one each waits for a commit of its own; so many wait for one together.
#: Paths, and what syncs them in that order and says of each what went wrong.
Group = tuple[Sequence[str], Callable[[], Iterator[OSError | None]]]

_RENAME_NOREPLACE = 1  # linux/fs.h
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_WRITABLE = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
LOCAL_FIX = "put evidence/ on a local file system (ext4, xfs, btrfs, tmpfs)"


def silent(_operation: str) -> None:
    """Announce to nobody."""


class Writer:
    """File operations below one store, named by paths relative to it. Every method raises RigError if it fails."""

    def __init__(self, store: str, announce: Announce) -> None:
        self._store = store
        self._announce = announce

    def write(self, at: int, name: str, path: str, data: bytes) -> None:
        """Create a file that is not there yet, write all of it, and wait until the device has it."""
        self.put(at, name, path, data, synced=True)

    def put(self, at: int, name: str, path: str, data: bytes, *, synced: bool = False) -> None:
        """Create a file that is not there yet and write all of it. Unless `synced`, the device may not have it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = self._do("create", path, partial(os.open, name, flags, 0o644, dir_fd=at))
        try:
            self._do("write", path, partial(_write_all, handle, data))
            if synced:
                self._do("sync", path, partial(os.fsync, handle))
        except BaseException:
            os.close(handle)
            raise
        self._do("close", path, partial(os.close, handle))

    @contextmanager
    def syncing(self, groups: Sequence[Group]) -> Iterator[None]:
        """Let the device take files that were put, and folders, by path, beside the block; it has all of them after it.

        Many groups are synced at once.
        """
        failed: dict[str, OSError] = {}

        def some(first: int) -> None:
            for paths, syncs in groups[first::_SYNCED_AT_ONCE]:
                errors = zip(paths, syncs(), strict=True)
                failed.update({path: error for path, error in errors if error is not None})

        with ThreadPoolExecutor(_SYNCED_AT_ONCE) as pool:
            begun = [pool.submit(some, first) for first in range(_SYNCED_AT_ONCE)]
            yield
            for done in begun:
                done.result()
        for path in (path for paths, _ in groups for path in paths):
            self._do("sync", path, partial(_raise, failed.get(path)))

    def make_folder(self, at: int, name: str, path: str) -> None:
        """Make a folder that is not there yet."""
        self._do("mkdir", path, partial(os.mkdir, name, 0o755, dir_fd=at))

    def ensure_folder(self, at: int, name: str, path: str) -> None:
        """Make a folder unless it is there, or another process makes it at the same moment."""
        with suppress(FileExistsError):
            self._do("mkdir", path, partial(os.mkdir, name, 0o755, dir_fd=at), expected=FileExistsError)

    def sync_folder(self, at: int, path: str) -> None:
        """Wait until the device has a folder's entries."""
        self._do("sync", path, partial(os.fsync, at))

    def move(self, at: int, name: str, to_at: int, to_name: str, path: str) -> None:
        """Give a file or a folder another place, which must be free."""
        self._do("rename", path, partial(_rename_exclusively, at, name, to_at, to_name))

    def remove(self, at: int, name: str, path: str) -> None:
        """Remove a file of this writer's own."""
        self._do("remove", path, partial(os.unlink, name, dir_fd=at))

    def _do(self, operation: str, path: str, call: Callable[[], T], expected: type[OSError] | tuple[()] = ()) -> T:
        try:
            self._announce(f"before {operation} {path}")
            result = call()
            self._announce(f"after {operation} {path}")
        except expected:
            raise
        except OSError as error:
            raise self._rig_error(error, operation, path) from error
        return result

    def _rig_error(self, error: OSError, operation: str, path: str) -> RigError:
        where = printable(f"{self._store}/{path}")
        message = f"evidence cannot be written: {operation} of {where}: {error.strerror or error}"
        if error.errno in _NO_SPACE:
            fix = "free some space or raise the quota, then start again; staging/ keeps what was written"
        elif error.errno in _NOT_WRITABLE:
            fix = f"make {printable(self._store)} writable, or work in another workspace"
        elif error.errno in _UNSUPPORTED and operation == "rename":
            fix = LOCAL_FIX
        elif error.errno == errno.EEXIST:
            fix = "start again: a run of this name is on record already, and no record is ever replaced"
        else:
            fix = "check the disk, then start again; staging/ keeps what was written, which proves nothing"
        return RigError(message, fix=fix)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Finish a file before Ctrl-C or SIGTERM is heard, so that no half of one is on record; then it is heard."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python runs signal handlers in the main thread only.
        return
    heard: list[tuple[int, FrameType | None]] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in before.items() if callable(handler)}
    for wanted in handlers:
        signal.signal(wanted, lambda number, frame: heard.append((number, frame)))
    try:
        yield
    finally:
        for wanted, handler in handlers.items():
            signal.signal(wanted, handler)
        for number, frame in heard[:1]:
            handlers[signal.Signals(number)](number, frame)


def synced(call: Callable[[], None]) -> OSError | None:
    """What goes wrong when something is synced."""
    try:
        call()
    except OSError as error:
        return error
    return None


def _raise(error: OSError | None) -> None:
    if error is not None:
        raise error


def _write_all(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        written = os.write(handle, rest)
        if not written:
            raise OSError(errno.EIO, "nothing was written")
        rest = rest[written:]


def _rename_exclusively(at: int, name: str, to_at: int, to_name: str) -> None:
    """renameat2(RENAME_NOREPLACE); `os` does not have it. Raises OSError, ENOSYS where the C library lacks it."""
    library = ctypes.CDLL(None, use_errno=True)
    call = getattr(library, "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, "the C library has no renameat2")
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    if call(at, os.fsencode(name), to_at, os.fsencode(to_name), _RENAME_NOREPLACE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
