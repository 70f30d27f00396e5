"""The PoCL device of this machine: where it is, and what it is as a board.

Compile worker and measuring worker read the same description here, so that plan, lock and evidence agree.
"""

from __future__ import annotations

import ctypes
import os
import platform as host
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyopencl as cl
import pyopencl.invoker  # The first kernel of each worker would load it.
from blake3 import blake3

from qualify.domain import Board, Limits, arch_name
from qualify.errors import RigError

_VERSION = re.compile(r"PoCL (\d{1,3})\.(\d{1,3})")
#: PoCL's device version ends in `<driver>-<LLVM triple>-<LLVM name of the CPU>`.
_CPU = re.compile(r"HSTR: \S*-linux-gnu[a-z0-9]*-(\S+)$")
_MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_MEMORY_CAPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_UUID_CONTEXT = "qualify 2026 board of a CPU device"
_INSTALL = "install the OpenCL extra: pip install 'qualify[opencl]'"


@dataclass(frozen=True)
class Pocl:
    """One CPU device of the PoCL platform; `version` is the toolkit's major.minor, `build` all that it says."""

    device: Any
    version: str
    build: str
    arch: str
    board: Board


def load_ahead() -> None:
    """Load PoCL's library, where it is told which, and open nothing: forks find it in its place.

    A library that does not load says so when a worker asks for its platform.
    """
    told = Path(os.environ.get("OCL_ICD_VENDORS", ""))
    if told.name == "pocl.icd" and (library := _read(told)):
        with suppress(OSError):
            ctypes.CDLL(str(told.parent / library))


def find() -> Pocl:
    """The first CPU device of PoCL. Raises RigError, with the fix, if PoCL or `ld` is not here."""
    if shutil.which("ld") is None:
        raise RigError(
            "no `ld` on PATH, and PoCL aborts at the first launch without it", fix="install binutils, or set PATH"
        )
    for candidate in _platforms():
        match = _VERSION.search(candidate.version)
        devices = candidate.get_devices(cl.device_type.CPU) if match else []
        if match and devices:
            build = f"{candidate.name} {candidate.version}"
            arch = arch_of(devices[0])
            return Pocl(devices[0], f"{match[1]}.{match[2]}", build, arch, _board(devices[0], build))
    raise RigError("no OpenCL platform here is PoCL with a CPU device", fix=_INSTALL)


def _platforms() -> list[Any]:
    try:
        return list(cl.get_platforms())
    except cl.Error as error:
        raise RigError(f"no OpenCL platform here: {error}", fix=_INSTALL) from error


def arch_of(device: Any) -> str:
    """LLVM's name of the CPU, which decides the machine code; the device's own name where PoCL does not say it."""
    match = _CPU.search(device.version.strip())
    return arch_name(match[1] if match else device.name)


def limits_of(device: Any) -> Limits:
    """What the device says that it can do. Memory is what one allocation, so one arena, can hold here.

    PoCL gives all its memory in rising figures while a virtual machine grows; one allocation is a power of two.
    """
    x, y, z = device.max_work_item_sizes
    return Limits(
        block_threads=device.max_work_group_size,
        block=(x, y, z),
        grid=None,
        shared_bytes=device.local_mem_size,
        parameter_bytes=device.max_parameter_size,
        compute_units=device.max_compute_units,
        memory_bytes=min(device.max_mem_alloc_size, *_machine_bytes()),
        cache_bytes=device.global_mem_cache_size or None,
        source=f"OpenCL device {device.name}",
    )


def _machine_bytes() -> list[int]:
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _MEMORY_CAPS:
        text = _read(path)
        if text and text.isdigit():
            found.append(int(text))
    return found


def _board(device: Any, build: str) -> Board:
    return Board(name=device.name, uuid=_uuid(device.name), driver=build, addressing="host", limits=limits_of(device))


def _uuid(name: str) -> str:
    """The same on every start of this machine, and telling nothing of its id."""
    machine = next((text for path in _MACHINE_IDS if (text := _read(path))), None) or host.node()
    return f"cpu-{blake3(f'{machine} {name}'.encode(), derive_key_context=_UUID_CONTEXT).hexdigest(length=16)}"


def _read(path: str | Path) -> str | None:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
