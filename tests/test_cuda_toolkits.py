"""Toolkits as installers, wheels of two layouts and a system leave them; anything else is passed over or refused."""

import os
from pathlib import Path

import pytest

from qualify.cuda_toolkits import ToolkitFiles, digest, files, find, here
from qualify.errors import RigError


def lay(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


NEW = (
    "lib/libnvrtc.so.13",
    "lib/libnvrtc-builtins.so.13.2",
    "lib/libnvrtc.alt.so.13",
    "lib/libnvrtc-builtins.alt.so.13.2",
)
NEW_HEADERS = ("include/nvrtc.h", "include/cuda_fp16.h", "include/cccl/nv/target", "lib/cmake/cub/cub-config.cmake")
OLD = ("cuda_nvrtc/lib/libnvrtc.so.12", "cuda_nvrtc/lib/libnvrtc-builtins.so.12.8", "cuda_nvrtc/include/nvrtc.h")
OLD_HEADERS = ("cuda_runtime/include/cuda_fp16.h", "cuda_cccl/include/nv/target")


def test_wheels_of_13(tmp_path: Path) -> None:
    lay(tmp_path, *NEW, *NEW_HEADERS)
    assert files(tmp_path) == ToolkitFiles(
        release=(13, 2),
        library=tmp_path / "lib/libnvrtc.so.13",
        builtins=tmp_path / "lib/libnvrtc-builtins.so.13.2",
        includes=(tmp_path / "include", tmp_path / "include/cccl"),
    )


def test_wheels_of_12_lie_in_folders_of_their_own(tmp_path: Path) -> None:
    lay(tmp_path, *OLD, *OLD_HEADERS, *(f"cu13/{name}" for name in (*NEW, *NEW_HEADERS)))
    found = dict(here(cache=tmp_path / "none", environment=(tmp_path,)))
    assert found[13, 2] == (tmp_path / "cu13",)
    assert files(*found[12, 8]).includes == (
        tmp_path / "cuda_cccl/include",
        tmp_path / "cuda_nvrtc/include",
        tmp_path / "cuda_runtime/include",
    )


def test_a_systems_links_are_one_library(tmp_path: Path) -> None:
    lay(tmp_path, "lib64/libnvrtc.so.13.2.86", "lib64/libnvrtc-builtins.so.13.2.86", "include/nvrtc.h")
    (tmp_path / "lib64/libnvrtc.so.13").symlink_to("libnvrtc.so.13.2.86")
    (tmp_path / "lib64/libnvrtc-builtins.so.13.2").symlink_to("libnvrtc-builtins.so.13.2.86")
    (tmp_path / "lib").symlink_to("lib64")
    assert files(tmp_path).release == (13, 2)
    assert files(tmp_path).library == tmp_path / "lib64/libnvrtc.so.13.2.86"


@pytest.mark.parametrize(
    "names",
    [(), ("lib/libnvrtc.so.13",), ("lib/libnvrtc-builtins.so.13.2",), (*NEW, "other/libnvrtc.so.12"), (*NEW, *OLD)],
)
def test_no_toolkit_and_two_toolkits_are_none(tmp_path: Path, names: tuple[str, ...]) -> None:
    with pytest.raises(RigError, match="expected one libnvrtc with its builtins"):
        files(lay(tmp_path, *names))
    assert list(here(cache=tmp_path / "none", environment=(tmp_path / "cu13",))) == []


def test_what_was_installed_here_comes_first(tmp_path: Path) -> None:
    lay(tmp_path / "cache/toolkits/13.2", *NEW)
    lay(tmp_path / "cache/toolkits/unfinished", "lib/libnvrtc.so.13")
    lay(tmp_path / "wheels/cu13", *NEW)
    found = list(here(cache=tmp_path / "cache", environment=(tmp_path / "wheels",)))
    assert found == [((13, 2), (tmp_path / "cache/toolkits/13.2",)), ((13, 2), (tmp_path / "wheels/cu13",))]


def test_a_digest_is_of_every_byte_and_is_kept_until_a_file_changes(tmp_path: Path) -> None:
    here_, cache = lay(tmp_path / "t", *NEW, *NEW_HEADERS), tmp_path / "cache"
    first = digest(files(here_), cache)
    (kept,) = (cache / "toolkit-digests").iterdir()
    kept.write_text("0123456789abcdef")
    assert digest(files(here_), cache) == "0123456789abcdef"
    kept.write_text("cut off")
    assert digest(files(here_), cache) == first
    for name in ("lib/libnvrtc.so.13", "lib/libnvrtc-builtins.so.13.2", "include/cccl/nv/target"):
        times = (here_ / name).stat()
        (here_ / name).write_bytes(b"x")
        os.utime(here_ / name, ns=(times.st_atime_ns, times.st_mtime_ns))
        changed = digest(files(here_), cache)
        (here_ / name).write_bytes(b"")
        assert changed != first == digest(files(here_), cache)
    moved = here_.rename(tmp_path / "elsewhere")
    assert digest(files(moved), Path("/dev/null/none")) == first


def test_a_digest_is_the_same_whether_an_installer_compiled_what_python_there_is(tmp_path: Path) -> None:
    wheels, cache = lay(tmp_path, *OLD, *OLD_HEADERS, "cuda_nvrtc/include/__init__.py"), tmp_path / "cache"
    first = digest(files(wheels), cache)
    lay(wheels, "cuda_nvrtc/include/__pycache__/__init__.cpython-311.pyc")
    assert digest(files(wheels), cache) == first
    lay(wheels, "cuda_nvrtc/include/__pycache__/more.h")
    assert digest(files(wheels), cache) != first


def test_the_environment_has_the_newest_and_says_what_it_lacks() -> None:
    newest = max(release for release, _ in here())
    assert files(*find(newest)).release == newest
    with pytest.raises(RigError, match=r"expected cuda-9\.9 here, found cuda-\d+\.\d+"):
        find((9, 9))
