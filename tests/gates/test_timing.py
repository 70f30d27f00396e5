"""Gate timing: what many processes show, each way to look faster than one is, and what proves nothing either way."""

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from gates.timing import TimingSettings, checks, promise
from qualify import timed
from qualify.contract import Timing
from qualify.domain import Calibrated
from qualify.gate import SeriesRef
from qualify.model import canonical_bytes
from qualify.paired import spread
from qualify.readings import Reading
from qualify.steps import ArmName
from qualify.timed import Seen, TimedFacts
from tests.gates.beds import Bed, opencl, script
from tests.gates.build import LIMITS, buffer, check, kernel, not_held, series_ref, subject, verdict
from tests.gates.timings import (
    FEW,
    FLUSH,
    Measured,
    change_one,
    disturbed,
    host_bound,
    slower,
    timing,
)

Closed = dict[str, bool | None]
BOARD = Calibrated(calibration=("20260101T000000Z-op-simulated-1.0--virtual-00000000",), driver="d", delta_ppm=20_000)
FOUR = ("faster", "faster_processes", "tail", "tail_processes")


def judged(measured: Measured, settings: dict[str, Any] | None = None, **changes: Any) -> Closed:
    facts, series = measured.facts(**changes)
    return not_held(verdict("timing", measured.about, facts, series, settings))


def test_a_faster_candidate_passes_with_its_bound() -> None:
    facts, series = Measured().facts()
    found = verdict("timing", subject(), facts, series)
    assert found.outcome == "pass"
    assert {each.name for each in found.checks} == checks(subject())
    assert check(found, "faster").got == "at least 1.50000"
    assert check(found, "faster").want == "above 1.00100 at a level of 1/200"
    (reading,) = [note for note in found.notes if note.name == "speed_up"]
    assert reading.got == "1.50000 x, at least 1.50000 x"
    assert "wide over plain in c, simulated-1.0/virtual; launch, cold, 1 passes a unit" in reading.says


@pytest.mark.parametrize(
    ("measured", "settings", "closed"),
    [
        (Measured(600_000, 600_000), {}, {"faster": False, "faster_processes": False}),
        (Measured(599_500, 600_000), {}, {"faster": False, "faster_processes": False}),
        (Measured(599_390, 600_000), {}, {}),
        (Measured(590_000, 600_000), {"board": BOARD}, {"faster": False, "faster_processes": False}),
        (Measured(588_000, 600_000), {"board": BOARD}, {}),
        (Measured(400_000, 600_000), {"floor": "3/2"}, {"faster": False, "faster_processes": False}),
        (Measured(399_999, 600_000), {"floor": "3/2"}, {}),
        (Measured(600_000, 400_000), {}, dict.fromkeys((*FOUR,), False)),
    ],
)
def test_margin_and_floor_must_be_exceeded(measured: Measured, settings: dict[str, Any], closed: Closed) -> None:
    assert judged(measured, settings) == closed


def test_the_margin_is_that_of_the_unit_mode() -> None:
    board = BOARD.model_copy(update={"short_delta_ppm": 50_000})
    limits = [
        promise(subject(), TimingSettings(board=each), short=short).limit
        for each, short in ((board, False), (board, True), (BOARD, True), (None, False))
    ]
    assert limits == [Fraction(102, 100), Fraction(105, 100), Fraction(1001, 1000), Fraction(1001, 1000)]


def test_every_attempt_and_every_finalist_raises_the_bar() -> None:
    abouts = (subject(), subject(attempt=3), subject(attempt=3, finalists=5))
    first, third, five = (promise(about, TimingSettings(), short=False) for about in abouts)
    assert (first.level, third.level, five.level) == (Fraction(1, 200), Fraction(1, 1200), Fraction(1, 6000))
    assert [len(each.wanted) for each in (first, third, five)] == [11, 14, 16]
    assert judged(Measured(about=subject(attempt=3))) == {"windows": None, **dict.fromkeys(FOUR)}
    assert not judged(Measured(about=subject(attempt=3), wanted=spread(101, 14)))


@pytest.mark.parametrize(
    ("wanted", "settings"),
    [
        (spread(100, 11), {}),
        (spread(102, 11), {}),
        (spread(101, 10), {}),
        ((*spread(101, 11)[:-2], 8, 10), {}),
        (spread(101, 11), {"windows": 102}),
        (spread(101, 11), {"processes": 12}),
    ],
)
def test_other_windows_than_planned_prove_nothing(wanted: Sequence[int], settings: dict[str, Any]) -> None:
    assert judged(Measured(wanted=tuple(wanted)), settings) == {"windows": None, **dict.fromkeys(FOUR)}


