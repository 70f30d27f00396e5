"""Launch a case's arms on a stream by the driver, for tools that time a Python callable."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from typing import Any

from benchmarks.judgement.results import Line


def checked(result: Any) -> Any:
    """A driver call's value. Raises RuntimeError with its error."""
    code, *values = result
    if int(code):
        raise RuntimeError(f"the driver says {code}")
    return values[0] if len(values) == 1 else tuple(values)


def launchers(case: Line) -> dict[str, Callable[[int], None]]:
    """What launches each arm of a case on a stream, by its handle; both use the same buffers."""
    from cuda.bindings import driver

    values, types = _bound(case)
    found: dict[str, Callable[[int], None]] = {}
    for name, arm in case["arms"].items():
        module = checked(driver.cuModuleLoadData(arm["code"]))
        function = checked(driver.cuModuleGetFunction(module, arm["symbol"].encode()))
        found[name] = _launcher(function, (*arm["grid"], *arm["block"]), values, types)
    return found


def _launcher(function: Any, shape: tuple[int, ...], values: Any, types: Any) -> Callable[[int], None]:
    from cuda.bindings import driver

    def launch(stream: int) -> None:
        checked(driver.cuLaunchKernel(function, *shape, 0, stream, (values, types), 0))

    return launch


def _bound(case: Line) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The arguments as the driver's bindings take them; inputs hold numbers, not zeros."""
    from cuda.bindings import driver

    values: list[Any] = []
    types: list[Any] = []
    for argument in case["arguments"]:
        if argument["kind"] == "scalar":
            values.append(int.from_bytes(bytes.fromhex(argument["value"]), "little"))
            types.append(ctypes.c_uint32)
            continue
        address = int(checked(driver.cuMemAlloc(max(argument["bytes"], 16))))
        if argument["kind"] == "input":
            checked(driver.cuMemcpyHtoD(address, _numbers(argument["bytes"]), argument["bytes"]))
        values.append(address)
        types.append(ctypes.c_void_p)
    return tuple(values), tuple(types)


def _numbers(size_bytes: int) -> bytes:
    """Ordinary floats below two: random bits under a fixed exponent."""
    import numpy as np

    words = np.random.default_rng(random.getrandbits(64)).integers(0, 1 << 23, size_bytes // 4, dtype=np.uint32)
    return (words | np.uint32(0x3F800000)).tobytes()
