"""Devices by the name that a measuring worker is started with."""

from __future__ import annotations

import importlib.util

from qualify.channel import Described
from qualify.errors import RigError, UsageError
from qualify.workers.devices.base import Device
from qualify.workers.devices.binding import StepRefused

__all__ = ["Device", "StepRefused", "describe_board", "open_device"]


def open_device(name: str, harness: bytes | None = None) -> Device:
    """The device of that name, with the harness that its compile worker made, if it takes one.

    Raises RigError if it is not here, UsageError if there is none of that name.
    """
    match name:
        case "opencl":
            from qualify.workers.devices.opencl import OpenclDevice

            return OpenclDevice(harness)
        case "oclgrind":
            from qualify.workers.devices.oclgrind import OclgrindDevice

            return OclgrindDevice()
        case "simulated":
            from qualify.workers.devices.simulated import SimulatedDevice

            return SimulatedDevice()
        case "simulated_compared" | "cuda_compared":
            return _open_compared(name, harness)
        case "cuda":
            _check_bindings()
            from qualify.workers.devices.cuda import CudaDevice

            return CudaDevice(harness)
        case "cuda_separate":
            _check_bindings()
            from qualify.workers.devices.cuda_separate import CudaSeparateDevice

            return CudaSeparateDevice()
    raise UsageError(f"no device is called {name}", fix="name cuda, oclgrind, opencl or simulated")


def _open_compared(name: str, harness: bytes | None) -> Device:
    """A device that takes its candidate as Python: only a comparison starts one, and no candidate enters it."""
    if name == "simulated_compared":
        from qualify.workers.devices.simulated_compared import SimulatedComparedDevice

        return SimulatedComparedDevice()
    _check_bindings()
    from qualify.workers.devices.cuda_compared import CudaComparedDevice

    return CudaComparedDevice(harness)


def describe_board(name: str) -> Described:
    """The board that a device of that name would open, which stays untouched. Raises RigError, UsageError.

    Only a board apart from its compiler is asked; the others' compile workers describe them.
    """
    if name != "cuda":
        raise UsageError(f"{name} is described by its compile worker", fix="ask that one")
    _check_bindings()
    from qualify.workers.devices.cuda_board import describe

    return describe()


def _check_bindings() -> None:
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        raise RigError("expected the module cuda.bindings, found none", fix="pip install 'qualify[cuda]'")
