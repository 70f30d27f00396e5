"""The suite's own rules: a skip fails, and `gpu` tests run exactly where there is a board."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.conftest import PART, ROOM_BYTES, board_of, examples, in_memory, nvidia_devices, part, serves, some
from tests.house.tree import ROOT

SUITE = """
import pytest

@pytest.mark.gpu
def test_board():
    raise AssertionError("ran where there is no board")

def test_skips():
    pytest.skip("no reason is good enough")

@pytest.mark.xfail
def test_expects_to_fail():
    raise AssertionError

def test_passes():
    pass
"""


def test_a_skip_and_an_expected_failure_fail(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu: needs a board\n")
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not board")
    result = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert "2 failed, 1 passed, 1 deselected" in result.stdout, result.stdout


def test_a_board_is_a_numbered_device_node(tmp_path: Path) -> None:
    for name in ("nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert nvidia_devices(tmp_path) == ()
    (tmp_path / "nvidia0").touch()
    assert nvidia_devices(tmp_path) == (tmp_path / "nvidia0",)


def test_processes_that_share_boards_have_one_each() -> None:
    assert [board_of(f"gw{number}", "GPU-1,GPU-2") for number in range(3)] == ["GPU-1", "GPU-2", "GPU-1"]
    assert board_of("", "GPU-1,GPU-2") is None, "a suite that is no process of several"
    assert board_of("gw0", "GPU-1") is None
    assert board_of("gw0", "") is None


def test_temporary_folders_lie_in_memory_where_there_is_room_and_code_is_loaded(tmp_path: Path) -> None:
    blocks = ROOM_BYTES // 4096

    def system(free: int, flag: int) -> os.statvfs_result:
        return os.statvfs_result((4096, 4096, 2 * free, 2 * free, free, 0, 0, 0, flag, 255))

    assert serves(system(blocks, 0))
    assert not serves(system(blocks - 1, 0))
    assert not serves(system(blocks, os.ST_NOEXEC))
    assert in_memory(tmp_path / "none") is None


@pytest.mark.parametrize(("count", "part"), [(400, 80), (100, 20), (40, 10), (8, 8)])
def test_properties_are_tried_with_all_examples_on_ci_and_with_a_part_elsewhere(count: int, part: int) -> None:
    assert (examples(count, all_of_them=True), examples(count, all_of_them=False)) == (count, part)
    assert settings().max_examples == examples(100), "where a test names no number too"
    assert "\nQUALIFY_EXAMPLES=all make test\n" in (ROOT / ".ci/run").read_text()


def test_of_a_long_row_of_cases_all_are_tried_on_ci_and_every_fifth_elsewhere() -> None:
    assert [*part(range(23), all_of_them=True)] == [*range(23)]
    tried = [[*part(range(23), all_of_them=False)] for _ in range(200)]
    assert all(numbers == [*range(numbers[0], 23, PART)] for numbers in tried)
    assert {number for numbers in tried for number in numbers} == {*range(23)}
    assert some("abc", all_of_them=True) == "abc"
    assert {tuple(some("abc", all_of_them=False)) for _ in range(200)} == {("a",), ("b",), ("c",)}
