"""Any bytes give a value or an error with file, line, field, expected, got, fix; nothing is built from the rest."""

from typing import Annotated, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, model_validator

from qualify.documents import MAX_YAML_BYTES, MAX_YAML_DEPTH, MAX_YAML_NODES, Source, parse_yaml
from qualify.errors import InputError
from qualify.model import Document, Name, Ratio
from tests.conftest import examples


class Leaf(Document):
    symbol: Name
    grid: tuple[int, ...]
    shared: Annotated[int, Field(ge=0)] = 0


class Tree(Document):
    operation: str
    kind: Literal["own", "identical"] = "own"
    ratio: Ratio = "1"
    fast: bool = False
    routes: dict[Name, tuple[Leaf, ...]]

    @model_validator(mode="after")
    def _some(self) -> "Tree":
        if not self.routes:
            raise ValueError("at least one route")
        return self


def refusal(text: str | bytes) -> InputError:
    with pytest.raises(InputError) as caught:
        parse_yaml("cohort.yaml", text if isinstance(text, bytes) else text.encode())
    return caught.value


def test_only_words_integers_and_text_are_values() -> None:
    text = "a: [true, false, null, 3, -4, 0.3, 1e-5, yes, 0x10, 012, '3', True, ~]\nb:\n"
    assert parse_yaml("x", text.encode()).value == {
        "a": [True, False, None, 3, -4, "0.3", "1e-5", "yes", "0x10", "012", "3", "True", "~"],
        "b": None,
    }


@pytest.mark.parametrize(
    ("text", "line", "got"),
    [
        ("a: 1\nb: &x 2\n", 2, "the anchor &x"),
        ("a: 1\nb: [*x]\n", 2, "the alias *x"),
        ("a: !!python/object:os.system x\n", 1, "the tag tag:yaml.org,2002:python/object:os.system"),
        ("a: ! x\n", 1, "the tag !"),
        ("%YAML 1.1\n---\na: 1\n", 1, "a % directive"),
        ("a: 1\nb:\n  <<: {c: 1}\n", 3, "the merge key <<"),
        ("a: 1\nb: 2\na: 3\n", 3, "a again, first in line 1"),
        ("{a: 1, 'a': 2}", 1, "a again, first in line 1"),
        ("? [a]\n: 1\n", 1, "a mapping or list as a key"),
        ("a: 1\n---\nb: 2\n", 2, "a second one"),
        ("a:\n- .nan\n", 2, ".nan"),
        ("a: -.INF\n", 1, "-.INF"),
        ("a: 9223372036854775808\n", 1, "9223372036854775808"),
        ("a: [1\nb: 2\n", 2, "did not find expected ',' or ']'"),
        ("a: 1\n\tb: 2\n", 2, "found a tab character that violates indentation"),
        ("a: 1\r\nb: 2\r\n", 1, "the character U+000D"),
        ("\ufeffa: 1\n", 1, "the character U+FEFF"),
        ("a: 1\n# \u202e\n", 2, "the character U+202E"),
        ("a: 1\nb: \0\n", 2, "the character U+0000"),
        (b"a: 1\nb: \xff\n", 2, "the byte 0xff"),
        ("[" * (MAX_YAML_DEPTH + 1), 1, "a deeper one"),
        ("- 1\n" * (MAX_YAML_NODES + 1), MAX_YAML_NODES, "more"),
        (b" " * (MAX_YAML_BYTES + 1), 1, f"{MAX_YAML_BYTES + 1} bytes"),
    ],
)
def test_what_yaml_can_do_and_a_contract_needs_not_is_refused_by_line(text: str | bytes, line: int, got: str) -> None:
    error = refusal(text)
    assert (error.where, error.got) == (f"cohort.yaml:{line}", got)
    assert error.expected
    assert error.fix


def test_the_nearest_deep_long_and_wide_documents_are_read() -> None:
    parse_yaml("x", b"[" * MAX_YAML_DEPTH + b"]" * MAX_YAML_DEPTH)
    parse_yaml("x", b"- 1\n" * (MAX_YAML_NODES - 1))
    parse_yaml("x", b"a: 1".ljust(MAX_YAML_BYTES))


