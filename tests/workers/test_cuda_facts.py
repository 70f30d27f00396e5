"""Object, report and PTX of one build: what each adds, and what is said when two of them differ."""

from pathlib import Path

import pytest

from qualify.objectcode import Entry
from qualify.ptx import Ptx, Variable, scan
from qualify.resources import parse_report
from qualify.targets import limits
from qualify.workers.compilers.cubin import read
from qualify.workers.compilers.cuda_facts import MAX_NAMES, CudaFacts, facts

DATA = Path(__file__).parents[1] / "data" / "cubins"
NAME = "facts-13.2.86-sm_90"
NO_PTX = Ptx(version=None, target=None, entries=(), state=(), constants=(), undefined=(), special_registers=())


def text(name: str, kind: str) -> str:
    return (DATA / f"{name}.{kind}").read_text()


def merged(
    name: str = NAME, *, log: str | None = None, ptx: Ptx | None = None, symbols: dict[str, str] | None = None
) -> CudaFacts:
    """The facts of a recorded build, with another log or PTX beside its object where one is given."""
    target = name.split("-")[2]
    return facts(
        read((DATA / f"{name}.cubin").read_bytes()),
        parse_report(text(name, "log") if log is None else log),
        scan(text(name, "ptx")) if ptx is None else ptx,
        {"staged": "staged"} if symbols is None else symbols,
        limits(target, (13, 2)),
        target,
    )


def entry(found: CudaFacts, symbol: str) -> Entry:
    (one,) = (item for item in found.entries if item.symbol == symbol)
    return one


@pytest.mark.parametrize("name", [NAME, "facts-12.8.93-sm_90"])
def test_what_each_reader_adds(name: str) -> None:
    """The older object has no note: its target is the PTX's, which its flags do not contradict."""
    found = merged(name)
    staged, framed = entry(found, "staged"), entry(found, "framed")
    assert (staged.shared_bytes, staged.barriers, staged.block_threads, staged.min_blocks) == (256, 1, 128, 2)
    assert (staged.spill_store_bytes, staged.spill_load_bytes) == (0, 0)
    assert (framed.stack_bytes, framed.cumulative_stack_bytes, framed.barriers) == (128, 128, 0)
    assert (framed.block_threads, framed.min_blocks) == (1024, None)
    assert entry(found, "clustered").cluster == (2, 1, 1)
    assert all(item.registers_per_thread for item in found.entries)
    assert (found.target, found.linked, found.undefined, found.findings) == ("sm_90", True, (), ())
    assert {item.name for item in found.device_state} == {"launches_so_far", "start_values"}


def test_names_of_the_contract_come_first_and_keep_their_symbols() -> None:
    found = merged(symbols={"_Z4madeIfEvPT_": "made<float>", "staged": "staged"})
    assert [item.symbol for item in found.entries][:2] == ["made<float>", "staged"]
    assert entry(found, "made<float>").linkage_name == "_Z4madeIfEvPT_"
    assert entry(found, "staged").linkage_name is None
    assert {item.symbol for item in found.entries} == {"made<float>", "staged", "counting", "framed", "clustered"}


def test_state_that_no_code_names_is_counted_apart() -> None:
    found = merged("idle-13.2.86-sm_90")
    assert [(item.name, item.named) for item in found.device_state] == [("runs", True)]
    assert found.idle_state_bytes == 4
    without = merged("idle-13.2.86-sm_90", ptx=NO_PTX)
    assert {item.name for item in without.device_state} == {"runs", "table_size"}
    assert without.idle_state_bytes == 0


def test_without_a_report_what_only_it_tells_is_unknown() -> None:
    for log in ("", "ptxas info    : 0 bytes gmem\n"):
        staged = entry(merged(log=log), "staged")
        assert (staged.spill_store_bytes, staged.spill_load_bytes) == (None, None)
        assert (staged.registers_per_thread, staged.shared_bytes) == (12, 256)


def test_a_report_of_another_target_is_none() -> None:
    other = entry(merged(log=text(NAME, "log").replace("sm_90", "sm_80")), "staged")
    assert other.spill_store_bytes is None


def test_a_linkers_record_in_a_compilers_log_is_none() -> None:
    """A source can print one, and it would replace the assembler's."""
    printed = "info    : Function properties for 'staged':\ninfo    : used 8 registers, 0 stack, 0 bytes smem\n"
    staged = entry(merged(log=printed + text(NAME, "log")), "staged")
    assert (staged.registers_per_thread, staged.spill_store_bytes) == (12, None)


@pytest.mark.parametrize(
    ("honest", "other", "field", "what"),
    [
        ("12 registers, used 1", "9 registers, used 1", "registers_per_thread", "registers"),
        ("used 1 barriers", "used 0 barriers", "barriers", "barriers"),
        ("256 bytes smem", "128 bytes smem", "shared_bytes", "shared bytes"),
    ],
)
def test_a_report_that_contradicts_its_object(honest: str, other: str, field: str, what: str) -> None:
    log = text(NAME, "log")
    assert honest in log
    found = merged(log=log.replace(honest, other))
    assert getattr(entry(found, "staged"), field) is None
    (finding,) = found.findings
    assert (finding.kind, finding.entry) == ("disagreement", "staged")
    assert finding.text.startswith(f"{what}: object says ")


def test_bounds_that_no_board_has_are_a_finding() -> None:
    name = "wide-13.2.86-sm_90"
    promised = scan(
        ".version 9.2\n.target sm_90\n.visible .entry wide(.param .u64 p)\n.maxntid 2048, 1, 1\n{\nret;\n}\n"
    )
    found = merged(name, log="", ptx=promised, symbols={"wide": "wide"})
    assert found.entries[0].block_threads == 1024
    (finding,) = found.findings
    assert (finding.kind, finding.requested, finding.effective) == ("launch-bounds", 2048, 1024)


def test_bounds_that_source_and_object_tell_differently_are_unknown() -> None:
    promised = scan(text(NAME, "ptx").replace(".maxntid 128", ".maxntid 256"))
    found = merged(ptx=promised)
    assert entry(found, "staged").block_threads is None
    assert [item.kind for item in found.findings] == ["disagreement"]


def test_a_target_that_source_and_object_tell_differently_is_unknown() -> None:
    for name in (NAME, "facts-12.8.93-sm_90"):
        found = merged(name, ptx=scan(text(name, "ptx").replace(".target sm_90", ".target sm_100")))
        assert found.target is None
        assert "target: object says sm_90, source says sm_100" in {item.text for item in found.findings}


def test_a_target_that_only_flags_tell_is_unknown() -> None:
    assert merged("plain-12.8.93-sm_90a", log="", ptx=NO_PTX).target is None


def test_long_lists_are_cut_and_say_so() -> None:
    lacking = read((DATA / "lacking-13.2.86-sm_90.cubin").read_bytes())
    many = tuple(Variable(name=f"v{number}", size_bytes=4) for number in range(1000))
    crowded = type(lacking)(**{**vars(lacking), "state": many})
    found = facts(crowded, parse_report(""), NO_PTX, {}, limits("sm_90", (13, 2)), "sm_90")
    assert len(found.device_state) == MAX_NAMES
    assert found.device_state[-1] == Variable(
        name=f"{1000 - MAX_NAMES + 1} more", size_bytes=4 * (1000 - MAX_NAMES + 1)
    )
    assert found.undefined == ("malloc", "vprintf")
