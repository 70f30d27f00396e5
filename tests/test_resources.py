"""Resource reports of many releases: every figure that is printed, none that is not."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualify.diagnostics import MAX_LINE_CHARS, MAX_LOG_BYTES
from qualify.resources import Figures, Report, parse_report

DATA = Path(__file__).parent / "data"
RELEASES = sorted(DATA.glob("reports/nvrtc-*.log")) + sorted(DATA.glob("reports/ptxas-*.log"))


def case(name: str) -> Report:
    return parse_report((DATA / "cases" / name).read_bytes())


def report(name: str) -> Report:
    return parse_report((DATA / "reports" / name).read_bytes())


def only(found: Report) -> Figures:
    (figures,) = found.entries.values()
    return figures


def release(path: Path) -> tuple[int, int]:
    major, minor = path.name.split("-")[1].split(".")[:2]
    return int(major), int(minor)


@pytest.mark.parametrize("path", RELEASES, ids=lambda path: path.stem)
def test_every_release_gives_what_it_prints_and_nothing_else(path: Path) -> None:
    found, target = parse_report(path.read_bytes()), path.stem.rsplit("-", 1)[1]
    assert set(found.entries) == {(name, target) for name in ("crowded", "staged", "framed")}
    crowded, staged, framed = (found.entries[name, target] for name in ("crowded", "staged", "framed"))
    assert (crowded.registers_per_thread, crowded.spill_store_bytes, crowded.spill_load_bytes) in {
        (32, 336, 348),
        (32, 340, 352),
    }
    assert (staged.shared_bytes, staged.static_shared_bytes, staged.stack_bytes) == (260, 260, 0)
    assert (framed.stack_bytes, framed.shared_bytes, framed.static_shared_bytes) == (128, None, 0)
    barriers, totals, times = release(path) >= (12, 6), release(path) >= (12, 4), release(path) >= (12, 8)
    assert (staged.barriers, framed.barriers) == ((1, 0) if barriers else (None, None))
    assert (framed.cumulative_stack_bytes, staged.cumulative_stack_bytes) == (128 if totals else None, None)
    assert all((figures.compile_ns is not None) == times for figures in (crowded, staged, framed))
    assert staged.constant_bytes == ({"0": 368} if target == "sm_80" else None)
    assert not found.findings
    assert not found.refused
    assert not found.relocatable


def test_entries_are_told_apart_by_target() -> None:
    found = case("A01.log")
    assert len(found.entries) == 6
    assert {target for _, target in found.entries} == {"sm_52", "sm_70"}
    old, new = found.entry("heavy", "sm_52"), found.entry("heavy", "sm_70")
    assert old
    assert new
    assert (old.registers_per_thread, new.registers_per_thread) == (32, 42)
    assert (old.constant_bytes, new.constant_bytes) == ({"0": 332}, {"0": 364})
    assert (old.barriers, old.cumulative_stack_bytes, old.compile_ns) == (None, None, None)
    assert [module.constant_bytes for module in found.modules] == [{"3": 280}, {"3": 280}]
    assert found.entry("heavy", "sm_80") is None


def test_long_names_and_an_installers_blanks() -> None:
    found = case("A02.log")
    assert len(found.entries) == 2
    assert min(len(name) for name, _ in found.entries) > 250
    for figures in found.entries.values():
        assert (figures.registers_per_thread, figures.barriers) == (142, 16)
        assert (figures.static_shared_bytes, figures.constant_bytes) == (0, None)
    name = "_Z" + "n" * 5000
    log = f"ptxas info    : Compiling entry function '{name}' for 'sm_90'\nptxas info    : Used 9 registers"
    assert parse_report(log).entries[name, "sm_90"].registers_per_thread == 9


def test_linkers_without_the_tools_name() -> None:
    module_only, cached, linked, nothing = ((DATA / "cases/A04.txt").read_bytes().split(b"\0"))[:4]
    for log in (module_only, cached, nothing, b""):
        assert not parse_report(log).entries
        assert not parse_report(log).refused
    figures = only(parse_report(linked))
    assert (figures.by, figures.registers_per_thread, figures.cumulative_stack_bytes) == ("linker", 21, 0)
    assert (figures.spill_store_bytes, figures.barriers, figures.static_shared_bytes) == (None, None, None)
    assert figures.constant_bytes == {"0": 356}


def test_a_relocatable_build_is_judged_by_its_linker() -> None:
    whole, apart, linked = (part.partition("#####\n")[2] for part in _blocks("A07.log"))
    assert parse_report(whole).entries["_Z10uses_stackPfi", "sm_90"].registers_per_thread == 32
    assert not parse_report(whole).relocatable
    assert parse_report(apart).relocatable
    assert parse_report(apart).functions == ("_Z6calleefi",)
    assert parse_report(linked).entries["_Z10uses_stackPfi", None].cumulative_stack_bytes == 104
    both = parse_report(apart + linked)
    stack, shared = both.entries["_Z10uses_stackPfi", "sm_90"], both.entries["_Z9uses_smemPf", "sm_90"]
    assert (stack.by, stack.registers_per_thread, stack.cumulative_stack_bytes) == ("linker", 54, 104)
    assert (shared.shared_bytes, shared.static_shared_bytes) == (2048, None)


def _blocks(name: str) -> list[str]:
    """The parts of a log that has a headline of ##### before each."""
    return (DATA / "cases" / name).read_text().split("\n##### ")


