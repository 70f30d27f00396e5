"""The engine over random graphs and outcomes: only a positive verdict opens, and the auditor agrees."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qualify.bench import Rig
from qualify.engine import Execution, execute
from qualify.errors import RigError
from qualify.evidence import audit
from qualify.evidence.store import Store
from qualify.gate import Bench, Facts, Gate, Loss, Rule, Series, Settings, WorkerLost
from qualify.judgement import RunVerdict, rules_of
from qualify.plan import Node, Plan, Planned, RunRecord
from qualify.subject import Subject
from qualify.verdict import Check, Verdict
from tests.conftest import examples
from tests.evidence import small

Ending = Literal["pass", "fail", "unknown", "nothing", "bug", "rig", "lost", "lost incumbent", "interrupt"]
ENDINGS: tuple[Ending, ...] = (
    "pass", "pass", "pass", "fail", "unknown", "nothing", "bug", "rig", "lost", "lost incumbent"
)  # fmt: skip
ROUTES = ("plain", "fast", "large")


class SaidFacts(Facts):
    said: str


class NoSettings(Settings):
    pass


def _judge(subject: Subject, facts: SaidFacts, series: Series, settings: NoSettings) -> Iterable[Check]:
    if facts.said != "nothing":
        holds = {"pass": True, "fail": False}.get(facts.said)
        yield Check(name="said", got=facts.said, want="pass", holds=holds)


class ScriptedGate(Gate[SaidFacts, NoSettings]):
    """A gate that ends as its script says for each route, and keeps the order in which it was asked."""

    claim: ClassVar[str] = "What the script says."
    rules: ClassVar[tuple[Rule[Any, Any], ...]] = (
        Rule(1, SaidFacts, NoSettings, lambda subject: frozenset({"said"}), _judge),
    )

    def __init__(
        self, name: str, runs_on: Literal["host", "device"], script: dict[str, Ending], log: list[Any]
    ) -> None:
        self.id, self.runs_on, self._script, self._log = name, runs_on, script, log  # type: ignore[misc]

    def measure(self, subject: Subject, bench: Bench, settings: NoSettings) -> SaidFacts:
        route = subject.candidate.route
        self._log.append((self.id, route))
        ending = self._script[route]
        match ending:
            case "bug":
                raise ZeroDivisionError("a gate's bug")
            case "rig":
                raise RigError("expected a board, got none", fix="plug it in")
            case "lost":
                raise WorkerLost(Loss(how="died", step="launch 1 of 1", arm="candidate", signal=11))
            case "lost incumbent":
                raise WorkerLost(Loss(how="hung", step="launch 1 of 1", arm="incumbent", signal=9))
            case "interrupt":
                raise KeyboardInterrupt
        return SaidFacts(said=ending)


class Silent:
    """Nobody watches."""

    def gate(self, gate: str, subjects: int) -> None: ...

    def measuring(self, planned: Planned, gate: str) -> None: ...

    def decided(self, planned: Planned, gate: str, verdict: Verdict) -> None: ...


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig.open("simulated-1.0") as opened:
        yield opened


def plan_of(gates: list[ScriptedGate], needs: list[tuple[str, ...]]) -> Plan:
    nodes = tuple(
        Node(gate=gate.id, rule=1, runs_on=gate.runs_on, settings={}, needs=need, cost_s="1", source_blake3="0" * 64)
        for gate, need in zip(gates, needs, strict=True)
    )
    names = tuple(gate.id for gate in gates)
    subjects = tuple(Planned(subject=small.subject(route), gates=names) for route in ROUTES)
    return small.plan().model_copy(update={"nodes": nodes, "subjects": subjects})


def carried_out(rig: Rig, plan: Plan, gates: list[ScriptedGate], root: Path) -> tuple[Execution, RunVerdict, Path]:
    """A plan carried to its sealed run."""
    table = {gate.id: gate for gate in gates}
    run = Store(root).open(plan, small.INPUTS, {name: rules_of(gate) for name, gate in table.items()})
    for route in ROUTES:
        run.attach(small.module_path(route), small.module(route).canonical())
    execution = execute(plan, run, rig, table, Silent())
    record = small.run_record(interrupted=execution.interrupted)
    folder, verdict = run.seal(record)
    assert verdict == RunVerdict.parse((folder / "verdict.json").read_bytes())
    return execution, verdict, folder


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[tuple[str, ...]], list[Literal["host", "device"]], list[dict[str, Ending]]]:
    """Needs, places and endings of one to four gates; a gate needs earlier ones only, as after a topological sort."""
    count = draw(st.integers(1, 4))
    needs = [tuple(f"g{i}" for i in range(index) if draw(st.booleans())) for index in range(count)]
    places = [draw(st.sampled_from(["host", "device"])) for _ in range(count)]
    endings = [{route: draw(st.sampled_from(ENDINGS)) for route in ROUTES} for _ in range(count)]
    return needs, places, endings  # type: ignore[return-value]


@given(graphs())
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_only_a_positive_verdict_of_every_planned_gate_passes(rig: Rig, graph: Any) -> None:
    needs, places, endings = graph
    log: list[tuple[str, str]] = []
    gates = [
        ScriptedGate(f"g{i}", place, script, log) for i, (place, script) in enumerate(zip(places, endings, strict=True))
    ]
    root = Path(tempfile.mkdtemp())
    try:
        _, verdict, folder = carried_out(rig, plan_of(gates, needs), gates, root / "evidence")
        rules = {gate.id: rules_of(gate) for gate in gates}
        assert audit.verify_run(folder, rules).outcome == "verified"
    finally:
        shutil.rmtree(root)
    expect(verdict, log, endings)


def expect(verdict: RunVerdict, log: list[tuple[str, str]], endings: list[dict[str, Ending]]) -> None:
    """What must hold of any run: passes, closings, order, and plain before candidates."""
    by_route = {subject.route: subject for subject in verdict.subjects}
    plain_ends = next((i for i, script in enumerate(endings) if script["plain"] != "pass"), len(endings))
    for route in ROUTES:
        first = next((i for i, script in enumerate(endings) if script[route] != "pass"), len(endings))
        reached = first if route == "plain" else min(first, plain_ends - 1 if plain_ends <= first else first)
        asked = [int(gate[1:]) for gate, which in log if which == route]
        assert asked == list(range(min(reached, len(endings) - 1) + 1)), route
        assert (by_route[route].outcome == "pass") == (min(first, plain_ends) == len(endings)), route
    for index in range(len(endings)):
        routes = [route for gate, route in log if gate == f"g{index}"]
        assert routes[:1] in ([], ["plain"])


def run_once(rig: Rig, tmp_path: Path, **scripts: Ending) -> tuple[Execution, RunVerdict]:
    """Two gates, the first as scripted by route, the second passing."""
    script: dict[str, Ending] = {**dict.fromkeys(ROUTES, "pass"), **scripts}
    gates = [
        ScriptedGate("first", "device", script, []),
        ScriptedGate("second", "device", dict.fromkeys(ROUTES, "pass"), []),
    ]
    execution, verdict, _ = carried_out(rig, plan_of(gates, [(), ("first",)]), gates, tmp_path / "evidence")
    return execution, verdict


def test_inputs_and_subjects_are_stored_once_compilers_have_work(rig: Rig, tmp_path: Path) -> None:
    """Behind the first gate, which begins what the second one waits for."""
    seen: list[str] = []
    gates = [ScriptedGate(name, "host", dict.fromkeys(ROUTES, "pass"), []) for name in ("first", "second")]
    plan, table = plan_of(gates, [(), ("first",)]), {gate.id: gate for gate in gates}
    rules = {name: rules_of(gate) for name, gate in table.items()}
    run = Store(tmp_path / "evidence", announce=seen.append).open(plan, small.INPUTS, rules)
    execute(plan, run, rig, table, Silent())
    run.close()
    written = [text for text in seen if text.startswith("after write") and "probe" not in text]
    last_of_first = max(index for index, text in enumerate(written) if text.endswith("/first.json"))
    first_of_second = min(index for index, text in enumerate(written) if text.endswith("/second.json"))
    stored = [index for index, text in enumerate(written) if "/inputs/" in text or text.endswith("/subject.json")]
    assert len(stored) == len(small.INPUTS) + len(ROUTES)
    assert last_of_first < min(stored)
    assert max(stored) < first_of_second


def subject_of(verdict: RunVerdict, route: str) -> Any:
    return next(subject for subject in verdict.subjects if subject.route == route)


def test_a_loss_in_the_candidates_step_fails_it_and_the_next_subject_passes(rig: Rig, tmp_path: Path) -> None:
    _, verdict = run_once(rig, tmp_path, fast="lost")
    assert (subject_of(verdict, "fast").outcome, subject_of(verdict, "fast").closed_by) == ("fail", "first")
    assert "signal 11" in subject_of(verdict, "fast").gates[0].checks[0].got
    assert subject_of(verdict, "large").outcome == "pass"


def test_a_loss_in_the_incumbents_step_decides_nothing_about_the_candidate(rig: Rig, tmp_path: Path) -> None:
    _, verdict = run_once(rig, tmp_path, fast="lost incumbent")
    assert subject_of(verdict, "fast").outcome == "inconclusive"


@pytest.mark.parametrize("ending", ["bug", "rig"])
def test_what_the_rig_fails_at_is_inconclusive_and_reported(rig: Rig, tmp_path: Path, ending: Ending) -> None:
    execution, verdict = run_once(rig, tmp_path, fast=ending)
    assert subject_of(verdict, "fast").outcome == "inconclusive"
    assert [where for where, _ in execution.rig_errors] == ["f32-7/fast first"]


def test_an_unsound_plain_closes_its_cell_and_says_so(rig: Rig, tmp_path: Path) -> None:
    _, verdict = run_once(rig, tmp_path, plain="fail")
    assert subject_of(verdict, "plain").outcome == "fail"
    for route in ("fast", "large"):
        gates = subject_of(verdict, route).gates
        assert {gate.state for gate in gates} == {"not-run"}
        assert "incumbent unsound" in gates[0].checks[0].got


def test_an_interrupt_seals_what_is_there(tmp_path: Path) -> None:
    with Rig.open("simulated-1.0") as own:
        execution, verdict = run_once(own, tmp_path, fast="interrupt")
    assert execution.interrupted
    assert subject_of(verdict, "plain").gates[0].outcome == "pass"
    assert {subject.outcome for subject in verdict.subjects} == {"inconclusive"}
    assert verdict.reasons
    assert not verdict.admissible


def test_the_seed_is_committed_before_it_is_told() -> None:
    record: RunRecord = small.run_record()
    assert hashlib.sha256(bytes.fromhex(record.seed)).hexdigest() == small.plan().seed_sha256
