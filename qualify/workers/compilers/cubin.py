"""The ELF of a cubin to facts: ABI, resources, mutable state, undefined symbols, target. Unknown is None.

Two header layouts are in use: ABI 7 (up to 12.9) and ABI 8 (Blackwell from 12.8, everything from 13.0). Neither keeps
the target's suffix in its flags in a way that every release agrees on, so the suffix is read from the toolkit's note
only. The attribute numbers are those that ptxas 11.8 to 13.5 writes into `.nv.info`.

The few headers that matter are unpacked here: a general ELF reader drops the bit of `st_other` that marks an entry,
and takes longer over forty section headers than the rest of a report takes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from qualify.objectcode import Parameter
from qualify.ptx import Variable

MAX_CUBIN_BYTES = 256 << 20  # The largest single-target libraries are under 200 MiB.
RESERVED_SHARED_BYTES = 1024  # What a linked object adds to each entry's section from sm_90 on.
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MACHINE_CUDA, _EXECUTABLE = 190, 2
# Section types without bytes in the file: none, NOBITS, and a relocatable object's global, local and shared memory.
_EMPTY_TYPES = {0, 8, 0x7000_0007, 0x7000_0009, 0x7000_000A, 0x7000_0015}
_FUNCTION, _OBJECT, _WEAK, _ENTRY_FLAG = 2, 1, 2, 0x10
_WRITE_ALLOCATED, _COMPRESSED = 0x3, 0x800
_CONSTANT_BANKS, _MAX_NAME_BYTES = 18, 8192
# Attributes of `.nv.info`.
_MAX_THREADS, _REQUIRED_THREADS, _PARAMETER_BANK = 0x05, 0x10, 0x0A
_FRAME_SIZE, _MIN_STACK_SIZE, _REGISTERS = 0x11, 0x12, 0x2F
_PARAMETER, _PARAMETER_WIDE, _PARAMETER_BYTES, _MAX_REGISTERS = 0x17, 0x45, 0x19, 0x1B
_TOOLKIT, _CLUSTER, _BARRIERS = 0x37, 0x3D, 0x4C
# Names that the toolkit itself leaves open; those that C could spell only where they are weak.
_TOOLKITS_OWN, _TOOLKITS_WEAK = ".nv.reservedSmem.", ("__UDT", "__UFT")
_NOTE_TOOLKIT = 2000


class CubinError(ValueError):
    """Bytes that are no whole cubin; the message says what was found."""


@dataclass
class CubinEntry:
    """One kernel: parameters by ordinal, resources, the bounds it was compiled under. None: the file does not say.

    `shared_bytes` is static shared memory; `stack_bytes` the entry's own frame, `cumulative_stack_bytes` with its
    callees; `constant_bytes` sizes by bank; `parameter_base` the offset of parameters in bank 0.
    """

    symbol: str
    parameters: tuple[Parameter, ...] | None = None
    parameter_base: int | None = None
    parameter_bytes: int | None = None
    registers: int | None = None
    barriers: int | None = None
    stack_bytes: int | None = None
    cumulative_stack_bytes: int | None = None
    shared_bytes: int | None = None
    constant_bytes: dict[str, int] = field(default_factory=dict)
    max_threads: int | None = None
    required_threads: int | None = None
    max_registers: int | None = None
    cluster: tuple[int, int, int] | None = None

    @property
    def block_threads(self) -> int | None:
        """The most threads of a block that the entry was compiled for; None when it has no bound."""
        return self.max_threads if self.required_threads is None else self.required_threads


@dataclass(frozen=True)
class Cubin:
    """What a cubin is. `target` has its suffix and is None when no note names it; `sm` is the number in the flags.

    `linked` is false for a relocatable object: a linker still decides registers, stack and shared memory.
    """

    sm: int
    target: str | None
    tool: str | None
    linked: bool
    entries: tuple[CubinEntry, ...]
    state: tuple[Variable, ...]
    state_bytes: int
    constant_bytes: dict[str, int]
    undefined: tuple[str, ...]

    def entry(self, symbol: str) -> CubinEntry | None:
        """The entry of that name, or None."""
        return next((entry for entry in self.entries if entry.symbol == symbol), None)


def read(data: bytes) -> Cubin:
    """The facts of a cubin. Raises CubinError for anything else, a file cut short before all else."""
    try:
        elf = _Elf(data)
        return _facts(elf)
    except (struct.error, UnicodeDecodeError) as error:
        raise CubinError(f"not a readable cubin: {error}") from error


@dataclass(frozen=True)
class _Section:
    name: str
    flags: int
    size: int
    align: int
    data: bytes


@dataclass(frozen=True)
class _Symbol:
    name: str
    kind: int
    weak: bool
    is_entry: bool
    section: int
    value: int
    size: int


class _Elf:
    """Sections and symbols of a 64-bit little-endian CUDA object whose every part lies inside the file."""

    def __init__(self, data: bytes) -> None:
        if not _HEADER.size <= len(data) <= MAX_CUBIN_BYTES:
            raise CubinError(f"{len(data)} bytes where {_HEADER.size} to {MAX_CUBIN_BYTES} are read")
        magic, kind, machine, _, _, _, start, flags, _, _, _, header_bytes, count, names = _HEADER.unpack_from(data)
        if magic[:6] != b"\x7fELF\x02\x01" or machine != _MACHINE_CUDA:
            raise CubinError("no 64-bit little-endian ELF header of a CUDA object")
        if start + header_bytes * count > len(data):
            raise CubinError(f"cut short: {len(data)} bytes, a table of {count} sections at {start}")
        if header_bytes != _SECTION.size or names >= count:
            raise CubinError(f"section headers of {header_bytes} bytes, {count} of them, names in number {names}")
        self.abi, self.flags, self.linked = magic[8], flags, kind == _EXECUTABLE
        headers = list(_SECTION.iter_unpack(data[start : start + header_bytes * count]))
        contents = [_content(data, number, header) for number, header in enumerate(headers)]
        self.sections = tuple(
            _Section(_text(contents[names], header[0]), header[2], header[5], header[8], content)
            for header, content in zip(headers, contents, strict=True)
        )
        self._by_name = {section.name: section for section in self.sections}
        if len(self._by_name) != len(self.sections):
            raise CubinError("two sections of one name")
        self.symbols = tuple(self._symbols())

    def named(self, name: str) -> _Section | None:
        """The section of that name, or None."""
        return self._by_name.get(name)

    def _symbols(self) -> Iterator[_Symbol]:
        table, names = self.named(".symtab"), self.named(".strtab")
        if table is None or names is None or len(table.data) % _SYMBOL.size:
            raise CubinError("no whole symbol table")
        for name, info, other, section, value, size in _SYMBOL.iter_unpack(table.data):
            text = _text(names.data, name)
            yield _Symbol(text, info & 0xF, info >> 4 == _WEAK, bool(other & _ENTRY_FLAG), section, value, size)


def _content(data: bytes, number: int, header: tuple[int, ...]) -> bytes:
    """A section's bytes. Raises CubinError if they lie outside the file or are compressed."""
    _, kind, flags, _, start, size, *_ = header
    if kind in _EMPTY_TYPES:
        return b""
    if start + size > len(data):
        raise CubinError(f"cut short: section {number} ends at {start + size} of {len(data)} bytes")
    if flags & _COMPRESSED:
        raise CubinError(f"section {number} is compressed")
    return data[start : start + size]


