"""What two readings of a board say of the time between them (R10.8), and a board that nothing tells of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from qualify import nvml
from qualify.gate import Surroundings
from qualify.paired import REJECTING
from qualify.telemetry import Snapshot, Telemetry, Watch, between, worker_of

RECORDED = ("power", "board_limit", "reliability")
COUNTERS = (*RECORDED, "thermal", "software_thermal", "hardware_thermal", "sync_boost", "power_brake")
WORKER, GREATEST = 77, 1980


def reading(**changes: Any) -> Snapshot:
    """A quiet board that tells everything."""
    usual: dict[str, Any] = {
        "at_ns": 1,
        "sm_mhz": GREATEST,
        "memory_mhz": 3201,
        "temperature_c": 40,
        "power_mw": 120_000,
        "reasons": 0,
        "counters_ns": dict.fromkeys(COUNTERS, 5),
        "processes": (WORKER,),
        "uncorrected_errors": 2,
        "xids": (),
    }
    return Snapshot(**usual | changes)


QUIET = reading()
NOTHING_TOLD = Surroundings(frozenset(f"{event} unknown" for event in REJECTING - {"host-bound"}))
USUAL = "memory at 3201 MHz, multiprocessors up to 1980 MHz"


def around(after: Snapshot, before: Snapshot = QUIET, worker: int | None = WORKER) -> Surroundings:
    return between(before, after, worker, GREATEST)


def moved(*names: str) -> dict[str, int]:
    return {name: 5 + (name in names) for name in COUNTERS}


def test_a_quiet_board_shows_no_event_and_its_usual_clocks() -> None:
    assert around(QUIET) == Surroundings(frozenset(), USUAL)


EVENTS: dict[str, list[dict[str, Any]]] = {
    "hardware-slow-down": [{"reasons": 0x8}, {"reasons": 0x80}, {"counters_ns": moved("power_brake")}],
    "thermal": [
        {"reasons": 0x20},
        {"reasons": 0x40},
        *({"counters_ns": moved(name)} for name in ("thermal", "software_thermal", "hardware_thermal")),
    ],
    "sync-boost": [{"reasons": 0x10}, {"counters_ns": moved("sync_boost")}],
    "xid": [{"xids": (79,)}, {"uncorrected_errors": 3}, {"uncorrected_errors": 3, "xids": None}],
    "foreign-process": [{"processes": (WORKER, 78)}],
    "power-cap": [{"reasons": 0x4}, {"counters_ns": moved("power")}],
    "board-limit": [{"counters_ns": moved("board_limit")}],
    "reliability": [{"counters_ns": moved("reliability")}],
}


@pytest.mark.parametrize(("event", "change"), [(event, change) for event in EVENTS for change in EVENTS[event]])
def test_each_reason_and_each_counter_has_its_event(event: str, change: dict[str, Any]) -> None:
    assert around(reading(**change)).events == {event}


def test_every_event_that_rejects_can_be_seen_and_a_power_cap_is_none_of_them() -> None:
    assert REJECTING - {"host-bound"} == EVENTS.keys() - {"power-cap", "board-limit", "reliability"}


def test_a_reason_or_a_foreign_process_of_the_reading_before_counts_too() -> None:
    assert around(QUIET, reading(reasons=0x20)).events == {"thermal"}
    assert around(QUIET, reading(processes=(WORKER, 78))).events == {"foreign-process"}


@pytest.mark.parametrize("reasons", [0x0, 0x1, 0x2, 0x100])
def test_idle_and_chosen_clocks_are_no_events(reasons: int) -> None:
    assert not around(reading(reasons=reasons)).events


# What is not told ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "unknown"),
    [
        ({"reasons": None, "counters_ns": {}}, {"hardware-slow-down", "thermal", "sync-boost"}),
        ({"reasons": None, "counters_ns": {"thermal": 5}}, {"hardware-slow-down", "sync-boost"}),
        ({"counters_ns": {}}, set()),
        ({"xids": None}, {"xid"}),
        ({"xids": None, "uncorrected_errors": None}, {"xid"}),
        ({"uncorrected_errors": None}, set()),
        ({"processes": None}, {"foreign-process"}),
        ({"processes": ()}, {"foreign-process"}),
    ],
)
def test_what_the_board_does_not_tell_is_said_and_rejects_nothing(change: dict[str, Any], unknown: set[str]) -> None:
    found = around(reading(**change)).events
    assert found == {f"{event} unknown" for event in unknown}
    assert not found & REJECTING


def test_a_counter_that_appears_has_not_moved() -> None:
    assert not around(QUIET, reading(counters_ns={})).events


def test_a_board_that_nothing_tells_of_has_every_unknown_and_no_clock() -> None:
    blank = Snapshot(at_ns=1)
    assert between(blank, blank, None, None) == NOTHING_TOLD


@pytest.mark.parametrize("missing", ["sm_mhz", "memory_mhz"])
def test_half_a_clock_is_no_clock(missing: str) -> None:
    assert around(reading(**{missing: None})).clock is None


# Clocks --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "clock"),
    [
        ({"sm_mhz": 1935}, USUAL),
        ({"sm_mhz": 1920}, "memory at 3201 MHz, multiprocessors near 1881 MHz"),
        ({"sm_mhz": 1410}, "memory at 3201 MHz, multiprocessors near 1386 MHz"),
        ({"sm_mhz": 1410, "reasons": 0x4}, USUAL),
        ({"sm_mhz": 1410, "counters_ns": moved("power")}, USUAL),
        ({"memory_mhz": 2619}, "memory at 3201 to 2619 MHz, multiprocessors up to 1980 MHz"),
        ({"memory_mhz": 2619, "reasons": 0x4}, "memory at 3201 to 2619 MHz, multiprocessors up to 1980 MHz"),
    ],
)
def test_a_state_of_clocks_is_coarse_and_a_power_cap_explains_its_own(change: dict[str, Any], clock: str) -> None:
    assert around(reading(**change)).clock == clock


# Whose process -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "worker"),
    [
        ((), (WORKER,), WORKER),
        ((5,), (5, WORKER), WORKER),
        ((), (901,), 901),
        ((5,), (5, 901), 901),
        ((5,), (901,), 901),
        ((), (), None),
        ((5,), (5,), None),
        ((), (901, 902), None),
        (None, (901,), 901),
        ((), None, None),
    ],
)
def test_the_worker_is_the_process_that_came_when_it_opened_the_board(
    before: tuple[int, ...] | None, now: tuple[int, ...] | None, worker: int | None
) -> None:
    assert worker_of(before, now, WORKER) == worker


def test_processes_of_which_none_can_be_the_worker_are_foreign() -> None:
    assert around(reading(processes=(5,)), reading(processes=(5,)), worker=None).events == {"foreign-process"}


# A session -----------------------------------------------------------------------------------------------------------


def watch(*snapshots: Snapshot) -> Watch:
    left: Iterator[Snapshot] = iter(snapshots)
    return Watch(lambda: next(left), GREATEST)


def test_a_watch_compares_each_reading_with_the_one_before() -> None:
    gone = reading(processes=(5,))  # The worker of the session before, which is still ending.
    of_ours = watch(
        gone, reading(processes=(901,)), *(reading(processes=(901,), reasons=bits) for bits in (0, 8, 0, 0))
    )
    of_ours.opened(WORKER)
    assert [of_ours().events for _ in range(4)] == [set(), {"hardware-slow-down"}, {"hardware-slow-down"}, set()]
    found = of_ours.watched
    assert found is not None
    assert (found.worker, found.greatest_sm_mhz, len(found.snapshots)) == (901, GREATEST, 6)
    whole = Telemetry(sessions=(found,))
    assert Telemetry.parse(whole.canonical()) == whole


def test_a_session_that_nobody_asks_leaves_nothing() -> None:
    silent = watch(QUIET, QUIET)
    silent.opened(WORKER)
    assert silent.watched is None


def test_a_board_that_the_library_does_not_know_is_recorded_as_unwatched() -> None:
    """Without a driver there is no library; with one, it has no board of this identifier."""
    board = nvml.open_board("GPU-00000000-0000-0000-0000-000000000000", {})
    assert isinstance(board, nvml.Blind)
    settings = board.settings()
    assert isinstance(settings, dict)
    assert "GPU-00000000-0000-0000-0000-000000000000" in str(settings["unwatched"])
    unseen = Watch(board.read, board.greatest_sm_mhz)
    unseen.opened(WORKER)
    assert unseen() == NOTHING_TOLD
    board.close()
