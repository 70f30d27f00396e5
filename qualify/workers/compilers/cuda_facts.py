"""Three readers of one build, the object, its report and its PTX, to one set of facts.

Each tells what the others do not: the object its ABI and state, the report its spills, the PTX what the source
promised and which registers it reads. Where two of them tell the same thing differently the fact is unknown and a
finding says so, because a source can print whatever it likes into a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qualify.diagnostics import Finding
from qualify.domain import Limits
from qualify.objectcode import Entry
from qualify.ptx import Ptx, PtxEntry, Variable
from qualify.resources import Figures, Report
from qualify.targets import number
from qualify.workers.compilers.cubin import Cubin, CubinEntry

#: What a document carries of each list; the rest is counted.
MAX_ENTRIES, MAX_NAMES, MAX_FINDINGS = 256, 64, 64


@dataclass
class CudaFacts:
    """What `objectcode.Built` says of a CUDA object."""

    entries: tuple[Entry, ...]
    target: str | None
    tool: str | None
    linked: bool
    device_state: tuple[Variable, ...]
    idle_state_bytes: int
    undefined: tuple[str, ...]
    special_registers: tuple[str, ...]
    findings: tuple[Finding, ...]


@dataclass
class _Merger:
    """The readers, and what they disagree about."""

    cubin: Cubin
    report: Report
    ptx: Ptx
    limits: Limits
    findings: list[Finding] = field(default_factory=list)

    def agreed(self, what: str, entry: str | None, **said: int | str | None) -> int | None:
        """What all that say something say; None, with a finding, if they differ."""
        values = {value for value in said.values() if value is not None}
        if len(values) > 1:
            text = f"{what}: " + ", ".join(f"{who} says {value}" for who, value in said.items() if value is not None)
            self.findings.append(Finding(kind="disagreement", level="warning", text=text, entry=entry))
        one = values.pop() if len(values) == 1 else None
        return one if isinstance(one, int) else None


def facts(cubin: Cubin, report: Report, ptx: Ptx, symbols: Mapping[str, str], limits: Limits, target: str) -> CudaFacts:
    """The facts of one build for `target`. `symbols` gives the contract's name of each linkage name."""
    merger = _Merger(cubin, report, ptx, limits)
    launched = [entry for entry in cubin.entries if entry.symbol in symbols]
    others = [entry for entry in cubin.entries if entry.symbol not in symbols]
    kept = [*launched, *others][:MAX_ENTRIES]
    entries = tuple(_entry(merger, entry, symbols.get(entry.symbol), target) for entry in kept)
    state = _state(cubin, ptx)
    named = tuple(variable for variable in state if variable.named is not False)
    return CudaFacts(
        entries=entries,
        target=_target(merger),
        tool=cubin.tool,
        linked=cubin.linked,
        device_state=_shortened(named),
        idle_state_bytes=sum(variable.size_bytes or 0 for variable in state if variable.named is False),
        undefined=cubin.undefined[:MAX_NAMES],
        special_registers=ptx.special_registers[:MAX_NAMES],
        findings=tuple([*report.findings, *merger.findings][:MAX_FINDINGS]),
    )


def _entry(merger: _Merger, item: CubinEntry, contract_name: str | None, target: str) -> Entry:
    """One kernel. A linker's record in a compiler's log is no record: nothing was linked."""
    found = merger.report.entry(item.symbol, target)
    figures = found if found is not None and found.by == "assembler" else Figures()
    promised = merger.ptx.entry(item.symbol)
    agreed, name = merger.agreed, item.symbol
    return Entry(
        symbol=contract_name or item.symbol,
        linkage_name=item.symbol if contract_name not in (None, item.symbol) else None,
        parameters=item.parameters,
        registers_per_thread=agreed("registers", name, object=item.registers, report=figures.registers_per_thread),
        spill_store_bytes=figures.spill_store_bytes,
        spill_load_bytes=figures.spill_load_bytes,
        stack_bytes=agreed("stack bytes", name, object=item.stack_bytes, report=figures.stack_bytes),
        cumulative_stack_bytes=agreed(
            "stack bytes with callees", name, object=item.cumulative_stack_bytes, report=figures.cumulative_stack_bytes
        ),
        constant_bytes=item.constant_bytes,
        shared_bytes=agreed("shared bytes", name, object=item.shared_bytes, report=figures.static_shared_bytes),
        barriers=agreed("barriers", name, object=item.barriers, report=figures.barriers),
        block_threads=_block_threads(merger, item, promised),
        min_blocks=promised.min_blocks if promised else None,
        cluster=item.cluster,
        register_hints=promised.register_hints if promised else None,
    )


def _block_threads(merger: _Merger, item: CubinEntry, promised: PtxEntry | None) -> int | None:
    """The most threads of a block: the bound it was compiled for, else the target's; one beyond that is a finding."""
    most = merger.limits.block_threads
    bound = item.block_threads
    if promised is not None and bound != promised.block_threads:
        merger.agreed("launch bounds", item.symbol, object=bound or "none", source=promised.block_threads or "none")
        return None
    if bound is None or most is None:
        return most if bound is None else bound
    if bound > most:
        text = f"launch bounds of {bound} threads where the target has {most}: the assembler says nothing"
        merger.findings.append(
            Finding(
                kind="launch-bounds", level="warning", text=text, entry=item.symbol, requested=bound, effective=most
            )
        )
    return min(bound, most)


def _state(cubin: Cubin, ptx: Ptx) -> tuple[Variable, ...]:
    """The object's variables; one that the PTX has under that name knows whether code names it."""
    named = {variable.name: variable.named for variable in ptx.state}
    return tuple(variable.model_copy(update={"named": named.get(variable.name)}) for variable in cubin.state)


def _shortened(variables: tuple[Variable, ...]) -> tuple[Variable, ...]:
    """The first of a long list, and one that stands for the rest."""
    if len(variables) <= MAX_NAMES:
        return variables
    rest = variables[MAX_NAMES - 1 :]
    size = sum(variable.size_bytes or 0 for variable in rest)
    return (*variables[: MAX_NAMES - 1], Variable(name=f"{len(rest)} more", size_bytes=size))


def _target(merger: _Merger) -> str | None:
    """The object's note; where it has none, the PTX of the same call if the object's flags agree with its number."""
    note, directive, plain = merger.cubin.target, merger.ptx.target, f"sm_{merger.cubin.sm}"
    said = note or directive
    if said is None or (directive in (None, said) and number(said) == merger.cubin.sm):
        return said
    merger.agreed("target", None, object=note or plain, source=directive)
    return None
