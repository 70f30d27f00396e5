"""Outputs beside exact values: what a judge may read of the distance, and how it derives it again.

`Element` and `Compared` are facts; everything that decides on them is integer and fraction arithmetic (R5.3), so that
a verdict re-derives without numpy. `qualify.comparison` makes them from whole arrays.

How near is measured element by element, with no tolerance of the harness's own (DESIGN section 9, numeric):

- NaN is a class: an exact NaN wants any NaN. An exact value that rounds to infinity in the output's type wants that
  infinity; where the type has none it wants NaN or the greatest finite value of that sign.
- An exact zero wants a zero, or a distance like any other value; its sign counts where `zero_signs` says so.
- Anything else is a distance in units in the last place of the output's type at the exact value, held as 1/1024 of a
  unit rounded up, and as a share of the largest finite exact magnitude of the element's row.
- Integers and bools are equal or not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from qualify.contract import Numeric
from qualify.elements import DTYPES, Dtype
from qualify.model import Document, Name, ratio

#: Errors are counted in this part of a unit in the last place.
PARTS = 1024
#: Shares of a row's largest magnitude are counted in this part of it.
SHARES = 10**9
#: Both neighbours of an exact value are nearer than this; the absolute cap does not ask for less.
FAITHFUL = PARTS

Bits = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2}){1,8}$")]
Number = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,1300}$")]
#: `float.hex`, `inf`, `-inf`, `nan`, or the decimal digits of an integer.
Exact = Annotated[str, StringConstraints(pattern=r"^(-?0x[01]\.[0-9a-f]+p[+-][0-9]{1,4}|-?inf|nan|-?[0-9]{1,20})$")]


class Element(Document):
    """One element: its bits, the exact value, and what follows from both, which every judge derives again.

    `error` is in 1/1024 unit in the last place, `share` in 1e-9 of `largest`, both rounded up; None where classes
    decide, `share` also where the row has no finite exact value but zero.
    """

    index: Annotated[int, Field(ge=0)]
    bits: Bits
    exact: Exact
    largest: Exact
    error: Number | None
    share: Number | None


class Row(Document):
    """One line of the table that a failure shows."""

    index: Annotated[int, Field(ge=0)]
    candidate: Bits
    incumbent: Bits | None
    exact: Exact


class Compared(Document):
    """One output beside its exact value: how many elements, how many by distance, how many of another class."""

    elements: int
    by_distance: int
    other_class: int
    worst: Element | None
    farthest: Element | None


class Distance(Document):
    """One output of the candidate beside its exact values, the incumbent's worst element, a table if it is too far.

    `incumbent` is None where the candidate is plain, which is its own, and where nothing is decided by distance.
    `zero_signs` says whether signs of zeros were compared.
    """

    output: Name
    candidate: Compared
    incumbent: Element | None
    zero_signs: Literal["compared", "not compared"]
    table: tuple[Row, ...]


@dataclass(frozen=True)
class Bound:
    """How far an element may be: in 1/1024 unit in the last place, and as a share of its row's largest magnitude."""

    error: Fraction
    cap: Fraction


def bound(numeric: Numeric, incumbent: Element | None) -> Bound:
    """max(multiple x the incumbent's own worst error, floor in ulp), and the contract's absolute cap."""
    own = int(incumbent.error) if incumbent is not None and incumbent.error is not None else 0
    return Bound(max(ratio(numeric.multiple) * own, Fraction(numeric.floor_ulp * PARTS)), ratio(numeric.cap_relative))


def limit(found: Distance, numeric: Numeric, *, plain: bool) -> Bound:
    """The bound of one output; a plain route is its own incumbent, so that its cap decides."""
    return bound(numeric, found.candidate.worst if plain else found.incumbent)


def whole(found: Distance, dtype: str, elements: int, *, plain: bool) -> bool:
    """Whether every element was compared and all that decides is there.

    Raises ValueError for an element whose figures do not follow from its bits.
    """
    own = found.candidate
    for each in (own.worst, own.farthest, found.incumbent):
        if each is not None:
            checked(each, dtype)
    if own.elements != elements or elements < 1 or own.other_class < 0:
        return False
    if DTYPES[dtype].kind != "float":
        return own.by_distance == 0
    there = [own.worst is not None, own.farthest is not None, found.incumbent is not None or plain]
    return 0 <= own.by_distance <= elements and there == [own.by_distance > 0] * 2 + [own.by_distance > 0 or plain]


def close(found: Distance, numeric: Numeric, *, plain: bool) -> bool:
    """Whether an output is near enough: classes as exact, errors within the limit, distances under the cap."""
    bounds, own = limit(found, numeric, plain=plain), found.candidate
    return not own.other_class and all(near(each, bounds) for each in (own.worst, own.farthest) if each is not None)


