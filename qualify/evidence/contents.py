"""The bytes of a run's folder: every file read once, hashed, and kept where a verdict depends on it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from qualify.evidence import layout
from qualify.evidence.files import File, Folder, scan
from qualify.evidence.problems import Problem
from qualify.identity import content

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
    for item in scan(at, layout.limit_of):
        if isinstance(item, Problem):
            contents.add(item)
        elif isinstance(item, Folder):
            contents.folders.add(item.path)
        else:
            contents.digests[item.path] = hashlib.sha256(item.data).hexdigest()
            contents.sizes[item.path] = len(item.data)
            if item.path.startswith(layout.INPUTS):
                contents.sources.add(content(item.data))
            for problem in _wrong_name(item):
                contents.add(problem)
            if layout.is_judged(item.path):
                kept_bytes += len(item.data)
                if kept_bytes > MAX_KEPT_BYTES:
                    contents.add(Problem(item.path, "P17", f"more than {MAX_KEPT_BYTES} bytes to judge"))
                    return contents
                contents.kept[item.path] = item.data
    return contents


def _wrong_name(item: File) -> Iterator[Problem]:
    """An object lies under the BLAKE3 of its bytes, so that a name cannot promise another object."""
    if not item.path.startswith("objects/"):
        return
    claimed = layout.object_digest(item.path)
    if claimed is None:
        yield Problem(item.path, "S01", "expected objects/<BLAKE3>.<extension>")
    elif content(item.data) != claimed:
        yield Problem(item.path, "V08", f"its BLAKE3 is {content(item.data)}")
