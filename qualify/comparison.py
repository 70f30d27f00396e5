"""Whole outputs beside exact values: the parent turns arrays into the facts of `qualify.nearness`. No judge is here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from qualify.contract import Argument, Numeric
from qualify.elements import DTYPES, Dtype, encode
from qualify.gate import Outputs
from qualify.nearness import (
    Bound,
    Compared,
    Distance,
    Element,
    Row,
    close,
    element,
    near,
    overflow_threshold,
    remoteness,
)
from qualify.patterns import numpy_dtype, poison
from qualify.steps import Poison

Array = np.ndarray[Any, np.dtype[Any]]

#: Rows of an element table: enough to see a pattern.
TABLE_ROWS = 8
_PIECE_ELEMENTS = 1 << 18  # Of two outputs, compared at a time.
_LEAST_SHARE = math.ulp(0.0)
_NEAR_TIES = 64  # Rounding in float64 orders all but these; the greatest of them is found exactly.


@dataclass(frozen=True)
class Oracle:
    """The exact values of one output that has elements: float64 for floats, else integers; and each row's scale."""

    dtype: str
    values: Array
    largest: Array
    zero_signs: bool = False


@dataclass(frozen=True)
class _Distance:
    """Per element: whether its class is wrong, and where it is not decided by class, the distance in float64."""

    bits: Array
    wrong: Array
    measured: Array
    error: Array
    share: Array


def oracle(data: bytes, data_dtype: str, dtype: str, shape: tuple[int, ...]) -> Oracle:
    """Exact values as the reference gave them, for an output of `dtype` and `shape`; a row is the last axis.

    Raises ValueError for another number of elements, and for a fraction where the output is an integer.
    """
    given = _array(data, data_dtype)
    if given.size != math.prod(shape):
        raise ValueError(f"{given.size} exact values where the output has {math.prod(shape)} elements")
    if DTYPES[dtype].kind != "float":
        return Oracle(dtype, _whole(given), np.zeros(0))
    with np.errstate(invalid="ignore"):  # Of a NaN that signals.
        values = given.astype(np.float64)
    rows = np.where(np.isfinite(values), np.abs(values), 0.0).reshape(-1, shape[-1] if shape else 1)
    largest = np.repeat(rows.max(axis=1, initial=0.0), rows.shape[1])
    return Oracle(dtype, values, largest)


def with_zero_signs(exact: Oracle, incumbent: bytes) -> Oracle:
    """The oracle, comparing signs of zeros if the incumbent gives each exact zero that it hits the sign of the exact.

    Where a sum starts, and so which zero it gives, is an accident of the reference as much as of a kernel; what the
    selected route does everywhere is a promise.
    """
    if DTYPES[exact.dtype].kind != "float":
        return exact
    strict = replace(exact, zero_signs=True)
    zero = (exact.values == 0) & ~_look(incumbent, exact).wrong
    return strict if not (_look(incumbent, strict).wrong & zero).any() else exact


def compare(data: bytes, exact: Oracle) -> Compared:
    """The facts about one output's bytes beside its exact values."""
    look = _look(data, exact)
    return Compared(
        elements=int(look.wrong.size),
        by_distance=int(np.count_nonzero(look.measured)),
        other_class=int(np.count_nonzero(look.wrong)),
        worst=max(_greatest(look.error, look, exact), key=lambda found: int(found.error or 0), default=None),
        farthest=max(_greatest(look.share, look, exact), key=remoteness, default=None),
    )


def beside(data: bytes, other: bytes, output: Argument) -> tuple[int, Element | None]:
    """How many elements are of another class than in another result, and the farthest of the rest; None if none is.

    Only elements with other bits are looked at, and one with equal bits: those are of one class and of no distance.
    """
    exact = oracle(other, output.dtype, output.dtype, output.shape)
    equal = _bits(data, output.dtype) == _bits(other, output.dtype)
    apart = np.sort(np.concatenate([np.flatnonzero(~equal), np.flatnonzero(equal & np.isfinite(exact.values))[:1]]))
    largest = exact.largest[apart] if exact.largest.size else exact.largest
    part = replace(exact, values=exact.values[apart], largest=largest)
    look = _look(_array(data, output.dtype)[apart].tobytes(), part)
    farthest = max(_greatest(look.share, look, part), key=remoteness, default=None)
    wrong = int(np.count_nonzero(look.wrong))
    return wrong, farthest and farthest.model_copy(update={"index": int(apart[farthest.index])})


