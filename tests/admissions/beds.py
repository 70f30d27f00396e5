"""A workspace whose promotions end as a script says: real kernels and a real rig, gates that measure nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from gates.contract import ContractGate
from qualify import promote, screen
from qualify.admission import Admission
from qualify.engine import Progress
from qualify.gate import Bench, Facts, Gate, Rule, Series, Settings, Shows, at_least, holds
from qualify.model import canonical_bytes
from qualify.plan import Plan, Planned
from qualify.subject import Subject
from qualify.verdict import Check, Note, Verdict
from tests.cli.workspaces import HEAD, REFERENCE, Workspace, unoptimised
from tests.evidence import small

PIPELINES = """\
domains:
  - {toolkit: pocl-3.0, arch: native}
gates:
  contract: {cost_s: 0.001}
  digest: {cost_s: 1, needs: [contract]}
  numeric: {cost_s: 1.5, needs: [contract]}
  trial: {cost_s: 2, needs: [contract]}
  timing: {cost_s: 30, needs: [trial]}
pipelines:
  default: {screen: [contract, trial], promote: all}
  no-timing: {promote: [contract, digest, numeric, trial]}
  no-bits: {promote: [contract, numeric, trial, timing]}
  no-values: {promote: [contract, digest, trial, timing]}
"""
ROUTES = """\
operation: add
dispatcher_revision: 1
arguments:
  - {name: y, kind: output, dtype: float32, shape: [n], align: 16}
  - {name: a, kind: input, dtype: float32, shape: [n], align: 16}
  - {name: b, kind: input, dtype: float32, shape: [n], align: 16}
  - {name: n, kind: scalar, dtype: int32, value: n}
cells:
  - {id: large, n: 1000}
  - {id: ragged, n: 77}
  - {id: tiny, n: 7, timed: false}
routes:
  plain: {fragments: [common/opencl.h, plain.k], launches: [{symbol: add, grid: ["ceil_div(n, 64)"], block: [64]}]}
  fast: {fragments: [common/opencl.h, fast.k], launches: [{symbol: add, grid: ["ceil_div(n, 64)"], block: [64]}]}
  other: {fragments: [common/opencl.h, other.k], launches: [{symbol: add, grid: ["ceil_div(n, 64)"], block: [64]}]}
plain: plain
bits: own
numeric: {multiple: 2, floor_ulp: 4, cap_relative: 1e-5}
reference: reference.py:add
"""
COHORT = unoptimised(ROUTES)
BODY = '#include "common/opencl.h"\n' + HEAD + " {{\n  int i = ID(0);\n  if (i < n) y[i] = a[i] + b[i]; // {}\n}}\n"
#: A cell's routes with the speed-up in parts per million that every timed gate sees.
FASTER = {"fast": 1_250_000, "other": 1_100_000}


class Measured(Facts):
    speed_up_ppm: int


class Nothing(Settings):
    pass


def _judge(subject: Subject, facts: Measured, series: Series, settings: Nothing) -> Iterable[Check | Note]:
    got = f"{facts.speed_up_ppm / 1_000_000:.6f}"
    yield holds("faster", got, "above 1", facts.speed_up_ppm > 1_000_000)
    yield at_least("attempts", subject.attempt, 1, "attempts")


class ScriptedGate(Gate[Measured, Nothing]):
    """A timed gate that sees what the script says of each route."""

    claim: ClassVar[str] = "What the script says."
    runs_on: ClassVar[Literal["host", "device"]] = "device"  # So that nothing is built ahead that nobody asks for.
    timed: ClassVar[bool] = True
    rules: ClassVar[tuple[Rule[Any, Any], ...]] = (Rule(1, Measured, Nothing, lambda _: frozenset({"faster"}), _judge),)

    def __init__(self, name: str, script: Mapping[str, int], shows: Shows | None = None) -> None:
        self.id, self._script = name, script  # type: ignore[misc]
        self.rules = tuple(replace(rule, shows=shows) for rule in self.rules)  # type: ignore[misc]

    def measure(self, subject: Subject, bench: Bench, settings: Nothing) -> Measured:
        return Measured(speed_up_ppm=self._script[subject.candidate.route])


class Seen(Facts):
    launches: int


def _judge_seen(subject: Subject, facts: Seen, series: Series, settings: Nothing) -> Iterable[Check | Note]:
    yield at_least("launches", facts.launches, 1, "launches")


class ShowingGate(Gate[Seen, Nothing]):
    """A gate that shows something of every route and looks at nothing but its contract."""

    claim: ClassVar[str] = "It launches something."
    runs_on: ClassVar[Literal["host", "device"]] = "device"

    def __init__(self, name: str, shows: Shows) -> None:
        rule = Rule(1, Seen, Nothing, lambda _: frozenset({"launches"}), _judge_seen, shows=shows)
        self.id, self.rules = name, (rule,)  # type: ignore[misc]

    def measure(self, subject: Subject, bench: Bench, settings: Nothing) -> Seen:
        return Seen(launches=len(subject.candidate.launches))


def gates(script: Mapping[str, int] = FASTER, timing: Mapping[str, int] | None = None) -> dict[str, Gate[Any, Any]]:
    """The five gates; `timing` is what that gate sees, if it is not what `trial` sees."""
    return {
        "contract": ContractGate(),
        "digest": ShowingGate("digest", "bits"),
        "numeric": ShowingGate("numeric", "values"),
        "trial": ScriptedGate("trial", script),
        "timing": ScriptedGate("timing", script if timing is None else timing, "times"),
    }


class Silent(Progress):
    """Nobody watches."""

    def gate(self, gate: str, subjects: int) -> None: ...

    def measuring(self, planned: Planned, gate: str) -> None: ...

    def decided(self, planned: Planned, gate: str, verdict: Verdict) -> None: ...


def make(path: Path) -> Workspace:
    """A workspace of one operation with three cells, plain and two honest candidates."""
    for folder in ("add", "common"):
        (path / "cohorts" / folder).mkdir(parents=True)
    (path / "pipelines.yaml").write_text(PIPELINES)
    (path / "cohorts/common/opencl.h").write_text("#define ID(n) get_global_id(n)\n")
    workspace = Workspace(path)
    workspace.write("cohort.yaml", COHORT)
    workspace.write("reference.py", REFERENCE)
    for route in ("plain", "fast", "other"):
        workspace.write(f"{route}.k", BODY.format(route))
    return workspace


def screened(
    workspace: Workspace, script: Mapping[str, int] = FASTER, cells: Collection[str] = (), routes: Collection[str] = ()
) -> str:
    """Screen and return the run's name."""
    request = screen.Request(workspace.path, cells=frozenset(cells), routes=frozenset(routes))
    with screen.Screening(request) as screening:
        return screening.run(gates(script), Silent()).runs[-1][0].name


