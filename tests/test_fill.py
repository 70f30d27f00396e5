from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qualify.contract import Argument, Normal, Uniform
from qualify.contract import Fill as Distribution
from qualify.elements import DTYPES, encode, specials
from qualify.fill import generate, recipe, zone_bytes
from qualify.patterns import numpy_dtype, philox
from qualify.steps import Poison, Values, Zeros
from tests.conftest import examples

SEED = "299f31d0a4093822"
ALL = sorted(DTYPES)
seeds = st.integers(0, (1 << 64) - 1).map(lambda seed: f"{seed:016x}")


def argument(dtype: str, *, kind: Any = "input", **more: Any) -> Argument:
    return Argument(name="x", kind=kind, dtype=dtype, shape=(8,), **more)


def words_of(seed: str, index: int) -> list[int]:
    both = [philox(seed, np.array([index], dtype=np.uint64), block) for block in (0, 1)]
    return [int(word[0]) for block in both for word in block]


@pytest.mark.parametrize(
    ("seed", "index", "words"),
    [
        ("0" * 16, 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ],
)
def test_philox_published_vectors(seed: str, index: int, words: tuple[int, ...]) -> None:
    assert tuple(words_of(seed, index)[:4]) == words


def plain_philox(counter: list[int], key: list[int]) -> tuple[int, ...]:
    """The definition in plain integers, checked against all published vectors below."""
    for _ in range(10):
        p0, p1 = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        low = 0xFFFFFFFF
        counter = [p1 >> 32 ^ counter[1] ^ key[0], p1 & low, p0 >> 32 ^ counter[3] ^ key[1], p0 & low]
        key = [key[0] + 0x9E3779B9 & low, key[1] + 0xBB67AE85 & low]
    return tuple(counter)


def test_plain_philox_published_vectors() -> None:
    full = 0xFFFFFFFF
    assert plain_philox([0] * 4, [0] * 2) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert plain_philox([full] * 4, [full] * 2) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    assert plain_philox(pi, [0xA4093822, 0x299F31D0]) == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


def defined(seed: str, index: int) -> list[int]:
    """The words of both blocks by the definition."""
    key = [int(seed, 16) & 0xFFFFFFFF, int(seed, 16) >> 32]
    counters = [[index & 0xFFFFFFFF, index >> 32, block, 0] for block in (0, 1)]
    return [word for counter in counters for word in plain_philox(counter, key)]


@given(seeds, st.integers(0, (1 << 64) - 1))
def test_philox_equals_its_definition(seed: str, index: int) -> None:
    assert words_of(seed, index) == defined(seed, index)


def exact_bits(values: Values, index: int) -> int:
    """The defined words in exact arithmetic: one element, one rounding."""
    words = defined(values.seed, index)
    if values.specials and words[6] % 8 == 0:
        return values.specials[words[7] * len(values.specials) >> 32]
    if values.distribution == "uniform":
        fixed = values.base + (values.scale * words[0] >> 32)
    else:
        total = sum((word & 0xFFFF) + (word >> 16) for word in words[:6])
        fixed = values.base + (values.scale * (total - 393210) >> 16)
    return encode(Fraction(fixed, 1 << 32), values.dtype)


@pytest.mark.parametrize("dtype", ALL)
@settings(max_examples=examples(12))
@given(st.data())
def test_values_are_the_exact_value_rounded_once(dtype: str, data: st.DataObject) -> None:
    scale_bits = data.draw(st.integers(1, 58))
    values = Values(
        dtype=dtype,
        distribution=data.draw(st.sampled_from(["normal", "uniform"])),
        base=data.draw(st.integers(-(1 << scale_bits), 1 << scale_bits)),
        scale=data.draw(st.integers(-(1 << scale_bits), 1 << scale_bits)),
        seed=data.draw(seeds),
        specials=data.draw(st.sampled_from([(), specials(dtype)])),
    )
    got = np.frombuffer(generate(values, 40), dtype=f"<u{DTYPES[dtype].size_bytes}")
    assert [int(bits) for bits in got] == [exact_bits(values, index) for index in range(40)]


def test_a_longer_buffer_starts_with_the_shorter_one() -> None:
    values = recipe(argument("float32"), "exceptional", SEED)
    assert generate(values, 70_000)[:400] == generate(values, 100)
    assert generate(values, 0) == b""


def test_normal_values_have_the_mean_and_deviation_that_the_fill_names() -> None:
    fill = Distribution(normal=Normal(mean="0.3", scale="1.7"))
    data = generate(recipe(argument("float64", fill=fill), "ordinary", SEED), 50_000)
    values = np.frombuffer(data, dtype=np.float64)
    assert abs(values.mean() - 0.3) < 0.03
    assert abs(values.std() - 1.7) < 0.03
    assert len(np.unique(values)) > 40_000


def test_uniform_values_keep_to_their_range_and_a_bool_is_either() -> None:
    fill = Distribution(uniform=Uniform(low="0.5", high="1.5"))
    values = np.frombuffer(generate(recipe(argument("float32", fill=fill), "ordinary", SEED), 50_000), np.float32)
    assert values.min() >= 0.5
    assert values.max() <= 1.5
    assert abs(values.mean() - 1) < 0.01
    truths = np.frombuffer(generate(recipe(argument("bool"), "ordinary", SEED), 4000), np.uint8)
    assert set(truths.tolist()) == {0, 1}
    assert 1800 < truths.sum() < 2200


def test_exceptional_values_hold_every_special_and_ordinary_ones_are_finite() -> None:
    exceptional = np.frombuffer(generate(recipe(argument("float16"), "exceptional", SEED), 4000), np.uint16)
    assert set(specials("float16")) <= {int(bits) for bits in exceptional}
    ordinary = generate(recipe(argument("float16"), "ordinary", SEED), 4000)
    assert np.isfinite(np.frombuffer(ordinary, np.float16)).all()


def test_two_arguments_and_two_seeds_hold_different_values() -> None:
    x = argument("float32")
    y = x.model_copy(update={"name": "y"})
    made = {generate(recipe(each, "ordinary", seed), 8) for each in (x, y) for seed in (SEED, "0" * 16)}
    assert len(made) == 4


def test_fills_beyond_the_fixed_point_are_refused_and_those_at_its_edge_are_not() -> None:
    edge = Distribution(uniform=Uniform(low="0", high="1073741823"))
    assert generate(recipe(argument("float32", fill=edge), "ordinary", SEED), 4)
    for beyond in (
        Distribution(uniform=Uniform(low="0", high="1073741824")),
        Distribution(normal=Normal(mean="0", scale="178956971")),
    ):
        with pytest.raises(ValueError, match="reach magnitudes"):
            recipe(argument("float32", fill=beyond), "ordinary", SEED)


def test_outputs_and_scratch_hold_poison_or_zeros_and_a_scalar_nothing() -> None:
    assert isinstance(recipe(argument("float32", kind="output"), "ordinary", SEED), Poison)
    assert isinstance(recipe(argument("float32", kind="scratch", init="zero-by-route"), "ordinary", SEED), Poison)
    zeros = recipe(argument("float32", kind="scratch", init="zero-at-load"), "ordinary", SEED)
    assert zeros == Zeros()
    assert generate(zeros, 3, size_bytes=12) == bytes(12)
    with pytest.raises(ValueError, match="x is a scalar"):
        recipe(argument("int32", kind="scalar", value="1"), "ordinary", SEED)


@pytest.mark.parametrize("dtype", ALL)
@settings(max_examples=examples(20))
@given(st.data())
def test_poison_and_its_complement_are_finite_and_differ_in_every_bit(dtype: str, data: st.DataObject) -> None:
    seed, elements = data.draw(seeds), data.draw(st.integers(0, 40))
    poison = Poison(dtype=dtype, seed=seed)
    one = generate(poison, elements)
    other = generate(poison.model_copy(update={"complement": True}), elements)
    assert len(one) == elements * DTYPES[dtype].size_bytes
    assert bytes(byte ^ 0xFF for byte in one) == other
    kind = DTYPES[dtype]
    if kind.kind == "float":
        ones = (1 << kind.exponent_bits) - 1
        for bits in np.frombuffer(one + other, dtype=f"<u{kind.size_bytes}"):
            assert 0 < int(bits) >> kind.mantissa_bits & ones < ones
            assert np.isfinite(np.array([bits]).view(numpy_dtype(dtype)).astype(np.float64)).all()


def test_poison_differs_from_run_to_run_and_repeats_under_its_seed() -> None:
    one, other = (Poison(dtype="float32", seed=seed) for seed in (SEED, "0" * 16))
    assert generate(one, 64) == generate(one, 64)
    same = sum(a == b for a, b in zip(generate(one, 64), generate(other, 64), strict=True))
    assert same < 64


def test_zone_pattern_published_vector_and_any_part_of_it() -> None:
    """SplitMix64 from 1,234,567: the first outputs as its author's reference prints them."""
    seed = f"{1234567:016x}"
    words = (6457827717110365317, 3203168211198807973, 9817491932198370423)
    whole = b"".join(word.to_bytes(8, "little") for word in words)
    assert zone_bytes(seed, 0, 24) == whole
    for start in range(24):
        assert zone_bytes(seed, start, 24 - start) == whole[start:]
        assert zone_bytes(seed, 0, start) == whole[:start]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_no_sum_swallows_what_zones_hold_in_both_of_a_pattern_and_its_complement(dtype: str) -> None:
    """An element that adds what lies outside a buffer gives other bits beside the one than beside the other."""
    plain, turned = (zone_bytes(SEED, 0, 1 << 16, complement=turn) for turn in (False, True))
    assert all(one ^ other == 255 for one, other in zip(plain, turned, strict=True))
    values = generate(Values(dtype=dtype, distribution="normal", base=0, scale=1 << 32, seed=SEED), 1)
    with np.errstate(all="ignore"):
        sums = [
            np.frombuffer(zone, numpy_dtype(dtype)) + np.frombuffer(values, numpy_dtype(dtype))
            for zone in (plain, turned)
        ]
    width = f"<u{sums[0].itemsize}"
    assert not (sums[0].view(width) == sums[1].view(width)).any()
