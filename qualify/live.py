"""Admissions against the live workspace: each cell's contract and arms composed again and compared (R12.2).

Nothing here runs code of the workspace, starts a worker or looks at a device. An admission is open only if everything
that it says is still so, its run is in the store with the digest that it names, and nobody withdrew the run.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection

from qualify import admission as admissions
from qualify import cohort
from qualify.admission import Admission, Reference, Side
from qualify.anchors import Anchors
from qualify.contract import Cell
from qualify.differences import Difference, Live, LiveArm, differences
from qualify.domain import Domain, Limits
from qualify.standing import Standing, standing

_NOT_COMPARED = Limits(source="not compared")


def standings(
    item: cohort.Cohort,
    domain: Domain,
    toolkit_build: str | None,
    anchors: Anchors,
    cells: Collection[str] | None = None,
    found: admissions.Admissions | None = None,
    board: str | None = None,
) -> tuple[Standing, ...]:
    """Every cell of a cohort in a domain, then admitted cells that are gone; or the named cells only.

    `found` are its admissions, if they were read already; else they are an input of the run that follows. Where
    several boards have admissions of one route, that of `board` comes first.

    `toolkit_build` is what is installed here, None where that is not known: then it is not compared. Raises InputError
    for a malformed file of admissions.
    """
    reader = _Reader(item, domain, toolkit_build)
    found = read(item, domain) if found is None else found
    known = dict.fromkeys(item.cell_ids)
    wanted = [cell for cell in known | dict.fromkeys(found) if cells is None or cell in cells]
    return tuple(_standing(reader, cell, found.get(cell, ()), anchors, board) for cell in wanted)


def read(item: cohort.Cohort, domain: Domain) -> admissions.Admissions:
    """The admissions of an operation in a domain; reading makes the file an input of the run that follows."""
    path = admissions.path_of(item.operation, domain)
    if not os.path.lexists(item.files.workspace / path):
        return {}
    return admissions.parse(path, item.files.read(path, admissions.MAX_ADMISSIONS_BYTES))


def _standing(
    reader: _Reader, cell: str, of_cell: tuple[Admission, ...], anchors: Anchors, board: str | None
) -> Standing:
    operation, plain = reader.item.operation, reader.item.row.plain

    def make(admission: Admission) -> Standing:
        live_identity, moved = reader.moved(cell, admission)
        withdrawn = anchors.withdrawn(admission.run)
        unproven = anchors.problems(admission, operation, reader.domain, cell)
        return Standing(operation, reader.domain, cell, plain, admission, live_identity, moved, withdrawn, unproven)

    return standing(of_cell, make, board) if of_cell else Standing(operation, reader.domain, cell, plain)


class _Reader:
    """The live side of a cohort in a domain; each route of a cell is composed once."""

    def __init__(self, item: cohort.Cohort, domain: Domain, toolkit_build: str | None) -> None:
        self.item, self.domain, self.toolkit_build = item, domain, toolkit_build
        self._cells = {cell.id: cell for cell in item.cells}
        self._reference = reference(item)
        self._made: dict[tuple[str, str, str], LiveArm] = {}

    def moved(self, cell: str, admission: Admission) -> tuple[str | None, tuple[Difference, ...]]:
        """The admitted route's identity now, and what is not as admitted."""
        live = self._cells.get(cell)
        if live is None:
            return None, (Difference(f"cell {cell}", "admitted", "gone"),)
        build = self.toolkit_build or admission.toolkit_build
        arms = tuple(self._arm(live, side, build) for side in admission.sides)
        candidate, incumbent = admission.subject.candidate, admission.subject.incumbent
        subject = cohort.subject(self.item, self.domain, _NOT_COMPARED, live, candidate, incumbent)
        found = Live(subject, arms, self._reference, self.item.dispatcher_revision)
        identity = arms[0].arm.identity if arms[0].arm else None
        return identity, differences(admission, found)

    def _arm(self, cell: Cell, side: Side, build: str) -> LiveArm:
        key = (cell.id, side.arm.route, build)
        if key not in self._made:
            self._made[key] = self._compose(cell, side.arm.route, build)
        return self._made[key]

    def _compose(self, cell: Cell, name: str, build: str) -> LiveArm:
        route = self.item.routes.get(name)
        if route is None:
            return LiveArm(None, why=f"no route of {self.item.source.where}")
        found = cohort.compose(self.item, cell, route, self.domain, build)
        why = "" if found.falls_back is None else f"not for this cell: it admits only {found.falls_back}"
        return LiveArm(found.arm, found.composed.module if found.composed else None, why)


def reference(item: cohort.Cohort) -> Reference:
    """The exact reference as it is now."""
    source = item.reference
    return Reference(path=source.path, function=source.function, sha256=hashlib.sha256(source.code).hexdigest())