def _text(table: bytes, offset: int) -> str:
    """The name at an offset of a string table. Raises CubinError for a name outside it."""
    end = table.find(b"\0", offset, offset + _MAX_NAME_BYTES)
    if end < 0:
        raise CubinError(f"no whole name at {offset} of a table of {len(table)} bytes")
    return table[offset:end].decode()


def _attributes(section: _Section) -> Iterator[tuple[int, bytes]]:
    """(number, value) of each attribute: one, two or a counted number of bytes."""
    data, at = section.data, 0
    while at < len(data):
        form, number, value = struct.unpack_from("<BBH", data, at)
        if form not in (1, 2, 3, 4):
            raise CubinError(f"{section.name} holds an attribute of form {form}")
        at += 4
        size = value if form == 4 else 0
        if at + size > len(data):
            raise CubinError(f"{section.name} ends inside an attribute")
        yield number, data[at : at + size] if form == 4 else value.to_bytes(2, "little")
        at += size


def sm_number(abi: int, flags: int) -> int:
    """The target's number in the header's flags: the low byte in ABI 7, the one above it in ABI 8."""
    return flags & 0xFF if abi == 7 else flags >> 8 & 0xFF


def _facts(elf: _Elf) -> Cubin:
    if elf.abi not in (7, 8):
        raise CubinError(f"ABI {elf.abi} where 7 and 8 are known")
    sm = sm_number(elf.abi, elf.flags)
    entries = {
        number: CubinEntry(symbol=symbol.name)
        for number, symbol in enumerate(elf.symbols)
        if symbol.kind == _FUNCTION and symbol.is_entry and symbol.section
    }
    if len({entry.symbol for entry in entries.values()}) != len(entries):
        raise CubinError("two entries of one name")
    _module_attributes(elf, entries)
    toolkits = set()
    for entry in entries.values():
        toolkits.add(_entry_attributes(elf, entry))
        _entry_sections(elf, entry, sm)
    target, tool = _toolkit_note(elf)
    state = _state(elf)
    return Cubin(
        sm=sm,
        target=target,
        tool=tool or (toolkits.pop() if len(toolkits) == 1 else None),
        linked=elf.linked,
        entries=tuple(sorted(entries.values(), key=lambda entry: entry.symbol)),
        state=state,
        state_bytes=sum(section.size for _, section in _writable(elf)),
        constant_bytes=_banks(elf, ""),
        undefined=tuple(sorted(set(_undefined(elf)))),
    )


