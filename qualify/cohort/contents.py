"""What a cohort's cells and arguments say, checked and resolved to integers for every cell when it is loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate
from math import prod
from operator import mul
from typing import get_args

from qualify.arena import alignment
from qualify.cohort.pitches import told
from qualify.cohort.rows import ArgumentRow, CohortRow, PointerMemberRow, ScalarMemberRow
from qualify.cohort.scope import Scope, check_formula
from qualify.contract import (
    Argument,
    ArgumentKind,
    Cell,
    Fill,
    Normal,
    PointerMember,
    PointerTable,
    ScalarMember,
    Struct,
    TensorMap,
)
from qualify.documents import Field, Source
from qualify.domain import Runtime
from qualify.elements import DTYPES, SPECIAL_KINDS, Dtype, specials
from qualify.fill import recipe
from qualify.model import MAX_INTEGER, ratio
from qualify.passing import MAP_ALIGN, MAP_BYTES, faults

#: What a float input holds if its cohort names no fill: neither zero nor one is likely, and the mean is not zero, so
#: that a sum, a mean or a norm that drops a part of its input does not come out right by symmetry.
DEFAULT_FILL = Fill(normal=Normal(mean="0.25", scale="1"))

_SEGMENT = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.+-]{0,125}[A-Za-z0-9_+-])?")
_CELL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,62}")
_DECIMAL = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18}(e-?[0-9]{1,2})?|e-?[0-9]{1,2}|/[1-9][0-9]{0,17})")
MAX_ADDRESSES = 1 << 20  # A worker writes the table in one piece.
_MAX_SCALAR = 10**18  # A `Ratio` has 18 digits.
#: Names of a cell that mean something else.
_RESERVED = frozenset({"id", "timed", "runtime", "where_memory_allows"})

_TAKES: Mapping[str, frozenset[str]] = {
    "input": frozenset({"dtype", "shape", "align", "fill"}),
    "output": frozenset({"dtype", "shape", "align"}),
    "inout": frozenset({"dtype", "shape", "align", "fill"}),
    "scratch": frozenset({"dtype", "shape", "size", "align", "init"}),
    "scalar": frozenset({"dtype", "value", "stride"}),
    "struct": frozenset({"type", "size", "align", "members"}),
    "pointers": frozenset({"to", "count", "step", "align"}),
    "constant": frozenset({"dtype", "shape", "align", "fill"}),
    "tensormap": frozenset({"of", "dims", "strides", "box", "swizzle"}),
}
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "input": ("dtype", "shape"),
    "output": ("dtype", "shape"),
    "inout": ("dtype", "shape"),
    "scratch": (),
    "scalar": ("dtype",),
    "struct": ("type", "size", "align", "members"),
    "pointers": ("to",),
    "constant": ("dtype", "shape"),
    "tensormap": ("of", "dims", "box"),
}


def unique(source: Source, fields: Iterable[tuple[Field, str]]) -> None:
    """Raises InputError at the second of two equal names."""
    seen: dict[str, Field] = {}
    for field, name in fields:
        if name in seen:
            got = f"{name} again, first in line {source.line(seen[name])}"
            raise source.error(field, expected="each name once", got=got, fix="rename one of the two")
        seen[name] = field


# Cells.


def cells(source: Source, row: CohortRow) -> tuple[Cell, ...]:
    """The cells: integers for formulas, names for placeholders; all of them have the same. Raises InputError."""
    made = tuple(_cell(source, ("cells", index), item) for index, item in enumerate(row.cells))
    unique(source, ((("cells", index, "id"), cell.id) for index, cell in enumerate(made)))
    for index, cell in enumerate(made):
        for kind, have, want in (
            ("integers", cell.integers, made[0].integers),
            ("names", cell.names, made[0].names),
        ):
            if set(have) != set(want):
                expected = f"the {kind} of the first cell ({', '.join(sorted(want)) or 'none'})"
                got = ", ".join(sorted(have)) or "none"
                raise source.error(("cells", index), expected=expected, got=got, fix=f"give every cell the same {kind}")
    return made


def cells_where_memory_allows(source: Source, row: CohortRow) -> Mapping[str, tuple[str, ...]]:
    """The cells that a device may be too small for, with the runtimes that they are planned on (R6.4).

    Raises InputError for anything but a list of runtimes.
    """
    found = {}
    for index, item in enumerate(row.cells):
        asked = item.get("where_memory_allows")
        if asked is None:
            continue
        runtimes = get_args(Runtime)
        if not isinstance(asked, list) or not asked or not all(each in runtimes for each in asked):
            field: Field = ("cells", index, "where_memory_allows")
            expected, fix = f"runtimes ({', '.join(runtimes)})", "write where_memory_allows: [cuda]"
            raise source.error(field, expected=expected, got=str(asked), fix=fix)
        found[str(item["id"])] = tuple(map(str, asked))
    return found


def _cell(source: Source, field: Field, row: Mapping[str, object]) -> Cell:
    identity = row.get("id")
    if not isinstance(identity, str) or not _SEGMENT.fullmatch(identity):
        got = "nothing" if identity is None else str(identity)
        fix = "write id: with letters, digits, _ . + -"
        raise source.error((*field, "id"), expected="a cell's name", got=got, fix=fix)
    timed = row.get("timed", True)
    if not isinstance(timed, bool):
        raise source.error((*field, "timed"), expected="true or false", got=str(timed), fix="write true or false")
    integers: dict[str, int] = {}
    names: dict[str, str] = {}
    for name, value in row.items():
        if name == "runtime":
            raise source.error((*field, name), expected="a name that is free", got=name, fix="rename it")
        match value:
            case _ if name in _RESERVED:
                pass
            case int() if not isinstance(value, bool):
                integers[name] = value
            case str() if _CELL_NAME.fullmatch(value):
                names[name] = value
            case _:
                fix = "write an integer, or a word of letters, digits, _ . + -"
                raise source.error((*field, name), expected="an integer or a word", got=str(value), fix=fix)
    return Cell(id=identity, integers=integers, names=names, timed=timed)


# Arguments.


def check_arguments(source: Source, row: CohortRow, names: Iterable[str]) -> None:
    """What needs no cell: kinds, fields of a kind, formulas. Raises InputError."""
    known = frozenset(names)
    unique(source, ((("arguments", index, "name"), item.name) for index, item in enumerate(row.arguments)))
    for index, item in enumerate(row.arguments):
        field: Field = ("arguments", index)
        _check_kind(source, field, item)
        formulas = [
            ((*field, name, at), text)
            for name in ("shape", "dims", "strides", "box")
            for at, text in enumerate(getattr(item, name) or ())
        ]
        single = (("size", item.size), ("count", item.count), ("step", item.step))
        formulas += [((*field, name), text) for name, text in single if text is not None]
        formulas += [((*field, "stride", "multiple"), item.stride.multiple)] if item.stride is not None else []
        values = [((*field, "value"), item.value)] if item.value is not None else []
        for number, member in enumerate(item.members or ()):
            if isinstance(member, ScalarMemberRow):
                values.append(((*field, "members", number, "value"), member.value))
        formulas += [(where, text) for where, text in values if not _DECIMAL.fullmatch(text)]
        for where, text in formulas:
            check_formula(source, where, text, known)


def _check_kind(source: Source, field: Field, row: ArgumentRow) -> None:
    kinds = get_args(ArgumentKind)
    if row.kind not in kinds:
        raise source.error((*field, "kind"), expected=", ".join(kinds), got=row.kind, fix="write one of these")
    given = row.model_fields_set - {"name", "kind"}
    for name in sorted(given - _TAKES[row.kind]):
        got = f"{name} of {row.kind} {row.name}"
        expected = ", ".join(sorted(_TAKES[row.kind]))
        raise source.error((*field, name), expected=expected, got=got, fix=f"remove {name}:")
    needs = _NEEDS[row.kind] or (() if "size" in given else ("dtype", "shape"))
    for name in needs:
        if getattr(row, name) is None:
            fix = f"add {name}: to {row.name}"
            raise source.error((*field, name), expected=f"{name} of {row.kind} {row.name}", got="nothing", fix=fix)
    if row.kind == "scalar" and (row.value is None) == (row.stride is None):
        got = "neither" if row.value is None else "both"
        fix = "state the value, or the buffer and axis whose stride it is"
        raise source.error((*field, "value"), expected=f"value or stride of {row.name}", got=got, fix=fix)
    if row.kind == "struct":
        unique(source, (((*field, "members", at, "name"), each.name) for at, each in enumerate(row.members or ())))
    elif row.size is not None and {"dtype", "shape"} & given:
        raise source.error((*field, "size"), expected="size in bytes, or dtype and shape", got="both", fix="remove one")


def arguments(source: Source, row: CohortRow, cell: Cell) -> tuple[Argument, ...]:
    """The arguments of one cell. Raises InputError for an unknown dtype, an empty shape, a value out of range."""
    scope = Scope(source, cell)
    made = tuple(_argument(scope, ("arguments", index), item, row) for index, item in enumerate(row.arguments))
    made = told(scope, row.arguments, made)
    for index, item in enumerate(made):
        for problem in faults(item, made):
            fix = "lay it out as the compiler does, and name buffers of the contract"
            expected = "members in their place that name buffers"
            raise source.error(("arguments", index), expected=expected, got=f"{problem} for cell {cell.id}", fix=fix)
    return made


def _argument(scope: Scope, field: Field, row: ArgumentRow, whole: CohortRow) -> Argument:
    dtype = _dtype(scope, (*field, "dtype"), row.dtype or "uint8")
    if row.stride is not None:
        return Argument(name=row.name, kind="scalar", dtype=dtype.name)  # Its value needs all arguments.
    if row.kind == "scalar":
        value = _scalar(scope, (*field, "value"), row.value or "", dtype)
        return Argument(name=row.name, kind="scalar", dtype=dtype.name, value=value)
    if row.kind in _HELD:
        argument = _HELD[row.kind](scope, field, row, whole)
        _check_promises(scope.source, field, argument)
        return argument
    shape = _shape(scope, field, row, dtype)
    floating = dtype.kind == "float" and row.kind in {"input", "inout", "constant"}
    kind: ArgumentKind = row.kind  # type: ignore[assignment]  # Checked by check_arguments.
    argument = Argument(
        name=row.name,
        kind=kind,
        dtype=dtype.name,
        shape=shape,
        align=row.align,
        fill=row.fill or (DEFAULT_FILL if floating else None),
        init=(row.init or "poison") if row.kind == "scratch" else None,
    )
    _check_promises(scope.source, field, argument)
    return argument


def _struct(scope: Scope, field: Field, row: ArgumentRow, whole: CohortRow) -> Argument:
    """So many bytes, and what lies where."""
    size = (scope.integer((*field, "size"), row.size or "", least=1),)
    held = Struct(type_name=row.type or "", members=tuple(_members(scope, field, row)))
    return Argument(name=row.name, kind="struct", dtype="uint8", shape=size, align=row.align, holds=held)


def _pointers(scope: Scope, field: Field, row: ArgumentRow, whole: CohortRow) -> Argument:
    """Addresses of buffers of one element type; `step` is in their elements."""
    to = row.to or ()
    sizes = _element_bytes(scope, whole, to)
    count = scope.integer((*field, "count"), row.count or "1", least=1)
    step = scope.integer((*field, "step"), row.step or "0", least=0)
    if len(sizes) > 1:
        fix = "make one argument of pointers for each size"
        raise scope.source.error((*field, "to"), expected="elements of one size", got=f"{sorted(sizes)}", fix=fix)
    if len(to) * count > MAX_ADDRESSES:
        got = f"{len(to) * count} for cell {scope.cell.id}"
        raise scope.source.error(field, expected=f"at most {MAX_ADDRESSES} addresses", got=got, fix="name fewer")
    held = PointerTable(to=to, count=count, step_bytes=step * max(sizes, default=1))
    shape = (len(to) * count,)
    return Argument(name=row.name, kind="pointers", dtype="uint64", shape=shape, align=row.align, holds=held)


def _tensormap(scope: Scope, field: Field, row: ArgumentRow, whole: CohortRow) -> Argument:
    """A map of one buffer; `strides` are in its elements, by default those of axes that lie behind each other."""
    sizes = {
        name: tuple(
            scope.integer((*field, name, at), text, least=1) for at, text in enumerate(getattr(row, name) or ())
        )
        for name in ("dims", "strides", "box")
    }
    strides = sizes["strides"] or tuple(accumulate(sizes["dims"][:-1], mul))
    (size,) = _element_bytes(scope, whole, (row.of or "",)) or {1}
    held = TensorMap(
        of=row.of or "",
        dims=sizes["dims"],
        strides_bytes=tuple(each * size for each in strides),
        box=sizes["box"],
        swizzle_bytes=row.swizzle or 0,
    )
    return Argument(name=row.name, kind="tensormap", dtype="uint8", shape=(MAP_BYTES,), align=MAP_ALIGN, holds=held)


def _element_bytes(scope: Scope, whole: CohortRow, names: Collection[str]) -> set[int]:
    """The sizes of the elements of these arguments."""
    return {
        _dtype(scope, ("arguments", at, "dtype"), each.dtype or "uint8").size_bytes
        for at, each in enumerate(whole.arguments)
        if each.name in names
    }


def _members(scope: Scope, field: Field, row: ArgumentRow) -> Iterator[ScalarMember | PointerMember]:
    """What a struct holds in this cell."""
    for at, member in enumerate(row.members or ()):
        where: Field = (*field, "members", at)
        if isinstance(member, PointerMemberRow):
            yield PointerMember(name=member.name, offset_bytes=member.offset, to=member.to)
        else:
            dtype = _dtype(scope, (*where, "dtype"), member.dtype)
            value = _scalar(scope, (*where, "value"), member.value, dtype)
            yield ScalarMember(name=member.name, offset_bytes=member.offset, dtype=dtype.name, value=value)


#: What makes the arguments that hold something.
_HELD: Mapping[str, Callable[[Scope, Field, ArgumentRow, CohortRow], Argument]] = {
    "struct": _struct,
    "pointers": _pointers,
    "tensormap": _tensormap,
}


def _dtype(scope: Scope, field: Field, template: str) -> Dtype:
    name = scope.text(field, template)
    if name not in DTYPES:
        got = f"{name} for cell {scope.cell.id}"
        raise scope.source.error(field, expected=", ".join(DTYPES), got=got, fix="write one of these dtypes")
    return DTYPES[name]


def _shape(scope: Scope, field: Field, row: ArgumentRow, dtype: Dtype) -> tuple[int, ...]:
    """Elements along each axis, none of them 0: no device here allocates an empty buffer."""
    if row.size is not None:
        shape: tuple[int, ...] = (scope.integer((*field, "size"), row.size, least=1),)
    else:
        formulas = enumerate(row.shape or ())
        shape = tuple(scope.integer((*field, "shape", at), text, least=1) for at, text in formulas)
    size_bytes = prod(shape) * dtype.size_bytes
    if size_bytes > MAX_INTEGER:
        got = f"more for cell {scope.cell.id}"
        raise scope.source.error(field, expected=f"at most {MAX_INTEGER} bytes", got=got, fix="make the shape smaller")
    return shape


def _scalar(scope: Scope, field: Field, text: str, dtype: Dtype) -> str:
    """A scalar's exact value: a formula, or a decimal number for a float."""
    if _DECIMAL.fullmatch(text):
        if dtype.kind != "float":
            fix = "write an integer, or a float dtype"
            raise scope.source.error(field, expected=f"an integer for {dtype.name}", got=text, fix=fix)
        return text
    value = scope.any_integer(field, text)
    least = 1 - _MAX_SCALAR if dtype.kind == "float" else -dtype.sign_bit
    most = _MAX_SCALAR - 1 if dtype.kind == "float" else dtype.greatest
    if not max(least, 1 - _MAX_SCALAR) <= value <= min(most, _MAX_SCALAR - 1):
        got = f"{value} for cell {scope.cell.id}"
        raise scope.source.error(field, expected=f"a value of {dtype.name}", got=got, fix="use a wider dtype")
    return str(value)


