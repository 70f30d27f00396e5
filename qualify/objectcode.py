"""Object code: what a compiler made of a module, and what its report says; None is unknown, never zero."""

from __future__ import annotations

from typing import Literal

from qualify.diagnostics import Finding
from qualify.domain import Limits
from qualify.model import Document, Hex64
from qualify.ptx import Variable


class Parameter(Document):
    """One parameter of an entry point as the object or the compiler describes it."""

    name: str | None = None
    kind: Literal["pointer", "value", "local"] | None = None
    type_name: str | None = None
    address_space: str | None = None
    offset_bytes: int | None = None
    size_bytes: int | None = None


class Entry(Document):
    """One kernel of an object: ABI and resources for a thread or a block of it.

    `symbol` is the contract's name, `linkage_name` the object's where that differs (NVRTC name expressions).
    `shared_bytes` is static. `block_threads`, `min_blocks` and `cluster` are the bounds that it was compiled under.
    """

    symbol: str
    linkage_name: str | None = None
    parameters: tuple[Parameter, ...] | None = None
    registers_per_thread: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    stack_bytes: int | None = None
    cumulative_stack_bytes: int | None = None
    constant_bytes: dict[str, int] | None = None
    shared_bytes: int | None = None
    private_bytes: int | None = None
    barriers: int | None = None
    block_threads: int | None = None
    min_blocks: int | None = None
    cluster: tuple[int, int, int] | None = None
    register_hints: bool | None = None


class Built(Document):
    """The answer of a compile worker. A refusal is an answer too: state, log, no object.

    `target` is what the object says, with its suffix; `tool` what made it; `linked` is false for an object whose
    resources a linker still decides. `device_state` is every variable in memory that code of the module names, or
    may name, so that one launch can leave something for the next; `idle_state_bytes` are those of variables that no
    code names. `undefined` are symbols that something else must bring, `special_registers` those that tell launches
    apart, `findings` what the tools said beside figures.
    """

    state: Literal["built", "refused"]
    log: str
    log_bytes: int
    entries: tuple[Entry, ...]
    object_blake3: Hex64 | None
    object_bytes: int | None
    extension: str
    reproducible: bool
    limits: Limits
    target: str | None = None
    tool: str | None = None
    linked: bool | None = None
    device_state: tuple[Variable, ...] | None = None
    idle_state_bytes: int | None = None
    undefined: tuple[str, ...] | None = None
    special_registers: tuple[str, ...] | None = None
    findings: tuple[Finding, ...] = ()

    def entry(self, symbol: str) -> Entry | None:
        """The entry of that name, or None."""
        return next((entry for entry in self.entries if entry.symbol == symbol), None)
