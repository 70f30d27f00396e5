"""Landlock: what a thread may open, whom it may signal, where it may connect, and all that it starts from now on.

A compiler opens absolute and computed include paths, and a kernel on a CPU device is native code with its worker's
rights; both see the system's libraries and the private folder, and no workspace, home or temporary file. Access
rights and structures are those of linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # Numbers of the three calls on every architecture.
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_READ = 0b1101  # Execute, read a file, list a folder.
_READ_FILE = 0b101
_LIST = 0b1000
_ALL_BY_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_TCP = 0b11  # Bind and connect, since version 4.
_SCOPES = 0b11  # Abstract sockets and signals, since version 6.
#: Where systems keep compilers, libraries and what they say about the machine.
_SYSTEM = ("/bin", "/gnu", "/lib", "/lib32", "/lib64", "/nix", "/opt", "/proc", "/sbin", "/sys", "/usr")
_FILES = (
    "/etc/OpenCL",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/machine-id",
    "/var/lib/dbus/machine-id",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def version() -> int:
    """The version of Landlock here; 0 where there is none."""
    found: int = _libc().syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    return max(found, 0)


def confine(writable: Path, readable: Iterable[Path] = ()) -> None:
    """Keep this thread to the system, Python, `readable` and, to write too, `writable`. Raises OSError.

    Does nothing where `version` is 0; who starts workers is told so by `sandbox.apply`.
    """
    here = version()
    if not here:
        return
    everything = _ALL_BY_VERSION[max(known for known in _ALL_BY_VERSION if known <= here)]
    attributes = struct.pack("=QQQ", everything, _TCP if here >= 4 else 0, _SCOPES if here >= 6 else 0)
    size = 24 if here >= 6 else 16 if here >= 4 else 8
    rules = _call(_CREATE, ctypes.c_char_p(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        _allow(rules, Path("/"), _LIST)  # hwloc starts its walk through /sys there; names only, no contents.
        for path in (*map(Path, (*_SYSTEM, *_FILES)), *_python(), *readable):
            _allow(rules, path, _READ)
        for device in _DEVICES:
            _allow(rules, Path(device), everything)
        _allow(rules, writable, everything)
        _call(_RESTRICT, ctypes.c_int(rules), ctypes.c_uint32(0))
    finally:
        os.close(rules)


def _python() -> Iterator[Path]:
    """Where this interpreter and its packages are; of a source tree on the path, this package only."""
    yield from (Path(sys.prefix), Path(sys.base_prefix))
    yield from (Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages"))
    yield Path(__file__).resolve().parents[1]


def _allow(rules: int, path: Path, access: int) -> None:
    """Allow what is under a path, as far as it exists; a file takes the rights of files only."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not path.is_dir():
            access &= _READ_FILE | 0b10 | 1 << 14 | 1 << 15  # Write, truncate, device calls.
        beneath = struct.pack("=Qi", access, descriptor)
        _call(_ADD_RULE, ctypes.c_int(rules), ctypes.c_int(_PATH_BENEATH), ctypes.c_char_p(beneath), ctypes.c_uint32(0))
    finally:
        os.close(descriptor)


def _call(number: int, *arguments: object) -> int:
    result: int = _libc().syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"landlock call {number}: {os.strerror(code)}")
    return result


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
