"""What an admission rests on: its run in the store, byte for byte the one that it names, and not withdrawn.

The admission names the SHA-256 of the run's manifest, the manifest names plan, subjects and verdict, and these have to
say what the admission says. So an admission that was edited to fit an edited workspace is found without judging
anything again; that the run itself stands is what `verify-evidence` shows. Bytes with the right digest are read as
plain JSON: 500 admissions are checked in a fraction of a second.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from qualify import __version__
from qualify.admission import Admission
from qualify.caps import MAX_DOCUMENT_BYTES
from qualify.domain import Domain
from qualify.evidence import layout
from qualify.evidence.files import below, folder, read_file
from qualify.evidence.manifest import MANIFEST, MAX_MANIFEST_BYTES
from qualify.evidence.outcomes import Outcomes
from qualify.evidence.problems import ProblemError

#: A `SubjectVerdict` as verdict.json has it.
SubjectJson = Mapping[str, Any]
_FIGURE = re.compile(r"(?:at least )?([0-9]{1,18}(?:\.[0-9]{1,18})?)")
#: What reading JSON of another shape than ours may raise.
_SHAPE = (LookupError, TypeError, AttributeError, ValueError)


def conclusive(found: SubjectJson, names: Collection[str]) -> str | None:
    """The gate that admits a time and passed, of those that do; None where there is none (R10.6)."""
    return next((item["gate"] for item in found["gates"] if item["gate"] in names and item["outcome"] == "pass"), None)


def speed_up(found: SubjectJson, gate: str | None) -> str | None:
    """The figure of a timed gate's check `faster`; None where it has none."""
    for item in found["gates"]:
        for check in item["checks"] if item["gate"] == gate else ():
            if check["name"] == "faster":
                figure = _FIGURE.fullmatch(check["got"] or "")
                return figure[1] if figure else None
    return None


@dataclass(frozen=True)
class _Run:
    """The files of one run that an admission is compared with; their digests are the manifest's."""

    manifest_sha256: str
    versions: Mapping[str, Any]
    plan: Mapping[str, Any]
    outcomes: Outcomes

    @cached_property
    def conclusive(self) -> frozenset[str]:
        """The gates whose pass admits a time, as the plan promised."""
        return frozenset(node["gate"] for node in self.plan["nodes"] if node["conclusive"] is True)

    @cached_property
    def planned(self) -> Mapping[tuple[str, str], Any]:
        """The planned subject of each cell and route."""
        subjects = (planned["subject"] for planned in self.plan["subjects"])
        return {(each["cell"]["id"], each["candidate"]["route"]): each for each in subjects}

    @cached_property
    def plain(self) -> Mapping[str, str]:
        """The identity of each cell's plain route."""
        plain = (each for each in self.planned.values() if each["role"] == "plain")
        return {each["cell"]["id"]: each["candidate"]["identity"] for each in plain}


