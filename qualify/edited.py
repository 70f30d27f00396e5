"""Admissions against a workspace whose cohort.yaml is the one that was admitted: only the files that it names may move.

What composing a cell gives is a function of cohort.yaml, which need not be read again then, and of the fragments: the
admitted module with the fragments as they are now. That each admission is what its run planned is checked with it.
Whatever needs a closer look is left to `live`; benchmarks/check.py says what that saves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from functools import cached_property
from pathlib import Path

from qualify import admission as admissions
from qualify.admission import Admission, Reference
from qualify.anchors import Anchors
from qualify.differences import Difference, fragment_difference, reference_differences
from qualify.domain import Domain
from qualify.errors import InputError
from qualify.files import read_file
from qualify.identity import content
from qualify.standing import Standing, standing


class LookCloser(Exception):
    """What the workspace makes of an admission cannot be told without composing it."""


class Sources:
    """Files of a workspace, each read once, and whether they are those that a run read."""

    def __init__(self, workspace: Path, anchors: Anchors) -> None:
        self._workspace, self._anchors = workspace, anchors
        self._files: dict[str, bytes | None] = {}
        self._sha256: dict[str, str] = {}
        self._blake3: dict[str, str] = {}
        self._moved: dict[str, frozenset[str]] = {}
        self._closed: dict[tuple[str, frozenset[str], str], bool] = {}

    def read(self, path: str) -> bytes:
        """The bytes of a file. Raises LookCloser for what is no file, or may not be read."""
        if path not in self._files:
            try:
                self._files[path] = read_file(self._workspace, path)
            except InputError:
                self._files[path] = None
        data = self._files[path]
        if data is None:
            raise LookCloser(path)
        return data

    def sha256(self, path: str) -> str:
        """The digest of a file. Raises LookCloser."""
        if path not in self._sha256:
            self._sha256[path] = hashlib.sha256(self.read(path)).hexdigest()
        return self._sha256[path]

    def blake3(self, path: str) -> str:
        """What a module names a file by. Raises LookCloser."""
        if path not in self._blake3:
            self._blake3[path] = content(self.read(path))
        return self._blake3[path]

    def is_closed(self, path: str, fragments: frozenset[str], runtime: str) -> bool:
        """Whether all that a fragment includes is among a module's fragments. Raises LookCloser."""
        key = (path, fragments, runtime)
        if key not in self._closed:
            self._closed[key] = _is_closed(self.read(f"cohorts/{path}"), fragments, runtime)
        return self._closed[key]

    def moved(self, run: str) -> frozenset[str]:
        """The sources that a run read and that are others now. Raises LookCloser where that is not known."""
        if run not in self._moved:
            self._moved[run] = frozenset(path for path, was in self.of(run).items() if self.sha256(path) != was)
        return self._moved[run]

    def of(self, run: str) -> dict[str, str]:
        """The SHA-256 of each source that a run read. Raises LookCloser."""
        found = self._anchors.sources(run)
        if found is None:
            raise LookCloser(run)
        return found


def _is_closed(source: bytes, fragments: frozenset[str], runtime: str) -> bool:
    from qualify.includes import IncludeError, is_listed, scan  # Only where something moved.

    try:
        includes = scan(source)
    except IncludeError:
        return False
    return all(is_listed(each, fragments, toolkit_headers=runtime == "cuda") for each in includes)


def standings(
    operation: str, domain: Domain, found: admissions.Admissions, anchors: Anchors, sources: Sources
) -> tuple[Standing, ...] | None:
    """Every admitted cell of an operation in a domain; None where something has to be composed again."""
    cohort = f"cohorts/{operation}/cohort.yaml"
    try:
        runs = {each.run for of_cell in found.values() for each in admissions.in_force(of_cell)}
        if any(cohort not in sources.of(run) or cohort in sources.moved(run) for run in runs):
            return None
        return tuple(_standing(operation, domain, *item, anchors, sources) for item in found.items())
    except LookCloser:
        return None


def _standing(
    operation: str, domain: Domain, cell: str, of_cell: tuple[Admission, ...], anchors: Anchors, sources: Sources
) -> Standing:
    def make(each: Admission) -> Standing:
        unproven = (*each.contradictions(), *anchors.problems(each, operation, domain, cell))
        identity, moved = _Edited(each, sources).compared()
        withdrawn = anchors.withdrawn(each.run)
        return Standing(operation, domain, cell, each.plain_route, each, identity, moved, withdrawn, unproven)

    return standing(of_cell, make, None)


class _Edited:
    """One admission and the files that it was made from; every method may raise LookCloser."""

    def __init__(self, admission: Admission, sources: Sources) -> None:
        self._admission, self._sources = admission, sources
        self._moved = sources.moved(admission.run)

    def compared(self) -> tuple[str | None, tuple[Difference, ...]]:
        """The identity of the admitted route now, and what is not as admitted."""
        admission, reference = self._admission, self._reference()
        found = set(reference_differences(admission.reference, reference))
        if not self._fragments:
            return admission.subject.candidate.identity, tuple(sorted(found))
        for side in admission.sides:
            was = {ref.path: ref.blake3 for ref in side.parts.fragments}
            self._check_closure(was.keys())
            moved = ((path, was[path], now) for path, now in self._fragments.items() if path in was)
            found |= {fragment_difference(*each) for each in moved if each[1] != each[2]}
        return next(admission.identities(self._fragments)), tuple(sorted(found))

    def _reference(self) -> Reference:
        was = self._admission.reference
        if was.path not in self._moved:
            return was
        return Reference(path=was.path, function=was.function, sha256=self._sources.sha256(was.path))

    @cached_property
    def _fragments(self) -> dict[str, str]:
        """The BLAKE3 of the fragments of all sides that are others now, by path."""
        known = self._sources.of(self._admission.run)
        found = {}
        for path in {ref.path for side in self._admission.sides for ref in side.parts.fragments}:
            place = f"cohorts/{path}"
            if place not in known:
                raise LookCloser(place)
            if place in self._moved:
                found[path] = self._sources.blake3(place)
        return found

    def _check_closure(self, paths: Collection[str]) -> None:
        """What a moved fragment includes is one of the module's fragments, as it is of those that did not move."""
        runtime = self._admission.subject.domain.runtime
        for path in paths if runtime != "simulated" else ():
            if path in self._fragments and not self._sources.is_closed(path, frozenset(paths), runtime):
                raise LookCloser(path)
