"""The rules of a table of gates, read late."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qualify.gate import Gate
    from qualify.judgement import Rules


class Released(Mapping[str, "Rules"]):
    """The rules of every gate of a table, which is read when the first is asked for: until then files can be."""

    def __init__(self, table: Callable[[], Mapping[str, Gate[Any, Any]]]) -> None:
        self._table = table

    @cached_property
    def _rules(self) -> dict[str, Rules]:
        from qualify.judgement import rules_of

        return {name: rules_of(gate) for name, gate in self._table().items()}

    def __getitem__(self, gate: str) -> Rules:
        return self._rules[gate]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)
