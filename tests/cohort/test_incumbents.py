"""Who candidates are measured against: plain, or the admitted route of their cell."""

from pathlib import Path

from qualify import cohort
from tests.cohort.bench import COHORT, LIMITS, OPENCL, write

TWO = COHORT.replace(
    "plain: plain\n",
    '  next: {fragments: [plain.k], launches: [{symbol: plain, grid: [rows], block: [cols]}], defines: {N: "1"}}\n'
    "plain: plain\n",
)


def select(workspace: Path, **named: object) -> cohort.Selection:
    return cohort.subjects(cohort.load(workspace, "scale"), OPENCL, LIMITS, "build 1", **named)  # type: ignore[arg-type]


def rivals(selection: cohort.Selection) -> dict[tuple[str, str], str]:
    """Each subject's incumbent."""
    return {subject.key: subject.incumbent.route for subject in selection.subjects}


def test_an_admitted_route_is_the_incumbent_of_its_cell_and_no_candidate_there(tmp_path: Path) -> None:
    found = select(write(tmp_path, scale_cohort_yaml=TWO), incumbents={"big": "fast"})
    assert rivals(found) == {
        ("big", "plain"): "plain",
        ("big", "next"): "fast",
        ("small", "plain"): "plain",
        ("small", "next"): "plain",
    }
    by_key = {subject.key: subject for subject in found.subjects}
    assert by_key["big", "next"].incumbent.identity in found.composed
    assert by_key["big", "next"].role == "candidate"


def test_the_incumbent_is_composed_whatever_the_filters_name_and_nothing_that_is_not_planned(tmp_path: Path) -> None:
    workspace = write(tmp_path, scale_cohort_yaml=TWO)
    found = select(workspace, routes={"next"}, cells={"big"}, incumbents={"big": "fast"})
    assert rivals(found) == {("big", "plain"): "plain", ("big", "next"): "fast"}
    alone = select(workspace, routes={"fast"}, cells={"big"}, incumbents={"big": "fast"})
    assert rivals(alone) == {("big", "plain"): "plain"}
    assert set(alone.composed) == {alone.subjects[0].candidate.identity}
