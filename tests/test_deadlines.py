"""Deadlines: what is late is called once, what was in time never, whatever else is watched."""

import os
import threading

from qualify.deadlines import Watch, within

LONG_S = 60.0


def test_what_is_late_is_called_and_what_was_in_time_is_not() -> None:
    in_time, late = threading.Event(), threading.Event()
    with within(0.01, in_time.set):
        pass
    with within(0.02, late.set):
        assert late.wait(LONG_S)
    assert not in_time.is_set()


def test_a_shorter_deadline_is_not_kept_waiting_by_a_longer_one() -> None:
    long, short = threading.Event(), threading.Event()
    with within(LONG_S, long.set):
        for _ in range(2):
            short.clear()
            with within(0.01, short.set):
                assert short.wait(LONG_S)
    assert not long.is_set()


def test_a_call_that_takes_its_time_keeps_no_other_waiting() -> None:
    over, second = threading.Event(), threading.Event()
    with within(0.01, lambda: over.wait(LONG_S)), within(0.02, second.set):
        assert second.wait(LONG_S)
    over.set()


def test_each_is_called_once() -> None:
    calls: list[int] = []
    last = threading.Event()
    with within(0.01, lambda: calls.append(1)), within(0.05, last.set):
        assert last.wait(LONG_S)
    assert calls == [1]


def test_deadlines_that_were_met_are_forgotten_long_before_they_end() -> None:
    watch, called = Watch(), threading.Event()
    kept = watch.set(LONG_S, called.set)
    for _ in range(10_000):
        watch.met(watch.set(LONG_S, called.set))
    assert watch.remembered < 1_000
    watch.met(kept)
    assert not called.is_set()


def test_a_fork_watches_its_own() -> None:
    with within(LONG_S, lambda: None):
        pid = os.fork()
        if pid == 0:
            late = threading.Event()
            with within(0.01, late.set):
                os._exit(0 if late.wait(LONG_S) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
