"""Steps composed from a subject, and the series of a session read again."""

import pytest

from qualify import program, readings
from qualify.contract import Argument, Timing
from qualify.program import Pace
from qualify.steps import Poison, Zeros
from tests.gates.build import LIMITS, arguments, arm, buffer, kernel, subject
from tests.gates.trials import Session


@pytest.mark.parametrize(
    ("pass_ns", "passes", "units"),
    [
        (2_000_000, 1, 3),
        (333_334, 1, 3),
        (333_333, 1, 4),
        (50_000, 1, 20),
        (49_999, 2, 11),
        (1_000, 50, 20),
        (1, 50_000, 20),
    ],
)
def test_a_unit_has_fifty_microseconds_and_a_segment_a_millisecond(pass_ns: int, passes: int, units: int) -> None:
    assert (program.passes_of_a_unit(pass_ns), program.units_of_a_segment(pass_ns)) == (passes, units)
    assert passes * pass_ns >= program.UNIT_NS
    assert passes * pass_ns * units >= program.SEGMENT_NS


def test_a_flush_is_twice_the_cache_and_a_hot_cell_has_none() -> None:
    large = LIMITS.model_copy(update={"cache_bytes": 480 << 20})
    unknown = LIMITS.model_copy(update={"cache_bytes": None})
    assert program.flush_bytes(subject("cuda-13.2", limits=large)) == 960 << 20
    assert program.flush_bytes(subject("cuda-13.2", limits=unknown)) is None
    assert program.flush_bytes(subject("pocl-3.0", limits=large)) == 128 << 20
    assert program.flush_bytes(subject("pocl-3.0", limits=unknown)) == 128 << 20
    assert program.flush_bytes(subject(timing=Timing(cache="hot"))) == 0


def test_scalars_are_little_endian_bytes_and_buffers_names() -> None:
    scalars = [("int32", "-2", "feffffff"), ("float32", "1/2", "0000003f"), ("int64", "7", "0700000000000000")]
    passed = tuple(
        Argument(name=f"s{at}", kind="scalar", dtype=dtype, value=value) for at, (dtype, value, _) in enumerate(scalars)
    )
    slots = program.slots(subject(arguments=(*arguments()[:1], *passed)))
    assert [slot.buffer for slot in slots] == ["y", None, None, None]
    assert [slot.value for slot in slots] == [None, *(spelled for _, _, spelled in scalars)]


def test_sets_have_inputs_of_their_own_and_constants_in_common() -> None:
    about = subject("cuda-13.2", arguments=(*arguments(), buffer("taps", "constant", 16)))
    fills = [
        {fill.buffer.partition(".")[0]: fill.recipe for fill in program.values(about, "ordinary", seed, number)}
        for seed, number in ((program.set_seed("12" * 8, 0), 0), (program.set_seed("12" * 8, 1), 1), ("34" * 8, 0))
    ]
    assert len({str(each["a"]) for each in fills}) == 3
    assert [each["taps"] == fills[0]["taps"] for each in fills] == [True, True, False]
    assert fills[0]["taps"] != fills[0]["a"]
    assert [slot.symbol for slot in program.slots(about)] == [None, None, None, None, "taps"]


def test_what_is_kept_what_is_filled_and_what_is_poisoned() -> None:
    passed = (
        buffer("y", "output"),
        buffer("x", "inout"),
        buffer("a", "input"),
        buffer("s", "scratch", init="poison"),
        buffer("z", "scratch", init="zero-at-load"),
        buffer("e", "output", 0),
    )
    about = subject(arguments=passed)
    assert [each.name for each in program.outputs(about)] == ["y", "x"]
    assert [each.name for each in program.kept(about)] == ["a", "z"]
    filled = {fill.buffer: fill.recipe for fill in program.values(about, "ordinary", "ab" * 8, 2)}
    assert list(filled) == ["a.2", "z.2", "x.2"]
    assert isinstance(filled["z.2"], Zeros)
    assert [fill.buffer for fill in program.values(about, "ordinary", "ab" * 8, 2, again=True)] == ["x.2"]
    poisons = [fill.recipe for fill in program.poison(about, "ab" * 8, complement=True)]
    assert [type(each) for each in poisons] == [Poison, Poison]
    assert all(isinstance(each, Poison) and each.complement for each in poisons)


@pytest.mark.parametrize(
    ("toolkit", "passes", "launches", "graph"),
    [
        ("cuda-13.2", 1, (1, 1), False),
        ("cuda-13.2", 2, (1, 1), True),
        ("cuda-13.2", 1, (5, 5), False),
        ("cuda-13.2", 1, (6, 1), True),
        ("cuda-13.2", 1, (1, 6), True),
        ("pocl-3.0", 2, (6, 6), False),
    ],
)
def test_units_of_both_arms_are_graphs_where_a_queue_would_not_hold_either(
    toolkit: str, passes: int, launches: tuple[int, int], graph: bool
) -> None:
    """40 sets: 5 launches and an event each are 240 calls, 6 are 280 of the 256 that are held."""
    arms = {
        name: arm(name, *[kernel()] * count) for name, count in zip(("candidate", "incumbent"), launches, strict=True)
    }
    about, pace = subject(toolkit, **arms), Pace(passes, 20, 0)
    for which in ("candidate", "incumbent"):
        assert program.segment(about, which, "ab" * 8, pace).graph is graph
        assert program.warm_up(about, which, "ab" * 8, pace).graph is graph


def test_segments_use_every_set_once_in_another_secret_order_each() -> None:
    pace = Pace(passes=2, units=3, flush_bytes=0)
    steps = program.segments(subject(), ("candidate", "incumbent"), "ab" * 8, "cd" * 8, pace=pace)
    segments = [step for step in steps if step.do == "segment"]
    orders = [(*segment.lead_in, *segment.timed) for segment in segments]
    assert [segment.arm for segment in segments] == ["candidate", "incumbent"]
    assert [sorted(order) for order in orders] == [list(range(12))] * 2
    assert orders[0] != orders[1]
    assert segments[0].seed != segments[1].seed


def test_series_give_the_attempts_again() -> None:
    session = Session(windows=5)
    series = readings.as_series(session.attempts)
    pace = Pace(passes=1, units=session.units, flush_bytes=0)
    assert readings.from_series(series, pace, 1) == tuple(session.attempts)
    with pytest.raises(ValueError, match="stamps"):
        readings.from_series({**series, "stamps": series["stamps"][1:]}, pace, 1)


def test_a_warm_up_ends_when_flat_or_after_two_hundred() -> None:
    assert not readings.warm([100] * 19)
    assert readings.warm([100] * 20)
    assert not readings.warm([100] * 10 + [103] * 10)
    assert readings.warm([100] * 10 + [102] * 10)
    assert readings.warm([1000 + 10 * at for at in range(200)])
    assert not readings.warm([1000 + 10 * at for at in range(199)])


def test_a_probe_counts_totals_so_that_one_launch_cannot_hide_its_time() -> None:
    assert readings.pass_ns([300, 330, 360, 390]) == 110
    with pytest.raises(ValueError, match="positive"):
        readings.pass_ns([])
