"""Gate contract: the route is whole and may be launched on this target, before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import ClassVar, Literal

from qualify import targets
from qualify.arena import BASE_ALIGN_BYTES, layout
from qualify.contract import Argument, Kernel, Memset, Variant
from qualify.elements import DTYPES
from qualify.gate import Bench, Facts, Gate, Rule, Series, Settings, at_most, holds
from qualify.model import MAX_INTEGER, Name
from qualify.passing import POINTER_BYTES, faults, fits, is_symbol, pointers
from qualify.subject import Subject
from qualify.verdict import Check

#: Runtimes that launch clusters and cooperative grids, and let a launch prefer shared memory.
LAUNCH_EXTRAS = frozenset({"cuda"})
#: What every device has: parameters and one allocation of the OpenCL profiles. Below, an unknown limit does not matter.
SURE_PARAMETER_BYTES = 256
SURE_MEMORY_BYTES = 128 << 20
#: CUDA boards from sm_75 on have 2 GiB and more, so that a target's host gates can judge most cells without its board.
SURE_CUDA_MEMORY_BYTES = 1 << 30
#: The first architecture whose hardware reads tensor maps.
MAPS_SINCE = 90
#: What every target has of constant memory.
CONSTANT_BYTES = 1 << 16
#: Kinds beyond buffers and scalars, by the runtimes that have them; a check asks where a contract has such a kind.
HELD_KINDS: Mapping[str, frozenset[str]] = {
    "cuda": frozenset({"struct", "pointers", "constant", "tensormap"}),
    "opencl": frozenset({"struct", "constant"}),
}

CHECKS = frozenset(
    {
        "composed",
        "incumbent",
        "dtypes",
        "shapes",
        "alignment",
        "scalars",
        "outputs",
        "launches",
        "arguments",
        "grid",
        "block",
        "shared",
        "extras",
        "parameters",
        "memory",
    }
)


class ContractFacts(Facts):
    """The bits of each element type that the contract names and this version knows, and the digest's arena."""

    element_bits: dict[Name, int]
    arena_bytes: int | None


class ContractSettings(Settings):
    """Nothing to set."""


def checks(subject: Subject) -> frozenset[str]:
    """Required names; what arguments hold is asked where some argument holds something."""
    return CHECKS | ({"kinds", "held"} if _holding(subject) else frozenset())


def _holding(subject: Subject) -> list[Argument]:
    return [a for a in subject.arguments if a.kind in HELD_KINDS["cuda"] or a.holds is not None]


def judge(subject: Subject, facts: ContractFacts, series: Series, settings: ContractSettings) -> Iterable[Check]:
    """Every check of rule 1; a limit that the target does not state is unknown where it matters."""
    candidate, incumbent = subject.candidate, subject.incumbent
    yield holds("composed", candidate.error or candidate.identity, "a composed module", candidate.identity is not None)
    yield holds("incumbent", incumbent.identity, "a composed incumbent", verdict=True)
    yield from _arguments(subject, facts)
    if _holding(subject):
        yield from _held(subject)
    yield from _launches(subject)
    yield from _sizes(subject, facts)


def _arguments(subject: Subject, facts: ContractFacts) -> Iterator[Check]:
    unknown = [a.name for a in subject.arguments if not _known_bits(facts.element_bits.get(a.dtype))]
    yield _none_of("dtypes", unknown, "element types that are known")
    launched = bool(subject.candidate.launches)
    empty = [f"{a.name}: {list(a.shape)}" for a in subject.arguments if a.is_buffer and min(a.shape, default=1) < 1]
    yield _none_of("shapes", empty if launched else [], "positive shapes where something is launched")
    crooked = [f"{a.name}: {a.align}" for a in subject.arguments if not _is_alignment(a.align)]
    yield _none_of("alignment", crooked, f"powers of two up to {BASE_ALIGN_BYTES // 2} bytes")
    unfit = [a.name for a in subject.arguments if a.kind == "scalar" and not fits(a.dtype, a.value)]
    yield _none_of("scalars", unfit, "values that fit")
    elements = _output_elements(subject)
    yield holds("outputs", f"{elements} elements" if elements else None, "an element to judge", elements > 0)


