"""Domains: a toolkit and an architecture. A verdict holds in one domain and never crosses it."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from qualify.model import Document, Segment

Runtime = Literal["cuda", "opencl", "simulated"]
#: What a verdict may claim about hostile candidates (DESIGN section 13).
Trust = Literal["hostile", "cooperative", "simulated"]

_RUNTIMES: dict[str, Runtime] = {"cuda": "cuda", "pocl": "opencl", "simulated": "simulated"}
_TRUST: dict[Runtime, Trust] = {"cuda": "hostile", "opencl": "cooperative", "simulated": "simulated"}
#: Runtimes that capture launches as graphs.
_GRAPHS: frozenset[Runtime] = frozenset({"cuda", "simulated"})

ToolkitName = Annotated[str, StringConstraints(pattern=r"^(cuda|pocl|simulated)-[0-9]{1,3}\.[0-9]{1,3}$")]
ArchName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,40}$")]


class Domain(Document):
    """A toolkit (major.minor) and the board's architecture, `cuda-13.2/sm_90`."""

    toolkit: ToolkitName
    arch: ArchName

    @property
    def runtime(self) -> Runtime:
        """The launch interface that the toolkit's name implies."""
        return _RUNTIMES[self.toolkit.partition("-")[0]]

    @property
    def has_graphs(self) -> bool:
        """Whether launches can be captured once and replayed."""
        return self.runtime in _GRAPHS

    @property
    def trust(self) -> Trust:
        """A kernel on a CPU device has the rights of its worker, so only cooperation can be assumed there."""
        return _TRUST[self.runtime]

    def __str__(self) -> str:
        return f"{self.toolkit}/{self.arch}"


def arch_name(text: str) -> str:
    """A device's own name for its architecture as a path segment: lower case, other bytes become `-`."""
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-")[:40] or "unknown"


class Limits(Document):
    """What a target can do, from the device or from a sourced table; None is unknown."""

    block_threads: int | None = None
    block: tuple[int, int, int] | None = None
    grid: tuple[int, int, int] | None = None
    shared_bytes: int | None = None
    parameter_bytes: int | None = None
    compute_units: int | None = None
    memory_bytes: int | None = None
    cache_bytes: int | None = None
    source: str


class Board(Document):
    """The device that a time belongs to (R7.1); None where the runtime does not say."""

    name: str
    uuid: str
    driver: str
    addressing: Literal["device", "host", "hmm", "ats", "unknown"]
    limits: Limits

    def keeps_times_of(self, other: Board) -> bool:
        """Whether a time of the other is this board's too: all but the UUID is the same (R7.1)."""
        return self.model_copy(update={"uuid": other.uuid}) == other


Positive = Annotated[int, Field(ge=1)]


class Calibrated(Document):
    """What calibration runs found of a board, as pipelines.yaml cites them (R10.10); None is not known.

    `delta_ppm` is by how much identical arms may differ, `short_delta_ppm` where a unit is several passes. Bytes of a
    copy count read and written. Peaks are what the board's maker states; a run does not find them.
    """

    calibration: Annotated[tuple[Segment, ...], Field(min_length=1)]
    driver: str
    delta_ppm: Positive | None = None
    short_delta_ppm: Positive | None = None
    copy_bytes_per_s: Positive | None = None
    launch_ns: Positive | None = None
    quantum_ns: Positive | None = None
    peak_bytes_per_s: Positive | None = None
    peak_operations_per_s: Positive | None = None
