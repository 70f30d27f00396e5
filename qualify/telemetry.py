"""What a board's management library tells around windows, and what two of its readings say of the time between.

Pure: `qualify.nvml` reads. Nothing here knows an arm or a time, so that what it names rejects windows blindly (R10.8).
What a board does not tell is an event of its own, `thermal unknown`, which rejects nothing and is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from fractions import Fraction

from qualify.gate import Surroundings
from qualify.model import Document
from qualify.timed import UNKNOWN

#: What rejects a window, by name: the reasons for a clock (bits of the library) and the counters that show it.
_SLOWED: dict[str, tuple[int, frozenset[str]]] = {
    "hardware-slow-down": (0x8 | 0x80, frozenset({"power_brake"})),
    "thermal": (0x20 | 0x40, frozenset({"thermal", "software_thermal", "hardware_thermal"})),
    "sync-boost": (0x10, frozenset({"sync_boost"})),
}
#: What is recorded only: a dense product runs at its power cap.
_RECORDED: dict[str, tuple[int, frozenset[str]]] = {
    "power-cap": (0x4, frozenset({"power"})),
    "board-limit": (0, frozenset({"board_limit"})),
    "reliability": (0, frozenset({"reliability"})),
}
#: Clocks step by 15 MHz and wander by a few steps without a cause that the board names; a state is a twentieth of the
#: greatest clock, and the greatest is in the middle of its own.
_STATES = 20


class Snapshot(Document):
    """One reading of a board: None, or a counter that is not there, is what this board does not tell.

    `reasons` are the library's bits for why the clock is what it is, `counters_ns` for how long it was lower and why.
    `xids` came since the reading before.
    """

    at_ns: int
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    power_mw: int | None = None
    reasons: int | None = None
    counters_ns: dict[str, int] = {}
    processes: tuple[int, ...] | None = None
    uncorrected_errors: int | None = None
    xids: tuple[int, ...] | None = None


class Watched(Document):
    """One session: the process that is its worker's, as the library numbers it, and every reading in order."""

    worker: int | None
    greatest_sm_mhz: int | None
    snapshots: tuple[Snapshot, ...]


class Telemetry(Document):
    """`telemetry/<cell>/<route>/<gate>.json`: the sessions of one gate on one subject that asked for surroundings."""

    sessions: tuple[Watched, ...]


def worker_of(before: Collection[int] | None, now: Collection[int] | None, pid: int) -> int | None:
    """Which of the processes on the board is the worker that has just opened it; None where that cannot be told.

    In a container the library may number processes as its host does, or list none.
    """
    if now is None or pid in now:
        return None if now is None else pid
    new = set(now) - set(before or ())
    return new.pop() if len(new) == 1 else None


def between(before: Snapshot, after: Snapshot, worker: int | None, greatest_sm_mhz: int | None) -> Surroundings:
    """What happened from one reading to the next, and the state of the clocks meanwhile."""
    events = frozenset(_events(before, after, worker))
    return Surroundings(events, _clock(before, after, greatest_sm_mhz, capped="power-cap" in events))


def _events(before: Snapshot, after: Snapshot, worker: int | None) -> Iterator[str]:
    for name, (bits, counters) in (_SLOWED | _RECORDED).items():
        seen = _slowed(before, after, bits, counters)
        if seen:
            yield name
        elif seen is None and name in _SLOWED:
            yield f"{name}{UNKNOWN}"
    for name, seen in (("foreign-process", _foreign(before, after, worker)), ("xid", _failed(before, after))):
        if seen is None or seen:
            yield name if seen else f"{name}{UNKNOWN}"


def _slowed(before: Snapshot, after: Snapshot, bits: int, counters: Collection[str]) -> bool | None:
    """Whether a reason was there at either end, or its counter has moved; None where nothing tells."""
    told = [before.counters_ns[name] != after.counters_ns[name] for name in _common(before, after) & {*counters}]
    if bits and before.reasons is not None and after.reasons is not None:
        told.append(bool((before.reasons | after.reasons) & bits))
    return any(told) if told else None


def _common(before: Snapshot, after: Snapshot) -> set[str]:
    return {*before.counters_ns} & {*after.counters_ns}


def _foreign(before: Snapshot, after: Snapshot, worker: int | None) -> bool | None:
    """Whether another process than the worker was on the board; None where the worker itself is not listed."""
    if not before.processes or not after.processes:
        return None
    others = {*before.processes, *after.processes} - {worker}
    return bool(others) or None if worker is None else bool(others)


def _failed(before: Snapshot, after: Snapshot) -> bool | None:
    """Whether the board reported an error; an uncorrected one of its memory is one, where no other is told."""
    told = [] if after.xids is None else [bool(after.xids)]
    if before.uncorrected_errors is not None and after.uncorrected_errors is not None:
        told.append(before.uncorrected_errors != after.uncorrected_errors)
    return any(told) if after.xids is not None or any(told) else None


def _clock(before: Snapshot, after: Snapshot, greatest_mhz: int | None, *, capped: bool) -> str | None:
    """A name for the clocks' state: memory's, and the multiprocessors' to a twentieth of their greatest.

    A clock that the power cap lowers moves all the time and is as usual as the greatest (R10.8).
    """
    if None in (before.memory_mhz, after.memory_mhz, before.sm_mhz, after.sm_mhz) or not greatest_mhz:
        return None
    memory = " to ".join(dict.fromkeys(f"{each.memory_mhz}" for each in (before, after)))
    lowest = min(before.sm_mhz or 0, after.sm_mhz or 0)
    step = _STATES if capped else round(Fraction(_STATES * lowest, greatest_mhz))
    near = "up to" if step >= _STATES else "near"
    return f"memory at {memory} MHz, multiprocessors {near} {min(step, _STATES) * greatest_mhz // _STATES} MHz"


class Watch:
    """The readings of one session, taken whenever its surroundings are asked for, and kept."""

    def __init__(self, read: Callable[[], Snapshot], greatest_sm_mhz: int | None) -> None:
        """Read once, before the worker opens the board."""
        self._read, self._greatest_mhz = read, greatest_sm_mhz
        self._worker: int | None = None
        self._asked = False
        self._snapshots = [read()]

    def opened(self, pid: int) -> None:
        """The worker has opened the board: which process it is there, and the reading that windows start from."""
        before, now = self._snapshots[0], self._read()
        self._worker = worker_of(before.processes, now.processes, pid)
        self._snapshots.append(now)

    def __call__(self) -> Surroundings:
        """What was seen since this was last asked, or since the worker opened the board."""
        self._asked = True
        self._snapshots.append(self._read())
        before, after = self._snapshots[-2:]
        return between(before, after, self._worker, self._greatest_mhz)

    @property
    def watched(self) -> Watched | None:
        """The session's telemetry; None if nobody asked."""
        if not self._asked:
            return None
        return Watched(worker=self._worker, greatest_sm_mhz=self._greatest_mhz, snapshots=tuple(self._snapshots))
