"""Times as others reported them, read as our windows would have been, and what must not follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from qualify import paired
from qualify.readings import Reading, flat, warm
from qualify.seeds import coin
from qualify.windows import Timed, Window
from tests.gates.build import not_held, subject, verdict
from tests.gates.trials import Session

DATA = Path(__file__).parents[1] / "data/cases"
PPM = Fraction(10_000, 1_000_000)


def rows(name: str) -> list[list[str]]:
    """The words of each line that is no comment."""
    return [line.split() for line in (DATA / name).read_text().splitlines() if not line.startswith("#")]


def nanoseconds(text: str, unit_ns: int) -> int:
    return round(Fraction(text) * unit_ns)


def windows(segments_ns: Sequence[int]) -> list[paired.Reading]:
    """Segments in the order in which they ran, four to a window, each window's arms by a coin."""
    found = []
    for at in range(0, len(segments_ns) - 3, 4):
        first, second, third, fourth = (Timed(each, (each,)) for each in segments_ns[at : at + 4])
        window = Window(coin(f"{at:016x}"), (first, second, third, fourth))
        found.append(paired.Reading(at // 4 % 3, window.total, window.tail(short=False)))
    return found


def decided(readings: Sequence[paired.Reading]) -> paired.Decision:
    return paired.decide(
        readings, windows=len(readings), level=Fraction(1, 4), limit=Fraction(1001, 1000), tail_margin=PPM
    )


def test_a_board_that_slows_down_halfway_makes_nobody_faster() -> None:
    """D06: by halves the first of two equal arms is a fifth faster; in windows of both it is not."""
    times = [nanoseconds(row[1], 1_000_000) for row in rows("D06.txt")]
    assert len(times) == 60
    assert sum(times[30:]) > sum(times[:30]) * 1.19
    found = decided(windows(times))
    assert not found.windows.rejects
    assert not found.process_windows.rejects


def test_a_place_in_the_order_that_costs_six_percent_makes_nobody_faster() -> None:
    """D12: whoever came second was 6 % faster, 24 times of 24."""
    pairs = [(nanoseconds(a, 1000), nanoseconds(b, 1000)) for _, _, a, _, b in rows("D12.txt")]
    assert all(first > second for first, second in pairs)
    found = decided(windows([each for pair in pairs for each in pair]))
    assert not found.windows.rejects
    assert not found.process_windows.rejects


def test_calls_that_compile_are_in_no_median() -> None:
    """D09: of ten calls the first two and one in the middle took thousands of times as long as the others."""
    calls = [nanoseconds(row[1], 1_000_000) for row in rows("D09.txt")]
    usual = sorted(calls)[4]
    units = calls + [usual] * 10
    assert not warm(calls)
    assert warm(units)
    assert flat(units)
    slow = max(calls[2:]) // usual

    def once(n: int, arm: str, reading: Reading) -> Reading:
        late = (reading.unit_end_ns[-1] - reading.start_ns) * slow
        return replace(reading, unit_end_ns=(*reading.unit_end_ns[:-1], reading.unit_end_ns[-1] + late))

    session = Session()
    facts, series = session.each(lambda n, arm, r: once(n, arm, r) if (n, arm) == (7, "candidate") else r).facts()
    found = verdict("trial", session.about, facts, series)
    assert not not_held(found)
    (gain,) = [note.got for note in found.notes if note.name == "gain"]
    assert gain == "1.50000 x"


@pytest.mark.parametrize("row", rows("D11.txt")[:5], ids=lambda row: "-".join(row[:2]))
def test_a_gain_on_friendly_sizes_is_no_gain_on_their_neighbours(row: list[str]) -> None:
    """D11: of every size its own verdict. Time goes as the inverse of what was reported."""
    candidate, incumbent = int(row[1]), int(row[2])
    session = Session(candidate_ns=300_000_000 // candidate, incumbent_ns=300_000_000 // incumbent)
    facts, series = session.facts()
    found = not_held(verdict("trial", subject(), facts, series))
    assert ("faster" in found) is (candidate < incumbent)
