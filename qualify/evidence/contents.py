"""The bytes of a run's folder: every file read once, hashed, and kept where a verdict depends on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from qualify.evidence import layout
from qualify.evidence.files import File, Folder, Opened, scan
from qualify.evidence.hashing import Digests, digests, hashed
from qualify.evidence.problems import Problem

MAX_OPEN = 128  # Large files that wait for their digests together; a process may usually open 1,024.
MAX_KEPT_BYTES = 1 << 30  # What an audit holds in memory: documents and series of a thousand subjects take 100 MiB.


@dataclass
class Contents:
    """What lies in a run's folder: SHA-256 by path, the files that are judged, folders, and what was refused.

    `sources` holds the BLAKE3 of every input, which is what a module names its fragments by.
    """

    digests: dict[str, str] = field(default_factory=dict)
    sources: set[str] = field(default_factory=set)
    kept: dict[str, bytes] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    def add(self, problem: Problem) -> None:
        """Note a problem and its path."""
        self.problems.append(problem)
        self.refused.add(problem.path)

    def is_refused(self, path: str) -> bool:
        """Whether a problem was found already with a path or a folder that it lies in: then it is not missing."""
        parts = path.split("/")
        return "." in self.refused or any("/".join(parts[:end]) in self.refused for end in range(1, len(parts) + 1))

    @property
    def is_hidden(self) -> bool:
        """Whether something could not be read, so that nothing can be said about what depends on it."""
        return any(problem.outcome == "unknown" for problem in self.problems)


def read(at: int) -> Contents:
    """Read a run's folder by its descriptor. What cannot be read, or must not, is a problem and not in the digests."""
    with reading(at) as (contents, end):
        end()
        return contents


@contextmanager
def reading(at: int) -> Iterator[tuple[Contents, Callable[[], None]]]:
    """As `read`, but large files, of which no verdict depends on a byte, are in the contents once `end` was called."""
    contents = Contents()
    waiting: list[Opened] = []
    try:
        _scan(at, contents, waiting)
        with hashed(waiting, _has_blake3) as found:
            yield contents, lambda: _add_large(contents, waiting, found())
    finally:
        _close(waiting)


def _scan(at: int, contents: Contents, waiting: list[Opened]) -> None:
    """Everything that is small or judged; large files are put with those that wait, as many as may be open."""
    kept_bytes = 0
    for item in scan(at, layout.limit_of, layout.is_judged):
        if isinstance(item, Problem):
            contents.add(item)
        elif isinstance(item, Folder):
            contents.folders.add(item.path)
        elif isinstance(item, Opened):
            waiting.append(item)
            if len(waiting) == MAX_OPEN:
                _finish(contents, waiting)
        else:
            _add(contents, item.path, len(item.data), digests(item.data, _has_blake3(item.path)))
            kept_bytes += _keep(contents, item)
            if kept_bytes > MAX_KEPT_BYTES:
                contents.add(Problem(item.path, "P17", f"more than {MAX_KEPT_BYTES} bytes to judge"))
                return


def _keep(contents: Contents, item: File) -> int:
    """Hold a file that is judged; the bytes of it that are held."""
    if not layout.is_judged(item.path):
        return 0
    contents.kept[item.path] = item.data
    return len(item.data)


def _finish(contents: Contents, waiting: list[Opened]) -> None:
    """Wait for the large files that are open; none is then."""
    with hashed(waiting, _has_blake3) as found:
        _add_large(contents, waiting, found())
    _close(waiting)


def _close(waiting: list[Opened]) -> None:
    while waiting:
        os.close(waiting.pop().handle)


def _has_blake3(path: str) -> bool:
    """Whether something names a file by its BLAKE3: a module its fragments, an object itself."""
    return path.startswith((layout.INPUTS, layout.OBJECTS))


def _add_large(contents: Contents, files: list[Opened], found: list[Digests | Problem]) -> None:
    for file, each in zip(files, found, strict=True):
        if isinstance(each, Problem):
            contents.add(each)
        else:
            _add(contents, file.path, file.status.st_size, each)


def _add(contents: Contents, path: str, size: int, found: Digests) -> None:
    contents.digests[path] = found.sha256
    contents.sizes[path] = size
    if path.startswith(layout.INPUTS):
        contents.sources.add(str(found.blake3))
    for problem in _wrong_name(path, found.blake3):
        contents.add(problem)


def _wrong_name(path: str, blake3: str | None) -> Iterator[Problem]:
    """An object lies under the BLAKE3 of its bytes, so that a name cannot promise another object."""
    if not path.startswith(layout.OBJECTS):
        return
    claimed = layout.object_digest(path)
    if claimed is None:
        yield Problem(path, "S01", "expected objects/<BLAKE3>.<extension>")
    elif blake3 != claimed:
        yield Problem(path, "V08", f"its BLAKE3 is {blake3}")
