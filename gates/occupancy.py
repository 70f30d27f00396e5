"""Gate occupancy: at least one block of every kernel fits on a compute unit, and the grid fills enough of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import ClassVar, Literal

from qualify import occupancy, targets
from qualify.contract import Arm, Kernel
from qualify.gate import Bench, Facts, Gate, Rule, Series, Settings, State, holds, worst_of
from qualify.model import Document, Ratio, ratio
from qualify.objectcode import Built
from qualify.occupancy import Multiprocessor, Need, Residency, UnknownCapability
from qualify.subject import Subject
from qualify.verdict import Check, Note

CHECKS = frozenset({"work_group", "local_memory", "fill"})


class Footprint(Document):
    """What a kernel of the object needs: threads that a block may have, its static shared memory, registers a thread.

    OpenCL calls shared memory local, and tells neither registers nor barriers.
    """

    symbol: str
    block_threads: int | None
    shared_bytes: int | None
    registers: int | None = None
    barriers: int | None = None


class OccupancyFacts(Facts):
    """The footprint of every kernel that the route launches, once each, in order of first use.

    For CUDA also the incumbent's, to show beside them, and the target that the candidate's object names.
    """

    kernels: tuple[Footprint, ...]
    incumbent: tuple[Footprint, ...] = ()
    target: str | None = None


class OccupancySettings(Settings):
    """`min_fill` is the least number of blocks for each compute unit; 0 makes the fill a finding."""

    min_fill: Ratio = "0"


def checks(subject: Subject) -> frozenset[str]:
    """Required names: a runtime that tells registers is asked what is resident; a cooperative grid must fit whole."""
    if subject.domain.runtime != "cuda":
        return CHECKS
    cooperative = any(kernel.cooperative for kernel in subject.candidate.kernels)
    return frozenset({"resident", "cooperative"} if cooperative else {"resident"})


def judge(
    subject: Subject, facts: OccupancyFacts, series: Series, settings: OccupancySettings
) -> Iterable[Check | Note]:
    """Every check of rule 1. A limit or a figure that nobody reports is unknown."""
    launches, units = subject.candidate.kernels, subject.limits.compute_units
    if tuple(kernel.symbol for kernel in facts.kernels) != subject.candidate.symbols:
        raise ValueError(f"footprints of {len(facts.kernels)} kernels that are not those launched")
    found = {kernel.symbol: kernel for kernel in facts.kernels}
    if subject.domain.runtime == "cuda":
        yield from _multiprocessor(subject, facts)
        if ratio(settings.min_fill):
            yield _fill(launches, units, ratio(settings.min_fill))
    else:
        groups = [(kernel.threads, found[kernel.symbol].block_threads, kernel.symbol) for kernel in launches]
        yield _within("work_group", groups, "threads", "at most the threads that the object allows a block")
        unit = subject.limits.shared_bytes
        local = [(_local(kernel, found[kernel.symbol].shared_bytes), unit, kernel.symbol) for kernel in launches]
        yield _within("local_memory", local, "bytes", "at most the local memory of a compute unit")
        yield _fill(launches, units, ratio(settings.min_fill))
    yield from _notes(launches, units)


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


# CUDA: what is resident on a multiprocessor ---------------------------------------------------------------------------


def _multiprocessor(subject: Subject, facts: OccupancyFacts) -> Iterator[Check | Note]:
    rows = _rows(subject)
    launches = subject.candidate.kernels
    found = {kernel.symbol: kernel for kernel in facts.kernels}
    known = rows if facts.target and targets.board(facts.target) == subject.domain.arch else ()
    states = [_resides(kernel, found[kernel.symbol], known) for kernel in launches]
    yield worst_of("resident", states, "a block of every kernel on a multiprocessor")
    held = [(kernel, _residency(kernel, found[kernel.symbol], known)) for kernel in launches]
    together = [_together(kernel, each, subject.limits.compute_units) for kernel, each in held if kernel.cooperative]
    if together:
        yield worst_of("cooperative", together, "all blocks of a cooperative grid at once")
    yield from _resident_notes(subject, held, _of(subject.incumbent, facts.incumbent, known))


def _rows(subject: Subject) -> tuple[Multiprocessor, ...]:
    """The table's rows with the device's own limit of a block, where it is here; none for what nobody knows."""
    try:
        return occupancy.multiprocessors(targets.number(subject.domain.arch) or 0, subject.limits.shared_bytes)
    except UnknownCapability:
        return ()


def _need(kernel: Kernel, found: Footprint) -> Need:
    return Need(kernel.threads, found.registers, _local(kernel, found.shared_bytes), found.barriers)


def _residency(kernel: Kernel, found: Footprint, rows: tuple[Multiprocessor, ...]) -> Residency | None:
    return occupancy.residency(rows, _need(kernel, found)) if rows else None


def _resides(kernel: Kernel, found: Footprint, rows: tuple[Multiprocessor, ...]) -> State:
    held = _residency(kernel, found, rows)
    if held is None:
        return f"{kernel.symbol}: no table for what the object was built for", None
    refused = _refused(kernel, found, rows[0].capability)
    if refused:
        return f"{kernel.symbol}: {refused}", False
    if held.most < 1:
        return f"{kernel.symbol}: none; {_shortfall(_need(kernel, found), rows, held)}", False
    told = found.block_threads is not None and (found.registers or 0) > 0 and held.least > 0
    return f"{kernel.symbol}: {held} blocks, limited by {held.limiter}", True if told else None


def _refused(kernel: Kernel, found: Footprint, capability: int) -> str | None:
    """What keeps the launch from running whatever it needs."""
    if found.block_threads is not None and kernel.threads > found.block_threads:
        return f"{kernel.threads} threads of {found.block_threads} that the object allows a block"
    blocks, most = _cluster_blocks(kernel), occupancy.largest_cluster(capability)
    return f"a cluster of {blocks} blocks of at most {most}" if kernel.cluster and blocks > most else None


def _cluster_blocks(kernel: Kernel) -> int:
    x, y, z = kernel.cluster or (1, 1, 1)
    return x * y * z


def _shortfall(need: Need, rows: tuple[Multiprocessor, ...], held: Residency) -> str:
    over = min(occupancy.excess_shared_bytes(row, need.shared_bytes or 0) for row in rows)
    if over:
        return f"{over} bytes of shared memory too many"
    registers = occupancy.excess_registers(need.registers or 0, need.threads)
    return f"{registers} registers too many" if registers else f"too many {held.limiter}"


def _together(kernel: Kernel, held: Residency | None, units: int | None) -> State:
    """Clusters take whole groups of multiprocessors, so that their number by blocks is a bound, and no more."""
    if held is None or units is None or units < 1:
        return f"{kernel.symbol}: {kernel.blocks} blocks on a board that is not here", None
    text = f"{kernel.symbol}: {kernel.blocks} blocks of {held} on each of {units} multiprocessors"
    if kernel.blocks > held.most * units:
        return text, False
    return text, True if kernel.blocks <= held.least * units and _cluster_blocks(kernel) == 1 else None


def _of(arm: Arm, footprints: tuple[Footprint, ...], rows: tuple[Multiprocessor, ...]) -> list[Residency | None]:
    found = {kernel.symbol: kernel for kernel in footprints}
    return [_residency(kernel, found[kernel.symbol], rows) for kernel in arm.kernels if kernel.symbol in found]


def _resident_notes(
    subject: Subject, held: Sequence[tuple[Kernel, Residency | None]], incumbent: Sequence[Residency | None]
) -> Iterator[Note]:
    """Blocks and limiter beside the incumbent's, waves where the board is known, sources that differ."""
    shown = ", ".join("unknown" if each is None else f"{each} by {each.limiter}" for each in incumbent)
    own = ", ".join(f"{kernel.symbol} " + (f"{each} by {each.limiter}" if each else "unknown") for kernel, each in held)
    yield Note(name="resident_blocks", got=own, says=f"a multiprocessor; incumbent {shown or 'not reported'}")
    least = [min((each.most for each in arm if each), default=0) for arm in ([each for _, each in held], incumbent)]
    if 0 < least[0] < least[1]:
        yield Note(name="lost_blocks", got=f"{least[1]} -> {least[0]}", says="a multiprocessor, against the incumbent")
    units = subject.limits.compute_units
    for kernel, each in held:
        if each and len({blocks for _, blocks in each.sources}) > 1:
            yield Note(
                name="sources_differ",
                got="; ".join(f"{blocks} blocks by {source}" for source, blocks in each.sources),
                says=f"{kernel.symbol}: only a board can tell",
            )
        if units and each and each.blocks:
            waves = Fraction(kernel.blocks, units * each.blocks)
            yield Note(name="waves", got=f"{kernel.symbol} {waves}", says="grids of as many blocks as are resident")


