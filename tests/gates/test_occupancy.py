"""Gate occupancy: what fits on a compute unit and fills enough of them, and the nearest things that do not."""

from typing import Any

import pytest

from gates.occupancy import Footprint, OccupancyFacts
from qualify.contract import Launch
from qualify.domain import Domain, Limits
from qualify.targets import limits as target_limits
from qualify.verdict import Verdict
from tests.gates.beds import Bed, opencl
from tests.gates.build import LIMITS, arm, check, kernel, not_held, subject, verdict

FITS = Footprint(symbol="add", block_threads=100, shared_bytes=65_536)


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
        (facts(FITS.model_copy(update={"shared_bytes": 65_537})), {"local_memory": False}),
        (facts(FITS.model_copy(update={"shared_bytes": None})), {"local_memory": None}),
        (facts(FITS.model_copy(update={"shared_bytes": -1})), {"local_memory": False}),
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


# CUDA ----------------------------------------------------------------------------------------------------------------

TILE = Footprint(symbol="tile", block_threads=1024, shared_bytes=0, registers=64, barriers=1)


def tile(block: int = 256, grid: int = 64, **more: Any) -> Launch:
    return kernel("tile", grid=grid, block=block, **more)


def on(
    arch: str, launched: Launch, settings: Any = None, units: int | None = None, beside: int = 64, **changes: Any
) -> Verdict:
    """The verdict on one launch whose footprint differs from TILE by `changes`, built for its own target."""
    target = changes.pop("target", arch)
    about = subject(
        "cuda-13.2",
        domain=Domain(toolkit="cuda-13.2", arch=arch),
        candidate=arm("wide", launched),
        incumbent=arm("plain", tile()),
        limits=target_limits(arch, (13, 2)).model_copy(update={"compute_units": units}),
    )
    other = TILE.model_copy(update={"registers": beside})
    found = OccupancyFacts(kernels=(TILE.model_copy(update=changes),), incumbent=(other,), target=target)
    return verdict("occupancy", about, found, settings=settings)


def note(found: Verdict, name: str) -> str:
    (only,) = [each.got for each in found.notes if each.name == name]
    return only


@pytest.mark.parametrize("arch", ["75", "80", "86", "87", "89", "90", "100", "103", "110", "120", "121"])
def test_an_ordinary_kernel_passes_on_every_target_without_its_board(arch: str) -> None:
    found = on(f"sm_{arch}", tile(), target=f"sm_{arch}a" if int(arch) >= 90 else f"sm_{arch}")
    assert (found.outcome, [each.name for each in found.checks]) == ("pass", ["resident"])
    assert note(found, "resident_blocks") == "tile 4 by registers"


@pytest.mark.parametrize(
    ("arch", "launched", "changes", "says"),
    [
        ("sm_120", tile(shared_bytes=197_632), {}, "96256 bytes of shared memory too many"),
        ("sm_86", tile(shared_bytes=197_000), {"shared_bytes": 632}, "96256 bytes of shared memory too many"),
        ("sm_90", tile(512), {"registers": 254}, "65536 registers too many"),
        ("sm_90", tile(512), {"registers": 156}, "16384 registers too many"),
        ("sm_90", tile(256), {"block_threads": 255}, "256 threads of 255"),
        ("sm_86", tile(cluster=(2, 1, 1)), {}, "a cluster of 2 blocks of at most 0"),
        ("sm_90", tile(cluster=(17, 1, 1)), {}, "a cluster of 17 blocks of at most 16"),
    ],
)
def test_a_block_that_fits_nowhere_is_told_by_how_much(arch: str, launched: Launch, changes: Any, says: str) -> None:
    resident = check(on(arch, launched, **changes), "resident")
    assert resident.holds is False
    assert says in (resident.got or "")


@pytest.mark.parametrize(
    ("arch", "launched", "changes"),
    [
        ("sm_90", tile(shared_bytes=197_632), {}),
        ("sm_90", tile(256), {"registers": 254}),
        ("sm_90", tile(cluster=(16, 1, 1)), {}),
        ("sm_90", tile(), {"barriers": None}),
    ],
)
def test_the_nearest_block_that_fits(arch: str, launched: Launch, changes: Any) -> None:
    assert on(arch, launched, **changes).outcome == "pass"


