"""One pair through one gate as a run takes it: the gate's own measure, facts read back, `decide`; and what it took."""

from __future__ import annotations

import os
import statistics
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from gates import GATES
from qualify import pipeline, program, readings, timed
from qualify.bench import GateBench, Rig
from qualify.contract import Composed, ReferenceSource
from qualify.gate import Measurement, Series, Session, Surroundings, WorkerLost
from qualify.judgement import decide, rules_of
from qualify.model import canonical_bytes
from qualify.plan import Node
from qualify.sessions import MeasuringSession
from qualify.steps import ArmName, Record, Step
from qualify.subject import Subject
from qualify.timed import TimedFacts
from qualify.windows import Window, nearest_rank


@dataclass(frozen=True)
class Verdict:
    """What one gate said of one pair, in how many seconds, and what its series show beside."""

    gate: str
    outcome: str
    admitted: bool
    seconds: float
    fields: Mapping[str, Any]


@dataclass
class Judge:
    """A rig with the modules of a family, and the settings that the repository's pipelines give a gate."""

    rig: Rig
    nodes: Mapping[str, Node]
    composed: Mapping[str, Composed]
    reference: ReferenceSource

    def judge(self, gate: str, subject: Subject) -> Verdict:
        """Measure and decide, under a fresh secret seed. Raises RigError; a lost worker is an outcome."""
        self.rig.supply(self.composed, self.reference, os.urandom(32))
        bench = _Watched(self.rig, subject)
        node, started_s = self.nodes[gate], time.monotonic()
        settings = GATES[gate].rule.settings.parse(canonical_bytes(node.settings))
        draft = Measurement(gate=gate, rule=node.rule, state="measured")
        series: Mapping[str, bytes] = {}
        try:
            facts = GATES[gate].measure(subject, bench, settings).model_dump(mode="json")
            measurement, series = draft.model_copy(update={"facts": facts}), dict(bench.series_data)
        except WorkerLost as lost:
            measurement = draft.model_copy(update={"state": "lost", "loss": lost.loss})
        measurement = Measurement.parse(measurement.canonical())
        verdict = decide(node, subject, measurement, series, rules_of(GATES[gate]))
        seconds = time.monotonic() - started_s
        failed = [f"{check.name}: {check.got}" for check in verdict.checks if not check.holds]
        fields: dict[str, Any] = {
            "failed": failed,
            "spent_s": bench.spent(),
            **_shown(gate, subject, measurement, series),
        }
        return Verdict(gate, verdict.outcome, verdict.outcome == "pass", seconds, fields)


def nodes(rig: Rig, pipelines: pipeline.Pipelines, changes: Mapping[str, Mapping[str, Any]]) -> dict[str, Node]:
    """Trial and timing as a promotion plans them, with what this board's calibration gives; `changes` are for tests."""
    ordered = pipelines.order(pipeline.DEFAULT, "promote", rig.domain, GATES, None, rig.board)
    found = {node.gate: node for node in ordered if GATES[node.gate].timed and node.gate in ("trial", "timing")}
    return {name: _changed(node, changes.get(name, {})) for name, node in found.items()}


def _changed(node: Node, changes: Mapping[str, Any]) -> Node:
    settings = node.settings if isinstance(node.settings, dict) else {}
    return node.model_copy(update={"settings": {**settings, **changes}})


# What it took --------------------------------------------------------------------------------------------------------


class _Watched(GateBench):
    """The gate's bench, with the seconds of starting workers and of each kind of message."""

    def __init__(self, rig: Rig, subject: Subject) -> None:
        super().__init__(rig, subject, {})
        self._spent: defaultdict[str, float] = defaultdict(float)

    def spent(self) -> dict[str, float]:
        """Seconds by what was done, and how many sessions there were."""
        return {name: round(value, 3) for name, value in sorted(self._spent.items())}

    @contextmanager
    def session(self, subject: Subject, *arms: ArmName) -> Iterator[MeasuringSession]:
        """A session whose messages are timed."""
        started_s = time.monotonic()
        with super().session(subject, *arms) as session:
            self._spent["start"] += time.monotonic() - started_s
            self._spent["sessions"] += 1
            yield cast("MeasuringSession", _Timed(session, self._spent))  # A gate sees `gate.Session` of it.
            ending_s = time.monotonic()
        self._spent["end"] += time.monotonic() - ending_s