def _module_attributes(elf: _Elf, entries: dict[int, CubinEntry]) -> None:
    """`.nv.info` itself: registers and stack of every function by symbol number."""
    section = elf.named(".nv.info")
    for number, value in _attributes(section) if section else ():
        if number not in (_FRAME_SIZE, _MIN_STACK_SIZE, _REGISTERS):
            continue
        symbol, size = struct.unpack("<II", value)
        entry = entries.get(symbol)
        if entry is None:
            continue
        if number == _REGISTERS:
            entry.registers = size
        elif number == _FRAME_SIZE:
            entry.stack_bytes = size
        else:
            entry.cumulative_stack_bytes = size


def _entry_attributes(elf: _Elf, entry: CubinEntry) -> str | None:
    """`.nv.info.<entry>`; the toolkit that it names is returned, `12.8`."""
    section = elf.named(f".nv.info.{entry.symbol}")
    if section is None:
        return None
    found, parameters = {}, []
    for number, value in _attributes(section):
        if number in (_PARAMETER, _PARAMETER_WIDE):
            parameters.append(_parameter(number, value))
        else:
            found[number] = value
    entry.max_threads = _product(found.get(_MAX_THREADS))
    entry.required_threads = _product(found.get(_REQUIRED_THREADS))
    entry.max_registers = _integer(found.get(_MAX_REGISTERS))
    entry.barriers = found[_BARRIERS][0] if _BARRIERS in found else None
    if _CLUSTER in found:
        entry.cluster = struct.unpack("<III", found[_CLUSTER])
    _parameter_table(entry, parameters, found)
    toolkit = _integer(found.get(_TOOLKIT))
    return f"{toolkit // 10}.{toolkit % 10}" if toolkit else None


def _parameter(number: int, value: bytes) -> tuple[int, int, int]:
    """(ordinal, offset, size in bytes); sizes beyond 16 KiB have a form of their own."""
    _, ordinal, offset, size = struct.unpack("<IHHI", value)
    return ordinal, offset, size >> 18 if number == _PARAMETER else size


def _parameter_table(entry: CubinEntry, parameters: list[tuple[int, int, int]], found: dict[int, bytes]) -> None:
    """The table if it is whole: ordinals 0 to n-1, and none beyond the bytes that the entry says it takes."""
    entry.parameter_bytes = _integer(found.get(_PARAMETER_BYTES)) or 0
    if _PARAMETER_BANK in found:
        entry.parameter_base = struct.unpack("<IHH", found[_PARAMETER_BANK])[1]
    ordered = sorted(parameters)
    whole = [ordinal for ordinal, _, _ in ordered] == list(range(len(ordered)))
    ends = max((offset + size for _, offset, size in ordered), default=0)
    if whole and ends == entry.parameter_bytes:
        entry.parameters = tuple(Parameter(offset_bytes=offset, size_bytes=size) for _, offset, size in ordered)


