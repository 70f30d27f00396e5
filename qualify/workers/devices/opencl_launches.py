"""Launches of OpenCL kernels, and what a platform raises as its refusal of a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyopencl as cl

from qualify.contract import Kernel
from qualify.workers.devices.binding import StepRefused


def enqueue(queue: Any, kernel: Any, launch: Kernel, arguments: Sequence[Any]) -> Any:
    """A launch's event. Raises StepRefused for what OpenCL does not have, and for what the platform refuses."""
    if launch.cluster is not None or launch.cooperative or launch.carve_out_percent is not None:
        raise StepRefused(f"{launch.symbol}: OpenCL has neither clusters nor cooperative launches nor a carve-out")
    shared = [cl.LocalMemory(launch.shared_bytes)] if launch.shared_bytes else []
    passed = (*arguments, *shared)
    if len(passed) != kernel.num_args:
        raise StepRefused(f"{launch.symbol} has {kernel.num_args} parameters, not {len(passed)}")
    size = tuple(blocks * threads for blocks, threads in zip(launch.grid, launch.block, strict=True))
    with refusing(f"launch of {launch.symbol}, grid {launch.grid} of blocks {launch.block}"):
        for position, argument in enumerate(passed):
            kernel.set_arg(position, argument)
        return cl.enqueue_nd_range_kernel(queue, kernel, size, launch.block)


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """What the platform raises is its refusal of the step."""
    try:
        yield
    except (cl.Error, RuntimeError, MemoryError) as error:
        raise StepRefused(f"{what}: {error}") from error
