"""Harnesses on disk: what a compile worker made of our own kernels, kept for the next process of this user.

A file counts only if it is this user's, nobody else can write to it, and its
bytes are those that were kept; anything else is made again. It holds no candidate's code, and no worker can write there
where file limits apply.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from blake3 import blake3

from qualify.cuda_toolkits import cache_folder

_DEVICES = Path(__file__).parent / "workers" / "devices"
_KEY = "qualify 2026 key of a harness on disk"
_SEAL_BYTES = 32
MAX_BYTES = 64 << 20


def key(told: Iterable[str]) -> str:
    """What decides a harness: all that its compile worker is told and says, our sources, what this CPU can do."""
    made = blake3(derive_key_context=_KEY)
    for path in sorted(_DEVICES.iterdir()):
        if path.is_file():
            made.update(f"{path.name}\0".encode() + blake3(path.read_bytes()).digest())
    for part in (*told, _cpu_flags()):
        made.update(f"{part}\0".encode())
    return made.hexdigest()


def _cpu_flags() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def kept(named: str, folder: Path | None = None) -> bytes | None:
    """The harness of that key; None if there is none whose bytes can be trusted."""
    try:
        descriptor = os.open(_path(named, folder), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = _trusted(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    seal, data = data[:_SEAL_BYTES], data[_SEAL_BYTES:]
    return data if data and blake3(data).digest() == seal else None


def _trusted(descriptor: int) -> bytes:
    """The bytes of a file that only this user can write; none of anything else. Raises OSError."""
    found = os.fstat(descriptor)
    ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    if not ours or found.st_size > MAX_BYTES:
        return b""
    with open(descriptor, "rb", closefd=False) as file:
        return file.read(MAX_BYTES + 1)


def keep(named: str, data: bytes, folder: Path | None = None) -> None:
    """Keep a harness, whole or not at all; where that cannot be done, the next process makes its own."""
    path = _path(named, folder)
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, beside = tempfile.mkstemp(dir=path.parent)
        try:
            with open(descriptor, "wb") as file:
                file.write(blake3(data).digest() + data)
            os.replace(beside, path)
        except OSError:
            os.unlink(beside)
            raise


def _path(named: str, folder: Path | None) -> Path:
    return (folder or cache_folder()) / "harnesses" / named