def test_a_refused_build_stays_refused_beside_a_complete_record() -> None:
    spills = _blocks("A10.log")[-1]
    found = parse_report(spills)
    assert found.refused
    assert found.entries["spills", "sm_90"].registers_per_thread == 32
    assert [error.kind for error in found.errors] == ["spill"]
    warned = parse_report(spills.replace("ptxas error  ", "ptxas warning"))
    assert not warned.refused
    assert [(item.kind, item.entry) for item in warned.warnings] == [("spill", "spills")]


@pytest.mark.parametrize(("release", "most"), [("12.4.127", 167_936), ("13.2.86", 49_152)])
def test_too_much_shared_memory_names_the_tools_own_ceiling(release: str, most: int) -> None:
    found = report(f"oversized-nvrtc-{release}-sm_90.log")
    assert found.entries["oversized", "sm_90"].shared_bytes == 300_000
    (error,) = found.errors
    assert (error.kind, error.entry, error.requested, error.effective) == ("shared-limit", "oversized", 300_000, most)


def test_prefixes_line_ends_encodings_and_functions_between() -> None:
    found = case("A11.log")
    assert {name: figures.registers_per_thread for (name, _), figures in found.entries.items()} == {
        "_Z5firstPfi": 255,
        "_Z6secondPfi": 55,
    }
    first, second = found.entries["_Z5firstPfi", "sm_50"], found.entries["_Z6secondPfi", "sm_50"]
    assert (first.stack_bytes, first.cumulative_stack_bytes, first.constant_bytes) == (296, 312, {"0": 324, "2": 4})
    assert (second.stack_bytes, second.shared_bytes) == (144, 41_480)
    assert found.functions == ("cudaMalloc", "_Z6lambdaf")
    assert not found.refused


@pytest.mark.parametrize(
    "prefix", ["1>  ", "      ", "#12 3.456 ", "[3/10] ", "build-1  | ", "2024-05-01T10:00:00.000Z ", "[1] 2>"]
)
def test_a_build_systems_prefix_is_no_part_of_a_line(prefix: str) -> None:
    log = (DATA / "reports/ptxas-12.6.85-sm_80.log").read_text()
    assert parse_report("".join(prefix + line for line in log.splitlines(keepends=True))) == parse_report(log)


def test_a_source_that_prints_a_report_makes_its_figures_unknown() -> None:
    """Two records of one entry that differ are no record; the better one is a string of the source's."""
    figures = only(report("quoting-nvrtc-13.2.86-sm_90.log"))
    assert figures.registers_per_thread is None
    assert figures.static_shared_bytes is None
    assert not report("quoting-nvrtc-13.2.86-sm_90.log").refused


def test_equal_records_agree_and_different_ones_are_unknown() -> None:
    one = "ptxas info    : Compiling entry function 'k' for 'sm_90'\nptxas info    : Used 10 registers, 8 bytes smem\n"
    assert only(parse_report(one + one)).registers_per_thread == 10
    other = only(parse_report(one + one.replace("10", "11")))
    assert (other.registers_per_thread, other.shared_bytes) == (None, 8)


def test_a_successful_build_without_a_record_is_unknown() -> None:
    """What a build that is served from a cache prints."""
    for log in ("", "\n\0\n", "ptxas info    : 0 bytes gmem\n"):
        found = parse_report(log)
        assert not found.entries
        assert found.entry("k", "sm_90") is None
        assert not found.refused


def test_an_item_of_unknown_form_leaves_static_shared_memory_unknown() -> None:
    log = "ptxas info    : Compiling entry function 'k' for 'sm_90'\nptxas info    : Used 10 registers"
    assert only(parse_report(log)).static_shared_bytes == 0
    assert only(parse_report(log + ", 3 kilobytes smem")).static_shared_bytes is None
    assert only(parse_report(log + ", 3 textures")).static_shared_bytes == 0


def test_a_log_beyond_the_cap_has_no_entries() -> None:
    log = (DATA / "reports/ptxas-12.6.85-sm_80.log").read_bytes()
    assert parse_report(log + b" " * (MAX_LOG_BYTES - len(log))).entries
    beyond = parse_report(log + b" " * MAX_LOG_BYTES)
    assert beyond.truncated
    assert not beyond.entries
    assert not parse_report(b"ptxas info    : Compiling entry function '" + b"n" * MAX_LINE_CHARS).entries


PIECES = st.sampled_from(
    [line for path in sorted(DATA.glob("*/*.log")) for line in path.read_bytes().splitlines(keepends=True)]
)
NOISE = st.binary(max_size=40) | st.sampled_from([b"\0", b"'", b"(C7508)", b": ", b"ptxas ", b" bytes smem", b", "])


@given(st.lists(PIECES | NOISE, max_size=30).map(b"".join))
def test_any_bytes_give_a_report(log: bytes) -> None:
    found = parse_report(log)
    assert found.refused == bool(found.errors)
    assert parse_report(log.decode("utf-8", "replace")) == found
    for figures in found.entries.values():
        assert Figures.parse(figures.canonical()) == figures


@pytest.mark.parametrize(
    "unit",
    [
        b"ptxas ", b"ptxas info    : ", b"'", b"function '", b"(C1", b"a: ", b"x(1)", b"[a]", b"1>", b" ", b"1|",
        b"ptxas warning : .minnctapersm ", b"ptxas info : for entry x ", b"ptxas error : Unresolved extern function '",
    ],
)  # fmt: skip
def test_no_repetition_takes_more_than_linear_time(unit: bytes) -> None:
    """Each would take minutes with a pattern that backtracks."""
    line = (unit * (MAX_LINE_CHARS // len(unit)))[: MAX_LINE_CHARS - 1]
    assert parse_report(line + b"\n" + line).entries == {}
