"""Only regular files below the workspace are read; whatever else lies there is an error with its fix."""

import os
from pathlib import Path

import pytest

from qualify.errors import Exit, InputError
from qualify.files import read_file


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    inside = tmp_path / "workspace"
    (inside / "cohorts").mkdir(parents=True)
    (inside / "cohorts/plain.k").write_bytes(b"kernel")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/plain.k").write_bytes(b"secret")
    return inside


def refusal(workspace: Path, path: str, limit_bytes: int = 100) -> InputError:
    with pytest.raises(InputError) as caught:
        read_file(workspace, path, limit_bytes)
    assert caught.value.exit is Exit.USAGE
    assert caught.value.fix
    return caught.value


def test_a_regular_file_is_read_even_below_a_linked_workspace(workspace: Path) -> None:
    linked = workspace.parent / "linked"
    linked.symlink_to(workspace)
    assert read_file(linked, "cohorts/plain.k") == b"kernel"
    assert read_file(workspace, "cohorts/plain.k", len(b"kernel")) == b"kernel"


def test_a_link_is_refused_as_file_and_as_folder(workspace: Path) -> None:
    (workspace / "cohorts/link.k").symlink_to("plain.k")
    (workspace / "cohorts/out").symlink_to(workspace.parent / "outside")
    for path, at in (("cohorts/link.k", "cohorts/link.k"), ("cohorts/out/plain.k", "cohorts/out")):
        error = refusal(workspace, path)
        assert (error.where, error.got, error.fix) == (at, "a link", f"put a copy at {at} in place of the link")


def test_a_fifo_a_folder_and_nothing_are_named_without_waiting(workspace: Path) -> None:
    os.mkfifo(workspace / "cohorts/pipe")
    assert refusal(workspace, "cohorts/pipe").got == "a FIFO"
    assert refusal(workspace, "cohorts").got == "a folder"
    assert refusal(workspace, "cohorts/none.k").got == "nothing"
    assert refusal(workspace, "cohorts/plain.k/x").got == "a regular file"


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../outside/plain.k", "cohorts/../../outside/plain.k", "./x", "a//b", "", "a\0b"]
)
def test_a_path_out_of_the_workspace_is_refused_before_it_is_opened(workspace: Path, path: str) -> None:
    assert refusal(workspace, path).expected == "a path inside the workspace"


def test_one_byte_too_many_is_refused(workspace: Path) -> None:
    error = refusal(workspace, "cohorts/plain.k", 5)
    assert (error.expected, error.got) == ("at most 5 bytes", "6 bytes")
