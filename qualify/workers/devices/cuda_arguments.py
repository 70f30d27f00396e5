"""Arguments that only CUDA has: tables of addresses and constants, which kernels never change, and tensor maps."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

from cuda.bindings import driver

from qualify.contract import TensorMap
from qualify.elements import DTYPES
from qualify.passing import MAP_ALIGN, MAP_BYTES
from qualify.placement import Placement
from qualify.steps import Damage
from qualify.workers.devices.binding import StepRefused
from qualify.workers.devices.cuda_driver import DriverError, call
from qualify.workers.devices.cuda_harness import CudaHarness

_TYPE = driver.CUtensorMapDataType
_FLOATS: Mapping[str, driver.CUtensorMapDataType] = {
    "float16": _TYPE.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    "bfloat16": _TYPE.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    "float32": _TYPE.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    "float64": _TYPE.CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
}
#: Other elements are copied as the unsigned integers of their size; only a float's kind matters, to what lies outside.
_INTEGERS = {
    1: _TYPE.CU_TENSOR_MAP_DATA_TYPE_UINT8,
    2: _TYPE.CU_TENSOR_MAP_DATA_TYPE_UINT16,
    4: _TYPE.CU_TENSOR_MAP_DATA_TYPE_UINT32,
    8: _TYPE.CU_TENSOR_MAP_DATA_TYPE_UINT64,
}
_SWIZZLES = {
    0: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_NONE,
    32: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_32B,
    64: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_64B,
    128: driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
}


def map_type(dtype: str) -> driver.CUtensorMapDataType:
    """What the driver calls an element type."""
    return _FLOATS.get(dtype) or _INTEGERS[DTYPES[dtype].size_bytes]


def tensor_map(address: int, dtype: str, held: TensorMap) -> bytes:
    """A tensor map of the buffer at `address` as the driver encodes it. Raises StepRefused if it does not.

    The driver wants memory at a multiple of 64 bytes to write to, which the binding's own object does not promise, so
    this one call goes to the library that the binding has loaded.
    """
    memory = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGN)
    start = -(-ctypes.addressof(memory) // MAP_ALIGN) * MAP_ALIGN
    rank = len(held.dims)
    encode = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    code = encode(
        ctypes.c_void_p(start),
        ctypes.c_int(int(map_type(dtype))),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*held.dims),
        (ctypes.c_uint64 * max(1, rank - 1))(*held.strides_bytes),
        (ctypes.c_uint32 * rank)(*held.box),
        (ctypes.c_uint32 * rank)(*(1,) * rank),
        ctypes.c_int(int(driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE)),
        ctypes.c_int(int(_SWIZZLES[held.swizzle_bytes])),
        ctypes.c_int(int(driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE)),
        ctypes.c_int(int(driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)),
    )
    if code:
        raise StepRefused(f"the driver encodes no map of {held.of}: {driver.CUresult(code).name}")
    return ctypes.string_at(start, MAP_BYTES)


@dataclass(frozen=True)
class Watched:
    """Bytes as they were written, and the offset in the arena under which a change of them is told."""

    offset_bytes: int
    data: bytes


class Watch:
    """What was written and what is there, compared whenever zones are."""

    def __init__(self, harness: CudaHarness) -> None:
        self._harness = harness
        self._tables: dict[int, Watched] = {}
        self._constants: dict[int, tuple[Placement, int]] = {}

    def table(self, place: Placement, address: int, data: bytes) -> None:
        """Write a table of addresses to its buffer."""
        self._harness.write(address, data)
        self._tables[address] = Watched(place.offset_bytes, data)

    def constant(self, variable: int, place: Placement, address: int) -> None:
        """Copy a buffer to a variable of a module. Raises StepRefused if the driver does not."""
        try:
            call(driver.cuMemcpyDtoDAsync, variable, address, place.size_bytes, self._harness.stream)
            self._harness.wait()
        except DriverError as error:
            raise StepRefused(f"constant {place.buffer}: {error}") from error
        self._constants[variable] = place, address

    def refilled(self, place: Placement) -> None:
        """A buffer has new contents, which its variable gets before the next launch."""
        self._constants = {each: held for each, held in self._constants.items() if held[0] != place}

    def with_damage(self, around: Damage) -> Damage:
        """The damage around buffers, and what changed of tables and constants."""
        found = around
        watched = [
            *self._tables.items(),
            *(
                (variable, Watched(place.offset_bytes, self._harness.download(address, place.size_bytes)))
                for variable, (place, address) in self._constants.items()
            ),
        ]
        for address, each in watched:
            found = _joined(found, changed(each, self._harness.download(address, len(each.data))))
        return found


def changed(watched: Watched, got: bytes) -> Damage:
    """Which bytes are others than those that were written."""
    if got == watched.data:
        return Damage(bytes=0, first_offset=None)
    wrong = [at for at, (one, other) in enumerate(zip(watched.data, got, strict=True)) if one != other]
    return Damage(bytes=len(wrong), first_offset=watched.offset_bytes + wrong[0])


def _joined(one: Damage, other: Damage) -> Damage:
    firsts = [each.first_offset for each in (one, other) if each.first_offset is not None]
    return Damage(bytes=one.bytes + other.bytes, first_offset=min(firsts, default=None))
