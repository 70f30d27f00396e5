"""What a toolkit's workers are told of this machine, and nothing else."""

from pathlib import Path

import pytest

from qualify.toolkits import board_nodes, driver_environment, find, platforms

ALWAYS = {"CUDA_CACHE_DISABLE": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_MODULE_LOADING": "EAGER"}


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, {"CUDA_VISIBLE_DEVICES": "0"}),
        ({"CUDA_VISIBLE_DEVICES": "3,1"}, {"CUDA_VISIBLE_DEVICES": "3"}),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}, {"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}),
        ({"CUDA_VISIBLE_DEVICES": ""}, {"CUDA_VISIBLE_DEVICES": ""}),
        ({"CUDA_INJECTION64_PATH": "/x", "NVIDIA_TF32_OVERRIDE": "1"}, {"CUDA_VISIBLE_DEVICES": "0"}),
        ({"CUDA_MODULE_LOADING": "LAZY", "CUDA_LAUNCH_BLOCKING": "1"}, {"CUDA_VISIBLE_DEVICES": "0"}),
    ],
)
def test_of_the_callers_variables_only_the_first_visible_board_reaches_a_driver(
    environment: dict[str, str], told: dict[str, str]
) -> None:
    assert driver_environment(environment, places=()) == {**ALWAYS, **told}


def test_only_folders_that_hold_a_driver_are_passed_on(tmp_path: Path) -> None:
    first, second, without = (tmp_path / name for name in ("first", "second", "without"))
    for folder in (first, second, without):
        folder.mkdir()
    for folder in (first, second):
        (folder / "libcuda.so.1").touch()
    environment = {"LD_LIBRARY_PATH": f"{without}::{first}:/nowhere"}
    found = driver_environment(environment, places=(str(second), str(without)))
    assert found["LD_LIBRARY_PATH"] == f"{first}:{second}"
    assert "LD_LIBRARY_PATH" not in driver_environment({"LD_LIBRARY_PATH": str(without)}, places=("/nowhere",))


def test_a_board_is_a_numbered_node(tmp_path: Path) -> None:
    for name in ("nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert board_nodes(tmp_path) == ()
    (tmp_path / "nvidia0").touch()
    assert board_nodes(tmp_path) == (tmp_path / "nvidia0",)


def test_workers_of_pocl_load_no_other_platform_unless_the_caller_names_some(tmp_path: Path) -> None:
    alone, named = tmp_path / "pocl.icd", {"OCL_ICD_VENDORS": "/elsewhere"}
    assert platforms(alone, {}) == {}, "the loader's own places"
    alone.touch()
    assert platforms(alone, {"OTHER": "x"}) == {"OCL_ICD_VENDORS": str(alone)}
    assert platforms(alone, named) == named


def test_pocls_wheel_is_found_beside_the_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    (platform,) = find("pocl-3.0").variables.values()
    assert Path(platform).read_text().startswith("libpocl")
