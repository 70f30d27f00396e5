"""The words that a measuring worker understands, and its answers.

A worker interprets steps and knows no verdict; a gate composes them (`qualify.program`) and needs no worker code.
Buffers are named `<argument>.<set>`: set 0 for a checked launch, one set a pass for a timed segment. Device steps
end before the next is announced, so that a loss has an owner (DESIGN section 3).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from qualify.contract import Kernel, Launch, Module, TensorMap
from qualify.domain import Board
from qualify.model import Document, Hex16, Hex64, Json, Name
from qualify.placement import Placement

ArmName = Literal["candidate", "incumbent"]
#: A queue takes about a thousand calls before it makes the host wait; more than this are not held back together.
MAX_HELD_CALLS = 256


class Load(Document):
    """Load object code, the next raw buffer of the message, as `arm`.

    `symbols` are the contract's; `linkage_names` gives those that the object spells otherwise.
    """

    do: Literal["load"] = "load"
    arm: ArmName
    object_blake3: Hex64
    symbols: tuple[str, ...]
    linkage_names: dict[str, str] = {}


class Table(Document):
    """A buffer of addresses: of each buffer of `to` in turn, `count` addresses `step_bytes` apart."""

    buffer: str
    to: tuple[str, ...]
    count: Annotated[int, Field(ge=1)]
    step_bytes: Annotated[int, Field(ge=0)]


class Arena(Document):
    """Allocate the session's one arena, write the zone pattern over it, then tables. Nothing is ever freed (R9.1).

    The pattern, or its complement: whatever is read of one has a large value in one of the two.
    """

    do: Literal["arena"] = "arena"
    size_bytes: Annotated[int, Field(gt=0)]
    placements: tuple[Placement, ...]
    zone_seed: Hex16
    zone_complement: bool = False
    tables: tuple[Table, ...] = ()


class Values(Document):
    """Seeded values (R5.6): fixed point with 32 fraction bits, then one correctly rounded conversion to `dtype`.

    normal: base + scale * (sum of twelve 16-bit words, centred) / 65,536. uniform: base + scale * word / 2^32.
    One element in eight takes one of `specials` (bit patterns) where there are any.
    """

    make: Literal["values"] = "values"
    dtype: Name
    distribution: Literal["normal", "uniform"]
    base: int
    scale: int
    seed: Hex16
    specials: tuple[int, ...] = ()


class Poison(Document):
    """Finite random bits whose complement is finite too; run i+1 uses the complement of run i (R9.1)."""

    make: Literal["poison"] = "poison"
    dtype: Name
    seed: Hex16
    complement: bool = False


class Zeros(Document):
    """All bits zero."""

    make: Literal["zeros"] = "zeros"


Recipe = Annotated[Values | Poison | Zeros, Field(discriminator="make")]


class Fill(Document):
    """Write a recipe's values to every element of a buffer."""

    do: Literal["fill"] = "fill"
    buffer: str
    recipe: Recipe


class Fills(Document):
    """Several fills in one step: a timed session has thousands, and each step costs both sides a message."""

    do: Literal["fills"] = "fills"
    fills: tuple[Fill, ...]


class Scrub(Document):
    """Overwrite the shared memory of every multiprocessor with a pattern (R9.3)."""

    do: Literal["scrub"] = "scrub"
    seed: Hex16


class Patch(Document):
    """A place in a value where the address of a buffer goes; the buffer is named without its set."""

    offset_bytes: Annotated[int, Field(ge=0)]
    buffer: str


class Slot(Document):
    """One argument as launched: a buffer's name without its set, or a value's little-endian bytes in hex.

    `patches` are the addresses that a value holds; a `tensor` is encoded by the device. With a `symbol`, the buffer is
    no parameter but copied to that variable of the arm's module before the step's first launch, and kept by zones.
    """

    argument: Name
    buffer: str | None = None
    value: str | None = None
    patches: tuple[Patch, ...] = ()
    tensor: TensorMap | None = None
    symbol: Name | None = None


class Launching(Document):
    """What every step says that launches a route: whose, how, and with which arguments."""

    arm: ArmName
    launches: tuple[Launch, ...]
    slots: tuple[Slot, ...]


class Run(Launching):
    """Execute a route's launches once on one set of buffers and wait for the end."""

    do: Literal["launch"] = "launch"
    set: int = 0


class Segment(Launching):
    """One timed segment in the order of R10.3, steps 1 to 10; stamps and digests come back.

    `lead_in` and `timed` name one set a pass, `bystander` a set of no pass, where every change is damage. `passes` make
    one unit, with `graph` one replay. `poisoned` lists (argument, dtype): in all these sets poisoned under `seed`.
    """

    do: Literal["segment"] = "segment"
    lead_in: tuple[int, ...]
    timed: tuple[int, ...]
    bystander: int | None = None
    passes: Annotated[int, Field(ge=1)] = 1
    graph: bool = False
    poisoned: tuple[tuple[Name, Name], ...]
    digested: tuple[Name, ...]
    seed: Hex16
    flush_bytes: Annotated[int, Field(ge=0)]


class Stage(Launching):
    """Hold `rounds` passes over each of `sets`, in order, ready to run; nothing of them runs before Go.

    No buffer is poisoned and no cache flushed in between: this is for the parent's own clock (R10.9), which counts
    from its request to go until the answer.
    """

    do: Literal["stage"] = "stage"
    sets: Annotated[tuple[int, ...], Field(min_length=1)]
    rounds: Annotated[int, Field(ge=1)]


class Go(Document):
    """Run what was staged for `arm`, and wait for its end. The next step after a Stage, and no other, is this."""

    do: Literal["go"] = "go"
    arm: ArmName


