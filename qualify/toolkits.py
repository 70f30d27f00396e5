"""Toolkits by name: which worker serves one, what it needs on this machine, and what to do where that is missing."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from qualify.errors import RigError

_NAME = re.compile(r"(cuda|pocl|simulated)-([0-9]{1,3}\.[0-9]{1,3})")
_GIB = 1 << 30


@dataclass(frozen=True)
class Toolkit:
    """One toolkit that can be started here. `worker` names its compiler and device, `version` is major.minor.

    `tools` is all that its workers find on their PATH, `variables` all that they inherit from this environment: where
    the OpenCL loader finds its platforms, if that is set. A compile worker's address space is small, so that a macro
    bomb dies before the machine swaps; a measuring worker's grows by what its arena needs.
    """

    name: str
    worker: str
    version: str
    compile_bytes: int
    measure_bytes: int
    tools: Mapping[str, Path] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


def find(name: str) -> Toolkit:
    """The toolkit of that name. Raises RigError, with the fix, if this machine lacks what it needs."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise RigError(
            f"expected a toolkit such as pocl-3.0, got {name}", fix="name cuda, pocl or simulated with major.minor"
        )
    family, version = match.groups()
    if family == "pocl":
        return _pocl(name, version)
    if family == "simulated":
        return Toolkit(name, "simulated", version, compile_bytes=2 * _GIB, measure_bytes=4 * _GIB)
    raise RigError(f"{name}: this version drives no CUDA device", fix="plan a pocl or simulated domain")


def check_version(toolkit: Toolkit, found: str) -> None:
    """Raises RigError unless the worker found the version that the toolkit's name promises."""
    if found != toolkit.version:
        family = toolkit.name.partition("-")[0]
        raise RigError(
            f"expected {toolkit.name}, got {family}-{found}", fix=f"plan {family}-{found}, or install {toolkit.name}"
        )


def _pocl(name: str, version: str) -> Toolkit:
    if importlib.util.find_spec("pyopencl") is None:
        raise RigError(f"{name}: expected the module pyopencl, found none", fix="pip install 'qualify[opencl]'")
    linker = shutil.which("ld")
    if linker is None:
        raise RigError(
            f"{name}: expected `ld` on PATH, found none; PoCL aborts at the first launch without it",
            fix="install binutils (apt-get install binutils), or add the folder of `ld` to PATH",
        )
    return Toolkit(
        name,
        "opencl",
        version,
        compile_bytes=2 * _GIB,
        measure_bytes=6 * _GIB,
        tools={"ld": Path(linker).resolve()},
        variables={key: os.environ[key] for key in ("OCL_ICD_VENDORS",) if key in os.environ},
    )
