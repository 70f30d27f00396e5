"""The one contract of devices, over every device that is here, through the worker and its channel.

What the simulated device gets wrong, OpenCL shows the same day.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from qualify.arena import layout
from qualify.bench import Rig
from qualify.contract import Launch, Memset
from qualify.elements import DTYPES
from qualify.fill import generate
from qualify.fnv import fnv1a64
from qualify.sessions import MeasuringSession
from qualify.steps import (
    Answer,
    Capture,
    Census,
    Contend,
    Contended,
    Damage,
    Digest,
    Digests,
    Equal,
    Fill,
    Poison,
    Query,
    Record,
    Replay,
    Run,
    Scrub,
    Slot,
    Step,
    Unwritten,
    Zeros,
    Zones,
)
from tests.devices.beds import (
    POISON,
    SETS,
    SLOTS,
    TAKEN,
    arena,
    bed,
    damage,
    do,
    inputs,
    launch,
    normal,
    places,
    read,
    refusal,
    run,
    segment,
    timed,
)
from tests.rigs import N


@pytest.fixture(scope="module")
def session(rig: Rig) -> Iterator[MeasuringSession]:
    """One worker for the tests that leave the zones as they are."""
    with bed(rig, places()) as opened:
        yield opened


# Values, poison, digests ---------------------------------------------------------------------------------------------


def test_unwritten_counts_what_a_launch_left(session: MeasuringSession) -> None:
    counted: list[Record] = []
    for symbol in ("add", "tail"):
        do(session, Fill(buffer="y.0", recipe=POISON), run(symbol))
        counted += do(session, Unwritten(buffer="y.0", poison=POISON))
    left = N % 7
    assert counted == [Equal(elements=0, first_index=None), Equal(elements=left, first_index=N - left)]


def test_unwritten_compares_two_sets_that_had_complementary_poison(session: MeasuringSession) -> None:
    """Of bytes one in 256 equals its poison by chance; of those, one in 256 does so in the other set."""
    left, turned = N % 7, POISON.model_copy(update={"complement": True})
    step = Unwritten(buffer="y.0", poison=POISON, beside="y.1")
    for second, symbols, wanted in (
        (turned, ("tail", "tail"), left),
        (turned, ("tail", "add"), 0),
        (turned, ("add", "tail"), 0),
        (POISON, ("tail", "tail"), 0),
    ):
        do(session, Fill(buffer="y.0", recipe=POISON), Fill(buffer="y.1", recipe=second))
        do(session, *(run(symbol, number) for number, symbol in enumerate(symbols)))
        assert do(session, step) == (Equal(elements=wanted, first_index=N - left if wanted else None),)


def test_digests_equal_serial_fnv_at_every_length(session: MeasuringSession) -> None:
    buffers = [f"bytes_{size}.0" for size in range(301)] + ["large.0", "empty.0"]
    do(session, *(Fill(buffer=buffer, recipe=normal(7, "uint8")) for buffer in buffers if buffer != "empty.0"))
    (record,) = do(session, Digest(buffers=tuple(buffers)))
    assert isinstance(record, Digests)
    assert record.values == tuple(fnv1a64(data) for data in read(session, *buffers))
    assert record.values[-1] == record.values[0] == fnv1a64(b"")


@pytest.mark.parametrize("name", ["apart_2", "apart_3", "apart_4"])
def test_elements_that_lie_apart_take_every_step(session: MeasuringSession, name: str) -> None:
    (place,) = (place for place in places().placements if place.buffer == f"{name}.0")
    assert len(place.axes) == int(name[-1]) - 1
    elements = place.size_bytes // DTYPES[place.dtype].size_bytes
    poison = Poison(dtype=place.dtype, seed="9" * 16)
    for recipe in (normal(3, place.dtype), Zeros(), poison):
        do(session, Fill(buffer=place.buffer, recipe=recipe))
        (data,) = read(session, place.buffer)
        assert data == generate(recipe, elements, size_bytes=place.size_bytes)
        digests, equal, zones = do(
            session, Digest(buffers=(place.buffer, "y.0")), Unwritten(buffer=place.buffer, poison=poison), Zones()
        )
        assert isinstance(digests, Digests)
        assert digests.values[0] == fnv1a64(data)
        found = elements if recipe == poison else 0
        assert equal == Equal(elements=found, first_index=0 if found else None)
        assert zones == Damage(bytes=0, first_offset=None)
    other, step = f"{name}.1", Unwritten(buffer=place.buffer, poison=poison, beside=f"{name}.1")
    for second, found in ((poison.model_copy(update={"complement": True}), elements), (poison, 0)):
        do(session, Fill(buffer=other, recipe=second))
        assert do(session, step) == (Equal(elements=found, first_index=0 if found else None),)


def test_an_empty_buffer_takes_every_step(session: MeasuringSession) -> None:
    poison = Poison(dtype="float64", seed="1" * 16)
    fills = (poison, normal(1, "float64"), Zeros())
    do(session, *(Fill(buffer="empty.0", recipe=recipe) for recipe in fills))
    assert do(session, Unwritten(buffer="empty.0", poison=poison)) == (Equal(elements=0, first_index=None),)
    assert read(session, "empty.0") == (b"",)


def test_zeros_and_memsets_fill_a_buffer_to_its_end(session: MeasuringSession) -> None:
    do(session, Fill(buffer="a.7", recipe=Zeros()))
    do(session, Run(arm="candidate", launches=(Memset(memset="y", byte=7),), slots=SLOTS, set=7))
    assert read(session, "a.7", "y.7") == (bytes(4 * N), b"\x07" * 4 * N)
    do(session, *inputs())
    assert damage(session) == Damage(bytes=0, first_offset=None)


# Launches ------------------------------------------------------------------------------------------------------------


def floats(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.frombuffer(data, dtype=np.float32)


def test_a_launch_reads_and_writes_the_set_that_it_names(session: MeasuringSession) -> None:
    do(session, *(Fill(buffer=f"y.{number}", recipe=POISON) for number in range(3)), run("add", 1))
    before, y, after, a, b = read(session, "y.0", "y.1", "y.2", "a.1", "b.1")
    assert before == after == generate(POISON, N)
    assert y == (floats(a) + floats(b)).tobytes()


def test_scrubbing_decides_what_unwritten_shared_memory_holds(session: MeasuringSession) -> None:
    seen: list[bytes] = []
    for seed in ("1" * 16, "2" * 16, "1" * 16):
        do(session, Scrub(seed=seed), run("shared", shared_bytes=400))
        seen += read(session, "y.0")
    assert seen[0] == seen[2]
    assert seen[0] != seen[1]


def test_a_buffer_lies_where_its_placement_says_to_the_byte(session: MeasuringSession, rig: Rig) -> None:
    if rig.domain_arch == "virtual":
        assert refusal(session, run("address")) == "no kernel address is loaded as candidate"
        return
    offsets = {place.buffer: place.offset_bytes for place in places().placements}
    for number in range(SETS):
        do(session, run("address", number))
        (data,) = read(session, f"y.{number}")
        assert int.from_bytes(data[:8], "little") % (1 << 16) == offsets[f"y.{number}"] % (1 << 16)


# Graphs and a second queue -------------------------------------------------------------------------------------------


def captured(*launches: Launch, number: int = 0) -> Capture:
    return Capture(arm="candidate", launches=launches or (launch("add"),), slots=SLOTS, set=number)


def beside(other: int | None, number: int = 0, *launches: Launch) -> Contend:
    return Contend(arm="candidate", launches=launches or (launch("add"),), slots=SLOTS, set=number, beside=other)


REPLAY = Replay(arm="candidate")


def test_a_replay_does_what_was_captured_on_what_is_there_when_it_runs(session: MeasuringSession, rig: Rig) -> None:
    do(session, *inputs(1), Fill(buffer="y.0", recipe=POISON))
    if not rig.domain.has_graphs:
        assert refusal(session, captured()) == "this device has no graphs"
        return
    (census,) = do(session, captured(Memset(memset="y", byte=1), launch("tail")))
    assert census == Census(kernels=1, memsets=1, others=0)
    assert read(session, "y.0") == (generate(POISON, N),)  # Capturing runs nothing.
    for seed in (1, 2):
        do(session, Fill(buffer="a.0", recipe=normal(seed)), Fill(buffer="y.0", recipe=POISON), REPLAY)
        y, a, b = read(session, "y.0", "a.0", "b.0")
        whole = 4 * (N - N % 7)
        assert y == (floats(a) + floats(b)).tobytes()[:whole] + b"\x01" * (4 * N - whole)
    do(session, *inputs(1))


def test_a_graph_stays_on_its_set_until_another_is_captured(session: MeasuringSession, rig: Rig) -> None:
    if not rig.domain.has_graphs:
        assert refusal(session, REPLAY) == "nothing is captured for candidate"
        return
    for number in (1, 2):
        do(session, captured(number=number), *(Fill(buffer=f"y.{n}", recipe=POISON) for n in range(3)), REPLAY)
        written = [data != generate(POISON, N) for data in read(session, "y.0", "y.1", "y.2")]
        assert written == [n == number for n in range(3)]


#: A loaded machine may take a second queue its processor; what the launches do is asked every time.
CONTENTIONS = 20


@pytest.mark.parametrize("other", [None, 1], ids=["neutral-work", "itself"])
def test_launches_beside_a_busy_queue_do_what_they_do_alone(session: MeasuringSession, other: int | None) -> None:
    sets = (0,) if other is None else (0, other)
    for _ in range(CONTENTIONS):
        do(session, *(Fill(buffer=f"y.{number}", recipe=POISON) for number in (0, 1)))
        (record,) = do(session, beside(other))
        assert isinstance(record, Contended)
        for number in sets:
            y, a, b = read(session, f"y.{number}", f"a.{number}", f"b.{number}")
            assert y == (floats(a) + floats(b)).tobytes()
        assert damage(session) == Damage(bytes=0, first_offset=None)
        if record.busy:
            return
    pytest.fail(f"the second queue was not busy in any of {CONTENTIONS} tries")


# Segments ------------------------------------------------------------------------------------------------------------


def test_a_segment_stamps_every_unit_and_digests_every_set(session: MeasuringSession, rig: Rig) -> None:
    do(session, *(run("add", number) for number in range(SETS)))
    (alone,) = do(session, Digest(buffers=tuple(f"y.{number}" for number in range(SETS))))
    flush_bytes = 1 << (31 if rig.domain.runtime == "cuda" else 20)
    stamps = timed(session, segment((3, 0, 5, 1), (2, 6, 4, 7), passes=2, flush_bytes=flush_bytes))
    assert isinstance(alone, Digests)
    assert alone.values == tuple(fnv1a64(data) for data in read(session, *(f"y.{number}" for number in range(SETS))))
    assert stamps.digests == tuple((alone.values[number],) for number in (3, 0, 5, 1, 2, 6, 4, 7))
    assert len(set(stamps.digests)) == SETS
    assert len(stamps.unit_end_ns) == 2
    assert stamps.start_ns < stamps.unit_end_ns[0] < stamps.unit_end_ns[1]
    assert stamps.damage == Damage(bytes=0, first_offset=None)
    assert stamps.host_bound is False  # Reading the neutral memory gives the host the time that it needs.


def test_a_unit_is_one_graph_where_there_are_graphs(session: MeasuringSession, rig: Rig) -> None:
    """Twelve passes a unit: the same bits as in a row, and nothing of it paced by the host."""
    step = segment((3, 0, 5, 1), (2, 6, 4, 7), passes=2, launches=(launch("add"),) * 6)
    row = timed(session, step)
    if not rig.domain.has_graphs:
        assert "this device has no graphs" in refusal(session, step.model_copy(update={"graph": True}))
        return
    graphs = timed(session, step.model_copy(update={"graph": True}))
    assert graphs.digests == row.digests
    assert len(graphs.unit_end_ns) == 2
    assert graphs.host_bound is False


def test_a_segment_poisons_every_output_of_every_set_first(session: MeasuringSession) -> None:
    """Launches that leave the tail: with the answers of earlier launches still there, the digests would be right."""
    do(session, *(run("add", number) for number in range(4)))
    whole = timed(session, segment((0, 1), (2, 3)))
    cut = timed(session, segment((0, 1), (2, 3), launches=(launch("tail"),)))
    assert not set(whole.digests) & set(cut.digests)
    assert len(set(cut.digests)) == 4


def test_a_hot_segment_without_digests_has_a_row_a_set(session: MeasuringSession) -> None:
    step = segment((0,), (1, 2)).model_copy(update={"digested": (), "poisoned": (), "flush_bytes": 0})
    assert timed(session, step).digests == ((), (), ())


# Refusals ------------------------------------------------------------------------------------------------------------

EMPTY_GRID = launch("add").model_copy(update={"grid": (0, 1, 1)})
EMPTY_BLOCK = launch("add").model_copy(update={"block": (1, 0, 1)})
HUGE_BLOCK = launch("add").model_copy(update={"block": (1 << 20, 1, 1)})
TOO_FEW = launch("add").model_copy(update={"arguments": ("y",)})
NO_SUCH = launch("add").model_copy(update={"arguments": ("y", "a", "b", "m")})


APART_SLOTS = (Slot(argument="apart_2", buffer="apart_2"),)


def started(launched: Launch) -> Run:
    return Run(arm="candidate", launches=(launched,), slots=SLOTS)


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (Fill(buffer="x.0", recipe=Zeros()), "no buffer x.0"),
        (Fill(buffer="y", recipe=Zeros()), "no buffer y in"),
        (Fill(buffer="y.0", recipe=normal(0, "float64")), "y.0 holds float32, not float64"),
        (Digest(buffers=("y.0", "y.8")), "no buffer y.8"),
        (Unwritten(buffer="y.0", poison=Poison(dtype="int32", seed="0" * 16)), "y.0 holds float32, not int32"),
        (Unwritten(buffer="y.0", poison=POISON, beside="y.8"), "no buffer y.8"),
        (Unwritten(buffer="y.0", poison=POISON, beside="of_float32.0"), "of_float32.0 is not of y.0's kind"),
        (Unwritten(buffer="y.0", poison=POISON, beside="apart_2.0"), "apart_2.0 is not of y.0's kind"),
        (run("subtract"), "no kernel subtract is loaded as candidate"),
        (run("add", 8), "no buffer y.8"),
        (run("add").model_copy(update={"arm": "incumbent"}), "incumbent is not loaded"),
        (run("add").model_copy(update={"launches": ()}), "candidate launches nothing"),
        (started(EMPTY_GRID), "has an empty side"),
        (started(EMPTY_BLOCK), "has an empty side"),
        (started(HUGE_BLOCK), "add"),
        (started(TOO_FEW), "add"),
        (started(NO_SUCH), "no argument, or two, of the name m"),
        (started(Memset(memset="n")), "memset of n, which is no buffer argument"),
        (segment((0, 1), (1, 2)), "a set is used twice"),
        (segment((0, 1), (2, 3)).model_copy(update={"bystander": 2}), "a set is used twice"),
        (segment((0, 1), (2, 3)).model_copy(update={"bystander": 8}), "no buffer y.8"),
        (started(Memset(memset="apart_2")).model_copy(update={"slots": APART_SLOTS}), "do not lie in a row"),
        (segment((0, 1), (2, 3, 4), passes=2), "no whole units of 2"),
        (segment((0,), (8,)), "no buffer y.8"),
        (segment((0,), ()), "no whole units"),
        (beside(0), "set 0 is used twice at once"),
        (beside(8), "no buffer y.8"),
        (beside(None, 8), "no buffer y.8"),
        (beside(1, 0, launch("subtract")), "no kernel subtract"),
        (Replay(arm="incumbent"), "nothing is captured for incumbent"),
        (Query(what="kernel", arm="candidate", symbol="subtract"), "no kernel subtract"),
        (Query(what="kernel", arm="candidate", symbol="add", launch=launch("copy")), "asks nothing of add"),
        (arena(layout(TAKEN, 1)), "the session's one arena is there already"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else value.do,
)
def test_a_step_that_names_what_is_not_there_is_refused(session: MeasuringSession, step: Step, says: str) -> None:
    assert says in refusal(session, step)
    do(session, run("add"))


@pytest.mark.parametrize("extra", [{"cluster": (2, 1, 1)}, {"cooperative": True}, {"carve_out_percent": 50}])
def test_what_only_cuda_launches_is_refused_elsewhere(
    session: MeasuringSession, rig: Rig, extra: dict[str, object]
) -> None:
    wider = launch("add").model_copy(update={"grid": (12, 1, 1), **extra})
    if rig.domain.runtime != "cuda":
        assert "neither clusters nor cooperative launches" in refusal(session, started(wider))
        return
    do(session, Fill(buffer="y.0", recipe=POISON), started(wider))
    y, a, b = read(session, "y.0", "a.0", "b.0")
    assert y == (floats(a) + floats(b)).tobytes()
    if "cluster" in extra:
        assert "add: CUDA_ERROR" in refusal(session, started(wider.model_copy(update={"grid": (11, 1, 1)})))


# Queries -------------------------------------------------------------------------------------------------------------


def test_a_device_answers_for_itself_and_its_kernels(session: MeasuringSession, rig: Rig) -> None:
    device, kernel = do(session, Query(what="device"), Query(what="kernel", arm="candidate", symbol="add"))
    assert device == Answer(board=rig.board)
    assert isinstance(kernel, Answer)
    assert isinstance(kernel.facts, dict)
    more = ["constant_bytes", "local_bytes", "registers_per_thread"]
    runtime = rig.domain.runtime
    assert sorted(kernel.facts) == sorted(
        ["block_threads", "shared_bytes", *(more if runtime == "cuda" else ["private_bytes"])]
    )
