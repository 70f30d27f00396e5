"""A cohort: an operation's cells, arguments and routes, read once from the workspace and checked whole."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from qualify.cohort.contents import arguments, cells, cells_where_memory_allows, check_arguments
from qualify.cohort.rows import CohortRow, ComparatorRow, KernelRow, RouteRow
from qualify.cohort.scope import check_formula, fill_in
from qualify.contract import Argument, Cell, ReferenceSource
from qualify.documents import Field, Source, parse_yaml
from qualify.errors import InputError, UsageError
from qualify.files import MAX_FILE_BYTES, read_file
from qualify.identity import content

COHORTS = "cohorts"
CANDIDATES = "candidates"
COMMON = "common"
#: What a pass cannot do without, as formulas of a cell; for gate roofline.
WORK = ("moved_bytes", "operations")
MAX_CANDIDATES = 4096  # Folders under --candidates; more belong into several runs.
_ROUTE = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.+-]{0,62}[A-Za-z0-9_+-])?")
_FUNCTION = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_./-]{0,200}\.py):([A-Za-z_][A-Za-z0-9_]{0,62})")


@dataclass(frozen=True)
class Files:
    """The files of a workspace, each read once, so that what was hashed is what is compiled."""

    workspace: Path
    candidates: Path | None
    data: dict[str, bytes] = field(default_factory=dict)

    def read(self, path: str, limit_bytes: int = MAX_FILE_BYTES) -> bytes:
        """A file below the workspace; `candidates/...` lies below the folder of candidates. Raises InputError."""
        if path not in self.data:
            self.data[path] = self._read(path, limit_bytes)
        return self.data[path]

    def _read(self, path: str, limit_bytes: int) -> bytes:
        prefix = f"{CANDIDATES}/"
        if self.candidates is None or not path.startswith(prefix):
            return read_file(self.workspace, path, limit_bytes)
        try:
            return read_file(self.candidates, path.removeprefix(prefix), limit_bytes)
        except InputError as error:
            where = prefix + error.where
            raise InputError(where, expected=error.expected, got=error.got, fix=error.fix) from error


@dataclass(frozen=True)
class Route:
    """A route as written. `row` is None and `error` says why if it is malformed (R6.7).

    `folder` is where its own fragments start, as a path of the workspace; `field` is where `source` holds it.
    """

    name: str
    folder: str
    source: Source
    field: Field
    row: RouteRow | None
    error: str | None = None


@dataclass(frozen=True)
class Cohort:
    """One operation, checked but for what depends on a domain. Arguments are by cell."""

    operation: str
    source: Source
    row: CohortRow
    cells: tuple[Cell, ...]
    arguments: Mapping[str, tuple[Argument, ...]]
    routes: Mapping[str, Route]
    reference: ReferenceSource
    files: Files
    where_memory_allows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def dispatcher_revision(self) -> int:
        """The dispatcher's own number for this contract."""
        return self.row.dispatcher_revision

    @property
    def inputs(self) -> Mapping[str, bytes]:
        """Every file that was read so far, by path in the workspace."""
        return dict(sorted(self.files.data.items()))

    @property
    def cell_ids(self) -> tuple[str, ...]:
        """The cells, in the order of the file."""
        return tuple(cell.id for cell in self.cells)

    @property
    def route_names(self) -> tuple[str, ...]:
        """The routes: the cohort's in the order of the file, then the candidates' by name."""
        return tuple(self.routes)


def load(workspace: Path, operation: str, *, candidates: Path | None = None) -> Cohort:
    """The cohort of an operation, with every `candidates/<name>/route.yaml` as one more route.

    Raises InputError for a malformed cohort, UsageError for a folder of candidates that is none. A malformed
    candidate is a route that says so.
    """
    files = Files(workspace, candidates)
    folder = f"{COHORTS}/{operation}"
    path = f"{folder}/cohort.yaml"
    source = parse_yaml(path, files.read(path))
    row = source.model(CohortRow)
    _check_whole(source, row, operation)
    made = cells(source, row)
    integers, names = frozenset(made[0].integers), frozenset(made[0].names)
    check_arguments(source, row, integers)
    for work in WORK:
        if (formula := getattr(row, work)) is not None:
            check_formula(source, (work,), formula, integers)
    routes = {name: Route(name, folder, source, ("routes", name), item) for name, item in row.routes.items()}
    for route in routes.values():
        _check_route(route, row, integers, names)
    return Cohort(
        operation=operation,
        source=source,
        row=row,
        cells=made,
        arguments={cell.id: arguments(source, row, cell) for cell in made},
        routes={**routes, **{route.name: route for route in _candidates(files, source, row, made[0], routes)}},
        reference=_reference(source, row, folder, files),
        files=files,
        where_memory_allows=cells_where_memory_allows(source, row),
    )


def _check_whole(source: Source, row: CohortRow, operation: str) -> None:
    """What is said once for the whole cohort. Raises InputError."""
    if row.operation != operation:
        fix = f"write operation: {operation}, or rename the folder"
        raise source.error(("operation",), expected=f"the folder's name, {operation}", got=row.operation, fix=fix)
    if operation in {CANDIDATES, COMMON}:
        expected = f"a name other than {CANDIDATES} and {COMMON}"
        raise source.error(("operation",), expected=expected, got=operation, fix="rename the folder")
    if row.plain not in row.routes:
        expected = f"a route ({', '.join(row.routes)})"
        raise source.error(("plain",), expected=expected, got=row.plain, fix="name the fallback route")
    if row.routes[row.plain].admits is not None:
        where = ("routes", row.plain, "admits")
        fix = "remove admits: plain serves every cell"
        raise source.error(where, expected="plain without admits", got=row.routes[row.plain].admits or "", fix=fix)
    constants = [argument.name for argument in row.arguments if argument.kind == "constant"]
    if sorted(row.state) != sorted(constants):
        expected = f"the arguments that are constants ({', '.join(constants) or 'none'})"
        fix = "name every constant under state, and nothing else: a module keeps no other variables"
        raise source.error(("state",), expected=expected, got=", ".join(row.state) or "none", fix=fix)


