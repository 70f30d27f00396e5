"""Steps for the parent's own clock and for ceilings: held passes run when told, and nothing between."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from qualify.arena import layout
from qualify.bench import Rig
from qualify.sessions import MeasuringSession
from qualify.steps import Copy, Digest, Digests, Fill, Go, Read, Spans, Stage, Step, Zones
from tests.devices.beds import POISON, SETS, SLOTS, TAKEN, bed, do, launch, refusal, run

ROUNDS = 3


def stage(*sets: int, symbol: str = "add", rounds: int = ROUNDS) -> Stage:
    return Stage(arm="candidate", launches=(launch(symbol),), slots=SLOTS, sets=sets, rounds=rounds)


GO = Go(arm="candidate")


@pytest.fixture(scope="module")
def session(rig: Rig) -> Iterator[MeasuringSession]:
    with bed(rig, layout(TAKEN, SETS)) as opened:
        yield opened


def digests(session: MeasuringSession, *sets: int) -> tuple[str, ...]:
    (record,) = do(session, Digest(buffers=tuple(f"y.{number}" for number in sets)))
    assert isinstance(record, Digests)
    return record.values


def test_staged_passes_run_when_told_and_write_what_launches_write(session: MeasuringSession) -> None:
    do(session, run("add", 0), run("add", 1))
    wanted = digests(session, 0, 1)
    do(session, Fill(buffer="y.0", recipe=POISON), Fill(buffer="y.1", recipe=POISON))
    poisoned = digests(session, 0, 1)
    do(session, stage(1, 0))
    asked_ns = time.monotonic_ns()
    (span,) = do(session, GO)
    waited_ns = time.monotonic_ns() - asked_ns
    assert isinstance(span, Spans)
    assert 0 < span.end_ns[0] - span.start_ns[0] <= waited_ns
    assert digests(session, 0, 1) == wanted != poisoned


def test_copies_take_longer_for_more_bytes(session: MeasuringSession) -> None:
    small, large = do(session, Copy(size_bytes=64, times=5), Copy(size_bytes=32 << 20, times=2))
    assert isinstance(small, Spans)
    assert isinstance(large, Spans)
    assert (len(small.start_ns), len(large.start_ns)) == (5, 2)
    assert all(a <= b for a, b in zip(small.end_ns, small.start_ns[1:], strict=False))
    assert min(b - a for a, b in zip(large.start_ns, large.end_ns, strict=True)) > min(
        b - a for a, b in zip(small.start_ns, small.end_ns, strict=True)
    )


def test_what_is_no_staged_pass_is_refused(session: MeasuringSession) -> None:
    assert "nothing is staged" in refusal(session, GO)
    assert f"no buffer y.{SETS}" in refusal(session, stage(SETS))
    assert "no kernel subtract" in refusal(session, stage(0, symbol="subtract"))
    between: tuple[Step, ...] = (Zones(), Read(buffer="y.0"), stage(0), Go(arm="incumbent"))
    for step in between:
        assert "candidate is staged" in refusal(session, stage(0), step)
        do(session, GO)
