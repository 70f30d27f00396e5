r"""SHA256SUMS: one closed grammar, which `sha256sum --strict -c` reads too (R11.3).

The whole file is one or more lines of 64 lower-case hexadecimal digits, two blanks, a path and LF. Paths have 1 to 16
segments of `[A-Za-z0-9_.+-]`, none of which starts with `.`, `+` or `-` or ends in `.`, and at most 512 bytes. They are
strictly increasing as bytes and unique without regard to case; none is a folder of another. That alphabet leaves no
room for escapes, options, drive letters, devices, twins or a way out of the folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NoReturn

from qualify.evidence.problems import ProblemError

MANIFEST = "SHA256SUMS"
#: Files that may lie beside the manifest and are not listed in it: the manifest and its later signatures.
UNLISTED = frozenset({MANIFEST, f"{MANIFEST}.sig", f"{MANIFEST}.intoto.jsonl"})
MAX_MANIFEST_BYTES = 16 << 20  # 25,000 of the longest lines; a thousand subjects with ten gates have 11,000.
MAX_LINE_CHARS = 1024
MAX_PATH_CHARS = 512
MAX_SEGMENTS = 16
MAX_SEGMENT_CHARS = 127

_SEGMENT = r"[A-Za-z0-9_](?:[A-Za-z0-9_.+-]{0,125}[A-Za-z0-9_+-])?"
_PATH = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT}){{0,{MAX_SEGMENTS - 1}}}")
_LINE = re.compile(r"([0-9a-f]{64})  (.+)", re.DOTALL)
_DRIVE = re.compile(r"[A-Za-z]:")


def parse(data: bytes) -> dict[str, str]:
    """The digest of each path, in the manifest's order. Raises ProblemError for anything outside the grammar."""
    digests: dict[str, str] = {}
    previous = ""
    for line in _lines(data):
        digest, path = _entry(line)
        if path <= previous:
            _refuse_order(path, previous, repeated=digests.get(path) == digest)
        digests[path] = digest
        previous = path
    check_together(digests)
    return digests


def write(digests: Mapping[str, str]) -> bytes:
    """The manifest of some files. Raises ProblemError if a path or a digest is outside the grammar."""
    text = "".join(f"{digest}  {path}\n" for path, digest in sorted(digests.items()))
    data = text.encode("utf-8", "surrogatepass")
    parse(data)
    return data


def check_path(path: str) -> None:
    """Refuse a path outside the alphabet. Raises ProblemError with the code of what is wrong with it."""
    if len(path) <= MAX_PATH_CHARS and _PATH.fullmatch(path):
        return
    raise ProblemError(_path_code(path), path, "the path is outside the alphabet of evidence")


def check_together(paths: Iterable[str]) -> None:
    """Refuse paths that cannot lie in one folder everywhere: case twins, a file that is a folder too."""
    folders: dict[str, str] = {}
    files: dict[str, str] = {}
    for path in paths:
        _add(files, path)
        parent = path.rpartition("/")[0]
        while parent and folders.get(parent.lower()) != parent:
            _add(folders, parent)
            parent = parent.rpartition("/")[0]
    for path in sorted(files.keys() & folders.keys()):
        raise ProblemError("M10", files[path], "one path is a file and a folder")


def _add(names: dict[str, str], path: str) -> None:
    other = names.setdefault(path.lower(), path)
    if other != path:
        raise ProblemError("N01", path, f"it differs from {other} by case only")


def _lines(data: bytes) -> list[str]:
    """The manifest's lines without their LF; refuses by size and by foreign bytes first."""
    if len(data) > MAX_MANIFEST_BYTES:
        _refuse("M09", f"expected at most {MAX_MANIFEST_BYTES} bytes, got {len(data)}")
    if not data:
        _refuse("M06", "expected at least one line, got none")
    if b"\0" in data:
        _refuse("M07", "a NUL byte")
    if data.startswith(b"\xef\xbb\xbf") or b"\r" in data or b"\t" in data:
        _refuse("M04", "a byte order mark, a carriage return or a tab")
    if not data.endswith(b"\n"):
        _refuse("M05", "the last line has no line end")
    return data[:-1].decode("utf-8", "surrogateescape").split("\n")


def _entry(line: str) -> tuple[str, str]:
    if len(line) > MAX_LINE_CHARS:
        _refuse("M09", f"expected at most {MAX_LINE_CHARS} characters in a line, got {len(line)}")
    match = _LINE.fullmatch(line)
    if match is None:
        _refuse("M05", f"expected a digest, two blanks and a path, got {line!r}")
    digest, path = match.groups()
    check_path(path)
    if path in UNLISTED:
        _refuse("M08", f"it lists {path}")
    return digest, path


def _refuse_order(path: str, previous: str, *, repeated: bool) -> NoReturn:
    if path != previous:
        raise ProblemError("M03", path, f"it comes after {previous}")
    raise ProblemError("M01" if repeated else "M02", path, "it is listed twice")


def _path_code(path: str) -> str:
    """Which of the known tricks a refused path is; N09 for every other foreign byte."""
    segments = path.split("/")
    found = {
        "M07": "\0" in path,
        "N04": "\n" in path,
        "N07": any("\ud800" <= char <= "\udfff" for char in path),
        "N03": not path.isascii(),
        "P09": path.startswith(("/", "~")) or _DRIVE.match(path) is not None,
        "P12": "\\" in path,
        "P08": ".." in segments,
        "P10": "" in segments or "." in segments,
        "P11": any(segment.startswith("-") for segment in segments),
        "N06": path != path.rstrip(),
        "P19": len(path) > MAX_PATH_CHARS
        or len(segments) > MAX_SEGMENTS
        or max(map(len, segments)) > MAX_SEGMENT_CHARS,
    }
    return next((code for code, holds in found.items() if holds), "N09")


def _refuse(code: str, message: str) -> NoReturn:
    raise ProblemError(code, MANIFEST, message)
