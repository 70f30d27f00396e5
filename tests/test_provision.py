"""Toolkits say what they can do, and one more comes whole or not at all; pip takes its wheels from a folder."""

import os
from pathlib import Path
from zipfile import ZipFile

import pytest

from qualify import cuda_toolkits
from qualify.errors import RigError, UsageError
from qualify.provision import Row, install, lines, listed
from tests.rigs import RELEASE

VERSION = f"{RELEASE[0]}.{RELEASE[1]}"


def wheel(folder: Path, name: str, version: str, **files: bytes | Path) -> None:
    """A wheel that holds these files, uncompressed."""
    module = name.replace("-", "_")
    with ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as made:
        about = {
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "RECORD": "",
        }
        for file, text in about.items():
            made.writestr(f"{module}-{version}.dist-info/{file}", text)
        for path, data in files.items():
            made.write(data, path) if isinstance(data, Path) else made.writestr(path, data)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes packages from, and from nowhere else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


def test_a_toolkit_comes_whole_and_is_found(wheels: Path, tmp_path: Path) -> None:
    """The environment's own libraries, packed as the wheels of their release."""
    toolkit = cuda_toolkits.files(*cuda_toolkits.find(RELEASE))
    libraries = {f"nvidia/cu/lib/{path.name}": path for path in (toolkit.library, toolkit.builtins)}
    wheel(wheels, "nvidia-cuda-nvrtc", f"{VERSION}.7", **libraries)
    wheel(wheels, "nvidia-cuda-runtime", f"{VERSION}.5", **{"nvidia/cu/include/cuda_fp16.h": b"// half"})
    wheel(wheels, "nvidia-cuda-cccl", f"{VERSION}.3", **{"nvidia/cu/include/cccl/nv/target": b"// target"})
    folder, described = install(VERSION, tmp_path / "cache")
    assert described is not None
    assert described.toolkit_build.startswith(f"cuda-{VERSION}.")
    assert next(cuda_toolkits.here(tmp_path / "cache", ())) == (RELEASE, (folder,))
    assert len(cuda_toolkits.files(folder).includes) == 2
    assert install(VERSION, tmp_path / "cache") == (folder, None)


@pytest.mark.parametrize(
    ("libraries", "headers", "says"),
    [
        (("libnvrtc.so.12", "libnvrtc-builtins.so.12.8"), True, "to load"),
        (("libnvrtc.so.12",), True, "expected one libnvrtc with its builtins"),
        (("libnvrtc.so.12", "libnvrtc-builtins.so.12.8"), False, "expected pip to bring"),
    ],
)
def test_what_does_not_work_leaves_nothing(
    wheels: Path, tmp_path: Path, libraries: tuple[str, ...], headers: bool, says: str
) -> None:
    wheel(wheels, "nvidia-cuda-nvrtc-cu12", "12.8.1", **{f"nvidia/cuda_nvrtc/lib/{name}": b"" for name in libraries})
    wheel(wheels, "nvidia-cuda-runtime-cu12", "12.8.2", **{"nvidia/cuda_runtime/include/cuda_fp16.h": b""})
    if headers:
        wheel(wheels, "nvidia-cuda-cccl-cu12", "12.8.3", **{"nvidia/cuda_cccl/include/nv/target": b""})
    cache = tmp_path / "cache"
    with pytest.raises(RigError, match=says):
        install("cuda-12.8", cache)
    assert not cuda_toolkits.installed(cache)


@pytest.mark.parametrize("name", ["12", "13.2.1", "pocl-3.0", "../12.8", "12.8 --index-url=x"])
def test_what_is_no_release_is_usage(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a CUDA release"):
        install(name, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_every_toolkit_here_says_what_it_can_do() -> None:
    rows = {row.name: row for row in listed()}
    cuda, virtual = rows[f"cuda-{VERSION}"], rows["simulated-1.0"]
    assert "sm_90" in cuda.targets
    assert cuda.reports is True
    assert (cuda.board is None) == (cuda.lacking is not None)
    assert virtual == Row("simulated-1.0", "simulated-1.0", ("virtual",), None, "virtual board (virtual, simulated-0)")
    pocl = rows["pocl-3.0"]
    assert (pocl.watcher or "").startswith("Oclgrind at ")
    assert (cuda.watcher is None) == (cuda.unwatched is not None)
    assert f"\n  watched by {pocl.watcher}" in "\n".join(lines((pocl,)))
    text = "\n".join(lines((cuda, virtual)))
    assert f"  watched by {cuda.watcher or f'nothing: {cuda.unwatched}'}\n" in text
    assert f"cuda-{VERSION}  {cuda.build}\n  builds for sm_75 " in text
    assert text.endswith("simulated-1.0\n  builds for virtual\n  measures on virtual board (virtual, simulated-0)")
