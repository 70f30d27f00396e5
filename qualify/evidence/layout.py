"""Which files a run has: names, the most bytes each may have, and what its plan makes required (DESIGN section 11)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from qualify.caps import MAX_DOCUMENT_BYTES
from qualify.evidence.manifest import MAX_MANIFEST_BYTES, check_path, check_together

if TYPE_CHECKING:  # A check reads names only, and starts faster without these.
    from qualify.gate import Measurement, SeriesRef
    from qualify.plan import Plan

PLAN = "plan.json"
RECORD = "run.json"
VERDICT = "verdict.json"
SUBJECT = "subject.json"
INPUTS = "inputs/"
OBJECTS = "objects/"
#: Folders of a store. `heads` is a cache and `staging` what is being written: neither is ever evidence.
OPENED, RUNS, WITHDRAWN, STAGING, HEADS = "opened", "runs", "withdrawn", "staging", "heads"

MAX_VERDICT_BYTES = 64 << 20  # A thousand subjects with ten gates and ten checks each take 20 MiB.
MAX_SERIES_BYTES = 64 << 20  # 101 windows over 11 processes are 100 KiB.
MAX_INPUT_BYTES = 16 << 20  # A cohort's source file.
MAX_BLOB_BYTES = 256 << 20  # Object code, telemetry.
MAX_SIGNATURE_BYTES = 1 << 20

_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,62}"
_SUBJECT_FILE = r"subjects/[^/]+/[^/]+/"
#: Every file that a run may have, by kind, with the most bytes of each.
_KIND = re.compile(
    rf"(?P<document>plan\.json|run\.json|{_SUBJECT_FILE}{_NAME}\.json)|(?P<series>{_SUBJECT_FILE}{_NAME}\.{_NAME}\.i64le)"
    rf"|(?P<input>inputs/.+)|(?P<attached>objects/[^/]+|telemetry/.+)|(?P<verdict>verdict\.json)"
    rf"|(?P<manifest>SHA256SUMS)|(?P<signature>SHA256SUMS\.sig|SHA256SUMS\.intoto\.jsonl)"
)
_LIMITS = {
    "document": MAX_DOCUMENT_BYTES,
    "series": MAX_SERIES_BYTES,
    "input": MAX_INPUT_BYTES,
    "attached": MAX_BLOB_BYTES,
    "verdict": MAX_VERDICT_BYTES,
    "manifest": MAX_MANIFEST_BYTES,
    "signature": MAX_SIGNATURE_BYTES,
}
_NOT_JUDGED = (INPUTS, OBJECTS, "telemetry/")
_OBJECT = re.compile(r"objects/([0-9a-f]{64})\.[a-z0-9.]{1,32}")


def limit_of(path: str) -> int | None:
    """The most bytes that a run's file of this path may have; None if no run has such a file."""
    match = _KIND.fullmatch(path)
    return _LIMITS[match.lastgroup] if match and match.lastgroup else None


def is_judged(path: str) -> bool:
    """Whether a verdict depends on the file's content, so that an auditor keeps it in memory."""
    return is_module(path) or not path.startswith(_NOT_JUDGED)


def is_module(path: str) -> bool:
    """Whether the file is a module's document, `objects/<BLAKE3>.module.json`: what an identity is the key of."""
    return path.startswith(OBJECTS) and path.endswith(".module.json")


def is_attached(path: str) -> bool:
    """Whether the file is one that a plan does not ask for but allows: an object, telemetry."""
    match = _KIND.fullmatch(path)
    return match is not None and match.lastgroup == "attached"


def object_digest(path: str) -> str | None:
    """The BLAKE3 that an object's name claims; None for a path that claims none."""
    match = _OBJECT.fullmatch(path)
    return match.group(1) if match else None


def subject_folder(key: tuple[str, str]) -> str:
    """A subject's folder in its run, from its cell and route."""
    return f"subjects/{key[0]}/{key[1]}"


def measurement_path(key: tuple[str, str], gate: str) -> str:
    """A gate's measurement of a subject."""
    return f"{subject_folder(key)}/{gate}.json"


def series_path(key: tuple[str, str], gate: str, name: str) -> str:
    """A series beside a measurement."""
    return f"{subject_folder(key)}/{gate}.{name}.i64le"


def telemetry_path(key: tuple[str, str], gate: str) -> str:
    """What was read of the board around a gate's windows on a subject; no verdict depends on it."""
    return f"telemetry/{key[0]}/{key[1]}/{gate}.json"


def input_path(path: str) -> str:
    """A workspace file that the run read, kept for people and for its digest."""
    return f"{INPUTS}{path}"


def named_series(measurement: Measurement) -> tuple[SeriesRef, ...]:
    """The series that facts name, found by shape alone, so that it needs no gate's rule. Raises ValueError."""
    from qualify.gate import SeriesRef

    if not isinstance(measurement.facts, dict):
        return ()
    fields = set(SeriesRef.model_fields)
    found = (value for value in measurement.facts.values() if isinstance(value, dict) and set(value) == fields)
    return tuple(SeriesRef.model_validate(value) for value in found)


def required(plan: Plan) -> frozenset[str]:
    """Every file that a sealed run of this plan has, whatever was measured; the manifest is not among them."""
    paths = {PLAN, RECORD, VERDICT}
    paths.update(input_path(path) for path in plan.inputs_sha256)
    for planned in plan.subjects:
        key = planned.subject.key
        paths.add(f"{subject_folder(key)}/{SUBJECT}")
        paths.update(measurement_path(key, gate) for gate in planned.gates)
    return frozenset(paths)


def check_names(plan: Plan) -> None:
    """Refuse names that cannot lie in one folder. Raises ProblemError with the path."""
    paths = sorted(required(plan))
    for path in paths:
        check_path(path)
    check_together(paths)


def contradictions(plan: Plan) -> Iterator[str]:
    """What makes a plan impossible, one sentence each; none for every plan that the planner makes."""
    order = [node.gate for node in plan.nodes]
    if len(set(order)) != len(order) or "subject" in order:
        yield "a gate is planned twice, or is named subject"
    for index, node in enumerate(plan.nodes):
        if set(node.needs) & set(order[index:]):
            yield f"{node.gate} needs a gate that is not before it"
    if list(plan.after) != sorted(set(plan.after)):
        yield "the heads that it comes after are not in order"
    for planned in plan.subjects:
        if not _in_order(planned.gates, order):
            yield f"the gates of {'/'.join(planned.subject.key)} are not in the order of the nodes"
        if (planned.subject.operation, planned.subject.domain) != (plan.operation, plan.domain):
            yield f"{'/'.join(planned.subject.key)} is of another operation or domain"
    keys = [planned.subject.key for planned in plan.subjects]
    if len(set(keys)) != len(keys):
        yield "a subject is planned twice"
    plain = [planned.subject.cell.id for planned in plan.subjects if planned.subject.role == "plain"]
    if sorted(plain) != sorted({cell for cell, _ in keys}):
        yield "a cell has not exactly one plain route"


def _in_order(gates: Sequence[str], order: Sequence[str]) -> bool:
    """Whether some gates are among the nodes, each once and in their order."""
    chosen = set(gates)
    return list(gates) == [gate for gate in order if gate in chosen]
