"""The layout of a session's one arena: buffers with zones between and around them (R9.1).

Checked and timed runs and both arms use one layout; nothing about it tells a kernel which phase it is in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qualify.contract import Argument, Variant
from qualify.elements import DTYPES
from qualify.placement import Placement
from qualify.strides import axes

#: Zone before, between and after buffers: more than a row of 1,024 floats, so that a one-row overrun is seen.
ZONE_BYTES = 4096
#: A device places the arena itself at a multiple of this, so that offsets speak for addresses.
BASE_ALIGN_BYTES = 1 << 16


@dataclass(frozen=True)
class Layout:
    """Where every buffer of every set lies, and the arena's size in bytes."""

    size_bytes: int
    placements: tuple[Placement, ...]


def layout(
    arguments: Sequence[Argument], sets: int, order: Sequence[int] = (), *, variant: Variant = "ordinary"
) -> Layout:
    """Place each buffer argument of sets 0 to `sets` - 1, named `<argument>.<set>`, as a variant wants it.

    The sets lie in `order`, if any.

    Each lies at a multiple of its alignment and of no larger power of two, so that a kernel that assumes more than
    was promised is found out (R6.4). A buffer without elements has a valid place of its own. Raises ValueError for an
    alignment that is no power of two up to half of BASE_ALIGN_BYTES, KeyError for an unknown dtype.
    """
    return _layout(arguments, [(number, variant) for number in order or range(sets)])


def layout_of_each(arguments: Sequence[Argument], variants: Sequence[Variant], order: Sequence[int]) -> Layout:
    """One set for each variant, placed as that one wants it, in `order`. Raises as `layout` does."""
    return _layout(arguments, [(number, variants[number]) for number in order])


def _layout(arguments: Sequence[Argument], sets: Iterable[tuple[int, Variant]]) -> Layout:
    placements: list[Placement] = []
    end = 0
    for number, variant in sets:
        for argument in arguments:
            if not argument.is_buffer:
                continue
            dtype = DTYPES[argument.dtype]
            offset = _place(end + ZONE_BYTES, alignment(argument))
            size = argument.elements * dtype.size_bytes
            name = f"{argument.name}.{number}"
            outer = tuple((n, stride * dtype.size_bytes) for n, stride in axes(argument, arguments, variant))
            placed = Placement(buffer=name, dtype=argument.dtype, offset_bytes=offset, size_bytes=size, axes=outer)
            placements.append(placed)
            end = offset + placed.span_bytes
    whole = -(-(end + ZONE_BYTES) // ZONE_BYTES) * ZONE_BYTES
    return Layout(size_bytes=whole, placements=tuple(placements))


def alignment(argument: Argument) -> int:
    """What a kernel may rely on, in bytes: the promise, and never less than one element's size.

    Raises ValueError for a promise that no layout can keep exactly.
    """
    if argument.align < 1 or argument.align & (argument.align - 1) or argument.align > BASE_ALIGN_BYTES // 2:
        limit = BASE_ALIGN_BYTES // 2
        raise ValueError(f"{argument.name}: align is a power of two up to {limit}, not {argument.align}")
    return max(argument.align, DTYPES[argument.dtype].size_bytes)


def _place(least: int, align: int) -> int:
    """The first offset from `least` on that is an odd multiple of `align`."""
    return least + (align - least) % (2 * align)


def gaps(placements: Sequence[Placement], size_bytes: int) -> tuple[tuple[int, int], ...]:
    """The byte ranges (from, to) outside every placement, in order. Raises ValueError for overlap or overrun."""
    found: list[tuple[int, int]] = []
    end = 0
    for placement in sorted(placements, key=lambda each: (each.offset_bytes, each.size_bytes)):
        for start in placement.runs():
            if start < end:
                raise ValueError(f"{placement.buffer} overlaps what lies before it")
            if start > end:
                found.append((end, start))
            end = start + placement.run_bytes
    if end > size_bytes:
        raise ValueError(f"the last buffer ends at {end} of {size_bytes} bytes")
    if end < size_bytes:
        found.append((end, size_bytes))
    return tuple(found)
