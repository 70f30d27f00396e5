"""Resource reports to figures: what ptxas, NVRTC and nvlink say a kernel uses. Pure; unknown is None, never 0.

Which fields are printed depends on the release and the target: barriers from 12.5, the total of the stack from 12.2,
compile times from 12.8, constant banks up to sm_89 only; a zero stack or zero shared memory is left out. A refused
build may print a complete record, and a build served from a cache prints none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from qualify.diagnostics import MAX_LOG_BYTES, Finding, Line, finding, lines
from qualify.model import Document

Key = tuple[str, str | None]


class Figures(Document):
    """One entry for one target. A field that the report does not print, or prints twice differently, is None.

    `shared_bytes` of an assembler is static shared memory; of a linker it includes the system's reserve where the
    target has one. `stack_bytes` is the entry's own frame, `cumulative_stack_bytes` that of its callees too.
    `unread` tells that its line has items of a form unknown here.
    """

    by: Literal["assembler", "linker"] = "assembler"
    registers_per_thread: int | None = None
    barriers: int | None = None
    stack_bytes: int | None = None
    cumulative_stack_bytes: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    shared_bytes: int | None = None
    constant_bytes: dict[str, int] | None = None
    local_bytes: int | None = None
    compile_ns: int | None = None
    unread: bool = False

    @property
    def static_shared_bytes(self) -> int | None:
        """Static shared memory: an assembler's complete record leaves the field out when it is zero."""
        if self.by == "linker" or self.registers_per_thread is None or self.unread:
            return self.shared_bytes if self.by == "assembler" else None
        return self.shared_bytes or 0


class ModuleFigures(Document):
    """What a report says of a whole module: device memory of its globals, and its constant banks by number."""

    global_bytes: int | None = None
    constant_bytes: dict[str, int] | None = None


@dataclass(frozen=True)
class Report:
    """A log, read. `entries` is keyed by (entry, target); an empty one says nothing about the kernels.

    `functions` names device functions with records of their own; `relocatable` is true when one of them was compiled
    alone, so that a linker still decides registers and stack. `truncated` logs have no entries.
    """

    entries: Mapping[Key, Figures]
    modules: tuple[ModuleFigures, ...]
    functions: tuple[str, ...]
    findings: tuple[Finding, ...]
    relocatable: bool
    truncated: bool

    @property
    def advisories(self) -> tuple[Finding, ...]:
        """Every line with a code, whatever its level."""
        return tuple(item for item in self.findings if item.code)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Findings that are no errors: spills, dropped bounds, contradicted limits, advisories."""
        return tuple(item for item in self.findings if item.level not in ("error", "fatal"))

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What refused the build."""
        return tuple(item for item in self.findings if item.level in ("error", "fatal"))

    @property
    def refused(self) -> bool:
        """Whether a tool said so; a complete record beside it changes nothing. False proves no build either."""
        return bool(self.errors)

    def entry(self, name: str, target: str) -> Figures | None:
        """The figures of an entry for a target, or None when the report has none for exactly that pair."""
        return self.entries.get((name, target))


def parse_report(text: bytes | str) -> Report:
    """The figures and findings of a log of any release; any bytes give a report, in time linear in their number."""
    reader = _Reader()
    for line in lines(text):
        reader.read(line)
    truncated = len(text) > MAX_LOG_BYTES
    return Report(
        entries={} if truncated else _merged(reader.records),
        modules=tuple(reader.modules),
        functions=tuple(dict.fromkeys(reader.functions)),
        findings=tuple(reader.findings),
        relocatable=reader.relocatable,
        truncated=truncated,
    )


_ENTRY = re.compile(r"Compiling entry function '(.{1,65000})' for '(\w{1,40})'$")
_PROPERTIES = re.compile(r"Function properties for (?:'(?P<quoted>.{1,65000})':?|(?P<bare>\S{1,65000}))$")
_FRAME = re.compile(
    r"(?P<stack>\d{1,12}) bytes stack frame, (?P<store>\d{1,12}) bytes spill stores,"
    r" (?P<load>\d{1,12}) bytes spill loads"
)
_USED = re.compile(r"[Uu]sed \d{1,9} registers\b")
_GLOBAL = re.compile(r"(\d{1,12}) bytes gmem\b")
_TIME = re.compile(r"Compile time = (\d{1,9})\.(\d{3}) ms$")
_BANK = re.compile(r"(\d{1,12}) bytes cmem\[(\d{1,3})\]$")
_ITEMS = {
    "registers_per_thread": re.compile(r"[Uu]sed (\d{1,9}) registers$"),
    "barriers": re.compile(r"used (\d{1,9}) barriers$"),
    "cumulative_stack_bytes": re.compile(r"(\d{1,12}) (?:bytes cumulative stack size|stack)$"),
    "shared_bytes": re.compile(r"(\d{1,12}) bytes smem$"),
    "local_bytes": re.compile(r"(\d{1,12}) bytes lmem$"),
}
_OTHER_ITEM = re.compile(r"\d{1,12} (?:bytes cmem\[\d{1,3}\]|textures|samplers|surfaces)$")


