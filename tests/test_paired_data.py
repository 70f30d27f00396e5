"""The decision on windows of real kernels (tests/data/README.md): what it admits, and why it has a margin."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pytest

from qualify import paired
from qualify.paired import Mean, Reading, signed_rank
from qualify.windows import Timed, Window

LEVEL = Fraction(1, 100)
LIMIT = paired.delta(None, Fraction(1))
TAIL_MARGIN = Fraction(1, 100)
PROCESSES = 6


@dataclass(frozen=True)
class Recorded:
    """The windows of one process of one case."""

    protocol: str
    case: str
    gain_ppm: int
    totals: tuple[Fraction, ...]
    tails: tuple[Fraction, ...]

    def ahead(self, limit: Fraction) -> bool:
        """Whether the first 101 windows show a gain above `limit` at 1 %."""
        return signed_rank([Mean(total) for total in self.totals[:101]], limit, LEVEL).rejects

    def no_worse_tail(self) -> bool:
        return signed_rank([Mean(tail) for tail in self.tails[:101]], 1 - TAIL_MARGIN, LEVEL).rejects


def recorded() -> Iterator[Recorded]:
    lines = (Path(__file__).parent / "data/paired-h200.jsonl").read_text().splitlines()
    for session in map(json.loads, lines):
        windows = []
        for index, bit in enumerate(session["candidate_first"]):
            first, second, third, fourth = (
                Timed(ticks * session["tick_ps"], (ticks * session["tick_ps"],))
                for ticks in session["totals"][4 * index : 4 * index + 4]
            )
            windows.append(Window(bit == "1", (first, second, third, fourth)))
        tails = [window.tail(short=True) for window in windows]
        if session["tails"] is not None:
            tails = [Fraction(*session["tails"][2 * index : 2 * index + 2]) for index in range(len(windows))]
        totals = tuple(window.total for window in windows)
        yield Recorded(session["protocol"], session["case"], session["gain_ppm"], totals, tuple(tails))


SESSIONS = tuple(recorded())
IDENTICAL = [session for session in SESSIONS if session.gain_ppm == 0]


def case(name: str, gain_ppm: int) -> list[Recorded]:
    return [session for session in SESSIONS if (session.case, session.gain_ppm) == (name, gain_ppm)]


def over_processes(sessions: list[Recorded], part: int) -> list[Reading]:
    """101 windows as the gate lays them out, eleven blocks drawn in turn from the six recorded processes."""
    readings = []
    for block, size in enumerate(paired.spread(101, 11)):
        session, start = sessions[block % PROCESSES], 20 * part + 10 * (block // PROCESSES)
        chosen = slice(start, start + size)
        readings += [
            Reading(block, total, tail)
            for total, tail in zip(session.totals[chosen], session.tails[chosen], strict=True)
        ]
    return readings


def decide(sessions: list[Recorded], part: int, limit: Fraction = LIMIT) -> paired.Decision:
    readings = over_processes(sessions, part)
    return paired.decide(readings, windows=101, level=paired.alpha(1), limit=limit, tail_margin=TAIL_MARGIN)


def test_every_case_is_there() -> None:
    assert len(IDENTICAL) == 4 * PROCESSES + 5
    assert len(SESSIONS) == len(IDENTICAL) + 2 * 3 * PROCESSES
    assert all(len(session.totals) == (101 if session.protocol == "final" else 202) for session in SESSIONS)


def test_with_the_margin_no_identical_pair_is_admitted() -> None:
    assert not [(session.case, session.protocol) for session in IDENTICAL if session.ahead(LIMIT)]


def test_without_a_margin_identical_kernels_in_graphs_are_admitted() -> None:
    """Each arm has graph objects of its own, which differ by a steady 0.02 %: the reason for the margin."""
    assert {session.case for session in IDENTICAL if session.ahead(Fraction(1))} == {"fma5us"}


def test_naive_median_of_21_windows_admits_identical_kernels() -> None:
    naive = [
        paired.trial([Reading(0, t, Fraction(1)) for t in s.totals[:21]], TAIL_MARGIN).promising for s in IDENTICAL
    ]
    assert sum(naive) > len(IDENTICAL) // 4


@pytest.mark.parametrize("gain_ppm", [5_000, 10_000, 20_000])
def test_planted_gain_of_a_compute_kernel_is_found_in_every_process(gain_ppm: int) -> None:
    found = [session.ahead(LIMIT) and session.no_worse_tail() for session in case("fma195us", gain_ppm)]
    assert found == [True] * PROCESSES


@pytest.mark.parametrize(("gain_ppm", "least"), [(5_000, PROCESSES - 1), (10_000, PROCESSES), (20_000, PROCESSES)])
def test_planted_gain_of_a_streaming_kernel_is_found(gain_ppm: int, least: int) -> None:
    found = [session.ahead(LIMIT) and session.no_worse_tail() for session in case("stream64M", gain_ppm)]
    assert sum(found) >= least


@pytest.mark.parametrize("name", ["fma195us", "stream64M", "fma5us", "stream1M5us"])
@pytest.mark.parametrize("part", range(5))
def test_whole_decision_admits_no_identical_pair(name: str, part: int) -> None:
    assert not decide(case(name, 0), part).admits


@pytest.mark.parametrize(("name", "gain_ppm"), [("fma195us", 5_000), ("fma195us", 10_000), ("stream64M", 10_000)])
@pytest.mark.parametrize("part", range(5))
def test_whole_decision_admits_the_planted_gain_and_not_its_reverse(name: str, gain_ppm: int, part: int) -> None:
    sessions = case(name, gain_ppm)
    assert decide(sessions, part).admits
    turned = [
        Recorded(s.protocol, s.case, s.gain_ppm, tuple(1 / t for t in s.totals), tuple(1 / t for t in s.tails))
        for s in sessions
    ]
    assert not decide(turned, part).admits
