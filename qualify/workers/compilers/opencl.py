"""OpenCL C for one PoCL device: fragments lie in the worker's private folder, which is the whole include path.

The object is PoCL's program binary. Its bytes differ between builds of one source, and the code that runs is made
at the first launch of each local size, so the bytes are kept and never compared (R7.3).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import pyopencl as cl
from pyopencl import _cl

from qualify.channel import Described
from qualify.contract import Module
from qualify.errors import RigError
from qualify.objectcode import Built, Entry, Parameter
from qualify.workers import pocl
from qualify.workers.compilers.base import Compiler, built, refused
from qualify.workers.devices.opencl_harness import make_binary
from qualify.workers.opencl_source import STANDARD, lay_out, options
from qualify.workers.unit import unit

EXTENSION = "clbin"
#: Options that name no path, start no other tool, and choose no language in which a variable outlives a launch: from
#: OpenCL C 2.0 on a program may keep some in global memory, and this platform does not tell which it has.
_ARITHMETIC = "mad-enable|no-signed-zeros|unsafe-math-optimizations|finite-math-only|fast-relaxed-math"
_VALUES = "single-precision-constant|denorms-are-zero|fp32-correctly-rounded-divide-sqrt"
_CODE = "opt-disable|strict-aliasing|uniform-work-group-size|no-subgroup-ifp"
_OPTION = re.compile(rf"-cl-(std=CL1\.[012]|{_ARITHMETIC}|{_VALUES}|{_CODE})|-w|-Werror")
_CANARY = "__kernel void canary(__global float *y) { y[get_global_id(0)] = sin(y[0]); }"
_ADDRESS_SPACES = {
    int(cl.kernel_arg_address_qualifier.GLOBAL): "global",
    int(cl.kernel_arg_address_qualifier.LOCAL): "local",
    int(cl.kernel_arg_address_qualifier.CONSTANT): "constant",
    int(cl.kernel_arg_address_qualifier.PRIVATE): "private",
}


class OpenCLCompiler(Compiler):
    """PoCL in this process."""

    def __init__(self) -> None:
        self._pocl = pocl.find()
        self._device = self._pocl.device
        self._context = cl.Context([self._device])

    def describe(self) -> Described:
        """PoCL's version, the CPU's name for LLVM, and the board."""
        found = self._pocl
        limits = found.board.limits
        return Described(
            version=found.version, toolkit_build=found.build, arch=found.arch, board=found.board, limits=limits
        )

    def canary(self) -> None:
        """Compile one kernel. Raises RigError if this place lacks something that PoCL needs."""
        try:
            _cl._Program(self._context, _CANARY)._build(STANDARD.encode(), [self._device])
        except cl.Error as error:
            raise RigError(
                f"expected PoCL to compile a small kernel, got: {error}",
                fix="reinstall PoCL, or report it if PoCL works outside this tool",
            ) from error

    def harness(self) -> bytes:
        """The harness with its machine code, which takes more than a second to make."""
        return make_binary(self._device)

    def build(self, module: Module, fragments: Mapping[str, bytes]) -> tuple[Built, bytes | None]:
        """Compile for this device. Raises ValueError for a module that composition should have refused.

        A module that PoCL does not get to the end of loses this worker, as one does that PoCL itself aborts at: what
        PoCL holds of it is in no state to go on with.
        """
        objection = self._objection(module)
        if objection is not None:
            return refused(objection.encode(), EXTENSION, self._pocl.board.limits), None
        lay_out(fragments)
        try:
            return self._compiled(module)
        except (cl.Error, MemoryError) as error:
            print(f"PoCL gives the module up: {error!r}", file=sys.stderr, flush=True)
            os.abort()

    def _compiled(self, module: Module) -> tuple[Built, bytes | None]:
        limits = self._pocl.board.limits
        program = _cl._Program(self._context, unit(module))
        try:
            program._build(" ".join(options(module)).encode(), [self._device])
        except cl.Error as error:
            return refused(self._log(program) or str(error).encode(), EXTENSION, limits), None
        binaries: Any = program.get_info(cl.program_info.BINARIES)
        data = bytes(binaries[0])
        log, entries = self._log(program), tuple(self._entries(program))
        report = built(log, entries, data, EXTENSION, limits, reproducible=False)
        return report.model_copy(update={"target": self._pocl.arch, "tool": self._pocl.build}), data

    def _objection(self, module: Module) -> str | None:
        unfit = [option for option in module.options if not _OPTION.fullmatch(option)]
        if unfit:
            return f"options that are not taken: {' '.join(unfit)}"
        if module.target != self._pocl.arch:
            return f"a module for {module.target}, and the device here is {self._pocl.arch}"
        return None

    def _log(self, program: Any) -> bytes:
        text: str = program.get_build_info(self._device, cl.program_build_info.LOG)
        return text.strip().encode()

    def _entries(self, program: Any) -> Iterator[Entry]:
        names: str = program.get_info(cl.program_info.KERNEL_NAMES)
        for name in sorted(filter(None, names.split(";"))):
            kernel = cl.Kernel(program, name)
            yield Entry(
                symbol=name,
                parameters=_parameters(kernel),
                shared_bytes=self._resource(kernel, cl.kernel_work_group_info.LOCAL_MEM_SIZE),
                private_bytes=self._resource(kernel, cl.kernel_work_group_info.PRIVATE_MEM_SIZE),
                block_threads=self._resource(kernel, cl.kernel_work_group_info.WORK_GROUP_SIZE),
            )

    def _resource(self, kernel: Any, what: Any) -> int | None:
        try:
            return int(kernel.get_work_group_info(what, self._device))
        except cl.Error:
            return None


def _parameters(kernel: Any) -> tuple[Parameter, ...] | None:
    """The kernel's parameters as the compiler saw them; None if it does not say."""
    info = cl.kernel_arg_info
    try:
        return tuple(
            _parameter(
                kernel.get_arg_info(index, info.NAME),
                kernel.get_arg_info(index, info.TYPE_NAME),
                _ADDRESS_SPACES.get(int(kernel.get_arg_info(index, info.ADDRESS_QUALIFIER))),
            )
            for index in range(kernel.num_args)
        )
    except cl.Error:
        return None


def _parameter(name: str, type_name: str, space: str | None) -> Parameter:
    kinds: dict[str | None, Literal["pointer", "value", "local"]] = {
        "global": "pointer",
        "constant": "pointer",
        "local": "local",
        "private": "value",
    }
    return Parameter(name=name, kind=kinds.get(space), type_name=type_name, address_space=space)
