"""Real workers lost to real kernels: each loss names its arm and its step, and the next subject is served."""

import json
from typing import Any

import pytest

from qualify.gate import Loss, WorkerLost
from qualify.steps import Arena
from tests.rigs import HONEST, LAUNCH, SEED, Trial, kernel, sums


def scripted(**entry: Any) -> bytes:
    return json.dumps({"entries": {"add": {"does": "add", **entry}}}).encode()


#: By condition: the simulated script, the OpenCL kernel, how the worker is lost.
FAULTS = {
    "hangs": (scripted(fault="hang"), kernel("volatile int z = 1; while (z) { }"), "hung"),
    "crashes": (scripted(fault="die"), kernel("*(volatile __global int *)8 = n;"), "died"),
    "prints": (
        scripted(fault="print"),
        kernel('for (int i = 0; i < 200; i++) printf("%d megabytes\\n", i);'),
        "died",
    ),
    "refused": (
        scripted(fault="refuse"),
        HONEST["opencl"].replace(b"int n)", b"int n, int m)"),  # A parameter that the contract does not pass.
        "refused",
    ),
}


def text(trial: Trial, simulated: bytes, opencl: bytes) -> bytes:
    return simulated if trial.rig.domain_arch == "virtual" else opencl


def loss_of(trial: Trial, candidate: bytes, *, timeout_s: float = 20.0) -> Loss:
    with pytest.raises(WorkerLost) as caught:
        trial.run(trial.subject(candidate), timeout_s=timeout_s)
    return caught.value.loss


@pytest.mark.parametrize("fault", FAULTS)
def test_a_kernel_loses_its_own_worker_and_no_other(fault: str, trial: Trial) -> None:
    simulated, opencl, how = FAULTS[fault]
    candidate = text(trial, simulated, opencl)
    loss = loss_of(trial, candidate, timeout_s=1.0 if how == "hung" else 20.0)
    assert (loss.how, loss.step, loss.arm) == (how, LAUNCH, "candidate")
    assert (loss.signal is not None or loss.exit_code is not None) == (how != "refused")
    assert len(loss.log) <= 4096
    assert trial.run(trial.subject(candidate), "incumbent") == sums()


def test_an_incumbents_loss_is_not_the_candidates(trial: Trial) -> None:
    simulated, opencl, _ = FAULTS["crashes"]
    subject = trial.subject(HONEST[trial.rig.domain.runtime], text(trial, simulated, opencl))
    with pytest.raises(WorkerLost) as caught:
        trial.run(subject, "incumbent")
    assert (caught.value.loss.step, caught.value.loss.arm) == (LAUNCH, "incumbent")
    assert trial.run(subject) == sums()


def test_an_arena_beyond_the_board_is_refused_and_nobodys_fault(trial: Trial) -> None:
    subject = trial.subject(HONEST[trial.rig.domain.runtime])
    whole = Arena(size_bytes=1 << 40, placements=(), zone_seed=SEED)
    with trial.rig.bench(subject, {}).session(subject, "candidate") as session, pytest.raises(WorkerLost) as caught:
        session.run([whole], 20.0)
    loss = caught.value.loss
    assert (loss.how, loss.step, loss.arm) == ("refused", "arena 1 of 1", None)
    assert str(1 << 40) in loss.log
