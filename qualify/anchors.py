"""What an admission rests on: its run in the store, byte for byte the one that it names, and not withdrawn.

The admission names the SHA-256 of the run's manifest, the manifest names plan, subjects and verdict, and these have to
say what the admission says. So an admission that was edited to fit an edited workspace is found without judging
anything again; that the run itself stands is what `verify-evidence` shows.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from qualify.admission import Admission
from qualify.domain import Domain
from qualify.evidence import layout, manifest
from qualify.evidence.files import below, folder, read_file
from qualify.evidence.manifest import MANIFEST, MAX_MANIFEST_BYTES
from qualify.evidence.problems import ProblemError
from qualify.gate import Gate
from qualify.judgement import RunVerdict, SubjectVerdict
from qualify.model import MAX_DOCUMENT_BYTES, Document
from qualify.plan import Plan
from qualify.verdict import Check

Gates = Mapping[str, Gate[Any, Any]]
D = TypeVar("D", bound=Document)
_FIGURE = re.compile(r"(?:at least )?([0-9]{1,18}(?:\.[0-9]{1,18})?)")


def conclusive(found: SubjectVerdict, gates: Gates) -> tuple[Check, ...] | None:
    """The checks of the gate that admits a time and passed, None where there is none (R10.6)."""
    for item in found.gates:
        gate = gates.get(item.gate)
        if gate is not None and gate.timed and gate.conclusive and item.outcome == "pass":
            return item.checks
    return None


def speed_up(checks: Iterable[Check]) -> str | None:
    """The figure of a timed gate's check `faster`; None where it has none."""
    found = next((_FIGURE.fullmatch(check.got or "") for check in checks if check.name == "faster"), None)
    return found[1] if found else None


@dataclass(frozen=True)
class _Run:
    """The files of one run that an admission is compared with; their digests are the manifest's."""

    manifest_sha256: str
    listed: Mapping[str, str]
    plan: Plan
    verdict: RunVerdict


class Anchors:
    """The runs of a store, each read once."""

    def __init__(self, root: Path, gates: Gates) -> None:
        self._root, self._gates = root, gates
        self._runs: dict[str, _Run | str] = {}
        self._withdrawn: dict[str, str | None] = {}

    def withdrawn(self, run: str) -> str | None:
        """Why a run was withdrawn, None if it was not. Any mark counts, even one that cannot be read."""
        if run not in self._withdrawn:
            self._withdrawn[run] = self._mark(run)
        return self._withdrawn[run]

    def verdict(self, run: str) -> RunVerdict | None:
        """The verdict of a sealed run as its manifest lists it, None where that cannot be read."""
        found = self._run(run)
        return None if isinstance(found, str) else found.verdict

    def problems(self, admission: Admission, operation: str, domain: Domain, cell: str) -> tuple[str, ...]:
        """Why the admission of a cell is not what its run says, one sentence each; none if it is."""
        run = self._run(admission.run)
        if isinstance(run, str):
            return (run,)
        if run.manifest_sha256 != admission.manifest_sha256:
            return (f"{MANIFEST} of {admission.run} is not the admitted one, {admission.manifest_sha256}",)
        subject = admission.subject
        where = (subject.operation, subject.domain, subject.cell.id)
        misplaced = [] if where == (operation, domain, cell) else [f"it is an admission of {'/'.join(map(str, where))}"]
        return (*misplaced, *admission.contradictions(), *_against_run(admission, run, self._gates))

    def _run(self, run: str) -> _Run | str:
        if run not in self._runs:
            self._runs[run] = self._read(run)
        return self._runs[run]

    def _mark(self, run: str) -> str | None:
        path = f"{layout.WITHDRAWN}/{run}.json"
        if not os.path.lexists(self._root / path):
            return None
        try:
            with _below(self._root, layout.WITHDRAWN) as at:
                return str(json.loads(read_file(at, f"{run}.json", path, MAX_DOCUMENT_BYTES))["reason"])
        except (ProblemError, ValueError, LookupError, TypeError):
            return "for a reason that cannot be read"

    def _read(self, name: str) -> _Run | str:
        try:
            with _below(self._root, f"{layout.RUNS}/{name}") as at:
                data = read_file(at, MANIFEST, MANIFEST, MAX_MANIFEST_BYTES)
                listed = manifest.parse(data)
                plan = _listed(Plan, at, layout.PLAN, listed)
                verdict = _listed(RunVerdict, at, layout.VERDICT, listed)
        except ProblemError as error:
            return f"the run {name} does not stand: {error}"
        if (plan.run, verdict.run) != (name, name):
            return f"the run {name} does not stand: it is of the run {plan.run}"
        return _Run(hashlib.sha256(data).hexdigest(), listed, plan, verdict)


@contextmanager
def _below(root: Path, path: str) -> Iterator[int]:
    with folder(str(root), root.name) as at, below(at, path) as handle:
        yield handle


def _listed(model: type[D], at: int, path: str, listed: Mapping[str, str]) -> D:
    """A document of the run. Raises ProblemError unless its bytes are those that the manifest lists."""
    data = read_file(at, path, path, layout.limit_of(path) or 0)
    if hashlib.sha256(data).hexdigest() != listed.get(path):
        raise ProblemError("C01", path, "the bytes are not those of the manifest")
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise ProblemError("J12", path, f"not a {model.__name__}") from error


def _against_run(admission: Admission, run: _Run, gates: Gates) -> Iterator[str]:
    """What the admission says and its run does not."""
    subject, plan = admission.subject, run.plan
    path = f"{layout.subject_folder(subject.key)}/{layout.SUBJECT}"
    if run.listed.get(path) != hashlib.sha256(subject.canonical()).hexdigest():
        yield f"the subject of {plan.run} is another one"
    said = {
        "toolkit build": (admission.toolkit_build, plan.toolkit_build),
        "board": (admission.board, plan.board),
        "pipeline": (admission.pipeline, plan.pipeline),
        "dispatcher revision": (admission.dispatcher_revision, plan.dispatcher_revision),
        "reference": (admission.reference.sha256, plan.inputs_sha256.get(admission.reference.path)),
        "plain route": (_plain(admission), _planned_plain(plan, subject.cell.id)),
    }
    for what, (mine, its) in said.items():
        if mine != its:
            yield f"the {what} of {plan.run} is another one"
    yield from _against_verdict(admission, run.verdict, gates)


def _plain(admission: Admission) -> str | None:
    return admission.plain.arm.identity if admission.plain else admission.subject.incumbent.identity


def _planned_plain(plan: Plan, cell: str) -> str | None:
    subjects = (planned.subject for planned in plan.subjects)
    return next((s.candidate.identity for s in subjects if s.role == "plain" and s.cell.id == cell), None)


def _against_verdict(admission: Admission, verdict: RunVerdict, gates: Gates) -> Iterator[str]:
    if not verdict.admissible:
        yield f"{verdict.run} admits nothing: {'; '.join(verdict.reasons)}"
    found = next((s for s in verdict.subjects if (s.cell, s.route) == admission.subject.key), None)
    if found is None or found.outcome != "pass":
        yield f"{admission.route} did not pass in {verdict.run}"
        return
    timed = conclusive(found, gates)
    if admission.kind == "measured" and timed is None:
        yield f"no gate of {verdict.run} measured that {admission.route} is faster"
    elif admission.bound != (speed_up(timed) if admission.kind == "measured" and timed else None):
        yield f"the bound of {verdict.run} is another one"
