"""OpenCL under Oclgrind, an interpreter that sees every access of every work-item.

It prints nothing of a kernel without errors. So it runs the planted kernels too, each with one known error, and counts
the instructions of every launch; what it said and what it printed is read with `Told`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyopencl as cl
from pyopencl import _cl

from qualify.contract import Kernel, Memset
from qualify.domain import Board
from qualify.errors import RigError
from qualify.placement import Placement
from qualify.sanitizers import MAX_TOLD_BYTES, PLANTED
from qualify.steps import ArmName, Run, Source, Told
from qualify.workers import pocl
from qualify.workers.devices.binding import Bound, StepRefused
from qualify.workers.devices.opencl_launches import enqueue, refusing
from qualify.workers.devices.separate import SeparateDevice
from qualify.workers.opencl_source import STANDARD, lay_out, options
from qualify.workers.unit import unit

_PLANTED_ITEMS = 64
_FIX = "reinstall the OpenCL extra: pip install --force-reinstall 'qualify[opencl]'"
#: One thread, so that the order of a report does not depend on the machine; more are no faster while it checks.
_SWITCHES = {
    "OCLGRIND_DATA_RACES": "1",
    "OCLGRIND_INST_COUNTS": "1",
    "OCLGRIND_NUM_THREADS": "1",
    "OCLGRIND_UNINITIALIZED": "1",
}
T = TypeVar("T")


class OclgrindDevice(SeparateDevice):
    """The one device of Oclgrind's platform. Raises RigError if that is not here."""

    def __init__(self) -> None:
        super().__init__()
        folder = Path(os.environ["TMPDIR"])
        self._streams = {"report": _Stream(folder / "report"), "output": _Stream(folder / "output")}
        os.environ.update(_SWITCHES, OCLGRIND_LOG=str(self._streams["report"].path))
        sys.stdout.flush()
        os.dup2(self._streams["output"].descriptor, 1)
        self._device = _device()
        self._context = _rigged(lambda: cl.Context([self._device]), "a context")
        self._queue = _rigged(lambda: cl.CommandQueue(self._context, self._device), "a queue")
        self._kernels: dict[tuple[ArmName, str], Any] = {}
        self._buffers: dict[str, Any] = {}
        self._planted: Any = None
        self._apart: Any = None
        #: What is freed gives its place to another buffer, of which the tool then knows less.
        self._kept: list[Any] = []

    def board(self) -> Board:
        """The interpreter as it describes itself; its version is the driver."""
        version: str = self._device.version.strip()
        limits = pocl.limits_of(self._device)
        return Board(name=self._device.name, uuid="oclgrind-0", driver=version, addressing="device", limits=limits)

    def canary(self) -> None:
        """Compile the harness's kernels; that planted errors are reported is for the parent to see. Raises RigError."""
        self._planted, self._apart = self._own("planted.cl"), self._own("apart.cl")

    def _own(self, name: str) -> Any:
        text = files(__package__).joinpath(name).read_text(encoding="ascii")
        try:
            return self._build(text, STANDARD)
        except StepRefused as error:
            raise RigError(f"{name}: {error.error}", fix=_FIX) from error

    def close(self) -> None:
        """Wait for the queue; memory goes with the process."""
        _rigged(self._queue.finish, "the end of the queue")

    # A sanitizer's own steps -----------------------------------------------------------------------------------------

    def plant(self) -> None:
        """One launch of each planted kernel over buffers of their own."""
        _rigged(self._plant, "a planted kernel")

    def _plant(self) -> None:
        values = np.ones(_PLANTED_ITEMS, dtype=np.float32)
        for name in PLANTED:
            y, a = self._new_buffer(values.nbytes), self._new_buffer(values.nbytes)
            self._copy_in(a, values)
            kernel = cl.Kernel(self._planted, name)
            kernel.set_args(y, a, np.int32(_PLANTED_ITEMS))
            size = (_PLANTED_ITEMS,)
            cl.enqueue_nd_range_kernel(self._queue, kernel, size, size).wait()

    def told(self, step: Told) -> bytes:
        """What came since this was last asked, up to a limit."""
        ctypes.CDLL(None).fflush(None)  # The interpreter prints through the C library.
        return self._streams[step.stream].take()

    # Steps -----------------------------------------------------------------------------------------------------------

    def source(self, step: Source, fragments: Sequence[bytes]) -> None:
        """Compile a module for the interpreter. Raises StepRefused with its log."""
        lay_out({fragment.path: text for fragment, text in zip(step.module.fragments, fragments, strict=True)})
        program = self._build(unit(step.module), " ".join(options(step.module)))
        for symbol in step.symbols:
            with refusing(f"kernel {symbol}"):
                self._kernels[step.arm, symbol] = cl.Kernel(program, symbol)
        self._loaded[step.arm] = step.symbols

    def _build(self, text: str, told: str) -> Any:
        """Compile with these options alone: pyopencl's own would tell a kernel that it is watched."""
        program = _cl._Program(self._context, text)
        try:
            program._build(told.encode(), [self._device])
        except cl.Error as error:
            log: Any = program.get_build_info(self._device, cl.program_build_info.LOG)
            raise StepRefused(f"Oclgrind does not compile the module: {log.strip() or error}") from error
        return program

    def _load(self, arm: ArmName, code: bytes, symbols: Mapping[str, str]) -> None:
        raise StepRefused("object code, and Oclgrind interprets source")

    def _allocate(self, place: Placement) -> None:
        with refusing(f"{place.buffer} of {place.span_bytes} bytes"):
            self._buffers[place.buffer] = self._new_buffer(max(place.span_bytes, 1))

    def _new_buffer(self, size_bytes: int) -> Any:
        self._kept.append(cl.Buffer(self._context, cl.mem_flags.READ_WRITE, size_bytes))
        return self._kept[-1]

    def _write(self, place: Placement, data: bytes) -> None:
        with refusing(f"{place.buffer} of {place.size_bytes} bytes"):
            if place.axes:
                self._lay_apart(place, data)
            else:
                self._copy_in(self._buffers[place.buffer], np.frombuffer(data, dtype=np.uint8))

    def _copy_in(self, buffer: Any, memory: np.ndarray[Any, Any]) -> None:
        """All of a buffer: after a copy to a part of it the interpreter takes the rest for never written."""
        cl.enqueue_copy(self._queue, buffer, memory).wait()

    def _lay_apart(self, place: Placement, data: bytes) -> None:
        """By a kernel of the harness, whose counts nobody asks for."""
        starts = np.array([start - place.offset_bytes for start in place.runs()], dtype=np.uint64)
        row, table = self._new_buffer(len(data)), self._new_buffer(starts.nbytes)
        self._copy_in(row, np.frombuffer(data, dtype=np.uint8))
        self._copy_in(table, starts)
        kernel = cl.Kernel(self._apart, "lay_apart")
        sizes = np.uint64(len(starts)), np.uint64(place.run_bytes)
        kernel.set_args(self._buffers[place.buffer], row, table, *sizes)
        cl.enqueue_nd_range_kernel(self._queue, kernel, (1,), (1,)).wait()
        self.told(Told(stream="output"))

    def _copied(self, place: Placement) -> bytes:
        memory = np.empty(place.span_bytes, dtype=np.uint8)
        with refusing(f"{place.buffer} of {place.span_bytes} bytes"):
            cl.enqueue_copy(self._queue, memory, self._buffers[place.buffer]).wait()
        return memory.tobytes()

    def _run(self, step: Run) -> None:
        for launch in step.launches:
            match launch:
                case Memset():
                    self._memset(self._memset_place(launch, step.slots, step.set), launch.byte)
                case Kernel():
                    self._launch(step.arm, launch, self._bind(launch, step.slots, step.set))

    def _memset(self, place: Placement, byte: int) -> None:
        """Written by the host: the interpreter takes what it fills itself for never written."""
        if place.size_bytes:
            self._write(place, bytes([byte]) * place.size_bytes)

    def _launch(self, arm: ArmName, launch: Kernel, bound: Sequence[Bound]) -> None:
        arguments = [self._buffers[each.buffer] if isinstance(each, Placement) else each for each in bound]
        event = enqueue(self._queue, self._kernels[arm, launch.symbol], launch, arguments)
        with refusing(f"launch of {launch.symbol}"):
            event.wait()


class _Stream:
    """A file that grows, read from where it was last read to."""

    def __init__(self, path: Path) -> None:
        self.path, self._at = path, 0
        self.descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def take(self) -> bytes:
        """What came since, up to the limit; what is beyond is passed over."""
        data = os.pread(self.descriptor, MAX_TOLD_BYTES, self._at)
        self._at = os.fstat(self.descriptor).st_size
        return data


def _device() -> Any:
    for platform in _rigged(cl.get_platforms, "the list of platforms"):
        if platform.name == "Oclgrind" and (devices := platform.get_devices()):
            return devices[0]
    raise RigError("no OpenCL platform here is Oclgrind", fix=_FIX)


def _rigged(call: Callable[[], T], what: str) -> T:
    """A call that only the rig can get wrong. Raises RigError."""
    try:
        return call()
    except (cl.Error, RuntimeError, MemoryError) as error:
        raise RigError(f"{what} fails under Oclgrind: {error}", fix=_FIX) from error
