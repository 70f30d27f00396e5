"""PTX text to facts: entries with their bounds, mutable state, undefined symbols, registers that tell launches apart.

The text is what the front end made of a candidate's source, inline assembly and its comments included. Special
registers are therefore searched in the whole text: a comment that names one is reported too, none is hidden by a
comment that only this reader sees.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

from qualify.model import Document

MAX_PTX_CHARS = 64 << 20  # The largest modules of kernel libraries are a few MiB of PTX.

# Registers whose value differs between launches of one grid on the same data: clocks, performance counters, the
# grid's number, the driver's words, the graph that is replayed (PTX ISA, "Special Registers").
_SPECIAL = re.compile(
    r"%(?:clock(?:64|_hi)?|globaltimer(?:_lo|_hi)?|gridid|pm\d{1,2}(?:_64)?|envreg\d{1,2}|current_graph_exec)(?![\w$])"
)
# What must not be before a word is asked behind it: a search for something that begins with letters is a quick one.
_HINT = re.compile(r"setmaxnreg\.(?<!\wsetmaxnreg\.)")
_HIDDEN = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_VERSION = re.compile(r"\.version\s+(\d{1,3}\.\d{1,3})")
_TARGET = re.compile(r"\.target\s+(\w{1,40})")
_MARK, _BRACE = re.compile(r"[{};]"), re.compile(r"[{}]")
_FUNCTION = re.compile(r"\.(entry|func)\b")
_FUNCTION_NAME = re.compile(r"\s*(?:\.\w+\s*)*(?:\([^)]*\)\s*)?([\w$.%]+)")
_VARIABLE = re.compile(r"(?<![\w.$])\.(global|const)\b")
_INNER = re.compile(r"\.(?:global(?<![\w.$]\.global)|const(?<![\w.$]\.const))\b[^;{}]*")
_LINKAGE = re.compile(r"\.(extern|common|weak|visible)\b")
_TYPE = re.compile(r"\.(?:[busf](8|16|32|64|128)|b1|pred|f16x2|bf16|\w+ref)\b")
_VECTOR = re.compile(r"\.v([248])\b")
_WORD = re.compile(r"[A-Za-z_$%][\w$]*|\[\d{0,18}\]|\S")
_ATTRIBUTE = re.compile(r"\.attribute\s*\((?:[^()]|\([^()]*\)){0,400}\)")
_BOUNDS = re.compile(
    r"\.(maxntid|reqntid|minnctapersm|maxnreg|reqnctapercluster|maxclusterrank)\s+(\d{1,9}(?:\s*,\s*\d{1,9}){0,2})"
)


class Variable(Document):
    """A variable in device memory; `size_bytes` is None where the declaration leaves it open.

    `named` tells whether a function or another variable of its module names it: headers of a toolkit bring hundreds
    of constants that no code can reach.
    """

    name: str
    size_bytes: int | None
    named: bool | None = None


class PtxEntry(Document):
    """One entry: the launch bounds that its source promised, and what its own body reads."""

    symbol: str
    max_threads: tuple[int, ...] | None = None
    required_threads: tuple[int, ...] | None = None
    min_blocks: int | None = None
    max_registers: int | None = None
    cluster: tuple[int, ...] | None = None
    register_hints: bool = False
    special_registers: tuple[str, ...] = ()

    @property
    def block_threads(self) -> int | None:
        """The most threads of a block that the source promised; None when it promised nothing."""
        bounds = self.required_threads or self.max_threads
        return None if bounds is None else prod(bounds)


class Ptx(Document):
    """A module. `state` are its variables in writable memory, `undefined` the names it expects from elsewhere."""

    version: str | None
    target: str | None
    entries: tuple[PtxEntry, ...]
    state: tuple[Variable, ...]
    constants: tuple[Variable, ...]
    undefined: tuple[str, ...]
    special_registers: tuple[str, ...]

    def entry(self, symbol: str) -> PtxEntry | None:
        """The entry of that name, or None."""
        return next((entry for entry in self.entries if entry.symbol == symbol), None)


def scan(text: str) -> Ptx:
    """The facts of a PTX text. Raises ValueError for a text beyond MAX_PTX_CHARS; no other text is refused."""
    if len(text) > MAX_PTX_CHARS:
        raise ValueError(f"{len(text)} characters of PTX where at most {MAX_PTX_CHARS} are read")
    visible = _HIDDEN.sub(" ", text)
    version, target = _VERSION.search(visible), _TARGET.search(visible)
    special = _registers(text)
    module = _Module(special)
    for header, body in _statements(visible):
        module.take(header, body)
    state, constants = module.variables("global"), module.variables("const")
    return Ptx(
        version=version[1] if version else None,
        target=target[1] if target else None,
        entries=tuple(module.entries),
        state=state,
        constants=constants,
        undefined=tuple(name for name in dict.fromkeys(module.expected) if name not in module.defined),
        special_registers=special,
    )


def _registers(text: str) -> tuple[str, ...]:
    return tuple(sorted(set(_SPECIAL.findall(text))))


def _statements(text: str) -> Iterator[tuple[str, str | None]]:
    """Every statement at the module's level: its text, and its body when it is a function with one."""
    depth, start, opened, at = 0, 0, 0, -1
    while match := (_BRACE if depth else _MARK).search(text, at + 1):
        mark, at = match[0], match.start()
        if mark == "{":
            opened = at if depth == 0 else opened
            depth += 1
        elif mark == "}":
            depth = max(0, depth - 1)
            if depth == 0 and _FUNCTION.search(text, start, opened):  # Else an initialiser, which its `;` ends.
                yield text[start:opened], text[opened + 1 : at]
                start = at + 1
        elif depth == 0:
            yield text[start:at], None
            start = at + 1


