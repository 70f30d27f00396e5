"""Strided buffers: rows are apart where a scalar tells their stride, and nowhere else."""

import pytest

from qualify.arena import gaps, layout
from qualify.contract import Argument, Stride, Variant
from qualify.strides import axes, padded, placed_alike, strides, under

X = Argument(name="x", kind="input", dtype="float32", shape=(5, 3, 7), align=16)


def pitch(axis: int, multiple: int = 1, of: str = "x") -> Argument:
    told = Stride(of=of, axis=axis, multiple=multiple)
    return Argument(name=f"s{axis}_{multiple}", kind="scalar", dtype="int32", value="0", stride=told)


@pytest.mark.parametrize(
    ("scalars", "wanted", "outer"),
    [
        ((), (21, 7, 1), ()),
        ((pitch(1),), (27, 9, 1), ((5, 27), (3, 9))),
        ((pitch(0),), (23, 7, 1), ((5, 23),)),
        ((pitch(0), pitch(1)), (29, 9, 1), ((5, 29), (3, 9))),
        ((pitch(1, 4),), (36, 12, 1), ((5, 36), (3, 12))),
        ((pitch(1, 4), pitch(1, 6)), (36, 12, 1), ((5, 36), (3, 12))),
        ((pitch(1, of="y"),), (21, 7, 1), ()),
    ],
)
def test_axes_whose_stride_is_told_are_padded(
    scalars: tuple[Argument, ...], wanted: tuple[int, ...], outer: tuple[tuple[int, int], ...]
) -> None:
    passed = (X, *scalars)
    assert strides(X, passed, "strided") == wanted
    assert axes(X, passed, "strided") == outer
    others: tuple[Variant, ...] = ("ordinary", "exceptional")
    for variant in others:
        assert strides(X, passed, variant) == (21, 7, 1)
        assert axes(X, passed, variant) == ()


def test_a_padded_stride_is_an_odd_multiple_above() -> None:
    assert [padded(7, 1), padded(8, 1), padded(8, 4), padded(12, 4), padded(13, 4)] == [9, 9, 12, 20, 20]


def test_a_stride_is_passed_as_it_is_under_the_variant() -> None:
    passed = (X, pitch(0), pitch(1))
    assert [each.value for each in under(passed, "ordinary")] == [None, "21", "7"]
    assert [each.value for each in under(passed, "strided")] == [None, "29", "9"]


def test_gaps_between_rows_are_zones() -> None:
    made = layout((X, pitch(1)), 2, variant="strided")
    first = made.placements[0]
    assert (first.size_bytes, first.run_bytes, first.axes) == (4 * 105, 28, ((5, 108), (3, 36)))
    between = gaps(made.placements, made.size_bytes)
    inside = [(start, end) for start, end in between if end - start < 4096]
    assert len(inside) == 2 * (5 * 3 - 1)
    assert {end - start for start, end in inside} == {8}
    assert sum(end - start for start, end in between) == made.size_bytes - 2 * first.size_bytes


def test_rows_that_overlap_are_no_layout() -> None:
    placed = layout((X,), 1).placements[0].model_copy(update={"axes": ((3, 136), (5, 24))})
    with pytest.raises(ValueError, match=r"x.0 overlaps"):
        gaps((placed,), 1 << 20)


def test_an_argument_without_a_stride_is_spelled_as_it_was() -> None:
    assert b"stride" not in X.canonical()
    assert Argument.parse(pitch(1).canonical()) == pitch(1)


def test_variants_that_one_arena_holds_are_together() -> None:
    assert placed_alike(("ordinary", "exceptional", "strided")) == (("ordinary", "exceptional"), ("strided",))
    assert placed_alike(("ordinary",)) == (("ordinary",),)
