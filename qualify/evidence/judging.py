"""A run's documents beside each other, and the verdict that they give: what an audit does once it has begun to read.

Models and judgement are imported here and not by `audit`, so that large files are being hashed by then. What judges
needs none of them (R11.4).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from qualify.evidence import layout, manifest
from qualify.evidence.contents import Contents
from qualify.evidence.manifest import MANIFEST
from qualify.evidence.problems import Problem, ProblemError
from qualify.evidence.rejudge import Judged, document, rejudge
from qualify.evidence.sources import against_sources
from qualify.judgement import Rules, RunVerdict
from qualify.model import Document
from qualify.plan import Plan, RunRecord

D = TypeVar("D", bound=Document)


@dataclass(frozen=True)
class Begun:
    """A run's plan and record, what its measurements give, and what was wrong on the way; None is what cannot be read.

    `judged` is None too where the plan is impossible.
    """

    plan: Plan | None
    record: RunRecord | None
    judged: Judged | None
    problems: tuple[Problem, ...]


def begin(found: Contents, gates: Mapping[str, Rules]) -> Begun:
    """Judge a run again from what is held of it."""
    problems: list[Problem] = []
    plan = _document(Plan, found, layout.PLAN, problems)
    record = _document(RunRecord, found, layout.RECORD, problems)
    judged = None
    if plan is not None and record is not None and not found.is_hidden and not any(layout.contradictions(plan)):
        judged = rejudge(plan, record, found.kept, gates)
    return Begun(plan, record, judged, tuple(problems))


def finish(name: str, begun: Begun, found: Contents) -> tuple[RunVerdict | None, list[Problem]]:
    """The verdict, and everything that is wrong with what a run says, once all of it is read."""
    problems, verdict = list(begun.problems), None
    if begun.plan is not None and begun.record is not None:
        problems += [*_against_plan(name, begun.plan, begun.record, found), *against_sources(begun.plan, found)]
        if begun.judged is not None and not found.is_hidden:
            problems += begun.judged.problems
            problems += _against_judged(begun.plan, begun.judged, found)
            verdict = begun.judged.verdict
    return verdict, problems


def _document(model: type[D], found: Contents, path: str, problems: list[Problem]) -> D | None:
    """A document that every run has, or a problem."""
    if path not in found.kept:
        if not found.is_refused(path):
            problems.append(Problem(path, "S08", "every run has this file"))
        return None
    try:
        return document(model, found.kept[path], path)
    except ProblemError as error:
        problems.append(error.problem)
        return None


def _against_plan(name: str, plan: Plan, record: RunRecord, found: Contents) -> Iterator[Problem]:
    """The run's own name, the committed seed, and every file that the plan promises."""
    for path, run in ((layout.PLAN, plan.run), (layout.RECORD, record.run)):
        if run != name:
            yield Problem(path, "L07", f"it is of the run {run}")
    for text in layout.contradictions(plan):
        yield Problem(layout.PLAN, "V09", text)
    if hashlib.sha256(bytes.fromhex(record.seed)).hexdigest() != plan.seed_sha256:
        yield Problem(layout.RECORD, "V17", "its SHA-256 is not seed_sha256 of the plan")
    for path in sorted(layout.required(plan) - found.digests.keys()):
        if not found.is_refused(path):
            yield Problem(path, "S08", "the plan promises this file")
    for path in sorted(manifest.UNLISTED & found.digests.keys() - {MANIFEST}):
        yield Problem(path, "V07", "this version cannot check signatures")


def _against_judged(plan: Plan, judged: Judged, found: Contents) -> Iterator[Problem]:
    """No file that nothing asks for, and in verdict.json what the measurements give, byte for byte."""
    allowed = layout.required(plan) | judged.series | manifest.UNLISTED
    for path in sorted(found.digests.keys() - allowed):
        if not layout.is_attached(path):
            yield Problem(path, "S01", "the plan has no such file")
    written = found.kept.get(layout.VERDICT)
    if judged.verdict is not None and written is not None and written != judged.verdict.canonical():
        yield Problem(layout.VERDICT, "V02", "it is not what the measurements give")
