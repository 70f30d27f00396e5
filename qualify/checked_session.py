"""Checked runs of one arm in one measuring session: steps composed, records turned into facts (R9.1 to R9.3)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from qualify import program
from qualify.checked import (
    CROWD_TRIES,
    FIRST_ZONES,
    REPLAYS,
    TWIN_INPUTS,
    CheckedRun,
    Crowd,
    CrowdedRun,
    ReplayedRuns,
    Untouched,
    compares,
    crowds,
    poisoned_outputs,
    sets,
    suspected,
    twin_counts,
)
from qualify.contract import Argument, Variant
from qualify.fill import recipe
from qualify.gate import Session
from qualify.seeds import split
from qualify.steps import (
    ArmName,
    Capture,
    Census,
    Contend,
    Contended,
    Damage,
    Digest,
    Digests,
    Equal,
    Poison,
    Read,
    Record,
    Replay,
    Run,
    Scrub,
    Step,
    Unwritten,
    Zones,
)
from qualify.subject import Subject

#: Work that goes on after a launch returned would show within this time.
IDLE_S = 0.02
#: A run beside a busy queue takes as long as so many alone: the other's work is tried, and comes before and after.
_CROWD_RUNS = 8


class Seen(NamedTuple):
    """One variant in the first session, but for what other sessions add."""

    first: tuple[CheckedRun, ...]
    idle: tuple[str, ...]
    untouched: tuple[Untouched, ...] | None
    replayed: ReplayedRuns | None
    crowded: tuple[CrowdedRun, ...]


class Runner:
    """Checked runs of one arm in one session, whose arena is laid out when this is made."""

    def __init__(
        self,
        subject: Subject,
        session: Session,
        seed: str,
        timeout_s: float,
        *,
        complement: bool,
        placed: Variant = "ordinary",
        arm: ArmName = "candidate",
    ) -> None:
        """`placed` is one of the variants that will run, which are placed alike; `complement` is of the zones."""
        self._subject, self._session, self._arm = subject, session, arm
        self._seed, self._complement, self._timeout_s = seed, complement, timeout_s
        self._filled: dict[int, tuple[Variant, int]] = {}
        self._launched = program.run(subject, arm, variant=placed)
        arena = program.arena(subject, sets(subject), split(seed, "zones"), placed, complement=complement)
        self._compares = compares(subject, arena)
        self._perform([arena])

    def look(self, variant: Variant) -> Seen:
        """The first session: plain runs, a later look at the last outputs, a closer one where needed, then the rest."""
        first = self.runs(variant, FIRST_ZONES)
        time.sleep(IDLE_S)
        idle = program.only(self._perform([_digest(program.outputs(self._subject))]), Digests)[0].values
        doubtful = suspected(poisoned_outputs(self._subject), first)
        untouched = tuple(self._untouched(variant, inputs, output) for inputs, output in doubtful)
        replayed = self._replayed(variant) if self._subject.domain.has_graphs else None
        crowded = tuple(run for beside in crowds(self._subject) for run in self._crowded(variant, beside))
        return Seen(first, idle, untouched or None, replayed, crowded)

    def runs(self, variant: Variant, plan: Sequence[int]) -> tuple[CheckedRun, ...]:
        """One checked run for each entry of the plan; run i + 1 uses the complement of run i's poison."""
        found = (self._checked(variant, number, inputs, "", self._launched) for number, inputs in enumerate(plan))
        return tuple(run for run, _ in found)

    def _replayed(self, variant: Variant) -> ReplayedRuns:
        """One graph on the buffers of set 0, replayed on what is in them then."""
        captured = Capture(arm=self._arm, launches=self._launched.launches, slots=self._launched.slots)
        census = program.only(self._perform([captured]), Census)[0]
        replay = Replay(arm=self._arm)
        runs = (self._checked(variant, number, inputs, "replay", replay)[0] for number, inputs in enumerate(REPLAYS))
        return ReplayedRuns(census=census, runs=tuple(runs))

    def _crowded(self, variant: Variant, beside: Crowd) -> Iterator[CrowdedRun]:
        """Runs beside a queue that does neutral work, or the same launches on set 1, until it was busy throughout."""
        subject, plain = self._subject, self._launched
        twins = beside == "itself"
        contend = Contend(arm=self._arm, launches=plain.launches, slots=plain.slots, beside=1 if twins else None)
        for number in range(CROWD_TRIES):
            label = f"{beside} {number}"
            before = self._prepared(variant, TWIN_INPUTS, split(self._seed, "twin", variant, label), 1) if twins else ()
            run, records = self._checked(variant, 0, 0, label, contend, before)
            (record,) = program.only(records, Contended)
            twin = self._perform([_digest(program.outputs(subject), 1)]) if twins and twin_counts(subject) else ()
            digests = program.only(twin, Digests)
            yield CrowdedRun(beside=beside, busy=record.busy, run=run, twin=digests[0].values if digests else None)
            if record.busy:
                return

    def _untouched(self, variant: Variant, inputs: int, output: Argument) -> Untouched:
        """Run in both polarities once more, and look at every element of an output.

        The device does, where both runs have a set of their own and there is memory to lay elements in a row; else the
        host, which has to be sent them all.
        """
        seed = split(self._seed, "untouched")
        if self._compares:
            count, first = self._compared(variant, inputs, output, seed)
        else:
            count, first = self._read(variant, inputs, output, seed)
        return Untouched(inputs=inputs, output=output.name, elements=count, first_index=first)

    def _compared(self, variant: Variant, inputs: int, output: Argument, seed: str) -> tuple[int, int | None]:
        steps: list[Step] = []
        for number, complement in enumerate((False, True)):
            steps += self._prepared(variant, inputs, seed, number, complement=complement)
            steps.append(self._launched.model_copy(update={"set": number}))
        poison = _poison_of(output, variant, seed)
        steps.append(Unwritten(buffer=f"{output.name}.0", poison=poison, beside=f"{output.name}.1"))
        (found,) = program.only(self._perform(steps, runs=2), Equal)
        return found.elements, found.first_index

    def _read(self, variant: Variant, inputs: int, output: Argument, seed: str) -> tuple[int, int | None]:
        from qualify.comparison import untouched

        read: list[bytes] = []
        for complement in (False, True):
            steps = self._prepared(variant, inputs, seed, complement=complement)
            self._perform([*steps, self._launched, Read(buffer=f"{output.name}.0")])
            read += self._session.taken()
        return untouched(read[0], read[1], _poison_of(output, variant, seed))

    def _checked(
        self,
        variant: Variant,
        number: int,
        inputs: int,
        label: str,
        launched: Run | Replay | Contend,
        before: Sequence[Step] = (),
    ) -> tuple[CheckedRun, Sequence[Record]]:
        """One run of set 0 and its records; runs of another `label` have poison of their own."""
        subject, complement = self._subject, number % 2 == 1
        kept, outputs, plain = program.kept(subject), program.outputs(subject), poisoned_outputs(subject)
        seed = split(self._seed, "poison", variant, int(self._complement), label, number // 2)
        fills = program.poison(subject, seed, complement=complement)
        poisons = {fill.buffer: fill.recipe for fill in fills if isinstance(fill.recipe, Poison)}
        records = self._perform(
            [
                *before,
                *self._prepared(variant, inputs, seed, complement=complement),
                _digest(kept),
                launched,
                _digest(outputs),
                _digest(kept),
                Zones(),
                *(Unwritten(buffer=name, poison=poisons[name]) for name in program.buffers(plain)),
                Scrub(seed=split(seed, "after", number)),
                _digest(outputs),
            ],
            _CROWD_RUNS if isinstance(launched, Contend) else 1,
        )
        digests = [record.values for record in program.only(records, Digests)]
        run = CheckedRun(
            inputs=inputs,
            complement=complement,
            kept_before=digests[0],
            outputs=digests[1],
            kept_after=digests[2],
            damage=program.only(records, Damage)[0],
            poisoned=tuple(record.elements for record in program.only(records, Equal)),
            later=digests[3],
        )
        return run, records

    def _prepared(
        self, variant: Variant, inputs: int, seed: str, number: int = 0, *, complement: bool = False
    ) -> tuple[Step, ...]:
        """One set ready for a run.

        Shared memory scrubbed with a pattern of this run's own, outputs and scratch poisoned, inputs filled where
        the set's last run had others.
        """
        again, self._filled[number] = self._filled.get(number) == (variant, inputs), (variant, inputs)
        # A module has its constants once, for both of two sets that are in use at the same time.
        own = program.set_seed(split(self._seed, "inputs", variant), inputs)
        values = program.values(self._subject, variant, own, number, again=again)
        scrub = Scrub(seed=split(seed, "shared", int(complement)))
        return (scrub, *values, *program.poison(self._subject, seed, number, complement=complement))

    def _perform(self, steps: Sequence[Step], runs: int = 1) -> Sequence[Record]:
        return self._session.run(steps, runs * self._timeout_s)


def _poison_of(output: Argument, variant: Variant, seed: str) -> Poison:
    poison = recipe(output, variant, seed)
    if not isinstance(poison, Poison):
        raise ValueError(f"{output.name} holds no poison")
    return poison


def _digest(arguments: Sequence[Argument], number: int = 0) -> Digest:
    return Digest(buffers=program.buffers(arguments, number))
