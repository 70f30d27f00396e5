"""What is written into buffers, bit for bit the same in the parent, in the reference and on every device (R5.6).

Recipes are made here from the contract; `patterns` turns them into bytes and brings numpy, so it is imported when
bytes are made.
"""

from __future__ import annotations

from fractions import Fraction

from qualify.contract import Argument, Normal, Uniform, Variant
from qualify.contract import Fill as Distribution
from qualify.elements import DTYPES, FRACTION_BITS, SPECIAL_KINDS, Dtype, specials
from qualify.model import ratio
from qualify.seeds import common, split
from qualify.steps import Poison, Recipe, Values, Zeros


def recipe(argument: Argument, variant: Variant, seed: str, *, complement: bool = False) -> Recipe:
    """What a buffer holds before a launch: values for what goes in, poison for outputs and for scratch that says so.

    `seed` stands for the variant and the set; the argument's name is split off here, so that no two arguments hold the
    same values. Constants take what the seeds of all sets of a session share. `complement` turns every poison's bits
    over. Scratch that the route sets to zero itself is poisoned before. Raises ValueError for a scalar and for values
    beyond the fixed point's 2^30.
    """
    own = split(f"{common(seed):0<16}" if argument.kind == "constant" else seed, argument.name)
    if argument.kind in {"input", "inout", "constant"}:
        return _values(argument, variant, own)
    if argument.kind == "scratch" and argument.init == "zero-at-load":
        return Zeros()
    if argument.kind == "scalar":
        raise ValueError(f"{argument.name} is a scalar and has no buffer to fill")
    return Poison(dtype=argument.dtype, seed=own, complement=complement)


def _values(argument: Argument, variant: Variant, seed: str) -> Values:
    fill = argument.fill or _customary(DTYPES[argument.dtype])
    if fill.normal is not None:
        base, scale, reach = _fixed(fill.normal.mean), _fixed(fill.normal.scale), 6
    elif fill.uniform is not None:
        base, scale, reach = _fixed(fill.uniform.low), _fixed(fill.uniform.high) - _fixed(fill.uniform.low), 1
    else:
        raise ValueError("a fill names neither normal nor uniform")
    if abs(base) + reach * abs(scale) >= 1 << 62:
        raise ValueError(
            f"{argument.name}: fills reach magnitudes up to 2^30 only, {fill.canonical().decode().strip()}"
        )
    return Values(
        dtype=argument.dtype,
        distribution="normal" if fill.normal is not None else "uniform",
        base=base,
        scale=scale,
        seed=seed,
        specials=specials(argument.dtype, fill.exceptional or SPECIAL_KINDS) if variant == "exceptional" else (),
    )


def _customary(dtype: Dtype) -> Distribution:
    """What an input without a fill holds: standard normal floats, integers of up to 16 bits, either bool."""
    if dtype.kind == "float":
        return Distribution(normal=Normal(mean="0", scale="1"))
    if dtype.kind == "bool":
        return Distribution(uniform=Uniform(low="0", high="1"))
    span = 1 << min(dtype.bits, 16)
    low = -span // 2 if dtype.kind == "signed" else 0
    return Distribution(uniform=Uniform(low=str(low), high=str(low + span)))


def _fixed(text: str) -> int:
    return round(ratio(text) * Fraction(1 << FRACTION_BITS))


def generate(recipe: Recipe, elements: int, *, size_bytes: int | None = None) -> bytes:
    """The little-endian bytes of a buffer of so many elements. `size_bytes` is for zeros, which know no dtype.

    Raises KeyError for an unknown dtype.
    """
    from qualify import patterns

    match recipe:
        case Zeros():
            return bytes(elements if size_bytes is None else size_bytes)
        case Poison():
            return patterns.poison(recipe, elements * DTYPES[recipe.dtype].size_bytes)
        case Values():
            return patterns.values(recipe, elements)


def zone_bytes(seed: str, offset: int, size: int, *, complement: bool = False) -> bytes:
    """The pattern that bytes outside every placement carry, from `offset` into the arena (R9.1)."""
    from qualify import patterns

    return patterns.zone(seed, offset, size, complement=complement)
