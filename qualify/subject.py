"""The subject: what one verdict is about, and all that a judge may know of the contract."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from qualify.contract import Argument, Arm, Cell, Numeric, Timing, Variant
from qualify.domain import Domain, Limits
from qualify.model import Document, Segment

Role = Literal["plain", "candidate", "control"]


class Subject(Document):
    """(operation, cell, candidate, incumbent, domain, attempt), frozen when the run is planned.

    `role` is `plain` for the fallback route, which is judged first and never timed: the incumbent of a plain
    subject is itself. A `control` is plain against plain, timed to learn how far identical arms differ (R10.10).
    `moved_bytes` and `operations` are what a pass cannot do without; None leaves bytes to be counted from the
    arguments, and operations unknown. `finalists` were promoted together with this one (R10.7).
    """

    operation: Segment
    domain: Domain
    cell: Cell
    arguments: tuple[Argument, ...]
    variants: tuple[Variant, ...]
    role: Role
    candidate: Arm
    incumbent: Arm
    bits: Literal["own", "identical"]
    numeric: Numeric
    timing: Timing
    limits: Limits
    moved_bytes: int | None = None
    operations: int | None = None
    attempt: Annotated[int, Field(ge=1)] = 1
    finalists: Annotated[int, Field(ge=1)] = 1

    @property
    def key(self) -> tuple[str, str]:
        """Cell and route: the subject's folder in its run."""
        return self.cell.id, self.candidate.route

    @property
    def most_elements(self) -> int:
        """The elements of its largest input or output: no index beyond them is tested (R6.4)."""
        return max((argument.elements for argument in self.buffers("input", "output", "inout")), default=0)

    def buffers(self, *kinds: str) -> tuple[Argument, ...]:
        """The buffer arguments of those kinds, in ABI order."""
        return tuple(argument for argument in self.arguments if argument.kind in kinds)
