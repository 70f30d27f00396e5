"""Commands of OpenCL queues: held back, begun, ended, and how long they took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyopencl as cl


class Held:
    """Commands that wait for `gate`: the first and the last of them, which say when they ran."""

    def __init__(self, gate: Any) -> None:
        self.gate = gate
        self.first: Any = None
        self.last: Any = None

    def take(self, events: Sequence[Any]) -> None:
        """The next commands in order."""
        if events:
            self.first, self.last = self.first or events[0], events[-1]

    def open(self) -> None:
        """Let them run."""
        self.gate.set_status(cl.command_execution_status.COMPLETE)


def took_ns(work: Callable[[], list[Any]]) -> int:
    """How long commands run the second time; the first time may make machine code."""
    for _ in range(2):
        events = work()
        for event in events:
            event.wait()
    return sum(event.profile.end - event.profile.start for event in events)


def is_pending(event: Any) -> bool:
    """Whether a command has not ended; a negative status is an error's, which waiting raises."""
    status: int = event.command_execution_status
    return status > cl.command_execution_status.COMPLETE


def has_started(event: Any) -> bool:
    """Whether a launch that the gate should hold back runs already: then the host set the pace (R10.8)."""
    status: int = event.command_execution_status
    return status <= cl.command_execution_status.RUNNING
