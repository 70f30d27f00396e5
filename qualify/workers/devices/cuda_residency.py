"""What the CUDA driver answers about one launch of a loaded function: its parameters, and what can be resident."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from qualify.contract import Kernel
from qualify.model import Json
from qualify.workers.devices.binding import StepRefused
from qualify.workers.devices.cuda_driver import DriverError, Function, call, prepare


def resident(function: Function, kernel: Kernel, stream: Any) -> dict[str, Json]:
    """Blocks that a multiprocessor holds at once, clusters that the board holds (None without), the parameters.

    The query for blocks knows nothing of clusters. Raises StepRefused where the driver would refuse the launch.
    """
    zeros = tuple(bytes(size) for _, size in function.parameters)
    launch = prepare(function, kernel, zeros, stream)
    count = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
    try:
        blocks = int(call(count, function.handle, kernel.threads, kernel.shared_bytes))
        found = call(driver.cuOccupancyMaxActiveClusters, function.handle, launch.config) if kernel.cluster else None
    except DriverError as error:
        raise StepRefused(f"{function.symbol}: {error}") from error
    return {
        "parameters": [[offset, size] for offset, size in function.parameters],
        "resident_blocks": blocks,
        "resident_clusters": None if found is None else int(found),
    }
