"""The hash-linked graph of a store: which records there are, which are heads, and which are gone (R11.1).

A record is a sealed run's SHA256SUMS, the plan of a run that is not sealed, or a withdrawal. Each plan names the heads
that it saw, so nothing with a successor can vanish. Stores merge by copying files.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from qualify.evidence import layout
from qualify.evidence.files import below, folder, names, read_file
from qualify.evidence.manifest import MANIFEST, MAX_MANIFEST_BYTES, check_path
from qualify.evidence.problems import Problem, ProblemError
from qualify.evidence.rejudge import document
from qualify.model import MAX_DOCUMENT_BYTES
from qualify.plan import Plan

_MARK = re.compile(r"(.+)\.json")
#: What may lie in a store's folder; git needs the one file.
_TOP = {layout.OPENED, layout.RUNS, layout.WITHDRAWN, layout.STAGING, layout.HEADS}
_TOP_FILES = {".gitignore"}


@dataclass(frozen=True)
class Entry:
    """One opened run: its plan, the SHA-256 of the plan's bytes and, once it is sealed, of its manifest's."""

    plan: Plan
    plan_sha256: str
    manifest_sha256: str | None

    @property
    def sealed(self) -> bool:
        """Whether the run lies in runs/."""
        return self.manifest_sha256 is not None


@dataclass(frozen=True)
class History:
    """All records of a store."""

    entries: Mapping[str, Entry]
    #: Digests of records whose content this version does not read: withdrawals, plans that do not parse.
    opaque: frozenset[str] = frozenset()

    @property
    def heads(self) -> tuple[str, ...]:
        """Every record that no plan names, in order: what the next plan comes after."""
        named = {digest for entry in self.entries.values() for digest in entry.plan.after}
        newest = {entry.manifest_sha256 or entry.plan_sha256 for entry in self.entries.values()}
        return tuple(sorted((newest | self.opaque) - named))

    def gone(self) -> Iterator[Problem]:
        """A problem for every digest that a plan names and no file has."""
        known = set(self.opaque)
        for entry in self.entries.values():
            known |= {entry.plan_sha256, entry.manifest_sha256 or entry.plan_sha256}
        for run, entry in self.entries.items():
            for digest in entry.plan.after:
                if digest not in known:
                    yield Problem(f"{layout.OPENED}/{run}.json", "L01", f"no record has the digest {digest}")


@dataclass
class Records:
    """The files of a store's history as they lie on disk, read once."""

    opened: dict[str, bytes] = field(default_factory=dict)
    runs: list[str] = field(default_factory=list)
    withdrawn: dict[str, bytes] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def records(at: int) -> Records:
    """Read a store's opened/, runs/ and withdrawn/ by its descriptor.

    opened/ is listed first: whatever a plan of that list names was there before, so a run that another process opens
    or seals meanwhile never looks like a missing one.
    """
    found = Records()
    present = _top(at, found.problems)
    if layout.OPENED in present:
        found.opened = _marks(at, layout.OPENED, found.problems)
    if layout.WITHDRAWN in present:
        found.withdrawn = _marks(at, layout.WITHDRAWN, found.problems)
    if layout.RUNS in present:
        found.runs = list(_runs(at, found))
    return found


def history(found: Records, manifests: Mapping[str, str | None]) -> tuple[History, list[Problem]]:
    """The graph of some records, with a problem for each plan that does not parse or lies under a wrong name."""
    entries: dict[str, Entry] = {}
    opaque = {_sha256(data) for data in found.withdrawn.values()}
    problems: list[Problem] = []
    for run, data in found.opened.items():
        path = f"{layout.OPENED}/{run}.json"
        try:
            plan = document(Plan, data, path)
            if plan.run != run:
                raise ProblemError("L07", path, f"it is the plan of {plan.run}")
        except ProblemError as error:
            problems.append(error.problem)
            opaque.add(_sha256(data))
        else:
            entries[run] = Entry(plan, _sha256(data), manifests.get(run))
    return History(entries, frozenset(opaque)), problems


def read(at: int) -> tuple[History, list[Problem]]:
    """The history of a store, by its descriptor, without looking into the runs: what a writer needs."""
    found = records(at)
    manifests: dict[str, str | None] = {}
    for run in found.runs:
        path = f"{layout.RUNS}/{run}"
        try:
            with below(at, path) as handle:
                data = read_file(handle, MANIFEST, f"{path}/{MANIFEST}", MAX_MANIFEST_BYTES)
            manifests[run] = _sha256(data)
        except ProblemError as error:
            found.problems.append(error.problem)
    graph, problems = history(found, manifests)
    return graph, [*found.problems, *problems, *graph.gone()]


def _top(at: int, problems: list[Problem]) -> set[str]:
    """The store's folders that are there; anything else in it is a problem."""
    present = set()
    for entry in names(at, "."):
        mode = entry.stat(follow_symlinks=False).st_mode
        if entry.name in _TOP and stat.S_ISDIR(mode):
            present.add(entry.name)
        elif entry.name in _TOP:
            problems.append(Problem(entry.name, "P02", "expected a folder, got a link or a file"))
        elif entry.name not in _TOP_FILES or not stat.S_ISREG(mode):
            problems.append(Problem(entry.name, "S01", "a store has no file of this name"))
    return present


def _marks(at: int, kind: str, problems: list[Problem]) -> dict[str, bytes]:
    """The files `<run>.json` of a folder, by run."""
    marks = {}
    with folder(kind, kind, at) as handle:
        for entry in names(handle, kind):
            path = f"{kind}/{entry.name}"
            try:
                check_path(path)
                match = _MARK.fullmatch(entry.name)
                if match is None:
                    raise ProblemError("S01", path, "expected <run>.json")
                marks[match.group(1)] = read_file(handle, entry.name, path, MAX_DOCUMENT_BYTES)
            except ProblemError as error:
                problems.append(error.problem)
    return marks


def _runs(at: int, found: Records) -> Iterator[str]:
    """The folders of runs/ whose plans were opened; one that was opened after opened/ was listed is left alone."""
    with folder(layout.RUNS, layout.RUNS, at) as handle:
        listed = names(handle, layout.RUNS)
    for entry in listed:
        path = f"{layout.RUNS}/{entry.name}"
        try:
            check_path(path)
            if not entry.is_dir(follow_symlinks=False):
                raise ProblemError("P02", path, "expected a folder, got a link or a file")
        except ProblemError as error:
            found.problems.append(error.problem)
            continue
        mark = f"{layout.OPENED}/{entry.name}.json"
        if entry.name in found.opened or any(problem.path == mark for problem in found.problems):
            yield entry.name
        elif not _opened_since(at, entry.name):
            found.problems.append(Problem(path, "L05", f"there is no {mark}"))


def _opened_since(at: int, run: str) -> bool:
    name = f"{run}.json"
    try:
        with folder(layout.OPENED, layout.OPENED, at) as handle:
            read_file(handle, name, name, MAX_DOCUMENT_BYTES)
    except ProblemError:
        return False
    return True


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
