"""Gates outside, subjects inside, closed on anything: only a positive verdict opens the next gate (DESIGN section 8).

Gates outside means that a thousand candidates meet the compiler before one meets the board. Host gates run in
threads of this process, device gates one subject at a time. Every measurement is written, read back and decided by the
run (`StagedRun.record`) before the next gate starts, so that what `verify-evidence` will say is what was said here.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any, Protocol

from qualify.bench import GateBench, Rig
from qualify.errors import QualifyError
from qualify.evidence.layout import telemetry_path
from qualify.evidence.store import StagedRun
from qualify.gate import Facts, Gate, Measurement, Settings, WorkerLost
from qualify.judgement import settings_of
from qualify.plan import Node, Plan, Planned
from qualify.subject import Subject
from qualify.verdict import Verdict

Gates = Mapping[str, Gate[Any, Any]]
MAX_REASON_CHARS = 2000  # A traceback's end is what says where; the rest would only grow the evidence.


class Progress(Protocol):
    """What a person watches while a run is measured."""

    def gate(self, gate: str, subjects: int) -> None:
        """A gate starts on that many open subjects."""
        ...

    def measuring(self, planned: Planned, gate: str) -> None:
        """A subject meets the gate."""
        ...

    def decided(self, planned: Planned, gate: str, verdict: Verdict) -> None:
        """A gate has decided one subject."""
        ...


@dataclass
class _State:
    """What the engine knows of one subject: the gates that measured it and why it is closed, if it is."""

    planned: Planned
    measured: set[str] = field(default_factory=set)
    closed: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether this is the route that the others of its cell are judged against."""
        return self.planned.subject.role == "plain"


@dataclass(frozen=True)
class _Needed(Mapping[str, tuple[Measurement, str]]):
    """Measurements that a gate may ask for, each read again when it does."""

    run: StagedRun
    subject: Subject
    gates: tuple[str, ...]

    def __getitem__(self, gate: str) -> tuple[Measurement, str]:
        if gate not in self.gates:
            raise KeyError(gate)
        return self.run.measurement(self.subject, gate)

    def __iter__(self) -> Iterator[str]:
        return iter(self.gates)

    def __len__(self) -> int:
        return len(self.gates)