def test_a_process_too_many_is_no_measurement() -> None:
    assert judged(Measured(wanted=spread(101, 12))) == {"facts": None}


def test_fewer_processes_are_decided_only_where_the_settings_say_so() -> None:
    few: dict[str, Any] = {"windows": 20, "processes": 8}
    assert not judged(Measured(wanted=spread(20, 8)), few)
    assert judged(Measured(wanted=spread(20, 7)), {**few, "processes": 7}) == {
        "faster_processes": None,
        "tail_processes": None,
    }


# Rejection -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measured", "closed"),
    [
        (disturbed(4, 4, events=["thermal"]), {}),
        (disturbed(4, 4, events=["thermal", "power-cap"]), {}),
        (disturbed(0, 0).around(*range(50), events=["power-cap"]), {}),
        (disturbed(4, 3, events=["thermal"]), {"windows": None, **dict.fromkeys(FOUR)}),
        (disturbed(3, 4, events=["thermal"]), {"windows": None, **dict.fromkeys(FOUR)}),
        (disturbed(4, 4, events=["power-cap"]), {"windows": None, **dict.fromkeys(FOUR)}),
        (disturbed(11, 11, events=["foreign-process"]), {"windows": None, **dict.fromkeys(FOUR)}),
        (disturbed(2, 2, clock="1410 MHz"), {}),
        (disturbed(2, 1, clock="1410 MHz"), {"windows": None, **dict.fromkeys(FOUR)}),
    ],
)
def test_a_disturbed_window_is_measured_again_whichever_arm_it_hurt(measured: Measured, closed: Closed) -> None:
    assert judged(measured) == closed


def test_a_window_is_never_rejected_for_its_time() -> None:
    """Half of the windows are slow, for both arms or for the candidate alone: all of them count."""

    def both(seen: Seen, arm: ArmName, reading: Reading) -> Reading:
        return slower(reading, 3_000_000) if seen.process % 2 else reading

    def one(seen: Seen, arm: ArmName, reading: Reading) -> Reading:
        return slower(reading, 3_000_000) if seen.process % 2 and arm == "candidate" else reading

    assert not judged(Measured().each(both))
    assert judged(Measured().each(one))["faster"] is False


def test_segments_that_the_host_paced_are_rejected_and_unknown_ones_prove_nothing() -> None:
    unknown = {"windows": None, **dict.fromkeys(FOUR)}
    assert not judged(host_bound(disturbed(0, 3), 3, True))
    assert judged(host_bound(disturbed(0, 11), 11, True)) == unknown
    assert judged(host_bound(disturbed(0, 0), 1, None)) == unknown


def test_a_penalty_on_whoever_runs_first_favours_nobody() -> None:
    """The same binary, and 6 % on the first segment of every window: the coin gives it to both arms alike."""

    def first(seen: Seen, arm: ArmName, reading: Reading) -> Reading:
        return slower(reading, 60_000) if reading is seen.attempt.readings[0] else reading

    found = judged(Measured(600_000, 600_000).each(first))
    assert found["faster"] is False
    assert found["faster_processes"] is False


# One process, one tail -----------------------------------------------------------------------------------------------


def test_the_luck_of_two_processes_is_not_enough() -> None:
    """Nine of eleven processes show a gain of 1 %, two a loss: windows alone would admit it."""

    def lucky(seen: Seen, arm: ArmName, reading: Reading) -> Reading:
        return slower(reading, 30_000) if seen.process in (3, 7) and arm == "candidate" else reading

    found = judged(Measured(594_000, 600_000).each(lucky))
    assert found["faster_processes"] is False
    assert "faster" not in found


def test_a_worse_tail_closes_however_good_the_total() -> None:
    def late(seen: Seen, arm: ArmName, reading: Reading) -> Reading:
        more = (
            207_000 if arm == "candidate" else 0
        )  # Of three units the last takes 607,000 ns; the incumbent's 600,000.
        return replace(reading, unit_end_ns=(*reading.unit_end_ns[:-1], reading.unit_end_ns[-1] + more))

    assert judged(Measured().each(late)) == {"tail": False, "tail_processes": False}
    assert not judged(Measured().each(late), {"tail_margin_ppm": 12_000})