class Capture(Launching):
    """Record a route's launches once, on one set of buffers, as the graph of `arm`; nothing of them runs (R9.3).

    Only where the runtime has graphs (`Domain.has_graphs`).
    """

    do: Literal["capture"] = "capture"
    set: int = 0


class Replay(Document):
    """Run the graph that was captured last for `arm` once, and wait for its end."""

    do: Literal["replay"] = "replay"
    arm: ArmName


class Contend(Launching):
    """Execute a route's launches once while a second queue is busy, and wait for both (R9.3).

    The second queue does neutral work of the harness's own; with `beside`, it executes the same launches on that set,
    again and again.
    """

    do: Literal["contend"] = "contend"
    set: int = 0
    beside: int | None = None


class Copy(Document):
    """Copy `size_bytes` of neutral memory `times` times in a row, with the harness's own kernel."""

    do: Literal["copy"] = "copy"
    size_bytes: Annotated[int, Field(gt=0)]
    times: Annotated[int, Field(ge=1, le=1000)]


class Digest(Document):
    """FNV-1a 64 over the logical elements of each buffer, row-major, little-endian (R9.4)."""

    do: Literal["digest"] = "digest"
    buffers: tuple[str, ...]


class Zones(Document):
    """Compare every byte outside the placements with the zone pattern, tables and constants with what was written."""

    do: Literal["zones"] = "zones"


class Unwritten(Document):
    """Count the elements of a buffer that still equal a poison; `beside` another, also its complement there.

    The other is the same argument in another set.
    """

    do: Literal["unwritten"] = "unwritten"
    buffer: str
    poison: Poison
    beside: str | None = None


class Read(Document):
    """Copy a buffer's bytes into the message."""

    do: Literal["read"] = "read"
    buffer: str


class Source(Document):
    """Compile a module here and load it as `arm`, where source is taken. Its fragments are the next buffers."""

    do: Literal["source"] = "source"
    arm: ArmName
    module: Module
    symbols: tuple[str, ...]


class Plant(Document):
    """Run the harness's own kernels that each make one known error; a sanitizer that works reports every one."""

    do: Literal["plant"] = "plant"


class Told(Document):
    """What the sanitizer said since it was last asked: its report of errors, or what it printed beside that."""

    do: Literal["told"] = "told"
    stream: Literal["report", "output"]


class Query(Document):
    """Ask for the device, for a loaded kernel, or (simulated only) for the trace of device operations.

    With a `launch` of the kernel, the answer says what of it can be resident too, as far as the device tells.
    """

    do: Literal["query"] = "query"
    what: Literal["device", "kernel", "trace"]
    arm: ArmName | None = None
    symbol: str | None = None
    launch: Kernel | None = None


_Owned = Load | Source | Run | Segment | Stage | Go | Capture | Replay | Contend
_Memory = Arena | Fill | Fills | Scrub | Copy | Digest | Zones | Unwritten | Read
Step = Annotated[_Owned | _Memory | Plant | Told | Query, Field(discriminator="do")]


class Done(Document):
    """A step that has nothing to tell but that it ended."""

    did: Literal["done"] = "done"


class Refused(Document):
    """The device or its driver refused a step (a bad launch, an unknown symbol). No later step was run."""

    did: Literal["refused"] = "refused"
    error: str


class Digests(Document):
    """One digest a buffer, in the order asked."""

    did: Literal["digests"] = "digests"
    values: tuple[Hex16, ...]


class Damage(Document):
    """Bytes that were nobody's to change and did: how many, and the first as an offset into the arena."""

    did: Literal["damage"] = "damage"
    bytes: int
    first_offset: int | None


class Equal(Document):
    """Elements that equal the poison: how many, and the first index."""

    did: Literal["equal"] = "equal"
    elements: int
    first_index: int | None


class Bytes(Document):
    """A buffer's content; the bytes are the next raw buffer of the message."""

    did: Literal["bytes"] = "bytes"
    size_bytes: int


class Stamps(Document):
    """One segment's clock in nanoseconds, START of the first timed launch then END of each unit, and its checks.

    `digests` holds one row a set in the order lead-in then timed, one digest a `digested` argument.
    """

    did: Literal["stamps"] = "stamps"
    start_ns: int
    unit_end_ns: tuple[int, ...]
    digests: tuple[tuple[Hex16, ...], ...]
    damage: Damage
    host_bound: bool | None


class Spans(Document):
    """The device's clock in nanoseconds: START of the first and END of the last launch of each thing asked.

    One span of all that Go ran, or one for each copy.
    """

    did: Literal["spans"] = "spans"
    start_ns: tuple[int, ...]
    end_ns: tuple[int, ...]


class Census(Document):
    """The nodes of a captured graph."""

    did: Literal["census"] = "census"
    kernels: Annotated[int, Field(ge=0)]
    memsets: Annotated[int, Field(ge=0)]
    others: Annotated[int, Field(ge=0)]


class Contended(Document):
    """`busy`: the second queue was at work before the launches began, and still after they ended."""

    did: Literal["contended"] = "contended"
    busy: bool


class Answer(Document):
    """What a query found."""

    did: Literal["answer"] = "answer"
    board: Board | None = None
    facts: Json = None


Record = Annotated[
    Done | Refused | Digests | Damage | Equal | Bytes | Stamps | Spans | Census | Contended | Answer,
    Field(discriminator="did"),
]


def owner(step: Step) -> ArmName | None:
    """The arm whose code a step can run; a worker lost in any other step is the rig's loss."""
    return step.arm if isinstance(step, _Owned) else None
