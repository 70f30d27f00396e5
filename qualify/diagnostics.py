"""Compiler logs to lines, and lines to findings: what a toolkit says beside its figures. Pure text, no clock, no disk.

A log reaches us through linkers, build systems and terminals, so a line may carry a prefix, a NUL, a carriage return
or bytes of any encoding. The forms are those of ptxas, nvlink and NVRTC 11.8 to 13.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, cast

from qualify.model import Document

MAX_LOG_BYTES = 4 << 20  # A build of a thousand entries prints under 1 MiB.
MAX_LINE_CHARS = 1 << 16  # Mangled names pass 600 characters; nothing honest is near this.
MAX_FINDING_CHARS = 4096  # What is searched of a line for a finding; bounds the time of any pattern below.
MAX_TEXT_CHARS = 400  # A finding's text is for people.

Level = Literal["info", "warning", "error", "fatal", "plain"]
Kind = Literal[
    "advisory",
    "spill",
    "local",
    "register-limit",
    "launch-bounds",
    "shared-limit",
    "target",
    "version",
    "option",
    "undefined",
    "disagreement",
    "other",
]


class Line(NamedTuple):
    """One line of a log: who wrote it, how grave it is, what it says.

    `tool` is `ptxas`, `nvlink`, ...; `source` for a compiler's diagnostic about a source file; empty for a bare line.
    """

    tool: str
    level: Level
    text: str
    at_line: int | None = None


class Finding(Document):
    """What a tool said beside its figures. `entry` is None for the whole module.

    `code` is the parenthesised one (C7508). `requested` and `effective` are the two sides of a contradiction:
    registers asked for and used, shared bytes asked for and allowed. `about` is the instruction, directive,
    symbol or version that the message is about; `line` counts lines of the tool's input.
    """

    kind: Kind
    level: Level
    text: str
    code: str | None = None
    entry: str | None = None
    target: str | None = None
    line: int | None = None
    requested: int | None = None
    effective: int | None = None
    about: str | None = None


# What build systems put before a line: `1>`, `#12 3.456`, `[3/10]`, `build-1 |`, a time stamp.
_PREFIX = re.compile(
    r"(?:\s{0,256}(?:\d{1,4}>|#\d{1,4} \d{1,9}\.\d{1,9}|\[[^\[\]]{1,64}\]|[\w.-]{1,40} {0,8}\|"
    r"|\d{4}-\d\d-\d\dT[\d:.]{1,24}Z?)){0,4}\s{0,256}"
)
_TOOL = re.compile(
    r"(?P<tool>ptxas|nvlink|nvcc|nvrtc|cicc|fatbinary)\b"
    r"(?:(?: [^;]{1,4096}?(?:, line (?P<line>\d{1,9}))?;)?:?\s{0,16}(?P<level>info|warning|error|fatal)\s{0,8}:"
    r"|\s{1,16}\.\s)\s?(?P<text>.*)"
)
_BARE = re.compile(r"(?P<level>info|warning|error|fatal)\s{0,8}:\s?(?P<text>.*)")
# A compiler's diagnostic about a file: file(line): error, file:line:column: error, file : error C1234.
_SEVERITY = r"(?:(?:catastrophic|internal|fatal|command-line) )?(?P<level>error|warning|remark|note)"
_PLACED = re.compile(
    r"(?:[^()]{1,1024}?\((?P<line>\d{1,9})(?:,\d{1,9})?\)|[^:()]{1,1024}:(?P<colon>\d{1,9})(?::\d{1,9})?)"
    r"\s?:\s{0,4}" + _SEVERITY + r"(?: #?[A-Z]{0,4}\d{1,6}(?:-D)?)?\s?:"
)
_NUMBERED = re.compile(r"[^()]{1,1024}?\s:\s" + _SEVERITY + r" [A-Z]{1,4}\d{1,6}\s?:")
_COUNT = re.compile(r"\d{1,9} (?:catastrophic )?errors? detected in the compilation of")
_CODE = re.compile(r"\(([A-Z]{1,3}\d{3,5})\)")
_ENTRY = re.compile(
    r"[Ff]unction '([^']{1,4096})'|for entry (\S{1,4096}?),? (?:is out of range|will be)"
    r"|for '([^']{1,4096})' with|of '([^']{1,4096})'"
)


def lines(log: bytes | str) -> Iterator[Line]:
    """The lines of a log, of at most its first MAX_LOG_BYTES. A NUL ends a line; bytes that are no UTF-8 are replaced.

    Lines longer than MAX_LINE_CHARS are left out: what they would have said is unknown.
    """
    text = log[:MAX_LOG_BYTES].decode("utf-8", "replace") if isinstance(log, bytes) else log[:MAX_LOG_BYTES]
    for raw in re.split(r"[\n\r\0]", text):
        if raw and len(raw) <= MAX_LINE_CHARS and not raw.isspace():
            yield _line(raw)


def _line(raw: str) -> Line:
    prefix = _PREFIX.match(raw)
    text = raw[prefix.end() if prefix else 0 :].rstrip()
    if match := _TOOL.match(text):
        return Line(match["tool"], _level(match["level"]), match["text"].strip(), _integer(match["line"]))
    if match := _BARE.match(text):
        return Line("", _level(match["level"]), match["text"].strip())
    if match := _PLACED.match(text):
        return Line("source", _level(match["level"]), text, _integer(match["line"] or match["colon"]))
    if match := _NUMBERED.match(text):
        return Line("source", _level(match["level"]), text)
    if _COUNT.match(text):
        return Line("source", "error", text)
    return Line("", "plain", text)


def _level(word: str | None) -> Level:
    return cast("Level", {"remark": "info", "note": "info", None: "plain"}.get(word, word))


def _integer(text: str | None) -> int | None:
    if text is None:
        return None
    return int(text, 16) if text.startswith("0x") else int(text)


# Message forms, first match wins. Named groups fill the finding's fields of the same name.
_NUMBER = r"\d{1,9}"
_NOT_ON = r"(?P<about>(?:\w{1,40} )?'[^']{1,200}') (?:not supported on|requires) \.target '?(?P<target>\w{1,40})"
_DIRECTIVES = r"(?P<about>minnctapersm|max\w{1,40}|req\w{1,40}|minnreg)"
_FORMS: tuple[tuple[Kind, re.Pattern[str]], ...] = tuple(
    (cast("Kind", kind), re.compile(pattern))
    for kind, pattern in (
        ("spill", r"Registers are spilled to local memory"),
        ("local", r"Local memory used for function"),
        (
            "register-limit",
            rf"global maxrregcount (?P<requested>{_NUMBER}) with entry-specific value (?P<effective>{_NUMBER})",
        ),
        ("register-limit", rf"Overriding maximum register limit .* with\s+(?P<effective>{_NUMBER}) of maxrregcount"),
        (
            "register-limit",
            rf"For profile (?P<target>\w{{1,40}}) adjusting per thread register count of (?P<requested>{_NUMBER})"
            rf" to lower bound of (?P<effective>{_NUMBER})",
        ),
        ("register-limit", rf"Too big maxrregcount value specified (?P<requested>{_NUMBER}), will be ignored"),
        ("launch-bounds", rf"\.{_DIRECTIVES}\b.{{0,200}} will be ignored"),
        ("launch-bounds", r"for entry \S{1,4096} (?:is out of range|.{0,200} will be ignored)"),
        (
            "shared-limit",
            r"too much shared data \((?P<requested>0x[0-9a-f]{1,12}) bytes, (?P<effective>0x[0-9a-f]{1,12}) max",
        ),
        ("target", _NOT_ON),
        ("target", r"Not a name of any known instruction: '(?P<about>[^']{1,200})'"),
        ("target", r"Value '(?P<target>\w{1,40})' is not defined for option 'gpu-name'"),
        ("target", r"Unsupported gpu architecture '(?P<target>\w{1,40})'"),
        ("target", r"invalid value for --gpu-architecture|SM version specified by \.target is higher than default"),
        (
            "version",
            r"Unsupported \.version (?P<about>[\d.]{1,16}); current version is",
        ),
        ("option", r"Unknown option|nvalid value for -|expected a number|unrecognized option"),
        ("undefined", r"(?:Undefined reference to|Unresolved extern \w{1,16}) '(?P<about>[^']{1,4096})'"),
    )
)


def finding(line: Line) -> Finding | None:
    """What a line says beside figures: anything with a code, every warning and error of a tool, every known form."""
    text = line.text[:MAX_FINDING_CHARS]
    if line.tool == "source":
        return _finding("other", line, text, {}) if line.level == "error" else None
    for kind, pattern in _FORMS:
        if line.level != "plain" and (match := pattern.search(text)):
            return _finding(kind, line, text, match.groupdict())
    if _CODE.search(text) and line.level != "plain":
        return _finding("advisory", line, text, {})
    if line.level in ("error", "fatal") or (line.level == "warning" and line.tool):
        return _finding("other", line, text, {})
    return None


def _finding(kind: Kind, line: Line, text: str, groups: dict[str, str | None]) -> Finding:
    code, entry = _CODE.search(text), _ENTRY.search(text)
    return Finding(
        kind=kind,
        level=line.level,
        text=text[:MAX_TEXT_CHARS],
        code=code[1] if code else None,
        entry=next((name for name in entry.groups() if name), None) if entry else None,
        target=groups.get("target"),
        line=line.at_line,
        requested=_integer(groups.get("requested")),
        effective=_integer(groups.get("effective")),
        about=groups.get("about"),
    )
