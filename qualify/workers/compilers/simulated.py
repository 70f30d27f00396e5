"""The virtual board's compiler: a script in, the closed and canonical script out, which is the object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationError

from qualify.channel import Described
from qualify.contract import Argument, Kernel, Module
from qualify.objectcode import Built, Entry, Parameter
from qualify.workers import virtual
from qualify.workers.compilers.base import Compiler, built, refused

EXTENSION = "json"
#: Types as an OpenCL compiler names them, so that one comparison with the contract serves every runtime.
_TYPE_NAMES = {
    "int8": "char",
    "uint8": "uchar",
    "int16": "short",
    "uint16": "ushort",
    "int32": "int",
    "uint32": "uint",
    "int64": "long",
    "uint64": "ulong",
    "float16": "half",
    "float32": "float",
    "float64": "double",
}


class SimulatedCompiler(Compiler):
    """Reads scripts; equal modules give equal objects."""

    def describe(self) -> Described:
        """The virtual board, the same on every machine."""
        return Described(
            version=virtual.TOOLKIT.partition("-")[2],
            toolkit_build=virtual.TOOLKIT,
            arch=virtual.ARCH,
            board=virtual.BOARD,
            limits=virtual.LIMITS,
        )

    def harness(self) -> None:
        """The virtual board is its own harness."""

    def build(self, module: Module, fragments: Mapping[str, bytes]) -> tuple[Built, bytes | None]:
        """Merge the fragments' scripts; a script that is not closed, or a symbol given twice, is refused."""
        entries: dict[str, virtual.Entry] = {}
        for path, text in fragments.items():
            try:
                script = virtual.Script.model_validate_json(_once(text))
            except (ValueError, RecursionError) as error:
                return refused(f"{path}: {_reason(error)}".encode(), EXTENSION, virtual.LIMITS), None
            twice = sorted(set(entries) & set(script.entries))
            if twice:
                return refused(f"{path}: a second {', '.join(twice)}".encode(), EXTENSION, virtual.LIMITS), None
            entries.update(script.entries)
        data = virtual.Script(entries=entries).canonical()
        described = tuple(_entry(module, symbol, entries[symbol]) for symbol in sorted(entries))
        report = built(b"", described, data, EXTENSION, virtual.LIMITS, reproducible=True)
        return report.model_copy(update={"target": virtual.ARCH, "tool": virtual.TOOLKIT}), data


def _once(text: bytes) -> bytes:
    """The same JSON with each key once. Raises ValueError for a key given twice."""

    def closed(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if len(set(keys)) != len(keys):
            raise ValueError(f"a key given twice among {', '.join(keys)}")
        return dict(pairs)

    return json.dumps(json.loads(text, object_pairs_hook=closed)).encode()


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return str(error)


def _entry(module: Module, symbol: str, entry: virtual.Entry) -> Entry:
    return Entry(
        symbol=symbol,
        parameters=tuple(_parameter(argument) for argument in _arguments(module, symbol)),
        shared_bytes=entry.shared_bytes,
        private_bytes=entry.private_bytes,
        block_threads=entry.block_threads,
    )


def _arguments(module: Module, symbol: str) -> tuple[Argument, ...]:
    """What the contract passes to a kernel: the arguments that its launch names, else all of them."""
    for launch in module.launches:
        if isinstance(launch, Kernel) and launch.symbol == symbol and launch.arguments is not None:
            by_name = {argument.name: argument for argument in module.arguments}
            return tuple(by_name[name] for name in launch.arguments)
    return module.arguments


def _parameter(argument: Argument) -> Parameter:
    kind: Literal["pointer", "value"] = "pointer" if argument.is_buffer else "value"
    type_name = _TYPE_NAMES.get(argument.dtype, argument.dtype)
    return Parameter(
        name=argument.name,
        kind=kind,
        type_name=f"{type_name}*" if argument.is_buffer else type_name,
        address_space="global" if argument.is_buffer else "private",
    )
