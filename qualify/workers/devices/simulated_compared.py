"""The virtual board beside an outside implementation: its Python works on arrays, its time is the virtual clock's.

A pass takes the honest script's time, or `pass_ns` of what the comparator enqueues, where it has that attribute.
"""

from __future__ import annotations

from collections.abc import Mapping

from qualify.contract import Kernel
from qualify.patterns import numpy_dtype
from qualify.steps import Answer, ArmName, Launching
from qualify.workers.devices.foreign import Enqueue, Foreign, told
from qualify.workers.devices.simulated import Phase, SimulatedDevice
from qualify.workers.virtual import Entry


class SimulatedComparedDevice(SimulatedDevice):
    """The virtual board with a comparator for its candidate."""

    def __init__(self) -> None:
        super().__init__()
        self._foreign: Foreign | None = None

    def _load(self, arm: ArmName, code: bytes, symbols: Mapping[str, str]) -> None:
        if arm != "candidate":
            super()._load(arm, code, symbols)
            return
        self._foreign = Foreign(code, tuple(symbols))
        for symbol in symbols:
            self._entries[arm, symbol] = Entry(does="nothing")

    def _kernel_pass(self, step: Launching, launch: Kernel, number: int, phase: Phase, seed: str) -> None:
        if step.arm != "candidate" or self._foreign is None:
            super()._kernel_pass(step, launch, number, phase, seed)
            return
        enqueue = self._enqueue(self._foreign, step, number)
        told(enqueue)()
        honest = self._entries[step.arm, launch.symbol]
        entry = honest.model_copy(update={"pass_ns": getattr(enqueue, "pass_ns", honest.pass_ns)})
        self._clock_ns += self._pass_ns(entry, seed)

    def _enqueue(self, foreign: Foreign, step: Launching, number: int) -> Enqueue:
        arrays = foreign.arrays(step.slots, self._place, number)
        views = {name: self._at(at).view(numpy_dtype(at.dtype)).reshape(shape) for name, (at, shape) in arrays.items()}
        return foreign.prepare(0, views)

    def _kernel(self, arm: ArmName, symbol: str, launch: Kernel | None) -> Answer:
        """A comparator says the library that it is; nothing before its first pass."""
        if arm != "candidate" or self._foreign is None:
            return super()._kernel(arm, symbol, launch)
        return Answer(facts={"library": self._foreign.library})
