"""Gate residency: the board says of the very function that will run what the host said of its object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Literal

from qualify import occupancy, targets
from qualify.contract import Kernel
from qualify.gate import Bench, Facts, Gate, Rule, Series, Settings, State, worst_of
from qualify.model import Document, Json
from qualify.objectcode import Entry
from qualify.occupancy import Need, UnknownCapability
from qualify.program import only
from qualify.steps import Answer, Query
from qualify.subject import Subject
from qualify.verdict import Check

_TIMEOUT_S = 60.0  # Questions to a driver that has the function loaded; none of them runs code of it.


class Figures(Document):
    """What is said of one function: a thread's registers and local bytes, a block's static shared bytes and threads.

    `parameters` are offsets and sizes in bytes, in order.
    """

    registers: int | None
    local_bytes: int | None
    shared_bytes: int | None
    block_threads: int | None
    parameters: tuple[tuple[int, int], ...] | None


class Asked(Document):
    """One launch: the host's figures with its count of barriers, the board's, and what the board says is resident."""

    symbol: str
    host: Figures
    barriers: int | None
    device: Figures
    blocks: int | None
    clusters: int | None


class ResidencyFacts(Facts):
    """Every kernel launch of the route in order, and the board's multiprocessors."""

    launches: tuple[Asked, ...]
    multiprocessors: int | None


class ResidencySettings(Settings):
    """Nothing to set."""


_ALWAYS = frozenset({"registers", "local_bytes", "shared_bytes", "block_threads", "parameters", "blocks", "resident"})


def checks(subject: Subject) -> frozenset[str]:
    """Required names: clusters and cooperative grids where a launch asks for them."""
    kernels = subject.candidate.kernels
    clusters = {"clusters"} if any(kernel.cluster for kernel in kernels) else set()
    return _ALWAYS | clusters | ({"cooperative"} if any(kernel.cooperative for kernel in kernels) else set())


def judge(subject: Subject, facts: ResidencyFacts, series: Series, settings: ResidencySettings) -> Iterable[Check]:
    """Every check of rule 1. Where host and board differ the fault is not the kernel's, and nothing is known."""
    kernels = subject.candidate.kernels
    if tuple(asked.symbol for asked in facts.launches) != tuple(kernel.symbol for kernel in kernels):
        raise ValueError(f"answers about {len(facts.launches)} launches that are not the route's")
    pairs = tuple(zip(kernels, facts.launches, strict=True))
    if any(asked.clusters is not None and not kernel.cluster for kernel, asked in pairs):
        raise ValueError("clusters of a launch that has none")
    for name in ("registers", "local_bytes", "shared_bytes", "parameters"):
        yield worst_of(name, [_same(name, asked) for _, asked in pairs], "the host's figure")
    yield worst_of("block_threads", [_threads(*pair) for pair in pairs], "at least the launch's, at most the host's")
    yield worst_of("blocks", [_blocks(subject, *pair) for pair in pairs], "the host's blocks on a multiprocessor")
    yield worst_of("resident", [_resides(*pair) for pair in pairs], "a block, and a cluster where there are clusters")
    clustered = [_clusters(subject, facts.multiprocessors, *pair) for pair in pairs if pair[0].cluster]
    if clustered:
        yield worst_of("clusters", clustered, "as many as the host's blocks allow, or fewer")
    together = [_together(facts.multiprocessors, *pair) for pair in pairs if pair[0].cooperative]
    if together:
        yield worst_of("cooperative", together, "all blocks of a cooperative grid at once")


def _same(name: str, asked: Asked) -> State:
    """Equal figures; a difference, like a figure that one side does not tell, leaves the check unknown."""
    host, device = getattr(asked.host, name), getattr(asked.device, name)
    if host is not None and host == device and _possible(name, host):
        return f"{asked.symbol}: {_shown(host)}", True
    return f"{asked.symbol}: host {_shown(host)}, board {_shown(device)}", None


