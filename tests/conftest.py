"""Rules for the whole suite: nothing skips, a `gpu` test runs wherever there is a device to run it on, each process of
`pytest -n` has the CPU device, and a temporary folder, to itself, and properties are tried with all examples on CI.

A test that cannot run is a test that proves nothing, so a skip is a failure. Tests marked `gpu` are deselected, and
counted as such, only where no NVIDIA device node exists; where one exists they run, and a missing driver, toolkit
or library fails them.
"""

from __future__ import annotations

import gc
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from qualify.bench import Rig
    from qualify.domain import Runtime
    from tests.gates.beds import Bed

T = TypeVar("T")
#: Whether a property is tried with all of its examples, as `.ci/run` does, or with a part of them, others each time.
ALL_EXAMPLES = os.environ.get("QUALIFY_EXAMPLES") == "all"
PART, LEAST_EXAMPLES = 5, 10
MOST_PROCESSES = 8  # Of a machine with many cores: each has rigs of its own.
ROOM_BYTES = 2 << 30  # Several times what all processes of a suite have written at once.


def examples(count: int, *, all_of_them: bool = ALL_EXAMPLES) -> int:
    """With how many of its examples a property is tried here."""
    return count if all_of_them else min(count, max(count // PART, LEAST_EXAMPLES))


def part(cases: Iterable[T], *, all_of_them: bool = ALL_EXAMPLES) -> Iterator[T]:
    """Those of a long row of cases that are tried here: all of them, or every fifth from another one each time."""
    return iter(cases) if all_of_them else islice(cases, random.randrange(PART), None, PART)


def some(cases: Sequence[T], *, all_of_them: bool = ALL_EXAMPLES) -> Sequence[T]:
    """Those of a few costly cases that are tried here: all of them, or another one each time."""
    return cases if all_of_them else [random.choice(cases)]


settings.register_profile("suite", max_examples=examples(settings().max_examples))
settings.load_profile("suite")


def nvidia_devices(folder: Path = Path("/dev")) -> tuple[Path, ...]:
    """The device nodes of this machine's NVIDIA boards."""
    return tuple(sorted(folder.glob("nvidia[0-9]*")))


def in_memory(folder: Path = Path("/dev/shm")) -> Path | None:
    """The folder, where nothing waits to be synced, or None where it is no place for temporary folders."""
    return folder if os.access(folder, os.W_OK | os.X_OK) and serves(os.statvfs(folder)) else None


def serves(system: os.statvfs_result) -> bool:
    """Whether a file system has room for what tests write, and code may be loaded from it."""
    return system.f_bavail * system.f_frsize >= ROOM_BYTES and not system.f_flag & os.ST_NOEXEC


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """How many processes `pytest -n auto` has: one more than cores, since tests wait too, or one beside a board."""
    return 1 if nvidia_devices() else min(len(os.sched_getaffinity(0)) + 1, MOST_PROCESSES)


def pytest_configure(config: pytest.Config) -> None:
    """Give each of several processes a temporary folder of its own, in which the lock of its CPU device lies.

    The lock of a board stays in the folder that all share; processes that share boards have one each.
    """
    if nvidia_devices():
        worker = getattr(config, "workerinput", {}).get("workerid", "")
        if board := board_of(worker, os.environ.get("CUDA_VISIBLE_DEVICES", "")):
            os.environ["CUDA_VISIBLE_DEVICES"] = board
        return
    if hasattr(config, "workerinput"):
        os.environ["TMPDIR"] = tempfile.tempdir = temporary_folder(config)
    elif config.option.basetemp is None and getattr(config.option, "numprocesses", None):
        config.option.basetemp = Path(temporary_folder(config)) / "tests"


def board_of(worker: str, boards: str) -> str | None:
    """The board of one of several processes, gw0 and on; None where each has all that is here."""
    shared = boards.split(",")
    return shared[int(worker.removeprefix("gw")) % len(shared)] if worker and len(shared) > 1 else None


def temporary_folder(config: pytest.Config) -> str:
    """A folder that goes with this run of the tests, in memory where that serves."""
    folder = tempfile.mkdtemp(prefix="qualify-tests-", dir=in_memory())
    os.chmod(folder, 0o711)  # Some tests are another user's.
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    return folder


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect `gpu` tests where there is no device node at all."""
    if nvidia_devices():
        return
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    items[:] = [item for item in items if item not in gpu]
    if gpu:
        config.hook.pytest_deselected(items=gpu)
    if hasattr(config, "workeroutput"):
        config.workeroutput["deselected"] = len(gpu)


def pytest_collection_finish() -> None:
    """Look for garbage beside what was collected, which stays to the end, and seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Count what the processes deselected, which is the same in each, once."""
    count = getattr(node, "workeroutput", {}).get("deselected", 0)
    if count and node.gateway.id == "gw0":
        node.config.hook.pytest_deselected(items=[SimpleNamespace() for _ in range(count)])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip, and an expected failure too, into a failure."""
    report = yield
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped: make it run, or delete it"
    return report


@pytest.fixture(scope="session")
def rigs() -> Iterator[Callable[[str, str], Rig]]:
    """The rig of a toolkit and an architecture, opened when it is first asked for: each has compile workers of its own.

    A test that counts workers, or ends them, opens another one for itself.
    """
    from qualify.bench import Rig

    with ExitStack() as stack:
        yield cache(lambda toolkit, arch: stack.enter_context(Rig.open(toolkit, arch)))


@pytest.fixture(scope="session")
def beds(rigs: Callable[[str, str], Rig]) -> Callable[[Runtime], Bed]:
    """The bed of a runtime on its rig."""
    from tests.gates.beds import PLACES, Bed

    return cache(lambda runtime: Bed(rigs(*PLACES[runtime]), runtime))
