"""verdict.json, as much of it as an admission asks for: what became of each subject, and single gates of one.

A verdict of a hundred subjects has a megabyte of checks, of which a check of admissions reads one gate a subject. Keys
are in order and quotes are escaped in canonical bytes, so that places are found by their text. Bytes that do not have
that shape are parsed whole. They are those that a manifest lists: what they should be is for an audit to say.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic_core import from_json

Key = tuple[str, str]
#: How a `SubjectVerdict` begins, how the list of them does, and what follows it.
_SUBJECT, _LIST, _AFTER = b'{"cell":"', b'"subjects":[', b'],"trust":'
_BEGIN = re.compile(rb'\{"cell":"([^"\\]+)","closed_by":')
_END = re.compile(rb',"outcome":"([a-z]+)","role":"([a-z]+)","route":"([^"\\]+)"\}')
#: How a `GateVerdict` begins, and its last field.
_GATE, _STATE = b'{"checks":[', b'"state":"'


class Outcomes:
    """A verdict, read as far as it is asked for. Raises ValueError or LookupError for what is no verdict."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._places: dict[Key, tuple[int, int]] = {}
        self._whole: dict[Key, Mapping[str, Any]] = {}
        self.subjects: dict[Key, Mapping[str, str]] = {}
        self.said: Mapping[str, Any] = self._cut() or self._parsed()

    def gates(self, key: Key, names: Collection[str]) -> list[Mapping[str, Any]]:
        """The gates of a subject that have one of these names, in order. Raises KeyError for another subject."""
        if key in self._whole:
            return [gate for gate in self._whole[key]["gates"] if gate["gate"] in names]
        return [from_json(self._data[start:end]) for start, end in sorted(self._gate_places(*self._places[key], names))]

    def _gate_places(self, start: int, end: int, names: Collection[str]) -> Iterator[tuple[int, int]]:
        for name in names:
            named, place = f'],"gate":"{name}","notes":['.encode(), start
            while (place := self._data.find(named, place, end)) >= 0:
                first, last = self._data.rindex(_GATE, start, place), self._data.index(_STATE, place, end)
                place = self._data.index(b"}", last, end) + 1
                yield first, place

    def _cut(self) -> Mapping[str, Any] | None:
        """Find every subject; what is said beside them. None if the bytes do not have the shape."""
        first, last = self._data.find(_LIST) + len(_LIST), self._data.rfind(_AFTER)
        if not len(_LIST) <= first <= last or not all(self._note(*place) for place in self._ranges(first, last)):
            return None
        said: Mapping[str, Any] = from_json(self._data[:first] + self._data[last:])
        return said

    def _ranges(self, start: int, last: int) -> Iterator[tuple[int, int]]:
        """Where each subject of the list begins and ends."""
        while start < last:
            comma = self._data.find(b"," + _SUBJECT, start, last)
            end = last if comma < 0 else comma
            yield start, end
            start = end + 1

    def _note(self, start: int, end: int) -> bool:
        """Keep the place of a subject; false if there is none there, or the same one twice."""
        begins = _BEGIN.match(self._data, start, end)
        ends = _END.fullmatch(self._data, self._data.rfind(b',"outcome":', start, end), end)
        if begins is None or ends is None:
            return False
        cell, (outcome, role, route) = begins[1].decode(), (group.decode() for group in ends.groups())
        if (cell, route) in self._places:
            return False
        self._places[cell, route] = start, end
        self.subjects[cell, route] = {"cell": cell, "route": route, "role": role, "outcome": outcome}
        return True

    def _parsed(self) -> Mapping[str, Any]:
        said: Mapping[str, Any] = from_json(self._data)
        self._places = {}
        self._whole = {(each["cell"], each["route"]): each for each in said["subjects"]}
        names = ("cell", "route", "role", "outcome")
        self.subjects = {key: {name: each[name] for name in names} for key, each in self._whole.items()}
        return said
