"""What a cubin says, read from objects of five toolkits and two header layouts; anything else is refused."""

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualify.ptx import Variable, scan
from qualify.resources import parse_report
from qualify.workers.compilers.cubin import Cubin, CubinEntry, CubinError, read, sm_number

DATA = Path(__file__).parents[1] / "data" / "cubins"
FACTS = sorted(path.stem for path in DATA.glob("facts-*.cubin"))
ALL = sorted(path.stem for path in DATA.glob("*.cubin"))


def content(name: str) -> bytes:
    return (DATA / f"{name}.cubin").read_bytes()


def cubin(name: str) -> Cubin:
    return read(content(name))


def entry(name: str, symbol: str) -> CubinEntry:
    found = cubin(name).entry(symbol)
    assert found
    return found


def table(found: CubinEntry) -> list[tuple[int | None, int | None]]:
    assert found.parameters is not None
    return [(parameter.offset_bytes, parameter.size_bytes) for parameter in found.parameters]


@pytest.mark.parametrize("name", FACTS)
def test_parameters_have_offsets_and_sizes(name: str) -> None:
    assert table(entry(name, "staged")) == [(0, 8), (8, 8), (16, 4), (24, 8), (32, 16)]
    assert table(entry(name, "framed")) == [(0, 8), (8, 4)]
    base = {"sm_80": 352, "sm_86": 352, "sm_90": 528, "sm_100a": 896}[name.rsplit("-", 1)[1]]
    assert entry(name, "staged").parameter_base == base


def test_an_entry_without_parameters_has_an_empty_table_and_not_an_unknown_one() -> None:
    assert entry("facts-13.2.86-sm_90", "clustered").parameters == ()


def test_an_argument_beyond_16_kib_has_its_size() -> None:
    assert table(entry("wide-13.2.86-sm_90", "wide")) == [(0, 17_000), (17_000, 4), (17_008, 8)]


@pytest.mark.parametrize("name", FACTS)
def test_the_object_and_its_report_agree(name: str) -> None:
    """Two readers of one build; shared memory without what the system reserves from sm_90 on."""
    report = parse_report((DATA / f"{name}.log").read_bytes())
    found = cubin(name)
    assert {symbol for symbol, _ in report.entries} == {item.symbol for item in found.entries}
    for (symbol, _), figures in report.entries.items():
        item = found.entry(symbol)
        assert item
        assert item.registers == figures.registers_per_thread
        assert item.stack_bytes == figures.stack_bytes
        assert item.shared_bytes == figures.static_shared_bytes
        assert item.barriers in (None, figures.barriers) or figures.barriers is None
        assert figures.cumulative_stack_bytes in (None, item.cumulative_stack_bytes)
        assert figures.constant_bytes is None or figures.constant_bytes["0"] == item.constant_bytes["0"]
    assert sum(item.size_bytes or 0 for item in found.state) == report.modules[0].global_bytes


def test_barriers_that_the_file_leaves_out_are_unknown() -> None:
    old, new = "facts-12.8.93-sm_90", "facts-13.2.86-sm_90"
    assert [entry(name, "staged").barriers for name in (old, new)] == [1, 1]
    assert [entry(name, "framed").barriers for name in (old, new)] == [0, None]


def test_bounds_are_those_that_the_source_promised() -> None:
    staged = entry("facts-13.2.86-sm_90", "staged")
    assert (staged.block_threads, staged.required_threads, staged.cluster) == (128, None, None)
    assert entry("facts-13.2.86-sm_90", "clustered").cluster == (2, 1, 1)
    assert entry("facts-13.2.86-sm_90", "framed").block_threads is None
    assert entry("wide-13.2.86-sm_90", "wide").block_threads == 2048


@pytest.mark.parametrize("name", FACTS)
def test_mutable_state_is_found_with_names_and_sizes(name: str) -> None:
    found = cubin(name)
    assert set(found.state) == {
        Variable(name="launches_so_far", size_bytes=4),
        Variable(name="start_values", size_bytes=16),
    }
    assert found.state_bytes == 20
    assert found.constant_bytes["3"] == 12


def test_strings_are_writable_memory_too() -> None:
    assert cubin("lacking-13.2.86-sm_90").state == (Variable(name="$str", size_bytes=3),)


def test_undefined_symbols_are_named_and_the_toolkits_own_are_not() -> None:
    assert cubin("lacking-13.2.86-sm_90").undefined == ("malloc", "vprintf")
    for name in (*FACTS, "plain-13.2.86-sm_90-rdc"):
        assert cubin(name).undefined == ()


