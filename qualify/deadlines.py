"""Deadlines: what is called where a block takes too long, all of them watched by one thread of the process.

A timer of its own would start a thread for each question to a worker, of which a window has several.
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

#: So many that were met are forgotten together.
_MET = 256


@contextmanager
def within(timeout_s: float, late: Callable[[], object]) -> Iterator[None]:
    """Call `late` once, in a thread of its own, if the block has not ended by then."""
    watch = _of_this_process()
    number = watch.set(timeout_s, late)
    try:
        yield
    finally:
        watch.met(number)


class Watch:
    """Deadlines that were not met yet, and the thread that sleeps until the first of them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._late: dict[int, Callable[[], object]] = {}
        self._order: list[tuple[float, int]] = []
        self._numbers = itertools.count()
        self._wakes_at = math.inf
        threading.Thread(target=self._serve, name="deadlines", daemon=True).start()

    @property
    def remembered(self) -> int:
        """How many deadlines it holds, those that were met among them."""
        return len(self._order)

    def set(self, timeout_s: float, late: Callable[[], object]) -> int:
        """The number of a new deadline. It wakes the thread only if it is the first, which is rare."""
        at = time.monotonic() + timeout_s
        with self._changed:
            number = next(self._numbers)
            self._late[number] = late
            heapq.heappush(self._order, (at, number))
            if at < self._wakes_at:
                self._changed.notify()
        return number

    def met(self, number: int) -> None:
        """Call nothing for this deadline, unless that has begun."""
        with self._changed:
            self._late.pop(number, None)
            if len(self._order) > 2 * len(self._late) + _MET:
                self._order = [each for each in self._order if each[1] in self._late]
                heapq.heapify(self._order)

    def _serve(self) -> None:
        while True:
            with self._changed:
                while (wait_s := self._until_first()) > 0:
                    self._changed.wait(min(wait_s, threading.TIMEOUT_MAX))
                late = self._late.pop(heapq.heappop(self._order)[1])
            threading.Thread(target=late, name="late", daemon=True).start()  # One that waits keeps no other waiting.

    def _until_first(self) -> float:
        """Seconds until a deadline that was not met; those before it that were are forgotten."""
        while self._order and self._order[0][1] not in self._late:
            heapq.heappop(self._order)
        self._wakes_at = self._order[0][0] if self._order else math.inf
        return self._wakes_at - time.monotonic()


@cache
def _of_this_process() -> Watch:
    return Watch()


#: A fork of this process has no thread that watches.
os.register_at_fork(after_in_child=_of_this_process.cache_clear)
