"""Workers under a command: as clean as any, ended by themselves or by us, with the command's own status and words."""

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from qualify import sanitizing
from qualify.boards import MEASURE_OUTPUT_BYTES
from qualify.channel import Open, Opened
from qualify.children import ChildLost, Job, Nursery
from qualify.errors import RigError


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


def under(*command: str) -> Job:
    return Job("measure", "simulated", 4 << 30, MEASURE_OUTPUT_BYTES, under=command)


def script(folder: Path, text: str) -> Path:
    path = folder / "tool"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_worker_under_a_command_serves_and_ends_by_itself(nursery: Nursery, tmp_path: Path) -> None:
    tool = script(tmp_path, 'echo before; "$@"; status=$?; echo after; exit $((status + 7))')
    child = nursery.start(under(str(tool)))
    answer, _ = child.ask(Open(), timeout_s=20.0)
    assert isinstance(answer, Opened)
    assert child.finish(20.0) == (7, "before\nafter\n")
    assert any("watched by" in name for name in nursery.unapplied)
    nursery.end(child)


def test_a_worker_of_a_template_ends_by_itself_too(nursery: Nursery) -> None:
    child = nursery.start(under())
    child.ask(Open(), timeout_s=20.0)
    assert child.finish(20.0) == (0, "")


def test_a_command_that_does_not_end_is_killed_with_all_that_it_started(nursery: Nursery, tmp_path: Path) -> None:
    tool = script(tmp_path, f'"$@"; /bin/sleep 600 & echo $! > {tmp_path}/left; wait')
    child = nursery.start(under(str(tool)))
    child.ask(Open(), timeout_s=20.0)
    with pytest.raises(ChildLost) as caught:
        child.finish(0.5)
    assert (caught.value.how, caught.value.signal) == ("hung", 9)
    left = Path(f"/proc/{(tmp_path / 'left').read_text().strip()}/stat")
    deadline = time.monotonic() + 10
    while left.exists() and left.read_text().split()[2] != "Z" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left.exists() or left.read_text().split()[2] == "Z"


def test_a_command_that_is_not_here_or_starts_nothing_is_the_rigs_error(nursery: Nursery, tmp_path: Path) -> None:
    with pytest.raises(RigError, match="expected to start a measure worker"):
        nursery.start(under(str(tmp_path / "none")))
    with pytest.raises(RigError, match="it died: no device for this"):
        nursery.start(under(str(script(tmp_path, "echo no device for this; exit 1"))))


def test_nothing_of_ours_reaches_a_command(nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "mine.so")
    tool = script(tmp_path, f'/usr/bin/env > {tmp_path}/seen; exec "$@"')
    nursery.start(replace(under(str(tool)), variables={"TOLD": "yes"}))
    seen = dict(line.partition("=")[::2] for line in (tmp_path / "seen").read_text().splitlines())
    assert seen["TOLD"] == "yes"
    assert "CUDA_INJECTION64_PATH" not in seen
    assert seen["HOME"] != os.environ.get("HOME")


def test_a_tool_says_its_version_or_is_the_rigs_error(tmp_path: Path) -> None:
    assert sanitizing.version(script(tmp_path, "echo 'Compute Sanitizer'; echo 'Version 2025.3.1.0 (build 3)'")) == (
        "2025.3.1.0"
    )
    with pytest.raises(RigError, match=r"expected .*tool to say its version"):
        sanitizing.version(script(tmp_path, "echo none"))
    with pytest.raises(RigError, match=r"expected .*none to run"):
        sanitizing.version(tmp_path / "none")
