"""`python -m tests.evidence.lives`: lives of a small store that end at once, without any cleanup, at one announcement.

A line in is the number of the announcement and the store's folder, a line out the exit status of the process that was
forked for it. The process of the tests is far larger than this one, and so is each fork of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.evidence.small import write_run
from tests.house.tree import ROOT

KILLED = 9


def at(number: int, act: Callable[[], None]) -> Callable[[str], None]:
    """An announcement that acts at the operation of that number."""
    left = iter(range(number, -1, -1))

    def announce(_operation: str) -> None:
        if next(left, None) == 0:
            act()

    return announce


@contextmanager
def lives() -> Iterator[Callable[[Path, int], None]]:
    """What writes a run and kills its writer at an announcement; fails unless it came so far."""
    command = (sys.executable, "-m", "tests.evidence.lives")
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        asked, told = started.stdin, started.stdout
        assert asked
        assert told

        def kill(root: Path, number: int) -> None:
            print(number, root, file=asked, flush=True)
            assert told.readline() == f"{KILLED}\n"

        try:
            yield kill
        finally:
            asked.close()


def main() -> None:
    """Fork and wait, a line at a time, until there are no more; what a first life builds, no fork builds again."""
    with TemporaryDirectory() as folder:
        write_run(Path(folder) / "evidence")
    for line in sys.stdin:
        number, _, root = line.rstrip("\n").partition(" ")
        child = os.fork()
        if not child:
            try:
                write_run(Path(root), announce=at(int(number), lambda: os._exit(KILLED)))
            finally:
                os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
