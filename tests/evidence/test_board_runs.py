"""The runs in evidence/: measured on a board, never edited, judged again here without one."""

import json
from pathlib import Path

import pytest

from gates import GATES
from qualify import inventory
from qualify.errors import Exit
from qualify.evidence import audit
from qualify.judgement import rules_of

EVIDENCE = Path(__file__).resolve().parents[2] / "evidence"
RULES = {name: rules_of(gate) for name, gate in GATES.items()}
TOOLKITS = {"cuda-12.8", "cuda-13.0", "cuda-13.2"}


@pytest.fixture(scope="module")
def found() -> audit.StoreAudit[audit.RunAudit]:
    """All of evidence/ judged again, once for every test here."""
    return audit.verify_store(EVIDENCE, RULES)


def test_every_committed_run_verifies_and_is_judged_the_same(found: audit.StoreAudit[audit.RunAudit]) -> None:
    assert found.outcome == "verified", sorted(str(problem) for run in found.runs for problem in run.problems)
    assert {run.plan.domain.toolkit for run in found.runs if run.plan} == TOOLKITS


def test_losers_and_runs_that_were_killed_are_still_there(found: audit.StoreAudit[audit.RunAudit]) -> None:
    outcomes = {subject.outcome for run in found.runs if run.verdict for subject in run.verdict.subjects}
    assert {"pass", "fail"} <= outcomes
    assert len(found.opened) == 2


def test_promotions_rest_on_every_gate_of_the_graph(found: audit.StoreAudit[audit.RunAudit]) -> None:
    """Of each operation that was promoted to the end some candidate passed all gates, memcheck and timing too."""
    every = {"contract", "compile", "occupancy", "residency", "digest", "numeric"}
    every |= {"trial", "memcheck", "timing", "roofline"}
    whole = {
        run.verdict.operation
        for run in found.runs
        if run.plan and run.verdict and run.plan.command == "promote" and run.verdict.admissible
        for subject in run.verdict.subjects
        if (subject.role, subject.outcome) == ("candidate", "pass") and {each.gate for each in subject.gates} == every
    }
    assert whole == {"column_sum", "rmsnorm", "softmax", "transpose", "vector_add"}


def test_what_was_admitted_on_the_board_is_open(capsys: pytest.CaptureFixture[str]) -> None:
    admitted = sum(
        len(json.loads(path.read_text())) for path in (EVIDENCE.parent / "cohorts").glob("*/admissions/*.json")
    )
    assert inventory.check(EVIDENCE.parent, None) is Exit.DONE
    assert capsys.readouterr().out.startswith(f"{admitted} open, 0 closed")
