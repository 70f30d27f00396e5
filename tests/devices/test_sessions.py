"""The contract of devices where each test needs a worker of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualify.arena import layout
from qualify.bench import Rig
from qualify.gate import WorkerLost
from qualify.sessions import MeasuringSession
from qualify.steps import Arena, Damage, Load
from tests.devices.beds import (
    COUNT,
    SLOTS,
    TAKEN,
    TIMEOUT_S,
    ZONE_SEED,
    arena,
    bed,
    damage,
    do,
    launch,
    load,
    make_object,
    places,
    read,
    refusal,
    run,
    segment,
    timed,
)
from tests.rigs import N


def test_a_write_one_past_the_end_is_found_where_it_is(rig: Rig) -> None:
    made = layout(TAKEN, 2)
    end = next(place.offset_bytes + place.size_bytes for place in made.placements if place.buffer == "y.1")
    with bed(rig, made, sets=2) as session:
        assert damage(session) == Damage(bytes=0, first_offset=None)
        do(session, run("add", 1))
        assert damage(session) == Damage(bytes=0, first_offset=None)
        do(session, run("beyond", 1))
        found = damage(session)
        assert found == Damage(bytes=4, first_offset=end)
        assert timed(session, segment((0,), (1,))).damage == found
        if rig.domain_arch != "virtual":
            write_before_the_arena(session, made.placements[0].offset_bytes + 1)
            assert damage(session) == Damage(bytes=5, first_offset=-1)


def write_before_the_arena(session: MeasuringSession, distance: int) -> None:
    """The allocation is larger than the arena by what alignment needs; state could be kept there."""
    how_far = COUNT.model_copy(update={"value": distance.to_bytes(4, "little").hex()})
    do(session, run("before").model_copy(update={"slots": (*SLOTS[:3], how_far)}))


def test_what_a_launch_does_to_a_set_that_it_does_not_name_is_damage(rig: Rig) -> None:
    """The bystander's output lies right behind the other's, so that one element past the end is the bystander's."""
    made = layout(TAKEN, 2)
    (output,) = (place for place in made.placements if place.buffer == "y.0")
    end = output.offset_bytes + output.size_bytes
    moved = [
        place.model_copy(update={"offset_bytes": end}) if place.buffer == "y.1" else place for place in made.placements
    ]
    with bed(rig, replace(made, placements=tuple(moved)), sets=2) as session:
        for symbol, poisoned, changed in (("add", True, 0), ("beyond", False, output.size_bytes), ("beyond", True, 4)):
            step = segment((), (0,), launches=(launch(symbol),)).model_copy(update={"bystander": 1})
            found = timed(session, step if poisoned else step.model_copy(update={"poisoned": ()})).damage
            assert found == Damage(bytes=changed, first_offset=end if changed else None)
        assert timed(session, segment((), (0,), launches=(launch("beyond"),))).damage.bytes == 0


def test_bytes_between_rows_are_zones(rig: Rig) -> None:
    slots = (SLOTS[0].model_copy(update={"buffer": "apart_2"}), *SLOTS[1:])
    step = run("beyond").model_copy(update={"slots": slots})
    with bed(rig, places()) as session:
        if rig.domain_arch == "virtual":
            assert "the elements of apart_2.0 do not lie in a row" in refusal(session, step)
            return
        (place,) = (place for place in places().placements if place.buffer == "apart_2.0")
        do(session, step)
        found = damage(session)
        assert found.first_offset == place.offset_bytes + place.run_bytes
        assert found.bytes > (place.axes[0][0] - 1) * (place.axes[0][1] - place.run_bytes) // 2


def test_the_complement_inverts_every_byte_of_the_zones(rig: Rig) -> None:
    """A buffer that nothing filled holds what zones hold."""
    made, found = layout(TAKEN, 2), []
    for complement in (False, True):
        with rig.measuring() as session:
            load(session, make_object(rig), "beyond")
            do(session, arena(made).model_copy(update={"zone_complement": complement}))
            found.append(read(session, "y.0")[0])
            assert damage(session) == Damage(bytes=0, first_offset=None)
            do(session, run("beyond"))
            assert damage(session).bytes
    assert len(found[0]) > 1000
    assert all(one ^ other == 255 for one, other in zip(*found, strict=True))


def test_objects_and_arenas_that_cannot_be_are_refused(rig: Rig) -> None:
    data = make_object(rig)
    with rig.measuring() as session:
        with pytest.raises(WorkerLost, match="refused") as lost:
            load(session, data[:-1] + b"?" if rig.domain_arch == "virtual" else b"no binary", "add")
        assert lost.value.loss.arm == "candidate"
        with pytest.raises(WorkerLost) as lost:
            load(session, data, "add", "subtract")
        assert "subtract" in lost.value.loss.log
        with pytest.raises(WorkerLost) as lost:
            session.load(
                {"candidate": (Load(arm="candidate", object_blake3="0" * 64, symbols=("add",)), data)}, TIMEOUT_S
            )
        assert "that are not object 000" in lost.value.loss.log
        made = layout(TAKEN, 1)
        cut = made.placements[0].model_copy(update={"size_bytes": 4 * N + 2})
        over = made.placements[0].model_copy(update={"offset_bytes": made.placements[1].offset_bytes})
        for placements, says in (
            ((cut, *made.placements[1:]), "4002 bytes of unknown or cut float32"),
            ((over, *made.placements[1:]), "overlaps"),
            ((made.placements[0], made.placements[0]), "two buffers of one name"),
        ):
            bad = Arena(size_bytes=made.size_bytes, placements=placements, zone_seed=ZONE_SEED)
            assert says in refusal(session, bad)
        assert "arena of" in refusal(session, Arena(size_bytes=1 << 40, placements=(), zone_seed=ZONE_SEED))
        do(session, arena(made))