@dataclass
class Execution:
    """One run of a plan. `rig_errors` collects what the rig, not a kernel, failed at."""

    plan: Plan
    run: StagedRun
    rig: Rig
    gates: Gates
    progress: Progress
    rig_errors: list[tuple[str, str]] = field(default_factory=list)
    interrupted: bool = False

    def execute(self) -> None:
        """Measure and decide everything that was planned. An interrupt closes what is left and returns."""
        states = {planned.subject.key: _State(planned) for planned in self.plan.subjects}
        try:
            for node in self.plan.nodes:
                self._gate(node, states)
                self.run.fill()  # After the first gate: compilers have work by then.
        except KeyboardInterrupt:
            self.interrupted = True
            self.rig.close()
        for state in states.values():
            self._close(state)

    def _gate(self, node: Node, states: Mapping[tuple[str, str], _State]) -> None:
        """One gate over all open subjects: plain routes first, since an unsound incumbent closes its cell."""
        if node.runs_on == "device":
            self.rig.settle()
        due = [state for state in states.values() if node.gate in state.planned.gates]
        self.progress.gate(node.gate, sum(state.closed is None for state in due))
        for plain in (True, False):
            wave = [state for state in due if state.is_plain == plain and state.closed is None]
            for state, (measurement, series) in self._measured(node, wave):
                self._record(node, state, measurement, series)
            self._close_cells(states)

    def _measured(
        self, node: Node, wave: list[_State]
    ) -> Iterator[tuple[_State, tuple[Measurement, Mapping[str, bytes]]]]:
        """Measurements as they end: threads for a host gate, one after the other on a device."""
        if node.runs_on == "device" or len(wave) < 2:
            for state in wave:
                self.progress.measuring(state.planned, node.gate)
                yield state, self._measure(node, state)
            return
        with ThreadPoolExecutor(max_workers=2 * (os.cpu_count() or 1)) as pool:
            futures = {pool.submit(self._measure, node, state): state for state in wave}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.rig.close()
                raise

    def _measure(self, node: Node, state: _State) -> tuple[Measurement, Mapping[str, bytes]]:
        """One gate's facts about one subject; whatever goes wrong becomes the measurement's state."""
        gate = self.gates[node.gate]
        subject = state.planned.subject
        needed = _Needed(self.run, subject, tuple(need for need in node.needs if need in state.measured))
        bench = self.rig.bench(subject, needed, self.run.keeps)
        started_ns = time.monotonic_ns()
        made = self._attempt(gate, state.planned, bench, settings_of(gate.rule.settings, node))
        measurement = made.model_copy(
            update={
                "gate": node.gate,
                "rule": node.rule,
                "uses": {need: self.run.sha256(subject, need) for need in needed},
                "host_ns": time.monotonic_ns() - started_ns,
            }
        )
        for path, data in bench.objects.items():
            self.run.attach(path, data)
        if bench.telemetry is not None:
            self.run.attach(telemetry_path(state.planned.subject.key, node.gate), bench.telemetry.canonical())
        return measurement, dict(bench.series_data) if measurement.state == "measured" else {}

    def _attempt(self, gate: Gate[Any, Any], planned: Planned, bench: GateBench, settings: Settings) -> Measurement:
        """The state of a measurement. The one place where any exception of a gate is caught (R5.1)."""
        draft = Measurement(gate=gate.id, rule=gate.rule.number, state="error")
        try:
            facts: Facts = gate.measure(planned.subject, bench, settings)
        except WorkerLost as lost:
            return draft.model_copy(update={"state": "lost", "loss": lost.loss})
        except QualifyError as error:
            return draft.model_copy(update={"reason": self._rig_error(planned, gate.id, str(error))})
        except Exception:  # noqa: BLE001 -- a gate's bug closes its subject as inconclusive and is kept.
            return draft.model_copy(update={"reason": self._rig_error(planned, gate.id, traceback.format_exc())})
        return draft.model_copy(update={"state": "measured", "facts": facts.model_dump(mode="json")})

    def _rig_error(self, planned: Planned, gate: str, text: str) -> str:
        cell, route = planned.subject.key
        self.rig_errors.append((f"{cell}/{route} {gate}", text))
        return text[-MAX_REASON_CHARS:]

    def _record(self, node: Node, state: _State, measurement: Measurement, series: Mapping[str, bytes]) -> None:
        """Write, read back, decide; anything but a pass closes the subject."""
        subject = state.planned.subject
        judged = self.run.record(subject, measurement, series)
        verdict = Verdict(checks=judged.checks, notes=judged.notes)
        state.measured.add(node.gate)
        self.progress.decided(state.planned, node.gate, verdict)
        if verdict.outcome != "pass":
            state.closed = f"closed by {node.gate}"
        elif self._next_is_host(node, state.planned):
            self.rig.ahead(subject)

    def _next_is_host(self, node: Node, planned: Planned) -> bool:
        """Whether a subject that passes a gate meets another one that a compiler may be asked for."""
        later = planned.gates[planned.gates.index(node.gate) + 1 :]
        return bool(later) and self.plan.node(later[0]).runs_on == "host"

    def _close_cells(self, states: Mapping[tuple[str, str], _State]) -> None:
        """An incumbent that is closed closes every subject of its cell."""
        unsound = {key[0] for key, state in states.items() if state.is_plain and state.closed}
        for (cell, _), state in states.items():
            if cell in unsound and not state.is_plain and state.closed is None:
                state.closed = "incumbent unsound"

    def _close(self, state: _State) -> None:
        """Record `not-run` with its reason for every planned gate that was not reached (R8.3)."""
        reason = state.closed or "interrupted"
        for gate in state.planned.gates:
            if gate not in state.measured:
                rule = self.plan.node(gate).rule
                absent = Measurement(gate=gate, rule=rule, state="not-run", reason=reason)
                self.run.record(state.planned.subject, absent, {})


def execute(plan: Plan, run: StagedRun, rig: Rig, gates: Gates, progress: Progress) -> Execution:
    """Run a plan to its end and return what became of it. Raises RigError if the store cannot be written."""
    execution = Execution(plan, run, rig, gates, progress)
    execution.execute()
    return execution


__all__ = ["Execution", "Progress", "execute"]
