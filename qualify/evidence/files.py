"""Reading folders that someone else wrote: by descriptor, without following links, each file once (R11.4).

Type, links and size are checked on the open descriptor, never on the name, so a file cannot be exchanged between the
check and the read. Nothing here writes or locks.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from qualify.evidence.manifest import check_path
from qualify.evidence.problems import Problem, ProblemError

MAX_RUN_BYTES = 8 << 30  # Object code and telemetry of a thousand subjects stay below 1 GiB.
MAX_ENTRIES = 250_000  # Files and folders of one run.
LARGE_BYTES = 1 << 20  # Smaller files are read at once: to hand them on costs more than it brings.

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Without O_NONBLOCK, opening a FIFO would wait for a writer for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@dataclass(frozen=True)
class File:
    """One regular file of a scanned folder, read once."""

    path: str
    data: bytes


@dataclass(frozen=True)
class Opened:
    """One regular file of a scanned folder, checked and not read: whoever takes it reads it once and closes it."""

    path: str
    handle: int
    status: os.stat_result

    def blocks(self, buffer: bytearray) -> Iterator[memoryview]:
        """Its bytes, as many at a time as the buffer holds. Raises ProblemError if it cannot be read, or changed.

        The place in the file is this call's own, so that processes which share the descriptor do not disturb it.
        """
        view, done = memoryview(buffer), 0
        try:
            while done <= self.status.st_size and (count := os.preadv(self.handle, [view], done)):
                done += count
                yield view[:count]
            after = os.fstat(self.handle)
        except OSError as error:
            raise _problem(error, self.path) from error
        _check_unchanged(self.path, self.status, after, done)


@dataclass(frozen=True)
class Folder:
    """One folder below the scanned one."""

    path: str


@contextmanager
def folder(name: str, path: str, at: int | None = None) -> Iterator[int]:
    """A folder's descriptor; `path` is what problems call it. Raises ProblemError (P02 for a link)."""
    handle = _open(name, path, _FOLDER, at)
    try:
        yield handle
    finally:
        os.close(handle)


@contextmanager
def below(at: int, path: str) -> Iterator[int]:
    """The descriptor of a folder some segments below another; no segment may be a link or a mount point."""
    handle = os.dup(at)
    try:
        for segment in path.split("/") if path else ():
            inner = _open(segment, path, _FOLDER, handle)
            os.close(handle)
            handle = inner
        _same_device(handle, at, path)
        yield handle
    finally:
        os.close(handle)


def names(at: int, path: str) -> list[os.DirEntry[str]]:
    """A folder's entries by name. Raises ProblemError if there are too many to read."""
    try:
        with os.scandir(at) as entries:
            found = list(islice(entries, MAX_ENTRIES + 1))
    except OSError as error:
        raise _problem(error, path) from error
    if len(found) > MAX_ENTRIES:
        raise ProblemError("P17", path, f"more than {MAX_ENTRIES} entries")
    return sorted(found, key=lambda entry: entry.name)


def read_file(at: int, name: str, path: str, limit_bytes: int) -> bytes:
    """The bytes of a regular file with one link and no more than a cap. Raises ProblemError for anything else."""
    return _whole(_opened(at, name, path, limit_bytes))


def scan(
    at: int, limit_of: Callable[[str], int | None], is_held: Callable[[str], bool]
) -> Iterator[File | Opened | Folder | Problem]:
    """Everything below a folder in order of names, one file in memory at a time.

    `limit_of` tells the most bytes that a path may have; None for a path that has no business there. A large file whose
    bytes nobody wants to hold (`is_held`) is opened and not read.
    """
    yield from _Scan(limit_of, is_held).folder(at, "")


