"""What is begun before anybody asks: templates, compile workers, rigs, modules."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qualify.bench import Rig
from qualify.children import Job, Nursery
from qualify.errors import RigError
from qualify.gate import WorkerLost
from qualify.opening import Opening
from tests.house.tree import ROOT
from tests.rigs import BEYOND_MEMORY, HONEST, Trial, kernel
from tests.workers.processes import eventually, kind, templates, workers

#: Prints the templates of a process: after one was begun, and when a compile worker has told what it is.
BEGUN = """
import json, os
from qualify import templates
from qualify.bench import Rig
from tests.workers.processes import templates as running
templates.begin()
templates.started(lambda: None)
print(json.dumps(sorted(running(os.getpid()))))
with Rig.open("simulated-1.0"):
    print(json.dumps(sorted(running(os.getpid()))))
"""


def test_a_template_that_was_begun_early_serves_the_rig() -> None:
    command = [sys.executable, "-c", BEGUN]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    begun, serving = map(json.loads, done.stdout.splitlines())
    assert len(begun) == 1
    assert serving == begun


def test_what_only_a_worker_is_told_needs_no_template_of_its_own() -> None:
    before, nursery = templates(os.getpid()), Nursery()
    jobs = [Job("compile", "simulated", None, 1 << 20, told={"QUALIFY_TOLD": text}) for text in "ab"]
    try:
        for job in jobs:
            nursery.start(job)
        assert len(templates(os.getpid()) - before) <= 1
    finally:
        nursery.close()
    assert jobs[0].key != jobs[1].key


def test_workers_are_started_for_the_modules_that_were_supplied() -> None:
    with Rig.open("simulated-1.0") as rig:
        idle = rig._compilers._idle  # Of another rig's workers some may wait, and serve this one.
        assert idle.qsize() == 1
        Trial(rig).subject(HONEST["simulated"], b"{}")
        wanted = min(2, len(os.sched_getaffinity(0)))
        eventually(lambda: idle.qsize() == wanted, "a second compile worker")


def test_a_module_is_built_before_anybody_asks_and_whoever_asks_is_told_of_its_loss() -> None:
    with Rig.open("pocl-3.0") as rig:
        trial, cores = Trial(rig), len(os.sched_getaffinity(0))
        subject = trial.subject(BEYOND_MEMORY)
        eventually(lambda: len(named("compile")) >= min(2, cores), "compile workers")
        compilers = named("compile")
        rig.ahead(subject)
        eventually(lambda: bool(compilers - named("compile")), "the loss of a compile worker")
        with pytest.raises(WorkerLost) as caught:
            rig.bench(subject, {}).build(subject.candidate)
        assert (caught.value.loss.how, caught.value.loss.arm) == ("died", "candidate")
        assert rig.bench(subject, {}).build(subject.incumbent).state == "built"
        rig.close()
        rig.ahead(subject)  # Nothing is begun after that.


def test_nothing_is_built_ahead_any_more_once_it_is_settled() -> None:
    def spent() -> int:
        """Clock ticks of the compile workers' own code."""
        stats = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in named("compile"))
        return sum(int(fields[11]) for fields in stats)

    with Rig.open("pocl-3.0") as rig:
        trial = Trial(rig)
        trial.subject(kernel("y[n] = 0.5f;"))
        rig.settle()  # At once, while a second worker starts.
        started = spent()
        time.sleep(0.5)
        assert spent() <= started + 1
        subjects = [trial.subject(kernel(f"y[n] = {number}.0f;")) for number in range(200)]
        for subject in subjects:
            rig.ahead(subject)
        rig.settle()
        before = spent()
        time.sleep(0.5)
        assert spent() <= before + 1
        assert rig.bench(subjects[-1], {}).build(subjects[-1].candidate).state == "built"


def named(name: str) -> set[int]:
    """The workers of a kind that this process has."""
    return {pid for pid in workers(os.getpid()) if kind(pid) == name}


def test_a_rig_that_is_opened_meanwhile_is_there_or_says_why_not_and_closes_unasked() -> None:
    absent = Opening("cuda-1.0", "sm_90")
    with pytest.raises(RigError, match=r"cuda-1\.0|1\.0"):
        absent.rig()
    absent.close()
    opening = Opening("simulated-1.0", "native")
    assert opening.rig()._compilers._idle.qsize() == min(2, len(os.sched_getaffinity(0)))
    opening.close()
    trial = Trial(opening.rig())
    with pytest.raises(RigError, match="interrupted"):
        opening.rig().bench(trial.subject(HONEST["simulated"]), {}).build(trial.subject(HONEST["simulated"]).candidate)