def _entry_sections(elf: _Elf, entry: CubinEntry, sm: int) -> None:
    """Figures that lie in the sections that carry the entry's name."""
    code = elf.named(f".text.{entry.symbol}")
    if code is not None and elf.abi == 7:
        entry.barriers = code.flags >> 20 & 0x7F
    shared = elf.named(f".nv.shared.{entry.symbol}")
    reserved = RESERVED_SHARED_BYTES if elf.linked and sm >= 90 and shared else 0
    size = shared.size - reserved if shared else 0
    entry.shared_bytes = size if size >= 0 else None
    entry.constant_bytes = _banks(elf, f".{entry.symbol}")


def _banks(elf: _Elf, suffix: str) -> dict[str, int]:
    """Constant bytes by bank, of an entry (`.name`) or of the module."""
    named = ((str(bank), elf.named(f".nv.constant{bank}{suffix}")) for bank in range(_CONSTANT_BANKS))
    return {bank: section.size for bank, section in named if section}


def _writable(elf: _Elf) -> Iterator[tuple[int, _Section]]:
    """Sections that a kernel can write and that outlive it: all writable memory but shared and local memory."""
    for number, section in enumerate(elf.sections):
        copy = section.name.removeprefix(".nv.merc")
        copied = copy != section.name and elf.named(copy) is not None
        passing = section.name.startswith((".nv.shared.", ".nv.local."))
        if section.size and section.flags & _WRITE_ALLOCATED == _WRITE_ALLOCATED and not passing and not copied:
            yield number, section


def _state(elf: _Elf) -> tuple[Variable, ...]:
    """Every variable of writable memory; bytes that no symbol names count under the section's name."""
    objects: dict[int, list[_Symbol]] = {}
    for symbol in elf.symbols:
        if symbol.kind == _OBJECT:
            objects.setdefault(symbol.section, []).append(symbol)
    found: list[Variable] = []
    for number, section in _writable(elf):
        symbols = objects.get(number, [])
        found += [Variable(name=symbol.name, size_bytes=symbol.size) for symbol in symbols]
        unnamed = _unnamed_bytes(section, symbols)
        if unnamed:
            found.append(Variable(name=section.name, size_bytes=unnamed))
    return tuple(found)


def _unnamed_bytes(section: _Section, symbols: list[_Symbol]) -> int:
    """Bytes of a section that lie in no symbol and are too many to be alignment."""
    end, unnamed = 0, 0
    for start, size in [*sorted((symbol.value, symbol.size) for symbol in symbols), (section.size, 0)]:
        if start - end >= max(section.align, 1):
            unnamed += start - end
        end = max(end, start + size)
    return unnamed


def _undefined(elf: _Elf) -> Iterator[str]:
    for symbol in elf.symbols:
        own = symbol.name.startswith(_TOOLKITS_OWN) or (symbol.weak and symbol.name.startswith(_TOOLKITS_WEAK))
        if symbol.name and symbol.section == 0 and not own:
            yield symbol.name


def _toolkit_note(elf: _Elf) -> tuple[str | None, str | None]:
    """(target with suffix, release) from the note that ABI 8 has; None for each that it does not name once."""
    section = elf.named(".note.nv.tkinfo")
    if section is None or len(section.data) < 48:
        return None, None
    name_bytes, _, kind = struct.unpack_from("<III", section.data)
    if kind != _NOTE_TOOLKIT:
        return None, None
    text = section.data[12 + name_bytes :].decode("ascii", "replace")
    targets = set(re.findall(r"-arch[ =](sm_\d{2,3}[a-z]?)(?=[\s\0])", text))
    releases = set(re.findall(r"release \d+\.\d+, V(\d+\.\d+\.\d+)", text))
    return targets.pop() if len(targets) == 1 else None, releases.pop() if len(releases) == 1 else None


def _product(value: bytes | None) -> int | None:
    return None if value is None else prod(struct.unpack("<III", value))


def _integer(value: bytes | None) -> int | None:
    return None if value is None else int.from_bytes(value, "little")
