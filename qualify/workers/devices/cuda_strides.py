"""Elements that lie apart in a CUDA arena: gathered into a row of the harness's memory, and scattered from it."""

from __future__ import annotations

from cuda.bindings import driver

from qualify.placement import Placement
from qualify.steps import Recipe
from qualify.workers.devices.base import MOST_AXES
from qualify.workers.devices.cuda_driver import call
from qualify.workers.devices.cuda_harness import CudaHarness


class Row:
    """Memory in which one strided buffer's elements lie in a row, until the next call; it grows."""

    def __init__(self, harness: CudaHarness) -> None:
        self._harness = harness
        self._memory: tuple[int, int] | None = None

    def memory(self, size_bytes: int) -> int:
        """At least so much. Raises DriverError."""
        if self._memory is None or self._memory[1] < size_bytes:
            self._memory = int(call(driver.cuMemAlloc, size_bytes)), size_bytes
        return self._memory[0]

    def fill(self, address: int, place: Placement, recipe: Recipe) -> None:
        """Write a recipe to a buffer at `address`. Enqueued."""
        if not place.axes:
            self._harness.fill(address, place, recipe)
            return
        self._harness.fill(self.memory(place.size_bytes), place, recipe)
        self._move(address, place, gather=False)

    def gathered(self, address: int, place: Placement) -> int:
        """Where the elements of a buffer at `address` lie in a row: there, or here until the next call. Enqueued."""
        return self._move(address, place, gather=True) if place.axes else address

    def hash(self, address: int, place: Placement) -> str:
        """FNV-1a 64 of the elements of a buffer at `address`."""
        return self._harness.hashes(((self.gathered(address, place), place.size_bytes),))[0]

    def _move(self, address: int, place: Placement, *, gather: bool) -> int:
        memory = self.memory(place.size_bytes)
        axes = ((1, 0),) * (MOST_AXES - len(place.axes)) + place.axes
        sizes = ((place.size_bytes, 8), (place.run_bytes, 8), (axes[1][0], 8), (axes[2][0], 8))
        strides = tuple((stride, 8) for _, stride in axes)
        self._harness.over(
            place.size_bytes, "qualify_move", (address, 8), (memory, 8), *sizes, *strides, (int(gather), 4)
        )
        return memory
