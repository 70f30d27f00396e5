"""A run's sources against its plan: inputs by digest, subjects word for word, modules by their identity (R6.3)."""

from __future__ import annotations

from collections.abc import Iterator

from qualify.contract import Module
from qualify.evidence import layout
from qualify.evidence.contents import Contents
from qualify.evidence.problems import Problem, ProblemError
from qualify.evidence.rejudge import document
from qualify.identity import identify_bytes
from qualify.plan import Plan


def against_sources(plan: Plan, found: Contents) -> Iterator[Problem]:
    """A problem for each input, subject or module that is not the planned one."""
    for path, digest in plan.inputs_sha256.items():
        inner = layout.input_path(path)
        if inner in found.digests and found.digests[inner] != digest:
            yield Problem(inner, "V08", f"the plan names SHA-256 {digest}")
    for planned in plan.subjects:
        path = f"{layout.subject_folder(planned.subject.key)}/{layout.SUBJECT}"
        if path in found.kept and found.kept[path] != planned.subject.canonical():
            yield Problem(path, "V09", "it is not the planned subject")
    yield from _against_modules(plan, found)


def _against_modules(plan: Plan, found: Contents) -> Iterator[Problem]:
    """Where a run keeps modules, each planned arm has its own, and each of their fragments is an input of the run."""
    identities: dict[str, str] = {}
    for path in filter(layout.is_module, sorted(found.kept)):
        try:
            module = document(Module, found.kept[path], path)
        except ProblemError as error:
            yield error.problem
            continue
        identities[identify_bytes("module", found.kept[path])] = path
        for fragment in module.fragments:
            if fragment.blake3 not in found.sources and not found.is_hidden:
                yield Problem(path, "V08", f"no input is its fragment {fragment.path}")
    arms = [arm for planned in plan.subjects for arm in (planned.subject.candidate, planned.subject.incumbent)]
    planned_identities = {arm.identity: arm.route for arm in arms if arm.identity is not None}
    for identity in sorted(planned_identities.keys() - identities.keys() if identities else ()):
        yield Problem(layout.PLAN, "V08", f"no module has the identity {identity} of {planned_identities[identity]}")
    for identity in sorted(identities.keys() - planned_identities.keys()):
        yield Problem(identities[identity], "V08", f"no planned route has its identity {identity}")