GOOD = """\
operation: add
ratio: 2
routes:
  warp:
    - symbol: f
      grid: [1, 2]
"""


def test_a_model_is_read_with_its_lists_and_exact_numbers() -> None:
    tree = parse_yaml("x", GOOD.encode()).model(Tree)
    assert (tree.ratio, tree.routes["warp"][0].grid) == ("2", (1, 2))


@pytest.mark.parametrize(
    ("old", "new", "says", "fix"),
    [
        (
            "ratio: 2",
            "rato: 2",
            "2: rato: expected one of fast, kind, operation, ratio, routes, got rato",
            "write ratio",
        ),
        ("symbol: f", "symbl: f", "5: routes.warp[0].symbl: expected one of grid, shared, symbol", "write symbol"),
        ("symbol: f", "zzz: f", "5: routes.warp[0].zzz: expected one of grid, shared, symbol", "remove it"),
        ("operation: add\n", "", "1: operation: expected a value, got nothing", "add operation:"),
        ("      grid: [1, 2]\n", "", "5: routes.warp[0].grid: expected a value, got nothing", "add grid:"),
        (
            "2]",
            "1.5]",
            "6: routes.warp[0].grid[1]: expected an integer, got 1.5",
            "write a whole number",
        ),
        ("[1, 2]", "1", "6: routes.warp[0].grid: expected a list, got 1", "write [item, ...]"),
        ("ratio: 2", "fast: yes", "2: fast: expected true or false, got yes", "write true or false without quotes"),
        ("ratio: 2", "kind: both", "2: kind: expected 'own' or 'identical', got both", "write one of these"),
        ("ratio: 2", "ratio: nan", "2: ratio: expected text that matches", "write it in that form"),
        (
            "symbol:",
            "shared: -1\n      symbol:",
            "5: routes.warp[0].shared: expected at least 0",
            "write a greater",
        ),
        (GOOD, "operation: add\nroutes: {}\n", "1: expected at least one route, got", "correct it"),
        (GOOD, "", "1: expected a mapping, got null", "write name: value pairs"),
    ],
)
def test_what_a_model_refuses_names_line_field_and_fix(old: str, new: str, says: str, fix: str) -> None:
    assert old in GOOD
    with pytest.raises(InputError) as caught:
        parse_yaml("x", GOOD.replace(old, new).encode()).model(Tree)
    assert str(caught.value).startswith(f"x:{says}")
    assert caught.value.fix.startswith(fix)


def test_of_several_errors_the_first_line_is_told() -> None:
    text = GOOD.replace("ratio: 2", "ratio: []").replace("[1, 2]", "{}").replace("operation: add", "operation: []")
    with pytest.raises(InputError, match="x:1: operation"):
        parse_yaml("x", text.encode()).model(Tree)


BLOCK = ["a", "b: ", "- ", "\n", "  ", "|\n", "---\n", "? ", "<<: ", ".nan", "1", "#"]
FLOW = ["[", "]", "{", "}", ", ", ": ", "&x ", "*x", "!t ", "'", '"', "%", "\\"]
yaml_like = st.lists(st.sampled_from(BLOCK + FLOW), max_size=30).map("".join)


@given(st.binary(max_size=60) | yaml_like.map(str.encode))
@settings(max_examples=examples(400), deadline=None)
def test_any_bytes_give_a_value_or_an_input_error(data: bytes) -> None:
    found: Source | InputError
    try:
        found = parse_yaml("x", data)
        found.model(Tree)
    except InputError as error:
        found = error
    assert isinstance(found, Source) or found.where.startswith("x:")


@pytest.mark.parametrize(
    "unit", ["[", "{a: ", "- ", "? ", "'", '"', "a: b\n ", "&a ", "{", "!a ", "|\n", "a", "#", "\\"]
)
def test_the_same_thing_repeated_to_the_size_cap_ends(unit: str) -> None:
    data = (unit * (MAX_YAML_BYTES // len(unit))).encode()
    try:
        parse_yaml("x", data)
    except InputError as error:
        where = error.where
    else:
        where = "x:1"
    assert where.startswith("x:")
