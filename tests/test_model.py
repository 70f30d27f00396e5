"""Documents in pieces: the same bytes as whole."""

import pytest

from qualify.model import Document, Json, canonical_by_items, canonical_bytes


class Item(Document):
    name: str
    items: tuple[int, ...] = ()


class First(Document):
    items: tuple[Item, ...]
    later: Json = None


class Middle(Document):
    early: Json
    items: tuple[Item, ...]
    later: Json


class Last(Document):
    early: Json
    items: tuple[Item, ...]


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("value", [None, {"items": []}, '"items":[]', {"é": ["\n"]}])
def test_a_long_list_written_an_item_at_a_time_gives_the_canonical_bytes(count: int, value: Json) -> None:
    items = tuple(Item(name=f"é{number}", items=tuple(range(number))) for number in range(count))
    for made in (
        First(items=items, later=value),
        Middle(early=value, items=items, later=value),
        Last(early=value, items=items),
    ):
        assert canonical_by_items(made, "items") == canonical_bytes(made.model_dump(mode="json"))
