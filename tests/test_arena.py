from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualify.arena import ZONE_BYTES, gaps, layout, layout_of_each
from qualify.contract import Argument, ArgumentKind, Stride
from qualify.elements import DTYPES
from qualify.placement import Placement


def argument(
    name: str, elements: int = 5, *, dtype: str = "float32", align: int = 16, kind: ArgumentKind = "input"
) -> Argument:
    return Argument(name=name, kind=kind, dtype=dtype, shape=(elements,), align=align)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 70),
            st.sampled_from(sorted(DTYPES)),
            st.integers(0, 15).map(lambda bit: 1 << bit),
        ),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 4),
)
def test_every_buffer_has_zones_around_it_and_no_more_alignment_than_promised(
    shapes: list[tuple[int, str, int]], sets: int
) -> None:
    arguments = [
        argument(f"a{position}", elements, dtype=dtype, align=align)
        for position, (elements, dtype, align) in enumerate(shapes)
    ]
    made = layout(arguments, sets)
    assert [each.buffer for each in made.placements] == [f"{a.name}.{n}" for n in range(sets) for a in arguments]
    for placement, (elements, dtype, align) in zip(made.placements, shapes * sets, strict=True):
        promised = max(align, DTYPES[dtype].size_bytes)
        assert placement.offset_bytes % (2 * promised) == promised
        assert placement.size_bytes == elements * DTYPES[dtype].size_bytes
    edges = gaps(made.placements, made.size_bytes)
    assert len(edges) >= len(made.placements) + 1 - sum(not p.size_bytes for p in made.placements)
    assert all(end - start >= ZONE_BYTES for start, end in edges)


def test_sets_lie_in_the_order_that_is_asked_for() -> None:
    made = layout([argument("x", 5), argument("y", 7)], 3, (2, 0, 1))
    places = sorted(made.placements, key=lambda each: each.offset_bytes)
    assert [each.buffer for each in places] == ["x.2", "y.2", "x.0", "y.0", "x.1", "y.1"]
    assert made.size_bytes == layout([argument("x", 5), argument("y", 7)], 3).size_bytes


def test_each_variant_has_a_set_placed_as_it_wants() -> None:
    rows = argument("x", 15).model_copy(update={"shape": (3, 5)})
    pitch = Argument(name="p", kind="scalar", dtype="int32", value="5", stride=Stride(of="x", axis=0))
    made = layout_of_each([rows, pitch], ("ordinary", "strided"), (1, 0))
    assert [(each.buffer, each.axes, each.span_bytes) for each in made.placements] == [
        ("x.1", ((3, 28),), 76),
        ("x.0", (), 60),
    ]
    edges = gaps(made.placements, made.size_bytes)
    assert [end - start for start, end in edges if end - start < ZONE_BYTES] == [8, 8]
    assert len(edges) == 5


def test_a_scalar_has_no_place_and_an_empty_buffer_has_one() -> None:
    scalar = Argument(name="n", kind="scalar", dtype="int32", value="5")
    (only,) = layout([argument("x", 0), scalar], 1).placements
    assert only.buffer == "x.0"
    assert only.size_bytes == 0
    assert only.offset_bytes % 32 == 16


@pytest.mark.parametrize("align", [0, -16, 24, 1 << 16])
def test_an_alignment_that_no_layout_keeps_is_refused(align: int) -> None:
    with pytest.raises(ValueError, match=r"x: align is a power of two up to 32768"):
        layout([argument("x", align=align)], 1)


def test_gaps_refuse_overlap_and_overrun() -> None:
    def at(offset: int, size: int) -> Placement:
        return Placement(buffer=f"x.{offset}", dtype="int8", offset_bytes=offset, size_bytes=size)

    assert gaps([at(4, 4), at(8, 2)], 12) == ((0, 4), (10, 12))
    assert gaps([at(0, 12)], 12) == ()
    with pytest.raises(ValueError, match="overlaps"):
        gaps([at(4, 5), at(8, 2)], 12)
    with pytest.raises(ValueError, match="ends at 13 of 12"):
        gaps([at(4, 9)], 12)
