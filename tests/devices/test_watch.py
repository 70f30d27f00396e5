"""The board's own management library beside real sessions: what it tells, and a stranger on the board."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gates.trial import WatchedFacts
from qualify import nvml, program
from qualify.bench import Rig
from qualify.gate import WorkerLost
from qualify.model import canonical_bytes
from qualify.paired import REJECTING
from qualify.sessions import MeasuringSession
from qualify.steps import MAX_HELD_CALLS
from qualify.telemetry import Watched
from tests.gates.beds import bed, cuda
from tests.gates.build import check, kernel
from tests.rigs import CUDA, HONEST, Trial, filled, launched

pytestmark = pytest.mark.gpu
FAULT = cuda("y[(1ll << 40) + i] = 1.0f;")
#: Memory written again and again by a process that is none of ours.
STRANGER = """
from cuda.bindings import driver
def call(function, *arguments):
    code, *rest = function(*arguments)
    assert int(code) == 0, code
    return rest[0] if rest else None
call(driver.cuInit, 0)
context = call(driver.cuDevicePrimaryCtxRetain, call(driver.cuDeviceGet, 0))
call(driver.cuCtxSetCurrent, context)
memory = call(driver.cuMemAlloc, 1 << 28)
print("on the board", flush=True)
while True:
    for _ in range(20):
        call(driver.cuMemsetD8, memory, 1, 1 << 28)
    call(driver.cuCtxSynchronize)
"""


@contextmanager
def stranger() -> Iterator[None]:
    """Another process that works on the board."""
    with subprocess.Popen([sys.executable, "-c", STRANGER], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "on the board\n"
            yield
        finally:
            process.kill()


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig.open(CUDA) as opened:
        yield opened


@contextmanager
def session(rig: Rig) -> Iterator[MeasuringSession]:
    about = Trial(rig).subject(HONEST["cuda"])
    with rig.bench(about, {}).session(about, "candidate") as opened:
        yield opened


def told(session: MeasuringSession) -> Watched:
    assert session.watched is not None
    return session.watched


def test_a_quiet_session_on_the_board(rig: Rig) -> None:
    with session(rig) as opened:
        seen = [opened.surroundings() for _ in range(10)]
        found = told(opened)
    print(rig.account(), *found.snapshots[-3:], *seen[-2:], sep="\n")
    assert not REJECTING & frozenset().union(*(each.events for each in seen))
    assert len({each.clock for each in seen}) == 1
    assert seen[0].clock is not None
    last = found.snapshots[-1]
    assert None not in (last.sm_mhz, last.memory_mhz, last.temperature_c, last.power_mw, last.reasons)
    assert found.worker is not None or "foreign-process unknown" in seen[0].events


def test_a_fault_of_a_kernel_is_an_error_that_the_board_reports(rig: Rig) -> None:
    about = Trial(rig).subject(FAULT)
    with rig.bench(about, {}).session(about, "candidate") as opened:
        opened.run(filled(), 60.0)
        before = opened.surroundings().events
        with pytest.raises(WorkerLost, match="refused"):
            opened.run(launched("candidate"), 20.0)
        after = reported(opened)
    assert "xid" not in before
    assert ("xid unknown" if "xid unknown" in before else "xid") in after
    print(*(each.xids for each in told(opened).snapshots if each.xids))


def reported(opened: MeasuringSession) -> frozenset[str]:
    """What is seen until an error arrives, which the driver reports a moment later, or two seconds have passed."""
    until_s, events = time.monotonic() + 2, opened.surroundings().events
    while "xid" not in events and time.monotonic() < until_s:
        time.sleep(0.02)
        events |= opened.surroundings().events
    return events


def test_a_stranger_on_the_board_is_seen_where_processes_are_told(rig: Rig) -> None:
    with session(rig) as opened:
        alone = opened.surroundings().events
        with stranger():
            beside = opened.surroundings().events
    wanted = "foreign-process" if "foreign-process unknown" not in alone else "foreign-process unknown"
    assert "foreign-process" not in alone
    assert wanted in beside


def test_windows_beside_a_stranger_are_rejected_and_decide_nothing() -> None:
    with bed("cuda") as made:
        about = made.subject(cuda(), n=1 << 20)
        with stranger():
            found = made.judge("trial", about)
    notes = {note.name: (note.got, note.says) for note in found.verdict.notes}
    if "foreign-process unknown" in notes.get("watch", ("",))[0]:
        assert "rejected" not in notes
        return
    assert check(found.verdict, "windows").holds is None
    assert notes["rejected"] == ("3 windows", "foreign-process")


def test_many_short_launches_of_a_pass_are_paced_by_no_host() -> None:
    """Thirty launches a pass are more than a stream holds; a unit is one graph of them, and hardly a window is lost."""
    with bed("cuda") as made:
        about = made.subject(cuda(), n=1000, launches=(kernel(),) * 30)
        found = made.judge("trial", about)
    facts = WatchedFacts.parse(canonical_bytes(found.measurement.facts))
    assert facts.pace is not None
    assert program.as_graphs(about, facts.pace.pace)
    assert facts.pace.pace.sets * 30 > MAX_HELD_CALLS
    assert check(found.verdict, "windows").holds


def test_what_times_of_the_board_depend_on_is_told_once(rig: Rig) -> None:
    with session(rig):
        pass
    account = rig.account()
    assert isinstance(account, dict)
    settings = account["board"]
    assert isinstance(settings, dict)
    assert {"driver", "ecc", "mig", "power_limit_mw", "memory_bytes", "unsupported"} <= settings.keys()
    assert rig.board is not None
    board = nvml.open_board(rig.board.uuid, {})
    assert isinstance(board, nvml.Nvml)
    board.close()
