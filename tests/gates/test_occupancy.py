"""Gate occupancy: what fits on a compute unit and fills enough of them, and the nearest things that do not."""

from typing import Any

import pytest

from gates.occupancy import Footprint, OccupancyFacts
from qualify.contract import Launch
from qualify.domain import Limits
from tests.gates.beds import Bed, opencl
from tests.gates.build import LIMITS, arm, check, kernel, not_held, subject, verdict

FITS = Footprint(symbol="add", block_threads=100, local_bytes=65_536)


def facts(*footprints: Footprint) -> OccupancyFacts:
    return OccupancyFacts(kernels=footprints or (FITS,))


def judged(
    found: OccupancyFacts, *launches: Launch, limits: Limits = LIMITS, **settings: Any
) -> dict[str, bool | None]:
    about = subject(candidate=arm("wide", *launches), limits=limits)
    return not_held(verdict("occupancy", about, found, settings=settings))


def test_a_block_at_both_limits_and_a_grid_at_the_least_fill_pass() -> None:
    assert not judged(facts(), kernel(grid=10), min_fill="10/8")


@pytest.mark.parametrize(
    ("found", "closed"),
    [
        (facts(FITS.model_copy(update={"block_threads": 99})), {"work_group": False}),
        (facts(FITS.model_copy(update={"block_threads": None})), {"work_group": None}),
        (facts(FITS.model_copy(update={"local_bytes": 65_537})), {"local_memory": False}),
        (facts(FITS.model_copy(update={"local_bytes": None})), {"local_memory": None}),
        (facts(FITS.model_copy(update={"local_bytes": -1})), {"local_memory": False}),
        (facts(FITS.model_copy(update={"symbol": "other"})), {"facts": None}),
        (facts(FITS, FITS), {"facts": None}),
    ],
)
def test_the_nearest_footprints_that_do_not_fit(found: OccupancyFacts, closed: dict[str, bool | None]) -> None:
    assert judged(found) == closed


@pytest.mark.parametrize(
    ("launches", "settings", "closed"),
    [
        ((kernel(block=101),), {}, {"work_group": False}),
        ((kernel(shared_bytes=1),), {}, {"local_memory": False}),
        ((kernel(grid=9),), {"min_fill": "10/8"}, {"fill": False}),
        ((kernel(), kernel(grid=1)), {"min_fill": "1"}, {"fill": False}),
    ],
)
def test_the_nearest_launches_that_do_not(launches: tuple[Launch, ...], settings: Any, closed: Any) -> None:
    assert judged(facts(), *launches, **settings) == closed


@pytest.mark.parametrize(("field", "name"), [("shared_bytes", "local_memory"), ("compute_units", "fill")])
def test_a_limit_that_the_target_does_not_state_is_unknown(field: str, name: str) -> None:
    assert judged(facts(), limits=LIMITS.model_copy(update={field: None})) == {name: None}


def test_a_small_grid_is_a_note_where_no_fill_is_asked() -> None:
    found = verdict("occupancy", subject(candidate=arm("wide", kernel(grid=7))), facts())
    assert found.outcome == "pass"
    assert [note.name for note in found.notes] == ["idle_units"]


def test_real_kernels_fit_and_one_with_too_much_local_memory_does_not(pocl: Bed) -> None:
    honest = pocl.judge("occupancy", pocl.subject(opencl(), n=1000, launches=(kernel(grid=16, block=64),)))
    assert honest.verdict.outcome == "pass", honest.verdict
    greedy = opencl("__local float t[1 << 26]; t[i] = a[i]; barrier(CLK_LOCAL_MEM_FENCE); if (i < n) y[i] = t[n - i];")
    found = pocl.judge("occupancy", pocl.subject(greedy, n=1000, launches=(kernel(grid=16, block=64),)))
    assert check(found.verdict, "local_memory").holds is False
