"""The bytes of a run's folder: every file read once, hashed, and kept where a verdict depends on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from qualify.evidence import layout
from qualify.evidence.files import Folder, scan
from qualify.evidence.hashing import Hashed, hashed
from qualify.evidence.problems import Problem

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
    contents = Contents()
    kept_bytes = 0
    for item in hashed(scan(at, layout.limit_of), _has_blake3):
        if isinstance(item, Problem):
            contents.add(item)
        elif isinstance(item, Folder):
            contents.folders.add(item.path)
        else:
            _add(contents, item)
            if layout.is_judged(item.file.path):
                kept_bytes += len(item.file.data)
                if kept_bytes > MAX_KEPT_BYTES:
                    contents.add(Problem(item.file.path, "P17", f"more than {MAX_KEPT_BYTES} bytes to judge"))
                    return contents
                contents.kept[item.file.path] = item.file.data
    return contents


def _has_blake3(path: str) -> bool:
    """Whether something names a file by its BLAKE3: a module its fragments, an object itself."""
    return path.startswith((layout.INPUTS, layout.OBJECTS))


def _add(contents: Contents, item: Hashed) -> None:
    path = item.file.path
    contents.digests[path] = item.sha256
    contents.sizes[path] = len(item.file.data)
    if path.startswith(layout.INPUTS):
        contents.sources.add(str(item.blake3))
    for problem in _wrong_name(path, item.blake3):
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
