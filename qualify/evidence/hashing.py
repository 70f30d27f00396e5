"""Digests of a run's files: large ones are worked out by other processes while this one judges what it has read.

A process and no thread, because what judges keeps the interpreter to itself. A block is hashed while it is in the
processor's cache, and no memory is asked for as large as a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from blake3 import blake3

from qualify.evidence.files import Opened
from qualify.evidence.problems import Problem, ProblemError
from qualify.evidence.spread import begun
from qualify.identity import content

BLOCK_BYTES = 512 << 10
ALONE_BYTES = 8 << 20  # So many are hashed in the time that another process takes to begin.


@dataclass(frozen=True)
class Digests:
    """The digests of one file; its BLAKE3 only where something names it by that."""

    sha256: str
    blake3: str | None


Found = Digests | Problem


def digests(data: bytes, wants_blake3: bool) -> Digests:
    """The digests of some bytes."""
    return Digests(hashlib.sha256(data).hexdigest(), content(data) if wants_blake3 else None)


@contextmanager
def hashed(files: Sequence[Opened], wants_blake3: Callable[[str], bool]) -> Iterator[Callable[[], list[Found]]]:
    """Begin to hash large files; what is handed out waits for the end, and tells the digests of each or its problem.

    `wants_blake3` is asked by path. The files stay open.
    """
    order = sorted(range(len(files)), key=lambda number: -files[number].status.st_size)

    def work(number: int) -> bytes:
        file = files[order[number]]
        return _to_bytes(_found(file, wants_blake3(file.path)))

    few = sum(file.status.st_size for file in files) <= ALONE_BYTES
    with begun(work, len(files), 1 if few else None) as answers:

        def end() -> list[Found]:
            by_number = dict(zip(order, answers(), strict=True))
            return [_from_bytes(by_number[number]) for number in range(len(files))]

        yield end


def _found(file: Opened, wants_blake3: bool) -> Found:
    sha256, other = hashlib.sha256(), blake3()
    try:
        for block in file.blocks(bytearray(BLOCK_BYTES)):
            sha256.update(block)
            if wants_blake3:
                other.update(block)
    except ProblemError as error:
        return error.problem
    return Digests(sha256.hexdigest(), other.hexdigest() if wants_blake3 else None)


def _to_bytes(found: Found) -> bytes:
    """JSON that names of files survive which are no text."""
    told = [found.sha256, found.blake3] if isinstance(found, Digests) else [found.path, found.code, found.message]
    return json.dumps(told).encode("ascii")


def _from_bytes(data: bytes) -> Found:
    told = json.loads(data)
    return Digests(*told) if len(told) == 2 else Problem(*told)
