"""The closure of a module: every file that a fragment's text can pull in is one of the module's fragments (R6.3).

Compilers open absolute, computed and working-folder paths without asking. So fragments are read the way a compiler
reads them (line splices, comments, literals), and every directive must be one of a short list; where two compilers
read the same bytes differently, the spelling is refused.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache


class IncludeError(ValueError):
    """A line that could reach a file outside the module, or that compilers read differently."""

    def __init__(self, line: int, *, expected: str, got: str, fix: str) -> None:
        super().__init__(f"line {line}: expected {expected}, got {got}")
        self.line, self.expected, self.got, self.fix = line, expected, got, fix


@dataclass(frozen=True)
class Include:
    """One include directive: `"name"` if quoted, else `<name>`."""

    line: int
    name: str
    quoted: bool


@lru_cache(maxsize=256)
def scan(data: bytes) -> tuple[Include, ...]:
    """Every include of a C-like fragment. Raises IncludeError at the first line that is not allowed."""
    found: list[Include] = []
    for line, logical in logical_lines(*spliced(_decoded(data))):
        directive = _DIRECTIVE.fullmatch(logical)
        if directive:
            found += _directive(line, directive["name"], directive["rest"])
    return tuple(found)


def is_listed(include: Include, fragments: Collection[str], *, toolkit_headers: bool) -> bool:
    """Whether an include names a fragment of its module, or with angles a header of a toolkit that has some."""
    return include.name in fragments if include.quoted else toolkit_headers


# Directives that read no file. `pragma` has a list of its own.
_CONDITIONS = {"if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif"}
_DIRECTIVES = {*_CONDITIONS, "define", "undef", "error", "warning", "line", "pragma"}
_PRAGMAS = {"once", "unroll", "nounroll", "ivdep", "OPENCL", "STDC", "omp", "push_macro", "pop_macro"}
_PRAGMA_PREFIXES = ("nv_", "diag_")
_VENDOR_PRAGMAS = {"GCC": {"unroll", "ivdep", "diagnostic"}, "clang": {"loop", "fp", "diagnostic"}}

_BLANK = "[ \t\v\f]"
_DIRECTIVE = re.compile(rf"{_BLANK}*(?:#|%:){_BLANK}*(?P<name>\w*)(?P<rest>.*)", re.DOTALL)
_HEADER = re.compile(rf'{_BLANK}*(?:"(?P<quoted>[^"]*)"|<(?P<angled>[^>]*)>){_BLANK}*')
_PATH = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]*(?:/[A-Za-z0-9_+-][A-Za-z0-9_.+-]*)*")


def _directive(line: int, name: str, rest: str) -> Iterator[Include]:
    """The include that a directive makes, if it makes one."""
    if name == "include":
        yield _include(line, rest)
    elif name == "pragma":
        _check_pragma(line, rest)
    elif name not in _DIRECTIVES and (name or rest.strip()):
        raise IncludeError(
            line,
            expected="#include or a directive that reads no file",
            got=f"#{name or rest.strip()[:20]}",
            fix='write #include "fragment", or remove the line',
        )


def _include(line: int, rest: str) -> Include:
    header = _HEADER.fullmatch(rest)
    name = (header["quoted"] or header["angled"] or "") if header else ""
    if header is None or not _PATH.fullmatch(name):
        raise IncludeError(
            line,
            expected="the name of a fragment in quotes",
            got=f"#include{rest.rstrip()[:60]}",
            fix="list the file under the route's fragments and include it by that path",
        )
    return Include(line, name, quoted=header["quoted"] is not None)


def _check_pragma(line: int, rest: str) -> None:
    """A pragma must be known to read no file (`GCC dependency` and others do)."""
    first, second = (*re.findall(r"\w+", rest), "", "")[:2]
    known = first in _PRAGMAS or first.startswith(_PRAGMA_PREFIXES) or second in _VENDOR_PRAGMAS.get(first, ())
    if not known:
        got = f"#pragma {first} {second}".rstrip()
        raise IncludeError(line, expected="a pragma that is known to read no file", got=got, fix="remove it")


_TRIGRAPH = re.compile(r"\?\?[=/'()!<>-]")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ufeff]|\r(?!\n)")
_SPLICE_WITH_BLANKS = re.compile(r"\\[ \t\v\f]+\n|\\[ \t\v\f]*\Z")


def _decoded(data: bytes) -> str:
    """The text with LF line ends. Raises IncludeError for bytes and spellings that compilers read differently."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        got = f"the byte 0x{data[error.start]:02x}"
        raise IncludeError(line, expected="UTF-8", got=got, fix="save the file as UTF-8") from None
    for pattern, what, fix in (
        (_CONTROL, "a control character", "remove it"),
        (_TRIGRAPH, "a trigraph", "write the character itself"),
    ):
        match = pattern.search(text)
        if match:
            line = text.count("\n", 0, match.start()) + 1
            raise IncludeError(line, expected="text that every compiler reads alike", got=what, fix=fix)
    return text.replace("\r\n", "\n")


