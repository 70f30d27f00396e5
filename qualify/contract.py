"""The contract of a cell, resolved to integers: arguments, launches, routes, modules.

cohort.yaml writes these with expressions (`qualify.cohort`); here every expression is a number, because this is
what is frozen, hashed, given to workers and read by judges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from qualify.domain import Runtime
from qualify.elements import SpecialKind
from qualify.model import Document, Hex64, Name, Ratio, Segment, absent

ArgumentKind = Literal["input", "output", "inout", "scratch", "scalar", "struct", "pointers", "constant", "tensormap"]
#: Kinds whose bytes are the parameter itself; all others are buffers.
BY_VALUE = frozenset({"scalar", "struct", "tensormap"})
ScratchInit = Literal["poison", "zero-by-route", "zero-at-load"]
#: The same cell under other values or placement. Never another shape (R6.4).
Variant = Literal["ordinary", "exceptional", "strided"]
Symbol = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_:<>, ]{0,2047}$")]


class Normal(Document):
    """Twelve summed 16-bit words: mean and scale (one standard deviation) of the values."""

    mean: Ratio
    scale: Ratio


class Uniform(Document):
    """Equal chances from low (included) to high (left out)."""

    low: Ratio
    high: Ratio


class Fill(Document):
    """The distribution of an input's values under a secret seed; exactly one is named.

    `exceptional` names the kinds of special values of that variant, where the operation does not define a result for
    all of them: a sum of products that overflow depends on their order.
    """

    normal: Normal | None = None
    uniform: Uniform | None = None
    exceptional: Annotated[tuple[SpecialKind, ...] | None, Field(min_length=1, exclude_if=absent)] = None

    @model_validator(mode="after")
    def _one(self) -> Fill:
        if (self.normal is None) == (self.uniform is None):
            raise ValueError("name exactly one of normal and uniform")
        return self


class ScalarMember(Document):
    """A number inside a struct, at its offset."""

    name: Name
    offset_bytes: Annotated[int, Field(ge=0)]
    dtype: Name
    value: Ratio


class PointerMember(Document):
    """The address of a buffer argument inside a struct, at its offset."""

    name: Name
    offset_bytes: Annotated[int, Field(ge=0)]
    to: Name


class Struct(Document):
    """What a struct passed by value holds, laid out as its type `type_name` is. Bytes between members are zero."""

    type_name: Name
    members: tuple[ScalarMember | PointerMember, ...]


class PointerTable(Document):
    """What a buffer of addresses holds: of each buffer of `to` in turn, `count` addresses `step_bytes` apart."""

    to: Annotated[tuple[Name, ...], Field(min_length=1)]
    count: Annotated[int, Field(ge=1)] = 1
    step_bytes: Annotated[int, Field(ge=0)] = 0


class TensorMap(Document):
    """How hardware copies boxes of a buffer: sizes in elements, the fastest axis first.

    `strides_bytes` are those of the axes behind the first, whose elements lie side by side. What lies outside is read
    as zero.
    """

    of: Name
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: Literal[0, 32, 64, 128] = 0


class Stride(Document):
    """What a scalar tells of a buffer: the stride of an axis, in elements, always a multiple of `multiple`."""

    of: Name
    axis: Annotated[int, Field(ge=0)]
    multiple: Annotated[int, Field(ge=1)] = 1


class Argument(Document):
    """One argument of the ABI, in order. `shape` is in elements, `align` in bytes; a scalar has a `value`.

    Structs and tensor maps are parameters of `shape` bytes, pointers are a buffer of addresses; `holds` describes
    them. A scalar that tells a `stride` has as its value what it is where elements lie in a row. Fields that an
    argument of an older kind does not have are left out of its bytes, so that what was frozen without them is spelled
    as it was.
    """

    name: Name
    kind: ArgumentKind
    dtype: Name
    shape: tuple[int, ...] = ()
    align: int = 1
    fill: Fill | None = None
    value: Ratio | None = None
    init: ScratchInit | None = None
    holds: Annotated[Struct | PointerTable | TensorMap | None, Field(exclude_if=absent)] = None
    stride: Annotated[Stride | None, Field(exclude_if=absent)] = None

    @property
    def elements(self) -> int:
        """The number of elements; 1 for a scalar."""
        return prod(self.shape)

    @property
    def is_buffer(self) -> bool:
        """Whether the argument is passed as a pointer to device memory."""
        return self.kind not in BY_VALUE


class Kernel(Document):
    """One kernel launch: grid in blocks, block in threads, dynamic shared memory in bytes.

    `cluster` is in blocks. `carve_out_percent` is the part of a multiprocessor's memory that the launch prefers as
    shared memory; None leaves it to the driver.
    """

    symbol: Symbol
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None = None
    shared_bytes: int = 0
    cooperative: bool = False
    carve_out_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    arguments: tuple[Name, ...] | None = None

    @property
    def threads(self) -> int:
        """Threads of one block."""
        return prod(self.block)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return prod(self.grid)


class Memset(Document):
    """One step of a route that sets every byte of a buffer."""

    memset: Name
    byte: Annotated[int, Field(ge=0, le=255)] = 0


Launch = Kernel | Memset


def symbols(launches: Iterable[Launch]) -> tuple[str, ...]:
    """What launches run, each once, in order of first use: names or template instances."""
    return tuple(dict.fromkeys(launch.symbol for launch in launches if isinstance(launch, Kernel)))


class Arm(Document):
    """One route of a subject: what is loaded and launched, and the target that it is compiled for.

    `identity` and `target` are None if it could not be composed.
    """

    route: Segment
    identity: Hex64 | None
    error: str | None = None
    target: str | None = None
    launches: tuple[Launch, ...]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The launches that run code."""
        return tuple(launch for launch in self.launches if isinstance(launch, Kernel))

    @property
    def symbols(self) -> tuple[str, ...]:
        """The entry points that the route launches, each once, in order of first use."""
        return symbols(self.launches)


class FragmentRef(Document):
    """One source file of a module: its path in the workspace's cohorts folder and the BLAKE3 of its bytes."""

    path: str
    blake3: Hex64


class Module(Document):
    """Everything that a compiler is told. Its identity is the keyed BLAKE3 of these canonical bytes (R6.3)."""

    format: Literal[1] = 1
    frontend: Literal["cuda", "opencl", "simulated"]
    runtime: Runtime
    fragments: tuple[FragmentRef, ...]
    options: tuple[str, ...]
    defines: dict[str, str]
    launches: tuple[Launch, ...]
    arguments: tuple[Argument, ...]
    target: str
    toolkit_build: str


class Cell(Document):
    """One point of an operation: integers for expressions, names for `{placeholders}`."""

    id: Segment
    integers: dict[Name, int]
    names: dict[Name, str]
    timed: bool = True


class Numeric(Document):
    """When an output is close enough to the exact one (gate numeric)."""

    multiple: Ratio = "2"
    floor_ulp: Annotated[int, Field(ge=0)] = 4
    cap_relative: Ratio


class Timing(Document):
    """What a time is for: eager launches or graph replays, with cold or hot caches."""

    use: Literal["launch", "graph"] = "launch"
    cache: Literal["cold", "hot"] = "cold"


@dataclass(frozen=True)
class Composed:
    """A module with its fragments' text by path, ready for a compiler; `identity` is the module's keyed BLAKE3."""

    module: Module
    identity: str
    fragments: Mapping[str, bytes]


@dataclass(frozen=True)
class ReferenceSource:
    """The contract's exact reference: trusted Python of the workspace, run in the reference worker only."""

    path: str
    code: bytes
    function: str
