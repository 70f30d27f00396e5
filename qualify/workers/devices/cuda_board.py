"""A CUDA board as its driver describes it. Nothing here needs a context, so asking disturbs no one's work."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from cuda.bindings import driver

from qualify.channel import Described
from qualify.domain import Board, Limits
from qualify.workers.devices.cuda_driver import ask, attribute


def describe() -> Described:
    """The first board that this process may see, and its driver. Raises RigError."""
    ask(driver.cuInit, 0)
    device = ask(driver.cuDeviceGet, 0)
    found = board(device)
    return Described(
        version=found.driver, toolkit_build="", arch=architecture(device), board=found, limits=found.limits
    )


def architecture(device: Any) -> str:
    """`sm_90`: the compute capability as compilers name it. Raises RigError."""
    major, minor = (
        ask(driver.cuDeviceGetAttribute, getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), device)
        for name in ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR")
    )
    return f"sm_{major}{minor}"


def board(device: Any) -> Board:
    """Name, UUID, driver and limits as the driver gives them. Raises RigError."""
    name = ask(driver.cuDeviceGetName, 128, device).split(b"\0")[0].decode()
    version = int(ask(driver.cuDriverGetVersion))
    return Board(
        name=name,
        uuid=uuid_text(bytes(ask(driver.cuDeviceGetUuid, device).bytes), name),
        driver=f"{version // 1000}.{version % 1000 // 10}",
        addressing=_addressing(device),
        limits=_limits(device),
    )


def uuid_text(data: bytes, name: str) -> str:
    """The identifier as the driver takes it to choose a board, or the part of one that its name says it is."""
    return f"{'MIG' if ' MIG ' in f'{name} ' else 'GPU'}-{UUID(bytes=data)}"


def _addressing(device: Any) -> Literal["device", "host", "hmm", "ats", "unknown"]:
    pageable = attribute(device, "PAGEABLE_MEMORY_ACCESS")
    if pageable is None:
        return "unknown"
    if not pageable:
        return "device"
    return "ats" if attribute(device, "PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES") else "hmm"


def _limits(device: Any) -> Limits:
    def three(name: str) -> tuple[int, int, int] | None:
        x, y, z = (attribute(device, f"{name}_{axis}") for axis in "XYZ")
        return None if x is None or y is None or z is None else (x, y, z)

    return Limits(
        block_threads=attribute(device, "MAX_THREADS_PER_BLOCK"),
        block=three("MAX_BLOCK_DIM"),
        grid=three("MAX_GRID_DIM"),
        shared_bytes=attribute(device, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        parameter_bytes=None,
        compute_units=attribute(device, "MULTIPROCESSOR_COUNT"),
        memory_bytes=int(ask(driver.cuDeviceTotalMem, device)),
        cache_bytes=attribute(device, "L2_CACHE_SIZE"),
        source="cuDeviceGetAttribute",
    )
