"""Gate compile: the module builds, and its entry points take what the contract passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from qualify import objectcode
from qualify.contract import Argument, Struct
from qualify.gate import Bench, Facts, Gate, Rule, Series, Settings, at_least, at_most, holds
from qualify.model import Document, Hex64
from qualify.objectcode import Built
from qualify.passing import parameter_bytes, parameter_offset, passed
from qualify.subject import Subject
from qualify.type_names import TYPE_NAMES, same_type
from qualify.verdict import Check, Note

_ALWAYS = frozenset({"builds", "object", "symbols", "entries", "parameter_count"})
#: What a runtime's objects tell of parameters, and so what must be shown there.
_BY_RUNTIME: Mapping[str, frozenset[str]] = {
    "opencl": frozenset({"parameter_types", "parameter_spaces"}),
    "simulated": frozenset({"parameter_types", "parameter_spaces"}),
    "cuda": frozenset(
        {
            *("parameter_layout", "device_state", "undefined", "special_registers"),
            *("target", "linked", "record", "launch_bounds", "agreement"),
        }
    ),
}
_LINE_CHARS, _NOTES = 160, 8


class Passed(Document):
    """One parameter as the object tells it, without its name."""

    kind: Literal["pointer", "value", "local"] | None
    type_name: str | None
    address_space: str | None
    offset_bytes: int | None
    size_bytes: int | None


class Entry(Document):
    """One entry point. Figures are for a thread, shared bytes (static) and barriers for a block."""

    symbol: str
    parameters: tuple[Passed, ...] | None
    registers: int | None
    spill_bytes: int | None
    stack_bytes: int | None
    shared_bytes: int | None
    private_bytes: int | None
    barriers: int | None


class Advisory(Document):
    """What the assembler said under a code of its own."""

    code: str
    text: str


class Compiled(Document):
    """What the compiler made of an arm: the log's start and end, the entries, the object and what it can keep or read.

    What follows the object is None where objects do not tell. `dropped` are launch bounds that were not kept,
    `disagreements` what object, report and source tell differently, `idle_state_bytes` constants that no code names.
    """

    state: Literal["built", "refused"]
    log: str
    entries: tuple[Entry, ...]
    object_blake3: Hex64 | None
    object_bytes: int | None
    device_state: tuple[str, ...] | None
    undefined: tuple[str, ...] | None
    special_registers: tuple[str, ...] | None
    target: str | None
    linked: bool | None
    dropped: tuple[str, ...] | None
    disagreements: tuple[str, ...] | None
    idle_state_bytes: int | None
    advisories: tuple[Advisory, ...]


class CompileFacts(Facts):
    """The candidate's object, and the entries of the incumbent's to show beside it.

    These are the rule's own models: a released rule must read its facts for ever, while `Built` learns new fields.
    """

    candidate: Compiled
    incumbent: tuple[Entry, ...]


class CompileSettings(Settings):
    """Limits for each entry point that is launched; None makes the figure a finding."""

    registers: Annotated[int, Field(ge=1)] | None = None
    spill_bytes: Annotated[int, Field(ge=0)] | None = None
    stack_bytes: Annotated[int, Field(ge=0)] | None = None
    shared_bytes: Annotated[int, Field(ge=0)] | None = None


def checks(subject: Subject) -> frozenset[str]:
    """Required names: what the subject's runtime tells of parameters."""
    return _ALWAYS | _BY_RUNTIME[subject.domain.runtime]


def judge(subject: Subject, facts: CompileFacts, series: Series, settings: CompileSettings) -> Iterable[Check | Note]:
    """Every check of rule 1, limits that the settings name, and the figures as notes."""
    found = facts.candidate
    log = _first_error(found.log) if found.state == "refused" else "built"
    yield holds("builds", log, "the compiler takes it", found.state == "built")
    if found.state == "built":
        named = None if found.object_blake3 is None else found.object_bytes
        yield at_least("object", named, 1, "bytes")
        yield from _entries(subject, found.entries)
        yield from _stateless(subject, found)
        if "record" in _BY_RUNTIME[subject.domain.runtime]:
            yield from _reported(subject, found)
        yield from _limits(subject, found.entries, settings)
        yield from _notes(subject, facts)
    warnings = [line for line in found.log.splitlines() if "warning" in line.lower()]
    if warnings:
        yield Note(name="warnings", got=f"{len(warnings)} lines", says=warnings[0].strip()[:_LINE_CHARS])


