"""Documents: the same bytes in pieces as whole, and what no parser and no document takes."""

import os
import re
import subprocess
import sys
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from qualify.errors import DocumentError, ShapeError
from qualify.gate import Measurement
from qualify.model import MAX_DEPTH, Document, Json, canonical_by_items, canonical_bytes, check_shape
from tests.conftest import examples


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


class Holder(Document):
    value: Json


@pytest.mark.parametrize("depth", [1, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 60, 20_000])
@pytest.mark.parametrize("inner", ["0", '""', r'"\\"', r'"\\\""', '"]]]"', r'"\"]]]"', r'"a\\","[[["'])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), (r'["]\\",', ',"[{"]')])
def test_a_text_is_refused_exactly_if_it_nests_too_deeply(depth: int, inner: str, opening: str, closing: str) -> None:
    data = (opening * depth + inner + closing * depth).encode()
    if depth <= MAX_DEPTH:
        check_shape(data, 1 << 20)
    else:
        with pytest.raises(ShapeError, match="nested deeper"):
            check_shape(data, 1 << 20)


@pytest.mark.parametrize("before", ["", "]" * 99, '"', '"a', '"\\', '"\\"', '{"a":"\\\\', '[]"'])
def test_brackets_behind_what_is_no_json_hide_nothing(before: str) -> None:
    """What a parser would meet before the first thing that is no JSON is counted, whatever else is there."""
    deep = "[" * (MAX_DEPTH + 1)
    for text in (deep + before, f'["]{{",{deep}{before}'):
        with pytest.raises(ShapeError):
            check_shape(text.encode(), 1 << 20)


#: What a count of brackets could take for one, or for the end of a string.
MARKS = st.text('"\\[]{}:,\n a\u00e9', max_size=6)


@settings(max_examples=examples(200))
@given(
    st.recursive(
        MARKS | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(MARKS, inner), max_leaves=20
    ),
    st.integers(MAX_DEPTH - 8, MAX_DEPTH),
)
def test_depth_is_counted_outside_strings_only(value: Json, extra: int) -> None:
    data = canonical_bytes([value])
    outside = re.sub(rb'"(?:[^"\\]|\\.)*"', b"", data)
    depths = accumulate((byte in b"[{") - (byte in b"]}") for byte in outside)
    assert _depth([value]) == max(depths)
    check_shape(data, 1 << 20)
    deeper = b"[" * extra + data + b"]" * extra
    if _depth([value]) + extra > MAX_DEPTH:
        with pytest.raises(ShapeError):
            check_shape(deeper, 1 << 20)
    else:
        check_shape(deeper, 1 << 20)


def _depth(value: Json) -> int:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if items is None else 1 + max(map(_depth, items), default=0)


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [1, v], lambda v: {"a": None, "b": [[], {}, [v, 2]]}])
@pytest.mark.parametrize(
    ("value", "refused"),
    [
        (0.5, "a float"),
        (True, ""),
        (None, ""),
        ("1e5", ""),
        (2**63 - 1, ""),
        (1 - 2**63, ""),
        (2**63, "beyond 64 bits"),
        (-(2**63), "beyond 64 bits"),
    ],
)
def test_a_float_and_a_long_integer_are_refused_at_any_depth(wrap: Any, value: Json, refused: str) -> None:
    data = canonical_bytes({"value": wrap(value)})
    if refused:
        with pytest.raises(DocumentError, match=refused):
            Holder.parse(data)
        with pytest.raises(ValidationError, match=refused):
            Holder(value=wrap(value))
    else:
        assert Holder.parse(data) == Holder(value=wrap(value))


@pytest.mark.parametrize("facts", [None, {}, [], 3, {"b": [1], "a": {"é": "\n"}}, "x"])
def test_a_measurement_is_written_in_pieces_as_whole(facts: Json) -> None:
    made = Measurement(gate="digest", rule=1, state="measured", facts=facts, uses={"compile": "0" * 64})
    assert made.canonical() == canonical_bytes(made.model_dump(mode="json"))
    assert Measurement.parse(made.canonical()) == made


@pytest.mark.parametrize(
    ("base", "met"), [("qualify.model import Document", False), ("pydantic import BaseModel", True)]
)
def test_no_plugin_of_another_package_meets_a_document(base: str, met: bool, tmp_path: Path) -> None:
    """A plugin may take for valid what is not; one that cannot be loaded is warned of, where it is looked for."""
    package = tmp_path / "meddling-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: meddling\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[pydantic]\nmeddling = meddling:plugin\n")
    code = f"import sys\nsys.path.append({str(tmp_path)!r})\nfrom {base} as Base\nclass A(Base): pass\nA()"
    clean = {name: value for name, value in os.environ.items() if name != "PYDANTIC_DISABLE_PLUGINS"}
    done = subprocess.run((sys.executable, "-c", code), check=True, env=clean, capture_output=True, text=True)
    assert ("meddling" in done.stderr) is met
