"""CUDA toolkits on this machine: folders that hold one NVRTC with its builtins, and the headers beside it.

A toolkit is where `qualify toolkits install` put it (each release in its own folder of the user's cache), in this
environment's wheels, or in the system's usual place. The release is read from the builtins' file name.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from qualify.errors import RigError

Release = tuple[int, int]
_LIBRARY = re.compile(r"libnvrtc\.so(\.\d+)+")
_BUILTINS = re.compile(r"libnvrtc-builtins\.so\.(\d+)\.(\d+)(\.\d+)*")
_HEADERS = {"nvrtc.h", "cuda_fp16.h", "nv"}  # What lies at the top of NVRTC's, the runtime's and CCCL's headers.
_MAJOR_FOLDER = re.compile(r"cu\d+")
_FIRST_LAYOUT = ("cuda_nvrtc", "cuda_runtime", "cuda_cccl")  # Wheels up to 12 have a folder each.
_SYSTEM = Path("/usr/local")


@dataclass(frozen=True)
class ToolkitFiles:
    """NVRTC, its builtins, its release, and the folders that headers are included from."""

    release: Release
    library: Path
    builtins: Path
    includes: tuple[Path, ...]


def files(*folders: Path) -> ToolkitFiles:
    """The files of the one toolkit under some folders, as wheels or a system lay them out. Raises RigError."""
    libraries, builtins, includes = set(), {}, set()
    for root, below, names in (entry for folder in folders for entry in os.walk(folder)):
        for name in names:
            if _LIBRARY.fullmatch(name):
                libraries.add((Path(root) / name).resolve())
            elif match := _BUILTINS.fullmatch(name):
                builtins[(Path(root) / name).resolve()] = (int(match[1]), int(match[2]))
        if _HEADERS & {*names, *below}:
            includes.add(Path(root))
    if len(libraries) != 1 or len(builtins) != 1:
        got = ", ".join(sorted(path.name for path in {*libraries, *builtins})) or "none"
        raise RigError(
            f"{os.pathsep.join(map(str, folders))}: expected one libnvrtc with its builtins, got {got}",
            fix="keep each toolkit in a folder of its own",
        )
    ((path, release),) = builtins.items()
    return ToolkitFiles(release, libraries.pop(), path, tuple(sorted(includes)))


def find(release: Release) -> tuple[Path, ...]:
    """The folders of the first toolkit here of that release: installed by us, of this environment, of the system.

    Raises RigError with the releases that are here.
    """
    seen = list(here())
    for found, folders in seen:
        if found == release:
            return folders
    shown = ", ".join(f"cuda-{major}.{minor}" for major, minor in sorted({found for found, _ in seen})) or "none"
    wanted = f"{release[0]}.{release[1]}"
    raise RigError(f"expected cuda-{wanted} here, found {shown}", fix=f"qualify toolkits install {wanted}")


def here(
    cache: Path | None = None, environment: tuple[Path, ...] | None = None
) -> Iterator[tuple[Release, tuple[Path, ...]]]:
    """Every toolkit here, in the order in which `find` looks. Folders that hold no whole toolkit are passed over."""
    from platformdirs import user_cache_path

    installed = (cache or user_cache_path("qualify")) / "toolkits"
    candidates = [
        *((folder,) for folder in _children(installed)),
        *(folders for wheels in (_wheels() if environment is None else environment) for folders in _layouts(wheels)),
        *((folder,) for folder in _children(_SYSTEM) if folder.name.startswith("cuda-")),
    ]
    for folders in candidates:
        try:
            yield files(*folders).release, folders
        except RigError:
            continue


def _children(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def _wheels() -> tuple[Path, ...]:
    """Where this environment's wheels of the vendor lie."""
    spec = importlib.util.find_spec("nvidia")
    return tuple(Path(path) for path in spec.submodule_search_locations or ()) if spec else ()


def _layouts(wheels: Path) -> Iterator[tuple[Path, ...]]:
    """A folder for each major from 13 on; three folders together up to 12."""
    yield from ((folder,) for folder in reversed(_children(wheels)) if _MAJOR_FOLDER.fullmatch(folder.name))
    first = tuple(wheels / name for name in _FIRST_LAYOUT if (wheels / name).is_dir())
    if first:
        yield first
