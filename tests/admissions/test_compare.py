"""What an outside implementation is measured beside: the admitted route while its admission is open, else plain."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qualify import cohort
from qualify.bench import Rig
from qualify.boards import NATIVE
from qualify.compare import Request, served
from tests.cli.workspaces import Workspace


@pytest.fixture(scope="module")
def rig(rigs: Callable[[str, str], Rig]) -> Rig:
    return rigs("pocl-3.0", NATIVE)


def beside(workspace: Workspace, rig: Rig, *cells: str) -> dict[str, tuple[str, str]]:
    """Both arms of each cell's subject before the comparator takes the candidate's place."""
    request = Request(workspace.path, "add", cells=frozenset(cells))
    found = served(request, cohort.load(workspace.path, "add"), rig.domain, rig)
    return {each.cell.id: (each.candidate.route, each.incumbent.route) for each in found}


def test_an_admitted_route_is_what_a_comparator_is_measured_beside(workspace: Workspace, rig: Rig) -> None:
    assert beside(workspace, rig) == {"large": ("fast", "fast"), "ragged": ("fast", "fast")}  # `tiny` is not timed.
    assert beside(workspace, rig, "large") == {"large": ("fast", "fast")}


def test_plain_is_where_nothing_is_admitted(screened: Workspace, rig: Rig) -> None:
    assert beside(screened, rig) == {"large": ("plain", "plain"), "ragged": ("plain", "plain")}


def test_plain_is_where_the_admission_is_closed(workspace: Workspace, rig: Rig) -> None:
    workspace.replace("cohorts/add/fast.k", "a[i] + b[i]", "b[i] + a[i]")
    assert beside(workspace, rig) == {"large": ("plain", "plain"), "ragged": ("plain", "plain")}