# Checked launches ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measured", "closed"),
    [
        (change_one(Measured(), 5, "candidate", damage_bytes=4), {"zones": False}),
        (change_one(Measured(), 5, "candidate", sets=(0, 0, 1, 2, 3, 4)), {"sets": False, "digests": False}),
        (change_one(Measured(), 5, "incumbent", digests=tuple((77,) for _ in range(6))), {"digests": False}),
    ],
)
def test_what_a_session_may_not_leave(measured: Measured, closed: Closed) -> None:
    assert judged(measured) == closed


@pytest.mark.parametrize(
    ("name", "values", "closed"),
    [
        ("inputs", [1], {"inputs_unchanged": None}),
        ("inputs", [1] * 12 + [2] * 12 * 11, {"inputs_unchanged": False}),
        ("long_inputs", [5] * 24, {"inputs_unchanged": False}),
        ("loads", [0] * 10, {"facts": None}),
        ("loads", [2] * 11, {"facts": None}),
        ("warm_counts", [21] * 20, {"facts": None}),
        ("warm_counts", [20, 21] * 11, {"facts": None}),
        ("warm_candidate", [400_000 + 10_000 * n for n in range(21)] * 11, {"warm_up": None}),
        ("processes", [0] * 101, {"windows": None, "passes": None, **dict.fromkeys(FOUR)}),
        ("processes", [10 - n // 10 for n in range(101)], {"facts": None}),
        ("processes", [11] * 101, {"facts": None}),
        ("events", [1] * 101, {"facts": None}),
        ("clocks", [0] * 101, {"facts": None}),
        ("orders", [2] * 101, {"facts": None}),
        ("stamps", [7] * 404 * 4, {"facts": None}),
        ("sets", [n % 6 for n in range(404 * 6 - 6)], {"facts": None}),
        ("digests", [n % 6 for n in range(404 * 6 - 1)], {"facts": None}),
        ("probe_incumbent", [0] * 4, {"facts": None}),
    ],
)
def test_series_that_close(name: str, values: list[int], closed: Closed) -> None:
    facts, series = Measured().facts()
    changed = facts.model_copy(update={name: series_ref(name, values)})
    assert not_held(verdict("timing", subject(), changed, {**series, name: values})) == closed


def test_spans_that_are_not_those_of_the_windows_are_no_measurement() -> None:
    facts, _ = Measured().facts()
    assert facts.candidate is not None
    better = facts.candidate.model_copy(update={"fastest_ns": 1})
    assert judged(Measured(), candidate=better) == {"facts": None}
    assert judged(Measured(), incumbent=None) == {"facts": None}


# Before any window ---------------------------------------------------------------------------------------------------


def test_over_tenfold_fails_without_a_window() -> None:
    slow = Measured(4_000_001, 400_000)
    refs = {name: series_ref(name, slow.series[name]) for name in ("probe_candidate", "probe_incumbent")}
    facts = TimedFacts.model_validate({"flush_bytes": FLUSH, **refs})
    found = verdict("timing", subject(), facts, {name: slow.series[name] for name in refs})
    assert found.outcome == "fail"
    assert check(found, "within_tenfold").holds is False


def test_a_device_without_room_for_six_sets_is_inconclusive() -> None:
    about = subject(limits=LIMITS.model_copy(update={"memory_bytes": FLUSH + 60_000}))
    found = verdict("timing", about, TimedFacts(flush_bytes=FLUSH))
    assert found.outcome == "inconclusive"
    assert check(found, "pace").holds is None


# Controls ------------------------------------------------------------------------------------------------------------


def test_a_control_passes_where_identical_arms_are_near() -> None:
    about = subject(role="control")
    assert checks(about) & {"faster", "equal"} == {"equal"}
    assert not judged(Measured(600_000, 600_000, about=about))
    assert not judged(Measured(590_000, 600_000, about=about))
    assert judged(Measured(500_000, 600_000, about=about)) == {"equal": None}
    assert judged(Measured(600_000, 600_000, about=about, wanted=spread(100, 11))) == {"equal": None, "windows": None}


# Through measuring workers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        (script(pass_ns=400_000), {}),
        (script(pass_ns=599_700), {"faster": False, "faster_processes": False}),
        (script(pass_ns=600_000, wake_ppm=20_000, wake_passes=3), {"faster": False, "faster_processes": False}),
        (script("superbatch", pass_ns=600_000), {"faster": False, "tail": False}),
        (script("ahead", pass_ns=600_000), {"clock_ratio": None}),
        (script(pass_ns=400_000, wall_ppm=3_000_000), {"clocks": None, "clock_ratio": None}),
        (script(pass_ns=400_000, host_bound_every=2), {"windows": None}),
        (script("stateful", pass_ns=400_000, after=60), {"digests": False}),
    ],
)
def test_scripted_candidates(simulated: Bed, text: bytes, closed: Closed) -> None:
    found = not_held(timing(simulated, text).verdict)
    assert {name: found.get(name, True) for name in closed} == closed
    assert bool(found) is bool(closed), found


