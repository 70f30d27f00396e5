"""One screened and one promoted workspace for all tests here; each test works on a copy."""

import shutil
from pathlib import Path

import pytest

from qualify.promote import Promoted
from tests.admissions import beds
from tests.cli.workspaces import Workspace


@pytest.fixture(scope="session")
def screened_base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, str]:
    """A workspace whose two candidates passed a screen in every cell, and the screen."""
    workspace = beds.make(tmp_path_factory.mktemp("screened") / "w")
    return workspace, beds.screened(workspace)


@pytest.fixture(scope="session")
def promoted_base(screened_base: tuple[Workspace, str], tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The same after both were promoted at once: the faster, fast, is admitted in every cell."""
    base, run = screened_base
    workspace = Workspace(Path(shutil.copytree(base.path, tmp_path_factory.mktemp("promoted") / "w")))
    done = beds.promoted(workspace, run, routes={"fast", "other"})
    assert [(each.subject.cell.id, each.route) for each, _ in done.admitted] == [
        ("large", "fast"),
        ("ragged", "fast"),
        ("tiny", "fast"),
    ], done
    return workspace


@pytest.fixture
def screened(screened_base: tuple[Workspace, str], tmp_path: Path) -> Workspace:
    """A copy of the screened workspace."""
    return Workspace(Path(shutil.copytree(screened_base[0].path, tmp_path / "w")))


@pytest.fixture
def workspace(promoted_base: Workspace, tmp_path: Path) -> Workspace:
    """A copy of the promoted workspace."""
    return Workspace(Path(shutil.copytree(promoted_base.path, tmp_path / "w")))


@pytest.fixture
def run(screened_base: tuple[Workspace, str]) -> str:
    """The screen that both come from."""
    return screened_base[1]


@pytest.fixture(scope="session")
def proven_base(
    screened_base: tuple[Workspace, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Workspace, Promoted]:
    """The screened workspace after fast was proven by its bits, and what the command did."""
    base, run = screened_base
    workspace = Workspace(Path(shutil.copytree(base.path, tmp_path_factory.mktemp("proven") / "w")))
    return workspace, beds.proved(workspace, run)


@pytest.fixture
def proven(proven_base: tuple[Workspace, Promoted], tmp_path: Path) -> Workspace:
    """A copy of the workspace with a proof."""
    return Workspace(Path(shutil.copytree(proven_base[0].path, tmp_path / "w")))


@pytest.fixture
def proof(proven_base: tuple[Workspace, Promoted]) -> Promoted:
    """What the command that proved did, in the workspace that others are copies of."""
    return proven_base[1]