def element(index: int, bits: int, exact: float, largest: float, dtype: str) -> Element:
    """An element of a floating-point output with all that follows from its bits and its exact value."""
    kind = DTYPES[dtype]
    error, share = _figures(bits, exact, largest, kind)
    return Element(
        index=index,
        bits=f"{bits:0{kind.bits // 4}x}",
        exact=_spell(exact),
        largest=_spell(largest),
        error=None if error is None else str(error),
        share=None if share is None else str(share),
    )


def checked(found: Element, dtype: str) -> Element:
    """The element, if its figures follow from its bits and its exact value. Raises ValueError if not."""
    if DTYPES[dtype].kind != "float":
        return found
    again = element(found.index, int(found.bits, 16), read(found.exact), read(found.largest), dtype)
    if again != found:
        raise ValueError(f"element {found.index}: its figures are not those of its bits and its exact value")
    return found


def right_class(found: Element, dtype: str, *, zero_signs: bool = False) -> bool:
    """Whether NaN, infinity, the sign of a zero, or the value of an integer is the exact one's."""
    kind, bits = DTYPES[dtype], int(found.bits, 16)
    if kind.kind != "float":
        return _integer(bits, kind) == int(found.exact)
    exact = read(found.exact)
    magnitude, negative = bits & ~kind.sign_bit, bool(bits & kind.sign_bit)
    if math.isnan(exact):
        return magnitude > kind.greatest + kind.has_infinity
    if _rounds_to_infinity(exact, kind):
        nan = not kind.has_infinity and magnitude > kind.greatest
        wanted = kind.overflow if kind.has_infinity else kind.greatest
        return nan or (magnitude == wanted and negative == (exact < 0))
    if magnitude > kind.greatest:
        return False
    return not (zero_signs and exact == 0 and magnitude == 0 and negative != (math.copysign(1, exact) < 0))


def near(found: Element, bounds: Bound) -> bool:
    """Whether the distance is within the limit in ulp and under the cap; classes are `right_class`'s."""
    return within(found, bounds) and under_cap(found, bounds)


def within(found: Element, bounds: Bound) -> bool:
    """Whether the error is within the limit in units in the last place."""
    return found.error is None or int(found.error) <= bounds.error


def under_cap(found: Element, bounds: Bound) -> bool:
    """Whether the distance is at most the cap of the row's largest magnitude, or faithful rounding."""
    if found.error is None or int(found.error) <= FAITHFUL:
        return True
    return found.share is not None and int(found.share) <= bounds.cap * SHARES


def remoteness(found: Element) -> tuple[bool, bool, int]:
    """Order elements by how far they go against a cap: faithful ones last, a distance from a row of zeros first."""
    beyond = found.error is not None and int(found.error) > FAITHFUL
    return beyond, beyond and found.share is None, int(found.share or 0)


def _figures(bits: int, exact: float, largest: float, kind: Dtype) -> tuple[int | None, int | None]:
    if bits & ~kind.sign_bit > kind.greatest or math.isnan(exact) or _rounds_to_infinity(exact, kind):
        return None, None
    distance = abs(value(bits, kind) - Fraction(exact))
    error = math.ceil(distance * PARTS / Fraction(2) ** ulp_exponent(exact, kind))
    return error, math.ceil(distance * SHARES / Fraction(largest)) if largest else None


def value(bits: int, kind: Dtype) -> Fraction:
    """The exact value of a finite float's bits."""
    magnitude = bits & ~kind.sign_bit
    field, mantissa = magnitude >> kind.mantissa_bits, magnitude & ((1 << kind.mantissa_bits) - 1)
    units = mantissa + (1 << kind.mantissa_bits if field else 0)
    scale = Fraction(2) ** (max(field, 1) - kind.bias - kind.mantissa_bits)
    return (-units if bits & kind.sign_bit else units) * scale


def ulp_exponent(exact: float, kind: Dtype) -> int:
    """The exponent of one unit in the last place at `exact`; below the normal numbers that of the denormals."""
    return max(math.frexp(exact)[1] - 1 if exact else 1 - kind.bias, 1 - kind.bias) - kind.mantissa_bits


def _rounds_to_infinity(exact: float, kind: Dtype) -> bool:
    return math.isinf(exact) or abs(exact) >= overflow_threshold(kind)


@cache
def overflow_threshold(kind: Dtype) -> float:
    """The least magnitude that rounds beyond the greatest finite value; infinity for float64."""
    greatest = value(kind.greatest, kind)
    below = value(kind.greatest - 1, kind)
    beyond = greatest + (greatest - below) / 2
    return math.inf if kind.bits == 64 else float(beyond)


def _integer(bits: int, kind: Dtype) -> int:
    return bits - (kind.sign_bit << 1) if bits & kind.sign_bit else bits


def read(text: str) -> float:
    """The float that an `Exact` spells."""
    return float.fromhex(text)


def _spell(number: float) -> str:
    return number.hex() if math.isfinite(number) else str(number)
