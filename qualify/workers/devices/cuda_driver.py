"""The CUDA driver as this worker uses it.

Every call is checked, and launches go through `cuLaunchKernelEx` with parameters whose number and sizes are compared
with what the loaded function says of itself.

`cuda.core` refuses structs and raw bytes, does not count arguments and does not opt in to large shared memory, so the
worker speaks the driver's own interface throughout (docs/adr).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cuda.bindings import driver

from qualify.contract import Kernel
from qualify.errors import RigError
from qualify.workers.devices.binding import StepRefused

#: Clusters of more blocks than this are not portable and need the function's attribute.
PORTABLE_CLUSTER_BLOCKS = 8


class DriverError(Exception):
    """A driver call that did not return CUDA_SUCCESS."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} ({code})")
        self.name, self.code = name, code


def call(function: Any, *arguments: Any) -> Any:
    """The result of one driver call. Raises DriverError with the error's name."""
    code, *rest = function(*arguments)
    if int(code) != 0:
        raise DriverError(str(getattr(code, "name", code)), int(code))
    return rest[0] if len(rest) == 1 else tuple(rest)


def ask(function: Any, *arguments: Any) -> Any:
    """As `call`, for what only the rig can get wrong, a driver that is not here among it. Raises RigError."""
    try:
        return call(function, *arguments)
    except RuntimeError as error:
        fix = "install the driver, or add the folder of its libcuda.so.1 to LD_LIBRARY_PATH"
        raise RigError(f"expected the CUDA driver to load, got: {error}", fix=fix) from error
    except DriverError as error:
        name = getattr(function, "__name__", str(function))
        raise RigError(
            f"expected {name} to succeed, got {error}", fix="check the driver and the board with nvidia-smi"
        ) from error


def reached(event: Any) -> bool:
    """Whether the device has come to an event. Raises DriverError for anything but yes and not yet."""
    (code,) = driver.cuEventQuery(event)
    if int(code) not in (0, int(driver.CUresult.CUDA_ERROR_NOT_READY)):
        raise DriverError(str(code.name), int(code))
    return int(code) == 0


@dataclass(frozen=True)
class Function:
    """One loaded kernel and its parameters as (offset, size) in bytes."""

    handle: Any
    symbol: str
    parameters: tuple[tuple[int, int], ...]


def load(code: bytes, symbols: Mapping[str, str]) -> tuple[Any, dict[str, Function]]:
    """A module and its functions by symbol, whose values are their names in the object.

    Raises StepRefused if the driver refuses the image or has no function of a name.
    """
    try:
        module = call(driver.cuModuleLoadData, code)
        functions = {symbol: _function(module, symbol, name) for symbol, name in symbols.items()}
    except DriverError as error:
        raise StepRefused(f"the driver refuses the object: {error}") from error
    return module, functions


def _function(module: Any, symbol: str, name: str) -> Function:
    try:
        handle = call(driver.cuModuleGetFunction, module, name.encode())
    except DriverError as error:
        raise StepRefused(f"no kernel {symbol} in the object: {error}") from error
    return Function(handle, symbol, _parameters(handle))


def variable_of(module: Any, symbol: str, size_bytes: int) -> int:
    """The address of a module's variable. Raises StepRefused if there is none of that name and size."""
    try:
        address, size = call(driver.cuModuleGetGlobal, module, symbol.encode())
    except DriverError as error:
        raise StepRefused(f"no variable {symbol} in the object: {error}") from error
    if int(size) != size_bytes:
        raise StepRefused(f"the variable {symbol} has {int(size)} bytes, the contract's constant {size_bytes}")
    return int(address)


def _parameters(handle: Any) -> tuple[tuple[int, int], ...]:
    """Every parameter's offset and size; the driver ends the list with an invalid value."""
    found: list[tuple[int, int]] = []
    while True:
        code, *rest = driver.cuFuncGetParamInfo(handle, len(found))
        if code == driver.CUresult.CUDA_ERROR_INVALID_VALUE:
            return tuple(found)
        if int(code) != 0:
            raise DriverError(str(code.name), int(code))
        found.append((int(rest[0]), int(rest[1])))


@dataclass(frozen=True)
class Prepared:
    """A launch whose configuration and parameter block are made: what is left is the one driver call.

    `kept` holds the memory that the driver's pointers point into.
    """

    config: Any
    function: Function
    parameters: int
    kept: tuple[Any, ...]

    def enqueue(self) -> None:
        """Launch. Raises DriverError."""
        call(driver.cuLaunchKernelEx, self.config, self.function.handle, self.parameters, 0)


def prepare(function: Function, kernel: Kernel, arguments: Sequence[bytes], stream: Any) -> Prepared:
    """A launch of `arguments`, each the little-endian bytes of one parameter.

    Raises StepRefused if their number or sizes are not the function's, or the driver refuses an attribute.
    """
    sizes = tuple(size for _, size in function.parameters)
    given = tuple(len(argument) for argument in arguments)
    if sizes != given:
        raise StepRefused(f"{function.symbol} takes parameters of {sizes} bytes, the contract gives {given}")
    try:
        _opt_in(function, kernel)
    except DriverError as error:
        raise StepRefused(f"{function.symbol}: {error}") from error
    cells = tuple(ctypes.create_string_buffer(argument, len(argument)) for argument in arguments)
    pointers = (ctypes.c_void_p * max(1, len(cells)))(*(ctypes.addressof(cell) for cell in cells))
    config, attributes = configuration(kernel, stream)
    return Prepared(config, function, ctypes.addressof(pointers), (cells, pointers, attributes))


def _opt_in(function: Function, kernel: Kernel) -> None:
    """Ask for more dynamic shared memory than the function may have, 48 KiB less its static bytes at first."""
    attribute = driver.CUfunction_attribute
    wanted = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    if kernel.shared_bytes > int(call(driver.cuFuncGetAttribute, wanted, function.handle)):
        call(driver.cuFuncSetAttribute, function.handle, wanted, kernel.shared_bytes)
    if kernel.cluster and kernel.cluster[0] * kernel.cluster[1] * kernel.cluster[2] > PORTABLE_CLUSTER_BLOCKS:
        wanted = attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        call(driver.cuFuncSetAttribute, function.handle, wanted, 1)


def configuration(kernel: Kernel, stream: Any) -> tuple[Any, list[Any]]:
    """What the driver is told of a launch, and the attributes in it, which must be kept as long."""
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = kernel.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = kernel.block
    config.sharedMemBytes = kernel.shared_bytes
    config.hStream = stream
    attributes: list[Any] = []
    if kernel.cluster:
        one = driver.CUlaunchAttribute()
        one.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        one.value.clusterDim.x, one.value.clusterDim.y, one.value.clusterDim.z = kernel.cluster
        attributes.append(one)
    if kernel.cooperative:
        one = driver.CUlaunchAttribute()
        one.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        one.value.cooperative = 1
        attributes.append(one)
    if kernel.carve_out_percent is not None:
        one = driver.CUlaunchAttribute()
        one.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
        one.value.sharedMemCarveout = kernel.carve_out_percent
        attributes.append(one)
    config.attrs = attributes
    config.numAttrs = len(attributes)
    return config, attributes


def attribute(device: Any, name: str) -> int | None:
    """One device attribute by its name without the common prefix; None if this driver does not know it."""
    key = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}", None)
    if key is None:
        return None
    code, value = driver.cuDeviceGetAttribute(key, device)
    return int(value) if int(code) == 0 else None
