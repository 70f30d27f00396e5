"""Gate trial: what a session shows, and each way to look faster than one is."""

from dataclasses import replace
from typing import Any

import pytest

from gates.trial import WatchedFacts, checks
from qualify import paired, program
from qualify.model import canonical_bytes
from qualify.program import Pace
from qualify.readings import Reading
from qualify.steps import Answer, Query, Stamps
from tests.gates.beds import Bed, Measured, opencl, script
from tests.gates.build import LIMITS, buffer, check, kernel, not_held, series_ref, subject, verdict
from tests.gates.trials import FLUSH, Session

Closed = dict[str, bool | None]
#: Windows that do not count decide nothing.
UNCOUNTED: Closed = {"windows": None, "faster": None, "tail": None}


def judged(session: Session, *, settings: dict[str, Any] | None = None, **changes: Any) -> Closed:
    facts, series = session.facts(**changes)
    return not_held(verdict("trial", session.about, facts, series, settings))


def test_a_faster_candidate_is_promising() -> None:
    facts, series = Session().facts()
    found = verdict("trial", subject(), facts, series)
    assert found.outcome == "pass"
    assert {each.name for each in found.checks} == checks(subject())
    assert [(note.name, note.got) for note in found.notes] == [("gain", "1.50000 x"), ("clock_state", "unknown")]


@pytest.mark.parametrize(
    ("session", "closed"),
    [
        (Session(400_000, 400_000), {"faster": False}),
        (Session(400_001, 400_000), {"faster": False}),
        (Session(399_999, 400_000), {}),
        (Session(600_000, 400_000), {"faster": False, "tail": False}),
        (Session(windows=20), UNCOUNTED),
        (Session(windows=22), UNCOUNTED),
        (Session(600_000, 400_000, windows=20), UNCOUNTED),
    ],
)
def test_the_nearest_times_that_close(session: Session, closed: Closed) -> None:
    assert judged(session) == closed


def test_over_tenfold_fails_without_a_window() -> None:
    slow = Session(4_000_001, 400_000)
    refs = {name: series_ref(name, slow.series[name]) for name in ("probe_candidate", "probe_incumbent")}
    facts = WatchedFacts.model_validate({"flush_bytes": FLUSH, **refs})
    found = verdict("trial", subject(), facts, {name: slow.series[name] for name in refs})
    assert found.outcome == "fail"
    assert check(found, "within_tenfold").holds is False
    assert judged(Session(4_000_000, 400_000)) == {"faster": False, "tail": False}


def change_one(session: Session, at: int, arm: str, **fields: Any) -> Session:
    """Change the readings of one arm in one window."""
    return session.each(lambda n, who, r: replace(r, **fields) if (n, who) == (at, arm) else r)


@pytest.mark.parametrize(
    ("session", "closed"),
    [
        (change_one(Session(), 3, "candidate", damage_bytes=4), {"zones": False}),
        (change_one(Session(), 3, "candidate", sets=(0, 0, 1, 2, 3, 4)), {"sets": False, "digests": False}),
        (change_one(Session(), 3, "incumbent", digests=tuple((77,) for _ in range(6))), {"digests": False}),
        (change_one(Session(), 3, "candidate", host_bound=None), {"windows": None}),
        (change_one(Session(windows=22), 3, "candidate", host_bound=True), {}),
        (change_one(Session(), 3, "candidate", unit_end_ns=(0, 1, 2)), {"facts": None}),
        (change_one(Session(), 3, "candidate", sets=(3, 4, 5), digests=((3,), (4,), (5,))), {"facts": None}),
        (change_one(Session(), 3, "candidate", digests=tuple((n,) for n in range(5))), {"facts": None}),
    ],
)
def test_reused_sets_a_dropped_lead_in_and_skipped_digests_close(session: Session, closed: Closed) -> None:
    """Without its lead-in a segment has half the sets; a skipped digest is a row too few."""
    assert judged(session) == closed


