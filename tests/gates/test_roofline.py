"""Gate roofline: nothing is faster than physics, what binds is said, and what is not known is named."""

import json
from typing import Any

import pytest

from gates.roofline import GraphedFacts, checks, copy_bytes, moved_bytes
from qualify.domain import Calibrated
from qualify.pacing import Paced
from qualify.subject import Subject
from qualify.timed import Span, TimedFacts
from qualify.verdict import Verdict
from tests.gates.beds import Bed, Measured, opencl, script
from tests.gates.build import LIMITS, buffer, check, not_held, series_ref, subject, verdict

Closed = dict[str, bool | None]
#: y = a + b over 100 million float32: 1.2 GB a pass, on a board with a megabyte of cache.
N = 100_000_000
PASSED = tuple(buffer(name, kind, N) for name, kind in zip("yab", ("output", "input", "input"), strict=True))
ABOUT = subject(arguments=PASSED, limits=LIMITS.model_copy(update={"cache_bytes": 10**6}))
COPY = copy_bytes(ABOUT) or 0
#: 200 GB/s read and written by the best copy.
COPIES = [2 * COPY // 200 + late for late in range(24)]
LAUNCHES = [stamp for n in range(100) for stamp in (1000 + 2000 * n, 2800 + 2000 * n)]
BOARD = Calibrated(calibration=("run-1",), driver="d", copy_bytes_per_s=10**11, launch_ns=500)


def facts(fastest_ns: int, median_ns: int | None = None, **changes: Any) -> GraphedFacts:
    """A segment of three passes of each arm; copies were measured here."""
    span = Span(fastest_ns=fastest_ns, median_ns=median_ns or fastest_ns)
    fields: dict[str, Any] = {
        "graphs": False,
        "passes": 3,
        "candidate": span,
        "incumbent": Span(fastest_ns=10**9, median_ns=10**9),
    }
    fields |= {"copy_bytes": COPY, "copies": series_ref("copies", COPIES), "launches": series_ref("launches", LAUNCHES)}
    return GraphedFacts(**{**fields, **changes})


def roofs(found: GraphedFacts, about: Subject = ABOUT, **settings: Any) -> Verdict:
    """The verdict; where a board is cited nothing was copied."""
    if "board" in settings:
        found = found.model_copy(update=dict.fromkeys(("copy_bytes", "copies", "launches")))
    series = {name: values for name, values in (("copies", COPIES), ("launches", LAUNCHES)) if getattr(found, name)}
    return verdict("roofline", about, found, series, settings)


def notes(found: Verdict) -> dict[str, str]:
    return {note.name: note.got for note in found.notes}


def test_a_segment_at_the_copy_ceiling_passes_and_memory_binds() -> None:
    found = roofs(facts(18_000_000, 20_000_000))
    assert found.outcome == "pass"
    assert {each.name for each in found.checks} == checks(ABOUT)
    assert check(found, "ceiling").got == f"{200 * 10**9} bytes a second, measured by copies of {COPY} bytes"
    assert notes(found) == {
        "binds": "90 % of the roof of memory",
        "achieved": f"{180 * 10**9} bytes a second, 90 % of a copy",
        "operations_roof": "unknown",
        "launch": "1998 ns, clock in steps of 1800 ns",
    }


@pytest.mark.parametrize(
    ("found", "closed"),
    [
        (facts(8_997_500), {}),  # Three times 1.2 GB less a megabyte, at twice the ceiling.
        (facts(8_997_499), {"memory_floor": None}),
        (facts(18_000_000, incumbent=Span(fastest_ns=1, median_ns=1)), {"incumbent_floor": None}),
        (facts(18_000_000, passes=None), {"memory_floor": None, "incumbent_floor": None}),
        (facts(18_000_000, candidate=None), {"memory_floor": None}),
        (facts(0, 1), {"facts": None}),
        (facts(2, 1), {"facts": None}),
        (facts(18_000_000, copy_bytes=COPY - 1), {"ceiling": None, "memory_floor": None, "incumbent_floor": None}),
        (
            facts(18_000_000, copy_bytes=None, copies=None, launches=None),
            {"ceiling": None, "memory_floor": None, "incumbent_floor": None},
        ),
    ],
)
def test_faster_than_copies_of_just_now_and_the_unknown_prove_nothing(found: GraphedFacts, closed: Closed) -> None:
    assert not_held(roofs(found)) == closed


def test_over_the_copy_ceiling_is_a_finding() -> None:
    found = roofs(facts(12_000_000, 15_000_000))
    assert found.outcome == "pass"
    assert notes(found)["over_ceiling"] == "120 %"
    assert "over_ceiling" not in notes(roofs(facts(12_000_000, 18_000_000)))


def test_a_ceiling_that_is_cited_counts_and_a_stated_peak_before_twice_the_ceiling() -> None:
    cited = facts(18_000_000)
    assert check(roofs(cited, board=BOARD), "ceiling").got == f"{10**11} bytes a second, from run-1"
    assert not_held(roofs(cited, board=BOARD)) == {}
    quick = cited.model_copy(update={"candidate": Span(fastest_ns=17_994_999, median_ns=18_000_000)})
    assert not_held(roofs(quick, board=BOARD)) == {"memory_floor": False}
    stated = BOARD.model_copy(update={"peak_bytes_per_s": 11 * 10**10})
    assert not_held(roofs(cited, board=stated)) == {"memory_floor": False}


def test_copies_beside_a_cited_ceiling_are_no_measurement() -> None:
    series = {"copies": COPIES, "launches": LAUNCHES}
    assert not_held(verdict("roofline", ABOUT, facts(18_000_000), series, {"board": BOARD})) == {"facts": None}


def test_what_the_cache_holds_has_no_floor() -> None:
    large = ABOUT.model_copy(update={"limits": LIMITS.model_copy(update={"cache_bytes": 4 * 10**9})})
    found = roofs(facts(1, copy_bytes=copy_bytes(large)), large)
    assert check(found, "memory_floor").want.startswith("at least 0 ns for 0 bytes")
    unknown = ABOUT.model_copy(update={"limits": LIMITS.model_copy(update={"cache_bytes": None})})
    assert not_held(roofs(facts(18_000_000), unknown))["memory_floor"] is None


def test_operations_count_where_contract_and_board_state_them() -> None:
    about = ABOUT.model_copy(update={"operations": N})
    peak = BOARD.model_copy(update={"peak_operations_per_s": 10**10})
    assert not_held(roofs(facts(30_000_000), about, board=peak)) == {}
    assert not_held(roofs(facts(29_999_999), about, board=peak)) == {"operations_floor": False}
    assert notes(roofs(facts(30_000_000, 40_000_000), about, board=peak))["binds"] == "90 % of the roof of memory"
    assert notes(roofs(facts(30_000_000), about, board=BOARD))["operations_roof"] == "unknown"


def test_launches_in_a_row_are_no_roof_of_graphs() -> None:
    small = ABOUT.model_copy(update={"arguments": (buffer("y", "output", 100), buffer("a", "input", 100))})
    assert notes(roofs(facts(6_000, 6_500), small))["binds"] == "92 % of the roof of launches"
    found = notes(roofs(facts(6_000, 6_500, graphs=True), small))
    assert found["binds"] == "0 % of the roof of memory"
    assert found["launch"] == notes(roofs(facts(6_000, 6_500), small))["launch"]


def test_a_unit_of_several_passes_is_a_graph_where_there_are_graphs(simulated: Bed, pocl: Bed) -> None:
    def graphs(bed: Bed, text: bytes, passes: int) -> bool:
        facts = measured(bed, bed.subject(text, n=1000), passes).measurement.facts
        return GraphedFacts.model_validate_json(json.dumps(facts)).graphs

    assert graphs(simulated, script(), 3)
    assert not graphs(simulated, script(), 1)
    assert not graphs(pocl, opencl(), 3)


def test_compulsory_bytes_are_each_input_and_output_once_unless_the_cohort_says() -> None:
    passed = (buffer("y", "inout", 10), buffer("a", "input", 10), buffer("s", "scratch", 10, init="poison"))
    assert moved_bytes(subject(arguments=passed)) == 4 * 30
    assert moved_bytes(subject(arguments=passed, moved_bytes=7)) == 7


# Through measuring workers -------------------------------------------------------------------------------------------


def measured(bed: Bed, about: Subject, passes: int = 1, **settings: Any) -> Measured:
    span = Span(fastest_ns=1_000_000, median_ns=1_100_000)
    pace = Paced(passes=passes, units=3, flush_bytes=0, more_bytes=None)
    timed = TimedFacts(flush_bytes=0, pace=pace, candidate=span, incumbent=span)
    return bed.judge("roofline", about, needed={"timing": timed}, **settings)


@pytest.mark.parametrize("runtime", ["simulated", "pocl"])
def test_copies_are_measured_where_none_are_cited(runtime: str, request: pytest.FixtureRequest) -> None:
    bed: Bed = request.getfixturevalue(runtime)
    about = bed.subject(script(), n=1000)
    found = measured(bed, about)
    assert not not_held(found.verdict)
    assert len(found.values("copies")) == 24
    assert notes(found.verdict)["binds"].endswith("of the roof of launches")
    cited = measured(bed, about, board=BOARD)
    assert not cited.series
    assert not not_held(cited.verdict)


def test_a_control_measures_its_copies_whatever_is_cited(simulated: Bed) -> None:
    about = simulated.subject(script(), n=1000, role="control")
    assert set(measured(simulated, about, board=BOARD).series) == {"copies", "launches"}
