"""What devices write to buffers equals its definition, bit for bit, over every device that is here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qualify.bench import Rig
from qualify.elements import DTYPES, specials
from qualify.fill import generate
from qualify.sessions import MeasuringSession
from qualify.steps import Damage, Equal, Fill, Fills, Poison, Recipe, Unwritten, Values, Zeros
from tests.devices.beds import ELEMENTS, POISON, bed, damage, do, inputs, normal, places, read, refusal
from tests.rigs import N


@pytest.fixture(scope="module")
def session(rig: Rig) -> Iterator[MeasuringSession]:
    """One worker for all of them."""
    with bed(rig, places()) as opened:
        yield opened


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_values_equal_their_definition_bit_for_bit(dtype: str, session: MeasuringSession) -> None:
    buffer = f"of_{dtype}.0"
    recipes = [
        Values(dtype=dtype, distribution=distribution, base=base, scale=scale, seed="9" * 16, specials=table)
        for distribution in ("normal", "uniform")
        for base, scale in ((0, 1 << 32), (-(5 << 61) // 11, 3 << 55), (77, -1), (3 << 28, 1 << 26))
        for table in ((), specials(dtype))
    ]
    for recipe in recipes:
        do(session, Fill(buffer=buffer, recipe=recipe))
        assert read(session, buffer) == (generate(recipe, ELEMENTS),), recipe


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_poison_and_its_complement_equal_their_definition(dtype: str, session: MeasuringSession) -> None:
    buffer = f"of_{dtype}.0"
    one, other = (Poison(dtype=dtype, seed="9" * 16, complement=complement) for complement in (False, True))
    for poison in (one, other):
        do(session, Fill(buffer=buffer, recipe=poison))
        assert read(session, buffer) == (generate(poison, ELEMENTS),)
    records = do(session, *(Unwritten(buffer=buffer, poison=poison) for poison in (one, other)))
    assert records == (Equal(elements=0, first_index=None), Equal(elements=ELEMENTS, first_index=0))


def test_fills_of_one_step_equal_their_definitions(session: MeasuringSession) -> None:
    """Of every kind, in a row and apart, an empty one among them."""
    recipes: dict[str, Recipe] = {
        "of_float16.0": Values(
            dtype="float16", distribution="uniform", base=0, scale=1, seed="3" * 16, specials=specials("float16")
        ),
        "empty.0": Poison(dtype="float64", seed="1" * 16),
        "y.0": POISON,
        "apart_2.0": Poison(dtype="float32", seed="2" * 16),
        "a.7": Zeros(),
        "apart_3.0": normal(6, "float64"),
        "y.1": POISON.model_copy(update={"complement": True}),
        "of_int8.0": normal(4, "int8"),
    }
    sizes = {place.buffer: (place.size_bytes, place.dtype) for place in places().placements}
    do(session, Fills(fills=()), Fills(fills=tuple(Fill(buffer=name, recipe=each) for name, each in recipes.items())))
    for (name, recipe), data in zip(recipes.items(), read(session, *recipes), strict=True):
        size_bytes, dtype = sizes[name]
        assert data == generate(recipe, size_bytes // DTYPES[dtype].size_bytes, size_bytes=size_bytes), name
    assert damage(session) == Damage(bytes=0, first_offset=None)
    do(session, *inputs())


@pytest.mark.parametrize("refused", [Fill(buffer="x.0", recipe=Zeros()), Fill(buffer="a.7", recipe=Zeros())])
def test_nothing_of_a_step_is_filled_where_one_fill_is_refused(refused: Fill, session: MeasuringSession) -> None:
    before = read(session, "a.7")
    step = Fills(fills=(Fill(buffer="a.7", recipe=Zeros()), refused))
    assert any(said in refusal(session, step) for said in ("no buffer x.0", "a buffer is filled twice in one step"))
    assert read(session, "a.7") == before != (bytes(4 * N),)
