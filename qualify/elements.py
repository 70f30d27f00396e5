"""Element types: their bits, one correctly rounded encoding, and the values that kernels get wrong.

Integer arithmetic only, so that a judge, a device and a reference agree bit for bit on any machine (R5.3, R5.6).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Literal, get_args

#: The fixed point in which fills are computed (`steps.Values`) has so many fraction bits.
FRACTION_BITS = 32
Kind = Literal["float", "signed", "unsigned", "bool"]


@dataclass(frozen=True)
class Dtype:
    """One element type, little-endian in memory. `mantissa_bits` are the stored ones; both are 0 for integers."""

    name: str
    bits: int
    kind: Kind
    exponent_bits: int = 0
    mantissa_bits: int = 0
    has_infinity: bool = False

    @property
    def size_bytes(self) -> int:
        """Bytes of one element."""
        return self.bits // 8

    @property
    def bias(self) -> int:
        """What is added to a float's exponent before it is stored."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def sign_bit(self) -> int:
        """The bit that negates a float or a signed integer; 0 where there is none."""
        return 1 << (self.bits - 1) if self.kind in {"float", "signed"} else 0

    @property
    def greatest(self) -> int:
        """The bit pattern of the greatest finite value."""
        if self.kind == "bool":
            return 1
        if self.kind != "float":
            return (1 << self.bits) - 1 - self.sign_bit
        beyond = ((1 << self.exponent_bits) - 1) << self.mantissa_bits
        return beyond - 1 if self.has_infinity else self.sign_bit - 2

    @property
    def overflow(self) -> int:
        """What a float too great to hold becomes: infinity, or NaN in a type that has no infinity."""
        return self.greatest + 1

    @property
    def quiet_nan(self) -> int:
        """The one NaN that is ever put into an input."""
        if not self.has_infinity:
            return self.greatest + 1
        return self.overflow | 1 << (self.mantissa_bits - 1)


def _float(name: str, exponent_bits: int, mantissa_bits: int, *, has_infinity: bool = True) -> Dtype:
    return Dtype(name, 1 + exponent_bits + mantissa_bits, "float", exponent_bits, mantissa_bits, has_infinity)


_ALL = (
    _float("float16", 5, 10),
    _float("bfloat16", 8, 7),
    _float("float32", 8, 23),
    _float("float64", 11, 52),
    _float("float8_e4m3", 4, 3, has_infinity=False),  # The OCP type: 448 is the greatest, 0x7f and 0xff are NaN.
    _float("float8_e5m2", 5, 2),
    *(Dtype(f"int{bits}", bits, "signed") for bits in (8, 16, 32, 64)),
    *(Dtype(f"uint{bits}", bits, "unsigned") for bits in (8, 16, 32, 64)),
    Dtype("bool", 8, "bool"),
)
#: Every element type that a contract may name, by name.
DTYPES: Mapping[str, Dtype] = MappingProxyType({dtype.name: dtype for dtype in _ALL})


def encode(value: Fraction, dtype: str) -> int:
    """The bits of the element nearest to `value`, ties to even.

    A float beyond the greatest becomes infinity (NaN in float8_e4m3), an integer or bool beyond its range the
    nearest end of it. A negative value that rounds to zero becomes -0. Raises KeyError for an unknown dtype.
    """
    kind = DTYPES[dtype]
    return _encode_float(value, kind) if kind.kind == "float" else _encode_integer(value, kind)


def _encode_float(value: Fraction, dtype: Dtype) -> int:
    if value == 0:
        return 0
    sign = dtype.sign_bit if value < 0 else 0
    exponent = max(_floor_log2(abs(value)), 1 - dtype.bias)
    units = round(abs(value) / Fraction(2) ** (exponent - dtype.mantissa_bits))
    # The implied leading bit of a normal number is the first unit of the exponent field; a carry moves into it.
    bits = ((exponent + dtype.bias - 1) << dtype.mantissa_bits) + units
    return sign | (bits if bits <= dtype.greatest else dtype.overflow)


def _floor_log2(value: Fraction) -> int:
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if value >= Fraction(2) ** guess else guess - 1


def _encode_integer(value: Fraction, dtype: Dtype) -> int:
    least = -dtype.sign_bit
    return min(max(round(value), least), dtype.greatest) & ((1 << dtype.bits) - 1)


#: Kinds of values that kernels get wrong; integers have zeros (and one) and extremes only.
SpecialKind = Literal["nan", "infinities", "zeros", "denormals", "extremes"]
SPECIAL_KINDS: tuple[SpecialKind, ...] = get_args(SpecialKind)


def specials(dtype: str, kinds: Collection[SpecialKind] = SPECIAL_KINDS) -> tuple[int, ...]:
    """Bit patterns of the values that kernels get wrong (R6.4), each once; both signs where there are signs.

    Floats: one quiet NaN, infinities, zeros, the smallest and largest denormals, and as extremes the smallest normal
    and the greatest finite values. Integers: zero and one, and the ends of the range. Raises KeyError for an unknown
    dtype, ValueError if the dtype has nothing of these kinds.
    """
    kind = DTYPES[dtype]
    found = _float_specials(kind, kinds) if kind.kind == "float" else _integer_specials(kind, kinds)
    if not found:
        raise ValueError(f"{dtype} has no {' and no '.join(kinds)}")
    return found


def _integer_specials(kind: Dtype, kinds: Collection[SpecialKind]) -> tuple[int, ...]:
    small = {0, 1} if "zeros" in kinds else set()
    ends = {kind.greatest, kind.sign_bit, (1 << kind.bits) - 1 if kind.kind == "signed" else 0}
    return tuple(sorted(small | (ends if "extremes" in kinds else set())))


def _float_specials(kind: Dtype, kinds: Collection[SpecialKind]) -> tuple[int, ...]:
    normal = 1 << kind.mantissa_bits
    magnitudes: dict[SpecialKind, tuple[int, ...]] = {
        "zeros": (0,),
        "denormals": (1, normal - 1),
        "extremes": (normal, kind.greatest),
        "infinities": (kind.overflow,) if kind.has_infinity else (),
    }
    wanted = (bits for name, values in magnitudes.items() if name in kinds for bits in values)
    quiet = (kind.quiet_nan,) if "nan" in kinds else ()
    return (*quiet, *(sign | bits for bits in wanted for sign in (0, kind.sign_bit)))
