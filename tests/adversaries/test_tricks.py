"""Every trick is stopped by the gate that its row names, and its honest twin passes that gate."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from gates import GATES
from qualify.domain import Runtime
from qualify.verdict import Verdict
from tests.adversaries.tricks import TRICKS, Trick, launch
from tests.gates.beds import Bed
from tests.gates.build import not_held

Judge = Callable[[Runtime, Trick, bytes], Verdict]
GPU = pytest.mark.gpu
DOCUMENT = Path(__file__).parents[2] / "docs/adversaries.md"


def planted() -> Iterator[ParameterSet]:
    """Every trick on every runtime; CUDA's compiler needs no board."""
    for trick in TRICKS:
        for runtime in trick.runtimes:
            marks = GPU if runtime == "cuda" and GATES[trick.gate].runs_on == "device" else ()
            yield pytest.param(trick, runtime, marks=marks, id=f"{trick.does}-{runtime}".replace(" ", "-"))


@pytest.fixture(scope="module")
def judge(beds: Callable[[Runtime], Bed]) -> Judge:
    """What a trick's gate says of a text beside the honest one; twins that several tricks share are judged once."""
    known: dict[tuple[object, ...], Verdict] = {}

    def judged(runtime: Runtime, trick: Trick, text: bytes) -> Verdict:
        key = (runtime, trick.gate, text, trick.more)
        if key not in known:
            bed = beds(runtime)
            about = bed.subject(text, trick.honest(runtime), passed=trick.arguments, launches=launch(), bits="own")
            known[key] = bed.judge(trick.gate, about).verdict
        return known[key]

    return judged


@pytest.mark.parametrize(("trick", "runtime"), list(planted()))
def test_the_named_gate_stops_it_and_lets_its_honest_twin_pass(trick: Trick, runtime: Runtime, judge: Judge) -> None:
    found, wanted = not_held(judge(runtime, trick, trick.planted(runtime))), trick.closed(runtime)
    assert {name: found.get(name, True) for name in wanted} == wanted
    assert not not_held(judge(runtime, trick, trick.honest(runtime)))


def test_the_document_shows_every_trick_and_what_stops_it() -> None:
    section = DOCUMENT.read_text().partition("\n## Answers\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| .+? \| (.+?) \| (.+?) \|$", section, flags=re.MULTILINE)
    assert [row for row in rows if row[0] not in ("the kernel", "---")] == [
        (trick.does, trick.gate, shown(trick)) for trick in TRICKS
    ]


def shown(trick: Trick) -> str:
    """The checks that close it; in OpenCL others where objects tell less."""
    other = [f"{', '.join(closed)} in OpenCL" for runtime, closed in trick.elsewhere.items() if runtime == "opencl"]
    return "; ".join([", ".join(trick.closes), *other])


def test_the_tests_that_the_document_names_exist() -> None:
    named = re.findall(r"(tests/\S+\.py)::(\w+)", DOCUMENT.read_text())
    assert len(named) > 12
    for path, name in named:
        assert re.search(rf"^def {name}\(", (DOCUMENT.parents[1] / path).read_text(), flags=re.MULTILINE), name
