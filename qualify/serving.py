"""`qualify select` and `export`: what a dispatcher launches for one cell, or for every cell of an operation.

A time belongs to the board that it was taken on: for any other that is named an admission is at most `proven` (R7.1).
Both read files only: no device, no worker, no code of the workspace (R6.9, R12.4).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from qualify import cohort
from qualify.admission import Admission, Parts
from qualify.anchors import Anchors
from qualify.cohort import Cohort
from qualify.contract import Cell
from qualify.domain import Domain
from qualify.errors import Exit, UsageError, worst
from qualify.live import standings
from qualify.model import Json, canonical_bytes
from qualify.standing import Standing
from qualify.workspace import check_operation, evidence_root

Form = Literal["json", "c"]


def select(workspace: Path, operation: str, cell: str, domain: str, board: str | None = None) -> Exit:
    """Print what a dispatcher launches for a cell as canonical JSON: the admitted route while it is open, else plain.

    DONE if nothing is closed, REJECTED or EVIDENCE if the cell has an admission that does not hold. Raises UsageError
    for an operation or a cell that is not there and for what is no domain.
    """
    item, where = _loaded(workspace, operation, domain)
    wanted = next((each for each in item.cells if each.id == cell), None)
    if wanted is None:
        raise UsageError(
            f"expected a cell of {operation} ({', '.join(item.cell_ids)}), got {cell}", fix="name one of them"
        )
    anchors = Anchors(evidence_root(workspace))
    found = next(each for each in standings(item, where, None, anchors, cells={cell}, board=board))
    sys.stdout.write(canonical_bytes(_selected(item, wanted, found, board)).decode())
    return _code(found)


def export(workspace: Path, operation: str, domain: str, form: Form, board: str | None = None) -> Exit:
    """Print what serves every cell of an operation, as JSON or as a C header: what `select` says of each.

    DONE if nothing is closed, else REJECTED or EVIDENCE, and plain stands where an admission does not hold. Raises
    UsageError as `select` does, and for names that are one in C.
    """
    item, where = _loaded(workspace, operation, domain)
    found = standings(item, where, None, Anchors(evidence_root(workspace)), board=board)
    cells = {cell.id: cell for cell in item.cells}
    served = [(cells[each.cell], each) for each in found if each.cell in cells]
    chosen = [(cell, _selected(item, cell, each, board)) for cell, each in served]
    if form == "json":
        sys.stdout.write(canonical_bytes({cell.id: selected for cell, selected in chosen}).decode())
    else:
        for line in _header(item, where, chosen):
            print(line)
    return worst({_code(each) for each in found})


def _header(item: Cohort, domain: Domain, chosen: Sequence[tuple[Cell, dict[str, Json]]]) -> Iterator[str]:
    """A C header: the routes, and a row a cell with its extents, the route, and the identity of what was admitted."""
    name = item.operation
    routes = {str(selected["route"]): "" for _, selected in chosen}
    routes = {route: f"{name}_{re.sub('[^A-Za-z0-9]', '_', route)}".upper() for route in routes}
    if len(set(routes.values())) < len(routes):
        raise UsageError(f"expected routes that differ in C, got {', '.join(routes)}", fix="rename one of them")
    extents = [each for each in chosen[0][0].integers if all(each in cell.integers for cell, _ in chosen)]
    yield f"/* What serves each cell of {name} in {domain}: dispatcher revision {item.dispatcher_revision}."
    yield "   Written by qualify export; identity is 0 where plain serves without an admission. */"
    yield f"enum {name}_route {{ {', '.join(routes.values())} }};"
    fields = "".join(f" long long {each};" for each in extents)
    yield f"struct {name}_cell {{ const char *cell;{fields} enum {name}_route route; const char *identity; }};"
    yield f"static const struct {name}_cell {name}_cells[] = {{"
    for cell, selected in chosen:
        identity = selected.get("identity")
        values = [f'"{cell.id}"', *(str(cell.integers[each]) for each in extents), routes[str(selected["route"])]]
        values.append(f'"{identity}"' if identity else "0")
        yield f"    {{{', '.join(values)}}},"
    yield "};"


def _code(found: Standing) -> Exit:
    if found.admission is None or found.is_open:
        return Exit.DONE
    return Exit.EVIDENCE if found.unproven else Exit.REJECTED


def _loaded(workspace: Path, operation: str, domain: str) -> tuple[Cohort, Domain]:
    check_operation(workspace, operation)
    return cohort.load(workspace, operation), _domain(domain)


def _domain(text: str) -> Domain:
    toolkit, _, arch = text.partition("/")
    try:
        return Domain.model_validate({"toolkit": toolkit, "arch": arch})
    except ValueError as error:
        raise UsageError(
            f"expected a domain such as pocl-3.0/znver3, got {text}", fix="name a toolkit and an architecture"
        ) from error


def _selected(item: Cohort, cell: Cell, found: Standing, board: str | None) -> dict[str, Json]:
    """Everything that a dispatcher needs to build and launch, and why if it is not what was admitted."""
    made = {
        "operation": found.operation,
        "cell": found.cell,
        "domain": str(found.domain),
        "dispatcher_revision": item.dispatcher_revision,
        "route": found.route,
        "closed": list(found.reasons),
    }
    if found.admission is not None and found.is_open:
        return {**made, **_of_admission(found.admission, board)}
    plain = cohort.compose(item, cell, item.routes[found.plain], found.domain, "")
    if plain.composed is None or plain.arm is None:
        error = plain.arm.error if plain.arm else plain.falls_back
        raise UsageError(f"plain of {found} cannot be composed: {error}", fix="mend the plain route")
    module = plain.composed.module
    launches = [launch.model_dump(mode="json") for launch in module.launches]
    return {**made, "kind": "plain", "launches": launches, **Parts.of(module).model_dump(mode="json")}


def _of_admission(admission: Admission, board: str | None) -> dict[str, Any]:
    candidate, elsewhere = admission.subject.candidate, board not in (None, admission.board_name)
    return {
        "kind": "proven" if elsewhere else admission.kind,
        "identity": candidate.identity,
        "launches": [launch.model_dump(mode="json") for launch in candidate.launches],
        **admission.candidate.model_dump(mode="json"),
        "toolkit_build": admission.toolkit_build,
        "board": admission.board.name if admission.board else None,
        "trust": admission.subject.domain.trust,
        "elements": admission.subject.most_elements,
        "bound": None if elsewhere else admission.bound,
        "run": admission.run,
        "manifest_sha256": admission.manifest_sha256,
    }
