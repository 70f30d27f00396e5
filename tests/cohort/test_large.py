"""The large cell on a board: 64-bit indices pass, and an int that wraps is caught."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qualify import cohort
from tests.gates.beds import Bed, bed
from tests.gates.build import not_held

ROOT = Path(__file__).parents[2]
CELL = "f32-46349x46337"

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def cuda() -> Iterator[Bed]:
    with bed("cuda") as made:
        yield made


@pytest.mark.parametrize("narrow", [False, True])
def test_an_index_that_an_int_does_not_hold(cuda: Bed, narrow: bool) -> None:
    found = cohort.load(ROOT, "transpose")
    selection = cohort.subjects(found, cuda.rig.domain, cuda.rig.limits, cuda.rig.toolkit_build, cells=[CELL])
    (plain,) = [each for each in selection.subjects if each.role == "plain"]
    texts = selection.composed[plain.candidate.identity or ""].fragments.values()
    text = b"".join(texts)
    if narrow:
        assert text.count(b"(size_t)") == 2
        text = text.replace(b"(size_t)", b"")
    candidate = cuda.arm("plain", text, plain.candidate.launches, plain.arguments)
    about = plain.model_copy(update={"candidate": candidate, "incumbent": candidate, "variants": ("ordinary",)})
    for gate in ("contract", "compile"):
        assert not_held(cuda.judge(gate, about).verdict) == {}
    measured = cuda.judge("digest", about, timeout_s=60)
    assert bool(not_held(measured.verdict)) is narrow
    if narrow:
        assert measured.verdict.outcome == "fail", measured
