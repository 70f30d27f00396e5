"""Launches beside a busy stream: a second one always has work ahead of it, and events tell that it did."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from cuda.bindings import driver

from qualify.steps import MAX_HELD_CALLS
from qualify.workers.devices.cuda_driver import call, reached
from qualify.workers.devices.cuda_harness import CudaHarness
from qualify.workers.devices.segments import backlog

_NEUTRAL_BYTES = 32 << 20  # What one neutral copy of the second stream moves: about a tenth of a millisecond.
_MORE_PASSES = 2  # Enqueued beside the work ahead: the first of the second stream, and those that the first one runs.


class Contention:
    """The harness's stream beside a second one."""

    def __init__(self, harness: CudaHarness) -> None:
        self._harness = harness
        self.second = harness.new_stream()

    def neutral(self) -> Callable[[], None]:
        """Neutral work for the second stream: copies by one block a multiprocessor, beside which others fit."""
        self._harness.neutral(2 * _NEUTRAL_BYTES)
        self._harness.wait()
        return lambda: self._harness.copy(_NEUTRAL_BYTES, blocks=self._harness.units, stream=self.second)

    def beside(self, own: Callable[[], None], other: Callable[[], None], calls: int) -> bool:
        """Run `own` once while the second stream runs `other`, which takes `calls` calls, again and again.

        All of it is enqueued before any of it runs, unless it is too much for a stream. Whether the second stream was
        at work from before the beginning of `own` until after its end. Raises DriverError.
        """
        ahead = backlog(self._took_ns(other), MAX_HELD_CALLS // calls - _MORE_PASSES)
        hold = (2 + _MORE_PASSES) * calls <= MAX_HELD_CALLS
        start, end = _event(), _event()
        with self._harness.held(self.second) if hold else nullcontext():
            begun = self._fence()
            other()
            first = self._fence()
            for _ in range(ahead):
                other()
            fences = [self._fence()]
            call(driver.cuStreamWaitEvent, self._harness.stream, first, 0)
            call(driver.cuEventRecord, start, self._harness.stream)
            own()
            call(driver.cuEventRecord, end, self._harness.stream)
        while not reached(end):
            other()
            fences.append(self._fence())
            call(driver.cuEventSynchronize, fences[-min(ahead, len(fences))])
        self._harness.wait()
        busy = _ms(begun, start) >= 0 and _ms(end, fences[-1]) >= 0
        for event in (start, end, begun, first, *fences):
            call(driver.cuEventDestroy, event)
        return busy

    def _took_ns(self, other: Callable[[], None]) -> int:
        """How long it takes the second time; the first time may load code."""
        other()
        start = self._fence()
        other()
        end = self._fence()
        self._harness.wait()
        return round(_ms(start, end) * 1_000_000)

    def _fence(self) -> Any:
        event = _event()
        call(driver.cuEventRecord, event, self.second)
        return event


def _event() -> Any:
    return call(driver.cuEventCreate, 0)


def _ms(start: Any, end: Any) -> float:
    return float(call(driver.cuEventElapsedTime, start, end))
