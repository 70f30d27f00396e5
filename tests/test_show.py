"""Progress: a gate's start, what closes, and after a silence how far it is."""

import pytest

from qualify.plan import Planned
from qualify.show import SILENCE_S, Lines
from qualify.verdict import Check, Verdict
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
