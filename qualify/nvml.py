"""NVIDIA's management library in the parent: readings of one board around windows. Nothing of a board is changed.

Only here is it imported, and only where a CUDA board is measured on. What the library does not tell of this board is
None, or missing, and is listed in the run's record (R7.1, R10.8).
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from qualify.model import Json
from qualify.telemetry import Snapshot

_LIBRARY = "libnvidia-ml.so.1"
#: Fields that count how long a clock was lower and why, in nanoseconds.
_COUNTERS = {
    "power": 74,
    "thermal": 75,
    "sync_boost": 76,
    "board_limit": 77,
    "reliability": 79,
    "software_thermal": 269,
    "hardware_thermal": 270,
    "power_brake": 271,
}
_MOST_XIDS = 64  # Of one reading; a board that reports more reports them again at the next one.
T = TypeVar("T")


class Unknown(Exception):
    """The library is not here, or does not know the board; the text says which."""


class Blind:
    """A board that nothing tells of: every reading of it is empty, and the record says why."""

    greatest_sm_mhz: int | None = None

    def __init__(self, why: str) -> None:
        self._why = why

    def read(self) -> Snapshot:
        """A reading that tells nothing."""
        return Snapshot(at_ns=time.monotonic_ns())

    def settings(self) -> Json:
        """Why nothing is told."""
        return {"unwatched": self._why}

    def close(self) -> None:
        """Nothing is held."""


class Nvml:
    """One board of the library's, by its UUID."""

    def __init__(self, uuid: str, variables: Mapping[str, str]) -> None:
        """Open the library where `variables` lead a worker to its driver. Raises Unknown."""
        try:
            import pynvml
        except ImportError as error:
            raise Unknown(f"{error}: pip install 'qualify[cuda]'") from error
        self._nvml: Any = pynvml
        _preload(variables.get("LD_LIBRARY_PATH", ""))
        try:
            pynvml.nvmlInit()
            self._handle: Any = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError as error:
            raise Unknown(f"the management library of {uuid}: {error}") from error
        part = uuid.startswith("MIG")
        self._board = (
            self._ask(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, self._handle) if part else self._handle
        )
        self._part = self._ask(pynvml.nvmlDeviceGetName, self._handle) if part else "whole"
        self._events = self._event_set()
        self.greatest_sm_mhz: int | None = self._number(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM)

    def close(self) -> None:
        """Let go of the library."""
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def read(self) -> Snapshot:
        """One reading. What fails is not there."""
        nvml = self._nvml
        errors = (nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
        return Snapshot(
            at_ns=time.monotonic_ns(),
            sm_mhz=self._number(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            memory_mhz=self._number(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
            temperature_c=self._number(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            power_mw=self._number(nvml.nvmlDeviceGetPowerUsage),
            reasons=self._number(nvml.nvmlDeviceGetCurrentClocksEventReasons),
            counters_ns=self._counters(),
            processes=self._processes(),
            uncorrected_errors=self._number(nvml.nvmlDeviceGetTotalEccErrors, *errors),
            xids=self._xids(),
        )

    def settings(self) -> Json:
        """What a time of this board depends on beside its name (R7.1), and what the library does not tell of it."""
        nvml, now = self._nvml, self.read()
        told: dict[str, Json] = {
            "driver": self._ask(nvml.nvmlSystemGetDriverVersion),
            "library": self._ask(nvml.nvmlSystemGetNVMLVersion),
            "vbios": self._ask(nvml.nvmlDeviceGetVbiosVersion, self._board),
            "memory_bytes": self._number(lambda board: nvml.nvmlDeviceGetMemoryInfo(board).total),
            "mig": self._number(lambda board: nvml.nvmlDeviceGetMigMode(board)[0]),
            "mig_profile": self._part,
            "ecc": self._number(lambda board: nvml.nvmlDeviceGetEccMode(board)[0]),
            "power_limit_mw": self._number(nvml.nvmlDeviceGetEnforcedPowerLimit),
            "compute_mode": self._number(nvml.nvmlDeviceGetComputeMode),
            "persistence": self._number(nvml.nvmlDeviceGetPersistenceMode),
            "greatest_sm_mhz": self.greatest_sm_mhz,
            "greatest_memory_mhz": self._number(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM),
        }
        read = {name: getattr(now, name) for name in Snapshot.model_fields} | {**dict.fromkeys(_COUNTERS)}
        read |= now.counters_ns
        return {**told, "unsupported": [name for name, value in {**told, **read}.items() if value is None]}

    def _counters(self) -> dict[str, int]:
        fields = self._ask(self._nvml.nvmlDeviceGetFieldValues, self._board, [*_COUNTERS.values()])
        return {
            name: int(field.value.ullVal)
            for name, field in zip(_COUNTERS, fields or (), strict=False)
            if field.nvmlReturn == self._nvml.NVML_SUCCESS
        }

    def _processes(self) -> tuple[int, ...] | None:
        listed = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses, self._handle)
        return None if listed is None else tuple(sorted({int(process.pid) for process in listed}))

    def _event_set(self) -> Any:
        """Where the board's errors arrive; None where it reports none."""
        nvml = self._nvml
        try:
            events = nvml.nvmlEventSetCreate()
            nvml.nvmlDeviceRegisterEvents(self._board, nvml.nvmlEventTypeXidCriticalError, events)
        except nvml.NVMLError:
            return None
        return events

    def _xids(self) -> tuple[int, ...] | None:
        """The errors that the board reported since the last reading, without waiting for one."""
        if self._events is None:
            return None
        found: list[int] = []
        while len(found) < _MOST_XIDS:
            try:
                found.append(int(self._nvml.nvmlEventSetWait_v2(self._events, 0).eventData))
            except self._nvml.NVMLError_Timeout:
                break
            except self._nvml.NVMLError:
                return None
        return tuple(found)

    def _number(self, function: Callable[..., Any], *arguments: Any) -> int | None:
        found = self._ask(function, self._board, *arguments)
        return None if found is None else int(found)

    def _ask(self, function: Callable[..., T], *arguments: Any) -> T | None:
        """What the library answers; None if it, or the driver under it, does not tell."""
        try:
            return function(*arguments)
        except self._nvml.NVMLError:
            return None


def open_board(uuid: str, variables: Mapping[str, str]) -> Nvml | Blind:
    """The board of that UUID, or one that tells nothing where the library does not know it."""
    try:
        return Nvml(uuid, variables)
    except Unknown as error:
        return Blind(str(error))


def _preload(folders: str) -> None:
    """Load the library from where only a variable of the workers' leads; the loader then knows it by its name."""
    for folder in folders.split(os.pathsep):
        if folder and Path(folder, _LIBRARY).exists():
            with suppress(OSError):
                ctypes.CDLL(str(Path(folder, _LIBRARY)))
                return