def promoted(
    workspace: Workspace,
    *runs: str,
    script: Mapping[str, int] = FASTER,
    timing: Mapping[str, int] | None = None,
    pipeline: str | None = None,
    cells: Collection[str] = (),
    routes: Collection[str] = (),
    table: Mapping[str, Gate[Any, Any]] | None = None,
) -> promote.Promoted:
    """Promote what passed in the named runs."""
    request = promote.Request(workspace.path, runs, frozenset(cells), frozenset(routes), pipeline)
    return promote.promote(request, table or gates(script, timing), Silent())


def proved(
    workspace: Workspace,
    *runs: str,
    cells: Collection[str] = ("large",),
    routes: Collection[str] = ("fast",),
    pipeline: str | None = None,
) -> promote.Promoted:
    """Prove by their bits what passed in the named runs."""
    request = promote.Request(workspace.path, runs, frozenset(cells), frozenset(routes), pipeline)
    return promote.prove(request, gates(), Silent())


def runs_of(workspace: Workspace, command: str) -> list[Path]:
    """The sealed runs of a command. Names of runs of one second have no order."""
    return [run for run in workspace.sealed() if json.loads((run / "plan.json").read_bytes())["command"] == command]


def forget(run: Path, gate: str, **plan: Any) -> Path:
    """Let a run be what it would be had its pipeline not planned a gate that nothing needs, all of it hashed again."""

    def forgotten(value: dict[str, Any]) -> None:
        value.update(plan, nodes=[node for node in value["nodes"] if node["gate"] != gate])
        for planned in value["subjects"]:
            planned["gates"].remove(gate)

    def unjudged(value: dict[str, Any]) -> None:
        for subject in value["subjects"]:
            subject["gates"] = [each for each in subject["gates"] if each["gate"] != gate]

    small.edit(run / "plan.json", forgotten)
    small.edit(run / "verdict.json", unjudged)
    for measurement in run.glob(f"subjects/*/*/{gate}.json"):
        measurement.unlink()
    small.rehash(run)
    return run


def board(workspace: Workspace) -> str:
    """The board that is here, where the screen was made."""
    plan = Plan.parse((runs_of(workspace, "screen")[0] / "plan.json").read_bytes())
    assert plan.board is not None
    return plan.board.name


def made_on(workspace: Workspace, board: str) -> None:
    """Let the one promotion, and the admissions that rest on it, be what they would be had this board made them."""
    (run,) = runs_of(workspace, "promote")

    def name(plan: dict[str, Any]) -> None:
        plan["board"]["name"] = board

    for path in (run / "plan.json", workspace.path / f"evidence/opened/{run.name}.json"):
        small.edit(path, name)
    small.rehash(run)
    digest = hashlib.sha256((run / "SHA256SUMS").read_bytes()).hexdigest()
    (file,) = workspace.path.glob("cohorts/add/admissions/*.json")
    found = json.loads(file.read_bytes())
    for newest in (of_cell[-1] for of_cell in found.values() if of_cell[-1]["run"] == run.name):
        newest["manifest_sha256"] = digest
        newest["board"]["name"] = board
    file.write_bytes(canonical_bytes(found))


def admission(found: dict[str, Any]) -> Admission:
    """An admission as a file has it."""
    return Admission.model_validate_json(json.dumps(found))
