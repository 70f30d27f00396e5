from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualify.seeds import coin, derive, numbered, permutation, split

ROOT = bytes(range(32))
labels = st.lists(st.one_of(st.text(max_size=4), st.integers(0, 20)), max_size=4)


def test_seeds_are_the_same_in_every_version() -> None:
    seed = derive(ROOT, "poison")
    assert seed == "a03b55ea8ffe703f"
    assert split(seed, "x", 3) == "d049f19649141f74"
    assert numbered("0123456789abcdef", 2) == ["9ab50691a1c95759", "ea1d8706f4dbe855"]
    assert permutation(seed, 10) == (0, 4, 3, 9, 1, 7, 5, 6, 2, 8)


def test_numbered_seeds_begin_alike_and_no_two_are_equal() -> None:
    many = numbered("0" * 16, 1000)
    assert (numbered("0" * 16, 300), numbered("0" * 16, 0)) == (many[:300], [])
    assert len({*many, *numbered("1".zfill(16), 1000), "0" * 16}) == 2001


def test_a_run_s_seed_has_32_bytes() -> None:
    with pytest.raises(ValueError, match="32 bytes, not 31"):
        derive(ROOT[:-1], "poison")


@given(labels, labels)
def test_two_paths_of_labels_give_two_seeds(one: list[str | int], other: list[str | int]) -> None:
    same = [(type(label), label) for label in one] == [(type(label), label) for label in other]
    assert (split("0" * 16, *one) == split("0" * 16, *other)) == same


@given(st.integers(0, 40), st.integers(0, (1 << 64) - 1))
def test_a_permutation_holds_every_number_once(n: int, seed: int) -> None:
    assert sorted(permutation(f"{seed:016x}", n)) == list(range(n))


def test_coins_and_orders_are_even() -> None:
    seeds = [derive(ROOT, str(number)) for number in range(3000)]
    assert 1400 < sum(coin(seed) for seed in seeds) < 1600
    orders = Counter(permutation(seed, 3) for seed in seeds)
    assert len(orders) == 6
    assert all(400 < count < 600 for count in orders.values())