def test_more_than_two_rejected_windows_are_inconclusive() -> None:
    def bound(n: int, arm: str, reading: Reading) -> Reading:
        return replace(reading, host_bound=n < 3)

    assert judged(Session(windows=24).each(bound)) == UNCOUNTED
    assert judged(Session(600_000, 400_000, windows=24).each(bound)) == UNCOUNTED


def test_a_session_of_which_no_window_is_left_is_inconclusive_and_says_why() -> None:
    session = Session(windows=3).around(0, 1, 2, events=("foreign-process",))
    found = verdict("trial", session.about, *session.facts())
    assert not_held(found) == {**UNCOUNTED, "passes": None}
    assert ("rejected", "3 windows", "foreign-process") in [(note.name, note.got, note.says) for note in found.notes]


@pytest.mark.parametrize("event", sorted(paired.REJECTING))
def test_windows_that_the_board_disturbed_are_rejected_up_to_the_cap(event: str) -> None:
    for disturbed, closed in ((2, {}), (3, UNCOUNTED)):
        session = Session(windows=21 + disturbed).around(*range(disturbed), events=(event,))
        found = verdict("trial", session.about, *session.facts())
        assert not_held(found) == closed
        assert ("rejected", f"{disturbed} windows", event) in [(note.name, note.got, note.says) for note in found.notes]


def test_a_window_under_other_clocks_than_most_is_rejected() -> None:
    session = Session(windows=22).around(*range(22), clock="usual").around(3, clock="lower")
    assert judged(session) == {}
    assert judged(Session(windows=21).around(*range(21), clock="usual").around(3, clock="lower")) == UNCOUNTED


def test_a_power_cap_and_what_the_board_does_not_tell_reject_nothing_and_the_latter_is_said() -> None:
    session = Session().around(*range(21), events=("power-cap", "thermal unknown", "xid unknown"), clock="usual")
    found = verdict("trial", session.about, *session.facts())
    assert not not_held(found)
    assert ("watch", "thermal unknown, xid unknown") in [(note.name, note.got) for note in found.notes]


@pytest.mark.parametrize(("name", "value"), [("events", 2), ("events", -1), ("clocks", 1), ("clocks", -2)])
def test_events_and_clocks_without_a_name_close(name: str, value: int) -> None:
    session = Session().around(5, events=("power-cap",), clock="usual")
    facts, series = session.facts()
    values = [value, *series[name][1:]]
    changed = facts.model_copy(update={name: series_ref(name, values)})
    assert not_held(verdict("trial", session.about, changed, {**series, name: values})) == {"facts": None}


def test_rejection_is_blind_to_time() -> None:
    """A window in which the candidate is a hundred times slower stays."""

    def slow(n: int, arm: str, r: Reading) -> Reading:
        ends = tuple(r.start_ns + 100 * (end - r.start_ns) for end in r.unit_end_ns)
        return replace(r, unit_end_ns=ends) if n < 11 and arm == "candidate" else r

    assert judged(Session().each(slow)) == {"faster": False, "tail": False}


def test_a_tail_worse_than_the_margin_closes_however_good_the_total() -> None:
    def tailed(n: int, arm: str, r: Reading) -> Reading:
        late = (
            207_000 if arm == "candidate" else 0
        )  # The last of three units takes 607,000 ns, the incumbent's 600,000.
        return replace(r, unit_end_ns=(*r.unit_end_ns[:-1], r.unit_end_ns[-1] + late))

    assert judged(Session().each(tailed), settings={"tail_margin_ppm": 10_000}) == {"tail": False}
    assert judged(Session().each(tailed), settings={"tail_margin_ppm": 12_000}) == {}


