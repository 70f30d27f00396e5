"""`qualify check` and `status`: what is admitted, what is closed and by what.

Both read files only: no device, no worker, no code of the workspace (R6.9, R12.3).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from qualify import admission as admissions
from qualify import edited
from qualify.anchors import Anchors
from qualify.differences import Difference
from qualify.domain import Domain
from qualify.edited import Sources
from qualify.errors import Exit, InputError, worst
from qualify.evidence.problems import printable
from qualify.evidence.spread import spread
from qualify.garbage import uncollected
from qualify.standing import Standing
from qualify.workspace import check_operation, evidence_root, operations

MANY_BYTES = 256 << 10  # A hundred admissions.
NO_BUILD = "the toolkit's build is not compared here; screen and promote compare it where the toolkit is"


def check(workspace: Path, operation: str | None) -> Exit:
    """Print every closed admission with what closed it, and what else the same edit closed.

    REJECTED if one is closed, EVIDENCE if what one rests on does not hold. Raises UsageError for an operation that is
    not there, InputError for admissions that promote did not write.
    """
    anchors = Anchors(evidence_root(workspace))
    sources, names = Sources(workspace, anchors), _admitted(workspace, operation)

    def work(number: int) -> bytes:
        return _told([each for each in _standings(workspace, names[number], anchors, sources) if each.admission])

    with uncollected():
        told = [json.loads(each) for each in spread(work, len(names), _processes(workspace))]
    admitted, closed = (sum(each[what] for each in told) for what in ("admitted", "closed"))
    if not admitted:
        print("no admission: plain serves every cell")
        return Exit.DONE
    for line in _causes(each["causes"] for each in told):
        print(printable(line))
    print(f"{admitted - closed} open, {closed} closed; {NO_BUILD}")
    return worst({Exit(code) for each in told for code in each["exits"]})


def _processes(workspace: Path) -> int | None:
    """One for few admissions, which are read before a second one has started; else one a core, ready to read."""
    files = (workspace / "cohorts").glob("*/admissions/*.json")
    if sum(path.lstat().st_size for path in files) < MANY_BYTES:
        return 1
    admissions.prepare()
    return None


def _admitted(workspace: Path, operation: str | None) -> tuple[str, ...]:
    """The operations that have admissions, with or without a cohort."""
    found = {path.parent.parent.name for path in (workspace / "cohorts").glob("*/admissions/*.json")}
    if operation is None:
        return tuple(sorted(found))
    check_operation(workspace, operation)
    return (operation,) if operation in found else ()


def _standings(workspace: Path, operation: str, anchors: Anchors, sources: Sources) -> Iterator[Standing]:
    """Every admitted cell of an operation in every domain; others too, where something has to be composed again."""
    for domain in admissions.domains(workspace, operation):
        found = admissions.read(workspace, operation, domain)
        told = edited.standings(operation, domain, found, anchors, sources)
        yield from _composed(workspace, operation, domain, found, anchors) if told is None else told


def _composed(
    workspace: Path, operation: str, domain: Domain, found: admissions.Admissions, anchors: Anchors
) -> Iterable[Standing]:
    """The cells against the workspace as it is; all are closed if the cohort cannot be read."""
    from qualify import cohort
    from qualify.live import standings

    try:
        item = cohort.load(workspace, operation)
    except InputError as error:
        return _broken(operation, domain, found, error)
    return standings(item, domain, None, anchors, found=found)


def _broken(operation: str, domain: Domain, found: admissions.Admissions, error: InputError) -> Iterator[Standing]:
    moved = (Difference(error.where, error.expected, error.got),)
    for cell, (*_, newest) in found.items():
        yield Standing(operation, domain, cell, newest.plain_route, newest, moved=moved)


def _told(admitted: Sequence[Standing]) -> bytes:
    """What is printed of an operation's admissions, as JSON: each cause with every cell that it closes."""
    closed = [each for each in admitted if not each.is_open]
    causes: dict[str, list[str]] = {}
    for each in closed:
        for reason in each.reasons:
            line = f"  closes {each}: {_identities(each)}; {each.plain} serves it"
            causes.setdefault(reason, []).append(line)
    exits = sorted({Exit.EVIDENCE if each.unproven else Exit.REJECTED for each in closed})
    told = {"admitted": len(admitted), "closed": len(closed), "causes": list(causes.items()), "exits": exits}
    return json.dumps(told).encode("ascii")


