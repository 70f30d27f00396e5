"""Verifying evidence from disk alone: every byte, every gate judged again, every link of the history (R11.4).

The auditor trusts no one, its own store neither: it takes no lock, writes nothing, follows no link, reads each file
once, and collects every problem instead of stopping at the first. What it cannot show: a run whose facts and verdict
were both rewritten and hashed again, unless a later plan or an admission names the old manifest (R11.5).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from qualify.errors import Exit, UsageError
from qualify.evidence import contents, layout, manifest
from qualify.evidence.contents import Contents
from qualify.evidence.files import below, folder
from qualify.evidence.manifest import MANIFEST
from qualify.evidence.problems import EXITS, AuditOutcome, Problem, ProblemError, outcome_of
from qualify.evidence.spread import spread

if TYPE_CHECKING:  # Whoever verifies one run begins to read before it imports any of these.
    from qualify.evidence.history import Records
    from qualify.evidence.withdrawal import Withdrawal
    from qualify.judgement import Rules, RunVerdict
    from qualify.plan import Plan

#: What a success does not say; printed with it.
RUN_ANCHOR = "history not checked: this run alone"
STORE_ANCHOR = "unanchored: a rewrite of everything, history included, would not show"


@dataclass(frozen=True)
class RunFindings:
    """What is wrong with one run, and its record; digests are None where the file cannot be read."""

    run: str
    problems: tuple[Problem, ...]
    plan_sha256: str | None = None
    manifest_sha256: str | None = None

    @property
    def outcome(self) -> AuditOutcome:
        """verified, bad or unknown."""
        return outcome_of(self.problems)

    @property
    def exit(self) -> Exit:
        """The exit code that the outcome means."""
        return EXITS[self.outcome]


@dataclass(frozen=True)
class RunAudit(RunFindings):
    """What became of one run; `plan` and `verdict` are None where they cannot be read or derived."""

    plan: Plan | None = None
    verdict: RunVerdict | None = None


R = TypeVar("R", bound=RunFindings)


@dataclass(frozen=True)
class StoreAudit(Generic[R]):
    """What became of a store: its sealed runs, those that were opened and never sealed, its history, withdrawals."""

    runs: tuple[R, ...]
    opened: tuple[str, ...]
    heads: tuple[str, ...]
    problems: tuple[Problem, ...]
    withdrawn: Mapping[str, Withdrawal] = field(default_factory=dict)

    @property
    def outcome(self) -> AuditOutcome:
        """verified, bad or unknown, over the history and every run."""
        return outcome_of([*self.problems, *(problem for run in self.runs for problem in run.problems)])

    @property
    def exit(self) -> Exit:
        """The exit code that the outcome means."""
        return EXITS[self.outcome]

    @property
    def codes(self) -> frozenset[str]:
        """Every code that was found anywhere."""
        return frozenset(problem.code for problem in (*self.problems, *(p for run in self.runs for p in run.problems)))


def verify_run(path: Path, gates: Mapping[str, Rules]) -> RunAudit:
    """Verify one sealed run by itself; its history is not looked at. Raises UsageError if there is no such folder."""
    place = _place(path, "a sealed run")
    try:
        with folder(str(place), place.name) as at:
            return _audit(at, place.name, gates)
    except ProblemError as error:
        return RunAudit(place.name, (error.problem,))


def verify_runs(paths: Sequence[Path], gates: Mapping[str, Rules]) -> tuple[RunFindings, ...]:
    """Verify runs as `verify_run` does, side by side, a process a core."""
    for path in paths:
        _place(path, "a sealed run")
    return _side_by_side(len(paths), gates, lambda number: verify_run(paths[number], gates))


def verify_store(root: Path, gates: Mapping[str, Rules]) -> StoreAudit[RunAudit]:
    """Verify every sealed run of a store and its history. Raises UsageError if there is no such folder."""
    return _verify_store(root, lambda at, found: tuple(_audit_in_store(at, run, found, gates) for run in found.runs))


def verify_store_side_by_side(root: Path, gates: Mapping[str, Rules]) -> StoreAudit[RunFindings]:
    """Verify a store as `verify_store` does, its runs side by side, a process a core; plans and verdicts stay there."""

    def audit(at: int, found: Records) -> tuple[RunFindings, ...]:
        runs = found.runs
        return _side_by_side(len(runs), gates, lambda number: _audit_in_store(at, runs[number], found, gates))

    return _verify_store(root, audit)


def _side_by_side(
    count: int, gates: Mapping[str, Rules], audit: Callable[[int], RunFindings]
) -> tuple[RunFindings, ...]:
    if count > 1:
        import qualify.evidence.judging  # noqa: F401 -- read now, as the gates are, and not by each process.

        len(gates)
    return tuple(map(_from_bytes, spread(lambda number: _to_bytes(audit(number)), count)))


def _to_bytes(found: RunFindings) -> bytes:
    """JSON that names of files survive which are no text."""
    problems = [(problem.path, problem.code, problem.message) for problem in found.problems]
    return json.dumps((found.run, problems, found.plan_sha256, found.manifest_sha256)).encode("ascii")


def _from_bytes(data: bytes) -> RunFindings:
    run, problems, plan_sha256, manifest_sha256 = json.loads(data)
    return RunFindings(run, tuple(Problem(*problem) for problem in problems), plan_sha256, manifest_sha256)


def _verify_store(root: Path, audit: Callable[[int, Records], tuple[R, ...]]) -> StoreAudit[R]:
    from qualify.evidence import history

    place = _place(root, "an evidence store")
    try:
        with folder(str(place), place.name) as at:
            found = history.records(at)
            return _with_history(found, audit(at, found))
    except ProblemError as error:
        return StoreAudit((), (), (), (error.problem,))


def _place(path: Path, what: str) -> Path:
    """An absolute path, links not resolved, so that a folder keeps the name that it is judged by."""
    place = Path(os.path.abspath(path))
    if not os.path.lexists(place):
        raise UsageError(f"expected {what}, got nothing at {place}", fix="name a folder that is there")
    return place


def _with_history(found: Records, audits: tuple[R, ...]) -> StoreAudit[R]:
    from qualify.evidence import history

    graph, problems = history.history(found, {audit.run: audit.manifest_sha256 for audit in audits})
    problems += found.problems
    if not any(problem.outcome == "unknown" for problem in problems) and not any(map(_is_hidden, audits)):
        problems += graph.gone()
    problems += graph.miscounted()
    sealed = {audit.run for audit in audits}
    opened = tuple(run for run in sorted(found.opened) if run not in sealed)
    return StoreAudit(audits, opened, graph.heads, tuple(sorted(problems)), graph.withdrawn)


def _is_hidden(audit: RunFindings) -> bool:
    """Whether a run's manifest is there and cannot be read: then nothing is known to be gone."""
    return audit.manifest_sha256 is None and audit.outcome == "unknown"