class _Module:
    """What the statements add up to. Where the whole text names no `special` register, no entry's body does."""

    def __init__(self, special: tuple[str, ...]) -> None:
        self._special = special
        self.entries: list[PtxEntry] = []
        self.expected: list[str] = []
        self.defined: set[str] = set()
        self._variables: list[tuple[str, Variable]] = []
        self._texts: list[str] = []

    def variables(self, space: str) -> tuple[Variable, ...]:
        """The variables of a state space. Words are looked for only where there is one that may be named by them."""
        found = [variable for held_in, variable in self._variables if held_in == space]
        words = {word for text in self._texts for word in _WORD.findall(text)} if found else set()
        return tuple(variable.model_copy(update={"named": variable.name in words}) for variable in found)

    def take(self, header: str, body: str | None) -> None:
        """One statement of the module."""
        function = _FUNCTION.search(header)
        if function is None:
            self._variable(header)
            return
        found = _FUNCTION_NAME.match(header, function.end())
        name = found[1] if found else "?"
        if body is None or found is None:
            self.expected.append(name)
            return
        self.defined.add(name)
        self._texts.append(body)
        if function[1] == "entry":
            self.entries.append(_entry(name, header, body, _registers(body) if self._special else ()))
        for inner in _INNER.findall(body):
            self._variable(inner)

    def _variable(self, header: str) -> None:
        space = _VARIABLE.search(header)
        if space is None:
            return
        linkage = _LINKAGE.findall(header)
        self._texts.append(header.partition("=")[2])
        for variable in _variables(header):
            if "extern" in linkage:
                self.expected.append(variable.name)
                continue
            self.defined.add(variable.name)
            self._variables.append((space[1], variable))


def _variables(header: str) -> Iterator[Variable]:
    """The names that a declaration declares, with their sizes."""
    declaration = _ATTRIBUTE.sub(" ", header).partition("=")[0]
    width = _TYPE.search(declaration)
    vector = _VECTOR.search(declaration)
    element = int(width[1]) // 8 if width and width[1] else None
    for part in declaration.split(","):
        words = _WORD.findall(part)
        counts = [word[1:-1] for word in words if word[0] == "[" and word != "["]
        names = [word for word in words if word[0].isalpha() or word[0] in "_$%"]
        known = element is not None and all(counts) and len(counts) == part.count("[")
        size = (element or 0) * (int(vector[1]) if vector else 1) * prod(int(count or 0) for count in counts)
        if names:
            yield Variable(name=names[-1], size_bytes=size if known else None)


def _entry(symbol: str, header: str, body: str, special: tuple[str, ...]) -> PtxEntry:
    bounds: dict[str, tuple[int, ...]] = {
        name: tuple(int(value) for value in values.split(",")) for name, values in _BOUNDS.findall(header)
    }
    return PtxEntry(
        symbol=symbol,
        max_threads=bounds.get("maxntid"),
        required_threads=bounds.get("reqntid"),
        min_blocks=bounds.get("minnctapersm", (None,))[0],
        max_registers=bounds.get("maxnreg", (None,))[0],
        cluster=bounds.get("reqnctapercluster"),
        register_hints=_HINT.search(body) is not None,
        special_registers=special,
    )