def _first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "no log")[:_LINE_CHARS]


def _entries(subject: Subject, entries: tuple[Entry, ...]) -> Iterator[Check]:
    symbols, names = subject.candidate.symbols, [entry.symbol for entry in entries]
    missing = [symbol for symbol in symbols if names.count(symbol) != 1]
    yield holds("symbols", _list(missing, "each is there once"), "every launched symbol is an entry", not missing)
    extra = [name for name in names if name not in symbols]
    yield holds("entries", _list(extra, "none"), "no entry that the route does not launch", not extra)
    yield _each("parameter_count", subject, entries, _count)
    required = _BY_RUNTIME[subject.domain.runtime]
    for name, finder in (
        ("parameter_types", _types),
        ("parameter_spaces", _spaces),
        ("parameter_layout", _layout),
    ):
        if name in required:
            yield _each(name, subject, entries, finder)


#: What is wrong with one kernel's parameters: a text and False, or None where the object does not say.
Finding = tuple[str, bool | None]
Finder = Callable[[Subject, tuple[Argument, ...], tuple[Passed, ...]], Iterator[Finding]]


def _each(name: str, subject: Subject, entries: tuple[Entry, ...], finder: Finder) -> Check:
    """One check over all launched kernels; unknown where an entry or its parameters are."""
    found: list[Finding] = []
    for kernel in subject.candidate.kernels:
        entry = next((entry for entry in entries if entry.symbol == kernel.symbol), None)
        if entry is None or entry.parameters is None:
            found.append((f"{kernel.symbol}: not reported", None))
            continue
        wanted = passed(subject.arguments, kernel, subject.domain.runtime)
        found += [(f"{kernel.symbol}: {text}", state) for text, state in finder(subject, wanted, entry.parameters)]
    if not subject.candidate.kernels:
        found.append(("no kernel", None))
    worst = next((finding for finding in found if finding[1] is False), found[0] if found else ("all", True))
    return holds(name, worst[0], "the contract's", worst[1])


def _count(subject: Subject, wanted: tuple[Argument, ...], found: tuple[Passed, ...]) -> Iterator[Finding]:
    if len(found) != len(wanted):
        yield f"{len(found)} parameters where {len(wanted)} are passed", False


def _types(subject: Subject, wanted: tuple[Argument, ...], found: tuple[Passed, ...]) -> Iterator[Finding]:
    for argument, parameter in zip(wanted, found, strict=False):
        if isinstance(argument.holds, Struct):
            yield from _struct_type(argument.name, argument.holds.type_name, parameter.type_name)
            continue
        names = TYPE_NAMES.get(argument.dtype, ())
        if subject.domain.runtime == "simulated":
            names = (*names, argument.dtype)
        star = "*" if argument.is_buffer else ""
        shown = f"{argument.name} is {parameter.type_name}, not {names[0] if names else argument.dtype}{star}"
        state = same_type(parameter.type_name, names, pointer=argument.is_buffer)
        if state is not True:
            yield shown, state


def _struct_type(name: str, wanted: str, found: str | None) -> Iterator[Finding]:
    """A struct is known by its name; another name that is none of OpenCL C's own may stand for the same type."""
    if found not in (wanted, f"struct {wanted}"):
        yield f"{name} is {found}, not {wanted}", False if same_type(found, (), pointer=False) is False else None


def _spaces(subject: Subject, wanted: tuple[Argument, ...], found: tuple[Passed, ...]) -> Iterator[Finding]:
    for argument, parameter in zip(wanted, found, strict=False):
        spaces = {"global", "constant"} if argument.kind in {"input", "constant"} else {"global"}
        kind, spaces = ("pointer", spaces) if argument.is_buffer else ("value", {"private"})
        got = f"{argument.name} is a {parameter.address_space} {parameter.kind}, not a {max(spaces)} {kind}"
        if parameter.kind is None or parameter.address_space is None:
            yield got, None
        elif parameter.kind != kind or parameter.address_space not in spaces:
            yield got, False


