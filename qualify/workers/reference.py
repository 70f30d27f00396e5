"""The reference worker: the contract's own Python gives the exact outputs. Trusted, and kept from every candidate.

The reference is a function `(cell, inputs) -> outputs`. `cell` maps the cell's names to integers and strings;
`inputs` maps every input, inout, constant and scalar, and every number in a struct as `<argument>.<member>`, to an
exact array (float64 for floats, int64 or uint64 for integers) of its shape; `outputs` maps every output and inout
argument to an array of its shape, of float64 for floats and of int64 or uint64 for integers.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from qualify.channel import Channel, Evaluate, Evaluated, ExactDtype, FromWorker, ToWorker, Wrong
from qualify.contract import Argument
from qualify.elements import DTYPES
from qualify.fill import generate
from qualify.passing import scalar_bytes, scalars
from qualify.patterns import numpy_dtype

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]

_EXACT: dict[str, ExactDtype] = {"float": "float64", "signed": "int64", "unsigned": "uint64", "bool": "uint64"}
_MAX_TEXT_CHARS = 4096


class _NotKept(Exception):
    """The reference does not keep its contract."""

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(expected, got)
        self.wrong = Wrong(expected=expected[-_MAX_TEXT_CHARS:], got=got[-_MAX_TEXT_CHARS:])


def serve(channel: Channel[ToWorker], _name: str) -> None:
    """Answer requests until the channel closes."""
    while True:
        request, buffers = channel.receive()
        wanted = request.message
        if not isinstance(wanted, Evaluate):
            raise ValueError(f"a reference worker does not {wanted.say}")
        (code,) = buffers
        try:
            outputs = evaluate(wanted, code)
        except _NotKept as error:
            channel.send(FromWorker(message=error.wrong))
            continue
        named = tuple((argument.name, exact_dtype(argument)) for argument in _written(wanted))
        header = FromWorker(buffers=tuple(len(data) for data in outputs), message=Evaluated(outputs=named))
        channel.send(header, outputs)


def evaluate(wanted: Evaluate, code: bytes) -> list[bytes]:
    """The exact outputs as little-endian bytes, in ABI order."""
    function = _function(wanted, code)
    cell = MappingProxyType({**wanted.cell.integers, **wanted.cell.names})
    inputs = MappingProxyType(dict(_inputs(wanted)))
    try:
        with np.errstate(all="ignore"):
            outputs = function(cell, inputs)
    except Exception as error:
        raise _NotKept(f"{wanted.function} to return outputs", traceback.format_exc()) from error
    names = [argument.name for argument in _written(wanted)]
    if not isinstance(outputs, Mapping) or sorted(outputs) != sorted(names):
        got = f"{sorted(map(str, outputs))}" if isinstance(outputs, Mapping) else type(outputs).__name__
        raise _NotKept(f"a mapping of exactly {', '.join(names)} to arrays", got)
    return [_checked(argument, outputs[argument.name], finite=wanted.finite) for argument in _written(wanted)]


def exact_dtype(argument: Argument) -> ExactDtype:
    """The dtype that holds every value of an argument's dtype exactly."""
    return _EXACT[DTYPES[argument.dtype].kind]


def _function(wanted: Evaluate, code: bytes) -> Any:
    namespace: dict[str, Any] = {"__name__": "reference", "__file__": wanted.path}
    try:
        exec(compile(code, wanted.path, "exec"), namespace)  # noqa: S102 -- trusted, and part of the contract.
    except Exception as error:
        raise _NotKept("Python that can be imported", traceback.format_exc()) from error
    function = namespace.get(wanted.function)
    if not callable(function):
        raise _NotKept(f"a function {wanted.function}", f"{type(function).__name__}")
    return function


def _written(wanted: Evaluate) -> list[Argument]:
    return [argument for argument in wanted.arguments if argument.kind in ("output", "inout")]


def _inputs(wanted: Evaluate) -> list[tuple[str, Array]]:
    """Every input, inout and scalar as a device gets it, decoded exactly and not to be written to."""
    return [
        (name, _exact(raw, dtype, shape))
        for argument in wanted.arguments
        for name, raw, dtype, shape in _given(argument, wanted)
    ]


def _given(argument: Argument, wanted: Evaluate) -> Iterator[tuple[str, bytes, str, tuple[int, ...]]]:
    """What goes in by an argument: name, bytes, dtype and shape; a struct's numbers are named `<argument>.<member>`."""
    if argument.kind == "scalar":
        yield argument.name, scalar_bytes(argument.dtype, argument.value or "0"), argument.dtype, ()
    elif argument.kind in ("input", "inout", "constant"):
        raw = generate(wanted.recipes[argument.name], argument.elements)
        yield argument.name, raw, argument.dtype, argument.shape
    for member in scalars(argument):
        yield f"{argument.name}.{member.name}", scalar_bytes(member.dtype, member.value), member.dtype, ()


def _exact(raw: bytes, dtype: str, shape: tuple[int, ...]) -> Array:
    array = np.frombuffer(raw, dtype=numpy_dtype(dtype)).astype(_EXACT[DTYPES[dtype].kind]).reshape(shape)
    array.flags.writeable = False
    return array


def _checked(argument: Argument, output: Any, *, finite: bool) -> bytes:
    """An output's bytes. Raises _NotKept for another shape, another dtype, or a value that cannot be right."""
    array = np.asarray(output)
    wanted = exact_dtype(argument)
    if array.dtype != wanted:
        raise _NotKept(f"{argument.name} of {wanted}", f"{array.dtype}")
    if array.shape != argument.shape:
        raise _NotKept(f"{argument.name} of shape {argument.shape}", f"{array.shape}")
    if finite and wanted == "float64" and not np.isfinite(array).all():
        raise _NotKept(f"{argument.name} finite for ordinary inputs", f"{int((~np.isfinite(array)).sum())} not finite")
    return np.ascontiguousarray(array, dtype=np.dtype(wanted).newbyteorder("<")).tobytes()
