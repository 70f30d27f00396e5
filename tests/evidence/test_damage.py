"""Any byte of a run changed, any file of it dropped, renamed or copied: never verified."""

import shutil
from pathlib import Path

import pytest

from qualify.evidence import manifest
from qualify.evidence.audit import verify_run
from qualify.evidence.manifest import MANIFEST
from qualify.evidence.problems import ProblemError
from tests.evidence.small import GATES, write_run

FLIPS = 12  # Positions of each file; every byte of the manifest is flipped in a test of its own.


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sealed run; each test leaves it as it was."""
    sealed = write_run(tmp_path_factory.mktemp("damage") / "evidence")
    assert verify_run(sealed, GATES).outcome == "verified"
    return sealed


def paths(run: Path) -> list[Path]:
    return sorted(path for path in run.rglob("*") if path.is_file())


def test_no_flipped_byte_verifies(run: Path) -> None:
    for path in paths(run):
        data = path.read_bytes()
        for index in sorted({len(data) * step // FLIPS for step in range(FLIPS)} | {len(data) - 1}):
            path.write_bytes(data[:index] + bytes([data[index] ^ (1 << index % 8)]) + data[index + 1 :])
            assert verify_run(run, GATES).outcome == "bad", (path, index)
        path.write_bytes(data)
    assert verify_run(run, GATES).outcome == "verified"


def test_no_flipped_byte_of_the_manifest_reads_the_same(run: Path) -> None:
    data = (run / MANIFEST).read_bytes()
    digests = manifest.parse(data)
    for index in range(len(data)):
        flipped = data[:index] + bytes([data[index] ^ (1 << index % 8)]) + data[index + 1 :]
        try:
            assert manifest.parse(flipped) != digests, index
        except ProblemError:
            continue


def test_no_cut_of_any_file_verifies(run: Path) -> None:
    for path in paths(run):
        data = path.read_bytes()
        for cut in (b"", data[:-1], data[: len(data) // 2], data + b"\n", data * 2):
            path.write_bytes(cut)
            assert verify_run(run, GATES).outcome == "bad", (path, len(cut))
        path.write_bytes(data)


def test_no_dropped_renamed_or_copied_file_verifies(run: Path) -> None:
    for path in paths(run):
        data, beside = path.read_bytes(), path.with_name(f"copy-{path.name}")
        shutil.copy(path, beside)
        assert verify_run(run, GATES).outcome == "bad", f"{path} copied"
        path.unlink()
        assert verify_run(run, GATES).outcome == "bad", f"{path} renamed"
        beside.unlink()
        assert verify_run(run, GATES).outcome == "bad", f"{path} dropped"
        path.write_bytes(data)
    assert verify_run(run, GATES).outcome == "verified"
