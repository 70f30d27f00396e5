"""Checks and the outcome that they imply. No gate can set an outcome."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from qualify.model import Document

Outcome = Literal["pass", "fail", "inconclusive"]


class Check(Document):
    """One comparison: what was found, what was wanted, whether it holds; None is unknown."""

    name: str
    got: str | None
    want: str
    holds: bool | None


class Note(Document):
    """A finding. It is printed wherever the verdict is, and decides nothing."""

    name: str
    got: str
    says: str


class Verdict(Document):
    """The checks of one gate on one subject."""

    checks: tuple[Check, ...]
    notes: tuple[Note, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """Fail if any check is false; else inconclusive if there is none or any is unknown; else pass."""
        if any(check.holds is False for check in self.checks):
            return "fail"
        return "pass" if self.checks and all(check.holds for check in self.checks) else "inconclusive"


def combine(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome of several gates: fail if any fails, else pass if there are some and all pass."""
    seen = tuple(outcomes)
    if "fail" in seen:
        return "fail"
    return "pass" if seen and all(outcome == "pass" for outcome in seen) else "inconclusive"
