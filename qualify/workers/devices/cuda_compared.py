"""The CUDA device for a session beside an outside implementation: arm `candidate` is trusted Python, not a module.

Segments, graphs, digests and zones are the CUDA device's own. How many nodes a pass becomes is the library's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qualify.contract import Kernel, Memset
from qualify.patterns import numpy_dtype
from qualify.steps import Answer, ArmName, Launching, Segment, Stage
from qualify.workers.devices.binding import StepRefused
from qualify.workers.devices.cuda import CudaDevice
from qualify.workers.devices.cuda_graphs import MAX_HELD_NODES, capture
from qualify.workers.devices.foreign import Foreign, told


@dataclass(frozen=True)
class Buffer:
    """An array on the board: address, dtype by name, shape in elements, rows side by side."""

    address: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        kind = numpy_dtype(self.dtype).str
        return {"shape": self.shape, "typestr": kind, "data": (self.address, False), "strides": None, "version": 3}


class CudaComparedDevice(CudaDevice):
    """A board with a comparator for its candidate."""

    def __init__(self, harness: bytes | None) -> None:
        super().__init__(harness)
        self._foreign: Foreign | None = None

    def _load(self, arm: ArmName, code: bytes, symbols: Mapping[str, str]) -> None:
        if arm == "candidate":
            self._foreign = Foreign(code, tuple(symbols))
        else:
            super()._load(arm, code, symbols)

    def _restore(self, step: Launching, number: int) -> None:
        """A comparator has no variables that hold constants; it is given their buffers."""
        if step.arm != "candidate":
            super()._restore(step, number)

    def _ready(self, step: Launching, launch: Kernel | Memset, number: int, stream: Any) -> Callable[[], None]:
        if step.arm != "candidate" or self._foreign is None:
            return super()._ready(step, launch, number, stream)
        arrays = self._foreign.arrays(step.slots, self._place, number)
        buffers = {name: Buffer(self._address(at), at.dtype, shape) for name, (at, shape) in arrays.items()}
        return told(self._foreign.prepare(int(stream), buffers))

    def _graph(self, step: Segment | Stage, sets: Sequence[int]) -> Callable[[], None]:
        if step.arm != "candidate":
            return super()._graph(step, sets)
        graph = capture(self._row(step, sets), self._stream)
        self._graphs.append(graph)
        if graph.nodes < len(sets):
            raise StepRefused(f"{len(sets)} passes were captured as {graph.nodes} nodes")
        return graph.replay

    def _clocked(
        self, lead_in: Sequence[Callable[[], None]], timed: Sequence[Callable[[], None]], *, hold: bool
    ) -> tuple[int, tuple[int, ...], bool]:
        """Only graphs are held back, by the nodes that they have: what else a pass enqueues, nobody can count."""
        nodes = sum(graph.nodes for graph in self._graphs)
        return super()._clocked(lead_in, timed, hold=hold and 0 < nodes <= MAX_HELD_NODES)

    def _kernel(self, arm: ArmName, symbol: str, launch: Kernel | None) -> Answer:
        """A comparator says the library that it is; nothing before its first pass."""
        if arm != "candidate" or self._foreign is None:
            return super()._kernel(arm, symbol, launch)
        return Answer(facts={"library": self._foreign.library})
