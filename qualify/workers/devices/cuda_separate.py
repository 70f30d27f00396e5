"""The CUDA device under compute-sanitizer: each buffer its own allocation, and no kernel but the candidate's.

The tool patches what this process loads and launches, and says at the process's end what it saw.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from cuda.bindings import driver

from qualify.contract import Kernel, Memset, TensorMap
from qualify.domain import Board
from qualify.errors import RigError
from qualify.placement import Placement
from qualify.steps import ArmName, Run
from qualify.workers.devices.binding import StepRefused
from qualify.workers.devices.cuda_arguments import tensor_map
from qualify.workers.devices.cuda_board import board
from qualify.workers.devices.cuda_driver import DriverError, Function, ask, call, load, prepare, variable_of
from qualify.workers.devices.separate import SeparateDevice

_CANARY_BYTES = 4096


class CudaSeparateDevice(SeparateDevice):
    """The board that CUDA_VISIBLE_DEVICES leaves, in its primary context, on one stream."""

    def __init__(self) -> None:
        super().__init__()
        ask(driver.cuInit, 0)
        self._device = ask(driver.cuDeviceGet, 0)
        ask(driver.cuCtxSetCurrent, ask(driver.cuDevicePrimaryCtxRetain, self._device))
        self._stream = ask(driver.cuStreamCreate, driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self._functions: dict[str, dict[str, Function]] = {}
        self._modules: dict[str, Any] = {}
        self._memory: dict[str, int] = {}

    def board(self) -> Board:
        """Name, UUID, driver and limits as the driver gives them."""
        return board(self._device)

    def canary(self) -> None:
        """Bytes to the board and back; no kernel of ours runs here. Raises RigError."""
        want = bytes(range(256)) * (_CANARY_BYTES // 256)
        memory = int(ask(driver.cuMemAlloc, _CANARY_BYTES))
        ask(driver.cuMemcpyHtoD, memory, want, _CANARY_BYTES)
        got = _download(memory, _CANARY_BYTES)
        ask(driver.cuMemFree, memory)
        if got != want:
            raise RigError("expected the bytes that were written to the board, got others", fix="check the board")

    def close(self) -> None:
        """Let go of the context and everything in it."""
        driver.cuDevicePrimaryCtxRelease(self._device)

    # Steps -----------------------------------------------------------------------------------------------------------

    def _load(self, arm: ArmName, code: bytes, symbols: Mapping[str, str]) -> None:
        self._modules[arm], self._functions[arm] = load(code, symbols)

    def _allocate(self, place: Placement) -> None:
        try:
            self._memory[place.buffer] = int(call(driver.cuMemAlloc, max(place.span_bytes, 1)))
        except DriverError as error:
            raise StepRefused(f"{place.buffer} of {place.span_bytes} bytes: {error}") from error

    def _write(self, place: Placement, data: bytes) -> None:
        start, size = self._memory[place.buffer] - place.offset_bytes, place.run_bytes
        runs = [data[at : at + size] for at in range(0, len(data), size)]  # Alive until all of them are on the board.
        try:
            for offset, run in zip(place.runs(), runs, strict=True):
                call(driver.cuMemcpyHtoDAsync, start + offset, run, size, self._stream)
            call(driver.cuCtxSynchronize)
        except DriverError as error:
            raise StepRefused(f"{place.buffer} of {place.size_bytes} bytes: {error}") from error

    def _copied(self, place: Placement) -> bytes:
        return _download(self._memory[place.buffer], place.span_bytes)

    def _address(self, place: Placement) -> int:
        return self._memory[place.buffer]

    def _table(self, place: Placement, data: bytes) -> None:
        self._write(place, data)

    def _tensor_map(self, place: Placement, held: TensorMap) -> bytes:
        return tensor_map(self._address(place), place.dtype, held)

    def _constants(self, step: Run) -> None:
        """Copy a set's constants to the variables of the arm's module."""
        for slot in step.slots:
            if slot.symbol is not None:
                place = self._place(f"{slot.buffer}.{step.set}")
                variable = variable_of(self._modules[step.arm], slot.symbol, place.size_bytes)
                try:
                    call(driver.cuMemcpyDtoD, variable, self._address(place), place.size_bytes)
                except DriverError as error:
                    raise StepRefused(f"constant {place.buffer}: {error}") from error

    def _run(self, step: Run) -> None:
        self._constants(step)
        for launch in step.launches:
            what = launch.symbol if isinstance(launch, Kernel) else f"memset of {launch.memset}"
            try:
                self._launch(step, launch)
                call(driver.cuCtxSynchronize)
            except DriverError as error:
                raise StepRefused(f"{what}: {error}") from error

    def _launch(self, step: Run, launch: Kernel | Memset) -> None:
        if isinstance(launch, Memset):
            place = self._memset_place(launch, step.slots, step.set)
            if place.size_bytes:
                address = self._memory[place.buffer]
                call(driver.cuMemsetD8Async, address, launch.byte, place.size_bytes, self._stream)
            return
        bound = self._bind(launch, step.slots, step.set)
        parameters = tuple(
            self._address(each).to_bytes(8, "little") if isinstance(each, Placement) else each for each in bound
        )
        prepare(self._functions[step.arm][launch.symbol], launch, parameters, self._stream).enqueue()


def _download(address: int, size_bytes: int) -> bytes:
    target = ctypes.create_string_buffer(size_bytes)
    call(driver.cuMemcpyDtoH, ctypes.addressof(target), address, size_bytes)
    return target.raw