class Anchors:
    """The runs of a store, each read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._runs: dict[str, _Run | str] = {}
        self._withdrawn: dict[str, str | None] = {}
        self._sources: dict[str, dict[str, str] | None] = {}

    def withdrawn(self, run: str) -> str | None:
        """Why a run was withdrawn, None if it was not. Any mark counts, even one that cannot be read."""
        if run not in self._withdrawn:
            self._withdrawn[run] = self._mark(run)
        return self._withdrawn[run]

    def subjects(self, run: str) -> Mapping[tuple[str, str], Mapping[str, str]]:
        """Cell, route, role and outcome of each subject of a sealed run; nothing where that cannot be read."""
        found = self._run(run)
        return {} if isinstance(found, str) else found.outcomes.subjects

    def sources(self, run: str) -> dict[str, str] | None:
        """The SHA-256 of every file of the cohorts that a run read; None unless it stands and this version read them.

        What composing gives is a function of those files. The admissions themselves, which the run read too, have
        grown since.
        """
        if run not in self._sources:
            self._sources[run] = self._read_by(run)
        return self._sources[run]

    def _read_by(self, run: str) -> dict[str, str] | None:
        found = self._run(run)
        if isinstance(found, str) or found.versions != {"qualify": __version__}:
            return None
        try:
            return {path: str(digest) for path, digest in found.plan["inputs_sha256"].items() if _is_source(path)}
        except _SHAPE:
            return None

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
        try:
            return (*misplaced, *_against_run(admission, run), *_against_verdict(admission, run))
        except _SHAPE as error:
            return (f"the run {admission.run} does not stand: {type(error).__name__} while it was read",)

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
        except (ProblemError, *_SHAPE):
            return "for a reason that cannot be read"

    def _read(self, name: str) -> _Run | str:
        try:
            with _below(self._root, f"{layout.RUNS}/{name}") as at:
                data = read_file(at, MANIFEST, MANIFEST, MAX_MANIFEST_BYTES)
                plan, record = (from_json(_listed(at, path, data)) for path in (layout.PLAN, layout.RECORD))
                outcomes, versions = Outcomes(_listed(at, layout.VERDICT, data)), record["versions"]
            if (plan["run"], outcomes.said["run"]) != (name, name):
                return f"the run {name} does not stand: it is of the run {plan['run']}"
        except ProblemError as error:
            return f"the run {name} does not stand: {error}"
        except _SHAPE as error:
            return f"the run {name} does not stand: {type(error).__name__} while it was read"
        return _Run(hashlib.sha256(data).hexdigest(), versions, plan, outcomes)


def _is_source(path: str) -> bool:
    """Whether an input of a run is a file that composing depends on."""
    return path.startswith("cohorts/") and path.split("/")[2:3] != ["admissions"]


@contextmanager
def _below(root: Path, path: str) -> Iterator[int]:
    with folder(str(root), root.name) as at, below(at, path) as handle:
        yield handle


def _listed(at: int, path: str, manifest: bytes) -> bytes:
    """A document of the run, as bytes. Raises ProblemError unless its bytes are those that the manifest lists.

    The manifest's own text needs no grammar here: only the one that was admitted has the admitted digest.
    """
    data = read_file(at, path, path, layout.limit_of(path) or 0)
    line = f"{hashlib.sha256(data).hexdigest()}  {path}\n".encode()
    if not manifest.startswith(line) and b"\n" + line not in manifest:
        raise ProblemError("C01", path, "the bytes are not those of the manifest")
    return data


def _against_run(admission: Admission, run: _Run) -> Iterator[str]:
    """What the admission says and its run does not."""
    subject, reference, plan = admission.subject, admission.reference, run.plan
    if run.planned.get(subject.key) != admission.json_value["subject"]:
        yield f"the subject of {admission.run} is another one"
    plain = admission.plain.arm if admission.plain else subject.incumbent
    said = {
        "toolkit build": (admission.toolkit_build, plan["toolkit_build"]),
        "board": (admission.json_value["board"], plan["board"]),
        "pipeline": (admission.pipeline, plan["pipeline"]),
        "dispatcher revision": (admission.dispatcher_revision, plan["dispatcher_revision"]),
        "reference": (f"{reference.path}:{reference.function}", plan["reference"]),
        "reference's file": (reference.sha256, plan["inputs_sha256"].get(reference.path)),
        "plain route": (plain.identity, run.plain.get(subject.cell.id)),
    }
    for what, (mine, its) in said.items():
        if mine != its:
            yield f"the {what} of {admission.run} is another one"


def _against_verdict(admission: Admission, run: _Run) -> Iterator[str]:
    said, key = run.outcomes.said, admission.subject.key
    if said["admissible"] is not True:
        yield f"{admission.run} admits nothing: {'; '.join(said['reasons'])}"
    if run.outcomes.subjects.get(key, {}).get("outcome") != "pass":
        yield f"{admission.route} did not pass in {admission.run}"
        return
    found = {"gates": run.outcomes.gates(key, run.conclusive)}
    gate = conclusive(found, run.conclusive)
    if admission.kind == "measured" and gate is None:
        yield f"no gate of {admission.run} measured that {admission.route} is faster"
    elif admission.bound != (speed_up(found, gate) if admission.kind == "measured" else None):
        yield f"the bound of {admission.run} is another one"
