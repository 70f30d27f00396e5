"""Object code: what a compiler made of a module, and what its report says; None is unknown, never zero."""

from __future__ import annotations

from typing import Literal

from qualify.domain import Limits
from qualify.model import Document, Hex64


class Parameter(Document):
    """One parameter of an entry point as the object or the compiler describes it."""

    name: str | None = None
    kind: Literal["pointer", "value", "local"] | None = None
    type_name: str | None = None
    address_space: str | None = None
    offset_bytes: int | None = None
    size_bytes: int | None = None


class Entry(Document):
    """One kernel of an object: ABI and resources for a thread or a block of it."""

    symbol: str
    parameters: tuple[Parameter, ...] | None = None
    registers_per_thread: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    stack_bytes: int | None = None
    shared_bytes: int | None = None
    private_bytes: int | None = None
    barriers: int | None = None
    block_threads: int | None = None


class Built(Document):
    """The answer of a compile worker. A refusal is an answer too: state, log, no object."""

    state: Literal["built", "refused"]
    log: str
    log_bytes: int
    entries: tuple[Entry, ...]
    object_blake3: Hex64 | None
    object_bytes: int | None
    extension: str
    reproducible: bool
    limits: Limits

    def entry(self, symbol: str) -> Entry | None:
        """The entry of that name, or None."""
        return next((entry for entry in self.entries if entry.symbol == symbol), None)
