"""The runs in evidence/: measured on a board, never edited, judged again here without one."""

import json
from pathlib import Path

import pytest

from gates import GATES
from qualify import inventory
from qualify.errors import Exit
from qualify.evidence import audit
from qualify.judgement import RunVerdict, rules_of
from qualify.plan import Plan
from tests.conftest import ALL_EXAMPLES, part

EVIDENCE = Path(__file__).resolve().parents[2] / "evidence"
RUNS = sorted((EVIDENCE / "runs").iterdir())
RULES = {name: rules_of(gate) for name, gate in GATES.items()}
TOOLKITS = {"cuda-12.8", "cuda-13.0", "cuda-13.2"}

Written = list[tuple[Plan, RunVerdict]]


@pytest.fixture(scope="module")
def written() -> Written:
    """What every run says of itself."""
    return [
        (
            Plan.model_validate_json((run / "plan.json").read_bytes()),
            RunVerdict.model_validate_json((run / "verdict.json").read_bytes()),
        )
        for run in RUNS
    ]


def test_committed_runs_verify_and_are_judged_the_same() -> None:
    """All of them and their history, or every fifth by itself."""
    if ALL_EXAMPLES:
        store = audit.verify_store(EVIDENCE, RULES)
        problems = [*store.problems, *(problem for run in store.runs for problem in run.problems)]
    else:
        problems = [problem for run in part(RUNS) for problem in audit.verify_run(run, RULES).problems]
    assert not sorted(map(str, problems))


def test_losers_and_runs_that_were_killed_are_still_there(written: Written) -> None:
    assert {plan.domain.toolkit for plan, _ in written} == TOOLKITS
    assert {"pass", "fail"} <= {subject.outcome for _, verdict in written for subject in verdict.subjects}
    opened = {path.stem for path in (EVIDENCE / "opened").iterdir()}
    assert len(opened - {run.name for run in RUNS}) == 2


def test_promotions_rest_on_every_gate_of_the_graph(written: Written) -> None:
    """Of each operation that was promoted to the end some candidate passed all gates, memcheck and timing too."""
    every = {"contract", "compile", "occupancy", "residency", "digest", "numeric"}
    every |= {"trial", "memcheck", "timing", "roofline"}
    whole = {
        verdict.operation
        for plan, verdict in written
        if plan.command == "promote" and verdict.admissible
        for subject in verdict.subjects
        if (subject.role, subject.outcome) == ("candidate", "pass") and {each.gate for each in subject.gates} == every
    }
    assert whole == {"column_sum", "rmsnorm", "softmax", "transpose", "vector_add"}


def test_what_was_admitted_on_the_board_is_open(capsys: pytest.CaptureFixture[str]) -> None:
    admitted = sum(
        len(json.loads(path.read_text())) for path in (EVIDENCE.parent / "cohorts").glob("*/admissions/*.json")
    )
    assert inventory.check(EVIDENCE.parent, None) is Exit.DONE
    assert capsys.readouterr().out.startswith(f"{admitted} open, 0 closed")