def _reference(source: Source, row: CohortRow, folder: str, files: Files) -> ReferenceSource:
    return _python(source, ("reference",), row.reference, folder, files)


def comparators(cohort: Cohort) -> Iterator[tuple[ComparatorRow, ReferenceSource]]:
    """Every comparator with its Python, which nothing but a comparison reads. Raises InputError."""
    folder = f"{COHORTS}/{cohort.operation}"
    for index, row in enumerate(cohort.row.comparators):
        at: Field = ("comparators", index, "source")
        yield row, _python(cohort.source, at, row.source, folder, cohort.files)


def _python(source: Source, at: Field, text: str, folder: str, files: Files) -> ReferenceSource:
    """Trusted Python of the cohort: `file.py:function`. Raises InputError."""
    named = _FUNCTION.fullmatch(text)
    if named is None:
        fix = f"write {at[-1]}: {at[0]}.py:function"
        raise source.error(at, expected="file.py:function", got=text, fix=fix)
    path = f"{folder}/{named[1]}"
    try:
        code = files.read(path)
    except InputError as error:
        got = f"{error.got} at {path}"
        raise source.error(at, expected=error.expected, got=got, fix=error.fix) from error
    return ReferenceSource(path=path, code=code, function=named[2])


# Routes.


def _check_route(route: Route, cohort: CohortRow, integers: frozenset[str], names: frozenset[str]) -> None:
    """What needs neither a cell nor a domain: formulas, placeholders, arguments. Raises InputError."""
    row, source, at = route.row, route.source, route.field
    if row is None:
        return
    for field_, text in _formulas(row, at):
        check_formula(source, field_, text, integers)
    if row.admits is not None:
        check_formula(source, (*at, "admits"), row.admits, integers, "condition")
    stand_ins = dict.fromkeys({*integers, *names, "runtime"}, "x")
    for index, fragment in enumerate(row.fragments):
        fill_in(source, (*at, "fragments", index), fragment, stand_ins)
    for name, value in row.defines.items():
        fill_in(source, (*at, "defines", name), value, stand_ins)
    _check_launched(route, row, cohort)


def _formulas(row: RouteRow, at: Field) -> Iterator[tuple[Field, str]]:
    for index, launch in enumerate(row.launches):
        if isinstance(launch, KernelRow):
            for name in ("grid", "block", "cluster"):
                for axis, text in enumerate(getattr(launch, name) or ()):
                    yield (*at, "launches", index, name, axis), text
            yield (*at, "launches", index, "shared"), launch.shared
            if launch.carve_out is not None:
                yield (*at, "launches", index, "carve_out"), launch.carve_out


def _check_launched(route: Route, row: RouteRow, cohort: CohortRow) -> None:
    """Launches name arguments that exist; a memset writes a buffer that the contract lets a route write."""
    every = [argument.name for argument in cohort.arguments]
    written = [argument.name for argument in cohort.arguments if argument.kind in {"output", "inout", "scratch"}]
    for index, launch in enumerate(row.launches):
        at: Field = (*route.field, "launches", index)
        if isinstance(launch, KernelRow):
            asked = [((*at, "arguments", n), name, every) for n, name in enumerate(launch.arguments or ())]
        else:
            asked = [((*at, "memset"), launch.memset, written)]
        for field_, name, known in asked:
            if name not in known:
                expected = f"one of {', '.join(known) or 'none'}"
                raise route.source.error(field_, expected=expected, got=name, fix="name one of these arguments")


# Candidates.


def _candidates(
    files: Files, cohort: Source, row: CohortRow, cell: Cell, routes: Mapping[str, Route]
) -> Iterator[Route]:
    """One route a folder below the folder of candidates, by name; plain files beside them are passed over."""
    if files.candidates is None:
        return
    for name in _folders(files.candidates):
        if _ROUTE.fullmatch(name) and name not in routes:
            yield _candidate(files, row, cell, name)
            continue
        problem = "is a route of the cohort" if name in routes else "is no route name"
        error = f"{CANDIDATES}/{name!r}: the folder's name {problem}\n  fix: rename the folder"
        yield Route(f"unnamed-{content(os.fsencode(name))[:12]}", CANDIDATES, cohort, (), None, error)


def _folders(candidates: Path) -> list[str]:
    try:
        with os.scandir(candidates) as entries:
            found = sorted(entry.name for entry in entries if entry.is_symlink() or not entry.is_file())
    except OSError as error:
        raise UsageError(
            f"expected a folder of candidates at {candidates}, got {error.strerror}",
            fix="name a folder that holds <name>/route.yaml for each candidate",
        ) from error
    if len(found) > MAX_CANDIDATES:
        raise UsageError(
            f"expected at most {MAX_CANDIDATES} candidates in {candidates}, got {len(found)}",
            fix="split them over several folders and runs",
        )
    return found


def _candidate(files: Files, cohort: CohortRow, cell: Cell, name: str) -> Route:
    """The route of one folder, or why it is none."""
    folder = f"{CANDIDATES}/{name}"
    path = f"{folder}/route.yaml"
    try:
        source = parse_yaml(path, files.read(path))
        route = Route(name, folder, source, (), source.model(RouteRow))
        _check_route(route, cohort, frozenset(cell.integers), frozenset(cell.names))
    except InputError as error:
        return Route(name, folder, Source(path, None, {(): 1}), (), None, str(error))
    return route