def _check_promises(source: Source, field: Field, argument: Argument) -> None:
    """An alignment that the arena can keep, and values that a fill can make."""
    try:
        alignment(argument)
    except ValueError as error:
        got, fix = str(argument.align), "write a power of two"
        raise source.error((*field, "align"), expected=str(error), got=got, fix=fix) from error
    unfit = argument.fill and _unfit(argument.name, argument.kind, argument.dtype, argument.fill)
    if unfit:
        expected, got, fix = unfit
        raise source.error((*field, "fill"), expected=expected, got=got, fix=fix)


@lru_cache(maxsize=1024)
def _unfit(name: str, kind: ArgumentKind, dtype: str, fill: Fill) -> tuple[str, str, str] | None:
    """What was expected of a distribution, what it is and how to mend it; None if it is fit, whatever the shape."""
    spread = ratio(fill.normal.scale) if fill.normal else ratio(fill.uniform.high) - ratio(fill.uniform.low)  # type: ignore[union-attr]
    if spread <= 0:
        return "values that differ", fill.canonical().decode().strip(), "write a scale above 0"
    try:
        recipe(Argument(name=name, kind=kind, dtype=dtype, fill=fill), "ordinary", "0" * 16)
    except ValueError as error:
        return str(error), "more", "write smaller values"
    try:
        specials(dtype, fill.exceptional or SPECIAL_KINDS)
    except ValueError as error:
        return f"special values of {dtype}", str(error), f"name some of {', '.join(SPECIAL_KINDS)}, or none of them"
    return None
