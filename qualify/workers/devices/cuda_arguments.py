"""What kernels on a CUDA board read and never change, though it is no input: tables of addresses, and constants."""

from __future__ import annotations

from dataclasses import dataclass

from cuda.bindings import driver

from qualify.steps import Damage, Placement
from qualify.workers.devices.base import StepRefused
from qualify.workers.devices.cuda_driver import DriverError, call
from qualify.workers.devices.cuda_harness import CudaHarness


@dataclass(frozen=True)
class Watched:
    """Bytes as they were written, and the offset in the arena under which a change of them is told."""

    offset_bytes: int
    data: bytes


class Watch:
    """What was written and what is there, compared whenever zones are."""

    def __init__(self, harness: CudaHarness) -> None:
        self._harness = harness
        self._tables: dict[int, Watched] = {}
        self._constants: dict[int, tuple[Placement, int]] = {}

    def table(self, place: Placement, address: int, data: bytes) -> None:
        """Write a table of addresses to its buffer."""
        self._harness.write(address, data)
        self._tables[address] = Watched(place.offset_bytes, data)

    def constant(self, variable: int, place: Placement, address: int) -> None:
        """Copy a buffer to a variable of a module. Raises StepRefused if the driver does not."""
        try:
            call(driver.cuMemcpyDtoDAsync, variable, address, place.size_bytes, self._harness.stream)
            self._harness.wait()
        except DriverError as error:
            raise StepRefused(f"constant {place.buffer}: {error}") from error
        self._constants[variable] = place, address

    def refilled(self, place: Placement) -> None:
        """A buffer has new contents, which its variable gets before the next launch."""
        self._constants = {each: held for each, held in self._constants.items() if held[0] != place}

    def with_damage(self, around: Damage) -> Damage:
        """The damage around buffers, and what changed of tables and constants."""
        found = around
        watched = [
            *self._tables.items(),
            *(
                (variable, Watched(place.offset_bytes, self._harness.download(address, place.size_bytes)))
                for variable, (place, address) in self._constants.items()
            ),
        ]
        for address, each in watched:
            found = _joined(found, changed(each, self._harness.download(address, len(each.data))))
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
