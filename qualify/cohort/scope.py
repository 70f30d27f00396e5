"""One cell's names: what formulas are evaluated over and what placeholders stand for, with errors at their line."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

from qualify.contract import Cell
from qualify.documents import Field, Source
from qualify.errors import InputError
from qualify.expression import Expression, ExpressionError, Kind, parse

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_parse = lru_cache(maxsize=4096)(parse)


def check_formula(
    source: Source, field: Field, text: str, names: Collection[str], wants: Kind = "number"
) -> Expression:
    """The expression that a field holds. Raises InputError with its column."""
    try:
        return _parse(text, frozenset(names), wants)
    except ExpressionError as error:
        raise _at(source, field, error) from error


def _at(source: Source, field: Field, error: ExpressionError) -> InputError:
    got = f"{error.problem} in column {error.column} of {error.text!r}"
    return source.error(field, expected=error.allowed, got=got, fix=f"correct column {error.column}")


def fill_in(source: Source, field: Field, template: str, values: Mapping[str, str]) -> str:
    """The template with every `{name}` replaced. Raises InputError for an unknown name or a stray brace."""
    unknown = sorted({name for name in _PLACEHOLDER.findall(template) if name not in values})
    stray = re.search(r"[{}]", _PLACEHOLDER.sub("", template))
    if unknown or stray:
        got = f"{{{unknown[0]}}}" if unknown else f"a single {stray.group() if stray else ''}"
        expected = "placeholders " + ", ".join(f"{{{name}}}" for name in sorted(values))
        raise source.error(field, expected=expected, got=got, fix="correct the name between the braces")
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


@dataclass(frozen=True)
class Scope:
    """A cell, and the file whose fields are resolved in it."""

    source: Source
    cell: Cell

    def integer(self, field: Field, text: str, *, least: int) -> int:
        """A formula's value. Raises InputError if it has none or it is less than `least`."""
        value = self._value(field, text, "number")
        if value < least:
            got = f"{value} for cell {self.cell.id}" + ("" if text == str(value) else f" from {text!r}")
            raise self.source.error(
                field, expected=f"at least {least}", got=got, fix="correct the formula, or leave the cell out by admits"
            )
        return value

    def any_integer(self, field: Field, text: str) -> int:
        """A formula's value, of either sign. Raises InputError if it has none."""
        return self._value(field, text, "number")

    def condition(self, field: Field, text: str) -> bool:
        """Whether a condition holds in this cell. Raises InputError if it has no value."""
        return bool(self._value(field, text, "condition"))

    def text(self, field: Field, template: str, **more: str) -> str:
        """A template with the cell's names and integers, and `more`, filled in."""
        if "{" not in template and "}" not in template:
            return template
        integers = {name: str(value) for name, value in self.cell.integers.items()}
        return fill_in(self.source, field, template, {**integers, **self.cell.names, **more})

    def _value(self, field: Field, text: str, wants: Kind) -> int:
        expression = check_formula(self.source, field, text, self.cell.integers, wants)
        try:
            return expression.evaluate(self.cell.integers)
        except ExpressionError as error:
            raise _at(self.source, field, error) from error
