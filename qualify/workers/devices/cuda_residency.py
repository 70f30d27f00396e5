"""What the CUDA driver answers about a loaded function and one launch of it: figures, parameters, what is resident."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from qualify.contract import Kernel
from qualify.model import Json
from qualify.workers.devices.binding import StepRefused
from qualify.workers.devices.cuda_driver import DriverError, Function, call, prepare


def figures(function: Function) -> dict[str, Json]:
    """What the driver says of the function itself. Raises DriverError."""
    wanted = driver.CUfunction_attribute
    keys = {
        "registers_per_thread": wanted.CU_FUNC_ATTRIBUTE_NUM_REGS,
        "shared_bytes": wanted.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
        "local_bytes": wanted.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
        "block_threads": wanted.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
        "constant_bytes": wanted.CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES,
    }
    return {name: int(call(driver.cuFuncGetAttribute, key, function.handle)) for name, key in keys.items()}


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
