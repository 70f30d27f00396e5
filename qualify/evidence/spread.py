"""Numbered pieces of work, done by forks of this process side by side, a process a core.

A fork has this process's code and its open folders, and answers in bytes. The numbers that are left lie in a file whose
offset all processes share: each is taken once, and nobody waits for a share that turns out long.
"""

from __future__ import annotations

import os
import signal
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO

Work = Callable[[int], bytes]
MAX_PROCESSES = 16  # Each may hold what an audit keeps of a run.
_NUMBER = struct.Struct("<I")
#: In front of each answer: its number and its length.
_HEADER = struct.Struct("<IQ")


def spread(work: Work, count: int, processes: int | None = None) -> tuple[bytes, ...]:
    """What `work` answers to each number below `count`, in order; by default with a process for each core.

    This process takes numbers too, and again those of a process that did not come to its end: so whatever is wrong
    with them is raised here.
    """
    with begun(work, count, processes) as answers:
        return answers()


@contextmanager
def begun(work: Work, count: int, processes: int | None = None) -> Iterator[Callable[[], tuple[bytes, ...]]]:
    """Begin what `spread` does and go on: this process takes its part once it asks for the answers, in the block."""
    wanted = min(processes or len(os.sched_getaffinity(0)), MAX_PROCESSES, count)
    if wanted < 2 or threading.active_count() > 1:  # A fork might wait for ever for what another thread held.
        yield lambda: tuple(map(work, range(count)))
        return
    with _side_by_side(work, count, wanted) as ended:

        def answers() -> tuple[bytes, ...]:
            found = ended()
            return tuple(found[number] if number in found else work(number) for number in range(count))

        yield answers


@contextmanager
def _side_by_side(work: Work, count: int, processes: int) -> Iterator[Callable[[], dict[int, bytes]]]:
    """Others begin; the answers of this process and of every other that came to its end."""
    with ExitStack() as files:
        left, mine, *others = (files.enter_context(_file()) for _ in range(1 + processes))
        left.write(b"".join(map(_NUMBER.pack, range(count))))
        left.seek(0)
        with _forks(work, left, others) as running:

            def ended() -> dict[int, bytes]:
                _answer(work, left, mine)
                whole = [mine, *_ended(running)]
                return {number: answer for file in whole for number, answer in _read(file)}

            yield ended


def _file() -> BinaryIO:
    """A file in memory, gone when the last process closes it. Without a buffer, so that forks share its offset only."""
    return os.fdopen(os.memfd_create("qualify-spread"), "w+b", buffering=0)


def _answer(work: Work, left: BinaryIO, answers: BinaryIO, parent: int | None = None) -> None:
    """Take numbers until none is left, or until nobody waits for the answers: the parent has ended."""
    while parent in {None, os.getppid()} and (taken := left.read(_NUMBER.size)):
        (number,) = _NUMBER.unpack(taken)
        answer = work(number)
        answers.write(_HEADER.pack(number, len(answer)) + answer)


def _read(answers: BinaryIO) -> Iterator[tuple[int, bytes]]:
    answers.seek(0)
    while header := answers.read(_HEADER.size):
        number, length = _HEADER.unpack(header)
        yield number, answers.read(length)


@contextmanager
def _forks(work: Work, left: BinaryIO, files: Iterable[BinaryIO]) -> Iterator[dict[int, BinaryIO]]:
    """A fork for each file, or as many as this machine allows; those that still run after the block are ended."""
    running: dict[int, BinaryIO] = {}
    try:
        with suppress(OSError):
            for file in files:
                running[_fork(work, left, file)] = file
        yield running
    finally:
        for child in running:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _ended(running: dict[int, BinaryIO]) -> Iterator[BinaryIO]:
    """Wait for all; the files of those that came to their end."""
    while running:
        child, status = os.waitpid(next(iter(running)), 0)
        file = running.pop(child)
        if status == 0:
            yield file


def _fork(work: Work, left: BinaryIO, answers: BinaryIO) -> int:
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        _answer(work, left, answers, parent)
        code = 0
    finally:
        os._exit(code)  # Nothing of what this process would do at its end is the fork's to do.
