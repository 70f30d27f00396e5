"""Gate occupancy: at least one block of every kernel fits on a compute unit, and the grid fills enough of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import ClassVar, Literal

from qualify.contract import Kernel
from qualify.gate import Bench, Facts, Gate, Rule, Series, Settings, holds
from qualify.model import Document, Ratio, ratio
from qualify.objectcode import Built
from qualify.subject import Subject
from qualify.verdict import Check, Note

CHECKS = frozenset({"work_group", "local_memory", "fill"})


class Footprint(Document):
    """What one kernel of the object needs of a compute unit: threads that a block may have, its local memory."""

    symbol: str
    block_threads: int | None
    local_bytes: int | None


class OccupancyFacts(Facts):
    """The footprint of every kernel that the route launches, once each, in order of first use."""

    kernels: tuple[Footprint, ...]


class OccupancySettings(Settings):
    """`min_fill` is the least number of blocks for each compute unit; 0 makes the fill a finding."""

    min_fill: Ratio = "0"


def judge(
    subject: Subject, facts: OccupancyFacts, series: Series, settings: OccupancySettings
) -> Iterable[Check | Note]:
    """Every check of rule 1. A limit or a figure that nobody reports is unknown."""
    launches = subject.candidate.kernels
    if tuple(kernel.symbol for kernel in facts.kernels) != subject.candidate.symbols:
        raise ValueError(f"footprints of {len(facts.kernels)} kernels that are not those launched")
    found = {kernel.symbol: kernel for kernel in facts.kernels}
    groups = [(kernel.threads, found[kernel.symbol].block_threads, kernel.symbol) for kernel in launches]
    yield _within("work_group", groups, "threads", "at most the threads that the object allows a block")
    unit = subject.limits.shared_bytes
    local = [(_local(kernel, found[kernel.symbol].local_bytes), unit, kernel.symbol) for kernel in launches]
    yield _within("local_memory", local, "bytes", "at most the local memory of a compute unit")
    yield _fill(launches, subject.limits.compute_units, ratio(settings.min_fill))
    yield from _notes(launches, subject.limits.compute_units)


def _local(kernel: Kernel, static_bytes: int | None) -> int | None:
    return None if static_bytes is None else static_bytes + kernel.shared_bytes


def _within(name: str, rows: Sequence[tuple[int | None, int | None, str]], unit: str, want: str) -> Check:
    """Each (got, limit, symbol): the first that is over its limit, else the first that is unknown, else all hold."""
    shown = [f"{symbol}: {got} of {limit} {unit}" for got, limit, symbol in rows]
    states = [None if got is None or limit is None else 0 <= got <= limit for got, limit, _ in rows]
    if False in states:
        return holds(name, shown[states.index(False)], want, verdict=False)
    if None in states or not rows:
        return holds(name, None, want, verdict=None)
    return holds(name, ", ".join(shown), want, verdict=True)


def _fill(launches: Sequence[Kernel], units: int | None, least: Fraction) -> Check:
    """The launch that fills least, in blocks for each compute unit."""
    want = f"at least {least} blocks a compute unit"
    if not launches or units is None or units < 1:
        return holds("fill", None, want, verdict=None)
    blocks = min(kernel.blocks for kernel in launches)
    return holds("fill", f"{Fraction(blocks, units)} blocks a compute unit", want, Fraction(blocks, units) >= least)


def _notes(launches: Sequence[Kernel], units: int | None) -> Iterable[Note]:
    for kernel in launches:
        if units and kernel.blocks < units:
            got = f"{kernel.blocks} blocks on {units} compute units"
            yield Note(name="idle_units", got=got, says=f"{kernel.symbol} leaves compute units idle")


FIXES = {
    "work_group": "use fewer threads a block, or fewer private variables a thread",
    "local_memory": "declare less local memory, or split the tile",
    "fill": "launch more blocks for this cell, or keep it out by `admits`",
}


class OccupancyGate(Gate[OccupancyFacts, OccupancySettings]):
    """Residency in theory, from the object's figures and the target's limits."""

    id: ClassVar[str] = "occupancy"
    claim: ClassVar[str] = "A block of every kernel fits on a compute unit, and the grid fills as many as is asked."
    runs_on: ClassVar[Literal["host", "device"]] = "host"
    rules: ClassVar[tuple[Rule[OccupancyFacts, OccupancySettings], ...]] = (
        Rule(1, OccupancyFacts, OccupancySettings, lambda subject: CHECKS, judge, FIXES),
    )

    def measure(self, subject: Subject, bench: Bench, settings: OccupancySettings) -> OccupancyFacts:
        """The compiler's figures for each kernel that is launched; the build is there from gate compile."""
        built = bench.build(subject.candidate)
        return OccupancyFacts(kernels=tuple(_footprint(built, symbol) for symbol in subject.candidate.symbols))


def _footprint(built: Built, symbol: str) -> Footprint:
    entry = built.entry(symbol)
    return Footprint(
        symbol=symbol,
        block_threads=entry.block_threads if entry else None,
        local_bytes=entry.shared_bytes if entry else None,
    )
