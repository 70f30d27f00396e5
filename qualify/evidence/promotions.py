"""Attempts: a promotion is the k-th that was opened for a cell in a domain against an incumbent (R10.7).

All plain routes of a cell are one incumbent here, and a cell is known by its name and by what it is: otherwise a
reworded comment in plain, or another name for the cell, would buy a first attempt again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from qualify.contract import Cell
from qualify.domain import Domain
from qualify.plan import Plan
from qualify.subject import Subject


@dataclass(frozen=True)
class Contest:
    """What attempts are counted for. `incumbent` is None where it is the plain route."""

    operation: str
    domain: Domain
    cell: Cell
    incumbent: str | None

    def same_as(self, other: Contest) -> bool:
        """Whether an attempt at one is an attempt at the other."""
        where = (self.operation, self.domain, self.incumbent) == (other.operation, other.domain, other.incumbent)
        mine, its = self.cell, other.cell
        return where and (mine.id == its.id or (mine.integers, mine.names) == (its.integers, its.names))


def contest(subject: Subject, plain_identity: str | None) -> Contest:
    """The contest of a candidate; `plain_identity` is the module of its cell's plain route."""
    incumbent = subject.incumbent.identity
    return Contest(subject.operation, subject.domain, subject.cell, None if incumbent == plain_identity else incumbent)


def contests(plan: Plan) -> Iterator[tuple[Contest, Subject]]:
    """Each candidate of a promotion with its contest; none for a plan of another command."""
    if plan.command != "promote":
        return
    subjects = [planned.subject for planned in plan.subjects]
    plain = {subject.cell.id: subject.candidate.identity for subject in subjects if subject.role == "plain"}
    for subject in subjects:
        if subject.role == "candidate":
            yield contest(subject, plain.get(subject.cell.id)), subject


def attempt(wanted: Contest, plans: Iterable[Plan]) -> int:
    """The number of the next attempt, after every promotion among some plans, whatever became of it."""
    return 1 + sum(any(wanted.same_as(one) for one, _ in contests(plan)) for plan in plans)


class Promotions:
    """The promotions of a store and which of them were on record before which."""

    def __init__(self, plans: Mapping[str, Plan]) -> None:
        self._plans = plans
        self._runs = sorted(run for run, plan in plans.items() if plan.command == "promote")

    def miscounted(self, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Run and reason for each promotion that counts too few. `names` tells the run of each record's digest."""
        if not self._runs:
            return
        before = self._before(names)
        for run in self._runs:
            earlier = [self._plans[name] for bit, name in enumerate(self._runs) if before[run] >> bit & 1]
            for wanted, subject in contests(self._plans[run]):
                least = attempt(wanted, earlier)
                if subject.attempt < least:
                    cell, route = subject.key
                    yield run, f"{cell}/{route}: expected attempt {least}, got {subject.attempt}"

    def _before(self, names: Mapping[str, str]) -> dict[str, int]:
        """For each run, the promotions that its plan comes after, at any distance, as bits."""
        own = {run: 1 << bit for bit, run in enumerate(self._runs)}
        before: dict[str, int] = {}
        for start in self._runs:
            waiting = [start]
            while waiting:
                run = waiting[-1]
                parents = {names[digest] for digest in self._plans[run].after if digest in names}
                missing = [] if run in before else [parent for parent in parents if parent not in before]
                before.setdefault(run, 0)  # A forged circle ends here.
                waiting += missing
                if not missing:
                    waiting.pop()
                    for parent in parents:
                        before[run] |= before[parent] | own.get(parent, 0)
        return before
