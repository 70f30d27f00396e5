"""What is read of a verdict by its places is what parsing all of it gives."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qualify.domain import Domain
from qualify.evidence.outcomes import Outcomes
from qualify.judgement import GateVerdict, RunVerdict, SubjectVerdict
from qualify.model import canonical_bytes
from qualify.verdict import Check, Note
from tests.conftest import examples
from tests.house.tree import ROOT

COMMITTED = sorted((ROOT / "evidence/runs").glob("*/verdict.json"))
#: Texts that look like what is searched for, and more.
TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [
            '{"cell":"',
            ',{"cell":"c","closed_by":',
            '],"gate":"timing","notes":[',
            ',"outcome":"pass","role":"candidate","route":"r"}',
            '],"trust":',
            '"subjects":[',
            '{"checks":[',
            '"state":"}',
            "\\",
            '"',
        ]
    ),
)
CHECKS = st.builds(Check, name=TEXTS, got=st.none() | TEXTS, want=TEXTS, holds=st.sampled_from([True, False, None]))
NOTES = st.builds(Note, name=TEXTS, got=TEXTS, says=TEXTS)
GATES = ("digest", "timing", "trial")


def gate(name: str) -> st.SearchStrategy[GateVerdict]:
    return st.builds(
        GateVerdict,
        gate=st.just(name),
        rule=st.integers(1, 3),
        state=st.sampled_from(["measured", "lost", "error", "not-run"]),
        outcome=st.sampled_from(["pass", "fail", "inconclusive"]),
        checks=st.lists(CHECKS, max_size=3).map(tuple),
        notes=st.lists(NOTES, max_size=2).map(tuple),
    )


@st.composite
def verdicts(draw: st.DrawFn) -> RunVerdict:
    keys = draw(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["plain", "r", "s.2"])), unique=True))
    subjects = []
    for cell, route in keys:
        planned = draw(st.lists(st.sampled_from(GATES), max_size=8))  # One that is there twice too.
        gates = tuple(draw(gate(name)) for name in planned)
        outcome: Any = draw(st.sampled_from(["pass", "fail", "inconclusive"]))
        closed_by = draw(st.none() | st.sampled_from(GATES))
        role: Any = draw(st.sampled_from(["plain", "candidate", "control"]))
        subjects.append(
            SubjectVerdict(cell=cell, route=route, role=role, outcome=outcome, closed_by=closed_by, gates=gates)
        )
    return RunVerdict(
        run="r",
        operation="o",
        domain=Domain(toolkit="pocl-3.0", arch="x"),
        trust="cooperative",
        addressing=draw(TEXTS),
        partial=False,
        admissible=False,
        reasons=tuple(draw(st.lists(TEXTS, max_size=2))),
        subjects=tuple(subjects),
    )


def agrees(data: bytes) -> None:
    """Whether everything that may be asked for is what the whole says, of each subject and any names."""
    whole, found = json.loads(data), Outcomes(data)
    assert {**found.said, "subjects": None} == {**whole, "subjects": None}
    subjects: Mapping[Any, Any] = {(each["cell"], each["route"]): each for each in whole["subjects"]}
    assert set(found.subjects) == set(subjects)
    for key, each in subjects.items():
        assert found.subjects[key] == {name: each[name] for name in ("cell", "route", "role", "outcome")}
        for names in (set(), {"timing"}, {"digest", "trial"}, set(GATES), {gate["gate"] for gate in each["gates"]}):
            assert found.gates(key, names) == [gate for gate in each["gates"] if gate["gate"] in names]


@given(verdicts())
@settings(max_examples=examples(150), deadline=None)
def test_every_verdict_is_read_as_it_is_spelled(verdict: RunVerdict) -> None:
    agrees(verdict.canonical())
    assert not Outcomes(verdict.canonical())._whole


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.parent.name)
def test_committed_verdicts_are_read_by_their_places(path: Path) -> None:
    data = path.read_bytes()
    agrees(data)
    assert not Outcomes(data)._whole, "nothing was parsed whole"


@given(verdicts(), st.sampled_from([{"indent": 1}, {"separators": (", ", ": ")}, {"sort_keys": False}]))
@settings(max_examples=examples(50), deadline=None)
def test_another_spelling_is_parsed_whole(verdict: RunVerdict, how: dict[str, Any]) -> None:
    value = json.loads(verdict.canonical())
    turned = dict(reversed(value.items())) if how == {"sort_keys": False} else value
    agrees(json.dumps(turned, **how).encode())


def test_of_a_subject_that_is_there_twice_the_last_counts() -> None:
    first: dict[str, Any]
    last: dict[str, Any]
    first, last = (
        {"cell": "c", "closed_by": None, "gates": [], "outcome": outcome, "role": "candidate", "route": "r"}
        for outcome in ("pass", "fail")
    )
    value = {"admissible": True, "run": "r", "subjects": [first, last], "trust": "cooperative"}
    found = Outcomes(canonical_bytes(value))
    assert found.subjects["c", "r"]["outcome"] == "fail"
    assert found.gates(("c", "r"), {"timing"}) == []


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"subjects":[', b'{"subjects":[{}]}', b'{"subjects":[],"trust":']
)
def test_what_is_no_verdict_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, LookupError, TypeError)):
        Outcomes(data)


def test_an_unknown_subject_has_no_gates() -> None:
    found = Outcomes(COMMITTED[0].read_bytes())
    with pytest.raises(KeyError):
        found.gates(("no", "such"), {"timing"})