class _Scan:
    """One walk, with what it may still read."""

    def __init__(self, limit_of: Callable[[str], int | None], is_held: Callable[[str], bool]) -> None:
        self._limit_of, self._is_held = limit_of, is_held
        self._bytes_left = MAX_RUN_BYTES
        self._entries_left = MAX_ENTRIES

    def folder(self, at: int, prefix: str) -> Iterator[File | Opened | Folder | Problem]:
        try:
            entries = names(at, prefix or ".")
        except ProblemError as error:
            yield error.problem
            return
        for entry in entries:
            self._entries_left -= 1
            if self._entries_left < 0:
                yield Problem(prefix + entry.name, "P17", f"more than {MAX_ENTRIES} entries; the rest was not read")
                return
            try:
                yield from self._entry(at, entry, prefix + entry.name)
            except ProblemError as error:
                yield error.problem
            except OSError as error:
                yield _problem(error, prefix + entry.name).problem

    def _entry(self, at: int, entry: os.DirEntry[str], path: str) -> Iterator[File | Opened | Folder | Problem]:
        check_path(path)
        if entry.is_dir(follow_symlinks=False):
            yield Folder(path)
            yield from self._inner(at, entry.name, path)
        elif entry.is_file(follow_symlinks=False):
            yield self._file(at, entry.name, path)
        else:
            _refuse_type(entry.stat(follow_symlinks=False).st_mode, path)

    def _inner(self, at: int, name: str, path: str) -> Iterator[File | Opened | Folder | Problem]:
        with folder(name, path, at) as handle:
            _same_device(handle, at, path)
            yield from self.folder(handle, path + "/")

    def _file(self, at: int, name: str, path: str) -> File | Opened:
        limit_bytes = self._limit_of(path)
        if limit_bytes is None:
            raise ProblemError("S01", path, "no run has a file of this name")
        opened = _opened(at, name, path, min(limit_bytes, self._bytes_left))
        self._bytes_left -= opened.status.st_size
        if opened.status.st_size >= LARGE_BYTES and not self._is_held(path):
            return opened
        return File(path, _whole(opened))


def _open(name: str, path: str, flags: int, at: int | None) -> int:
    try:
        return os.open(name, flags, dir_fd=at)
    except OSError as error:
        if flags == _FOLDER and error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise ProblemError("P02", path, "expected a folder, got a link or a file") from error
        raise _problem(error, path) from error


def _opened(at: int, name: str, path: str, limit_bytes: int) -> Opened:
    """A regular file with one link and no more than a cap, open. Raises ProblemError for anything else."""
    handle = _open(name, path, _FILE, at)
    try:
        status = os.fstat(handle)
        _check_regular(status, path, limit_bytes)
    except BaseException as error:
        os.close(handle)
        if isinstance(error, OSError):
            raise _problem(error, path) from error
        raise
    return Opened(path, handle, status)


def _whole(opened: Opened) -> bytes:
    """The bytes of a file, which is closed then. Raises ProblemError if it cannot be read, or changed."""
    try:
        data = _read(opened.handle, opened.status.st_size)
        after = os.fstat(opened.handle)
    except OSError as error:
        raise _problem(error, opened.path) from error
    finally:
        os.close(opened.handle)
    _check_unchanged(opened.path, opened.status, after, len(data))
    return data


def _check_unchanged(path: str, before: os.stat_result, after: os.stat_result, size: int) -> None:
    if size != before.st_size or _state(before) != _state(after):
        raise ProblemError("P14", path, "it changed while it was read; is it still being written?")


def _same_device(handle: int, at: int, path: str) -> None:
    if os.fstat(handle).st_dev != os.fstat(at).st_dev:
        raise ProblemError("P07", path, "another file system is mounted here")


def _check_regular(status: os.stat_result, path: str, limit_bytes: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        _refuse_type(status.st_mode, path)
    if status.st_nlink != 1:
        raise ProblemError("P04", path, f"expected one hard link, got {status.st_nlink}")
    if status.st_size > limit_bytes:
        raise ProblemError("P17", path, f"expected at most {limit_bytes} bytes, got {status.st_size}")


def _refuse_type(mode: int, path: str) -> None:
    code = "P01" if stat.S_ISLNK(mode) else "P05" if stat.S_ISFIFO(mode) else "P06"
    raise ProblemError(code, path, "expected a regular file")


def _read(handle: int, size: int) -> bytes:
    """The first `size` bytes, or fewer if the file ends before; growth shows in its status."""
    data = os.read(handle, size)
    while len(data) < size:
        more = os.read(handle, size - len(data))
        if not more:
            break
        data += more
    return data


def _state(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _problem(error: OSError, path: str) -> ProblemError:
    match error.errno:
        case errno.ELOOP:
            return ProblemError("P01", path, "expected a regular file, got a symbolic link")
        case errno.ENOENT:
            return ProblemError("S03", path, "there is no such file")
        case errno.ENXIO:
            return ProblemError("P06", path, "expected a regular file, got a socket or a device")
        case errno.EISDIR:
            return ProblemError("P06", path, "expected a regular file, got a folder")
        case _:
            return ProblemError("F05", path, f"it cannot be read: {error.strerror}")
