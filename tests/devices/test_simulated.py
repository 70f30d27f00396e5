"""What scripts do on the virtual board: each planted kernel misbehaves as it is called, and the honest one does not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from qualify.arena import layout
from qualify.bench import Rig
from qualify.sessions import MeasuringSession
from qualify.steps import Capture, Census, Contend, Equal, Fill, Replay, Unwritten
from qualify.workers.virtual import Entry, Script
from tests.devices.beds import (
    POISON,
    SETS,
    SLOTS,
    TAKEN,
    arena,
    do,
    inputs,
    launch,
    load,
    normal,
    read,
    refusal,
    run,
    segment,
    timed,
)
from tests.rigs import N

PASS_NS = 100_000
SCRIPT = Script(
    entries={
        "add": Entry(does="add"),
        "steady": Entry(does="add", noise_ppm=0),
        "drifting": Entry(does="add", noise_ppm=0, drift_ppm_per_s=50_000_000),
        "copy": Entry(does="copy"),
        "nothing": Entry(does="nothing"),
        "zeros": Entry(does="zeros"),
        "constant": Entry(does="constant"),
        "reads_neighbour": Entry(does="reads_neighbour"),
        "stateful": Entry(does="stateful", after=2),
        "input_changer": Entry(does="input_changer"),
        "memo": Entry(does="memo_by_pointer"),
        "superbatch": Entry(does="superbatch", noise_ppm=0),
        "detector": Entry(does="poison_detector", noise_ppm=0),
        "refusing": Entry(does="add", fault="refuse", after=1),
        "no_buffer": Entry(does="add", inputs=(1, 3)),
        "crowded": Entry(does="crowded"),
        "twin": Entry(does="twin"),
        "lost": Entry(does="add", captured="nothing"),
        "elsewhere": Entry(does="add", captured="elsewhere"),
        "idle": Entry(does="add", captured="idle"),
        "frozen": Entry(does="add", captured="answer"),
        "small": Entry(does="add", block_threads=99),
    }
)


@pytest.fixture(scope="module")
def session() -> Iterator[MeasuringSession]:
    with Rig.open("simulated-1.0") as rig, rig.measuring() as opened:
        load(opened, SCRIPT.canonical(), *SCRIPT.entries)
        do(opened, arena(layout(TAKEN, SETS)))
        yield opened


@pytest.fixture(autouse=True)
def filled(session: MeasuringSession) -> None:
    do(session, *inputs(), *(Fill(buffer=f"y.{number}", recipe=POISON) for number in range(SETS)))


def floats(data: bytes) -> list[float]:
    return [float(value) for value in np.frombuffer(data, dtype=np.float32)]


def answers(session: MeasuringSession, symbol: str, number: int = 0) -> tuple[list[float], list[float], list[float]]:
    """What a launch leaves in y and in a, and the right y."""
    a, b = read(session, f"a.{number}", f"b.{number}")
    do(session, run(symbol, number))
    y, after = read(session, f"y.{number}", f"a.{number}")
    return floats(y), floats(after), (np.frombuffer(a, np.float32) + np.frombuffer(b, np.float32)).tolist()


def units_of(session: MeasuringSession, symbol: str, *, poisoned: bool = True, seed: str = "5" * 16) -> list[int]:
    step = segment((0, 1, 2), (3, 4, 5), launches=(launch(symbol),)).model_copy(update={"seed": seed})
    stamps = timed(session, step if poisoned else step.model_copy(update={"poisoned": ()}))
    return [end - start for start, end in pairwise((stamps.start_ns, *stamps.unit_end_ns))]


@pytest.mark.parametrize("symbol", ["add", "steady", "drifting", "superbatch", "detector"])
def test_an_honest_answer_is_the_sum(symbol: str, session: MeasuringSession) -> None:
    y, _, right = answers(session, symbol)
    assert y == right


def test_wrong_answers_are_wrong_as_they_are_called(session: MeasuringSession) -> None:
    a = floats(read(session, "a.0")[0])
    assert answers(session, "copy")[0] == a
    assert answers(session, "zeros")[0] == [0.0] * N
    assert answers(session, "constant")[0] == [1.0] * N
    do(session, Fill(buffer="y.0", recipe=POISON), run("nothing"))
    assert do(session, Unwritten(buffer="y.0", poison=POISON)) == (Equal(elements=N, first_index=0),)


def test_bytes_behind_the_input_decide_the_first_element_only(session: MeasuringSession) -> None:
    y, _, right = answers(session, "reads_neighbour")
    assert y[0] != right[0]
    assert y[1:] == right[1:]


def test_a_stateful_kernel_is_right_at_first(session: MeasuringSession) -> None:
    seen = [answers(session, "stateful") for _ in range(4)]
    assert [y == right for y, _, right in seen] == [True, True, False, False]


def test_an_input_changer_answers_right_and_changes_its_input(session: MeasuringSession) -> None:
    before = floats(read(session, "a.0")[0])
    y, after, right = answers(session, "input_changer")
    assert y == right
    assert [at for at, (one, other) in enumerate(zip(before, after, strict=True)) if one != other] == [0]


def test_a_memo_answers_what_it_once_wrote_to_that_address(session: MeasuringSession) -> None:
    first, _, right = answers(session, "memo")
    assert first == right
    do(session, Fill(buffer="a.0", recipe=normal(99)))
    second, _, changed = answers(session, "memo")
    assert second == right != changed
    elsewhere, _, right = answers(session, "memo", 1)
    assert elsewhere == right


def test_a_superbatch_is_fast_in_all_units_but_one_and_slower_in_total(session: MeasuringSession) -> None:
    honest, batch = units_of(session, "steady"), units_of(session, "superbatch")
    assert honest == [PASS_NS] * 3
    assert sorted(batch)[1] * 100 < PASS_NS
    assert sum(batch) > sum(honest)


def test_a_detector_is_fast_only_where_nothing_was_poisoned(session: MeasuringSession) -> None:
    assert units_of(session, "detector") == [PASS_NS] * 3
    assert units_of(session, "detector", poisoned=False) == [PASS_NS // 10] * 3


def test_noise_scatters_by_its_parts_per_million_and_drift_rises(session: MeasuringSession) -> None:
    units = [unit for seed in range(40) for unit in units_of(session, "add", seed=f"{seed:016x}")]
    assert len(set(units)) > 50
    deviation = np.std(units) / PASS_NS * 1e6
    assert 100 < deviation < 300
    drifting = units_of(session, "drifting")
    assert drifting == sorted(drifting)
    assert drifting[0] < drifting[-1]


@pytest.mark.parametrize(
    ("symbol", "kernels", "at_capture", "in_replay"),
    [
        ("add", 1, False, True),
        ("lost", 0, False, False),
        ("elsewhere", 0, True, False),
        ("idle", 1, False, False),
        ("frozen", 1, True, False),
    ],
)
def test_a_graph_holds_what_its_script_says(
    session: MeasuringSession, symbol: str, kernels: int, at_capture: bool, in_replay: bool
) -> None:
    """Whether y is right after capturing, and after a replay on poison and other inputs."""
    seen: list[bool] = []
    for step in (Capture(arm="candidate", launches=(launch(symbol),), slots=SLOTS), Replay(arm="candidate")):
        do(session, Fill(buffer="y.0", recipe=POISON), Fill(buffer="a.0", recipe=normal(len(seen))))
        (record,) = do(session, step)
        assert not isinstance(record, Census) or record == Census(kernels=kernels, memsets=0, others=0)
        y, a, b = (np.frombuffer(data, np.float32) for data in read(session, "y.0", "a.0", "b.0"))
        seen.append(y.tobytes() == (a + b).tobytes())
    assert seen == [at_capture, in_replay]


@pytest.mark.parametrize(
    ("symbol", "alone", "crowd", "twins"),
    [("add", True, True, True), ("crowded", True, False, False), ("twin", True, True, False)],
)
def test_some_kernels_are_wrong_beside_others_only(
    session: MeasuringSession, symbol: str, alone: bool, crowd: bool, twins: bool
) -> None:
    def right(other: int | None) -> bool:
        do(session, Contend(arm="candidate", launches=(launch(symbol),), slots=SLOTS, beside=other))
        y, a, b = (np.frombuffer(data, np.float32) for data in read(session, "y.0", "a.0", "b.0"))
        return y.tobytes() == (a + b).tobytes()

    y, _, right_y = answers(session, symbol)
    assert (y == right_y, right(None), right(1)) == (alone, crowd, twins)


def test_a_script_refuses_from_the_launch_that_it_names(session: MeasuringSession) -> None:
    do(session, run("refusing"))
    assert refusal(session, run("refusing")) == "the script refuses this launch"
    assert "no buffer at position 3" in refusal(session, run("no_buffer"))
    assert "100 threads in a block of at most 99" in refusal(session, run("small"))
