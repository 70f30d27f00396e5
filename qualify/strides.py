"""Where the elements of a buffer lie under a variant: in a row, or apart where the contract passes strides (R6.4).

Pure values: contiguous buffers are row-major; under `strided` each axis whose stride a scalar tells is padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from qualify.contract import Argument, Variant

#: Outer axes of elements that do not lie in a row: (count, stride in elements) each, outermost first.
Axes = tuple[tuple[int, int], ...]


def under(arguments: Sequence[Argument], variant: Variant) -> tuple[Argument, ...]:
    """The arguments as they are passed under a variant: scalars that tell a stride have that stride."""
    return tuple(_under(argument, arguments, variant) for argument in arguments)


def _under(argument: Argument, arguments: Sequence[Argument], variant: Variant) -> Argument:
    if argument.stride is None:
        return argument
    (buffer,) = (each for each in arguments if each.name == argument.stride.of)
    stride = strides(buffer, arguments, variant)[argument.stride.axis]
    return argument.model_copy(update={"value": str(stride)})


def strides(argument: Argument, arguments: Sequence[Argument], variant: Variant) -> tuple[int, ...]:
    """Elements from one index of each axis to the next."""
    multiples: dict[int, int] = {}
    for told in (each.stride for each in arguments if variant == "strided" and each.stride is not None):
        if told.of == argument.name:
            multiples[told.axis] = lcm(told.multiple, multiples.get(told.axis, 1))
    found: list[int] = []
    least = 1
    for axis in reversed(range(len(argument.shape))):
        stride = padded(least, multiples[axis]) if axis in multiples else least
        found.insert(0, stride)
        least = stride * argument.shape[axis]
    return tuple(found)


def padded(least: int, multiple: int) -> int:
    """The first odd multiple of `multiple` above `least`.

    So a row starts where no larger power of two promises anything, and there is a gap before it.
    """
    number = least // multiple + 1
    return (number + 1 - number % 2) * multiple


def axes(argument: Argument, arguments: Sequence[Argument], variant: Variant) -> Axes:
    """The outer axes of an argument's elements; none where all of them lie in a row."""
    run = 1
    outer: list[tuple[int, int]] = []
    for extent, stride in reversed(list(zip(argument.shape, strides(argument, arguments, variant), strict=True))):
        if not outer and (stride == run or extent == 1):
            run *= extent
        else:
            outer.insert(0, (extent, stride))
    return tuple(outer) if argument.elements else ()


def placed_alike(variants: Sequence[Variant]) -> tuple[tuple[Variant, ...], ...]:
    """Variants that one arena can hold, together: `strided` has a place of its own."""
    apart = tuple(variant for variant in variants if variant == "strided")
    alike = tuple(variant for variant in variants if variant != "strided")
    return tuple(group for group in (alike, apart) if group)
