"""Digests of a run's files: those of large files are worked out in threads while the next files are read.

Hashing lets go of the interpreter, which pays from a megabyte on; below, handing over costs more than it brings.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qualify.evidence.files import File, Folder
from qualify.evidence.problems import Problem
from qualify.identity import content

if TYPE_CHECKING:  # Most runs have no large file, and start faster without.
    from concurrent.futures import Executor, Future

LARGE_BYTES = 1 << 20
MAX_THREADS = 8  # One reader keeps no more of them busy.
MAX_WAITING_BYTES = 64 << 20  # Large files in memory before the oldest is waited for; more memory is slower to get.


@dataclass(frozen=True)
class Hashed:
    """A file with its SHA-256 and, where it was asked for, its BLAKE3."""

    file: File
    sha256: str
    blake3: str | None


def hashed(
    items: Iterable[File | Folder | Problem], wants_blake3: Callable[[str], bool]
) -> Iterator[Hashed | Folder | Problem]:
    """Every item, files with their digests: large ones behind the others, both in their order.

    `wants_blake3` is asked by path.
    """
    waiting: deque[Future[Hashed]] = deque()
    waiting_bytes = 0
    with ExitStack() as stack:
        pool: Executor | None = None
        for item in items:
            if not isinstance(item, File):
                yield item
            elif len(item.data) < LARGE_BYTES:
                yield _hash(item, wants_blake3(item.path))
            else:
                pool = pool or stack.enter_context(_pool())
                waiting.append(pool.submit(_hash, item, wants_blake3(item.path)))
                waiting_bytes += len(item.data)
            while waiting_bytes > MAX_WAITING_BYTES:
                oldest = waiting.popleft().result()
                waiting_bytes -= len(oldest.file.data)
                yield oldest
        while waiting:
            yield waiting.popleft().result()


def _pool() -> Executor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(min(MAX_THREADS, len(os.sched_getaffinity(0))))


def _hash(file: File, wants_blake3: bool) -> Hashed:
    return Hashed(file, hashlib.sha256(file.data).hexdigest(), content(file.data) if wants_blake3 else None)
