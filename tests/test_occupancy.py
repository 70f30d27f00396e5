"""Resident blocks against a table computed with the vendor's own header, and against published limits."""

import re
from pathlib import Path

import pytest

from qualify.occupancy import (
    Limiter,
    Multiprocessor,
    Need,
    UnknownCapability,
    excess_registers,
    excess_shared_bytes,
    multiprocessors,
    residency,
)

CASES = Path(__file__).parent / "data/cases"
LETTERS: dict[str, Limiter] = {"R": "registers", "S": "shared memory", "W": "warps", "b": "blocks", "B": "barriers"}
COLUMNS = (75, 80, 86, 89, 90, 100, 120)
ROWS = [line for line in (CASES / "E06.txt").read_text().splitlines() if re.match(r"[0-9]+r ", line)]


def need_of(words: str) -> Need:
    """`32r 16bar b256 st16 dyn113K`: figures that are not named are 1 barrier, as compilers count, and no memory."""
    found = re.fullmatch(r"(\d+)r( (\d+)bar)? b(\d+)( st(\d+))?( dyn(\d+)(K?)| smem(\d+)| (\d+))?", words)
    assert found, words
    dynamic = int(found[8] or 0) << (10 if found[9] else 0)
    shared = int(found[6] or 0) + dynamic + int(found[10] or found[11] or 0)
    return Need(int(found[4]), int(found[1]), shared, int(found[3]) if found[3] else 0)


def header(capability: int) -> tuple[Multiprocessor, ...]:
    return multiprocessors(capability)[:1]


@pytest.mark.parametrize("line", ROWS, ids=lambda line: line[:24].strip())
def test_the_vendors_own_numbers_limiter_included(line: str) -> None:
    cells = re.findall(r"(\d+)\((\w)\)", line)
    words = line[: line.index("(")].rsplit(maxsplit=1)[0].strip()
    got = [residency(header(capability), need_of(words)) for capability in COLUMNS]
    assert [(found.blocks, found.limiter) for found in got] == [(int(n), LETTERS[letter]) for n, letter in cells]


def test_the_published_limits() -> None:
    assert len(ROWS) == 21
    lines = (CASES / "E10.txt").read_text().splitlines()
    rows = [re.split(r"\s{2,}", line) for line in lines if re.match(r"[0-9]+\.[0-9]", line)]
    assert len(rows) == 11
    for name, threads, blocks, shared, opt_in, *_ in rows:
        known = multiprocessors(int(name.replace(".", "")))
        cells = [(str(row.threads), str(row.blocks), str(row.shared_bytes >> 10)) for row in known]
        for row, (own_threads, own_blocks, own_shared) in zip(known, cells, strict=True):
            assert own_threads == threads.split()[0] or threads == "-"
            assert own_blocks in re.findall(r"\d+", blocks)
            assert own_shared in re.findall(r"\d+", shared)
            assert str(row.opt_in_bytes >> 10) == opt_in.split()[0] or opt_in == "-"
        assert len(known) == 1 + ("|" in blocks)


def test_sources_that_differ_leave_a_range_and_only_where_they_differ() -> None:
    rows = multiprocessors(120)
    tiny = residency(rows, Need(32, 10, 0, 1))
    assert (tiny.blocks, tiny.least, tiny.most, [n for _, n in tiny.sources]) == (None, 24, 32, [24, 32])
    assert residency(rows, Need(256, 64, 0, 1)).blocks == 4
    assert residency(rows, Need(256, 64, 101_377, 1)).most == 0  # Both let a block have 99 KiB.
    assert residency(multiprocessors(121), Need(32, 10, 0, 1)).blocks == 24


def test_what_is_not_known_is_a_bound_and_never_zero() -> None:
    rows = multiprocessors(90)
    assert residency(rows, Need(256, 24, 0, 16)).blocks == 4
    unnamed = residency(rows, Need(256, 24, 0, None))
    assert (unnamed.blocks, unnamed.least, unnamed.most) == (None, 4, 8)
    assert residency(multiprocessors(80), Need(256, 24, 0, None)).blocks == 8  # Barriers limit from 9.0 on only.
    for lacking in (Need(256, None, 0, 1), Need(256, 24, None, 1)):
        found = residency(rows, lacking)
        assert (found.blocks, found.least, found.most) == (None, 0, 8)
    with pytest.raises(UnknownCapability, match=r"9\.1"):
        multiprocessors(91)
    for impossible in (Need(0, 24, 0, 1), Need(32, -1, 0, 1), Need(32, 24, -1, 1), Need(32, 24, 0, -1)):
        with pytest.raises(ValueError, match="no kernel"):
            residency(rows, impossible)


def test_what_a_block_is_short_of() -> None:
    assert [excess_shared_bytes(header(arch)[0], 197_632) for arch in (86, 90, 120)] == [96_256, 0, 96_256]
    assert excess_shared_bytes(multiprocessors(90, opt_in_bytes=101_376)[0], 101_377) == 1
    assert (excess_registers(254, 256), excess_registers(254, 257), excess_registers(156, 512)) == (0, 32_768, 16_384)
