"""Files of a workspace: regular ones below its folder, size first, no link followed (R6.9)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from qualify.errors import InputError

MAX_FILE_BYTES = 1 << 20  # A fragment; the largest hand-written kernel file known to us has 300 KiB.


def read_file(root: Path, path: str, limit_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The bytes of a regular file below `root`. Raises InputError for a link anywhere on the way and anything else.

    `root` itself is the user's own word and may be a link.
    """
    segments = path.split("/")
    if not all(segments) or {".", ".."} & set(segments) or "\0" in path:
        raise InputError(
            path, expected="a path inside the workspace", got=path, fix="write it without a leading /, . or .."
        )
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for index, segment in enumerate(segments[:-1]):
            inner = _open(folder, segment, os.O_DIRECTORY, "/".join(segments[: index + 1]), "a folder")
            os.close(folder)
            folder = inner
        file = _open(folder, segments[-1], os.O_NONBLOCK, path, "a regular file")
    finally:
        os.close(folder)
    try:
        return _read_regular(file, path, limit_bytes)
    finally:
        os.close(file)


def _open(folder: int, segment: str, flags: int, path: str, expected: str) -> int:
    try:
        return os.open(segment, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=folder)
    except OSError as error:
        got = _kind_of(folder, segment) or "nothing"
        if got == expected:
            got = os.strerror(error.errno or 0)
        raise InputError(path, expected=expected, got=got, fix=_fix_for(got, path)) from error


def _kind_of(folder: int, segment: str) -> str | None:
    try:
        return _kind(os.stat(segment, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return None


_KINDS = {
    stat.S_IFREG: "a regular file",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
}


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "a device")


def _fix_for(got: str, path: str) -> str:
    if got == "a link":
        return f"put a copy at {path} in place of the link"
    return f"put it at {path}, or correct the path that names it"


def _read_regular(file: int, path: str, limit_bytes: int) -> bytes:
    state = os.fstat(file)
    kind = _kind(state.st_mode)
    if kind != "a regular file":
        raise InputError(path, expected="a regular file", got=kind, fix=_fix_for(kind, path))
    data = b""
    if state.st_size <= limit_bytes:
        with os.fdopen(file, "rb", closefd=False) as opened:
            data = opened.read(limit_bytes + 1)
    if max(state.st_size, len(data)) > limit_bytes:
        size = f"{max(state.st_size, len(data))} bytes"
        raise InputError(path, expected=f"at most {limit_bytes} bytes", got=size, fix="make the file smaller")
    return data
