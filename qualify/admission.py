"""Admissions: which route serves a cell in a domain, what was true when it was admitted, and whether it still is.

`cohorts/<operation>/admissions/<toolkit>--<arch>.json` holds `{cell: [admission, ...]}`, the newest last and in force
(`in_force` says which, where several boards have admissions of one route).
The file only grows; what is in it is never changed. An admission is a predicate over the live workspace (R12.2), which
`differences` decides.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from qualify.contract import Arm, FragmentRef, Module, Variant
from qualify.domain import Board, Domain
from qualify.errors import DocumentError, InputError, RigError
from qualify.files import read_file
from qualify.identity import identify_bytes
from qualify.model import Document, Hex16, Hex64, Name, Ratio, Segment, canonical_after, canonical_bytes, check_shape
from qualify.subject import Subject

MAX_ADMISSIONS_BYTES = 16 << 20  # What a run keeps of one input; 500 admissions have 3 MiB.
_FILE = re.compile(r"(?P<toolkit>.+)--(?P<arch>[^-].*)\.json")


class Parts(Document):
    """What an arm's module is made of, beside its launches and the cell's arguments, which the subject holds."""

    frontend: Literal["cuda", "opencl", "simulated"]
    fragments: tuple[FragmentRef, ...]
    options: tuple[str, ...]
    defines: dict[str, str]
    target: str

    @classmethod
    def of(cls, module: Module) -> Parts:
        """The parts of a module."""
        return cls(
            frontend=module.frontend,
            fragments=module.fragments,
            options=module.options,
            defines=module.defines,
            target=module.target,
        )


class Side(Document):
    """An arm and the parts of its module."""

    arm: Arm
    parts: Parts


class Reference(Document):
    """The exact reference: its file in the workspace, the function, the SHA-256 of the file."""

    path: str
    function: Name
    sha256: Hex64


class Counts(Document):
    """Runs of the cell in the domain that were on record, this one too; `left_open` were never sealed (R11.1)."""

    opened: int
    passed: int
    failed: int
    inconclusive: int
    left_open: int


class PublicOutputs(Document):
    """Digests of the outputs on fixed, public inputs, for later comparison only (R6.5)."""

    variant: Variant
    digests: dict[Name, Hex16]


class Admission(Document):
    """One route that serves one cell in one domain.

    `plain` is the fallback route where that is not the incumbent. `bound` is the lower bound of the speed-up, None for
    `proven`, of which no command shows a time. `object_blake3` is None where equal sources may give other objects;
    `outputs` is None where the public inputs were not measured. `manifest_sha256` is that of the run, whose plan names
    every record before it.
    """

    format: Literal[1] = 1
    kind: Literal["measured", "proven"]
    subject: Subject
    toolkit_build: str
    candidate: Parts
    incumbent: Parts
    plain: Side | None
    reference: Reference
    dispatcher_revision: int
    pipeline: Segment
    board: Board | None
    object_blake3: Hex64 | None
    outputs: tuple[PublicOutputs, ...] | None
    bound: Ratio | None
    run: Segment
    manifest_sha256: Hex64
    counts: Counts
    admitted_utc: str

    @property
    def board_name(self) -> str:
        """The board that it was made on."""
        return self.board.name if self.board else "unknown"

    @property
    def route(self) -> str:
        """The admitted route."""
        return self.subject.candidate.route

    @property
    def plain_route(self) -> str:
        """The route that serves where this admission does not hold."""
        return self.plain.arm.route if self.plain else self.subject.incumbent.route

    @cached_property
    def sides(self) -> tuple[Side, ...]:
        """Candidate, incumbent and plain, each once."""
        made = [
            Side(arm=self.subject.candidate, parts=self.candidate),
            Side(arm=self.subject.incumbent, parts=self.incumbent),
        ]
        return (*made, self.plain) if self.plain else tuple(made)

    @cached_property
    def json_value(self) -> dict[str, Any]:
        """What the file says of it, as JSON."""
        return self.model_dump(mode="json")

    @cached_property
    def modules(self) -> tuple[Module, ...]:
        """The sides' modules; the identity of each is its arm's, unless someone edited the admission."""
        return tuple(map(self._module, self.sides))

    def _module(self, side: Side) -> Module:
        return Module(
            frontend=side.parts.frontend,
            runtime=self.subject.domain.runtime,
            fragments=side.parts.fragments,
            options=side.parts.options,
            defines=side.parts.defines,
            launches=side.arm.launches,
            arguments=self.subject.arguments,
            target=side.parts.target,
            toolkit_build=self.toolkit_build,
        )

    def contradictions(self) -> Iterator[str]:
        """What cannot be true of an admission that nobody edited, one sentence each."""
        if self.kind == "measured" and not self.subject.cell.timed:
            yield "it is measured and the cell is not timed"
        for side, identity in zip(self.sides, self.identities({}), strict=True):
            if identity != side.arm.identity:
                yield f"the identity of {side.arm.route} is not that of its module"

    def identities(self, moved: Mapping[str, str]) -> Iterator[str]:
        """The identities of `modules`, with other BLAKE3 of some fragments, by path; from what is dumped already."""
        for side, data in zip(self.sides, self._canonical_modules, strict=True):
            yield identify_bytes("module", _exchange(data, side.parts.fragments, moved) if moved else data)

    @cached_property
    def _canonical_modules(self) -> tuple[bytes, ...]:
        """The bytes of `modules`."""
        told = self.json_value
        sides = [(told["subject"][name], told[name]) for name in ("candidate", "incumbent")]
        sides += [(told["plain"]["arm"], told["plain"]["parts"])] if told["plain"] else []
        same = {"format": 1, "runtime": self.subject.domain.runtime, "toolkit_build": self.toolkit_build}
        arguments = canonical_bytes(told["subject"]["arguments"])  # Most of each module.
        rest = (canonical_bytes({**same, "launches": arm["launches"], **parts}) for arm, parts in sides)
        return tuple(canonical_after("arguments", arguments, each) for each in rest)


def _exchange(data: bytes, fragments: Sequence[FragmentRef], moved: Mapping[str, str]) -> bytes:
    for each in fragments:
        if each.path in moved:
            data = data.replace(_spelled(each.path, each.blake3), _spelled(each.path, moved[each.path]))
    return data


@lru_cache(maxsize=1024)
def _spelled(path: str, blake3: str) -> bytes:
    """How a module spells a fragment. Text of a module cannot hold it: quotes are escaped there."""
    return canonical_bytes({"blake3": blake3, "path": path})[:-1]


Admissions = Mapping[str, tuple[Admission, ...]]


def in_force(of_cell: tuple[Admission, ...], board: str | None = None) -> tuple[Admission, ...]:
    """What may be in force of a cell's admissions, the first that holds being so.

    The newest says which route that is. Right before it may stand admissions of the same bytes on other boards: first
    comes that of `board`, then those with a time, then the newer one. So bits take no place from a time.
    """
    if len(of_cell) == 1:
        return of_cell
    identity = of_cell[-1].subject.candidate.identity
    boards: dict[str, Admission] = {}
    for each in takewhile(lambda one: one.subject.candidate.identity == identity, reversed(of_cell)):
        boards.setdefault(each.board_name, each)
    return tuple(sorted(boards.values(), key=lambda each: (each.board_name != board, each.kind == "proven")))


# The file -----------------------------------------------------------------------------------------------------------


def path_of(operation: str, domain: Domain) -> str:
    """Where the admissions of an operation in a domain lie in the workspace."""
    return f"cohorts/{operation}/admissions/{domain.toolkit}--{domain.arch}.json"


def domains(workspace: Path, operation: str) -> tuple[Domain, ...]:
    """The domains that an operation has admissions in. Raises InputError for a file that names no domain."""
    return tuple(map(_domain, sorted((workspace / f"cohorts/{operation}/admissions").glob("*.json"))))


def _domain(path: Path) -> Domain:
    match = _FILE.fullmatch(path.name)
    try:
        return Domain.model_validate(match.groupdict() if match else {})
    except ValidationError:
        where = f"cohorts/{path.parent.parent.name}/admissions/{path.name}"
        fix = "rename it, or move it elsewhere"
        raise InputError(where, expected="<toolkit>--<arch>.json", got=path.name, fix=fix) from None


@cache
def _model() -> TypeAdapter[dict[Segment, tuple[Admission, ...]]]:
    Admission.model_rebuild()  # Built once: by itself the adapter builds it for reading only.
    return TypeAdapter(dict[Segment, tuple[Admission, ...]])


def prepare() -> None:
    """Make ready to read: what is forked afterwards need not."""
    _model()


def parse(where: str, data: bytes) -> Admissions:
    """The admissions that a file spells canonically. Raises InputError for anything else."""
    try:
        check_shape(data, MAX_ADMISSIONS_BYTES)
        found = _model().validate_json(data)
        if _canonical(found) != data:
            raise DocumentError("not in canonical form: it was not written by promote")
        if not all(found.values()):
            raise DocumentError("a cell without an admission")
    except (DocumentError, ValueError) as error:
        got = str(error).splitlines()[-1] if isinstance(error, DocumentError) else _first(error)
        raise InputError(where, expected="admissions as promote wrote them", got=got, fix=f"restore {where}") from None
    return found


def _canonical(found: Mapping[str, Sequence[Admission]]) -> bytes:
    return canonical_bytes({cell: [each.json_value for each in items] for cell, items in found.items()})


def _first(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return type(error).__name__
    first = error.errors(include_url=False, include_context=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"


def read(workspace: Path, operation: str, domain: Domain) -> Admissions:
    """The admissions of an operation in a domain; none if there is no file. Raises InputError."""
    path = path_of(operation, domain)
    return parse(path, read_file(workspace, path, MAX_ADMISSIONS_BYTES)) if os.path.lexists(workspace / path) else {}


def append(workspace: Path, operation: str, domain: Domain, new: Mapping[str, Admission]) -> Path:
    """Put admissions at the end of their cells' lists: a new file beside the old one, synced, then one rename.

    Call it inside `alone`. Raises InputError if what is there is no file of admissions, RigError if it cannot be
    written.
    """
    path = workspace / path_of(operation, domain)
    found = {cell: list(items) for cell, items in read(workspace, operation, domain).items()}
    for cell, admission in new.items():
        found.setdefault(cell, []).append(admission)
    data = _canonical(found)
    try:
        path.parent.mkdir(exist_ok=True)
        _replace(path, data)
    except OSError as error:
        raise RigError(
            f"expected to write {path}, got {error.strerror}", fix="make the folder writable, then promote again"
        ) from error
    return path


def _replace(path: Path, data: bytes) -> None:
    """The file's new bytes, whole or not at all. A leftover of a writer that was killed is no one's: we are alone."""
    waiting = path.with_suffix(".json.new")
    waiting.unlink(missing_ok=True)
    with waiting.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(waiting, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def alone(workspace: Path, operation: str) -> Iterator[None]:
    """Until the end of the block no other process counts attempts at, or admits to, the operation. Waits its turn."""
    handle = os.open(workspace / "cohorts" / operation, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