def distances(
    outputs: Sequence[Argument],
    candidate: Mapping[str, bytes],
    incumbent: Mapping[str, bytes] | None,
    exact: Outputs,
    numeric: Numeric,
) -> tuple[tuple[Distance, Oracle], ...]:
    """Each output of the candidate beside its exact values; `incumbent` is None for a plain route."""
    found = []
    for argument in outputs:
        name = argument.name
        other = None if incumbent is None else incumbent[name]
        plain = oracle(exact.data[name], exact.dtype[name], argument.dtype, argument.shape)
        values = with_zero_signs(plain, candidate[name] if other is None else other)
        found.append((_distance(name, candidate[name], other, values, numeric), values))
    return tuple(found)


def _distance(name: str, candidate: bytes, incumbent: bytes | None, exact: Oracle, numeric: Numeric) -> Distance:
    found = Distance(
        output=name,
        candidate=compare(candidate, exact),
        incumbent=None if incumbent is None else compare(incumbent, exact).worst,
        zero_signs="compared" if exact.zero_signs else "not compared",
        table=(),
    )
    if close(found, numeric, plain=incumbent is None):
        return found
    return found.model_copy(update={"table": table(candidate, incumbent, exact)})


def witness(data: bytes, exact: Oracle, limit: Bound) -> Element | None:
    """An element that shows that `data` is not good enough for `limit`; None if there is none."""
    look = _look(data, exact)
    for figures in (look.error, look.share):
        for found in _greatest(figures, look, exact):
            if not near(found, limit):
                return found
    wrong = np.flatnonzero(look.wrong)
    return _element(int(wrong[0]), look, exact) if wrong.size else None


def table(candidate: bytes, incumbent: bytes | None, exact: Oracle) -> tuple[Row, ...]:
    """The worst elements, those of another class first: index, both arms' bits, the exact value."""
    look = _look(candidate, exact)
    other = None if incumbent is None else _bits(incumbent, exact.dtype)
    wrong = np.flatnonzero(look.wrong)[:TABLE_ROWS]
    worst = np.argsort(-look.error, kind="stable")[:TABLE_ROWS]
    order = dict.fromkeys((*wrong.tolist(), *(index for index in worst.tolist() if look.error[index] > 0)))
    digits = DTYPES[exact.dtype].bits // 4
    return tuple(
        Row(
            index=index,
            candidate=f"{int(look.bits[index]):0{digits}x}",
            incumbent=None if other is None else f"{int(other[index]):0{digits}x}",
            exact=_element(index, look, exact).exact,
        )
        for index in list(order)[:TABLE_ROWS]
    )


def nulls(exact: Oracle, inputs: Mapping[str, tuple[bytes, str]]) -> Iterator[tuple[str, bytes]]:
    """Outputs that no kernel had to compute: zeros, the exact mean everywhere, and copies of inputs as big.

    `inputs` holds bytes and dtype by name, of the output's own shape.
    """
    kind = numpy_dtype(exact.dtype)
    count = exact.values.size
    yield "zeros", bytes(count * kind.itemsize)
    if count > 1:  # The mean of one element is that element.
        yield "constant", np.full(count, encode(_mean(exact.values), exact.dtype), f"<u{kind.itemsize}").tobytes()
    for name, (data, dtype) in inputs.items():
        with np.errstate(all="ignore"):
            yield f"copy of {name}", _array(data, dtype).astype(kind).tobytes()


def untouched(first: bytes, second: bytes, wrote: Poison) -> tuple[int, int | None]:
    """How many elements equal their poison in the first run, and its complement in the second; and the first's index.

    Those are each other's complement, as few others are: poison is made again only where some lie (R9.1).
    """
    size = DTYPES[wrote.dtype].size_bytes
    one, other = (np.frombuffer(data, dtype=f"<u{size}") for data in (first, second))
    count, index = 0, None
    for start in range(0, one.size, _PIECE_ELEMENTS):
        here, there = (each[start : start + _PIECE_ELEMENTS] for each in (one, other))
        suspects = np.flatnonzero(here == ~there)
        if suspects.size:
            pattern = np.frombuffer(poison(wrote, here.nbytes, start * size), dtype=here.dtype)
            left = suspects[here[suspects] == pattern[suspects]]
            index = start + int(left[0]) if left.size and index is None else index
            count += int(left.size)
    return count, index


