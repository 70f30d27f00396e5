"""What a person sees of notes and of a pass that admits no time."""

import pytest

from qualify.domain import Domain
from qualify.judgement import GateVerdict, RunVerdict, SubjectVerdict
from qualify.show import findings, mark
from qualify.verdict import Check, Note
from tests.evidence import small


def gate_verdict(gate: str, **notes: str) -> GateVerdict:
    """A passing gate with notes by name."""
    made = tuple(Note(name=name, got=got, says="a thread") for name, got in notes.items())
    checks = (Check(name="builds", got="yes", want="yes", holds=True),)
    return GateVerdict(gate=gate, rule=1, state="measured", outcome="pass", checks=checks, notes=made)


def run_verdict(subjects: dict[tuple[str, str], GateVerdict]) -> RunVerdict:
    """A run with one gate a subject."""
    return RunVerdict(
        run="r",
        operation="add",
        domain=Domain(toolkit="pocl-3.0", arch="znver3"),
        trust="cooperative",
        addressing="host",
        partial=False,
        admissible=False,
        reasons=(),
        subjects=tuple(
            SubjectVerdict(cell=cell, route=route, role="candidate", outcome="pass", closed_by=None, gates=(gate,))
            for (cell, route), gate in subjects.items()
        ),
    )


def test_what_is_noted_of_the_same_subjects_is_one_line() -> None:
    found = run_verdict(
        {
            ("large", "plain"): gate_verdict("compile", registers="8", spills="0"),
            ("large", "fast"): gate_verdict("compile", registers="9", spills="0", odd="\x1b[2J"),
            ("tiny", "plain"): gate_verdict("compile", registers="8", spills="0"),
            ("tiny", "fast"): gate_verdict("compile", registers="9", spills="0"),
        }
    )
    assert list(findings(found)) == [
        "findings, which decide nothing:",
        "  compile of plain in every cell: registers 8 (a thread)",
        "  compile of every subject: spills 0 (a thread)",
        "  compile of fast in every cell: registers 9 (a thread)",
        "  compile of large/fast: odd \\x1b[2J (a thread)",
    ]


def test_nothing_noted_is_nothing_printed() -> None:
    assert list(findings(run_verdict({("large", "plain"): gate_verdict("compile")}))) == []


@pytest.mark.parametrize(
    ("check", "conclusive", "said"),
    [("faster", False, "promising"), ("faster", True, "pass"), ("memory_floor", False, "pass")],
)
def test_faster_by_a_gate_that_admits_no_time_is_promising_only(check: str, conclusive: bool, said: str) -> None:
    passing = gate_verdict("size").model_copy(
        update={"checks": (Check(name=check, got="2", want="above 1", holds=True),)}
    )
    plan = small.plan()
    nodes = tuple(node.model_copy(update={"conclusive": conclusive}) for node in plan.nodes)
    assert mark(passing, plan.model_copy(update={"nodes": nodes})) == said
