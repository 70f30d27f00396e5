"""One operation in one domain for one command: plan, open, measure, decide, seal; what all that measures shares."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from qualify import __version__, cohort, pipeline
from qualify.bench import Rig
from qualify.domain import Domain
from qualify.engine import Execution, Gates, Progress, execute
from qualify.evidence.store import StagedRun, Store, now_utc, run_id
from qualify.identity import content
from qualify.judgement import JUDGEMENT, RunVerdict, rules_of
from qualify.plan import Node, Plan, Planned, RunRecord
from qualify.workspace import PIPELINES


@dataclass(frozen=True)
class Task:
    """What a command runs: some subjects of a cohort on a rig, through a stage of a pipeline, whole or up to a gate."""

    item: cohort.Cohort
    selection: cohort.Selection
    domain: Domain
    rig: Rig
    pipelines: pipeline.Pipelines
    stage: pipeline.Stage
    pipeline: str
    until: str | None = None

    @property
    def inputs(self) -> Mapping[str, bytes]:
        """Every file of the workspace that was read, by path."""
        return {**self.item.inputs, PIPELINES: self.pipelines.source}


@dataclass(frozen=True)
class Opened:
    """A run whose plan is on record; nothing of it was measured yet."""

    task: Task
    run: StagedRun
    seed: bytes
    started_utc: str


@dataclass(frozen=True)
class Finished:
    """A sealed run: folder, plan, verdict, what the rig failed at, whether it was interrupted."""

    folder: Path
    plan: Plan
    verdict: RunVerdict
    rig_errors: tuple[tuple[str, str], ...]
    interrupted: bool


def begin(task: Task, store: Store, gates: Gates) -> Opened:
    """Draw the secret seed and put the plan on record. Raises what a plan or a store refuses."""
    seed, started = os.urandom(32), now_utc()
    plan = _plan(task, store.heads(), seed, gates)
    task.rig.supply(task.selection.composed, task.selection.reference, seed)
    rules, modules = {name: rules_of(gate) for name, gate in gates.items()}, _modules(task.selection)
    return Opened(task, store.open(plan, task.inputs, rules, modules), seed, started)


def _modules(selection: cohort.Selection) -> Iterator[tuple[str, bytes]]:
    """The documents of all modules, and where a run keeps them."""
    for composed in selection.composed.values():
        document = composed.module.canonical()
        yield f"objects/{content(document)}.module.json", document


def finish(opened: Opened, gates: Gates, progress: Progress) -> Finished:
    """Measure and decide what was planned, and seal it, interrupted or not. Raises RigError, EvidenceError."""
    execution = execute(opened.run.plan, opened.run, opened.task.rig, gates, progress)
    with _interrupts_held(execution):
        record = RunRecord(
            run=execution.plan.run,
            seed=opened.seed.hex(),
            ended="interrupted" if execution.interrupted else "complete",
            started_utc=opened.started_utc,
            ended_utc=now_utc(),
            versions={"qualify": __version__},
            rig=execution.rig.account(),
        )
        folder, verdict = execution.run.seal(record)
    return Finished(folder, execution.plan, verdict, tuple(execution.rig_errors), execution.interrupted)


def promised(task: Task, nodes: tuple[Node, ...], gates: Gates) -> tuple[Planned, ...]:
    """The gates that are planned for each subject, with what policy leaves out (R6.8)."""
    left_out = task.pipelines.left_out(task.pipeline, task.stage, task.domain, gates)
    return tuple(
        pipeline.gates_for(nodes, subject, gates, (*left_out, *task.pipelines.too_large(nodes, subject)))
        for subject in task.selection.subjects
    )


def _plan(task: Task, after: tuple[str, ...], seed: bytes, gates: Gates) -> Plan:
    item, domain, rig, selection = task.item, task.domain, task.rig, task.selection
    nodes = task.pipelines.order(task.pipeline, task.stage, domain, gates, task.until, rig.board)
    return Plan(
        judgement=JUDGEMENT,
        run=run_id(datetime.now(UTC), item.operation, domain, os.urandom(4)),
        command=task.stage,
        pipeline=task.pipeline,
        until=task.until,
        operation=item.operation,
        dispatcher_revision=item.dispatcher_revision,
        reference=f"{item.reference.path}:{item.reference.function}",
        domain=domain,
        toolkit_build=rig.toolkit_build,
        board=rig.board,
        after=after,
        nodes=nodes,
        subjects=promised(task, nodes, gates),
        falls_back=selection.falls_back,
        left_out=selection.left_out,
        seed_sha256=hashlib.sha256(seed).hexdigest(),
        inputs_sha256={path: hashlib.sha256(data).hexdigest() for path, data in task.inputs.items()},
    )


@contextmanager
def _interrupts_held(execution: Execution) -> Iterator[None]:
    """Let a seal finish: an interrupt in between is remembered, not raised, so the run is whole or not there."""

    def remember(_number: int, _frame: FrameType | None) -> Any:
        execution.interrupted = True

    try:
        before = signal.signal(signal.SIGINT, remember)
    except ValueError:  # Not the main thread: no interrupt can arrive here.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