@pytest.mark.parametrize("name", ["facts-12.8.93-sm_90", "facts-13.2.86-sm_90"])
def test_the_object_and_its_ptx_agree(name: str) -> None:
    text, found = scan((DATA / f"{name}.ptx").read_text()), cubin(name)
    assert {item.symbol for item in text.entries} == {item.symbol for item in found.entries}
    assert {(item.name, item.size_bytes) for item in text.state} == {
        (item.name, item.size_bytes) for item in found.state
    }
    assert all(item.named for item in text.state)
    assert text.undefined == found.undefined
    for item in text.entries:
        compiled = found.entry(item.symbol)
        assert compiled
        assert item.block_threads == compiled.block_threads
        assert item.cluster == compiled.cluster


@pytest.mark.parametrize(
    ("name", "sm", "target", "tool"),
    [
        ("facts-11.8.89-sm_80", 80, None, "11.8"),
        ("plain-12.8.93-sm_90", 90, None, "12.8"),
        ("plain-12.8.93-sm_90a", 90, None, "12.8"),
        ("facts-12.8.93-sm_100a", 100, "sm_100a", "12.8.93"),
        ("plain-12.9.86-sm_100a", 100, "sm_100a", "12.9.86"),
        ("plain-13.2.86-sm_90a", 90, "sm_90a", "13.2.86"),
        ("facts-13.2.86-sm_90", 90, "sm_90", "13.2.86"),
        ("plain-13.5.37-sm_120f", 120, "sm_120f", "13.5.37"),
    ],
)
def test_the_suffix_is_the_notes_or_unknown(name: str, sm: int, target: str | None, tool: str) -> None:
    found = cubin(name)
    assert (found.sm, found.target, found.tool) == (sm, target, tool)


HEADERS = re.findall(
    r"^\S+_sm_(\d+)[af]? abi (\d) e_version \S+ flags (0x\w+) ",
    (DATA.parent / "cases/F10.txt").read_text(),
    re.MULTILINE,
)


@pytest.mark.parametrize(("number", "abi", "flags"), HEADERS)
def test_flags_of_both_layouts_give_the_targets_number(number: str, abi: str, flags: str) -> None:
    """Eighteen headers of five releases; none tells a suffix that the next release would tell too."""
    assert len(HEADERS) == 18
    assert sm_number(int(abi), int(flags, 16)) == int(number)


def test_a_relocatable_object_is_not_linked() -> None:
    relocatable, linked = cubin("plain-13.2.86-sm_90-rdc"), cubin("plain-13.2.86-sm_90a")
    assert (relocatable.linked, linked.linked) == (False, True)
    assert [item.cumulative_stack_bytes for item in (*relocatable.entries, *linked.entries)] == [None, 0]


@pytest.mark.parametrize("name", ALL)
def test_a_file_cut_short_anywhere_is_refused(name: str) -> None:
    """Program headers come last, and are no part of what is read; all before them is."""
    data = content(name)
    headers = int.from_bytes(data[40:48], "little")
    table_end = headers + 64 * int.from_bytes(data[60:62], "little")
    for length in {*range(0, table_end, 997), len(data) * 6 // 10, headers, headers + 63, table_end - 1}:
        with pytest.raises(CubinError):
            read(data[:length])
    assert read(data[:table_end]) == read(data)


def test_a_cut_file_still_has_its_header_and_is_refused_for_its_table() -> None:
    data = content("facts-13.2.86-sm_90")
    with pytest.raises(CubinError, match=r"cut short: \d+ bytes, a table of \d+ sections at \d+"):
        read(data[: len(data) * 6 // 10])


def test_an_object_of_another_machine_or_layout_is_refused() -> None:
    data = content("plain-13.2.86-sm_90a")
    for offset, value in ((0, 0), (4, 1), (8, 9), (18, 62), (58, 40)):
        with pytest.raises(CubinError):
            read(data[:offset] + bytes([value]) + data[offset + 1 :])
    for other in (b"", b"\x7fELF", b"//\n// Generated by NVIDIA NVVM Compiler\n" * 9, bytes(4096)):
        with pytest.raises(CubinError):
            read(other)


def test_a_parameter_table_with_a_hole_is_unknown() -> None:
    """The attribute of one parameter, made to look like padding of the same length."""
    data = bytearray(content("plain-13.2.86-sm_90a"))
    at = data.find(bytes((0x04, 0x17, 0x0C, 0x00)))
    assert at > 0
    data[at + 1] = 0x01
    (found,) = read(bytes(data)).entries
    assert found.parameters is None


@given(st.sampled_from(ALL), st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6))
def test_any_damage_gives_facts_or_a_refusal(name: str, changes: list[tuple[float, int]]) -> None:
    data = bytearray(content(name))
    for place, value in changes:
        data[int(place * len(data))] = value
    with suppress(CubinError):
        assert read(bytes(data)).state_bytes >= 0


@given(st.sampled_from(ALL), st.integers(0, 63), st.integers(0, 255))
def test_a_damaged_header_gives_facts_or_a_refusal(name: str, offset: int, value: int) -> None:
    data = bytearray(content(name))
    data[offset] = value
    with suppress(CubinError):
        assert read(bytes(data)).state_bytes >= 0