def _held(subject: Subject) -> Iterator[Check]:
    """Kinds that this runtime has, and what they hold in its place."""
    has = HELD_KINDS.get(subject.domain.runtime, frozenset())
    missing = [f"{a.kind} {a.name}" for a in _holding(subject) if a.kind not in has]
    if (targets.number(subject.domain.arch) or 0) < MAPS_SINCE:
        missing += [f"tensormap {a.name} before sm_{MAPS_SINCE}" for a in _holding(subject) if a.kind == "tensormap"]
    if subject.domain.runtime != "cuda":
        missing += [f"{a.name}: the address of {each.to}" for a in _holding(subject) for each in pointers(a)]
    yield _none_of("kinds", missing, "kinds of arguments that the runtime has")
    wrong = [text for a in _holding(subject) for text in faults(a, subject.arguments)]
    constants = sum(a.elements * DTYPES[a.dtype].bits // 8 for a in subject.buffers("constant") if a.dtype in DTYPES)
    wrong += [f"{constants} bytes of constants of {CONSTANT_BYTES}"] if constants > CONSTANT_BYTES else []
    yield _none_of("held", wrong, "members in their place, and addresses inside buffers")


def _output_elements(subject: Subject) -> int:
    return sum(a.elements for a in subject.buffers("output", "inout") if min(a.shape, default=1) > 0)


def _known_bits(bits: int | None) -> bool:
    return bits is not None and bits > 0 and bits % 8 == 0


def _is_alignment(align: int) -> bool:
    return 0 < align <= BASE_ALIGN_BYTES // 2 and align & (align - 1) == 0


def _launches(subject: Subject) -> Iterator[Check]:
    kernels = subject.candidate.kernels
    launched = True if kernels else None if not _output_elements(subject) else False
    yield holds("launches", f"{len(kernels)} kernels", "a kernel, unless the cell is empty", launched)
    yield _none_of("arguments", list(_unknown_names(subject)), "names of arguments, and buffers to set")
    yield _within("grid", _too_large(kernels, "grid", subject.limits.grid, subject.domain.runtime == "cuda"))
    yield _within("block", [*_too_large(kernels, "block", subject.limits.block, True), *_too_many_threads(subject)])
    yield _within("shared", list(_shared(subject)))
    has = subject.domain.runtime in LAUNCH_EXTRAS
    extras = [k.symbol for k in kernels if k.cluster is not None or k.cooperative or k.carve_out_percent is not None]
    want = "no cluster, no cooperative grid and no carve-out where the runtime has none"
    yield _none_of("extras", [] if has else extras, want)


def _unknown_names(subject: Subject) -> Iterator[str]:
    names = {argument.name for argument in subject.arguments}
    settable = {argument.name for argument in subject.buffers("output", "inout", "scratch")}
    for launch in subject.candidate.launches:
        if isinstance(launch, Memset):
            yield from () if launch.memset in settable else (f"memset of {launch.memset}",)
        else:
            yield from (f"{launch.symbol}: {name}" for name in launch.arguments or () if name not in names)


#: One finding against a limit: what it is, and whether it holds (None: the limit is unknown).
Finding = tuple[str, bool | None]


def _too_large(
    kernels: Iterable[Kernel], what: Literal["grid", "block"], limit: tuple[int, int, int] | None, matters: bool
) -> list[Finding]:
    """Dimensions below 1, beyond the target's limit, or above 1 where a limit that matters is unknown."""
    found: list[Finding] = []
    for kernel in kernels:
        sizes: tuple[int, int, int] = getattr(kernel, what)
        shown = f"{kernel.symbol}: {what} {list(sizes)}"
        if min(sizes) < 1:
            found.append((shown, False))
        elif limit is None:
            found += [(f"{shown} of unknown", None)] if matters and max(sizes) > 1 else []
        elif any(size > most for size, most in zip(sizes, limit, strict=True)):
            found.append((f"{shown} of {list(limit)}", False))
    return found


def _too_many_threads(subject: Subject) -> Iterator[Finding]:
    limit = subject.limits.block_threads
    for kernel in subject.candidate.kernels:
        if limit is None and kernel.threads > 1:
            yield f"{kernel.symbol}: {kernel.threads} threads of unknown", None
        elif limit is not None and kernel.threads > limit:
            yield f"{kernel.symbol}: {kernel.threads} threads of {limit}", False


def _shared(subject: Subject) -> Iterator[Finding]:
    limit = subject.limits.shared_bytes
    for kernel in subject.candidate.kernels:
        if kernel.shared_bytes < 0:
            yield f"{kernel.symbol}: {kernel.shared_bytes} bytes", False
        elif kernel.shared_bytes and subject.domain.runtime == "opencl":
            yield f"{kernel.symbol}: {kernel.shared_bytes} bytes at launch; OpenCL declares local memory", False
        elif kernel.shared_bytes and limit is None:
            yield f"{kernel.symbol}: {kernel.shared_bytes} bytes of unknown", None
        elif limit is not None and kernel.shared_bytes > limit:
            yield f"{kernel.symbol}: {kernel.shared_bytes} bytes, {kernel.shared_bytes - limit} over {limit}", False


def _sizes(subject: Subject, facts: ContractFacts) -> Iterator[Check]:
    runtime = subject.domain.runtime
    parameters = sum(POINTER_BYTES for a in subject.arguments if a.is_buffer and not is_symbol(a, runtime))
    values = (a for a in subject.arguments if not a.is_buffer)
    parameters += sum(a.elements * facts.element_bits.get(a.dtype, 0) // 8 for a in values)
    yield _limited("parameters", parameters, subject.limits.parameter_bytes, SURE_PARAMETER_BYTES)
    least = sum(a.elements * facts.element_bits.get(a.dtype, 0) // 8 for a in subject.arguments if a.is_buffer)
    if facts.arena_bytes is not None and facts.arena_bytes < min(max(least, 1), MAX_INTEGER):
        raise ValueError(f"an arena of {facts.arena_bytes} bytes for buffers of {least}")
    sure = SURE_CUDA_MEMORY_BYTES if subject.domain.runtime == "cuda" else SURE_MEMORY_BYTES
    yield _limited("memory", facts.arena_bytes, subject.limits.memory_bytes, sure)


def _limited(name: str, got: int | None, limit: int | None, sure: int) -> Check:
    """`got` against a limit in bytes; an unknown limit is taken as the least that any device has."""
    if limit is None and got is not None and got > sure:
        return holds(name, None, f"at most the target's limit, which is unknown; {got} bytes are needed", None)
    return at_most(name, got, sure if limit is None else limit, "bytes")


def _none_of(name: str, found: list[str], want: str) -> Check:
    return holds(name, ", ".join(found[:4]) or "all", want, not found)


def _within(name: str, found: list[Finding]) -> Check:
    """False if a finding is, else unknown if one is, else it holds."""
    worst = next((f for f in found if f[1] is False), found[0] if found else ("all", True))
    return holds(name, worst[0], "from 1 to the target's limit" if name != "shared" else "the target's limit", worst[1])


FIXES = {
    "kinds": "pass it as buffers and scalars on this runtime, or state a frontend for the route that has it",
    "held": "lay the members out as the compiler does, and let addresses lead into buffers of the contract",
    "composed": "mend what the message names in the route's fragments, options or defines",
    "incumbent": "mend the plain route first; nothing is compared with a route that cannot be composed",
    "dtypes": "use one of the element types that docs/gates.md lists",
    "shapes": "make every extent positive for this cell, or keep the cell out by `admits`",
    "alignment": "promise a power of two that one arena can keep",
    "scalars": "give the scalar a value that its dtype holds",
    "outputs": "an empty cell has nothing to judge; let the dispatcher return early",
    "launches": "launch at least one kernel; a memset alone computes nothing",
    "arguments": "name arguments of the cohort's ABI; set scratch and outputs only",
    "grid": "make the grid expression positive and within the limit for this cell",
    "block": "use fewer threads a block, and a positive number in each dimension",
    "shared": "ask for less shared memory, or declare it in the kernel on OpenCL",
    "extras": "launch without cluster, cooperative and carve_out on this runtime",
    "parameters": "pass fewer or smaller parameters, or a pointer to a buffer of them",
    "memory": "shrink the scratch expression or the cell to what the device holds",
}


class ContractGate(Gate[ContractFacts, ContractSettings]):
    """The contract of a route in one cell, judged before anything is compiled."""

    id: ClassVar[str] = "contract"
    claim: ClassVar[str] = "The route is whole, its geometry is legal on this target, and its memory fits."
    runs_on: ClassVar[Literal["host", "device"]] = "host"
    rules: ClassVar[tuple[Rule[ContractFacts, ContractSettings], ...]] = (
        Rule(1, ContractFacts, ContractSettings, checks, judge, FIXES),
    )

    def measure(self, subject: Subject, bench: Bench, settings: ContractSettings) -> ContractFacts:
        """Element types and the arena of one set, as this version knows them; no child is asked."""
        names = {argument.dtype for argument in subject.arguments}
        bits = {name: DTYPES[name].bits for name in sorted(names) if name in DTYPES}
        arena_bytes = _arena_bytes(subject.arguments, subject.variants) if len(bits) == len(names) else None
        return ContractFacts(element_bits=bits, arena_bytes=arena_bytes)


@lru_cache(maxsize=64)
def _arena_bytes(arguments: tuple[Argument, ...], variants: tuple[Variant, ...]) -> int | None:
    """The digest's arena, held to 64 bits, once for all routes of a cell; None where there is no layout."""
    whole = all(min(a.shape, default=1) >= 0 and _is_alignment(a.align) for a in arguments if a.is_buffer)
    if not whole:
        return None
    largest = max(layout(arguments, 1, variant=variant).size_bytes for variant in variants)
    return min(largest, MAX_INTEGER)
