"""Large files are hashed beside the reading of the next: every file comes once, with its own digests."""

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from qualify.evidence import contents
from qualify.evidence.files import File, Folder, folder
from qualify.evidence.hashing import LARGE_BYTES, MAX_WAITING_BYTES, Hashed, hashed
from qualify.evidence.problems import Problem
from qualify.identity import content

SMALL = [File(f"small/{number}", bytes([number]) * number) for number in range(4)]
LARGE = [File(f"large/{number}", bytes([number]) * (LARGE_BYTES + number)) for number in range(5)]
HUGE = File("huge", bytes(MAX_WAITING_BYTES + 1))
OTHERS = [Folder("large"), Problem("link", "P01", "a link")]


@pytest.mark.parametrize("items", [[], [*SMALL, *OTHERS], [*LARGE, *SMALL, *OTHERS], [LARGE[0], HUGE, SMALL[1], *LARGE[1:]]])
def test_everything_comes_once_with_its_digests(items: list[File | Folder | Problem]) -> None:
    found = list(hashed(items, lambda path: path.endswith(("0", "huge"))))
    files = [each for each in found if isinstance(each, Hashed)]
    assert sorted(each.file.path for each in files) == sorted(each.path for each in items if isinstance(each, File))
    for each in files:
        assert each.sha256 == hashlib.sha256(each.file.data).hexdigest()
        assert each.blake3 == (content(each.file.data) if each.file.path.endswith(("0", "huge")) else None)
    assert [each for each in found if not isinstance(each, Hashed)] == [each for each in items if each in OTHERS]


def test_no_more_than_a_cap_waits_in_memory() -> None:
    taken = 0

    def reading() -> Iterator[File]:
        nonlocal taken
        for number in range(MAX_WAITING_BYTES // LARGE_BYTES + 8):
            taken += 1
            yield File(str(number), bytes(LARGE_BYTES))

    handed_on = 0
    for _ in hashed(reading(), lambda _: False):
        assert (taken - handed_on) * LARGE_BYTES <= MAX_WAITING_BYTES + LARGE_BYTES
        handed_on += 1
    assert handed_on == taken


def test_an_error_of_the_reader_is_raised_and_no_thread_stays() -> None:
    def reading() -> Iterator[File]:
        yield LARGE[1]
        raise KeyError("gone")

    threads = threading.active_count()
    with pytest.raises(KeyError):
        list(hashed(reading(), lambda _: False))
    assert threading.active_count() == threads


def test_a_large_object_lies_under_its_own_digest(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    for item, named in zip(LARGE[:2], (LARGE[0], LARGE[2]), strict=True):
        (tmp_path / f"objects/{content(named.data)}.bin").write_bytes(item.data)
    with folder(str(tmp_path), ".") as at:
        found = contents.read(at)
    (problem,) = found.problems
    assert (problem.path, problem.code) == (f"objects/{content(LARGE[2].data)}.bin", "V08")
    assert sorted(found.digests.values()) == sorted(hashlib.sha256(item.data).hexdigest() for item in LARGE[:2])
    assert set(found.sizes.values()) == {len(item.data) for item in LARGE[:2]}
