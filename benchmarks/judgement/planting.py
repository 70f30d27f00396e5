"""How much work makes how much time: two probes of a family on the board, and the steps that each gain asks for.

Work and time are not proportional, since a launch takes time too; but over a small range time grows evenly with work.
What was really planted is measured later, by every verdict's own long runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.judgement.workloads import PPM, Family, Work, lay
from qualify import cohort, program
from qualify.bench import Rig
from qualify.errors import RigError
from qualify.paired_session import ARMS, PairedSession
from qualify.processes import long_sets
from qualify.program import Pace
from qualify.steps import ArmName
from qualify.subject import Subject

SEED = "5eed" * 4
#: A probe runs this long an arm, four times.
PROBE_NS = 30_000_000
#: Fewer steps are other machine code: the compiler leaves out a loop that it sees the end of.
LEAST_STEPS = 8
#: Steps of the first probe of a chain that is to take a given time, and a share of them for the second.
FIRST_STEPS = 1_600
TIMEOUT_S = 60


@dataclass(frozen=True)
class Line:
    """Nanoseconds of a pass over steps."""

    start_ns: float
    step_ns: float

    def steps_for(self, took_ns: float) -> int:
        """So many steps take that long, at least `LEAST_STEPS`."""
        return max(LEAST_STEPS, round((took_ns - self.start_ns) / self.step_ns))


def works(rig: Rig, workspace: Path, family: Family) -> tuple[Work, ...]:
    """The steps of both arms for every gain of a family. Raises RigError, WorkerLost."""
    if rig.domain.runtime == "simulated":
        return tuple(planted(family, Line(0, 1), family.target_ns or 1))
    if family.target_ns is None:
        more = _one_tenth(family)
        line = probe(rig, workspace, family, LEAST_STEPS, LEAST_STEPS + more)
        return tuple(planted(family, line, LEAST_STEPS))
    line = probe(rig, workspace, family, FIRST_STEPS, 2 * FIRST_STEPS)
    lean = line.steps_for(family.target_ns)
    line = probe(rig, workspace, family, lean, lean + max(lean // 10, 1))
    return tuple(planted(family, line, lean))


def planted(family: Family, line: Line, lean: int) -> list[Work]:
    """Plain's work for each gain: the faster arm's time is prolonged by the gain."""
    took_ns = line.start_ns + lean * line.step_ns
    return [Work(gain, lean, lean + round(took_ns * gain / PPM / line.step_ns)) for gain in family.gains_ppm]


def _one_tenth(family: Family) -> int:
    """Steps that are about a tenth of a pass: of the bytes that a stream moves, or some two hundred of a chain."""
    return family.n * 2 // 40 if family.operation == "stream" else 192


def probe(rig: Rig, workspace: Path, family: Family, few: int, many: int) -> Line:
    """Time passes of so few and of so many steps in a row, by the device's clock."""
    lay(workspace, family, rig.domain.runtime, (Work(0, few, many),))
    item = cohort.load(workspace, family.operation)
    selection = cohort.subjects(item, rig.domain, rig.limits, rig.toolkit_build)
    rig.supply(selection.composed, selection.reference, bytes(32))
    (subject,) = (each for each in selection.subjects if each.role == "candidate")
    took = {arm: 0 for arm in ARMS}
    passes = {arm: 0 for arm in ARMS}
    with rig.bench(subject, {}).session(subject, *ARMS) as session:
        pace = _pace(subject)
        both = PairedSession(subject, session, SEED, pace, TIMEOUT_S)
        sets = range(pace.sets)
        rounds = {arm: _rounds(both, arm, sets) for arm in ARMS}
        for number, arm in enumerate((*ARMS, *ARMS[::-1])):
            run = both.long_run(arm, sets, rounds[arm], number)
            took[arm] += run.reading.timed.total_ns
            passes[arm] += run.passes
    fast, slow = (took[arm] / passes[arm] for arm in ARMS)
    return through(few, fast, many, slow)


def through(few: int, fast_ns: float, many: int, slow_ns: float) -> Line:
    """The line through both probes. Raises RigError where more steps took no longer: nothing can be planted then."""
    if slow_ns <= fast_ns:
        raise RigError(
            f"expected {many} steps to take longer than {few}, got {slow_ns:.0f} and {fast_ns:.0f} ns",
            fix="leave the board to this run alone",
        )
    step_ns = (slow_ns - fast_ns) / (many - few)
    return Line(fast_ns - few * step_ns, step_ns)


def _pace(subject: Subject) -> Pace:
    """As many sets as keep a cold subject cold."""
    flush = program.flush_bytes(subject) or 0
    return Pace(long_sets(subject, Pace(1, program.LEAST_UNITS, flush)) // 2, 1, flush)


def _rounds(both: PairedSession, arm: ArmName, sets: range) -> int:
    both.long_run(arm, sets, 1, 0)
    return -(-PROBE_NS // both.long_run(arm, sets, 1, 0).reading.timed.total_ns)