def spliced(text: str) -> tuple[str, list[int]]:
    """The text without line splices, and where they were, as offsets into it."""
    strange = _SPLICE_WITH_BLANKS.search(text)
    if strange:
        raise IncludeError(
            text.count("\n", 0, strange.start()) + 1,
            expected="a line splice that every compiler reads alike",
            got="a backslash with blanks or nothing after it",
            fix="remove the blanks or the backslash",
        )
    parts = text.split("\\\n")
    splices, offset = [], 0
    for part in parts[:-1]:
        offset += len(part)
        splices.append(offset)
    return "".join(parts), splices


#: Words, signs and slashes that are never refused, whatever is beside them. A word before a quote may be.
_PLAIN = r"""[A-Za-z$][A-Za-z0-9_$]*(?![A-Za-z0-9_$"]) | [][(){};,=+*&|<>!~^%?:\#-] | \.(?![0-9]) | /(?![/*])"""
#: One token at a time, which is what the rules are about.
ONE = r"""
        (?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<unended>/\*)
      | (?P<string>"(?:\\[^\n]|[^"\\\n])*"?)
      | (?P<character>'(?:\\[^\n]|[^'\\\n])*'?)
      | (?P<number>\.?[0-9](?:[eEpP][+-]|[0-9A-Za-z_.])*)
      | (?P<word>[A-Za-z_$][A-Za-z0-9_$]*)
      | (?P<newline>\n)
      | (?P<blank>[ \t\v\f]+)
      | (?P<sign>[][(){};,=+*&|<>!~^%?:\#-]+)
      | (?P<other>.)"""
#: Tokens, but that what is plain is taken in one piece with the blanks after it: most of a source is.
_TOKENS = re.compile(rf"(?P<run>(?:{_PLAIN})(?:{_PLAIN}|[ \t\v\f])*) | {ONE}", re.VERBOSE | re.DOTALL)


def logical_lines(text: str, splices: list[int], tokens: re.Pattern[str] = _TOKENS) -> Iterator[tuple[int, str]]:
    """Each line after splicing, a blank for every comment, with the number of the line where its first token is.

    Raises IncludeError for a token that is refused.
    """
    newlines = [match.start() for match in re.finditer("\n", text)]

    def line(token: re.Match[str]) -> int:
        return 1 + bisect_left(newlines, token.start()) + bisect_right(splices, token.start())

    made: list[str] = []
    start, empty = 1, True
    for token in tokens.finditer(text):
        kind = token.lastgroup
        if kind in _CHECKED:
            _check_token(line, token)
        start = line(token) if empty else start
        if kind == "newline":
            yield start, "".join(made)
            made, empty = [], True
        else:
            made.append(" " if kind == "comment" else token.group())
            empty = empty and made[-1].isspace()
    yield start, "".join(made)


_RAW_PREFIXES = frozenset({"R", "LR", "uR", "UR", "u8R"})
_ASKS_FOR_FILES = re.compile(r"__has_(include|include_next|embed)|__pragma")
_ASSEMBLER_READS = re.compile(r"\.inc(bin|lude)\b")
_PRAGMA_LITERAL = re.compile(r'\s*\(\s*"([^"\\]*)"\s*\)')


#: The kinds of tokens that may be refused.
_CHECKED = frozenset({"word", "unended", "number", "string", "other"})


def _check_token(line: Callable[[re.Match[str]], int], token: re.Match[str]) -> None:
    """Refuse tokens that reach for files, or that would hide or show a directive to one compiler only."""
    kind, spelled = token.lastgroup, token.group()
    after = token.string[token.end() : token.end() + 1]
    if kind == "word":
        if spelled.startswith("_") or after == '"':
            _check_word(line(token), token, after)
        return
    got = None
    if kind == "unended":
        got = "a comment that does not end"
    elif kind == "number" and after == "'":
        got = "a digit separator"
    elif kind == "other" and not spelled.isascii():
        got = f"the character U+{ord(spelled):04X}"
    elif kind == "string" and _ASSEMBLER_READS.search(spelled):
        got = "an assembler directive that reads a file"
    if got:
        raise IncludeError(
            line(token), expected="text that every compiler reads alike", got=got, fix="write it without"
        )


def _check_word(line: int, token: re.Match[str], after: str) -> None:
    word = token.group()
    if word in _RAW_PREFIXES and after == '"':
        raise IncludeError(line, expected="a plain string", got="a raw string", fix="write it with escapes")
    if _ASKS_FOR_FILES.fullmatch(word):
        raise IncludeError(line, expected="no question about other files", got=word, fix="decide by a define")
    if word == "_Pragma":
        literal = _PRAGMA_LITERAL.match(token.string, token.end())
        if literal is None:
            raise IncludeError(line, expected="_Pragma with a plain string", got=word, fix="write the pragma out")
        _check_pragma(line, literal[1])
