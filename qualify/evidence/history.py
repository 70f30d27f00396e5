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
from typing import TypeVar

from qualify.caps import MAX_DOCUMENT_BYTES
from qualify.evidence import layout
from qualify.evidence.files import below, folder, names, read_file
from qualify.evidence.manifest import MANIFEST, MAX_MANIFEST_BYTES, check_path
from qualify.evidence.problems import Problem, ProblemError
from qualify.evidence.promotions import Promotions
from qualify.evidence.rejudge import document
from qualify.evidence.withdrawal import Withdrawal
from qualify.plan import Plan

M = TypeVar("M", Plan, Withdrawal)
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
    withdrawn: Mapping[str, Withdrawal] = field(default_factory=dict)
    #: Records that are no runs: withdrawals, plans that do not parse. File by digest.
    others: Mapping[str, str] = field(default_factory=dict)

    @property
    def heads(self) -> tuple[str, ...]:
        """Every record that no plan names, in order: what the next plan comes after."""
        return tuple(sorted(self.head_files))

    @property
    def head_files(self) -> dict[str, str]:
        """The file of each head, by digest."""
        named = {digest for entry in self.entries.values() for digest in entry.plan.after}
        newest = dict(_record(run, entry) for run, entry in self.entries.items())
        return {digest: path for digest, path in {**newest, **self.others}.items() if digest not in named}

    def gone(self) -> Iterator[Problem]:
        """A problem for every digest that a plan or a withdrawal names and no file has."""
        known = set(self.others)
        for entry in self.entries.values():
            known |= {entry.plan_sha256, entry.manifest_sha256 or entry.plan_sha256}
        for run, entry in self.entries.items():
            for digest in entry.plan.after:
                if digest not in known:
                    yield Problem(f"{layout.OPENED}/{run}.json", "L01", f"no record has the digest {digest}")
        for run, mark in self.withdrawn.items():
            found = self.entries.get(run)
            if found is None or mark.record_sha256 not in (found.plan_sha256, found.manifest_sha256):
                path = f"{layout.WITHDRAWN}/{run}.json"
                yield Problem(path, "L01", f"no record of the run has the digest {mark.record_sha256}")

    def miscounted(self) -> Iterator[Problem]:
        """A problem for every promotion that counts fewer attempts than were on record before it (R10.7)."""
        promotions = Promotions({run: entry.plan for run, entry in self.entries.items()})
        names = {entry.plan_sha256: run for run, entry in self.entries.items()}
        names |= {entry.manifest_sha256: run for run, entry in self.entries.items() if entry.manifest_sha256}
        for run, text in promotions.miscounted(names):
            yield Problem(f"{layout.OPENED}/{run}.json", "V21", text)


def _record(run: str, entry: Entry) -> tuple[str, str]:
    """A run's own record: the digest and the file of its manifest, or of its plan while it is not sealed."""
    if entry.manifest_sha256 is not None:
        return entry.manifest_sha256, f"{layout.RUNS}/{run}/{MANIFEST}"
    return entry.plan_sha256, f"{layout.OPENED}/{run}.json"


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
    plans, unread, problems = _documents(Plan, layout.OPENED, found.opened)
    withdrawn, _, more = _documents(Withdrawal, layout.WITHDRAWN, found.withdrawn)
    entries = {run: Entry(plan, _sha256(found.opened[run]), manifests.get(run)) for run, plan in plans.items()}
    others = {_sha256(data): f"{layout.WITHDRAWN}/{run}.json" for run, data in found.withdrawn.items()}
    others |= {_sha256(found.opened[run]): f"{layout.OPENED}/{run}.json" for run in unread}
    return History(entries, withdrawn, others), [*problems, *more]


def _documents(model: type[M], kind: str, marks: Mapping[str, bytes]) -> tuple[dict[str, M], list[str], list[Problem]]:
    """The marks of a folder as documents by run, the runs whose mark is none, and why."""
    documents: dict[str, M] = {}
    problems: list[Problem] = []
    for run, data in marks.items():
        path = f"{kind}/{run}.json"
        try:
            made = document(model, data, path)
            if made.run != run:
                raise ProblemError("L07", path, f"it is of the run {made.run}")
        except ProblemError as error:
            problems.append(error.problem)
        else:
            documents[run] = made
    return documents, sorted(marks.keys() - documents.keys()), problems


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
    return graph, [*found.problems, *problems, *graph.gone(), *graph.miscounted()]


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
