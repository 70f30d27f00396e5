"""Two rules for the whole suite: nothing skips, and a `gpu` test runs wherever there is a device to run it on.

A test that cannot run is a test that proves nothing, so a skip is a failure. Tests marked `gpu` are deselected, and
counted as such, only where no NVIDIA device node exists; where one exists they run, and a missing driver, toolkit
or library fails them.
"""

from collections.abc import Generator
from pathlib import Path

import pytest


def nvidia_devices(folder: Path = Path("/dev")) -> tuple[Path, ...]:
    """The device nodes of this machine's NVIDIA boards."""
    return tuple(sorted(folder.glob("nvidia[0-9]*")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect `gpu` tests where there is no device node at all."""
    if nvidia_devices():
        return
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    items[:] = [item for item in items if item not in gpu]
    if gpu:
        config.hook.pytest_deselected(items=gpu)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip, and an expected failure too, into a failure."""
    report = yield
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped: make it run, or delete it"
    return report