def _causes(told: Iterable[Sequence[tuple[str, list[str]]]]) -> Iterator[str]:
    """Each cause once: the fragment that moved, then the neighbours of the edit, of all operations."""
    merged: dict[str, list[str]] = {}
    for causes in told:
        for reason, lines in causes:
            merged.setdefault(reason, []).extend(lines)
    for reason, lines in merged.items():
        yield from (reason, *lines)


def _identities(each: Standing) -> str:
    """The admitted route with its identity, and what its sources give now."""
    if each.admission is None:
        return "nothing"
    was, now = str(each.admission.subject.candidate.identity), each.live_identity or "nothing"
    return f"{each.admission.route} of {was[:16]}" + ("" if was == now else f", now {now[:16]}")


# Status -------------------------------------------------------------------------------------------------------------


def status(workspace: Path, operation: str | None, now: datetime) -> Exit:
    """Print every cell in every domain: what serves it, measured or proven on which board, or closed, age and why."""
    from rich.console import Console
    from rich.table import Table

    view = Table(title_justify="left")
    for column in ("operation", "cell", "domain", "served by", "admission", "elements", "age", "board", "why"):
        view.add_column(column, no_wrap=column != "why")
    anchors = Anchors(evidence_root(workspace))
    if operation is not None:
        check_operation(workspace, operation)
    for each in _all(workspace, operation, anchors):
        kind, tested, age = _kind(each), _tested(each), _age(each, now)
        board, why = printable(_boards(each)), printable("; ".join(each.reasons))
        view.add_row(each.operation, each.cell, str(each.domain), each.route, kind, tested, age, board, why)
    Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 160).print(view)
    print(NO_BUILD)
    return Exit.DONE


def _all(workspace: Path, operation: str | None, anchors: Anchors) -> Iterator[Standing]:
    """Every cell of every operation in every domain that is planned or has admissions."""
    from qualify import cohort, pipeline
    from qualify.live import standings

    planned = pipeline.load(workspace).domains
    for name in operations(workspace) if operation is None else (operation,):
        item, with_admissions = cohort.load(workspace, name), admissions.domains(workspace, name)
        toolkits = {domain.toolkit for domain in with_admissions}
        more = (Domain(toolkit=each.toolkit, arch=each.arch) for each in planned)
        without = (each for each in more if not (each.arch == "native" and each.toolkit in toolkits))
        for domain in dict.fromkeys((*with_admissions, *without)):
            yield from standings(item, domain, None, anchors)


def _kind(each: Standing) -> str:
    if each.admission is None:
        return "none"
    if not each.is_open:
        return "closed"
    if each.admission.kind == "proven" or each.admission.bound is None:
        return each.admission.kind
    return f"measured, at least {each.admission.bound} x"


def _tested(each: Standing) -> str:
    """How many elements of one buffer the admitted route was tested with."""
    return "" if each.admission is None else str(each.admission.subject.most_elements)


def _boards(each: Standing) -> str:
    """The board that the admission belongs to, and what the same bytes are on others."""
    if each.admission is None:
        return ""
    return "; ".join((each.admission.board_name, *(f"{other.kind} on {other.board_name}" for other in each.beside)))


def _age(each: Standing, now: datetime) -> str:
    if each.admission is None:
        return ""
    try:
        age = now - datetime.strptime(each.admission.admitted_utc, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return "unknown"
    return f"{age.days} d" if age.days else f"{age.seconds // 3600} h"
