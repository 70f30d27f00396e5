"""CUDA toolkits on this machine: folders that hold one NVRTC with its builtins, and the headers beside it.

A toolkit is where `qualify toolkits install` put it (each release in its own folder of the user's cache), in this
environment's wheels, or in the system's usual place. The release is read from the builtins' file name.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from qualify.errors import RigError

Release = tuple[int, int]
_LIBRARY = re.compile(r"libnvrtc\.so(\.\d+)+")
_BUILTINS = re.compile(r"libnvrtc-builtins\.so\.(\d+)\.(\d+)(\.\d+)*")
_HEADERS = {"nvrtc.h", "cuda_fp16.h", "nv"}  # What lies at the top of NVRTC's, the runtime's and CCCL's headers.
#: What a compile worker is told: the toolkit's folders, and the architecture that it compiles for. `newest` stands for
#: whatever the toolkit has, where nothing is measured.
FOLDERS_VARIABLE, ARCH_VARIABLE, NEWEST = "QUALIFY_CUDA_FOLDERS", "QUALIFY_CUDA_ARCH", "newest"
#: The folder below the cache that holds toolkits which we installed, one a release.
INSTALLED = "toolkits"
_MAJOR_FOLDER = re.compile(r"cu\d+")
_FIRST_LAYOUT = ("cuda_nvrtc", "cuda_runtime", "cuda_cccl")  # Wheels up to 12 have a folder each.
_SYSTEM = Path("/usr/local")
_CONTENTS = "qualify 1 toolkit files"


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
    seen = set()
    for found, folders in here():
        if found == release:
            return folders
        seen.add(found)
    shown = ", ".join(f"cuda-{major}.{minor}" for major, minor in sorted(seen)) or "none"
    wanted = f"{release[0]}.{release[1]}"
    raise RigError(f"expected cuda-{wanted} here, found {shown}", fix=f"qualify toolkits install {wanted}")


def here(
    cache: Path | None = None, environment: tuple[Path, ...] | None = None
) -> Iterator[tuple[Release, tuple[Path, ...]]]:
    """Every toolkit here, in the order in which `find` looks. Folders that hold no whole toolkit are passed over."""
    candidates = [
        *((folder,) for folder in installed(cache or cache_folder())),
        *(folders for wheels in (_wheels() if environment is None else environment) for folders in _layouts(wheels)),
        *((folder,) for folder in _children(_SYSTEM) if folder.name.startswith("cuda-")),
    ]
    for folders in candidates:
        try:
            yield files(*folders).release, folders
        except RigError:
            continue


def installed(cache: Path) -> list[Path]:
    """The folders of the toolkits that we installed below a cache."""
    return _children(cache / INSTALLED)


def cache_folder() -> Path:
    """Where we keep what can be had again: toolkits, and digests of their files."""
    from platformdirs import user_cache_path

    return user_cache_path("qualify")


def digest(toolkit: ToolkitFiles, cache: Path | None = None) -> str:
    """16 digits of a digest of every header and both libraries, as part of a toolkit's build (R6.3).

    Reading them all takes a second, so the answer is kept with what the file system says of every file: size, inode,
    times of change. Raises RigError for a file that cannot be read.
    """
    try:
        paths = sorted(_contents(toolkit))
        seen = blake3(derive_key_context=_CONTENTS)
        for name, path in paths:
            found = os.stat(path)
            figures = (found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns)
            seen.update(f"{name}\0{figures}\n".encode())
        kept = (cache or cache_folder()) / "toolkit-digests" / seen.hexdigest()
        return _kept(kept) or _keep(kept, _digest_of(paths))
    except OSError as error:
        fix = "keep the toolkit's files themselves in its folder, not links to other places"
        raise RigError(f"expected every file of the toolkit to be readable, got {error}", fix=fix) from error


def _contents(toolkit: ToolkitFiles) -> Iterator[tuple[str, str]]:
    """Every file that decides what a build is, by its name in the toolkit.

    An installer may compile the Python that wheels up to 12 have among their headers; bytecode holds times.
    """
    for path in (toolkit.library, toolkit.builtins):
        yield path.name, str(path)
    for folder in toolkit.includes:
        if not {*folder.parents} & {*toolkit.includes}:
            for root, _, names in os.walk(folder):
                inner = root[len(str(folder)) :].lstrip("/")
                read = [name for name in names if not name.endswith(".pyc")]
                yield from ((os.path.join(inner, name), os.path.join(root, name)) for name in read)


def _digest_of(paths: list[tuple[str, str]]) -> str:
    whole = blake3(derive_key_context=_CONTENTS)
    for name, path in paths:
        whole.update(f"{name}\0".encode() + blake3(Path(path).read_bytes()).digest())
    return whole.hexdigest()[:16]


def _kept(path: Path) -> str | None:
    """A digest that was kept, if it is one."""
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    return text if re.fullmatch("[0-9a-f]{16}", text) else None


def _keep(path: Path, text: str) -> str:
    """Keep a digest whole or not at all; a place that cannot be written costs time only."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}")
        part.write_text(text, encoding="ascii")
        part.replace(path)
    return text


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
