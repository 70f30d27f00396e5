"""What serves one cell today, and why: an admission that holds, or plain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from qualify.admission import Admission, in_force
from qualify.differences import Difference
from qualify.domain import Domain


@dataclass(frozen=True)
class Standing:
    """One cell in one domain: the route that serves it, its admission if it has one, and what closes that.

    `live_identity` is that of the admitted route's module today, None where it cannot be composed. `moved` is what is
    not as admitted, `withdrawn` why the run may not be relied on, `unproven` what is wrong with the
    evidence. `beside` are admissions of the same bytes on other boards that hold too.
    """

    operation: str
    domain: Domain
    cell: str
    plain: str
    admission: Admission | None = None
    live_identity: str | None = None
    moved: tuple[Difference, ...] = ()
    withdrawn: str | None = None
    unproven: tuple[str, ...] = ()
    beside: tuple[Admission, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether an admission is in force here and holds."""
        return self.admission is not None and not (self.moved or self.withdrawn is not None or self.unproven)

    @property
    def route(self) -> str:
        """What is selected: the admitted route while it is open, else plain."""
        return self.admission.route if self.admission is not None and self.is_open else self.plain

    @property
    def reasons(self) -> tuple[str, ...]:
        """Everything that closes the admission."""
        withdrawn = () if self.withdrawn is None else (f"its run was withdrawn: {self.withdrawn}",)
        return (*(f"evidence: {text}" for text in self.unproven), *withdrawn, *map(str, self.moved))

    def __str__(self) -> str:
        return f"{self.operation} {self.cell} in {self.domain}"


def standing(of_cell: tuple[Admission, ...], make: Callable[[Admission], Standing], board: str | None) -> Standing:
    """The first admission that may be in force and holds, as `make` finds it; the newest where none does."""
    found = [make(each) for each in in_force(of_cell, board)]
    holding = [each for each in found if each.is_open]
    if not holding:
        return next(each for each in found if each.admission == of_cell[-1])
    first, *rest = holding
    if not rest:
        return first
    return replace(first, beside=tuple(each.admission for each in rest if each.admission is not None))


def closed(standing: Standing) -> str:
    """Why plain is the incumbent of a cell that has an admission."""
    admitted = standing.admission.route if standing.admission else "nothing"
    return f"{standing}: {admitted} is closed, {standing.plain} is the incumbent: {'; '.join(standing.reasons)}"
