"""A set that no launch of a segment names: what a kernel does to it, it does to sets whose launch is yet to come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from qualify.elements import DTYPES
from qualify.placement import Placement
from qualify.steps import Damage, Digest, Digests, Equal, Fill, Poison, Unwritten


class Watcher(Protocol):
    """The steps of a device that it takes to watch a buffer."""

    def fill(self, step: Fill) -> None:
        """Write a recipe to a buffer."""

    def digest(self, step: Digest) -> Digests:
        """FNV-1a 64 of buffers."""

    def unwritten(self, step: Unwritten) -> Equal:
        """Count the elements that still equal a poison."""


class Bystander:
    """The outputs and scratch of one set, poisoned when this is made like those of all others; inouts as they are."""

    def __init__(self, device: Watcher, places: Mapping[str, Placement], poisons: Mapping[str, Poison]) -> None:
        self._device, self._places, self._poisons = device, places, poisons
        for buffer, poison in poisons.items():
            device.fill(Fill(buffer=buffer, recipe=poison))
        self._inouts = tuple(buffer for buffer in places if buffer not in poisons)
        self._before = self._digests()

    def added_to(self, damage: Damage) -> Damage:
        """Damage, and what changed here since; of an inout all bytes count."""
        found = {buffer: self._written(buffer, poison) for buffer, poison in self._poisons.items()}
        for buffer, before, after in zip(self._inouts, self._before, self._digests(), strict=True):
            found[buffer] = 0 if before == after else self._places[buffer].size_bytes
        first = [self._places[buffer].offset_bytes for buffer, size in found.items() if size]
        first += [] if damage.first_offset is None else [damage.first_offset]
        return Damage(bytes=damage.bytes + sum(found.values()), first_offset=min(first, default=None))

    def _written(self, buffer: str, poison: Poison) -> int:
        place = self._places[buffer]
        poisoned = self._device.unwritten(Unwritten(buffer=buffer, poison=poison)).elements
        return place.size_bytes - poisoned * DTYPES[place.dtype].size_bytes

    def _digests(self) -> tuple[str, ...]:
        return self._device.digest(Digest(buffers=self._inouts)).values if self._inouts else ()
