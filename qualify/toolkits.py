"""Toolkits by name: which worker serves one, what it needs on this machine, and what to do where that is missing."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from qualify import cuda_toolkits
from qualify.errors import RigError

_NAME = re.compile(r"(cuda|pocl|simulated)-([0-9]{1,3}\.[0-9]{1,3})")
_GIB = 1 << 30
#: Where containers put the driver without telling the loader.
_DRIVER_FOLDERS = ("/usr/local/nvidia/lib64", "/usr/lib/wsl/lib")
_DRIVER = "libcuda.so.1"
_PLATFORMS = "OCL_ICD_VENDORS"
#: What PoCL's wheel lays beside pyopencl's loader.
_POCL_ALONE = ".libs/pocl.icd"


@dataclass(frozen=True)
class Toolkit:
    """One toolkit that can be started here. `worker` names its compiler and device, `version` is major.minor.

    `tools` is all that its workers find on their PATH, `variables` what all of them are told: where the OpenCL loader
    finds its platforms. `compiler` and `device` are what the compile worker and the
    measuring worker alone are told. A compile worker's address space is small, so that a macro bomb dies before the
    machine swaps; a measuring worker's grows by what its arena needs, and has no limit (None) where the driver
    reserves addresses for all memory there is. `apart` says that the board is another than the machine that
    compiles, `boards` that one is here. `folders` are the toolkit's own, where it has some, `files` what lies there.
    """

    name: str
    worker: str
    version: str
    compile_bytes: int
    measure_bytes: int | None
    tools: Mapping[str, Path] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    compiler: Mapping[str, str] = field(default_factory=dict)
    device: Mapping[str, str] = field(default_factory=dict)
    apart: bool = False
    boards: bool = True
    folders: tuple[Path, ...] = ()
    files: cuda_toolkits.ToolkitFiles | None = None

    @cached_property
    def build(self) -> str:
        """A digest of the toolkit's files where the compiler does not tell them apart. Raises RigError.

        To look at two thousand files takes as long as a worker to start, so it is for when that is on its way.
        """
        return cuda_toolkits.digest(self.files) if self.files else ""

    def aimed(self, arch: str) -> Toolkit:
        """This toolkit with a compiler that is told its architecture, where it takes one."""
        return replace(self, compiler={**self.compiler, cuda_toolkits.ARCH_VARIABLE: arch}) if self.apart else self

    def on(self, uuid: str) -> Toolkit:
        """This toolkit with measuring workers that see one board only."""
        return replace(self, device={**self.device, "CUDA_VISIBLE_DEVICES": uuid}) if self.apart else self


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
    major, minor = version.split(".")
    release = (int(major), int(minor))
    return cuda(release, cuda_toolkits.find(release))


def check_version(toolkit: Toolkit, found: str) -> None:
    """Raises RigError unless the worker found the version that the toolkit's name promises."""
    if found != toolkit.version:
        family = toolkit.name.partition("-")[0]
        raise RigError(
            f"expected {toolkit.name}, got {family}-{found}", fix=f"plan {family}-{found}, or install {toolkit.name}"
        )


def board_nodes(devices: Path = Path("/dev")) -> tuple[Path, ...]:
    """The device nodes of this machine's CUDA boards; none means that there is no board, whatever else is here."""
    return tuple(sorted((*devices.glob("nvidia[0-9]*"), *devices.glob("dxg"))))


def _pocl(name: str, version: str) -> Toolkit:
    found = importlib.util.find_spec("pyopencl")
    if found is None or found.origin is None:
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
        variables=platforms(Path(found.origin).parent / _POCL_ALONE, os.environ),
    )


def platforms(alone: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Where workers of PoCL are told to find OpenCL's platforms: where the caller says, else in PoCL's wheel alone.

    Without either the loader looks where it always does, and brings every platform that is there into each worker.
    """
    named = environment.get(_PLATFORMS, str(alone) if alone.is_file() else None)
    return {} if named is None else {_PLATFORMS: named}


def cuda(release: cuda_toolkits.Release, folders: tuple[Path, ...]) -> Toolkit:
    """The CUDA toolkit that lies in some folders. Raises RigError if they hold none."""
    version = f"{release[0]}.{release[1]}"
    return Toolkit(
        f"cuda-{version}",
        "cuda",
        version,
        compile_bytes=2 * _GIB,
        measure_bytes=None,
        compiler={cuda_toolkits.FOLDERS_VARIABLE: os.pathsep.join(map(str, folders))},
        device=driver_environment(os.environ),
        apart=True,
        boards=bool(board_nodes()),
        folders=folders,
        files=cuda_toolkits.files(*folders),
    )


def driver_environment(environment: Mapping[str, str], places: tuple[str, ...] = _DRIVER_FOLDERS) -> dict[str, str]:
    """What a worker is told that drives a CUDA board (DESIGN section 13).

    Modules are loaded when asked and from no cache, so that no launch pays for it and none breaks a capture. The
    board is the first that the caller may see, numbered by its place on the bus. Nothing else of the caller's
    variables reaches the worker, but the folder of the driver where only a variable or a custom leads there.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    named = [folder for folder in environment.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder]
    folders = [folder for folder in (*named, *places) if Path(folder, _DRIVER).exists()]
    found = {"LD_LIBRARY_PATH": os.pathsep.join(dict.fromkeys(folders))} if folders else {}
    return {
        "CUDA_CACHE_DISABLE": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_MODULE_LOADING": "EAGER",
        "CUDA_VISIBLE_DEVICES": visible,
        **found,
    }
