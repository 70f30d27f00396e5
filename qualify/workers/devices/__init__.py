"""Devices by the name that a measuring worker is started with."""

from __future__ import annotations

from qualify.errors import UsageError
from qualify.workers.devices.base import Device, StepRefused

__all__ = ["Device", "StepRefused", "open_device"]


def open_device(name: str, harness: bytes | None = None) -> Device:
    """The device of that name, with the harness that its compile worker made, if it takes one.

    Raises RigError if it is not here, UsageError if there is none of that name.
    """
    match name:
        case "opencl":
            from qualify.workers.devices.opencl import OpenclDevice

            return OpenclDevice(harness)
        case "simulated":
            from qualify.workers.devices.simulated import SimulatedDevice

            return SimulatedDevice()
    raise UsageError(f"no device is called {name}", fix="name opencl or simulated")
