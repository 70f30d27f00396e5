"""Untrusted files to closed models: every refusal names file, line, field, expected, got, fix (R6.9).

YAML is read as events of the safe C parser, one at a time, so that nothing is built from an alias, a tag or a depth
that is refused. Of YAML's types only true, false, null, decimal integers and text remain: 0.3 stays exact text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, JsonValue, ValidationError

from qualify.errors import InputError
from qualify.model import MAX_INTEGER, Document

MAX_YAML_BYTES = 256 << 10  # A cohort with a thousand cells has 80 KiB.
MAX_YAML_DEPTH = 12  # A cohort nests 6 levels: routes, a route, launches, a launch, grid, a number.
MAX_YAML_NODES = 50_000  # Keys and values together.
MAX_SHOWN = 80  # Characters of a refused value that an error repeats.

#: Where a value stands in a document: keys and indices from its top.
Field = tuple[str | int, ...]
M = TypeVar("M", bound=Document)


def field_text(field: Field) -> str:
    """`routes.warp.launches[0].grid`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in field)
    return text.removeprefix(".")


@dataclass(frozen=True)
class Source:
    """A YAML file as plain values, and the line of each."""

    where: str
    value: JsonValue
    lines: Mapping[Field, int]

    def line(self, field: Field) -> int:
        """The line of a field, or of the nearest thing around it that exists."""
        return next(self.lines[field[:n]] for n in range(len(field), -1, -1) if field[:n] in self.lines)

    def error(self, field: Field, *, expected: str, got: str, fix: str) -> InputError:
        """The error to raise about a field: file, line, field, expected, got, fix."""
        where = f"{self.where}:{self.line(field)}"
        return InputError(where, field=field_text(field) or None, expected=expected, got=_short(got), fix=fix)

    def model(self, model: type[M], at: Field = ()) -> M:
        """The closed model of the value at a field. Raises InputError for the first thing that it refuses."""
        value = self.value
        for part in at:
            value = value[part]  # type: ignore[index]  # `at` is a field of this document.
        try:
            return model.model_validate_json(json.dumps(value))
        except ValidationError as error:
            found = [_explain(self, model, value, at, item) for item in error.errors(include_url=False)]
            raise min(found, key=lambda item: item[0])[1] from None


#: Control characters, line breaks that only some readers count, byte order marks, text that reads backwards.
_STRANGE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_NOT_FINITE = re.compile(r"[-+]?\.inf|\.nan", re.IGNORECASE)
_WORDS: dict[str, JsonValue] = {"true": True, "false": False, "null": None, "": None}


def parse_yaml(where: str, data: bytes) -> Source:
    """One YAML document as plain values. Raises InputError at the line of the first thing that is refused.

    Refused: more than the MAX_YAML_ caps, other encodings than UTF-8, control characters, anchors, aliases, tags,
    directives, merge keys, duplicate keys, keys that are not text, several documents, infinities and NaN.
    """
    text = _decode(where, data)
    builder = _Builder(where)
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(
            f"{where}:{line}", expected="YAML", got=error.problem or "a syntax error", fix="correct the syntax there"
        ) from None
    except yaml.YAMLError as error:
        got = str(error).splitlines()[0]
        raise InputError(f"{where}:1", expected="YAML", got=got, fix="save the file as plain UTF-8 text") from None
    return builder.source()


def _decode(where: str, data: bytes) -> str:
    if len(data) > MAX_YAML_BYTES:
        expected, got = f"at most {MAX_YAML_BYTES} bytes", f"{len(data)} bytes"
        raise InputError(f"{where}:1", expected=expected, got=got, fix="split the file")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        got = f"the byte 0x{data[error.start]:02x}"
        raise InputError(f"{where}:{line}", expected="UTF-8", got=got, fix="save the file as UTF-8") from None
    strange = _STRANGE.search(text)
    if strange:
        line = text.count("\n", 0, strange.start()) + 1
        got = f"the character U+{ord(strange.group()):04X}"
        fix = "remove it; save with LF line ends and without a byte order mark"
        raise InputError(f"{where}:{line}", expected="printable text", got=got, fix=fix)
    return text


