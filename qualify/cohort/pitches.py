"""Scalars of a cohort that tell strides: which axis of which buffer, checked, with what they are in a row (R6.4)."""

from __future__ import annotations

from collections.abc import Sequence

from qualify.cohort.rows import ArgumentRow, StrideRow
from qualify.cohort.scope import Scope
from qualify.contract import Argument, PointerTable, Stride, TensorMap, Variant
from qualify.documents import Field
from qualify.elements import DTYPES
from qualify.strides import strides, under

#: Buffers that a digest looks at, element by element.
_KINDS = ("input", "output", "inout")
#: Outer axes that devices gather along.
MOST_AXES = 4


def told(scope: Scope, rows: Sequence[ArgumentRow], made: Sequence[Argument]) -> tuple[Argument, ...]:
    """The arguments with the strides that scalars tell. Raises InputError for one that no buffer can have."""
    found = [
        argument if row.stride is None else _told(scope, ("arguments", at, "stride"), row.stride, argument, made)
        for at, (row, argument) in enumerate(zip(rows, made, strict=True))
    ]
    for at, argument in enumerate(found):
        if argument.stride is not None:
            _check_range(scope, ("arguments", at, "dtype"), argument, found)
    return under(found, "ordinary")


def _told(scope: Scope, field: Field, row: StrideRow, argument: Argument, made: Sequence[Argument]) -> Argument:
    source = scope.source
    buffers = {each.name: each for each in made if each.kind in _KINDS and 2 <= len(each.shape) <= MOST_AXES}
    if row.of not in buffers:
        expected = f"an input, output or inout of 2 to {MOST_AXES} axes ({', '.join(buffers) or 'there is none'})"
        raise source.error((*field, "of"), expected=expected, got=row.of, fix="name such a buffer")
    if row.of in _described(made):
        got = f"{row.of}, which a tensor map or a table describes"
        fix = "pass it in one of the two ways"
        raise source.error((*field, "of"), expected="a buffer whose strides only scalars tell", got=got, fix=fix)
    last = len(buffers[row.of].shape) - 1
    if row.axis >= last:
        expected = f"an axis before the last of {row.of}, 0 to {last - 1}"
        raise source.error((*field, "axis"), expected=expected, got=str(row.axis), fix="elements of a row lie in a row")
    multiple = scope.integer((*field, "multiple"), row.multiple, least=1)
    in_a_row = strides(buffers[row.of], made, "ordinary")[row.axis]
    if in_a_row % multiple:
        got = f"{in_a_row} for cell {scope.cell.id}"
        fix = "write 1 for cells whose rows are no multiple"
        raise source.error((*field, "multiple"), expected=f"strides of multiples of {multiple}", got=got, fix=fix)
    return argument.model_copy(update={"stride": Stride(of=row.of, axis=row.axis, multiple=multiple)})


def _described(made: Sequence[Argument]) -> set[str]:
    """Buffers whose rows something else counts on."""
    held = [argument.holds for argument in made]
    tables = {name for each in held if isinstance(each, PointerTable) for name in each.to}
    return tables | {each.of for each in held if isinstance(each, TensorMap)}


def _check_range(scope: Scope, field: Field, argument: Argument, arguments: Sequence[Argument]) -> None:
    dtype = DTYPES[argument.dtype]
    variants: tuple[Variant, ...] = ("ordinary", "strided")
    widest = max(_value(argument, arguments, variant) for variant in variants)
    if dtype.kind not in {"signed", "unsigned"} or widest > dtype.greatest:
        got = f"{widest} as {dtype.name} for cell {scope.cell.id}"
        raise scope.source.error(field, expected="an integer type that holds the stride", got=got, fix="use int64")


def _value(argument: Argument, arguments: Sequence[Argument], variant: Variant) -> int:
    (found,) = (each for each in under(arguments, variant) if each.name == argument.name)
    if found.value is None:
        raise ValueError(f"{found.name} tells a stride and has no value")
    return int(found.value)
