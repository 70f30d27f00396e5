"""cohort.yaml and route.yaml as they are written: formulas and placeholders are still text (DESIGN section 6)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, JsonValue, StringConstraints, Tag

from qualify.contract import Fill, Numeric, ScratchInit, Symbol, Timing
from qualify.model import Document, Name, Segment, integer_as_text

#: A closed integer expression over the cell (R6.1); a bare integer is one too.
Formula = Annotated[str, BeforeValidator(integer_as_text)]
#: Text in which `{name}` stands for a name of the cell, or `{runtime}`.
Template = Annotated[str, BeforeValidator(integer_as_text), StringConstraints(max_length=1024)]
Extent = Annotated[tuple[Formula, ...], Field(min_length=1, max_length=3)]


class ScalarMemberRow(Document):
    """A number inside a struct; offset in bytes."""

    name: Name
    offset: Annotated[int, Field(ge=0)]
    dtype: Template
    value: Formula


class PointerMemberRow(Document):
    """The address of the buffer `to` inside a struct; offset in bytes."""

    name: Name
    offset: Annotated[int, Field(ge=0)]
    to: Name


def _member_kind(value: Any) -> str:
    return "pointer" if isinstance(value, dict) and "to" in value else "scalar"


MemberRow = Annotated[
    Annotated[ScalarMemberRow, Tag("scalar")] | Annotated[PointerMemberRow, Tag("pointer")],
    Discriminator(_member_kind),
]


class StrideRow(Document):
    """The stride of an axis of the buffer `of`, in elements; every stride is a multiple of `multiple`."""

    of: Name
    axis: Annotated[int, Field(ge=0)]
    multiple: Formula = "1"


class ArgumentRow(Document):
    """One argument of the ABI. Which fields a kind takes and needs is a table in `qualify.cohort.contents`."""

    name: Name
    kind: str
    dtype: Template | None = None
    shape: tuple[Formula, ...] | None = None
    size: Formula | None = None
    align: int = 1
    fill: Fill | None = None
    value: Formula | None = None
    init: ScratchInit | None = None
    stride: StrideRow | None = None
    type: Name | None = None
    members: Annotated[tuple[MemberRow, ...], Field(min_length=1)] | None = None
    to: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    count: Formula | None = None
    step: Formula | None = None
    of: Name | None = None
    dims: tuple[Formula, ...] | None = None
    strides: tuple[Formula, ...] | None = None
    box: tuple[Formula, ...] | None = None
    swizzle: Literal[0, 32, 64, 128] | None = None


class KernelRow(Document):
    """One kernel launch: grid and cluster in blocks, block in threads, shared in bytes, carve_out in percent."""

    symbol: Symbol
    grid: Extent
    block: Extent
    cluster: Extent | None = None
    shared: Formula = "0"
    cooperative: bool = False
    carve_out: Formula | None = None
    arguments: tuple[Name, ...] | None = None


class MemsetRow(Document):
    """Every byte of a buffer set to one value."""

    memset: Name
    byte: Annotated[int, Field(ge=0, le=255)] = 0


def _launch_kind(value: Any) -> str:
    return "memset" if isinstance(value, dict) and "memset" in value else "kernel"


LaunchRow = Annotated[
    Annotated[KernelRow, Tag("kernel")] | Annotated[MemsetRow, Tag("memset")], Discriminator(_launch_kind)
]


class RouteRow(Document):
    """One route: what is compiled and launched, and the cells that it admits."""

    fragments: Annotated[tuple[Template, ...], Field(min_length=1)]
    launches: Annotated[tuple[LaunchRow, ...], Field(min_length=1)]
    admits: Formula | None = None
    frontend: Literal["cuda", "opencl", "simulated"] | None = None
    options: tuple[str, ...] = ()
    defines: dict[Name, Template] = {}
    target: str | None = None


class ComparatorRow(Document):
    """An outside implementation to measure for the record: its literal name, with compute and math mode.

    `source` is file.py:function beside cohort.yaml, `needs` the command that installs what it imports.
    """

    name: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    source: str
    runtimes: Annotated[tuple[Literal["cuda", "simulated"], ...], Field(min_length=1)]
    needs: str | None = None


class CohortRow(Document):
    """A whole cohort.yaml."""

    operation: Segment
    dispatcher_revision: Annotated[int, Field(ge=1)]
    arguments: Annotated[tuple[ArgumentRow, ...], Field(min_length=1)]
    cells: Annotated[tuple[dict[Name, JsonValue], ...], Field(min_length=1)]
    routes: dict[Segment, RouteRow]
    plain: Segment
    bits: Literal["own", "identical"]
    numeric: Numeric
    reference: str
    timing: Timing = Timing()
    moved_bytes: Formula | None = None
    operations: Formula | None = None
    state: tuple[Name, ...] = ()
    comparators: tuple[ComparatorRow, ...] = ()