@dataclass
class _Record:
    """What has been read of one entry so far."""

    key: Key
    by: Literal["assembler", "linker"] = "assembler"
    figures: dict[str, int] = field(default_factory=dict)
    banks: dict[str, int] | None = None
    unread: bool = False


class _Reader:
    """The report's little grammar: which entry or function the next line belongs to."""

    def __init__(self) -> None:
        self.records: list[_Record] = []
        self.modules: list[ModuleFigures] = []
        self.functions: list[str] = []
        self.relocatable = False
        self.findings: list[Finding] = []
        self._targeted = 0
        self._entry: _Record | None = None
        self._owner: _Record | None = None

    def read(self, line: Line) -> None:
        """Take the next line. Source diagnostics quote whatever a source says, so no figure is read from them."""
        if line.tool != "source" and line.level in ("info", "plain") and self._figures(line):
            return
        found = finding(line)
        if found:
            self.findings.append(found)

    def _figures(self, line: Line) -> bool:
        if line.level == "plain":
            return self._frame(line.text)
        return self._opens(line.text) or self._closes(line.text) or self._frame(line.text)

    def _opens(self, text: str) -> bool:
        """Lines that say whose the next ones are."""
        if match := _ENTRY.match(text):
            self._entry = self._owner = _Record((match[1], match[2]))
            self.records.append(self._entry)
            self._target(match[2])
        elif match := _PROPERTIES.match(text):
            self._properties(match["quoted"], match["bare"])
        elif match := _GLOBAL.match(text):
            self._entry = self._owner = None
            self.modules.append(ModuleFigures(global_bytes=int(match[1]), constant_bytes=_banks(text)))
        else:
            return False
        return True

    def _properties(self, quoted: str | None, bare: str | None) -> None:
        name = quoted or bare or ""
        if quoted:
            self._owner = self._entry = _Record((name, None), by="linker")
            self.records.append(self._owner)
        elif self._entry is not None and self._entry.key[0] == name:
            self._owner = self._entry
        else:
            self._owner = None
            self.functions.append(name)

    def _closes(self, text: str) -> bool:
        if _USED.match(text):
            if self._entry is not None and "registers_per_thread" not in self._entry.figures:
                _use(self._entry, text)
            return True
        if match := _TIME.match(text):
            if self._owner is not None:
                self._owner.figures["compile_ns"] = (int(match[1]) * 1000 + int(match[2])) * 1000
            elif self.functions:
                self.relocatable = True
            return True
        return False

    def _frame(self, text: str) -> bool:
        match = _FRAME.match(text)
        if match and self._owner is not None:
            for name, group in (("stack_bytes", "stack"), ("spill_store_bytes", "store"), ("spill_load_bytes", "load")):
                self._owner.figures.setdefault(name, int(match[group]))
        return match is not None

    def _target(self, target: str) -> None:
        """A finding that names no target has that of the entries after it: a report starts with its findings."""
        for index in range(self._targeted, len(self.findings)):
            if self.findings[index].target is None:
                self.findings[index] = self.findings[index].model_copy(update={"target": target})
        self._targeted = len(self.findings)


def _use(record: _Record, text: str) -> None:
    """Every item of a `Used` line; items of unknown form are noted."""
    for item in text.split(", "):
        matches = {name: match for name, pattern in _ITEMS.items() if (match := pattern.match(item))}
        record.figures.update({name: int(match[1]) for name, match in matches.items()})
        record.unread |= not matches and not _OTHER_ITEM.match(item)
    record.banks = _banks(text)


def _banks(text: str) -> dict[str, int] | None:
    """Constant bytes by bank; None when no bank is printed, which sm_90 and later never do."""
    found = (_BANK.match(item) for item in text.split(", "))
    return {match[2]: int(match[1]) for match in found if match} or None


def _merged(records: Iterable[_Record]) -> dict[Key, Figures]:
    """One record a key: a linker's replaces the assembler's; a field that equals disagree about is None."""
    by_key: dict[Key, list[_Record]] = {}
    for record in records:
        by_key.setdefault(record.key, []).append(record)
    for key in [key for key in by_key if key[1] is None]:
        homes = [other for other in by_key if other[0] == key[0] and other[1] is not None]
        if len(homes) == 1:
            by_key[homes[0]] = by_key.pop(key)
    return {key: _agreed(found) for key, found in by_key.items()}


def _agreed(records: list[_Record]) -> Figures:
    names = {name for record in records for name in record.figures}
    values = {name: {record.figures[name] for record in records if name in record.figures} for name in names}
    agreed = {name: found.pop() for name, found in values.items() if len(found) == 1}
    banks = [record.banks for record in records if record.banks is not None]
    one = banks[0] if banks and all(bank == banks[0] for bank in banks) else None
    unread = any(record.unread for record in records)
    return Figures.model_validate({"by": records[0].by, "constant_bytes": one, "unread": unread, **agreed})