def test_a_superbatch_cannot_win_by_totals() -> None:
    """The first launch does all the work and the others none: medians of launches would show a thousandfold gain."""

    def batched(n: int, arm: str, r: Reading) -> Reading:
        total = 600_000 * 3 * 1056 // 1000
        ends = (r.start_ns + total - 2000, r.start_ns + total - 1000, r.start_ns + total)
        return replace(r, unit_end_ns=ends) if arm == "candidate" else r

    assert judged(Session().each(batched)) == {"faster": False, "tail": False}


@pytest.mark.parametrize(
    ("name", "values", "closed"),
    [
        ("probe_candidate", [900_000] * 4, {"pace": None}),
        ("probe_candidate", [], {"facts": None}),
        ("probe_incumbent", [0] * 4, {"facts": None}),
        ("warm_candidate", [400_000] * 19, {"warm_up": None}),
        ("warm_candidate", [400_000 + 10_000 * i for i in range(21)], {"warm_up": None}),
        ("warm_candidate", [400_000 + 10_000 * i for i in range(200)], {}),
        ("inputs_after", [5] * 12, {"inputs_unchanged": False}),
        ("orders", [2] * 21, {"facts": None}),
    ],
)
def test_series_that_close(name: str, values: list[int], closed: Closed) -> None:
    session = Session()
    facts, series = session.facts()
    if name == "probe_candidate" and values:
        series["probe_incumbent"] = [900_003] * 4
        facts = facts.model_copy(update={"probe_incumbent": series_ref("probe_incumbent", series["probe_incumbent"])})
    changed = facts.model_copy(update={name: series_ref(name, values)})
    assert not_held(verdict("trial", session.about, changed, {**series, name: values})) == closed


def test_fewer_units_than_time_asks_for_need_a_reason_in_bytes() -> None:
    session = Session()
    facts, series = session.facts()
    pace = facts.pace
    assert pace is not None
    series |= {"probe_candidate": [300_000] * 4, "probe_incumbent": [450_000] * 4}
    refs = {name: series_ref(name, series[name]) for name in ("probe_candidate", "probe_incumbent")}
    for more, closed in ((None, {"pace": None}), (1 << 20, {"pace": None}), (1 << 30, {})):
        changed = facts.model_copy(update={**refs, "pace": pace.model_copy(update={"more_bytes": more})})
        assert not_held(verdict("trial", session.about, changed, series)) == closed


def test_too_few_passes_decide_nothing() -> None:
    assert judged(Session(windows=5), settings={"windows": 5}) == {"passes": None}


def test_a_device_without_room_for_six_sets_is_inconclusive() -> None:
    about = subject(limits=LIMITS.model_copy(update={"memory_bytes": FLUSH + 60_000}))
    found = verdict("trial", about, WatchedFacts(flush_bytes=FLUSH))
    assert found.outcome == "inconclusive"
    assert check(found, "pace").holds is None


# Through measuring workers -------------------------------------------------------------------------------------------


def trial(bed: Bed, candidate: bytes, incumbent: bytes | None = None, *, n: int = 32, **changes: Any) -> Measured:
    return bed.judge("trial", bed.subject(candidate, incumbent or script(pass_ns=600_000), n=n, **changes))


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        (script(pass_ns=400_000), {}),
        (script("superbatch", pass_ns=600_000), {"faster": False}),
        (script("poison_detector", pass_ns=700_000), {"faster": False}),
        (script("stateful", pass_ns=400_000, after=90), {"digests": False}),
        (script("input_changer", pass_ns=400_000), {"inputs_unchanged": False}),
    ],
)
def test_scripted_candidates(simulated: Bed, text: bytes, closed: Closed) -> None:
    found = not_held(trial(simulated, text).verdict)
    assert {name: found.get(name, True) for name in closed} == closed
    assert bool(found) is bool(closed), found


def test_the_same_seed_and_script_give_the_same_stamps(simulated: Bed) -> None:
    first, second = (trial(simulated, script(pass_ns=400_000)) for _ in range(2))
    assert first.series == second.series
    assert first.measurement == second.measurement


