"""Every folder of candidates is a route; a malformed one is a subject with its error, never an exception."""

from pathlib import Path

import pytest

from qualify import cohort
from qualify.contract import Arm
from qualify.errors import UsageError
from tests.cohort.bench import LIMITS, OPENCL, write

ROUTE = 'fragments: ["common/{runtime}.h", k.k]\nlaunches: [{symbol: k, grid: [rows], block: [64]}]\n'


@pytest.fixture
def candidates(tmp_path: Path) -> Path:
    folder = tmp_path / "generated"
    folder.mkdir()
    add(folder, "good")
    return folder


def add(folder: Path, name: str, route: str = ROUTE, kernel: str = "void k() {}") -> None:
    (folder / name).mkdir()
    (folder / name / "route.yaml").write_text(route)
    (folder / name / "k.k").write_text(kernel)


def arms(tmp_path: Path, candidates: Path) -> dict[str, Arm]:
    loaded = cohort.load(write(tmp_path / "w"), "scale", candidates=candidates)
    found = cohort.subjects(loaded, OPENCL, LIMITS, "b", cells={"big"})
    return {item.candidate.route: item.candidate for item in found.subjects}


def test_a_candidate_is_composed_from_its_own_folder(tmp_path: Path, candidates: Path) -> None:
    loaded = cohort.load(write(tmp_path / "w"), "scale", candidates=candidates)
    assert loaded.route_names == ("plain", "fast", "good")
    found = cohort.subjects(loaded, OPENCL, LIMITS, "b", routes={"good"})
    arm = found.subjects[1].candidate
    assert arm.identity is not None
    assert [ref.path for ref in found.composed[arm.identity].module.fragments] == [
        "common/opencl.h",
        "candidates/good/k.k",
    ]
    assert loaded.inputs["candidates/good/route.yaml"] == ROUTE.encode()


@pytest.mark.parametrize(
    ("route", "kernel", "says"),
    [
        ("fragments: [", "", "candidates/bad/route.yaml:2: expected YAML"),
        ("launches: []\n", "", "candidates/bad/route.yaml:1: launches: expected at least 1"),
        (ROUTE.replace("rows", "2 ** rows"), "", "candidates/bad/route.yaml:2: launches[0].grid[0]: expected integers"),
        (ROUTE.replace("k.k", "../good/k.k"), "", "candidates/bad/route.yaml:1: fragments[1]: expected a path below"),
        (ROUTE.replace("k.k", "scale/fast.k"), "", "candidates/bad/route.yaml:1: fragments[1]: expected a folder"),
        (ROUTE, '#include "/etc/passwd"', "candidates/bad/k.k:1: expected the name of a fragment in quotes"),
    ],
)
def test_a_malformed_candidate_is_closed_and_its_neighbour_is_not(
    tmp_path: Path, candidates: Path, route: str, kernel: str, says: str
) -> None:
    add(candidates, "bad", route, kernel)
    found = arms(tmp_path, candidates)
    assert found["bad"].identity is None
    assert (found["bad"].error or "").startswith(says), found["bad"].error
    assert found["good"].identity is not None


def test_a_folder_without_a_route_and_a_linked_folder_are_closed(tmp_path: Path, candidates: Path) -> None:
    (candidates / "empty").mkdir()
    (candidates / "linked").symlink_to(candidates / "good")
    (candidates / "README.md").write_text("not a candidate")
    found = arms(tmp_path, candidates)
    assert set(found) == {"plain", "fast", "good", "empty", "linked"}
    assert "candidates/empty/route.yaml: expected a regular file, got nothing" in (found["empty"].error or "")
    assert "candidates/linked: expected a folder, got a link" in (found["linked"].error or "")


@pytest.mark.parametrize("name", ["plain", "a b", "x" * 70, "\udc80"])
def test_a_folder_whose_name_is_no_free_route_name_is_closed_under_another(
    tmp_path: Path, candidates: Path, name: str
) -> None:
    add(candidates, name)
    found = arms(tmp_path, candidates)
    (unnamed,) = [arm for route, arm in found.items() if route.startswith("unnamed-")]
    assert unnamed.identity is None
    assert "fix: rename the folder" in (unnamed.error or "")
    assert found["plain"].identity is not None


def test_candidates_must_be_a_folder(tmp_path: Path, candidates: Path) -> None:
    with pytest.raises(UsageError, match="expected a folder of candidates"):
        arms(tmp_path, candidates / "good" / "k.k")
