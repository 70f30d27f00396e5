"""The bytes of values, poison and zones, in numpy (R5.6).

Values are integer arithmetic on Philox4x32-10 words and one correctly rounded conversion; poison and zones are a
cheap hash of (seed, index). The harness kernels of `workers/devices` repeat these definitions; the contract test of
devices compares them. Callers use `qualify.fill`, which imports this module only when bytes are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from qualify.elements import DTYPES, FRACTION_BITS, Dtype
from qualify.steps import Poison, Values

Words = np.ndarray[Any, np.dtype[np.uint64]]
Fixed = np.ndarray[Any, np.dtype[np.int64]]

#: The sum of twelve words of 16 bits less this is centred on zero; its standard deviation is 65,536.
NORMAL_CENTRE = 12 * 65535 // 2
#: One element in this many takes a special value.
SPECIAL_EVERY = 8
_CHUNK_ELEMENTS = 1 << 15  # Temporaries of half a megabyte stay in the second-level cache.
_PHILOX_M = (0xD2511F53, 0xCD9E8D57)
_PHILOX_W = (0x9E3779B9, 0xBB67AE85)
_MIX_STEP = 0x9E3779B97F4A7C15
_LOW = 0xFFFFFFFF
_MASK = (1 << 64) - 1
_ML_DTYPES = {"bfloat16": "bfloat16", "float8_e4m3": "float8_e4m3fn", "float8_e5m2": "float8_e5m2"}


@cache
def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The numpy (or ml_dtypes) type of a dtype. Raises KeyError for an unknown one."""
    name = DTYPES[dtype].name
    made: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]) if name in _ML_DTYPES else name)
    return made


# Poison and zones ----------------------------------------------------------------------------------------------------


