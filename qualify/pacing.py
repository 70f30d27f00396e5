"""How segments of a subject are cut (R10.1, R10.4): what a probe says, what memory allows, and the checks on both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import Field

from qualify import program, readings
from qualify.gate import Bench, holds
from qualify.model import Document
from qualify.paired_session import ARMS, PairedSession, arena_bytes, probe
from qualify.program import LEAST_UNITS, Pace
from qualify.steps import ArmName
from qualify.subject import Subject
from qualify.verdict import Check, Note

#: A candidate that is slower by more than this is not worth windows (R10.1).
HOPELESS = 10
#: Timed passes of each arm, so that a tail is more than one bad moment (R10.1).
LEAST_PASSES = 100
#: A pass of less than about 0.3 us would need more sets than this; no launch is that short.
MOST_SETS = 8192


class Paced(Document):
    """How segments were cut. `more_bytes` is the arena of one unit more, where memory and not time set `units`."""

    passes: Annotated[int, Field(ge=1)]
    units: Annotated[int, Field(ge=1)]
    flush_bytes: Annotated[int, Field(ge=0)]
    more_bytes: int | None

    @property
    def pace(self) -> Pace:
        """What segments are composed by."""
        return Pace(self.passes, self.units, self.flush_bytes)


# Measurement ---------------------------------------------------------------------------------------------------------


def fits(subject: Subject, pace: Pace) -> bool:
    """Whether the device's memory holds the arena beside what a flush reads; closed where it does not say."""
    budget = program.memory_budget(subject, pace.flush_bytes)
    return budget is not None and arena_bytes(subject, pace) <= budget


def probed(subject: Subject, bench: Bench, seed: str, flush: int, timeout_s: int) -> dict[ArmName, list[int]]:
    """Totals of short segments of both arms, from a session of their own. Raises WorkerLost."""
    with bench.session(subject, *ARMS) as session:
        return probe(PairedSession(subject, session, seed, Pace(1, LEAST_UNITS, flush), timeout_s))


def cut(subject: Subject, probe_ns: Mapping[ArmName, Sequence[int]], flush: int) -> Paced | None:
    """The pace that R10.1 asks for, lowered to what fits; None if windows are pointless or do not fit."""
    candidate_ns, incumbent_ns = (readings.pass_ns(probe_ns[arm]) for arm in ARMS)
    if candidate_ns > HOPELESS * incumbent_ns:
        return None
    pass_ns = min(candidate_ns, incumbent_ns)
    passes, units, more_bytes = program.passes_of_a_unit(pass_ns), program.units_of_a_segment(pass_ns), None
    while units >= LEAST_UNITS and not fits(subject, Pace(passes, units, flush)):
        more_bytes = arena_bytes(subject, Pace(passes, units, flush))
        units -= 1
    if units < LEAST_UNITS or Pace(passes, units, flush).sets > MOST_SETS:
        return None
    return Paced(passes=passes, units=units, flush_bytes=flush, more_bytes=more_bytes)


# Judgement -----------------------------------------------------------------------------------------------------------


def hopeful(candidate_ns: int, incumbent_ns: int) -> Check:
    """The candidate's pass takes at most ten times the incumbent's."""
    got = f"{candidate_ns} ns against {incumbent_ns} ns"
    want = f"at most {HOPELESS} x the incumbent's pass"
    return holds("within_tenfold", got, want, candidate_ns <= HOPELESS * incumbent_ns)


def no_pace() -> Check:
    """Too few units of each arm fit."""
    return holds("pace", None, "three units of each arm in the device's memory", None)


def as_asked(subject: Subject, paced: Paced, flush_bytes: int | None, pass_ns: int) -> Check:
    """Passes, units and flush are what R10.1 and R10.3 ask for; units fewer only where memory ends."""
    flush = program.flush_bytes(subject)
    if flush is None or (paced.flush_bytes, flush_bytes) != (flush, flush):
        return holds("pace", None, "a flush of twice the cache", None)
    passes, units = program.passes_of_a_unit(pass_ns), program.units_of_a_segment(pass_ns)
    budget = program.memory_budget(subject, flush)
    lowered = budget is not None and paced.more_bytes is not None and paced.more_bytes > budget
    enough = paced.units == units if paced.more_bytes is None else LEAST_UNITS <= paced.units < units and lowered
    got = f"{paced.units} units of {paced.passes} passes"
    return holds("pace", got, f"{units} units of {passes} passes", (enough and paced.passes == passes) or None)


def warmed(sessions: Sequence[Mapping[ArmName, Sequence[int]]]) -> Iterator[Check | Note]:
    """Every session warmed both arms up until they were flat, or for as long as is allowed (R10.1)."""
    units = [values for session in sessions for values in session.values()]
    got = f"{min(map(len, units))} to {max(map(len, units))} units in {len(sessions)} sessions" if units else None
    want = f"at least {readings.WARM_UNITS} units an arm, until flat or {readings.MOST_WARM_UNITS}"
    yield holds("warm_up", got, want, all(map(readings.warm, units)) or None)
    restless = sum(not readings.flat(values) for values in units)
    if restless:
        yield Note(name="warm_up", got=f"{restless} of {len(units)} not flat", says="medians of tens moved by over 2 %")
