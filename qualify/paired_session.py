"""A session with both arms on one arena: warm-up, known outputs, windows. It measures; `qualify.readings` reads.

Both arms use the same sets and the same output buffers, poisoned in between, so that no place favours one (R10.4).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from qualify import program, readings
from qualify.arena import layout
from qualify.contract import Argument
from qualify.gate import Session
from qualify.program import Pace
from qualify.readings import Attempt, Reading, reading, signed
from qualify.seeds import coin, split
from qualify.steps import (
    ArmName,
    Damage,
    Digest,
    Digests,
    Fill,
    Fills,
    Go,
    Read,
    Record,
    Segment,
    Spans,
    Stamps,
    Step,
    Zones,
)
from qualify.subject import Subject

ARMS: tuple[ArmName, ArmName] = ("candidate", "incumbent")
#: Rounds of four segments that tell how long a pass takes.
PROBE_ROUNDS = 2
#: Fills of one message, so that no message grows with the number of sets.
_MESSAGE_FILLS = 1024


class Known(NamedTuple):
    """One arm's untimed launch on one set: digests and bytes of the outputs, in ABI order."""

    digests: tuple[int, ...]
    data: tuple[bytes, ...]


class LongRun(NamedTuple):
    """Passes in a row: how many, how long by the parent's clock, and what a segment would have left."""

    passes: int
    parent_ns: int
    reading: Reading


def arena_bytes(subject: Subject, pace: Pace) -> int:
    """The arena that a pace's sets need."""
    return layout(subject.arguments, pace.places).size_bytes