@pytest.mark.parametrize(
    ("arch", "changes"),
    [
        ("sm_91", {}),
        ("sm_90", {"target": "sm_80"}),
        ("sm_90", {"target": None}),
        ("sm_90", {"registers": None}),
        ("sm_90", {"registers": 0}),
        ("sm_90", {"shared_bytes": None}),
        ("sm_90", {"block_threads": None}),
    ],
)
def test_a_target_or_a_figure_that_nobody_knows_is_unknown(arch: str, changes: Any) -> None:
    assert not_held(on(arch, tile(), **changes)) == {"resident": None}


@pytest.mark.parametrize(
    ("arch", "barriers", "blocks"),
    [
        ("sm_90", 16, "4 by barriers"),
        ("sm_90", 1, "8 by warps"),
        ("sm_120", 16, "1 to 2 by barriers"),
        ("sm_121", 16, "1 by barriers"),
        ("sm_86", 16, "6 by warps"),
        ("sm_90", None, "4 to 8 by warps"),
    ],
)
def test_barriers_count_from_hopper_on(arch: str, barriers: int | None, blocks: str) -> None:
    assert note(on(arch, tile(), registers=24, barriers=barriers), "resident_blocks") == f"tile {blocks}"


def test_a_register_that_costs_a_block_is_told_and_one_that_does_not_is_not() -> None:
    assert note(on("sm_90", tile(), registers=65), "lost_blocks") == "4 -> 3"
    assert not [each for each in on("sm_90", tile(), registers=64, beside=57).notes if each.name == "lost_blocks"]


@pytest.mark.parametrize(
    ("arch", "grid", "units", "changes", "state"),
    [
        ("sm_90", 528, 132, {}, True),
        ("sm_90", 529, 132, {}, False),
        ("sm_90", 1, None, {}, None),
        ("sm_90", 528, 132, {"barriers": None}, True),
        ("sm_120", 320, 10, {"shared_bytes": 0, "registers": 10}, None),  # 24 or 32 blocks of 32 threads, by source.
        ("sm_120", 240, 10, {"shared_bytes": 0, "registers": 10}, True),
        ("sm_120", 321, 10, {"shared_bytes": 0, "registers": 10}, False),
    ],
)
def test_a_cooperative_grid_is_resident_as_a_whole(
    arch: str, grid: int, units: int | None, changes: Any, state: bool | None
) -> None:
    block = 32 if arch == "sm_120" else 256
    found = on(arch, tile(block, grid, cooperative=True), units=units, **changes)
    assert check(found, "cooperative").holds is state


def test_sources_that_differ_are_shown() -> None:
    found = on("sm_120", tile(32), registers=10, barriers=0)
    assert found.outcome == "pass"
    assert note(found, "resident_blocks") == "tile 24 to 32 by blocks"
    assert [f"{n} blocks by" in note(found, "sources_differ") for n in (24, 32)] == [True, True]
    assert not [each for each in on("sm_121", tile(32), registers=10).notes if each.name == "sources_differ"]


def test_clusters_bound_a_cooperative_grid_only_from_above() -> None:
    clustered = tile(grid=528, cooperative=True, cluster=(2, 1, 1))
    assert check(on("sm_90", clustered, units=132), "cooperative").holds is None
    assert check(on("sm_90", clustered, units=131), "cooperative").holds is False


def test_a_fill_is_asked_for_by_the_settings_only() -> None:
    asked = {"min_fill": "1"}
    assert not_held(on("sm_90", tile(), asked)) == {"fill": None}
    assert not_held(on("sm_90", tile(), asked, units=65)) == {"fill": False}
    assert not_held(on("sm_90", tile(), asked, units=64)) == {}
    assert note(on("sm_90", tile(), units=8), "waves") == "tile 2"