def poison(recipe: Poison, size_bytes: int, offset: int = 0) -> bytes:
    """Poison from a buffer's start, or from a multiple of 8 on: one hash for every 8 bytes.

    The two top exponent bits of a float differ, in the bits as in their complement, so the exponent is neither all
    zeros nor all ones: finite, normal and no NaN in both polarities, however narrow the exponent.
    """
    words = _mix(int(recipe.seed, 16), offset // 8, -(-size_bytes // 8))
    top, below = (np.uint64(mask) for mask in poison_masks(recipe.dtype))
    words = words & ~top | (~words & below) << np.uint64(1)
    return (~words if recipe.complement else words).tobytes()[:size_bytes]


@cache
def poison_masks(dtype: str) -> tuple[int, int]:
    """The top exponent bits and the bits below them in 8 bytes of elements; both 0 where nothing is forced."""
    kind = DTYPES[dtype]
    if kind.kind != "float":
        return 0, 0
    top = sum(1 << (lane + kind.bits - 2) for lane in range(0, 64, kind.bits))
    return top, top >> 1


def zone(seed: str, offset: int, size: int, *, complement: bool) -> bytes:
    """The pattern that bytes outside every placement carry, from `offset` into the arena (R9.1)."""
    first = offset // 8
    words = _mix(int(seed, 16), first, -(-(offset + size) // 8) - first)
    return (~words if complement else words).tobytes()[offset - 8 * first :][:size]


def _mix(seed: int, first: int, count: int) -> Words:
    """SplitMix64's outputs number `first` to `first + count - 1` for a seed."""
    start = (seed + (first + 1) * _MIX_STEP) & _MASK
    z = np.arange(count, dtype=np.uint64) * np.uint64(_MIX_STEP) + np.uint64(start)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


# Values --------------------------------------------------------------------------------------------------------------


def philox(seed: str, index: Words, block: int | Words) -> tuple[Words, Words, Words, Words]:
    """Philox4x32-10: four 32-bit words an index, in uint64. Counter (index low, index high, block, 0), key the seed.

    A column of blocks gives a row of each word for each of them.
    """
    shift, low = np.uint64(32), np.uint64(_LOW)
    key = int(seed, 16)
    k0, k1 = key & _LOW, key >> 32
    zero = np.zeros_like(index)
    c0, c1, c2, c3 = index & low, index >> shift, zero + np.uint64(block), zero
    for _ in range(10):
        p0, p1 = c0 * np.uint64(_PHILOX_M[0]), c2 * np.uint64(_PHILOX_M[1])
        c0, c1, c2, c3 = p1 >> shift ^ c1 ^ np.uint64(k0), p1 & low, p0 >> shift ^ c3 ^ np.uint64(k1), p0 & low
        k0, k1 = (k0 + _PHILOX_W[0]) & _LOW, (k1 + _PHILOX_W[1]) & _LOW
    return c0, c1, c2, c3


def values(recipe: Values, elements: int) -> bytes:
    """A recipe's values from a buffer's start. Raises KeyError for an unknown dtype."""
    return b"".join(_value_chunks(recipe, elements))


def _value_chunks(values: Values, elements: int) -> Iterator[bytes]:
    dtype = DTYPES[values.dtype]
    convert = _round_to_float if dtype.kind == "float" else _round_to_integer
    fixed_point = _normal if values.distribution == "normal" else _uniform
    for start in range(0, elements, _CHUNK_ELEMENTS):
        index = np.arange(start, min(start + _CHUNK_ELEMENTS, elements), dtype=np.uint64)
        bits = convert(fixed_point(values, index), dtype)
        if values.specials:
            bits = _with_specials(values, index, bits)
        yield bits.astype(f"<u{dtype.size_bytes}").tobytes()


def _with_specials(values: Values, index: Words, bits: Words) -> Words:
    _, _, choose, which = philox(values.seed, index, 1)
    table = np.array(values.specials, dtype=np.uint64)
    chosen = table[which * np.uint64(len(table)) >> np.uint64(32)]
    return np.where(choose % np.uint64(SPECIAL_EVERY) == 0, chosen, bits)


def _uniform(values: Values, index: Words) -> Fixed:
    """The floor of base + scale * word / 2^32; the product is split to stay within 64 bits."""
    word = philox(values.seed, index, 0)[0]
    whole, part = np.int64(values.scale >> 32), np.uint64(values.scale & _LOW)
    return np.int64(values.base) + whole * word.astype(np.int64) + (part * word >> np.uint64(32)).astype(np.int64)


def _normal(values: Values, index: Words) -> Fixed:
    """The floor of base + scale * centred sum / 65,536; the product is split to stay within 64 bits."""
    c0, c1, c2, c3 = philox(values.seed, index, np.array([[0], [1]], dtype=np.uint64))
    total = np.zeros_like(index)
    for word in (*c0, *c1, c2[0], c3[0]):
        total += (word & np.uint64(0xFFFF)) + (word >> np.uint64(16))
    centred = total.astype(np.int64) - np.int64(NORMAL_CENTRE)
    whole, part = np.int64(values.scale >> 16), np.int64(values.scale & 0xFFFF)
    return np.int64(values.base) + whole * centred + (part * centred >> np.int64(16))


def _round_to_float(fixed: Fixed, dtype: Dtype) -> Words:
    """The bits of the nearest float, ties to even, from the magnitude's integer bits alone."""
    sign = np.where(fixed < 0, np.uint64(dtype.sign_bit), np.uint64(0))
    magnitude: Words = np.abs(fixed).astype(np.uint64)
    exponent = np.maximum(_top_bit(magnitude) - FRACTION_BITS, 1 - dtype.bias)
    drop = exponent - dtype.mantissa_bits + FRACTION_BITS
    units = np.where(
        drop > 0,
        _round_shift(magnitude, np.maximum(drop, 1).astype(np.uint64)),
        magnitude << np.maximum(-drop, 0).astype(np.uint64),
    )
    bits = ((exponent + dtype.bias - 1).astype(np.uint64) << np.uint64(dtype.mantissa_bits)) + units
    bits = np.where(bits > dtype.greatest, np.uint64(dtype.overflow), bits)
    return np.where(magnitude == 0, np.uint64(0), sign | bits)


def _round_shift(value: Words, drop: Words) -> Words:
    """The nearest integer to value / 2^drop, ties to even; `drop` is 1 to 63."""
    one = np.uint64(1)
    half = (one << drop - one) - one
    nearest: Words = (value + half + (value >> drop & one)) >> drop
    return nearest


def _top_bit(value: Words) -> Fixed:
    """The position of the highest set bit as int64; 0 for 0."""
    top = np.zeros(value.shape, dtype=np.int64)
    rest = value
    for step in (32, 16, 8, 4, 2, 1):
        high = rest >> np.uint64(step)
        top += np.where(high != 0, step, 0)
        rest = np.where(high != 0, high, rest)
    return top


def _round_to_integer(fixed: Fixed, dtype: Dtype) -> Words:
    """The nearest integer, ties to even, held to the type's range, in two's complement."""
    odd = fixed >> np.int64(FRACTION_BITS) & np.int64(1)
    nearest = (fixed + np.int64((1 << FRACTION_BITS - 1) - 1) + odd) >> np.int64(FRACTION_BITS)
    held = np.clip(nearest, max(-dtype.sign_bit, -(1 << 62)), min(dtype.greatest, 1 << 62))
    bits: Words = held.astype(np.uint64) & np.uint64((1 << dtype.bits) - 1)
    return bits
