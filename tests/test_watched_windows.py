"""Windows of a real session on the virtual board beside readings of a board that is disturbed now and then (R10.8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat
from typing import Any

import pytest

from qualify import program, timed
from qualify.domain import Runtime
from qualify.paired import REJECTING, rejection_cap
from qualify.paired_session import PairedSession
from qualify.processes import windows
from qualify.program import Pace
from qualify.telemetry import Snapshot, Watch
from qualify.timed import Seen
from tests.gates.beds import Bed, script

PACE = Pace(passes=1, units=3, flush_bytes=1 << 20)
QUIET: dict[str, Any] = {"sm_mhz": 1980, "memory_mhz": 3201, "reasons": 0, "processes": (7,), "xids": ()}
#: What a reading shows for each event that rejects, but for the host's own, and how many windows one such reading hits.
SHOWN: dict[str, tuple[dict[str, Any], int]] = {
    "hardware-slow-down": ({"reasons": 0x8}, 2),
    "thermal": ({"reasons": 0x40}, 2),
    "sync-boost": ({"reasons": 0x10}, 2),
    "xid": ({"xids": (79,)}, 1),
    "foreign-process": ({"processes": (7, 8)}, 2),
    "clock-state": ({"sm_mhz": 1200}, 2),
}


@pytest.fixture(scope="module")
def simulated(beds: Callable[[Runtime], Bed]) -> Bed:
    return beds("simulated")


def measured(made: Bed, wanted: int, *disturbed: dict[str, Any]) -> list[Seen]:
    """Windows of one session; the readings after its first few windows are quiet, the next ones are as given."""
    quiet = Snapshot(at_ns=1, **QUIET)
    readings: Iterator[Snapshot] = chain(
        repeat(quiet, 6), (Snapshot(at_ns=1, **{**QUIET, **each}) for each in disturbed), repeat(quiet)
    )
    about = made.subject(script(pass_ns=400_000), script(pass_ns=600_000), n=16)
    made.judge("contract", about)
    seen: list[Seen] = []
    with made.rig.bench(about, {}).session(about, "candidate", "incumbent") as session:
        session._watch = watch = Watch(lambda: next(readings), 1980)
        watch.opened(7)
        windows(session, PairedSession(about, session, "ab" * 8, PACE, 60), 0, seen, (wanted,))
    return seen


def rejected(seen: list[Seen], wanted: int) -> dict[int, tuple[str, ...]]:
    return dict(timed.sifted(seen, (wanted,)).rejected)


@pytest.mark.parametrize("event", SHOWN)
def test_a_window_beside_an_event_is_measured_again(simulated: Bed, event: str) -> None:
    """The readings before windows 0 to 2 are quiet; the disturbed one ends window 3 and begins window 4."""
    change, hit = SHOWN[event]
    seen = measured(simulated, 21, change)
    assert rejected(seen, 21) == dict.fromkeys(range(3, 3 + hit), (event,))
    assert len(seen) == 21 + hit
    assert not timed.sifted(seen, (21,)).missing


@pytest.mark.parametrize("event", SHOWN)
def test_more_windows_than_the_cap_end_the_session(simulated: Bed, event: str) -> None:
    change, _ = SHOWN[event]
    seen = measured(simulated, 21, *[change] * 9)
    assert len(rejected(seen, 21)) > rejection_cap(21)
    assert len(seen) <= 3 + 3  # Of as many windows under either clocks neither are the usual ones.
    assert timed.sifted(seen, (21,)).over_cap


def test_a_power_cap_with_its_lower_clock_costs_no_window(simulated: Bed) -> None:
    seen = measured(simulated, 21, *[{"reasons": 0x4, "sm_mhz": 1400}] * 9)
    assert not rejected(seen, 21)
    assert sum("power-cap" in each.around.events for each in seen) == 10


def test_every_event_is_shown() -> None:
    assert SHOWN.keys() == REJECTING - {"host-bound"} | {"clock-state"}


def test_the_coin_of_a_window_is_drawn_before_anything_is_seen_of_it(simulated: Bed) -> None:
    """Which windows are disturbed changes no order: the same seed gives the same coins, rejected or not."""
    quiet, hot = measured(simulated, 21), measured(simulated, 21, {"reasons": 0x40})
    orders = [each.attempt.candidate_first for each in hot]
    assert [each.attempt.candidate_first for each in quiet] == orders[: len(quiet)]
    assert program.window_arms(candidate_first=orders[0]) == hot[0].attempt.arms