def _possible(name: str, figure: object) -> bool:
    return not isinstance(figure, int) or figure >= (1 if name == "registers" else 0)


def _shown(figure: object) -> str:
    if isinstance(figure, tuple):
        return f"{len(figure)} parameters of {', '.join(f'{size} at {offset}' for offset, size in figure)} bytes"
    return "unknown" if figure is None else str(figure)


def _threads(kernel: Kernel, asked: Asked) -> State:
    """Registers make the board's limit smaller than the bound that the object was compiled under, never larger."""
    host, device = asked.host.block_threads, asked.device.block_threads
    text = f"{asked.symbol}: {kernel.threads} threads, host {_shown(host)}, board {_shown(device)}"
    if host is None or device is None:
        return text, None
    return text, True if kernel.threads <= device <= host else None


def _expected(subject: Subject, kernel: Kernel, asked: Asked) -> occupancy.Residency | None:
    """The host's range of resident blocks, from its own figures."""
    try:
        rows = occupancy.multiprocessors(targets.number(subject.domain.arch) or 0, subject.limits.shared_bytes)
    except UnknownCapability:
        return None
    static = asked.host.shared_bytes
    shared = None if static is None else static + kernel.shared_bytes
    return occupancy.residency(rows, Need(kernel.threads, asked.host.registers, shared, asked.barriers))


def _blocks(subject: Subject, kernel: Kernel, asked: Asked) -> State:
    """The board's number lies in the host's range, which is one number unless sources differ or a figure is unknown."""
    expected = _expected(subject, kernel, asked)
    text = f"{asked.symbol}: host {expected or 'unknown'}, board {_shown(asked.blocks)}"
    if expected is None or asked.blocks is None or asked.blocks < 0:
        return text, None
    return text, True if expected.least <= asked.blocks <= expected.most and expected.most > 0 else None


def _resides(kernel: Kernel, asked: Asked) -> State:
    if asked.blocks is None or asked.blocks < 0 or (kernel.cluster and asked.clusters is None):
        return f"{asked.symbol}: unknown", None
    clusters = asked.clusters if kernel.cluster else None
    text = f"{asked.symbol}: {asked.blocks} blocks a multiprocessor"
    return text + ("" if clusters is None else f", {clusters} clusters"), asked.blocks > 0 and clusters != 0


def _clusters(subject: Subject, multiprocessors: int | None, kernel: Kernel, asked: Asked) -> State:
    """Blocks of all resident clusters are at most the host's blocks on every multiprocessor."""
    expected, size = _expected(subject, kernel, asked), _cluster_blocks(kernel)
    text = f"{asked.symbol}: {_shown(asked.clusters)} clusters of {size} blocks"
    if expected is None or asked.clusters is None or multiprocessors is None:
        return text, None
    return text, True if 0 < asked.clusters * size <= expected.most * multiprocessors else None


def _cluster_blocks(kernel: Kernel) -> int:
    x, y, z = kernel.cluster or (1, 1, 1)
    return x * y * z


def _together(multiprocessors: int | None, kernel: Kernel, asked: Asked) -> State:
    """The board's own count decides: its clusters where there are clusters, else blocks of every multiprocessor."""
    if multiprocessors is None or multiprocessors < 1 or asked.blocks is None:
        return f"{asked.symbol}: {kernel.blocks} blocks", None
    most = asked.blocks * multiprocessors
    if kernel.cluster:
        if asked.clusters is None:
            return f"{asked.symbol}: {kernel.blocks} blocks in clusters", None
        most = min(most, asked.clusters * _cluster_blocks(kernel))
    return f"{asked.symbol}: {kernel.blocks} blocks of {most}", 0 < kernel.blocks <= most