def _layout(subject: Subject, wanted: tuple[Argument, ...], found: tuple[Passed, ...]) -> Iterator[Finding]:
    """Offsets and sizes of a parameter block in which everything lies at a multiple of its alignment."""
    end = 0
    for argument, parameter in zip(wanted, found, strict=False):
        size = parameter_bytes(argument)
        offset = parameter_offset(end, argument, parameter.offset_bytes)
        end = offset + size
        got = f"{argument.name} of {parameter.size_bytes} bytes at {parameter.offset_bytes}, not {size} at {offset}"
        if parameter.offset_bytes is None or parameter.size_bytes is None:
            yield got, None
        elif (parameter.offset_bytes, parameter.size_bytes) != (offset, size):
            yield got, False


def _stateless(subject: Subject, found: Compiled) -> Iterator[Check]:
    """Nothing by which one launch can leave something for the next, or tell one launch from another."""
    allowed = {argument.name for argument in subject.buffers("constant")}
    state = None if found.device_state is None else tuple(each for each in found.device_state if each not in allowed)
    for name, names, want in (
        ("device_state", state, "no variable in device memory"),
        ("undefined", found.undefined, "no symbol that something else must bring"),
        ("special_registers", found.special_registers, "no clock, timer or grid number is read"),
    ):
        if name in _BY_RUNTIME[subject.domain.runtime]:
            yield holds(name, None if names is None else _list(list(names), "none"), want, not names)


def _reported(subject: Subject, found: Compiled) -> Iterator[Check | Note]:
    """A whole object for the route's own target, whose assembler kept every promise and said so of every kernel."""
    asked = subject.candidate.target
    yield holds("target", found.target, str(asked), None if asked is None else found.target == asked)
    shown = None if found.linked is None else "whole" if found.linked else "for a linker to finish"
    yield holds("linked", shown, "a whole object", found.linked)
    launched = [entry for entry in found.entries if entry.symbol in subject.candidate.symbols]
    silent = [entry.symbol for entry in launched if not _recorded(entry)]
    told = None if silent or not launched else "all"
    yield holds("record", told, "registers, spills, stack and shared memory of every launched kernel", verdict=True)
    for name, texts, want in (
        ("launch_bounds", found.dropped, "every launch bound is kept"),
        ("agreement", found.disagreements, "object, report and source tell the same"),
    ):
        yield holds(name, None if texts is None else texts[0] if texts else "all", want, not texts)
    yield from (Note(name="advisory", got=item.code, says=item.text) for item in found.advisories[:_NOTES])
    if found.idle_state_bytes:
        yield Note(name="idle_state", got=f"{found.idle_state_bytes} bytes", says="constants that no code names")


def _recorded(entry: Entry) -> bool:
    figures = (entry.registers, entry.spill_bytes, entry.stack_bytes, entry.shared_bytes)
    return all(figure is not None and figure >= least for figure, least in zip(figures, (1, 0, 0, 0), strict=True))


# Figures -------------------------------------------------------------------------------------------------------------


_FIGURES: Mapping[str, str] = {
    "registers": "a thread",
    "spill_bytes": "bytes a thread",
    "stack_bytes": "bytes a thread",
    "shared_bytes": "bytes a block",
    "private_bytes": "bytes a thread",
    "barriers": "a block",
}


def _limits(subject: Subject, entries: tuple[Entry, ...], settings: CompileSettings) -> Iterator[Check]:
    launched = [entry for entry in entries if entry.symbol in subject.candidate.symbols]
    for name, unit in _FIGURES.items():
        limit: int | None = getattr(settings, name, None)
        if limit is None:
            continue
        figures = [value for entry in launched if (value := _figure(entry, name)) is not None]
        known = figures and len(figures) == len(launched) and min(figures) >= (1 if name == "registers" else 0)
        yield at_most(name, max(figures) if known else None, limit, unit)


def _notes(subject: Subject, facts: CompileFacts) -> Iterator[Note]:
    for name, unit in _FIGURES.items():
        own = _figures(facts.candidate.entries, subject.candidate.symbols, name)
        other = _figures(facts.incumbent, subject.incumbent.symbols, name)
        yield Note(name=name, got=own, says=f"{unit}; incumbent {other}")


def _figure(entry: Entry, name: str) -> int | None:
    figure: int | None = getattr(entry, name)
    return figure


def _figures(entries: tuple[Entry, ...], symbols: tuple[str, ...], name: str) -> str:
    found = {entry.symbol: _figure(entry, name) for entry in entries if entry.symbol in symbols}
    if all(value is None for value in found.values()):
        return "not reported"
    return ", ".join(f"{symbol} {'not reported' if value is None else value}" for symbol, value in found.items())