def _look(data: bytes, exact: Oracle) -> _Distance:
    bits = _bits(data, exact.dtype)
    if bits.size != exact.values.size:
        raise ValueError(f"{bits.size} elements where the exact output has {exact.values.size}")
    kind = DTYPES[exact.dtype]
    if kind.kind != "float":
        wrong = ~_equal_integers(bits, exact.values, kind)
        nothing = np.zeros(bits.size)
        return _Distance(bits, wrong, np.zeros(bits.size, dtype=bool), nothing, nothing)
    with np.errstate(all="ignore"):
        wrong, measured = _classes(bits, exact, kind)
        found = np.where(measured, _array(data, exact.dtype).astype(np.float64), 0.0)
        distance = np.where(measured, np.abs(found - np.where(measured, exact.values, 0.0)), 0.0)
        exponent = np.maximum(np.frexp(np.where(measured, exact.values, 0.0))[1] - 1, 1 - kind.bias)
        exponent = np.where(exact.values == 0, 1 - kind.bias, exponent) - kind.mantissa_bits
        error = np.ldexp(distance, -exponent)
        # Faithful rounding is under every cap; where a row is tiny its share would hide an element that is not, and
        # so would a share that float64 takes for none.
        share = np.where(error > 1, np.maximum(distance / exact.largest, _LEAST_SHARE), 0.0)
        return _Distance(bits, wrong, measured, error, share)


def _classes(bits: Array, exact: Oracle, kind: Dtype) -> tuple[Array, Array]:
    """Where the class is wrong, and where a distance decides: `right_class` and `_figures` for whole arrays."""
    magnitude, negative = bits & ~np.uint64(kind.sign_bit), (bits & np.uint64(kind.sign_bit)) != 0
    finite, nan = magnitude <= kind.greatest, magnitude > kind.greatest + kind.has_infinity
    same_sign = negative == np.signbit(exact.values)
    wants_nan, wants_infinity = np.isnan(exact.values), np.abs(exact.values) >= overflow_threshold(kind)
    if kind.has_infinity:
        infinite = (magnitude == kind.overflow) & same_sign
    else:
        infinite = nan | ((magnitude == kind.greatest) & same_sign)
    right = np.where(wants_nan, nan, np.where(wants_infinity, infinite, finite))
    if exact.zero_signs:
        right &= ~((exact.values == 0) & (magnitude == 0) & ~same_sign)
    return ~right, finite & ~wants_nan & ~wants_infinity


def _greatest(figures: Array, look: _Distance, exact: Oracle) -> list[Element]:
    """The measured elements whose figure is the greatest, but for float64's rounding."""
    if not look.measured.any():
        return []
    highest = figures[look.measured].max()
    if not highest:  # All are exact, or faithful: none is farther than another.
        return [_element(int(np.argmax(look.measured)), look, exact)]
    ties = look.measured & ((figures >= highest * (1 - 2.0**-48)) | (figures == highest))
    return [_element(int(index), look, exact) for index in np.flatnonzero(ties)[:_NEAR_TIES]]


def _element(index: int, look: _Distance, exact: Oracle) -> Element:
    bits = int(look.bits[index])
    if DTYPES[exact.dtype].kind == "float":
        return element(index, bits, float(exact.values[index]), float(exact.largest[index]), exact.dtype)
    digits = DTYPES[exact.dtype].bits // 4
    spelled = str(int(exact.values[index]))
    return Element(index=index, bits=f"{bits:0{digits}x}", exact=spelled, largest="0", error=None, share=None)


def _whole(given: Array) -> Array:
    """The reference's values of an integer output as integers; float64 holds them up to 2^53."""
    if given.dtype.kind not in "iub" and not ((np.abs(given) <= 2.0**53) & (given == np.floor(given))).all():
        raise ValueError("the exact values of an integer output are integers up to 2^53")
    return given.astype(np.int64) if given.dtype.kind not in "iu" else given


def _equal_integers(bits: Array, exact: Array, kind: Dtype) -> Array:
    """Equality as integers, whatever the reference's own width and sign."""
    found = bits.astype(f"u{kind.size_bytes}").view(f"{'i' if kind.kind == 'signed' else 'u'}{kind.size_bytes}")
    if found.dtype.kind == exact.dtype.kind:
        return np.asarray(found == exact)
    return np.asarray(found.astype(object) == exact.astype(object), dtype=bool)


def _mean(values: Array) -> Fraction:
    finite = values[np.isfinite(values)].astype(np.float64) if values.dtype.kind == "f" else values
    return Fraction(float(np.mean(finite))) if finite.size else Fraction(0)


def _array(data: bytes, dtype: str) -> Array:
    return np.frombuffer(data, dtype=numpy_dtype(dtype))


def _bits(data: bytes, dtype: str) -> Array:
    return np.frombuffer(data, dtype=f"<u{DTYPES[dtype].size_bytes}").astype(np.uint64)