def _audit_in_store(at: int, run: str, found: Records, gates: Mapping[str, Rules]) -> RunAudit:
    """Verify a run of a store: as a stranger would, and against the plan that was opened, where that can be read."""
    try:
        with below(at, f"{layout.RUNS}/{run}") as handle:
            audit = _audit(handle, run, gates)
    except ProblemError as error:
        return RunAudit(run, (error.problem,))
    opened = found.opened.get(run)
    if opened is None or audit.plan_sha256 in (None, hashlib.sha256(opened).hexdigest()):
        return audit
    changed = Problem(layout.PLAN, "V06", f"it is not {layout.OPENED}/{run}.json")
    return replace(audit, problems=(*audit.problems, changed))


def _audit(at: int, name: str, gates: Mapping[str, Rules]) -> RunAudit:
    with contents.reading(at) as (found, end):
        from qualify.evidence import judging  # While other processes hash large files, which nothing here waits for.

        begun = judging.begin(found, gates)
        end()
    verdict, problems = judging.finish(name, begun, found)
    problems += [*found.problems, *_against_manifest(found)]
    return RunAudit(
        run=name,
        problems=tuple(sorted(set(problems))),
        plan=begun.plan,
        verdict=verdict,
        plan_sha256=found.digests.get(layout.PLAN),
        manifest_sha256=found.digests.get(MANIFEST),
    )


def _against_manifest(found: Contents) -> Iterator[Problem]:
    """Exactly the listed files with exactly the listed bytes, and no folder that they do not need."""
    if MANIFEST not in found.kept:
        if not found.is_refused(MANIFEST):
            yield Problem(MANIFEST, "S09", "every sealed run has this file")
        return
    try:
        listed = manifest.parse(found.kept[MANIFEST])
    except ProblemError as error:
        yield error.problem
        return
    for path in sorted(listed.keys() - found.digests.keys()):
        if not found.is_refused(path):
            yield Problem(path, "S03", "the manifest lists it and it is not there")
    for path in sorted(found.digests.keys() - listed.keys() - manifest.UNLISTED):
        yield Problem(path, "S01", "the manifest does not list it")
    for path in sorted(found.digests.keys() & listed.keys()):
        if found.digests[path] != listed[path]:
            code = "C01" if found.sizes[path] else "C02"
            yield Problem(path, code, f"expected SHA-256 {listed[path]}, got {found.digests[path]}")
    for path in sorted(found.folders - _implied(listed)):
        yield Problem(path, "S06", "no listed file lies in it")


def _implied(paths: Iterable[str]) -> set[str]:
    """Every folder that some files lie in, at any depth."""
    folders = {path.rpartition("/")[0] for path in paths}
    return {
        "/".join(parts[:end]) for parts in (path.split("/") for path in folders) for end in range(1, len(parts) + 1)
    }