def test_arms_that_drift_alike_are_equal_and_a_gain_is_still_found(simulated: Bed) -> None:
    slow, fast = (script(pass_ns=ns, drift_ppm_per_s=50_000) for ns in (600_000, 590_000))
    assert not_held(timing(simulated, slow, slow).verdict)["faster"] is False
    assert not not_held(timing(simulated, fast, slow).verdict)


def test_a_window_that_the_host_paced_is_measured_again(simulated: Bed) -> None:
    """The 22nd segment of each process is one of its ninth window; 4 belong to the warm-up."""
    found = timing(simulated, script(pass_ns=400_000, host_bound_every=22), settings={**FEW, "windows": 30})
    assert not not_held(found.verdict)
    assert found.values("processes") == (0,) * 11 + (1,) * 11 + (2,) * 11


def test_bits_of_its_own_are_known_before_and_judged_after(simulated: Bed) -> None:
    found = not_held(timing(simulated, script("constant", pass_ns=400_000), bits="own").verdict)
    assert found == {"pairs": False, "exact": False}


def test_an_inout_is_timed_in_a_row_without_its_digests(simulated: Bed) -> None:
    passed = (buffer("y", "inout", 32), buffer("a", "input", 32))
    fast, slow = (script("add", inputs=(0, 1), pass_ns=ns) for ns in (400_000, 600_000))
    found = timing(simulated, fast, slow, passed=passed)
    assert not not_held(found.verdict)
    facts = TimedFacts.parse(canonical_bytes(found.measurement.facts))
    assert isinstance(facts.long_digests, SeriesRef)
    assert facts.long_digests.count == 0


def test_processes_share_their_inputs_and_nothing_else(simulated: Bed) -> None:
    limits = simulated.rig.limits.model_copy(update={"cache_bytes": 1 << 17})
    found = timing(simulated, script(pass_ns=400_000), timing=Timing(), limits=limits)
    facts = TimedFacts.parse(canonical_bytes(found.measurement.facts))
    assert facts.pace is not None
    windows = timed.from_series(facts, {name: found.values(name) for name in found.series}, facts.pace.pace, 1)
    first = [next(window for window in windows if window.process == process) for process in range(3)]
    assert len({window.attempt.readings[0].sets for window in first}) == 3
    inputs, width = found.values("inputs"), 2 * facts.pace.pace.sets
    assert len(inputs) == 4 * width
    assert len({inputs[row * width : (row + 1) * width] for row in range(4)}) == 1
    long_sets = len(found.values("long_sets")) // len(found.values("long_passes"))
    assert (long_sets - 2) * 3 * 4096 < 2 << 17 < long_sets * (3 * (32 * 4 + 4096) + 100)


def test_every_timed_launch_on_opencl_is_a_checked_launch(pocl: Bed) -> None:
    """Several times the work for the same result, so that a busy machine cannot hide the gain.

    It may double the parent's times, so of the two clocks no more is asked than that one lies within the other.
    """
    work = "if (i < n) { float s = 0; for (volatile int r = 0; r < 4; r++) s += b[i]; y[i] = a[i] + b[i] + 0 * s; }"
    about = pocl.subject(opencl(), opencl(work), n=20_011, launches=(kernel(grid=157, block=128),))
    hot = about.model_copy(update={"timing": Timing(cache="hot")})
    found = pocl.judge("timing", hot, **{**FEW, "windows": 9, "processes": 1})
    shown = ("windows", "digests", "zones", "inputs_unchanged", "faster")
    assert {name: check(found.verdict, name).holds for name in shown} == dict.fromkeys(shown, True)
    parent_ns, device_ns, *incumbents = map(int, re.findall(r"(\d+) ns", check(found.verdict, "clocks").got or ""))
    assert parent_ns >= device_ns > 0
    assert incumbents[0] >= incumbents[1] > 0
