"""SHA256SUMS: any bytes are a value or a problem, and what we accept `sha256sum --strict -c` accepts too."""

import hashlib
import string
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualify.evidence import manifest
from qualify.evidence.problems import CODES, ProblemError

DIGEST = "0123456789abcdef" * 4
SEGMENT_CHARS = string.ascii_letters + string.digits + "_.+-"
SEGMENTS = st.text(SEGMENT_CHARS, min_size=1, max_size=127)
PATHS = st.lists(SEGMENTS, min_size=1, max_size=16).map("/".join)
HOSTILE = st.text(SEGMENT_CHARS + "/\\ ~:\n\r\t\0é\udcff", max_size=12)


def is_path(path: str) -> bool:
    """The grammar again, from its words and not from an expression."""
    segments = path.split("/")
    return (
        len(path) <= 512
        and len(segments) <= 16
        and all(
            0 < len(segment) <= 127
            and set(segment) <= set(SEGMENT_CHARS)
            and segment[0] not in ".+-"
            and segment[-1] != "."
            for segment in segments
        )
    )


def code(data: bytes) -> str:
    with pytest.raises(ProblemError) as caught:
        manifest.parse(data)
    return caught.value.problem.code


def lines(*paths: str) -> bytes:
    return "".join(f"{DIGEST}  {path}\n" for path in paths).encode("utf-8", "surrogateescape")


@given(st.binary(max_size=300))
def test_any_bytes_are_a_manifest_or_a_problem(data: bytes) -> None:
    try:
        digests = manifest.parse(data)
    except ProblemError as error:
        problem = error.problem
    else:
        assert manifest.write(digests) == data
        return
    assert problem.code in CODES


@given(st.lists(PATHS | HOSTILE, min_size=1, max_size=6))
def test_a_path_is_accepted_exactly_by_the_grammar(paths: list[str]) -> None:
    for path in paths:
        assert is_path(path) == _accepts(lines(path))


@given(st.dictionaries(PATHS | HOSTILE, st.binary(max_size=3).map(lambda data: hashlib.sha256(data).hexdigest())))
def test_what_is_written_reads_back_and_nothing_else_is_written(digests: dict[str, str]) -> None:
    try:
        data = manifest.write(digests)
    except ProblemError:
        return
    assert manifest.parse(data) == digests
    assert list(manifest.parse(data)) == sorted(digests)


@given(st.data())
def test_every_flipped_byte_is_refused_or_changes_what_is_read(data: st.DataObject) -> None:
    written = lines("a", "b/c", "b/d", "plan.json")
    index = data.draw(st.integers(0, len(written) - 1))
    flipped = bytearray(written)
    flipped[index] ^= data.draw(st.integers(1, 255))
    if _accepts(bytes(flipped)):
        assert manifest.parse(bytes(flipped)) != manifest.parse(written)


def _accepts(data: bytes) -> bool:
    try:
        manifest.parse(data)
    except ProblemError:
        return False
    return True


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "M06"),
        (b"\n", "M05"),
        (lines("a")[:-1], "M05"),
        (lines("a") + b"\n", "M05"),
        (lines("a").replace(b"  ", b" *"), "M05"),
        (lines("a").upper(), "M05"),
        (b"SHA256 (a) = " + DIGEST.encode() + b"\n", "M05"),
        (lines("a")[1:], "M05"),
        (b"\\" + lines("a"), "M05"),
        (lines("a").replace(b"\n", b"\r\n"), "M04"),
        (b"\xef\xbb\xbf" + lines("a"), "M04"),
        (lines("a").decode().encode("utf-16"), "M07"),
        (lines("a", "a"), "M01"),
        (lines("a") + lines("a").replace(b"0", b"1"), "M02"),
        (lines("b", "a"), "M03"),
        (lines("a/b", "a+"), "M03"),
        (lines("SHA256SUMS"), "M08"),
        (lines("SHA256SUMS.sig"), "M08"),
        (lines("a" * 1100), "M09"),
        (lines("a", "a/b"), "M10"),
        (lines("A", "a/b"), "M10"),
        (lines("A", "a"), "N01"),
        (lines("A/x", "a/y"), "N01"),
        (lines("/a"), "P09"),
        (lines("~a"), "P09"),
        (lines("C:a"), "P09"),
        (lines("a/../b"), "P08"),
        (lines("a//b"), "P10"),
        (lines("./a"), "P10"),
        (lines("a/"), "P10"),
        (lines("-"), "P11"),
        (lines("a/-r"), "P11"),
        (lines("a\\b"), "P12"),
        (lines("a "), "N06"),
        (lines("é"), "N03"),
        (lines("a\udcff"), "N07"),
        (lines("a."), "N09"),
        (lines("ab:c"), "N09"),
        (lines(".a"), "N09"),
        (lines("a%0A"), "N09"),
        (lines("a" * 128), "P19"),
        (lines("/".join("a" * 17)), "P19"),
        (lines("/".join(["a" * 127] * 5)), "P19"),
    ],
)
def test_a_trick_has_its_code(data: bytes, expected: str) -> None:
    assert code(data) == expected


def test_the_longest_path_is_accepted() -> None:
    path = "/".join(["a" * 127] * 3 + ["b" * 126, "c"])
    assert len(path) == 512
    assert manifest.parse(lines(path)) == {path: DIGEST}
    assert code(lines(f"{path}c")) == "P19"


def test_a_manifest_past_its_cap_is_not_parsed() -> None:
    assert code(b"x" * (manifest.MAX_MANIFEST_BYTES + 1)) == "M09"


CONTENT = {"a": b"1", "b/c.json": b"{}\n", "b/d+e": b"", "z_": b"\0" * 100}
DAMAGE = {
    "nothing": lambda data: data,
    "a flipped digit": lambda data: data.replace(data[:1], b"0" if data[:1] != b"0" else b"1", 1),
    "a line dropped": lambda data: data.partition(b"\n")[2],
    "a line twice": lambda data: data.partition(b"\n")[0] + b"\n" + data,
    "an alias": lambda data: data.replace(b"  a\n", b"  ./a\n"),
    "upper case": lambda data: data[:64].upper() + data[64:],
    "carriage returns": lambda data: data.replace(b"\n", b"\r\n"),
    "a missing file": lambda data: data + hashlib.sha256(b"").hexdigest().encode() + b"  zz\n",
    "no line end": lambda data: data[:-1],
    "nonsense": lambda data: data + b"nonsense\n",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_whatever_verifies_here_verifies_with_sha256sum(damage: str, tmp_path: Path) -> None:
    for path, data in CONTENT.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(data)
    digests = {path: hashlib.sha256(data).hexdigest() for path, data in CONTENT.items()}
    text = DAMAGE[damage](manifest.write(digests))
    (tmp_path / "SHA256SUMS").write_bytes(text)
    command = ("sha256sum", "--strict", "--quiet", "-c", "SHA256SUMS")
    theirs = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    ours = _accepts(text) and manifest.parse(text) == digests
    assert ours == (damage == "nothing")
    assert theirs or not ours
