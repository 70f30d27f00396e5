"""Any byte of a run changed, any file of it dropped, renamed or copied: never verified."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qualify.evidence import manifest
from qualify.evidence.audit import verify_run
from qualify.evidence.manifest import MANIFEST
from qualify.evidence.problems import ProblemError
from qualify.model import canonical_bytes
from tests.conftest import examples
from tests.evidence.small import GATES, rehash, write_run

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


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
HOSTILE = settings(
    max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def audited(run: Path, path: Path, data: bytes) -> str:
    """The audit's outcome with other bytes in one file and a manifest that fits; puts everything back."""
    before, sums = path.read_bytes(), (run / MANIFEST).read_bytes()
    path.write_bytes(data)
    if path.name != MANIFEST:
        rehash(run)
    try:
        return verify_run(run, GATES).outcome
    finally:
        path.write_bytes(before)
        (run / MANIFEST).write_bytes(sums)


@HOSTILE
@given(st.data())
def test_any_bytes_in_a_judged_file_are_bad_and_never_an_exception(run: Path, data: st.DataObject) -> None:
    judged = [path for path in paths(run) if path.suffix in (".json", ".i64le") or path.name == MANIFEST]
    path = data.draw(st.sampled_from(judged))
    assert audited(run, path, data.draw(st.binary(max_size=60))) == "bad", path


@HOSTILE
@given(st.data())
def test_any_value_in_any_field_of_a_document_is_never_an_exception(run: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from([path for path in paths(run) if path.suffix == ".json"]))
    value = json.loads(path.read_bytes())
    place = value
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not place[key] or not isinstance(place[key], dict | list) or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(JSON)
    assert audited(run, path, canonical_bytes(value)) in ("verified", "bad", "unknown")