def test_short_passes_are_read_several_to_a_unit(simulated: Bed) -> None:
    found = trial(simulated, script(pass_ns=20_000), script(pass_ns=24_000), n=16)
    assert not not_held(found.verdict)
    facts = WatchedFacts.parse(canonical_bytes(found.measurement.facts))
    assert facts.pace is not None
    assert (facts.pace.passes, facts.pace.units) == (3, 17)


def test_a_hopeless_candidate_costs_no_windows(simulated: Bed) -> None:
    found = trial(simulated, script(pass_ns=7_000_000))
    assert found.verdict.outcome == "fail"
    assert set(found.series) == {"probe_candidate", "probe_incumbent"}


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        (script(pass_ns=400_000), {}),
        (script("constant", pass_ns=400_000), {"pairs": False, "exact": False}),
    ],
)
def test_bits_of_its_own(simulated: Bed, text: bytes, closed: Closed) -> None:
    found = trial(simulated, text, bits="own").verdict
    assert not_held(found) == closed
    assert {"pairs", "exact"} <= {each.name for each in found.checks}


def test_an_inout_holds_its_input_before_every_segment(simulated: Bed) -> None:
    passed = (buffer("y", "inout", 32), buffer("a", "input", 32))
    fast, slow = (script("add", inputs=(0, 1), pass_ns=ns) for ns in (400_000, 600_000))
    assert not not_held(simulated.judge("trial", simulated.subject(fast, slow, passed=passed)).verdict)


def test_a_window_in_order(simulated: Bed, capsys: pytest.CaptureFixture[str]) -> None:
    """R10.3 and R10.4 as the device saw them: 2K sets and one that stands by, all poisoned; own lead-in, one wait."""
    about = simulated.subject(script(), n=10)
    simulated.judge("contract", about)
    pace = Pace(passes=1, units=3, flush_bytes=1 << 20)
    arms = program.window_arms(candidate_first=True)
    steps = program.segments(about, arms, "ab" * 8, "cd" * 8, pace=pace)
    with simulated.rig.bench(about, {}).session(about, "candidate", "incumbent") as session:
        session.run([program.arena(about, pace.places, "ef" * 8)], 30)
        session.run([f for n in range(6) for f in program.values(about, "ordinary", "cd" * 8, n)], 30)
        before = len(trace(session))
        records = session.run(steps, 30)
        seen = trace(session)[before:]
    with capsys.disabled():
        print("\n".join(("", "one window, as the device saw it:", *seen)))
    assert len([record for record in records if isinstance(record, Stamps)]) == 4
    size = len(seen) // 4
    for arm, at in zip(arms, range(0, len(seen), size), strict=True):
        in_order(seen[at : at + size], arm)


def trace(session: Any) -> list[str]:
    (answer,) = session.run([Query(what="trace")], 30)
    assert isinstance(answer, Answer)
    assert isinstance(answer.facts, list)
    return [str(line) for line in answer.facts]


def in_order(seen: list[str], arm: str) -> None:
    """One segment of K = 3 units of one pass."""
    assert sorted(seen[:7]) == [f"poison y.{n}" for n in range(7)]
    assert seen[7:9] == ["scrub", f"flush {1 << 20}"]
    launches = seen[9:12] + seen[13:16]
    assert seen[12] == seen[16] == "clock"
    assert sorted(launches) == [f"launch {arm} add {n}" for n in range(6)]
    assert seen[17] == "wait"
    assert sorted(seen[18:24]) == [f"digest y.{n}" for n in range(6)]
    assert seen[24:] == ["zones", "unwritten y.6"]


def test_every_timed_launch_on_opencl_is_a_checked_launch(pocl: Bed) -> None:
    about = pocl.subject(opencl(), n=60_003, launches=(kernel(grid=469, block=128),))
    found = pocl.judge("trial", about, windows=1).verdict
    assert {check(found, name).holds for name in ("pace", "sets", "digests", "zones", "inputs_unchanged")} == {True}
