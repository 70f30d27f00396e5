"""A folder that someone else wrote is read by descriptor, and nothing but plain files in it is."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from qualify.evidence.files import File, Folder, below, folder, read_file, scan
from qualify.evidence.problems import Problem, ProblemError


@pytest.fixture
def at(tmp_path: Path) -> Iterator[int]:
    with folder(str(tmp_path), "run") as handle:
        yield handle


def code(at: int, name: str, limit_bytes: int = 10) -> str:
    with pytest.raises(ProblemError) as caught:
        read_file(at, name, name, limit_bytes)
    return caught.value.problem.code


def _code_or_none(at: int, name: str, limit_bytes: int) -> str | None:
    try:
        read_file(at, name, name, limit_bytes)
    except ProblemError as error:
        return error.problem.code
    return None


def scanned(at: int) -> dict[str, str]:
    """What a scan says of each path: `file`, `folder` or a problem's code."""
    found = {}
    for item in scan(at, lambda path: None if path.endswith(".no") else 10, lambda _: True):
        found[item.path] = item.code if isinstance(item, Problem) else type(item).__name__.lower()
    return found


def test_a_plain_file_up_to_its_cap_is_read(at: int, tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"x" * 10)
    assert read_file(at, "plain", "plain", 10) == b"x" * 10
    assert code(at, "plain", 9) == "P17"


def test_a_large_file_is_read_whole(at: int, tmp_path: Path) -> None:
    data = os.urandom(3 << 20)
    (tmp_path / "large").write_bytes(data)
    assert read_file(at, "large", "large", len(data)) == data


def test_a_sparse_file_is_refused_by_its_size(at: int, tmp_path: Path) -> None:
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 1 << 40)
    assert code(at, "sparse") == "P17"


def test_links_are_not_followed(at: int, tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"x")
    (tmp_path / "link").symlink_to("plain")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "inner").mkdir()
    (tmp_path / "linked").symlink_to("inner")
    assert code(at, "link") == code(at, "dangling") == "P01"
    with pytest.raises(ProblemError) as caught, below(at, "linked"):
        pass
    assert caught.value.problem.code == "P02"
    assert scanned(at) == {"plain": "file", "link": "P01", "dangling": "P01", "inner": "folder", "linked": "P01"}


def test_a_fifo_a_socket_and_a_device_are_refused_without_waiting(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    assert (code(at, "fifo"), code(at, "socket")) == ("P05", "P06")
    assert scanned(at) == {"fifo": "P05", "socket": "P06"}
    with folder("/dev", "dev") as devices:
        assert code(devices, "null") == "P06"


def test_a_second_hard_link_is_refused(at: int, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x")
    (tmp_path / "two").hardlink_to(tmp_path / "one")
    assert scanned(at) == {"one": "P04", "two": "P04"}


def test_a_mount_point_is_refused() -> None:
    with folder("/", "root") as root, pytest.raises(ProblemError) as caught, below(root, "proc"):
        pass
    assert caught.value.problem.code == "P07"


def test_a_folder_where_a_file_should_be_is_refused(at: int, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    assert code(at, "inner") == "P06"
    assert code(at, "absent") == "S03"


def test_a_file_that_is_written_while_it_is_read_is_unknown(at: int, tmp_path: Path) -> None:
    path, stop = tmp_path / "busy", threading.Event()
    path.write_bytes(bytes(8 << 20))

    def keep_writing() -> None:
        with path.open("r+b", buffering=0) as file:
            while not stop.is_set():
                file.seek(0)
                file.write(b"x")

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        # Each read takes a millisecond, each write a microsecond: the first read shows it.
        codes = {_code_or_none(at, "busy", 8 << 20) for _ in range(10)}
    finally:
        stop.set()
        writer.join()
    assert "P14" in codes <= {"P14", None}
    assert Problem("busy", "P14", "").outcome == "unknown"


def test_depth_names_and_foreign_files_are_refused_in_one_scan(at: int, tmp_path: Path) -> None:
    deep = "/".join("a" * 17)
    (tmp_path / deep).mkdir(parents=True)
    (tmp_path / "b.no").write_bytes(b"x")
    (tmp_path / "c d").write_bytes(b"x")
    (tmp_path / "e").mkdir()
    found = scanned(at)
    assert found.pop(deep) == "P19"
    assert found.pop("a") == "folder"
    assert {path: kind for path, kind in found.items() if not path.startswith("a/")} == {
        "b.no": "S01",
        "c d": "N09",
        "e": "folder",
    }


def test_a_scan_reads_in_order_of_names(at: int, tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / name).write_bytes(name.encode())
    assert list(scan(at, lambda _: 1, lambda _: True)) == [File("a", b"a"), File("b", b"b"), File("c", b"c")]
    assert not [item for item in scan(at, lambda _: 1, lambda _: True) if isinstance(item, Folder)]
