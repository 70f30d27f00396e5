"""Calibration as a run: plain against plain, the line that it prints, and what reads that line."""

from __future__ import annotations

from pathlib import Path

import pytest

from gates import GATES
from qualify import calibrate, pipeline
from qualify.domain import Board, Domain, Limits
from qualify.errors import InputError, NothingSelected, UsageError
from qualify.evidence.audit import verify_store
from qualify.judgement import rules_of
from qualify.pipeline import load
from qualify.plan import Planned
from qualify.verdict import Verdict
from qualify.workspace import evidence_root
from tests.cli.workspaces import COHORT, REFERENCE

DOMAIN = Domain(toolkit="simulated-1.0", arch="virtual")
#: Few windows, and a clock that a busy machine may disturb.
FEW = "{windows: 18, processes: 3, alpha_ppm: 250000, long_run_ms: 60, clock_tolerance_ppm: 900000}"
PIPELINES = f"""\
domains:
  - {{toolkit: simulated-1.0, arch: virtual}}
gates:
  contract: {{cost_s: 0.001}}
  compile: {{cost_s: 0.4, needs: [contract]}}
  trial: {{cost_s: 2, needs: [compile]}}
  timing: {{cost_s: 30, needs: [trial], settings: {FEW}}}
  roofline: {{cost_s: 3, needs: [timing]}}
pipelines:
  default: {{screen: [contract, compile], promote: all, calibrate: [contract, compile, timing, roofline]}}
  none: {{}}
"""
SCRIPT = '{"entries": {"add": {"does": "add", "pass_ns": 400000}}}'


class Silent:
    """Nobody watches."""

    def gate(self, gate: str, subjects: int) -> None: ...

    def measuring(self, planned: Planned, gate: str) -> None: ...

    def decided(self, planned: Planned, gate: str, verdict: Verdict) -> None: ...


def make(folder: Path, cells: str = "{id: small, n: 32}") -> Path:
    """A workspace of one operation for the virtual board."""
    cohort = folder / "cohorts/add"
    cohort.mkdir(parents=True)
    text = COHORT.replace("{id: small, n: 1000, timed: false}", cells).replace("cache: cold", "cache: hot")
    (cohort / "cohort.yaml").write_text(text)
    (cohort / "reference.py").write_text(REFERENCE)
    for route in ("plain", "candidate", "next"):
        (cohort / f"{route}.k").write_text(SCRIPT)
    (folder / "pipelines.yaml").write_text(PIPELINES)
    return folder


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, calibrate.Calibration]:
    workspace = make(tmp_path_factory.mktemp("workspace"))
    return workspace, calibrate.calibrate(calibrate.Request(workspace), GATES, Silent())


Made = tuple[Path, calibrate.Calibration]


def test_plain_meets_itself_and_its_rebuild_in_a_run_of_its_own(calibrated: Made) -> None:
    workspace, done = calibrated
    ((_, plan, verdict),) = done.runs
    assert (plan.command, done.exit_code()) == ("calibrate", 0)
    assert [node.gate for node in plan.nodes] == ["contract", "compile", "timing", "roofline"]
    assert [(each.route, each.role, each.outcome) for each in verdict.subjects] == [
        ("plain", "plain", "pass"),
        ("plain.again", "control", "pass"),
        ("plain.rebuilt", "control", "pass"),
    ]
    plain, again, rebuilt = (each.subject.candidate.identity for each in plan.subjects)
    assert plain == again != rebuilt
    assert not verdict.admissible
    audit = verify_store(evidence_root(workspace), {name: rules_of(gate) for name, gate in GATES.items()})
    assert audit.outcome == "verified"


