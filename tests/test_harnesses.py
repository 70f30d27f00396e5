"""Harnesses on disk: kept whole, and believed only where nobody can have changed them."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from qualify import harnesses, toolkits
from qualify.children import Nursery
from qualify.compiling import Compilers
from tests.house.tree import ROOT
from tests.rigs import CUDA

KEY, DATA = harnesses.key(["opencl", "3.0"]), b"machine code " * 100


@pytest.fixture
def path(tmp_path: Path) -> Path:
    harnesses.keep(KEY, DATA, tmp_path)
    (found,) = (tmp_path / "harnesses").iterdir()
    return found


def test_what_was_kept_is_there_under_its_key_only(path: Path, tmp_path: Path) -> None:
    assert harnesses.kept(KEY, tmp_path) == DATA
    assert harnesses.kept(harnesses.key(["opencl", "3.1"]), tmp_path) is None
    assert harnesses.key(["ab", "c"]) != harnesses.key(["a", "bc"])


def _linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "one byte changed": lambda path: path.write_bytes(path.read_bytes().replace(b"code", b"Code", 1)),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "empty": lambda path: path.write_bytes(b""),
    "seal alone": lambda path: path.write_bytes(path.read_bytes()[:32]),
    "writable by the group": lambda path: path.chmod(0o660),
    "writable by all": lambda path: path.chmod(0o602),
    "a link": _linked,
    "a pipe": _fifo,
    "not there": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_may_have_changed_is_not_believed_and_can_be_kept_again(damage: str, path: Path, tmp_path: Path) -> None:
    DAMAGE[damage](path)
    assert harnesses.kept(KEY, tmp_path) is None
    harnesses.keep(KEY, DATA, tmp_path)
    assert harnesses.kept(KEY, tmp_path) == DATA


def _file_above(folder: Path) -> None:
    folder.write_text("a file where the folder would be")


def _folder_there(folder: Path) -> None:
    (folder / KEY).mkdir(parents=True)


@pytest.mark.parametrize("place", [_file_above, _folder_there])
def test_where_nothing_can_be_kept_nothing_is(place: Callable[[Path], None], tmp_path: Path) -> None:
    place(tmp_path / "harnesses")
    assert harnesses.kept(KEY, tmp_path) is None
    harnesses.keep(KEY, DATA, tmp_path)
    assert harnesses.kept(KEY, tmp_path) is None
    assert sorted(path.name for path in tmp_path.rglob("*")) in (["harnesses"], sorted(["harnesses", KEY]))


def length(told: str) -> int:
    """How many bytes the harness has of a board that need not be here, which is made fastest.

    Its compile workers are told a word of their own, so that no other test has asked for it.
    """
    nursery, toolkit = Nursery(), toolkits.find(CUDA).aimed("sm_90")
    compilers = Compilers(nursery, replace(toolkit, compiler={**toolkit.compiler, "QUALIFY_TOLD": told}))
    try:
        return len(compilers.harness()[0])
    finally:
        compilers.rest()
        nursery.close()
        compilers.close()


LENGTH = "import sys; from tests.test_harnesses import length; print(length(sys.argv[1]))"


def test_a_process_keeps_a_harness_that_the_next_one_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's number tells that it was loaded and not made again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = length(tmp_path.name)
    (kept,) = (tmp_path / "qualify/harnesses").iterdir()
    number = kept.stat().st_ino
    assert kept.stat().st_size == made + 32
    command = [sys.executable, "-c", LENGTH, tmp_path.name]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert int(done.stdout) == made
    (found,) = (tmp_path / "qualify/harnesses").iterdir()
    assert found.stat().st_ino == number
