"""What launches are given: buffers of a set by name, values with addresses in them, tensor maps, tables."""

from __future__ import annotations

from collections.abc import Sequence

from qualify.contract import Kernel, Memset, TensorMap
from qualify.placement import Placement
from qualify.steps import Slot, Table

#: A launch's argument: a place in the arena, or a scalar's little-endian bytes.
Bound = Placement | bytes


class StepRefused(Exception):
    """The device or its driver refuses a step; `error` is what the record says."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


def in_a_row(place: Placement) -> Placement:
    """The placement. Raises StepRefused if its elements do not lie in a row."""
    if place.axes:
        raise StepRefused(f"the elements of {place.buffer} do not lie in a row")
    return place


class Binding:
    """The buffers of an arena by name, and how launches find them."""

    def __init__(self) -> None:
        self._places: dict[str, Placement] = {}

    def _place(self, buffer: str) -> Placement:
        place = self._places.get(buffer)
        if place is None:
            raise StepRefused(f"no buffer {buffer} in the arena")
        return place

    def _bind(self, kernel: Kernel, slots: Sequence[Slot], number: int) -> tuple[Bound, ...]:
        """A kernel's arguments in order, on set `number`: all slots, or those that the launch names."""
        by_name = {slot.argument: slot for slot in slots}
        names = tuple(by_name) if kernel.arguments is None else kernel.arguments
        unknown = [name for name in names if name not in by_name]
        if unknown or len(by_name) != len(slots):
            raise StepRefused(f"{kernel.symbol}: no argument, or two, of the name {', '.join(unknown)}")
        return tuple(self._bound(by_name[name], number) for name in names if by_name[name].symbol is None)

    def _bound(self, slot: Slot, number: int) -> Bound:
        if [slot.buffer, slot.value, slot.tensor].count(None) != 2:
            raise StepRefused(f"{slot.argument} is not one of a buffer, a value and a tensor map")
        if slot.tensor is not None:
            return self._tensor_map(in_a_row(self._place(f"{slot.tensor.of}.{number}")), slot.tensor)
        if slot.buffer is not None:
            return self._place(f"{slot.buffer}.{number}")
        try:
            value = bytearray.fromhex(slot.value or "")
        except ValueError as error:
            raise StepRefused(f"{slot.argument}: {error}") from error
        for patch in slot.patches:
            address = self._address(self._place(f"{patch.buffer}.{number}")).to_bytes(8, "little")
            if patch.offset_bytes + len(address) > len(value):
                raise StepRefused(f"{slot.argument}: an address at {patch.offset_bytes} of {len(value)} bytes")
            value[patch.offset_bytes : patch.offset_bytes + len(address)] = address
        return bytes(value)

    def _addresses(self, table: Table) -> bytes:
        """The little-endian addresses of a table. Raises StepRefused where one of them is outside its buffer."""
        found = bytearray()
        for place in (in_a_row(self._place(buffer)) for buffer in table.to):
            if (table.count - 1) * table.step_bytes >= place.size_bytes:
                raise StepRefused(f"{table.buffer}: an address beyond the {place.size_bytes} bytes of {place.buffer}")
            start = self._address(place)
            for at in range(table.count):
                found += (start + at * table.step_bytes).to_bytes(8, "little")
        size = self._place(table.buffer).size_bytes
        if size != len(found):
            raise StepRefused(f"{table.buffer}: {len(found)} bytes of addresses in a buffer of {size}")
        return bytes(found)

    def _memset_place(self, memset: Memset, slots: Sequence[Slot], number: int) -> Placement:
        for slot in slots:
            if slot.argument == memset.memset and slot.buffer is not None:
                return in_a_row(self._place(f"{slot.buffer}.{number}"))
        raise StepRefused(f"memset of {memset.memset}, which is no buffer argument")

    # What only some devices have ------------------------------------------------------------------------------------

    def _table(self, place: Placement, data: bytes) -> None:
        """Write addresses, and watch them from now on."""
        raise StepRefused(f"{place.buffer}: this device keeps no tables of addresses")

    def _tensor_map(self, place: Placement, held: TensorMap) -> bytes:
        """A buffer's map as it is passed."""
        raise StepRefused(f"{place.buffer}: this device has no tensor maps")

    def _address(self, place: Placement) -> int:
        """Where a buffer starts, for a kernel that loads addresses from memory."""
        raise StepRefused(f"{place.buffer}: this device gives kernels no addresses to load")
