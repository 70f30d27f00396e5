"""Documents: frozen, closed models whose bytes are canonical.

Everything on disk in an evidence store and everything on a worker's channel is a `Document`. One value has one
spelling (sorted keys, no blanks, a final LF), so reading can demand that the bytes equal the model's own dump;
that alone refuses duplicate keys, NaN, floats and every other second spelling (R5.4).
"""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import accumulate
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    JsonValue,
    StringConstraints,
    ValidationError,
)

from qualify.caps import MAX_DOCUMENT_BYTES
from qualify.errors import DocumentError, ShapeError
from qualify.unplugged import unplug

unplug()

MAX_DEPTH = 24  # The deepest document of ours, a plan's subjects, nests 12 levels.
#: All that neither nests nor says where a string begins and ends.
_PLAIN = bytes(set(range(256)) - set(b'[]{}"'))
#: Depth does not ask which kind a bracket is.
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_OPEN = ord("[")
MAX_INTEGER = (1 << 63) - 1  # Integers fit int64, so that any reader in any language holds them exactly.
#: A value that contains itself is a bug, and ends as too deep a recursion; nothing looks for one.
_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False, check_circular=False
)


def canonical_bytes(value: object) -> bytes:
    """The one spelling of a JSON value: sorted keys, ASCII, no blanks, a final LF. Raises ValueError on NaN."""
    return _ENCODER.encode(value).encode("ascii") + b"\n"


#: What holds neither a float nor an integer.
_EXACT = frozenset({str, bool, type(None)})


def _refuse_inexact(value: Any) -> Any:
    """Refuse floats and integers beyond int64 anywhere inside a JSON value."""
    if isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            if type(item) not in _EXACT and not (type(item) is int and -MAX_INTEGER <= item <= MAX_INTEGER):
                _refuse_inexact(item)
    elif isinstance(value, float):
        raise ValueError("a float; write an integer, a ratio or a hexadecimal string")
    elif isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
        raise ValueError("an integer beyond 64 bits")
    return value


Json = Annotated[JsonValue, AfterValidator(_refuse_inexact)]
#: A lower-case name: gate ids, arguments, dtypes.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")]
#: One path segment of the evidence alphabet: operations, cells, routes.
Segment = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,125}[A-Za-z0-9_+-]$|^[A-Za-z0-9_]$")
]
Hex64 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Hex16 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]


def integer_as_text(value: object) -> object:
    """An integer as its decimal text, so that people write `multiple: 2`; canonical bytes still hold text only."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


#: An exact number: `3`, `-0.25`, `1e-5`, `11/10`.
Ratio = Annotated[
    str,
    BeforeValidator(integer_as_text),
    StringConstraints(pattern=r"^-?[0-9]{1,18}(\.[0-9]{1,18})?(e-?[0-9]{1,2})?$|^-?[0-9]{1,18}/[1-9][0-9]{0,17}$"),
]


def ratio(text: str) -> Fraction:
    """The exact value of a `Ratio`."""
    return Fraction(text)


def absent(value: object) -> bool:
    """Whether a field is not there: `Field(exclude_if=absent)` leaves what a model learned later out of its bytes."""
    return value is None


def none(value: tuple[object, ...]) -> bool:
    """Whether a list is empty: as `absent`, for lists."""
    return not value


class Document(BaseModel):
    """A frozen model with closed fields and one canonical spelling."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    def canonical(self) -> bytes:
        """The document's bytes: what is written, hashed and compared."""
        return canonical_bytes(self.model_dump(mode="json"))

    @classmethod
    def parse(cls, data: bytes, *, limit_bytes: int = MAX_DOCUMENT_BYTES) -> Self:
        """The document that `data` spells canonically. Raises DocumentError for anything else."""
        check_shape(data, limit_bytes)
        try:
            document = cls.model_validate_json(data)
            again = document.canonical()
        except (ValidationError, ValueError, RecursionError) as error:
            raise DocumentError(f"not a {cls.__name__}: {_first_line(error)}") from error
        if again != data:
            raise DocumentError(f"not the canonical bytes of a {cls.__name__}")
        return document


def canonical_by_items(document: Document, name: str) -> bytes:
    """The canonical bytes of a document with one long list of documents, an item at a time.

    Whole, a plan or a verdict of a thousand subjects takes ten times its bytes in values.
    """
    rest = document.model_dump(mode="json", exclude={name})
    before, after = (
        canonical_bytes({key: value for key, value in rest.items() if (key < name) == first})[1:-2]
        for first in (True, False)
    )
    items = b",".join(item.canonical()[:-1] for item in getattr(document, name))
    listed = canonical_bytes(name)[:-1] + b":[" + items + b"]"
    return b"{" + b",".join(filter(None, (before, listed, after))) + b"}\n"


def canonical_after(name: str, value: bytes, rest: bytes) -> bytes:
    """The canonical bytes of an object from those of its first field's value and those of an object of the others."""
    return b'{"' + name.encode("ascii") + b'":' + value[:-1] + b"," + rest[1:]


def check_shape(data: bytes, limit_bytes: int) -> None:
    """Refuse by size and by nesting before any parser sees the bytes. Raises ShapeError."""
    if len(data) > limit_bytes:
        raise ShapeError(f"{len(data)} bytes where at most {limit_bytes} are read")
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _is_deep(_brackets(data)):
        raise ShapeError(f"nested deeper than {MAX_DEPTH} levels")


def _brackets(data: bytes) -> bytes:
    """The brackets of JSON text outside its strings, exact as far as it is JSON; an unfinished string hides none."""
    if b"\\" in data:
        data = data.replace(rb"\\", b"").replace(rb"\"", b"")
    kept = data.translate(_ONE_KIND, _PLAIN).replace(b'""', b"")  # Nearly all strings; two in a row are one as well.
    if b'"' not in kept:
        return kept
    parts = kept.split(b'"')
    return b"".join(parts[::2]) + (b"" if len(parts) % 2 else parts[-1])


def _is_deep(brackets: bytes) -> bool:
    """Whether brackets nest deeper than MAX_DEPTH anywhere."""
    left = brackets
    for _ in range(MAX_DEPTH):
        if not left:
            return False
        left = left.replace(b"[]", b"")  # The innermost level, wherever it is.
    depths = accumulate(1 if bracket == _OPEN else -1 for bracket in brackets)
    return bool(left) and max(depths, default=0) > MAX_DEPTH


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{where}: {first['msg']}" if where else first["msg"]
    return str(error).splitlines()[0] if str(error) else type(error).__name__
