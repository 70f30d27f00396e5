"""How near an output is: whole arrays agree with one element's arithmetic, and classes come before distances."""

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualify.comparison import beside, compare, nulls, oracle, table, untouched, with_zero_signs, witness
from qualify.contract import Argument, Numeric
from qualify.elements import DTYPES, encode
from qualify.fill import generate
from qualify.nearness import (
    FAITHFUL,
    Bound,
    Element,
    bound,
    checked,
    element,
    remoteness,
    right_class,
    under_cap,
    within,
)
from qualify.steps import Poison

FLOATS = [name for name, dtype in DTYPES.items() if dtype.kind == "float"]
WIDE = Bound(Fraction(10**400), Fraction(10**400))


def f64(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


def f32(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def bits_of(values: list[int], dtype: str) -> bytes:
    return b"".join(value.to_bytes(DTYPES[dtype].size_bytes, "little") for value in values)


@st.composite
def outputs(draw: st.DrawFn) -> tuple[str, list[int], list[float]]:
    """Bits of any kind beside exact values that are near them, or that have nothing to do with them."""
    dtype = draw(st.sampled_from(FLOATS))
    exact = draw(st.lists(st.floats(width=64) | st.floats(-8, 8) | st.just(-0.0), min_size=1, max_size=12))
    bits = []
    for value in exact:
        near = encode(Fraction(value), dtype) if math.isfinite(value) else DTYPES[dtype].overflow
        other = draw(st.integers(0, (1 << DTYPES[dtype].bits) - 1))
        nudged = (near + draw(st.integers(-3, 3))) % (1 << DTYPES[dtype].bits)
        bits.append(draw(st.sampled_from([near, nudged, other])))
    return dtype, bits, exact


@given(outputs(), st.booleans())
def test_whole_arrays_agree_with_one_element_at_a_time(case: tuple[str, list[int], list[float]], one_row: bool) -> None:
    dtype, bits, exact = case
    shape = (len(exact),) if one_row else (len(exact), 1)
    found = compare(bits_of(bits, dtype), oracle(f64(*exact), "float64", dtype, shape))
    finite = [abs(value) for value in exact if math.isfinite(value)]
    scales = (
        [max(finite, default=0.0)] * len(exact) if one_row else [abs(v) if math.isfinite(v) else 0.0 for v in exact]
    )
    each = [element(i, b, e, s, dtype) for i, (b, e, s) in enumerate(zip(bits, exact, scales, strict=True))]
    assert found.other_class == sum(not right_class(one, dtype) for one in each)
    assert found.by_distance == sum(one.error is not None for one in each)
    errors = [int(one.error) for one in each if one.error is not None]
    assert (found.worst and int(found.worst.error or 0)) == (max(errors) if errors else None)
    cap = Fraction(1, 1000)
    over = [one for one in each if not under_cap(one, Bound(Fraction(0), cap))]
    assert found.farthest is None or under_cap(found.farthest, Bound(Fraction(0), cap)) == (not over)


@pytest.mark.parametrize(
    ("value", "exact", "ulps"),
    [
        (1.0, 1.0, 0),
        (1.0, 1 + 2**-24, Fraction(1, 2)),
        (1.0, 1 - 2**-24, 1),  # Below a power of two a unit is half as long.
        (1 + 2**-23, 1.0, 1),
        (2**-149, 0.0, 1),
        (0.0, 2**-150, Fraction(1, 2)),
        (-1.0, 1.0, 2**24),
        (1.0, 1 + 2**-52, Fraction(1, 1024)),  # Any distance counts as a part of a unit.
    ],
)
def test_the_error_is_in_units_of_the_outputs_type_at_the_exact_value(value: float, exact: float, ulps: int) -> None:
    bits = int.from_bytes(f32(value), "little")
    assert element(0, bits, exact, 1.0, "float32").error == str(ulps * FAITHFUL)


@pytest.mark.parametrize(
    ("exact", "right", "wrong"),
    [
        (math.nan, [math.nan], [math.inf, 0.0, 3.0]),
        (math.inf, [math.inf], [-math.inf, math.nan, 3.4e38]),
        (1e39, [math.inf], [-math.inf, math.nan, 3.4028234e38]),
        (3.4028234e38, [3.4028234e38], [math.inf, math.nan]),
        (1.0, [1.0, 2.0, -5.0], [math.nan, math.inf]),
    ],
)
def test_classes(exact: float, right: list[float], wrong: list[float]) -> None:
    for values, count in ((right, 0), (wrong, len(wrong))):
        one = oracle(f64(*[exact] * len(values)), "float64", "float32", (len(values),))
        assert compare(f32(*values), one).other_class == count


@given(outputs(), st.data())
def test_two_results_are_as_far_apart_as_one_is_from_the_other_as_exact(
    case: tuple[str, list[int], list[float]], data: st.DataObject
) -> None:
    dtype, bits, exact = case
    other = [
        data.draw(st.sampled_from([one, encode(Fraction(value), dtype) if math.isfinite(value) else one]))
        for one, value in zip(bits, exact, strict=True)
    ]
    output = Argument(name="y", kind="output", dtype=dtype, shape=(len(bits),))
    wrong, farthest = beside(bits_of(bits, dtype), bits_of(other, dtype), output)
    whole = compare(bits_of(bits, dtype), oracle(bits_of(other, dtype), dtype, dtype, output.shape))
    assert wrong == whole.other_class
    assert (farthest is None) == (whole.farthest is None)
    if farthest is not None and whole.farthest is not None:
        assert checked(farthest, dtype) == farthest
        assert int(farthest.bits, 16) == bits[farthest.index]
        assert remoteness(farthest)[:2] == remoteness(whole.farthest)[:2]
        assert remoteness(farthest) == remoteness(whole.farthest) or not remoteness(farthest)[0]


@pytest.mark.parametrize(
    ("dtype", "bits", "other", "wrong", "index"),
    [
        ("float16", [0, 0xFFFF], [0, 0], 1, 0),  # Beside what is no number is an element of no distance.
        ("float64", [0x4010 << 48, 2], [0x4010 << 48, 0], 0, 1),  # Its share of 4 is less than float64 has.
    ],
)
def test_the_farthest_of_two_results_is_the_farthest_however_near(
    dtype: str, bits: list[int], other: list[int], wrong: int, index: int
) -> None:
    output = Argument(name="y", kind="output", dtype=dtype, shape=(2,))
    count, farthest = beside(bits_of(bits, dtype), bits_of(other, dtype), output)
    whole = compare(bits_of(bits, dtype), oracle(bits_of(other, dtype), dtype, dtype, (2,)))
    assert (count, whole.other_class) == (wrong, wrong)
    assert farthest
    assert whole.farthest
    assert (farthest.index, whole.farthest.index) == (index, index)
    assert farthest == whole.farthest


@pytest.mark.parametrize("dtype", ["int32", "bool", "float32"])
def test_equal_results_are_of_one_class_and_no_distance(dtype: str) -> None:
    output = Argument(name="y", kind="output", dtype=dtype, shape=(2, 2))
    same, nan = bits_of([1, 0, 1, 1], dtype), f32(*[math.nan] * 4)
    wrong, farthest = beside(same, same, output)
    assert (wrong, farthest and farthest.error) == (0, "0" if dtype == "float32" else None)
    if dtype == "float32":
        assert beside(nan, nan, output) == (0, None)
        assert beside(nan, same, output) == (4, None)
    with pytest.raises(ValueError, match="where the output has 4 elements"):
        beside(same, same[:-4], output)


def test_a_type_without_infinity_saturates_or_turns_to_nan() -> None:
    one = oracle(f64(1e9, 1e9, 1e9, 1e9), "float64", "float8_e4m3", (4,))
    assert compare(bytes([0x7F, 0x7E, 0xFE, 0x7D]), one).other_class == 2


def test_the_sign_of_a_zero_counts_where_the_incumbent_keeps_it() -> None:
    exact = oracle(f64(0.0, -0.0, 1.0), "float64", "float32", (3,))
    other_sign = f32(0.0, 0.0, 1.0)
    assert compare(other_sign, with_zero_signs(exact, f32(0.0, -0.0, 1.0))).other_class == 1
    assert compare(other_sign, with_zero_signs(exact, f32(0.0, 0.0, 1.0))).other_class == 0
    assert compare(other_sign, with_zero_signs(exact, f32(0.0, -0.0, math.nan))).other_class == 1


def test_a_tiny_faithful_row_does_not_hide_an_element_over_the_cap() -> None:
    exact = oracle(f64(0.7 * 2**-149, 0.7 * 2**-149, 100.0, 1.0), "float64", "float32", (2, 2))
    found = compare(f32(2**-149, 0.0, 100.0, 1.01), exact)
    assert found.farthest is not None
    assert found.farthest.index == 3
    assert not under_cap(found.farthest, Bound(Fraction(0), Fraction(1, 100_000)))


def test_an_error_in_a_row_of_zeros_is_over_every_cap() -> None:
    found = compare(f32(0.0, 1e-9), oracle(f64(0.0, 0.0), "float64", "float32", (1, 2)))
    assert found.farthest is not None
    assert (found.farthest.index, found.farthest.share) == (1, None)
    assert not under_cap(found.farthest, WIDE)


def test_an_elements_figures_are_derived_again() -> None:
    good = element(3, int.from_bytes(f32(1.25), "little"), 1.0, 4.0, "float32")
    assert checked(good, "float32") == good
    for name, value in {
        "bits": "00000000",
        "exact": "0x0.0p+0",
        "largest": "0x1.0p+9",
        "error": "0",
        "share": None,
    }.items():
        with pytest.raises(ValueError, match="element 3"):
            checked(Element(**{**good.model_dump(), name: value}), "float32")


def test_the_limit_is_the_greater_of_the_incumbents_multiple_and_the_floor() -> None:
    own = element(0, int.from_bytes(f32(1 + 3 * 2**-23), "little"), 1.0, 1.0, "float32")
    six = bound(Numeric(multiple="2", floor_ulp=4, cap_relative="1e-5"), own)
    assert six.error == 6 * FAITHFUL
    assert within(element(0, int.from_bytes(f32(1 + 6 * 2**-23), "little"), 1.0, 1.0, "float32"), six)
    assert not within(element(0, int.from_bytes(f32(1 + 7 * 2**-23), "little"), 1.0, 1.0, "float32"), six)
    assert bound(Numeric(multiple="1", floor_ulp=4, cap_relative="1e-5"), own).error == 4 * FAITHFUL


@pytest.mark.parametrize(
    ("dtype", "exact", "exact_dtype", "data", "differ"),
    [
        ("int32", f64(-1.0, 5.0), "float64", struct.pack("<2i", -1, 6), 1),
        ("uint64", struct.pack("<2Q", 2**64 - 1, 2**53 + 1), "uint64", struct.pack("<2Q", 2**64 - 1, 2**53), 1),
        ("uint64", struct.pack("<2q", -1, 7), "int64", struct.pack("<2Q", 2**64 - 1, 7), 1),
        ("bool", bytes([1, 0, 1]), "bool", bytes([1, 0, 2]), 1),
    ],
)
def test_integers_are_equal_or_not(dtype: str, exact: bytes, exact_dtype: str, data: bytes, differ: int) -> None:
    one = oracle(exact, exact_dtype, dtype, (len(data) // DTYPES[dtype].size_bytes,))
    found = compare(data, one)
    assert (found.other_class, found.by_distance, found.worst) == (differ, 0, None)
    shown = witness(data, one, WIDE)
    assert shown is not None
    assert not right_class(shown, dtype)


def test_a_fraction_is_no_exact_integer_and_counts_must_agree() -> None:
    with pytest.raises(ValueError, match="integers"):
        oracle(f64(2.5), "float64", "int32", (1,))
    with pytest.raises(ValueError, match="elements"):
        oracle(f64(2.5), "float64", "float32", (2,))
    with pytest.raises(ValueError, match="elements"):
        compare(f32(1.0), oracle(f64(2.5, 1.0), "float64", "float32", (2,)))


def test_nulls_are_zeros_the_mean_and_copies() -> None:
    exact = oracle(f64(1.0, 2.0, 6.0, math.nan), "float64", "float32", (4,))
    made = dict(nulls(exact, {"x": (f32(1, 2, 3, 4), "float32"), "n": (struct.pack("<4i", 1, 2, 3, 4), "int32")}))
    assert made["zeros"] == f32(0, 0, 0, 0)
    assert made["constant"] == f32(3, 3, 3, 3)
    assert made["copy of x"] == made["copy of n"] == f32(1, 2, 3, 4)
    assert "constant" not in dict(nulls(oracle(f64(1.0), "float64", "float32", (1,)), {}))


def test_the_table_shows_other_classes_first_and_at_most_eight() -> None:
    values = [float(i) for i in range(20)]
    exact = oracle(f64(*values), "float64", "float32", (20,))
    found = f32(*[value + i * 1e-3 for i, value in enumerate(values[:-1])], math.nan)
    rows = table(found, f32(*values), exact)
    assert [row.index for row in rows][:2] == [19, 15]
    assert len(rows) == 8
    assert rows[1].incumbent == f"{struct.unpack('<I', f32(15.0))[0]:08x}"
    assert not table(f32(*values), None, exact)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
def test_untouched_elements_equal_their_poison_in_both_polarities(dtype: str) -> None:
    """In any piece of a large output; no element that is poison in one of the runs only, or each other's complement."""
    count = (1 << 18) + 5
    poison = Poison(dtype=dtype, seed="7" * 16)
    word = f"<u{DTYPES[dtype].size_bytes}"
    wrote = np.frombuffer(generate(poison, count), dtype=word)
    first = np.full(count, 77, dtype=word)
    second = first.copy()
    left = [4, 5, count - 3]
    first[left], second[left] = wrote[left], ~wrote[left]
    first[9], second[10] = wrote[9], ~wrote[10]
    first[11], second[11] = ~wrote[11], wrote[11]
    assert untouched(first.tobytes(), second.tobytes(), poison) == (3, 4)
    assert untouched(second.tobytes(), first.tobytes(), poison.model_copy(update={"complement": True})) == (3, 4)
    assert untouched(first.tobytes(), first.tobytes(), poison) == (0, None)
    assert untouched(b"", b"", poison) == (0, None)