def _list(found: list[str], otherwise: str) -> str:
    return ", ".join(found[:4]) or otherwise


FIXES = {
    "builds": "read the log in the evidence; the first error is shown",
    "object": "the compiler gave no object; report its version with the log",
    "symbols": "spell the launch's symbol as the source declares it, once over all fragments",
    "entries": "drop the entry point from the fragments, or launch it",
    "parameter_count": "declare one parameter for each argument that the launch passes",
    "parameter_types": "declare the contract's element types, in the ABI's order and without typedefs",
    "parameter_spaces": "pass buffers as global pointers and scalars by value",
    "parameter_layout": "declare parameters of the contract's sizes, in the ABI's order",
    "device_state": "keep nothing in device variables; pass a scratch buffer",
    "undefined": "call no malloc, printf, assert or device launch; define what the kernel calls in its fragments",
    "special_registers": "read no clock, timer or grid number; results must not depend on when a launch is",
    "target": "name the architecture under target:, and let no fragment or option choose another",
    "linked": "compile whole programs; leave out options for separate compilation",
    "record": "print nothing that reads like the assembler's report; compile again without a cache",
    "launch_bounds": "ask for bounds that the target can keep, or drop __launch_bounds__ and __maxnreg__",
    "agreement": "report the object with its log; until it is known who is right, nothing is believed",
    "registers": "use fewer registers, or raise the setting",
    "spill_bytes": "spill less, or raise the setting",
    "stack_bytes": "use less stack, or raise the setting",
    "shared_bytes": "use less shared memory, or raise the setting",
}


class CompileGate(Gate[CompileFacts, CompileSettings]):
    """What the compiler makes of a route."""

    id: ClassVar[str] = "compile"
    claim: ClassVar[str] = "It compiles, and its entry points take exactly what the contract passes."
    runs_on: ClassVar[Literal["host", "device"]] = "host"
    rules: ClassVar[tuple[Rule[CompileFacts, CompileSettings], ...]] = (
        Rule(1, CompileFacts, CompileSettings, checks, judge, FIXES),
    )

    def measure(self, subject: Subject, bench: Bench, settings: CompileSettings) -> CompileFacts:
        """Build the candidate, then the incumbent for the figures beside it."""
        candidate = bench.build(subject.candidate)
        incumbent = candidate if subject.role == "plain" else bench.build(subject.incumbent)
        return CompileFacts(candidate=_compiled(candidate), incumbent=tuple(map(_entry, incumbent.entries)))


def _compiled(built: Built) -> Compiled:
    state = built.device_state
    return Compiled(
        state=built.state,
        log=built.log,
        entries=tuple(map(_entry, built.entries)),
        object_blake3=built.object_blake3,
        object_bytes=built.object_bytes,
        device_state=None if state is None else tuple(variable.name for variable in state),
        undefined=built.undefined,
        special_registers=built.special_registers,
        target=built.target,
        linked=built.linked,
        idle_state_bytes=built.idle_state_bytes,
        dropped=_texts(built, "launch-bounds"),
        disagreements=_texts(built, "disagreement"),
        advisories=tuple(Advisory(code=item.code, text=item.text) for item in built.findings if item.code),
    )


def _texts(built: Built, kind: str) -> tuple[str, ...] | None:
    """What was found of a kind; None for an object whose compiler looks for nothing."""
    return None if built.linked is None else tuple(item.text for item in built.findings if item.kind == kind)


def _entry(entry: objectcode.Entry) -> Entry:
    spills = (entry.spill_store_bytes, entry.spill_load_bytes)
    return Entry(
        symbol=entry.symbol,
        parameters=None if entry.parameters is None else tuple(map(_passed_as, entry.parameters)),
        registers=entry.registers_per_thread,
        spill_bytes=None if None in spills else sum(each or 0 for each in spills),
        stack_bytes=entry.stack_bytes,
        shared_bytes=entry.shared_bytes,
        private_bytes=entry.private_bytes,
        barriers=entry.barriers,
    )


def _passed_as(found: objectcode.Parameter) -> Passed:
    return Passed(
        kind=found.kind,
        type_name=found.type_name,
        address_space=found.address_space,
        offset_bytes=found.offset_bytes,
        size_bytes=found.size_bytes,
    )