class PairedSession:
    """Both arms of a subject in one worker; making it lays out the arena and fills every set."""

    def __init__(
        self,
        subject: Subject,
        session: Session,
        seed: str,
        pace: Pace,
        timeout_s: int,
        inputs_seed: str | None = None,
    ) -> None:
        """`inputs_seed` gives several sessions the same inputs; everything else comes from `seed`."""
        self._subject, self._session, self._pace = subject, session, pace
        self._seed, self._timeout_s = seed, timeout_s
        self._inputs_seed = inputs_seed or split(seed, "inputs")
        self._run([program.arena(subject, pace.places, split(seed, "zones"))])
        self._fill([fill for number in range(pace.places) for fill in self._values(number)])

    def set_seed(self, number: int) -> str:
        """The seed of one set's inputs."""
        return program.set_seed(self._inputs_seed, number)

    def inputs(self) -> list[int]:
        """A digest of everything that no launch may change, set by set."""
        return self._digests(program.kept(self._subject), range(self._pace.sets))

    def _digests(self, arguments: Sequence[Argument], sets: Sequence[int]) -> list[int]:
        """One digest an argument, set by set, in one step: many buffers keep every core busy."""
        step = Digest(buffers=tuple(name for number in sets for name in program.buffers(arguments, number)))
        return [value for record in program.only(self._run([step]), Digests) for value in signed(record.values)]

    def known(self, number: int) -> dict[ArmName, Known]:
        """Each arm once on one set, untimed, the candidate first; the outputs are poisoned again after each."""
        found: dict[ArmName, Known] = {}
        outputs = program.buffers(program.outputs(self._subject), number)
        for arm in ARMS:
            steps: tuple[Step, ...] = (
                *self._values(number, again=True),
                *self._poison("before", arm, number),
                program.run(self._subject, arm, number),
                Digest(buffers=outputs),
                *(Read(buffer=name) for name in outputs),
                *self._poison("after", arm, number),
            )
            records = self._session.run(steps, self._timeout_s)
            row = program.only(records, Digests)[0].values
            found[arm] = Known(signed(row), tuple(self._session.taken()))
        return found

    def warm_up(self) -> dict[ArmName, list[int]]:
        """Units of each arm, in turns, until it is warm (R10.1)."""
        units: dict[ArmName, list[int]] = {arm: [] for arm in ARMS}
        turn = 0
        while waiting := [arm for arm in ARMS if not readings.warm(units[arm])]:
            for arm in waiting:
                step = program.warm_up(self._subject, arm, split(self._seed, "warm-up", turn, arm), self._pace)
                self._fill([fill for number in range(self._pace.sets) for fill in self._values(number, again=True)])
                (stamps,) = program.only(self._run([step]), Stamps)
                units[arm] += reading(step, stamps).timed.units_ns
            turn += 1
        return units

    def window(self, number: int) -> Attempt:
        """One window; its number draws its coin, its sets and its poison."""
        candidate_first = coin(split(self._seed, "coin", number))
        return Attempt(candidate_first, self.segments(program.window_arms(candidate_first), "window", number))

    def segments(self, arms: Sequence[ArmName], label: str, number: int) -> tuple[Reading, ...]:
        """Segments in a row, in one message."""
        seed = split(self._seed, label, number)
        steps = program.segments(self._subject, arms, seed, self._inputs_seed, pace=self._pace)
        records = self._session.run(steps, self._timeout_s)
        asked = [step for step in steps if isinstance(step, Segment)]
        return tuple(reading(*pair) for pair in zip(asked, program.only(records, Stamps), strict=True))

    def long_run(self, arm: ArmName, sets: Sequence[int], rounds: int, number: int) -> LongRun:
        """`rounds` passes over each set in a row, timed from the request to go until the answer (R10.9).

        Everything is enqueued before, so that nothing but the passes lies between the two.
        """
        subject, seed = self._subject, split(self._seed, "long", number)
        self._fill([fill for each in sets for fill in self._values(each, again=True)])
        self._fill([fill for each in sets for fill in program.poison(subject, split(seed, each), each)])
        self._run([program.stage(subject, arm, sets, rounds)])
        asked_ns = time.monotonic_ns()
        records = self._session.run([Go(arm=arm)], self._timeout_s)
        parent_ns = time.monotonic_ns() - asked_ns
        (span,) = program.only(records, Spans)
        return LongRun(rounds * len(sets), parent_ns, self._after(sets, span))

    def _after(self, sets: Sequence[int], span: Spans) -> Reading:
        """What a long run left; outputs that are inputs too changed with every pass, so their digests say nothing."""
        repeated = self._subject.buffers("inout")
        digests = self._digests(() if repeated else program.outputs(self._subject), sets)
        width = len(digests) // len(sets)
        rows = tuple(tuple(digests[width * place :][:width]) for place in range(len(sets)))
        (damage,) = program.only(self._run([Zones()]), Damage)
        return Reading(tuple(sets), span.start_ns[0], span.end_ns, rows, damage.bytes, host_bound=False)

    def _values(self, number: int, *, again: bool = False) -> tuple[Fill, ...]:
        return program.inputs(self._subject, self._inputs_seed, number, again=again)

    def _poison(self, when: str, arm: ArmName, number: int) -> tuple[Fill, ...]:
        return program.poison(self._subject, split(self._seed, "known", when, arm, number), number)

    def _fill(self, fills: Sequence[Fill]) -> None:
        for start in range(0, len(fills), _MESSAGE_FILLS):
            self._run([Fills(fills=tuple(fills[start : start + _MESSAGE_FILLS]))])

    def _run(self, steps: Sequence[Step]) -> Sequence[Record]:
        return self._session.run(steps, self._timeout_s)


def probe(paired: PairedSession) -> dict[ArmName, list[int]]:
    """Totals of ABBA segments, of LEAST_UNITS passes each.

    Totals, since a kernel that does the work of a segment in one launch has passes that take next to nothing.
    """
    totals: dict[ArmName, list[int]] = {arm: [] for arm in ARMS}
    for turn in range(PROBE_ROUNDS):
        arms = program.window_arms(candidate_first=bool(turn % 2))
        for arm, found in zip(arms, paired.segments(arms, "probe", turn), strict=True):
            totals[arm].append(found.timed.total_ns)
    return totals
