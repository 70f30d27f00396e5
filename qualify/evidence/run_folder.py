"""The folder of a run that is being written: files put where the plan wants them, and all of them synced at once.

A run proves nothing before it is sealed, so its files need not be on the device one by one: the seal waits for all of
them together, before its rename (R11.3). The plan alone is waited for at once, since it is on record from then on.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from qualify.errors import RigError
from qualify.evidence import layout
from qualify.evidence.durable import Group, Writer, synced
from qualify.evidence.files import below, read_file
from qualify.evidence.problems import ProblemError

_GROUP = 32  # Names of one folder that are synced in a row: a folder of objects has thousands.


@contextmanager
def as_rig_error() -> Iterator[None]:
    """While writing, a folder that is a link or cannot be read is the machine's trouble, not bad evidence."""
    try:
        yield
    except ProblemError as error:
        raise RigError(
            f"evidence cannot be written: {error}",
            fix="give the store folders of its own on one local file system; links and mount points are not followed",
        ) from error


class RunFolder:
    """One run's folder in staging/, by its descriptor. One thread writes at a time. Every method raises RigError."""

    def __init__(self, at: int, run: str, writer: Writer) -> None:
        self.at = at
        self._run, self._writer = run, writer
        #: The SHA-256 of every file that was written, by path: what was meant to be there, whatever a disk gives back.
        self.digests: dict[str, str] = {}
        self._folders: set[str] = set()
        self._unsynced: list[str] = []

    def write(self, path: str, data: bytes, *, synced: bool = False) -> None:
        """Write one file that is not there yet, with the folders that it lies in, `synced` now or by `syncing`."""
        parent, _, name = path.rpartition("/")
        with as_rig_error():
            self._make_folders(parent)
            with below(self.at, parent) as at:
                put = self._writer.write if synced else self._writer.put
                put(at, name, self._name(path), data)
        self.digests[path] = hashlib.sha256(data).hexdigest()
        if not synced:
            self._unsynced.append(path)

    def read(self, path: str, limit_bytes: int) -> bytes:
        """What a reader gets for a file. Raises ProblemError for one that is not as it was written; any thread may."""
        parent, _, name = path.rpartition("/")
        with below(self.at, parent) as at:
            return read_file(at, name, path, limit_bytes)

    @contextmanager
    def syncing(self) -> Iterator[None]:
        """The device has every file and every folder that was made here after the block, beside which it takes them."""
        names: dict[str, list[str]] = {folder: [""] for folder in ("", *self._folders)}
        for path in self._unsynced:
            parent, _, name = path.rpartition("/")
            names[parent].append(name)
        groups = [group for folder in sorted(names) for group in self._groups(folder, names[folder])]
        with as_rig_error(), self._writer.syncing(groups):
            yield
        self._unsynced.clear()

    def _groups(self, folder: str, names: Sequence[str]) -> Iterator[Group]:
        """Some names of a folder at a time, its own being none."""
        for first in range(0, len(names), _GROUP):
            some = names[first : first + _GROUP]
            yield [self._name(f"{folder}/{name}".strip("/")) for name in some], partial(self._sync, folder, some)

    def _sync(self, folder: str, names: Sequence[str]) -> Iterator[OSError | None]:
        try:
            at = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.at)
        except OSError as error:
            yield from [error] * len(names)
            return
        try:
            for name in names:
                yield synced(partial(_sync_file, at, name) if name else partial(os.fsync, at))
        finally:
            os.close(at)

    def _make_folders(self, path: str) -> None:
        if not path or path in self._folders:
            return
        parent, _, name = path.rpartition("/")
        self._make_folders(parent)
        with below(self.at, parent) as at:
            self._writer.make_folder(at, name, self._name(path))
        self._folders.add(path)

    def _name(self, path: str) -> str:
        return f"{layout.STAGING}/{self._run}/{path}".rstrip("/")


def _sync_file(at: int, name: str) -> None:
    handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