def test_the_line_that_it_prints_gives_the_gates_their_figures(calibrated: Made, tmp_path: Path) -> None:
    _, done = calibrated
    ((_, plan, _),) = done.runs
    assert plan.board is not None
    workspace = make(tmp_path)
    (workspace / "pipelines.yaml").write_text(PIPELINES + "\n".join(done.lines()) + "\n")
    nodes = {node.gate: node for node in load(workspace).order("default", "promote", DOMAIN, GATES, None, plan.board)}
    for gate in ("timing", "roofline"):
        settings = GATES[gate].rule.settings.model_validate(nodes[gate].settings, strict=False)
        board = settings.board
        assert board.calibration == (plan.run,)
        assert 3333 <= board.delta_ppm <= 3335  # Two steps of its clock, 2,000 ns each, in a segment of 1.2 ms.
        assert (board.copy_bytes_per_s, board.launch_ns, board.quantum_ns) == (182_591_267_250, 2000, 2000)
    other = plan.board.model_copy(update={"uuid": "elsewhere", "name": "another board"})
    assert load(workspace).calibrated(other) is None


BOARD = Board(name="a board", uuid="u-1", driver="driver 2", addressing="device", limits=Limits(source="test"))
BY_NAME = 'boards: {"a board": {calibration: [run], driver: driver 2, delta_ppm: 1500}}\n'


def test_a_board_is_cited_by_its_uuid_before_its_name(tmp_path: Path) -> None:
    workspace = make(tmp_path)
    by_both = BY_NAME.replace("}}", '}, "u-1": {calibration: [other], driver: driver 2, delta_ppm: 2500}}')
    for text, delta_ppm in ((BY_NAME, 1500), (by_both, 2500)):
        (workspace / "pipelines.yaml").write_text(PIPELINES + text)
        found = load(workspace).calibrated(BOARD)
        assert found is not None
        assert found.delta_ppm == delta_ppm
    assert load(workspace).calibrated(None) is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("driver: driver 2", "driver: driver 1", "boards.a board.driver: expected the board's driver, driver 2, got"),
        ("delta_ppm: 1500", "delta_ppm: 0", "boards.a board.delta_ppm: expected at least 1"),
        ("calibration: [run]", "calibration: []", "boards.a board.calibration"),
        ("delta_ppm: 1500", "delta: 1500", "boards.a board.delta"),
    ],
)
def test_figures_of_another_driver_and_of_no_run_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    workspace = make(tmp_path)
    (workspace / "pipelines.yaml").write_text(PIPELINES + BY_NAME.replace(old, new))
    with pytest.raises(InputError) as caught:
        load(workspace).calibrated(BOARD)
    assert message in str(caught.value)


def test_a_control_that_did_not_pass_shows_nothing() -> None:
    figures = calibrate.Figures()
    assert figures.calibrated(BOARD) is None
    figures.apart_ppm["delta_ppm"] = 20
    figures.segments_ns, figures.quanta_ns = [1_000_000], [1000]
    assert figures.calibrated(BOARD) is None
    figures.runs.append("run")
    found = figures.calibrated(BOARD)
    assert found is not None
    assert (found.delta_ppm, found.short_delta_ppm) == (2000, None)  # Two steps of the clock in the segment.


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"operation": "sub"}, UsageError),
        ({"domain": "pocl-3.0"}, UsageError),
        ({"cells": frozenset({"none"})}, UsageError),
        ({"cells": frozenset({"untimed"})}, NothingSelected),
    ],
)
def test_what_cannot_be_calibrated(tmp_path: Path, request_: dict[str, object], error: type[Exception]) -> None:
    workspace = make(tmp_path, "{id: small, n: 32}\n  - {id: untimed, n: 7, timed: false}")
    with pytest.raises(error):
        calibrate.calibrate(calibrate.Request(workspace, **request_), GATES, Silent())  # type: ignore[arg-type]


def test_a_pipeline_without_that_stage_calibrates_nothing(tmp_path: Path) -> None:
    workspace = make(tmp_path)
    text = PIPELINES.replace(", calibrate: [contract, compile, timing, roofline]", "")
    (workspace / "pipelines.yaml").write_text(text)
    with pytest.raises(UsageError, match="calibrates nothing"):
        load(workspace).order(pipeline.DEFAULT, "calibrate", DOMAIN, GATES)
