"""Devices under a sanitizer: every buffer an allocation of its own, from its first element to the end of its last.

What lies one element past such a buffer belongs to nobody, so a tool sees the access. Where elements lie apart, what
is between them is never written, so a tool sees that it is read. There are no zones, nothing is
poisoned or timed, and inputs come from the host, so that no kernel runs but the one in question.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from qualify.contract import Kernel
from qualify.elements import DTYPES
from qualify.fill import generate
from qualify.placement import Placement
from qualify.steps import (
    Answer,
    Arena,
    ArmName,
    Contend,
    Damage,
    Equal,
    Poison,
    Segment,
    Spans,
    Stage,
    Stamps,
)
from qualify.workers.devices.base import Content, Device, ZonePattern
from qualify.workers.devices.binding import StepRefused


class SeparateDevice(Device):
    """A device that runs checked launches only. Whatever else is asked of it is refused."""

    def arena(self, step: Arena) -> None:
        """Each placement as an allocation of its own, whatever its offset. Raises StepRefused."""
        for place in step.placements:
            self._allocate(place)
        super().arena(step)

    @abstractmethod
    def _allocate(self, place: Placement) -> None:
        """Memory for one buffer; nothing is written to it. An empty one has a byte, so that there is an address."""

    @abstractmethod
    def _write(self, place: Placement, data: bytes) -> None:
        """Copy a buffer's elements from the host, and nothing to what lies between them; never none."""

    @abstractmethod
    def _copied(self, place: Placement) -> bytes:
        """All of a buffer's allocation; never asked for an empty one."""

    def _arena(self, size_bytes: int, zones: ZonePattern) -> None:
        """There is no arena: its buffers are allocated one by one."""

    def _fill(self, contents: Sequence[Content]) -> None:
        for place, recipe in contents:
            elements = place.size_bytes // DTYPES[place.dtype].size_bytes
            if elements:
                self._write(place, generate(recipe, elements, size_bytes=place.size_bytes))

    def _read(self, place: Placement) -> bytes:
        memory = self._copied(place) if place.size_bytes else b""
        starts = (start - place.offset_bytes for start in place.runs())
        return b"".join(memory[start : start + place.run_bytes] for start in starts)

    # What a sanitizer's session has no use for ---------------------------------------------------------------------

    def _scrub(self, seed: str) -> None:
        raise _refusal("scrub")

    def _segment(self, step: Segment) -> Stamps:
        raise _refusal(step.do)

    def _stage(self, step: Stage) -> None:
        raise _refusal(step.do)

    def _go(self) -> Spans:
        raise _refusal("go")

    def _contend(self, step: Contend) -> bool:
        raise _refusal(step.do)

    def _copy(self, size_bytes: int, times: int) -> Sequence[tuple[int, int]]:
        raise _refusal("copy")

    def _digest(self, places: Sequence[Placement]) -> tuple[str, ...]:
        raise _refusal("digest")

    def _zones(self) -> Damage:
        raise _refusal("zones")

    def _unwritten(self, place: Placement, poison: Poison, beside: Placement | None) -> Equal:
        raise _refusal("unwritten")

    def _kernel(self, arm: ArmName, symbol: str, launch: Kernel | None) -> Answer:
        raise _refusal(f"a query for {symbol}")


def _refusal(what: str) -> StepRefused:
    return StepRefused(f"{what} under a sanitizer")
