"""OpenCL C's names of element types, as a compiler spells a kernel's parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: OpenCL C names for the element types; where OpenCL has no such type, the integer of its size stands for its bits.
TYPE_NAMES: Mapping[str, tuple[str, ...]] = {
    "float16": ("half", "ushort"),
    "bfloat16": ("ushort",),
    "float32": ("float",),
    "float64": ("double",),
    "float8_e4m3": ("uchar",),
    "float8_e5m2": ("uchar",),
    **{f"int{bits}": (name,) for bits, name in ((8, "char"), (16, "short"), (32, "int"), (64, "long"))},
    **{f"uint{bits}": (name,) for bits, name in ((8, "uchar"), (16, "ushort"), (32, "uint"), (64, "ulong"))},
    "bool": ("uchar", "bool"),
}
_SCALARS = frozenset(name for names in TYPE_NAMES.values() for name in names)
_LONG_NAMES = {f"unsigned{name}": f"u{name}" for name in ("char", "short", "int", "long")}
_VECTOR = re.compile(r"([a-z]+)(2|4|8|16)")  # Of three elements a vector has the size of four.


def same_type(type_name: str | None, names: tuple[str, ...], *, pointer: bool) -> bool | None:
    """Whether a declared type has the contract's elements; None for a name that is none of OpenCL C's own.

    A pointer to vectors of an element type points to its elements; a scalar is passed as itself.
    """
    plain = "" if type_name is None else type_name.replace(" ", "")
    stem = plain.removesuffix("*")
    stem = _LONG_NAMES.get(stem, stem)
    vector = _VECTOR.fullmatch(stem)
    element = vector[1] if vector and pointer else stem
    if element in names:
        return plain.endswith("*") == pointer
    return False if element in _SCALARS else None