FIXES = {
    "registers": "report it: compiler, table or driver is wrong about this object; no kernel is to blame",
    "local_bytes": "report it: compiler and driver differ about this object's stack",
    "shared_bytes": "report it: compiler and driver differ about this object's static shared memory",
    "block_threads": "use fewer threads a block than the board allows this function",
    "parameters": "report it: the object's parameter table and the driver's differ",
    "blocks": "report it with both figures: the table of occupancy does not fit this board",
    "resident": "use fewer threads, registers or shared memory a block, or a smaller cluster",
    "clusters": "report it with both figures: the table of occupancy does not fit this board",
    "cooperative": "launch at most as many blocks as this board holds at once",
}


class ResidencyGate(Gate[ResidencyFacts, ResidencySettings]):
    """Residency as the board answers for it, beside the host's."""

    id: ClassVar[str] = "residency"
    claim: ClassVar[str] = "The board's answers for the exact function are the host's, and a block of it is resident."
    runs_on: ClassVar[Literal["host", "device"]] = "device"
    rules: ClassVar[tuple[Rule[ResidencyFacts, ResidencySettings], ...]] = (
        Rule(1, ResidencyFacts, ResidencySettings, checks, judge, FIXES),
    )

    def measure(self, subject: Subject, bench: Bench, settings: ResidencySettings) -> ResidencyFacts:
        """Load the candidate and ask for the board and for each of its launches; nothing is launched."""
        built, kernels = bench.build(subject.candidate), subject.candidate.kernels
        asks = [Query(what="kernel", arm="candidate", symbol=each.symbol, launch=each) for each in kernels]
        with bench.session(subject, "candidate") as session:
            board, *answers = only(session.run([Query(what="device"), *asks], _TIMEOUT_S), Answer)
        return ResidencyFacts(
            launches=tuple(
                _asked(kernel, built.entry(kernel.symbol), answer.facts)
                for kernel, answer in zip(kernels, answers, strict=True)
            ),
            multiprocessors=board.board.limits.compute_units if board.board else None,
        )


def _asked(kernel: Kernel, entry: Entry | None, told: Json) -> Asked:
    return Asked(
        symbol=kernel.symbol,
        host=_host(entry),
        barriers=entry.barriers if entry else None,
        device=Figures(
            registers=_integer(told, "registers_per_thread"),
            local_bytes=_integer(told, "local_bytes"),
            shared_bytes=_integer(told, "shared_bytes"),
            block_threads=_integer(told, "block_threads"),
            parameters=_places(told),
        ),
        blocks=_integer(told, "resident_blocks"),
        clusters=_integer(told, "resident_clusters"),
    )


def _host(entry: Entry | None) -> Figures:
    """The object's figures; the stack is that of the entry with its callees, where the compiler knows it."""
    if entry is None:
        return Figures(registers=None, local_bytes=None, shared_bytes=None, block_threads=None, parameters=None)
    places = [(each.offset_bytes, each.size_bytes) for each in entry.parameters or ()]
    whole = tuple((offset, size) for offset, size in places if offset is not None and size is not None)
    told = entry.parameters is not None and len(whole) == len(places)
    return Figures(
        registers=entry.registers_per_thread,
        local_bytes=entry.stack_bytes if entry.cumulative_stack_bytes is None else entry.cumulative_stack_bytes,
        shared_bytes=entry.shared_bytes,
        block_threads=entry.block_threads,
        parameters=whole if told else None,
    )


def _integer(told: Json, name: str) -> int | None:
    value = told.get(name) if isinstance(told, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _places(told: Json) -> tuple[tuple[int, int], ...] | None:
    """The driver's offsets and sizes; None for anything that is not a list of such pairs."""
    value = told.get("parameters") if isinstance(told, dict) else None
    return tuple(_pairs(value)) if isinstance(value, list) else None


def _pairs(rows: Sequence[Json]) -> Iterator[tuple[int, int]]:
    for row in rows:
        match row:
            case [int(offset), int(size)]:
                yield offset, size
            case _:
                raise ValueError(f"{row} is no offset and size of a parameter")
