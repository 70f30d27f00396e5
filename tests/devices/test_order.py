"""The recorded order of one window on the virtual board, as gates compose it and as its device performs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from qualify import program
from qualify.bench import Rig
from qualify.steps import Answer, Query, Segment, Stamps
from tests.devices.order import breaches, segments_of
from tests.rigs import HONEST, Trial

PACE = program.Pace(passes=1, units=3, flush_bytes=1 << 20)
ARMS = program.window_arms(candidate_first=True)


Performed = tuple[list[list[str]], list[Segment], list[Stamps]]


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig.open("simulated-1.0") as opened:
        yield opened


def perform(rig: Rig, seed: str) -> Performed:
    """The operations of each segment of one window, the steps that asked for them, and the stamps."""
    subject = Trial(rig).subject(HONEST["simulated"])
    steps = program.segments(subject, ARMS, seed, "7" * 16, pace=PACE)
    filled = [
        fill
        for number in range(PACE.places)
        for fill in program.values(subject, "ordinary", program.set_seed("7" * 16, number), number)
    ]
    with rig.bench(subject, {}).session(subject, "candidate", "incumbent") as session:
        session.run((program.arena(subject, PACE.places, "8" * 16), *filled), 60.0)
        (before,) = session.run((Query(what="trace"),), 60.0)
        *records, after = session.run((*steps, Query(what="trace")), 60.0)
    trace = operations(after)[len(operations(before)) :]
    stamps = [record for record in records if isinstance(record, Stamps)]
    return list(segments_of(trace)), [step for step in steps if isinstance(step, Segment)], stamps


@pytest.fixture(scope="module")
def window(rig: Rig) -> Performed:
    performed = perform(rig, "6" * 16)
    print("\n".join(operation for segment in performed[0] for operation in segment))
    return performed


def operations(record: object) -> list[str]:
    assert isinstance(record, Answer)
    assert isinstance(record.facts, list)
    return [str(operation) for operation in record.facts]


def test_every_segment_of_a_window_keeps_every_rule(window: Performed) -> None:
    performed, asked, _ = window
    assert [step.arm for step in asked] == list(ARMS)
    assert len(performed) == len(asked) == 4
    for done, step in zip(performed, asked, strict=True):
        assert breaches(done, step, ("y",)) == []


def test_the_same_steps_give_the_same_stamps_and_another_seed_gives_others(rig: Rig, window: Performed) -> None:
    *_, stamps = window
    *_, again = perform(rig, "6" * 16)
    *_, other = perform(rig, "0" * 16)
    assert stamps == again
    assert {one.start_ns for one in stamps[1:]}.isdisjoint(one.start_ns for one in other[1:])


def without(kind: str, done: Sequence[str]) -> list[str]:
    at = next(at for at, operation in enumerate(done) if operation.startswith(kind))
    return [*done[:at], *done[at + 1 :]]


def lead_in_dropped(done: list[str]) -> list[str]:
    first, clock = next(at for at, operation in enumerate(done) if operation.startswith("launch")), done.index("clock")
    return [*done[:first], *done[clock:]]


def set_reused(done: list[str]) -> list[str]:
    first, second = [at for at, operation in enumerate(done) if operation.startswith("launch")][:2]
    return [*done[:second], done[first], *done[second + 1 :]]


def other_arm_leads_in(done: list[str]) -> list[str]:
    clock, arm = done.index("clock"), next(operation.split()[1] for operation in done if operation.startswith("launch"))
    other = "incumbent" if arm == "candidate" else "candidate"
    return [operation.replace(f"launch {arm}", f"launch {other}") for operation in done[:clock]] + done[clock:]


def waited(done: list[str]) -> list[str]:
    clock = done.index("clock")
    return [*done[:clock], "wait", *done[clock:]]


def flushed_first(done: list[str]) -> list[str]:
    scrub = done.index("scrub")
    return [*done[:scrub], done[scrub + 1], "scrub", *done[scrub + 2 :]]


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (lead_in_dropped, "K passes lead in"),
        (set_reused, "no set is used twice"),
        (other_arm_leads_in, "one arm runs"),
        (waited, "the host does not wait in between"),
        (flushed_first, "caches are flushed after that"),
        (lambda done: without("digest", done), "every output is digested"),
        (lambda done: without("poison", done), "every output is poisoned before"),
        (lambda done: without("scrub", done), "shared memory is scrubbed before"),
        (lambda done: without("zones", done), "the zones are compared"),
        (lambda done: without("unwritten", done), "the bystander is looked at"),
        (lambda done: without("wait", done), "the host waits before it looks"),
    ],
)
def test_an_order_that_breaks_one_rule_is_named(change: object, broken: str, window: Performed) -> None:
    assert callable(change)
    (done, *_), (step, *_), _ = window
    assert broken in breaches(change(done), step, ("y",))
