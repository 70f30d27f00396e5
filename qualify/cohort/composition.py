"""A route in a cell of a domain, composed: fragments read, closure checked, formulas resolved, identity computed.

A route that cannot be composed is data: an arm without an identity, with the error (R6.2a).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from qualify.cohort.cohort import CANDIDATES, COHORTS, COMMON, Cohort, Files, Route
from qualify.cohort.rows import KernelRow, LaunchRow, RouteRow
from qualify.cohort.scope import Scope
from qualify.contract import Argument, Arm, Cell, Composed, FragmentRef, Kernel, Launch, Memset, Module
from qualify.documents import Field
from qualify.domain import Domain
from qualify.errors import InputError
from qualify.identity import content, identify
from qualify.includes import IncludeError, is_listed, scan

#: Options that carry no path, start no other tool and choose no target, by frontend; anything else is refused (R6.3).
_OPTIONS = {
    "cuda": re.compile(
        r"--?(use_fast_math|extra-device-vectorization|restrict|device-int128|std=c\+\+(11|14|17|20)"
        r"|maxrregcount=[0-9]{1,3}|(ftz|prec-div|prec-sqrt|fmad)=(true|false)|default-device|generate-line-info|lineinfo)"
    ),
    "opencl": re.compile(r"-cl-[a-z0-9-]+(=[A-Za-z0-9.]+)?|-w|-Werror"),
    "simulated": re.compile(r"(?!)"),
}
#: One line of tokens without quotes, splices or comments, so that a define is one define for every compiler.
_DEFINE = re.compile(r"(?!.*(//|/\*|__has_|_Pragma|__pragma))[A-Za-z0-9_ ()*+,./<>&|^!~=?:%-]{0,256}")
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*")


@dataclass(frozen=True)
class Composition:
    """One route in one cell. Where a route says that it does not apply, `falls_back` says why and there is no arm."""

    arm: Arm | None
    composed: Composed | None = None
    falls_back: str | None = None


def compose(cohort: Cohort, cell: Cell, route: Route, domain: Domain, toolkit_build: str) -> Composition:
    """The arm that a route is in a cell of a domain, with its module; never an exception for what a route says."""
    if route.row is None:
        return _broken(route, route.error or "malformed")
    composer = _Composer(cohort.files, Scope(route.source, cell), route, route.row, domain)
    try:
        falls_back = composer.falls_back()
        if falls_back is not None:
            return Composition(arm=None, falls_back=falls_back)
        composed = composer.composed(cohort.arguments[cell.id], toolkit_build)
    except InputError as error:
        return _broken(route, str(error))
    module = composed.module
    arm = Arm(route=route.name, identity=composed.identity, target=module.target, launches=module.launches)
    return Composition(arm, composed)


def _broken(route: Route, error: str) -> Composition:
    return Composition(Arm(route=route.name, identity=None, error=error, launches=()))


@dataclass(frozen=True)
class _Composer:
    """One route in one cell of one domain; every method raises InputError at the field that is wrong."""

    files: Files
    scope: Scope
    route: Route
    row: RouteRow
    domain: Domain

    def falls_back(self) -> str | None:
        """The condition that is not met, if the route says itself that it does not apply."""
        if self.row.frontend is not None and self.row.frontend != self.domain.runtime:
            return f"frontend {self.row.frontend}"
        if self.row.admits is not None and not self.scope.condition(self._at("admits"), self.row.admits):
            return self.row.admits
        return None

    def composed(self, arguments: tuple[Argument, ...], toolkit_build: str) -> Composed:
        """The module and its fragments."""
        fragments = self._fragments()
        if self.domain.runtime != "simulated":
            _check_closure(fragments, toolkit_headers=self.domain.runtime == "cuda")
        module = Module(
            frontend=self.domain.runtime,
            runtime=self.domain.runtime,
            fragments=tuple(FragmentRef(path=path, blake3=content(data)) for path, data in fragments.items()),
            options=self._options(),
            defines=self._defines(),
            launches=tuple(self._launch(self._at("launches", n), item) for n, item in enumerate(self.row.launches)),
            arguments=arguments,
            target=self._target(),
            toolkit_build=toolkit_build,
        )
        return Composed(module=module, identity=identify("module", module), fragments=fragments)

    def _at(self, *field: str | int) -> Field:
        return (*self.route.field, *field)

    def _error(self, field: Field, *, expected: str, got: str, fix: str) -> InputError:
        return self.route.source.error(field, expected=expected, got=got, fix=fix)

    def _text(self, field: Field, template: str) -> str:
        return self.scope.text(field, template, runtime=self.domain.runtime)

    def _fragments(self) -> dict[str, bytes]:
        """Each fragment's bytes by its path in the cohorts folder, in the route's order."""
        found: dict[str, bytes] = {}
        for index, template in enumerate(self.row.fragments):
            field = self._at("fragments", index)
            path = self._path(field, self._text(field, template))
            name = path.removeprefix(f"{COHORTS}/")
            if name in found:
                raise self._error(field, expected="each fragment once", got=name, fix="remove one of the two")
            try:
                found[name] = self.files.read(path)
            except InputError as error:
                got = f"{error.got} at {error.where}"
                raise self._error(field, expected=error.expected, got=got, fix=error.fix) from error
        return found

    def _path(self, field: Field, written: str) -> str:
        """Where a fragment lies in the workspace."""
        if not _PATH.fullmatch(written):
            raise self._error(
                field,
                expected="a path below the route's own folder or common/, of letters, digits, _ . + -",
                got=written,
                fix="put the fragment in the route's own folder and name it from there",
            )
        return f"{COHORTS}/{written}" if written.startswith(f"{COMMON}/") else f"{self.route.folder}/{written}"

    def _options(self) -> tuple[str, ...]:
        for index, option in enumerate(self.row.options):
            if not _OPTIONS[self.domain.runtime].fullmatch(option):
                raise self._error(
                    self._at("options", index),
                    expected=f"an option for {self.domain.runtime} that names no path, tool or target",
                    got=option,
                    fix="remove it; values belong under defines, files under fragments, architectures under target",
                )
        return self.row.options

    def _defines(self) -> dict[str, str]:
        made = {name: self._text(self._at("defines", name), text) for name, text in self.row.defines.items()}
        for name, text in made.items():
            if not _DEFINE.fullmatch(text):
                expected = "one line of tokens without quotes and comments"
                raise self._error(self._at("defines", name), expected=expected, got=text, fix="write it in a fragment")
        return made

    def _target(self) -> str:
        """The architecture that is compiled for: the domain's, or a variant of it that the route names."""
        arch, target = self.domain.arch, self.row.target
        if target is None:
            return arch
        known = [arch, f"{arch}a", f"{arch}f"] if self.domain.runtime == "cuda" else [arch]
        if target not in known:
            expected = f"a variant of the domain's architecture ({', '.join(known)})"
            raise self._error(self._at("target"), expected=expected, got=target, fix="remove target")
        return target

    def _launch(self, field: Field, row: LaunchRow) -> Launch:
        if not isinstance(row, KernelRow):
            return Memset(memset=row.memset, byte=row.byte)
        return Kernel(
            symbol=row.symbol,
            grid=self._extent((*field, "grid"), row.grid),
            block=self._extent((*field, "block"), row.block),
            cluster=None if row.cluster is None else self._extent((*field, "cluster"), row.cluster),
            shared_bytes=self.scope.integer((*field, "shared"), row.shared, least=0),
            cooperative=row.cooperative,
            carve_out_percent=self._percent((*field, "carve_out"), row.carve_out),
            arguments=row.arguments,
        )

    def _percent(self, field: Field, formula: str | None) -> int | None:
        if formula is None:
            return None
        value = self.scope.integer(field, formula, least=0)
        if value > 100:
            got = f"{value} for cell {self.scope.cell.id}"
            raise self._error(field, expected="at most 100", got=got, fix="name a part of the shared memory in percent")
        return value

    def _extent(self, field: Field, formulas: tuple[str, ...]) -> tuple[int, int, int]:
        """Three sizes of at least 1: a runtime may take a 0 silently and launch nothing."""
        sizes = [self.scope.integer((*field, axis), text, least=1) for axis, text in enumerate(formulas)]
        x, y, z = (*sizes, 1, 1)[:3]
        return x, y, z


def _check_closure(fragments: Mapping[str, bytes], *, toolkit_headers: bool) -> None:
    """Every include names a fragment of the module, or with angles a header of the toolkit (R6.3)."""
    for path, data in fragments.items():
        shown = path if path.startswith(f"{CANDIDATES}/") else f"{COHORTS}/{path}"
        try:
            includes = scan(data)
        except IncludeError as error:
            where = f"{shown}:{error.line}"
            raise InputError(where, expected=error.expected, got=error.got, fix=error.fix) from error
        for include in includes:
            if not is_listed(include, fragments, toolkit_headers=toolkit_headers):
                raise InputError(
                    f"{shown}:{include.line}",
                    expected=f"an include of one of the route's fragments ({', '.join(fragments)})",
                    got=f'"{include.name}"' if include.quoted else f"<{include.name}>",
                    fix="list the file under the route's fragments and include it by that path in quotes",
                )
