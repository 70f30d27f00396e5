"""What a run is about: the subjects of a cohort in a domain, plain first in each cell, and what falls back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qualify.arena import layout
from qualify.cohort.cohort import WORK, Cohort
from qualify.cohort.composition import Composition, compose
from qualify.cohort.scope import Scope
from qualify.contract import Argument, Arm, Cell, Composed, ReferenceSource, Variant
from qualify.domain import Domain, Limits
from qualify.elements import DTYPES
from qualify.subject import Subject

if TYPE_CHECKING:  # A check composes and plans nothing: it starts without the words of workers.
    from qualify.plan import FallsBack, LeftOut


@dataclass(frozen=True)
class Selection:
    """Subjects with the modules of their arms by identity; routes that do not apply to a cell are on record."""

    subjects: tuple[Subject, ...]
    falls_back: tuple[FallsBack, ...]
    left_out: tuple[LeftOut, ...]
    composed: Mapping[str, Composed]
    reference: ReferenceSource


def subjects(
    cohort: Cohort,
    domain: Domain,
    limits: Limits,
    toolkit_build: str,
    *,
    cells: Collection[str] | None = None,
    routes: Collection[str] | None = None,
    incumbents: Mapping[str, str] | None = None,
) -> Selection:
    """The subjects of the named cells and routes, or of all; none if the filters leave no route of a cell.

    Plain is a subject of every cell that has one, named or not: a candidate is judged in a cell whose plain route was
    judged before it. The incumbent of a cell is plain, or the route that `incumbents` names because it is admitted
    and open there; an incumbent is no candidate. A cell that says `where_memory_allows` is left out, on record, where
    the device has too little or does not say.
    """
    selecting = _Selecting(cohort, domain, limits)
    admitted = incumbents or {}
    planned: list[Subject] = []
    falls_back: list[FallsBack] = []
    left_out: list[LeftOut] = []
    composed: dict[str, Composed] = {}
    for cell in cohort.cells:
        if cells is not None and cell.id not in cells:
            continue
        too_large = selecting.left_out(cell)
        if too_large is not None:
            left_out.append(too_large)
            continue
        found = {
            name: compose(cohort, cell, route, domain, toolkit_build)
            for name, route in cohort.routes.items()
            if routes is None or name in routes or name in (cohort.row.plain, admitted.get(cell.id))
        }
        falls_back += _falls_back(cell, found)
        of_cell = selecting.subjects(cell, found, routes, admitted.get(cell.id, cohort.row.plain))
        planned += of_cell
        wanted = {arm.identity for one in of_cell for arm in (one.candidate, one.incumbent)}
        made = (item.composed for item in found.values() if item.composed is not None)
        composed |= {each.identity: each for each in made if each.identity in wanted}
    return Selection(tuple(planned), tuple(falls_back), tuple(left_out), composed, cohort.reference)


def _falls_back(cell: Cell, found: Mapping[str, Composition]) -> list[FallsBack]:
    from qualify.plan import FallsBack

    return [
        FallsBack(cell=cell.id, route=name, admits=item.falls_back)
        for name, item in found.items()
        if item.falls_back is not None
    ]


@dataclass(frozen=True)
class _Selecting:
    """A cohort in a domain on a target with these limits."""

    cohort: Cohort
    domain: Domain
    limits: Limits

    def left_out(self, cell: Cell) -> LeftOut | None:
        """The record of a cell that says `where_memory_allows` and has no subject here."""
        runtimes = self.cohort.where_memory_allows.get(cell.id)
        reason = None if runtimes is None else self._too_large(cell, runtimes)
        if reason is None:
            return None
        from qualify.plan import LeftOut

        return LeftOut(cell=cell.id, reason=reason)

    def _too_large(self, cell: Cell, runtimes: tuple[str, ...]) -> str | None:
        """Why a cell is not planned here; unknown memory allows nothing."""
        if self.domain.runtime not in runtimes:
            return f"is planned on {', '.join(runtimes)} only"
        need, have = layout(self.cohort.arguments[cell.id], 1).size_bytes, self.limits.memory_bytes
        if have is None:
            return f"needs {need} bytes of memory, and how much is there is unknown"
        return None if need <= have else f"needs {need} bytes of memory, and {have} are there"

    def subjects(
        self, cell: Cell, found: Mapping[str, Composition], wanted: Collection[str] | None, selected: str
    ) -> list[Subject]:
        """Plain, then the wanted routes; none if nothing wanted applies, or if plain itself does not."""
        plain = self.cohort.row.plain
        arms = {name: item.arm for name, item in found.items() if item.arm is not None}
        named = [name for name in arms if wanted is None or name in wanted]
        if not named or plain not in arms:
            return []
        rivals = [name for name in named if name not in (plain, selected)]
        pairs = [(arms[plain], arms[plain]), *((arms[name], arms[selected]) for name in rivals)]
        return [self._subject(cell, candidate, incumbent) for candidate, incumbent in pairs]

    def _subject(self, cell: Cell, candidate: Arm, incumbent: Arm) -> Subject:
        return subject(self.cohort, self.domain, self.limits, cell, candidate, incumbent)


def subject(cohort: Cohort, domain: Domain, limits: Limits, cell: Cell, candidate: Arm, incumbent: Arm) -> Subject:
    """One subject of a cell, with its contract as the cohort states it. Raises InputError for a formula."""
    arguments, row, scope = cohort.arguments[cell.id], cohort.row, Scope(cohort.source, cell)
    work = {name: text for name in WORK if (text := getattr(row, name)) is not None}
    return Subject(
        operation=cohort.operation,
        domain=domain,
        cell=cell,
        arguments=arguments,
        variants=variants(arguments),
        role="plain" if candidate.route == row.plain else "candidate",
        candidate=candidate,
        incumbent=incumbent,
        bits=row.bits,
        numeric=row.numeric,
        timing=row.timing,
        limits=limits,
        **{name: scope.integer((name,), text, least=1) for name, text in work.items()},
    )


def variants(arguments: Collection[Argument]) -> tuple[Variant, ...]:
    """`ordinary`; `exceptional` where a float goes in: NaN, infinities, zeros, denormals, extremes (R6.4).

    `strided` where scalars tell strides.
    """
    floats = any(
        item.kind in {"input", "inout", "constant"} and DTYPES[item.dtype].kind == "float" for item in arguments
    )
    told = any(item.stride is not None for item in arguments)
    return ("ordinary", *(("exceptional",) if floats else ()), *(("strided",) if told else ()))
