from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qualify.elements import DTYPES, SPECIAL_KINDS, encode, specials
from qualify.patterns import numpy_dtype
from tests.conftest import examples

FLOATS = tuple(name for name, dtype in DTYPES.items() if dtype.kind == "float")
NARROW = tuple(name for name in FLOATS if name != "float64")
INTEGERS = tuple(name for name, dtype in DTYPES.items() if dtype.kind in {"signed", "unsigned"})


def decode(bits: int, dtype: str) -> float:
    """By the array library, whose widening is exact."""
    return float(np.array([bits], dtype=f"<u{DTYPES[dtype].size_bytes}").view(numpy_dtype(dtype))[0])


def numbers(dtype: str) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << DTYPES[dtype].bits) - 1)


@pytest.mark.parametrize("dtype", FLOATS)
@settings(max_examples=examples(40))
@given(st.data())
def test_a_float_s_own_value_encodes_to_its_bits(dtype: str, data: st.DataObject) -> None:
    bits = data.draw(numbers(dtype))
    value = decode(bits, dtype)
    if np.isfinite(value) and bits != DTYPES[dtype].sign_bit:
        assert encode(Fraction(value), dtype) == bits


@pytest.mark.parametrize("dtype", FLOATS)
@settings(max_examples=examples(40))
@given(st.data())
def test_between_two_floats_the_nearer_and_of_equals_the_even_one_is_taken(dtype: str, data: st.DataObject) -> None:
    bits = data.draw(st.integers(0, DTYPES[dtype].greatest - 1))
    low, high = Fraction(decode(bits, dtype)), Fraction(decode(bits + 1, dtype))
    part = data.draw(st.fractions(0, 1, max_denominator=64))
    expected = bits + (part > Fraction(1, 2) or (part == Fraction(1, 2) and bits % 2 == 1))
    assert encode(low + part * (high - low), dtype) == expected


@pytest.mark.parametrize("dtype", NARROW)
@settings(max_examples=examples(40))
@given(st.data())
def test_narrowing_agrees_with_the_array_library(dtype: str, data: st.DataObject) -> None:
    value = data.draw(st.floats(width=32, allow_nan=False, allow_infinity=False))
    with np.errstate(over="ignore"):
        cast = np.array([value], dtype=np.float32).astype(numpy_dtype(dtype))
    expected = int(cast.view(f"<u{DTYPES[dtype].size_bytes}")[0])
    if value != 0:
        kept = ~nan_sign(dtype, expected)
        assert encode(Fraction(value), dtype) & kept == expected & kept


def nan_sign(dtype: str, bits: int) -> int:
    """The sign of a NaN says nothing."""
    kind = DTYPES[dtype]
    return kind.sign_bit if not kind.has_infinity and bits & ~kind.sign_bit == kind.quiet_nan else 0


@pytest.mark.parametrize(
    ("dtype", "value", "bits"),
    [
        ("float16", Fraction(65520) - 1, 0x7BFF),
        ("float16", Fraction(65520), 0x7C00),
        ("float32", Fraction(-1, 1 << 200), 0x80000000),
        ("float8_e4m3", Fraction(464), 0x7E),
        ("float8_e4m3", Fraction(465), 0x7F),
        ("float8_e5m2", Fraction(1 << 17), 0x7C),
        ("int8", Fraction(127), 0x7F),
        ("int8", Fraction(128), 0x7F),
        ("int8", Fraction(-1000), 0x80),
        ("int32", Fraction(5, 2), 2),
        ("int32", Fraction(7, 2), 4),
        ("uint8", Fraction(-1), 0),
        ("uint64", Fraction(1 << 70), (1 << 64) - 1),
        ("bool", Fraction(1, 2), 0),
        ("bool", Fraction(3), 1),
    ],
)
def test_the_ends_of_a_range(dtype: str, value: Fraction, bits: int) -> None:
    assert encode(value, dtype) == bits


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(KeyError):
        encode(Fraction(1), "float12")
    with pytest.raises(KeyError):
        specials("float12")


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_floats_are_what_they_are_called(dtype: str) -> None:
    values = [decode(bits, dtype) for bits in specials(dtype)]
    kind = DTYPES[dtype]
    assert sum(np.isnan(value) for value in values) == 1
    assert sum(np.isinf(value) for value in values) == (2 if kind.has_infinity else 0)
    assert [str(value) for value in values if value == 0] == ["0.0", "-0.0"]
    smallest_normal = 2.0 ** (1 - kind.bias)
    positive = [value for value in values if 0 < value < np.inf]
    assert len([value for value in positive if value < smallest_normal]) == 2
    assert smallest_normal in positive
    assert encode(Fraction(max(positive)), dtype) == kind.greatest
    assert len(set(specials(dtype))) == len(specials(dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_special_integers_hold_both_ends(dtype: str) -> None:
    info = np.iinfo(dtype)
    values = np.array(specials(dtype), dtype=f"<u{info.bits // 8}").view(dtype)
    assert {int(info.min), int(info.max), 0, 1} <= {int(value) for value in values}
    assert specials("bool") == (0, 1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_kinds_of_special_values_share_none_and_leave_none_out(dtype: str) -> None:
    kinds = [kind for kind in SPECIAL_KINDS if kind != "infinities" or DTYPES[dtype].has_infinity]
    parts = [specials(dtype, [kind]) for kind in kinds]
    assert sorted(bits for part in parts for bits in part) == sorted(specials(dtype))
    assert all(np.isfinite(decode(bits, dtype)) for bits in specials(dtype, ["zeros", "denormals", "extremes"]))


def test_a_dtype_without_any_value_of_the_kinds_is_refused() -> None:
    with pytest.raises(ValueError, match="int32 has no nan and no denormals"):
        specials("int32", ["nan", "denormals"])
    assert specials("int8", ["zeros"]) == (0, 1)
