"""What kernels on a CUDA board read and never change, though it is no input: tables of addresses."""

from __future__ import annotations

from dataclasses import dataclass

from qualify.steps import Damage, Placement
from qualify.workers.devices.cuda_harness import CudaHarness


@dataclass(frozen=True)
class Watched:
    """Bytes at an address, which a kernel finds at an offset of the arena."""

    address: int
    offset_bytes: int
    data: bytes


class Watch:
    """What was written once, compared with what is there whenever zones are."""

    def __init__(self, harness: CudaHarness) -> None:
        self._harness = harness
        self._tables: list[Watched] = []

    def table(self, place: Placement, address: int, data: bytes) -> None:
        """Write a table of addresses to its buffer."""
        self._harness.write(address, data)
        self._tables.append(Watched(address, place.offset_bytes, data))

    def with_damage(self, around: Damage) -> Damage:
        """The damage around buffers, and what changed of the tables."""
        found = around
        for each in self._tables:
            found = _joined(found, changed(each, self._harness.download(each.address, len(each.data))))
        return found


def changed(watched: Watched, got: bytes) -> Damage:
    """Which bytes are others than those that were written."""
    if got == watched.data:
        return Damage(bytes=0, first_offset=None)
    wrong = [at for at, (one, other) in enumerate(zip(watched.data, got, strict=True)) if one != other]
    return Damage(bytes=len(wrong), first_offset=watched.offset_bytes + wrong[0])


def _joined(one: Damage, other: Damage) -> Damage:
    firsts = [each.first_offset for each in (one, other) if each.first_offset is not None]
    return Damage(bytes=one.bytes + other.bytes, first_offset=min(firsts, default=None))
