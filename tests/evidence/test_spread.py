"""Pieces of work side by side: each is answered once, whatever becomes of a process. Audits so: test_audit.py."""

import json
import signal
import subprocess
import sys

import pytest

from tests.house.tree import ROOT

#: In a process of its own: one with other threads, as that of the tests, does not fork.
BEGIN = """
import json, os, signal, sys, threading, time
from qualify.evidence.spread import spread
PARENT = os.getpid()
def told(number): return json.dumps([number, os.getpid()]).encode()
"""
SHARED = """
def work(number):
    time.sleep(0.01)
    return told(number)
"""
#: Only the parent gets to the end of what it takes.
DIES = """
def work(number):
    if os.getpid() != PARENT: os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
    return told(number)
"""
RAISES = """
def work(number):
    if os.getpid() != PARENT: raise ArithmeticError(number)
    time.sleep(0.02)
    return told(number)
"""
CUT_SHORT = """
def work(number):
    if os.getpid() != PARENT and number > 20: os._exit(3)
    time.sleep(0.01)
    return told(number)
"""
END = "\nprint(json.dumps([json.loads(each) for each in spread(work, 40, 3)] + [[-1, PARENT]]))"


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run((sys.executable, "-c", BEGIN + code), cwd=ROOT, check=False, capture_output=True, text=True)


@pytest.mark.parametrize("work", [SHARED, DIES, RAISES, CUT_SHORT])
def test_each_number_is_answered_once_and_in_order(work: str) -> None:
    done = run(work + END)
    assert done.returncode == 0, done.stderr
    *answers, (_, parent) = json.loads(done.stdout)
    assert [number for number, _ in answers] == list(range(40))
    processes = {process for _, process in answers}
    assert parent in processes
    assert len(processes) == (3 if work is SHARED else 1)


def test_a_process_with_threads_does_not_fork() -> None:
    waiting = "\nthreading.Thread(target=lambda: time.sleep(60), daemon=True).start()"
    *answers, (_, parent) = json.loads(run(SHARED + waiting + END).stdout)
    assert {process for _, process in answers} == {parent}


def test_what_cannot_be_worked_out_is_raised() -> None:
    done = run("\ndef work(number): return b'' if number < 9 else 1 // 0\nspread(work, 40, 3)")
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr


def test_no_process_is_left_when_this_one_is_stopped() -> None:
    sleeping = """
def work(number):
    if os.getpid() == PARENT: raise KeyboardInterrupt
    time.sleep(600)
try:
    spread(work, 40, 3)
except KeyboardInterrupt:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print("none left")
"""
    assert run(sleeping).stdout == "none left\n"


def test_no_process_goes_on_when_this_one_was_killed() -> None:
    """The others have numbers for ten seconds; `run` waits until nobody holds the other end of its pipe."""
    killed = """
def work(number):
    if os.getpid() == PARENT:
        os.kill(PARENT, signal.SIGKILL)
    print(os.getpid(), flush=True)
    time.sleep(0.05)
    return b""
spread(work, 400, 3)
"""
    done = run(killed)
    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.splitlines()) < 200


def test_there_may_be_nothing_to_do() -> None:
    assert run("\nprint(spread(told, 0))").stdout == "()\n"
