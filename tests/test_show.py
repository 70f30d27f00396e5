"""Progress: a gate's start, what closes, and after a silence how far it is."""

import pytest

from gates import GATES
from qualify.judgement import judge_run
from qualify.plan import LeftOut, Omitted, Planned
from qualify.show import SILENCE_S, Lines, reasons
from qualify.verdict import Check, Verdict
from tests.evidence import small
from tests.gates.build import subject

PLANNED = Planned(subject=subject(), gates=("compile",))
PASSES, FAILS = (Verdict(checks=(Check(name="builds", got="no", want="yes", holds=holds),)) for holds in (True, False))


class Clock:
    """Seconds that pass when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_silence_ends_with_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    lines = Lines(quiet=False, clock=clock)
    lines.gate("compile", 4)
    for verdict, pause_s in ((PASSES, 0.0), (PASSES, SILENCE_S), (FAILS, SILENCE_S / 2), (PASSES, SILENCE_S)):
        clock.now += pause_s
        lines.decided(PLANNED, "compile", verdict)
    assert capsys.readouterr().err.splitlines() == [
        "compile: 4 subjects",
        "  compile: 2 of 4",
        "  c/wide: builds is no, wanted yes",
    ]


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(quiet=True)
    lines.gate("compile", 1)
    lines.decided(PLANNED, "compile", FAILS)
    assert capsys.readouterr() == ("", "")


def test_of_what_a_rig_said_the_fault_is_shown_and_not_its_fix(capsys: pytest.CaptureFixture[str]) -> None:
    got = "error: the worker died: a warning\nno memory\n\n  fix: report it"
    lines = Lines(quiet=False)
    lines.decided(PLANNED, "compile", Verdict(checks=(Check(name="measured", got=got, want="facts", holds=None),)))
    assert capsys.readouterr().err == "  c/wide: measured is no memory, wanted facts\n"


def test_a_cell_that_goes_without_a_gate_says_so_once_and_of_timing_nothing() -> None:
    whole = small.plan()
    nodes = tuple(
        node.model_copy(update={"gate": gate}) for node, gate in zip(whole.nodes, ("memcheck", "trial"), strict=True)
    )
    why = {"memcheck": "9 elements, and 8 at most on opencl", "trial": "plain is never timed", "residency": "elsewhere"}
    left_out = tuple(Omitted(gate=gate, reason=reason) for gate, reason in why.items())
    subjects = tuple(each.model_copy(update={"gates": (), "omitted": left_out}) for each in whole.subjects)
    plan = whole.model_copy(update={"nodes": nodes, "subjects": subjects})
    lines = list(reasons(judge_run(plan, "complete", {}, {}), plan, GATES))
    assert [line for line in lines if "without" in line] == [f"f32-7 goes without memcheck: {why['memcheck']}"]


def test_a_cell_that_is_too_large_for_the_device_says_so() -> None:
    plan = small.plan().model_copy(update={"left_out": (LeftOut(cell="large", reason="is planned on cuda only"),)})
    assert type(plan).parse(plan.canonical()) == plan
    assert b"left_out" not in small.plan().canonical()
    lines = list(reasons(judge_run(plan, "complete", {}, {}), plan, GATES))
    assert [line for line in lines if line.startswith("large")] == ["large is left out: it is planned on cuda only"]
