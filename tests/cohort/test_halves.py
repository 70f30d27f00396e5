"""Elements of sixteen bits: the same sources on every runtime, honest ones near enough and the wrong one not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from qualify import cohort
from qualify.cohort import Selection
from qualify.domain import Runtime
from tests.conftest import some
from tests.gates.beds import Bed
from tests.gates.build import not_held
from tests.rigs import UNOPTIMISED

ROOT = Path(__file__).parents[2]
RAGGED = ("f16-211x52", "bf16-211x52")
LARGE = "f16-256x1024"
GATES = ("contract", "compile", "digest", "numeric")
HONEST, WRONG = ("plain", "wider", "serial"), "first"


@pytest.fixture(scope="module", params=["opencl", pytest.param("cuda", marks=pytest.mark.gpu)])
def on(request: pytest.FixtureRequest, beds: Callable[[Runtime], Bed]) -> Bed:
    return beds(request.param)


def select(on: Bed, root: Path, *cells: str) -> Selection:
    found = cohort.load(root, "rmsnorm")
    return cohort.subjects(found, on.rig.domain, on.rig.limits, on.rig.toolkit_build, cells=cells)


@pytest.fixture(scope="module")
def selections(on: Bed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Selection]:
    """The subjects of each cell: the large one as it is built for use, ragged ones without PoCL's optimiser."""
    unoptimised = tmp_path_factory.mktemp("unoptimised")
    for name in ("common", "rmsnorm"):
        shutil.copytree(ROOT / "cohorts" / name, unoptimised / "cohorts" / name)
    path = unoptimised / "cohorts/rmsnorm/cohort.yaml"
    options = f"options: {json.dumps(UNOPTIMISED.get(on.runtime, ()))}"
    path.write_text(path.read_text().replace("    launches:", f"    {options}\n    launches:"))
    ragged = select(on, unoptimised, *RAGGED)
    return {**dict.fromkeys(RAGGED, ragged), LARGE: select(on, ROOT, LARGE)}


def closed(on: Bed, selections: dict[str, Selection], cell: str, route: str) -> dict[str, dict[str, bool | None]]:
    """What closes each gate of a subject."""
    selection = selections[cell]
    (about,) = [each for each in selection.subjects if each.key == (cell, route)]
    on.modules.update(selection.composed)
    reference = selection.reference.code + b"\nadd = rmsnorm\n"
    return {gate: not_held(on.judge(gate, about, reference).verdict) for gate in GATES}


@pytest.mark.parametrize(("cells", "route"), [*((RAGGED, route) for route in HONEST), ((LARGE,), "wider")])
def test_honest_kernels_are_near_enough(
    on: Bed, selections: dict[str, Selection], cells: tuple[str, ...], route: str
) -> None:
    for cell in some(cells):
        assert closed(on, selections, cell, route) == {gate: {} for gate in GATES}, cell


def test_the_quietly_wrong_one_fails_by_its_numbers_alone(on: Bed, selections: dict[str, Selection]) -> None:
    for cell in some(RAGGED):
        found = closed(on, selections, cell, WRONG)
        assert found["contract"] == found["compile"] == found["digest"] == {}, cell
        assert found["numeric"]["error"] is False, cell