FIXES = {
    "work_group": "use fewer threads a block, or fewer private variables a thread",
    "local_memory": "declare less local memory, or split the tile",
    "resident": "use fewer threads, registers or shared memory a block, or keep the cell out by `admits`",
    "cooperative": "launch at most the resident blocks times the multiprocessors, or screen beside the board",
    "fill": "launch more blocks for this cell, or keep it out by `admits`",
}


class OccupancyGate(Gate[OccupancyFacts, OccupancySettings]):
    """Residency in theory, from the object's figures and the target's limits."""

    id: ClassVar[str] = "occupancy"
    claim: ClassVar[str] = "A block of every kernel fits on a compute unit, and the grid fills as many as is asked."
    runs_on: ClassVar[Literal["host", "device"]] = "host"
    rules: ClassVar[tuple[Rule[OccupancyFacts, OccupancySettings], ...]] = (
        Rule(1, OccupancyFacts, OccupancySettings, checks, judge, FIXES),
    )

    def measure(self, subject: Subject, bench: Bench, settings: OccupancySettings) -> OccupancyFacts:
        """The compiler's figures for each kernel that is launched; the build is there from gate compile."""
        built = bench.build(subject.candidate)
        own = _footprints(built, subject.candidate)
        if subject.domain.runtime != "cuda":
            return OccupancyFacts(kernels=own)
        incumbent = own if subject.role == "plain" else _footprints(bench.build(subject.incumbent), subject.incumbent)
        return OccupancyFacts(kernels=own, incumbent=incumbent, target=built.target)


def _footprints(built: Built, arm: Arm) -> tuple[Footprint, ...]:
    return tuple(_footprint(built, symbol) for symbol in arm.symbols)


def _footprint(built: Built, symbol: str) -> Footprint:
    entry = built.entry(symbol)
    return Footprint(
        symbol=symbol,
        block_threads=entry.block_threads if entry else None,
        shared_bytes=entry.shared_bytes if entry else None,
        registers=entry.registers_per_thread if entry else None,
        barriers=entry.barriers if entry else None,
    )
