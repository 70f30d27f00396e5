"""From a run that passed to admissions: kind, bound, counts, digests on public inputs (R6.5, R11.1, R12.1)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Literal

from qualify import program
from qualify.admission import Admission, Counts, Parts, PublicOutputs, Side
from qualify.anchors import Anchors, conclusive, speed_up
from qualify.bench import Rig
from qualify.contract import Arm, Composed, Variant
from qualify.domain import Domain
from qualify.errors import RigError
from qualify.evidence.history import Entry
from qualify.evidence.manifest import MANIFEST
from qualify.evidence.store import now_utc
from qualify.gate import Session, WorkerLost
from qualify.judgement import SubjectVerdict
from qualify.live import reference
from qualify.plan import Plan
from qualify.running import Finished, Opened
from qualify.seeds import split
from qualify.steps import Digest, Digests, Step
from qualify.strides import placed_alike
from qualify.subject import Subject

#: The seed of inputs that everyone may know, so that digests of two admissions can be laid side by side.
PUBLIC_SEED = "7175616c69667931"
PUBLIC_TIMEOUT_S = 120.0


def winners(finished: Finished) -> tuple[tuple[Subject, SubjectVerdict], ...]:
    """Of each cell the candidate that passed, the one with the greatest bound if several did; none if none may be."""
    if not finished.verdict.admissible:
        return ()
    verdicts = {(each.cell, each.route): each for each in finished.verdict.subjects}
    best: dict[str, tuple[Fraction, Subject, SubjectVerdict]] = {}
    for planned in finished.plan.subjects:
        subject, verdict = planned.subject, verdicts[planned.subject.key]
        timed, figure = _shown(finished.plan, verdict)
        passed = subject.role == "candidate" and verdict.outcome == "pass"
        if passed and (timed or _kind(finished.plan, subject) == "proven"):
            bound = Fraction(figure or 0)
            if subject.cell.id not in best or bound > best[subject.cell.id][0]:
                best[subject.cell.id] = bound, subject, verdict
    return tuple((subject, verdict) for _, subject, verdict in best.values())


def _kind(plan: Plan, subject: Subject) -> Literal["measured", "proven"]:
    """What a pass is worth: a time only where one was promised, of a timed cell in a promotion."""
    return "measured" if subject.cell.timed and plan.command == "promote" else "proven"


def _shown(plan: Plan, verdict: SubjectVerdict) -> tuple[bool, str | None]:
    """Whether a gate that may admit a time passed, and its bound of the speed-up; nothing else ever admits one."""
    found = verdict.model_dump(mode="json")
    gate = conclusive(found, {node.gate for node in plan.nodes if node.conclusive})
    return gate is not None, speed_up(found, gate)


def admission(
    opened: Opened, finished: Finished, subject: Subject, verdict: SubjectVerdict, counts: Counts
) -> Admission:
    """The admission of one winner."""
    task, plan = opened.task, finished.plan
    composed = task.selection.composed
    plain = next(
        planned.subject.candidate
        for planned in plan.subjects
        if planned.subject.role == "plain" and planned.subject.cell == subject.cell
    )
    built, _ = task.rig.made(str(subject.candidate.identity))
    kind = _kind(plan, subject)
    return Admission(
        kind=kind,
        subject=subject,
        toolkit_build=plan.toolkit_build,
        candidate=_parts(subject.candidate, composed),
        incumbent=_parts(subject.incumbent, composed),
        plain=None if plain == subject.incumbent else Side(arm=plain, parts=_parts(plain, composed)),
        reference=reference(task.item),
        dispatcher_revision=plan.dispatcher_revision,
        pipeline=plan.pipeline,
        board=plan.board,
        object_blake3=built.object_blake3 if built.reproducible else None,
        outputs=public_outputs(task.rig, subject),
        bound=_shown(plan, verdict)[1] if kind == "measured" else None,
        run=plan.run,
        manifest_sha256=hashlib.sha256((finished.folder / MANIFEST).read_bytes()).hexdigest(),
        counts=counts,
        admitted_utc=now_utc(),
    )


def _parts(arm: Arm, composed: Mapping[str, Composed]) -> Parts:
    return Parts.of(composed[str(arm.identity)].module)


def public_outputs(rig: Rig, subject: Subject) -> tuple[PublicOutputs, ...] | None:
    """Digests of the candidate's outputs on the public inputs, a variant each; None if the worker was lost."""
    found: list[PublicOutputs] = []
    try:
        for alike in placed_alike(subject.variants):
            with rig.bench(subject, {}).session(subject, "candidate") as session:
                session.run([program.arena(subject, 1, split(PUBLIC_SEED, "zones"), alike[0])], PUBLIC_TIMEOUT_S)
                found += [_public(subject, session, variant) for variant in alike]
    except (WorkerLost, RigError):
        return None
    return tuple(found)


def _public(subject: Subject, session: Session, variant: Variant) -> PublicOutputs:
    outputs, seed = program.outputs(subject), split(PUBLIC_SEED, variant)
    steps: tuple[Step, ...] = (
        *program.values(subject, variant, seed),
        *program.poison(subject, split(seed, "poison")),
        program.run(subject, "candidate", variant=variant),
        Digest(buffers=program.buffers(outputs)),
    )
    (row,) = program.only(session.run(steps, PUBLIC_TIMEOUT_S), Digests)
    names = (argument.name for argument in outputs)
    return PublicOutputs(variant=variant, digests=dict(zip(names, row.values, strict=True)))


def counts(entries: Iterable[Entry], operation: str, domain: Domain, cell: str, root: Path) -> Counts:
    """What became of every run on record that had the cell in the domain."""
    anchors = Anchors(root)
    seen = {"passed": 0, "failed": 0, "inconclusive": 0, "left_open": 0}
    for entry in entries:
        plan = entry.plan
        if (plan.operation, plan.domain) == (operation, domain) and _has(entry, cell):
            seen[_end(entry, cell, anchors)] += 1
    return Counts(opened=sum(seen.values()), **seen)


def _has(entry: Entry, cell: str) -> bool:
    return any(planned.subject.cell.id == cell for planned in entry.plan.subjects)


def _end(entry: Entry, cell: str, anchors: Anchors) -> str:
    """How a run ended for a cell: by its best candidate."""
    if not entry.sealed:
        return "left_open"
    found = anchors.subjects(entry.plan.run).values()
    outcomes = {each["outcome"] for each in found if each["role"] == "candidate" and each["cell"] == cell}
    if "pass" in outcomes:
        return "passed"
    return "failed" if outcomes == {"fail"} else "inconclusive"