@dataclass
class _Open:
    """A mapping or sequence whose end was not seen yet; a mapping may have a key that waits for its value."""

    value: dict[str, JsonValue] | list[JsonValue]
    field: Field
    key: str | None = None


class _Builder:
    """Events to values, without recursion. `lines` has the key's line for what is in a mapping."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.open: list[_Open] = []
        self.lines: dict[Field, int] = {}
        self.value: JsonValue = None
        self.documents = 0
        self.nodes = 0

    def source(self) -> Source:
        return Source(self.where, self.value, {(): 1, **self.lines})

    def take(self, event: yaml.Event) -> None:
        """One event of the parser. Raises InputError for what is refused."""
        line = event.start_mark.line + 1 if event.start_mark else 1
        match event:
            case yaml.DocumentStartEvent():
                self._document(event, line)
            case yaml.AliasEvent():
                raise self._refuse(line, "values written out", f"the alias *{event.anchor}", "write the value itself")
            case yaml.ScalarEvent():
                self._check_node(event, line)
                self._scalar(event, line)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._check_node(event, line)
                self._start({} if isinstance(event, yaml.MappingStartEvent) else [], line)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self.open.pop()

    def _refuse(self, line: int, expected: str, got: str, fix: str) -> InputError:
        field = field_text(self.open[-1].field) if self.open else ""
        return InputError(f"{self.where}:{line}", field=field or None, expected=expected, got=_short(got), fix=fix)

    def _document(self, event: yaml.DocumentStartEvent, line: int) -> None:
        self.documents += 1
        if event.version or event.tags:
            raise self._refuse(line, "no directive", "a % directive", "remove the line that starts with %")
        if self.documents > 1:
            raise self._refuse(line, "one document", "a second one", "remove everything from the second --- on")

    def _check_node(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent, line: int) -> None:
        self.nodes += 1
        if event.anchor is not None:
            raise self._refuse(line, "no anchor", f"the anchor &{event.anchor}", "remove the anchor")
        if event.tag is not None:
            raise self._refuse(line, "no tag", f"the tag {event.tag}", "remove the tag")
        if self.nodes > MAX_YAML_NODES:
            raise self._refuse(line, f"at most {MAX_YAML_NODES} keys and values", "more", "split the file")

    def _start(self, value: dict[str, JsonValue] | list[JsonValue], line: int) -> None:
        if len(self.open) >= MAX_YAML_DEPTH:
            raise self._refuse(line, f"at most {MAX_YAML_DEPTH} levels", "a deeper one", "nest less deeply")
        if self._wants_key():
            raise self._refuse(line, "a key", "a mapping or list as a key", "write a name before the colon")
        self.open.append(_Open(value, self._place(value, line)))

    def _wants_key(self) -> bool:
        return bool(self.open) and isinstance(self.open[-1].value, dict) and self.open[-1].key is None

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        if self._wants_key():
            self._key(event.value, line)
        else:
            self._place(self._resolve(event.value, line) if event.implicit[0] else event.value, line)

    def _key(self, key: str, line: int) -> None:
        top = self.open[-1]
        if key == "<<":
            raise self._refuse(line, "a key", "the merge key <<", "write the keys out")
        if key in top.value:
            first = self.lines[(*top.field, key)]
            raise self._refuse(line, "each key once", f"{key} again, first in line {first}", "remove one of the two")
        self.lines[(*top.field, key)] = line
        top.key = key

    def _place(self, value: JsonValue, line: int) -> Field:
        """Put a value where the innermost open mapping or sequence waits for one, and return its field."""
        if not self.open:
            self.value = value
            return ()
        top = self.open[-1]
        if isinstance(top.value, list):
            top.value.append(value)
            field: Field = (*top.field, len(top.value) - 1)
            self.lines[field] = line
        else:
            key, top.key = top.key or "", None
            top.value[key] = value
            field = (*top.field, key)
        return field

    def _resolve(self, text: str, line: int) -> JsonValue:
        """The value of a plain scalar: a word, a decimal integer, or its text."""
        if text in _WORDS:
            return _WORDS[text]
        if _NOT_FINITE.fullmatch(text):
            raise self._refuse(line, "a finite number", text, "write a decimal number")
        if not _INTEGER.fullmatch(text):
            return text
        if len(text) > 20 or abs(int(text)) > MAX_INTEGER:
            raise self._refuse(line, "an integer of at most 63 bits", text, "write a smaller one, or quote it")
        return int(text)


#: pydantic's error types in plain words: expected, fix. `{}` is filled from the error's context.
_EXPLAINED = {
    "int_type": ("an integer", "write a whole number without quotes"),
    "bool_type": ("true or false", "write true or false without quotes"),
    "string_type": ("text", "write text, in quotes if it looks like a number"),
    "tuple_type": ("a list", "write [item, ...]"),
    "list_type": ("a list", "write [item, ...]"),
    "dict_type": ("a mapping", "write name: value pairs"),
    "model_type": ("a mapping", "write name: value pairs"),
    "model_attributes_type": ("a mapping", "write name: value pairs"),
    "literal_error": ("{expected}", "write one of these"),
    "string_pattern_mismatch": ("text that matches {pattern}", "write it in that form"),
    "greater_than_equal": ("at least {ge}", "write a greater number"),
    "less_than_equal": ("at most {le}", "write a smaller number"),
    "too_short": ("at least {min_length}", "add what is missing"),
    "too_long": ("at most {max_length}", "remove what is too much"),
}


def _explain(
    source: Source, model: type[BaseModel], value: JsonValue, at: Field, error: Any
) -> tuple[tuple[int, bool], InputError]:
    """One of pydantic's errors as ours, with what to sort by: its line, a wrong name before a missing one."""
    kind, location, context = error["type"], error["loc"], error.get("ctx", {})
    field, known = _follow(model, value, location)
    if kind == "missing":
        name = str(location[-1])
        made = source.error((*at, *field, name), expected="a value", got="nothing", fix=f"add {name}:")
    elif kind == "extra_forbidden":
        import difflib  # Only a mistake needs it.

        close = difflib.get_close_matches(str(location[-1]), known, n=1)
        fix = f"write {close[0]}" if close else "remove it"
        made = source.error((*at, *field), expected=f"one of {', '.join(known)}", got=str(location[-1]), fix=fix)
    else:
        expected, fix = _EXPLAINED.get(kind, (_plain(error["msg"]), "correct it"))
        made = source.error((*at, *field), expected=expected.format(**context), got=_json(error["input"]), fix=fix)
    return (source.line((*at, *field)), kind == "missing"), made


def _follow(model: type[BaseModel], value: JsonValue, location: Iterable[str | int]) -> tuple[Field, list[str]]:
    """The part of pydantic's location that exists in the value, and the fields of the innermost model there.

    A location also holds names of union members and of validators; those are passed over.
    """
    field: list[str | int] = []
    annotation: Any = model
    known = _model_fields(model)
    for part in location:
        match value:
            case dict() if part in value:
                value = value[str(part)]
            case list() if isinstance(part, int) and part < len(value):
                value = value[part]
            case _:
                continue
        annotation = _model_fields(annotation).get(str(part), annotation)
        known = _model_fields(annotation) or known
        field.append(part)
    return tuple(field), sorted(known)


def _model_fields(annotation: Any) -> dict[str, Any]:
    """The fields, by name, of every model that an annotation mentions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {name: info.annotation for name, info in annotation.model_fields.items()}
    fields: dict[str, Any] = {}
    for argument in get_args(annotation):
        fields |= _model_fields(argument)
    return fields


def _plain(message: str) -> str:
    return message.removeprefix("Value error, ").removeprefix("Input should be ")


def _json(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _short(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
