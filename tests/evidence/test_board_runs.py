"""The runs in evidence/: measured on a board, never edited, judged again here without one."""

from pathlib import Path

from gates import GATES
from qualify.evidence import audit
from qualify.judgement import rules_of

EVIDENCE = Path(__file__).resolve().parents[2] / "evidence"
RULES = {name: rules_of(gate) for name, gate in GATES.items()}
TOOLKITS = {"cuda-12.8", "cuda-13.0", "cuda-13.2"}


def test_every_committed_run_verifies_and_is_judged_the_same() -> None:
    found = audit.verify_store(EVIDENCE, RULES)
    assert found.outcome == "verified", sorted(str(problem) for run in found.runs for problem in run.problems)
    assert {run.plan.domain.toolkit for run in found.runs if run.plan} == TOOLKITS


def test_losers_and_a_run_that_was_killed_are_still_there() -> None:
    found = audit.verify_store(EVIDENCE, RULES)
    outcomes = {subject.outcome for run in found.runs if run.verdict for subject in run.verdict.subjects}
    assert {"pass", "fail"} <= outcomes
    assert len(found.opened) == 1