class _Timed:
    """A session that adds up the seconds of each kind of message."""

    def __init__(self, session: Session, spent: defaultdict[str, float]) -> None:
        self._session, self._spent = session, spent

    def run(self, steps: Sequence[Step], timeout_s: float) -> Sequence[Record]:
        """As the session does it."""
        started_s = time.monotonic()
        records = self._session.run(steps, timeout_s)
        kinds = "+".join(sorted({step.do for step in steps}))
        self._spent[kinds] += time.monotonic() - started_s
        return records

    def taken(self) -> Sequence[bytes]:
        """As the session has it."""
        return self._session.taken()

    def surroundings(self) -> Surroundings:
        """As the session has it."""
        return self._session.surroundings()


# What the series show ------------------------------------------------------------------------------------------------


def _shown(gate: str, subject: Subject, measurement: Measurement, series: Mapping[str, bytes]) -> dict[str, Any]:
    """Figures beside the verdict; none where nothing was measured."""
    values = {name: struct.unpack(f"<{len(data) // 8}q", data) for name, data in series.items()}
    if "orders" not in values:
        return {}
    facts: Any = GATES[gate].rule.facts.parse(canonical_bytes(measurement.facts))
    found: dict[str, Any] = {"passes": facts.pace.passes, "units": facts.pace.units}
    outputs = len(program.outputs(subject))
    if gate == "trial":
        attempts = readings.from_series(values, facts.pace.pace, outputs)
        return found | {"naive": naive([attempt.window for attempt in attempts])}
    return found | _timing(facts, values, outputs)


def _timing(facts: TimedFacts, values: Series, outputs: int) -> dict[str, Any]:
    if facts.pace is None:
        return {}
    seen = timed.from_series(facts, values, facts.pace.pace, outputs)
    windows = [each.attempt.window for each in seen]
    totals = sorted(float(window.total) for window in windows)
    found: dict[str, Any] = {"naive": naive(windows), "windows": len(windows), "d_median": totals[len(totals) // 2]}
    found["totals_ns"] = [[segment.total_ns for segment in window.segments] for window in windows]
    found["orders"] = "".join(str(int(window.candidate_first)) for window in windows)
    found["units_ns"] = {arm: _by_place(windows, arm) for arm in ("candidate", "incumbent")}
    found["d_spread"] = (totals[len(totals) * 84 // 100] - totals[len(totals) * 16 // 100]) / 2
    if "long_parent" in values:
        found["long_ratio"], found["lean_ns"] = in_a_row(timed.long_runs(values, outputs))
    return found


def in_a_row(runs: Sequence[Any]) -> tuple[float, float]:
    """The plain arm's time of a pass over the lean one's in the long runs, by the device's clock, and the latter."""
    arms = program.window_arms(candidate_first=False)
    took, passes = Counter[str](), Counter[str]()
    for at, run in enumerate(runs):
        took[arms[at % len(arms)]] += run.reading.timed.total_ns
        passes[arms[at % len(arms)]] += run.passes
    plain, lean = (took[arm] / passes[arm] for arm in ("incumbent", "candidate"))
    return plain / lean, lean


def naive(windows: Sequence[Window]) -> bool:
    """Whether p50 and p95 of the candidate's units are both the lower ones, as a plain reading has it."""
    p50, p95 = ({arm: _rank(windows, arm, percent) for arm in ("candidate", "incumbent")} for percent in (50, 95))
    return all(figure["candidate"] < figure["incumbent"] for figure in (p50, p95))


def _by_place(windows: Sequence[Window], arm: str) -> list[float]:
    """The median of an arm's units at each place in a segment: whether the first differ from the later ones."""
    segments = [segment.units_ns for window in windows for segment in getattr(window, arm)]
    return [statistics.median(units) for units in zip(*segments, strict=True)]


def _rank(windows: Sequence[Window], arm: str, percent: int) -> int:
    units = [unit for window in windows for segment in getattr(window, arm) for unit in segment.units_ns]
    return nearest_rank(units, percent)
