"""heads/: a cache of a store's heads, so that adding a run reads the same at ten runs and at 100,000 (R11.1).

It is trusted only while opened/, runs/ and withdrawn/ are as they were when it was written; else it is as good as
absent and the history is read again. It is never evidence, and nothing that goes wrong with it is an error.

Whoever changes a store's records keeps the cache right by holding a lock over the one rename. A lock is not what
makes the store safe: a writer that does not get it in time, or files that are copied in, only cost a reading.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from qualify.caps import MAX_DOCUMENT_BYTES
from qualify.errors import DocumentError
from qualify.evidence import layout
from qualify.evidence.files import below, folder, read_file
from qualify.evidence.manifest import MAX_MANIFEST_BYTES
from qualify.evidence.problems import ProblemError
from qualify.model import Document, Hex64

#: The folders whose entries are records.
WATCHED = (layout.OPENED, layout.RUNS, layout.WITHDRAWN)
FILE = "heads.json"
MAX_HEADS = 64  # More heads than this cost as much to look at as they save.
LOCK_S = 2.0  # A writer holds the lock for milliseconds.
_TICK_S, _TICKS = 0.001, 50
_CLOCK_REALTIME_COARSE = 5  # linux/time.h: what file systems stamp with.


class Stamp(Document):
    """A folder's state: adding, removing or renaming an entry changes it."""

    inode: int
    modified_ns: int
    changed_ns: int


class Cached(Document):
    """heads.json: each watched folder's state, None where it is not there, and the heads with their files."""

    opened: Stamp | None
    runs: Stamp | None
    withdrawn: Stamp | None
    heads: dict[Hex64, str]


class HeadsCache:
    """The cache of one store."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self) -> tuple[str, ...] | None:
        """The heads, if the cache is trusted and each head's file is still what it was; else None."""
        cached = self._trusted()
        if cached is None or len(cached.heads) > MAX_HEADS:
            return None
        if any(self._digest(path) != digest for digest, path in cached.heads.items()):
            return None
        return tuple(sorted(cached.heads))

    def stamps(self) -> tuple[Stamp | None, ...]:
        """The state of each watched folder now."""
        return tuple(_stamp(self._root / name) for name in WATCHED)

    def keep(self, heads: Mapping[str, str], seen: tuple[Stamp | None, ...]) -> None:
        """Keep the heads, with their files, of a history that was read while the folders were as in `seen`."""
        _wait_for_next_tick(seen)
        if self.stamps() == seen:
            self._write(heads, seen)

    @contextmanager
    def changing(self, *, adds: Mapping[str, str], ends: Iterable[str]) -> Iterator[None]:
        """Around the one rename that adds a record: if the cache was right before it, it is right after it."""
        with self._alone() as alone:
            before = self._trusted() if alone else None
            yield
            after = self.stamps()
            if before is None or not _one_changed((before.opened, before.runs, before.withdrawn), after):
                self._forget()
                return
            gone = set(ends)
            kept = {digest: path for digest, path in before.heads.items() if digest not in gone}
            self.keep({**kept, **adds}, after)

    def _trusted(self) -> Cached | None:
        try:
            with below_root(self._root, layout.HEADS) as at:
                cached = Cached.parse(read_file(at, FILE, FILE, MAX_DOCUMENT_BYTES))
        except (ProblemError, DocumentError):
            return None
        return cached if (cached.opened, cached.runs, cached.withdrawn) == self.stamps() else None

    def _digest(self, path: str) -> str | None:
        parent, _, name = path.rpartition("/")
        try:
            with below_root(self._root, parent) as at:
                return hashlib.sha256(read_file(at, name, path, MAX_MANIFEST_BYTES)).hexdigest()
        except (ProblemError, ValueError):
            return None

    def _write(self, heads: Mapping[str, str], seen: tuple[Stamp | None, ...]) -> None:
        place = self._root / layout.HEADS
        opened, runs, withdrawn = seen
        data = Cached(opened=opened, runs=runs, withdrawn=withdrawn, heads=dict(heads)).canonical()
        with suppress(OSError):
            if not place.is_dir():
                place.mkdir()
                (place / ".gitignore").write_text("*\n")
            new = place / f"{FILE}.{os.getpid()}.{threading.get_ident()}"
            new.write_bytes(data)
            os.replace(new, place / FILE)

    def _forget(self) -> None:
        with suppress(OSError):
            (self._root / layout.HEADS / FILE).unlink()

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether this is the only writer that keeps the cache, until the end of the block; the kernel drops it."""
        try:
            handle = os.open(self._root / layout.OPENED, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            yield False
            return
        try:
            yield _locked(handle)
        finally:
            os.close(handle)


@contextmanager
def below_root(root: Path, path: str) -> Iterator[int]:
    """The descriptor of a store's folder. Raises ProblemError."""
    with folder(str(root), root.name) as at, below(at, path) as handle:
        yield handle


def _stamp(path: Path) -> Stamp | None:
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return Stamp(inode=found.st_ino, modified_ns=found.st_mtime_ns, changed_ns=found.st_ctime_ns)


def _one_changed(before: tuple[Stamp | None, ...], after: tuple[Stamp | None, ...]) -> bool:
    """Whether only one folder is another than before: the one that the rename was into."""
    return sum(old != new for old, new in zip(before, after, strict=True)) == 1


def _wait_for_next_tick(seen: tuple[Stamp | None, ...]) -> None:
    """Until a change would show: within one tick of the file system's clock two changes may leave one stamp."""
    newest = max((max(stamp.modified_ns, stamp.changed_ns) for stamp in seen if stamp), default=0)
    for _ in range(_TICKS):
        if time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) > newest:
            return
        time.sleep(_TICK_S)


def _locked(handle: int) -> bool:
    end = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(_TICK_S)
        except OSError:
            return False
        else:
            return True
