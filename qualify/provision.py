"""`qualify toolkits`: which toolkits are here and what each can do, and how one more comes here."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from qualify import boards, cuda_toolkits, sanitizing, toolkits
from qualify.channel import Described
from qualify.children import Nursery
from qualify.compiling import Compilers
from qualify.errors import RigError, UsageError

_RELEASE = re.compile(r"(?:cuda-)?([1-9][0-9])\.([0-9]{1,2})")
#: What a build needs: the compiler, its own headers, and those of the language's library.
_WHEELS = ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-cccl")
_LAST_NUMBERED = 12  # Up to this major the wheels' names end in it.
_TAKES_S = 1800.0


@dataclass(frozen=True)
class Row:
    """One toolkit that is here: its full build, what it compiles for, whether builds are reported, where it measures.

    `reports` is None where objects tell their own figures. `board` is None, with `lacking`, where nothing is measured.
    `watcher` is the sanitizer of its runtime, None where there is none; `unwatched` says what to do about that.
    """

    name: str
    build: str
    targets: tuple[str, ...]
    reports: bool | None
    board: str | None
    lacking: str | None = None
    watcher: str | None = None
    unwatched: str | None = None


def listed() -> Iterator[Row]:
    """Every toolkit here, CUDA's first; one that does not work says why in place of a build."""
    nursery = Nursery()
    try:
        for release in sorted({release for release, _ in cuda_toolkits.here()}):
            yield _row(f"cuda-{release[0]}.{release[1]}", nursery)
        if importlib.util.find_spec("pyopencl") is not None:
            yield _row("pocl-0.0", nursery)
        yield _row("simulated-1.0", nursery)
    finally:
        nursery.close()


def _row(name: str, nursery: Nursery) -> Row:
    """One toolkit; its own version takes the place of the name's where the name only finds it."""
    family = name.partition("-")[0]
    try:
        found = toolkits.find(name)
        described = Compilers(nursery, found.aimed(cuda_toolkits.NEWEST)).describe()
    except RigError as error:
        return Row(name.removesuffix("-0.0"), f"does not work: {error.args[0]}", (), None, None, error.fix)
    board, lacking = _board(found, described, nursery)
    targets = described.targets or (described.arch,)
    name = f"{family}-{described.version}"
    watcher, unwatched = _watcher(found)
    return Row(name, described.toolkit_build, targets, described.reports, board, lacking, watcher, unwatched)


def _watcher(found: toolkits.Toolkit) -> tuple[str | None, str | None]:
    """The sanitizer of a toolkit's runtime, or why there is none; of the virtual board nothing is said."""
    if found.worker == "simulated":
        return None, None
    try:
        tool = sanitizing.find(found)
        return (
            f"compute-sanitizer {sanitizing.version(tool)} at {tool}" if found.apart else f"Oclgrind at {tool}"
        ), None
    except RigError as error:
        return None, f"{error.args[0]} ({error.fix})"


def _board(found: toolkits.Toolkit, described: Described, nursery: Nursery) -> tuple[str | None, str | None]:
    """The board that a toolkit measures on, or what is lacking."""
    device = described
    if found.apart:
        try:
            device = boards.describe(found, nursery)
        except RigError as error:
            return None, error.args[0]
    board = device.board
    if board is None or (described.targets and device.arch not in described.targets):
        return None, f"the board here is {device.arch}"
    return f"{board.name} ({device.arch}, {board.uuid})", None


def lines(rows: Iterable[Row]) -> Iterator[str]:
    """What a person reads of each."""
    for row in rows:
        yield f"{row.name}  {row.build}"
        if row.targets:
            yield f"  builds for {' '.join(row.targets)}"
        if row.reports is not None:
            yield "  reports registers, spills and shared memory of each build" if row.reports else "  reports nothing"
        yield f"  measures on {row.board}" if row.board else f"  measures nothing: {row.lacking}"
        if row.watcher or row.unwatched:
            yield f"  watched by {row.watcher}" if row.watcher else f"  watched by nothing: {row.unwatched}"


def install(wanted: str, cache: Path | None = None) -> tuple[Path, Described | None]:
    """Bring a CUDA toolkit into a folder of its own below the cache, by this environment's pip.

    Returns the folder and what the toolkit says of itself; None where it was there before. Raises UsageError for what
    is no release, RigError if it cannot be had or does not work here; then nothing is left behind.
    """
    match = _RELEASE.fullmatch(wanted)
    if match is None:
        raise UsageError(f"expected a CUDA release such as 12.8, got {wanted}", fix="name major.minor")
    release = (int(match[1]), int(match[2]))
    cache = cache or cuda_toolkits.cache_folder()
    final = cache / cuda_toolkits.INSTALLED / f"{release[0]}.{release[1]}"
    if final.exists():
        return final, None
    final.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix="toolkit-", dir=cache))
    try:
        _fetch(release, part)
        described = _described(release, part)
        part.rename(final)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        for folder in (final.parent, cache):
            with suppress(OSError):
                folder.rmdir()  # Only what is empty.
    return final, described


def _fetch(release: tuple[int, int], folder: Path) -> None:
    """The wheels of a release, unpacked by pip from wherever this environment's pip takes its packages."""
    if importlib.util.find_spec("pip") is None:
        raise RigError("expected pip in this environment, found none", fix=f"{sys.executable} -m ensurepip")
    suffix = f"-cu{release[0]}" if release[0] <= _LAST_NUMBERED else ""
    wheels = [f"{name}{suffix}=={release[0]}.{release[1]}.*" for name in _WHEELS]
    options = ("--quiet", "--no-deps", "--only-binary=:all:", "--no-compile", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder), *wheels]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TAKES_S)  # noqa: S603
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr.strip()[-400:]]
        raise RigError(
            f"expected pip to bring {' '.join(wheels)}, got: {said[-1]}",
            fix="name a release that was published, and check that pip can install packages here",
        )


def _described(release: tuple[int, int], folder: Path) -> Described:
    """What the toolkit in a folder says of itself, by a compile worker. Raises RigError if it does not work."""
    nursery = Nursery()
    try:
        toolkit = toolkits.cuda(release, (folder,)).aimed(cuda_toolkits.NEWEST)
        described = Compilers(nursery, toolkit).describe()
        toolkits.check_version(toolkit, described.version)
        return described
    finally:
        nursery.close()
