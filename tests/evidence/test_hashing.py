"""Large files are hashed by other processes while this one goes on: every file comes once, with its own digests."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from qualify.evidence import contents
from qualify.evidence.contents import MAX_OPEN, Contents
from qualify.evidence.files import LARGE_BYTES, File, Folder, Opened, folder, scan
from qualify.evidence.hashing import ALONE_BYTES, BLOCK_BYTES, Digests, hashed
from qualify.evidence.problems import Problem
from qualify.identity import content
from tests.house.tree import ROOT

SIZES = [LARGE_BYTES, LARGE_BYTES + 1, 3 * BLOCK_BYTES, ALONE_BYTES + 7]
#: In a process of its own: one with other threads, as that of the tests, does not fork.
ASIDE = """
import json, os, sys
from qualify.evidence import contents, hashing
from qualify.evidence.files import folder
found_by = hashing._found
def found(file, wants):
    if len(sys.argv) > 2 and os.getpid() != PARENT: os._exit(9)
    return found_by(file, wants)
hashing._found, PARENT = found, os.getpid()
with folder(sys.argv[1], ".") as at, contents.reading(at) as (made, end):
    before = sorted(made.digests)
    end()
print(json.dumps([before, made.digests, made.sizes, [str(each) for each in made.problems]]))
"""


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A folder with a small object and large ones of every kind of size."""
    (tmp_path / "objects").mkdir()
    for size in [7, *SIZES]:
        data = os.urandom(size)
        (tmp_path / f"objects/{content(data)}.bin").write_bytes(data)
    return tmp_path


def expected(run: Path) -> dict[str, str]:
    paths = [path for path in run.rglob("*") if path.is_file()]
    return {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def read(run: Path) -> Contents:
    with folder(str(run), ".") as at:
        return contents.read(at)


def aside(run: Path, *more: str) -> tuple[list[str], dict[str, str], dict[str, int], list[str]]:
    command = (sys.executable, "-c", ASIDE, str(run), *more)
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    before, digests, sizes, problems = json.loads(done.stdout)
    return before, digests, sizes, problems


def test_everything_comes_once_with_its_digests(large: Path) -> None:
    found = read(large)
    assert (found.digests, found.problems, found.kept) == (expected(large), [], {})
    assert sorted(found.sizes.values()) == [7, *SIZES]


@pytest.mark.parametrize("dies", [[], ["dies"]])
def test_other_processes_give_the_same_and_so_does_this_one_where_they_die(large: Path, dies: list[str]) -> None:
    before, digests, sizes, problems = aside(large, *dies)
    assert before == [path for path, size in sizes.items() if size == 7], "what is large is not waited for"
    assert (digests, problems) == (expected(large), [])


def test_a_large_object_lies_under_its_own_digest(large: Path) -> None:
    other = bytes(LARGE_BYTES)
    path = f"objects/{content(b'another')}.bin"
    (large / path).write_bytes(other)
    found = read(large)
    (problem,) = found.problems
    assert (problem.path, problem.code) == (path, "V08")
    assert found.digests == expected(large)
    assert aside(large)[3] == [str(problem)]


def test_what_changed_since_it_was_opened_is_a_problem(large: Path) -> None:
    """Each large file in its own way, and no digest of it is told."""
    changes: list[Callable[[Path], object]] = [
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
        lambda path: os.truncate(path, 5),
        lambda path: path.write_bytes(b"x" * path.stat().st_size),
        lambda path: os.utime(path, (1, 1)),
    ]
    with folder(str(large), ".") as at, contents.reading(at) as (found, end):
        named = {path.stat().st_size: path for path in large.glob("objects/*")}
        for size, change in zip(SIZES, changes, strict=True):
            change(named[size])
        end()
    assert [problem.code for problem in found.problems] == ["P14"] * len(SIZES)
    assert {problem.path for problem in found.problems} == {f"objects/{named[size].name}" for size in SIZES}
    assert (len(found.digests), found.is_hidden) == (1, True)


def test_what_is_judged_is_held_however_large_it_is(tmp_path: Path) -> None:
    path = "subjects/c/r/gate.times.i64le"
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_bytes(bytes(LARGE_BYTES))
    assert read(tmp_path).kept == {path: bytes(LARGE_BYTES)}


def test_more_large_files_than_may_be_open_are_read_in_turns(tmp_path: Path) -> None:
    (tmp_path / "telemetry").mkdir()
    open_before = len(os.listdir("/proc/self/fd"))
    for number in range(MAX_OPEN + 2):
        with (tmp_path / f"telemetry/{number}").open("wb") as file:
            file.truncate(LARGE_BYTES)
    with folder(str(tmp_path), ".") as at, contents.reading(at) as (found, end):
        assert len(found.digests) == MAX_OPEN
        end()
    assert set(found.digests.values()) == {hashlib.sha256(bytes(LARGE_BYTES)).hexdigest()}
    assert (len(found.digests), found.problems) == (MAX_OPEN + 2, [])
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_nothing_stays_open_when_the_reader_fails(large: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyError), folder(str(large), ".") as at, contents.reading(at):
        raise KeyError("gone")
    assert len(os.listdir("/proc/self/fd")) == before


def _either(wants_blake3: bool, path: str) -> bool:
    return wants_blake3


def test_a_scan_opens_what_nobody_holds_and_reads_the_rest(large: Path) -> None:
    with folder(str(large), ".") as at:
        items = list(scan(at, lambda _: ALONE_BYTES, lambda path: path.endswith(content(b"") + ".bin")))
    kinds = {type(each) for each in items}
    assert kinds == {Folder, File, Opened, Problem}, "one is larger than the cap"
    opened = [each for each in items if isinstance(each, Opened)]
    with_digests = []
    for wanted in (True, False):  # A descriptor that is shared is read from its start each time.
        with hashed(opened, partial(_either, wanted)) as found:
            with_digests.append(found())
    for each, one, other in zip(opened, *with_digests, strict=True):
        data = (large / each.path).read_bytes()
        assert one == Digests(hashlib.sha256(data).hexdigest(), content(data))
        assert other == Digests(hashlib.sha256(data).hexdigest(), None)
        os.close(each.handle)
