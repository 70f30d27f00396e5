"""PTX text: bounds, state, undefined names, and the registers that tell one launch from another."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualify.ptx import MAX_PTX_CHARS, Ptx, Variable, scan

HEAD = ".version 9.2\n.target sm_90a\n.address_size 64\n"


def entry(body: str = "ret;", bounds: str = "", name: str = "k") -> str:
    return f"{HEAD}.visible .entry {name}(\n\t.param .u64 {name}_param_0\n)\n{bounds}\n{{\n{body}\n}}\n"


def test_version_target_and_entries() -> None:
    found = scan(entry() + entry(name="_Z4madeIfEvPT_").replace(HEAD, ""))
    assert (found.version, found.target) == ("9.2", "sm_90a")
    assert [item.symbol for item in found.entries] == ["k", "_Z4madeIfEvPT_"]
    assert found.entry("k")
    assert found.entry("other") is None
    assert scan("") == Ptx(
        version=None, target=None, entries=(), state=(), constants=(), undefined=(), special_registers=()
    )


def test_a_version_from_the_future_is_read_as_it_stands() -> None:
    """Whoever loads the text compares; no reader here takes an unknown version for a known one."""
    found = scan((Path(__file__).parent / "data/cases/F08.ptx").read_text())
    assert (found.version, found.target, [item.symbol for item in found.entries]) == ("99.0", "sm_90", ["k"])


def test_promised_bounds() -> None:
    bounds = ".maxntid 128, 2, 1\n.minnctapersm 2\n.reqnctapercluster 2, 1, 1\n.maxnreg 40\n"
    (found,) = scan(entry(bounds=bounds)).entries
    assert (found.max_threads, found.block_threads, found.min_blocks) == ((128, 2, 1), 256, 2)
    assert (found.cluster, found.max_registers, found.required_threads) == ((2, 1, 1), 40, None)
    (none,) = scan(entry()).entries
    assert (none.block_threads, none.min_blocks, none.cluster, none.max_registers) == (None, None, None, None)
    (required,) = scan(entry(bounds=".reqntid 64")).entries
    assert required.block_threads == 64


@pytest.mark.parametrize(
    "register",
    [
        "%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi", "%gridid", "%pm0",
        "%pm7_64", "%envreg0", "%envreg31", "%current_graph_exec",
    ],
)  # fmt: skip
def test_a_register_that_tells_launches_apart(register: str) -> None:
    found = scan(entry(f"mov.u32 %r1, {register};"))
    assert found.special_registers == (register,)
    assert found.entries[0].special_registers == (register,)


@pytest.mark.parametrize("register", ["%tid.x", "%ctaid.x", "%smid", "%laneid", "%clocked", "%pm", "%gridid2", "%rd1"])
def test_a_register_that_does_not(register: str) -> None:
    assert scan(entry(f"mov.u32 %r1, {register};")).special_registers == ()


def test_no_comment_and_no_string_hides_a_register() -> None:
    """A pragma's text opens a comment for a careless reader; for the assembler the register is read."""
    hidden = '.pragma "/*"; mov.u32 %r1, %clock; .pragma "*/";'
    assert scan(entry(hidden)).special_registers == ("%clock",)
    assert scan(entry("/* not %gridid */")).special_registers == ("%gridid",)


def test_register_hints_belong_to_the_entry_that_has_them() -> None:
    hinting = entry("setmaxnreg.dec.sync.aligned.u32 40;", name="hints")
    plain, hints = scan(entry() + hinting.replace(HEAD, "")).entries
    assert (plain.register_hints, hints.register_hints) == (False, True)


def test_what_only_ends_like_a_hint_or_a_variable_is_neither() -> None:
    body = "call xsetmaxnreg.dec; ld.global.u32 %r1, [a$.global]; ld.const.u32 %r2, [b_.const];"
    found = scan(entry(body))
    assert not found.entries[0].register_hints
    assert (found.state, found.constants) == ((), ())


@pytest.mark.parametrize(
    ("declaration", "size"),
    [
        (".global .align 4 .u32 x;", 4),
        (".visible .global .align 8 .b8 x[24];", 24),
        (".weak .global .align 16 .v4 .f32 x[2][3];", 96),
        (".global .attribute(.managed, .unified(1, 2)) .align 4 .u32 x;", 4),
        (".global .align 1 .b8 x[4] = {37, 100, 10};", 4),
        (".global .b8 x[] = {1, 2};", None),
        (".global .texref x;", None),
        (".common .global .f64 x;", 8),
    ],
)
def test_device_memory_is_state(declaration: str, size: int | None) -> None:
    found = scan(HEAD + declaration + entry().replace(HEAD, ""))
    assert found.state == (Variable(name="x", size_bytes=size, named=False),)
    assert [item.symbol for item in found.entries] == ["k"]


def test_state_inside_a_function_is_state() -> None:
    assert scan(entry(".global .u32 kept;\natom.global.add.u32 %r1, [kept], 1;")).state == (
        Variable(name="kept", size_bytes=4, named=True),
    )


@pytest.mark.parametrize(
    ("rest", "named"),
    [
        (entry("mov.u64 %rd1, x;"), True),
        (".func helper()\n{\nld.global.u32 %r1, [x+4];\n}\n", True),
        (".global .align 8 .u64 table[1] = {generic(x)};\n", True),
        (".global .align 8 .u64 alias = x;\n", True),
        (entry("mov.u64 %rd1, x1; mov.u64 %rd2, $x; // x"), False),
        (entry("ld.global.u32 %r1, [%rd1];"), False),
        (".global .align 8 .u64 y;\n", False),
    ],
)
def test_a_variable_is_named_if_a_function_or_another_variable_names_it(rest: str, named: bool) -> None:
    found = {item.name: item.named for item in scan(f"{HEAD}.global .align 4 .u32 x = 1;\n{rest}").state}
    assert found["x"] is named


def test_what_is_no_state() -> None:
    found = scan(
        HEAD + ".const .align 4 .b8 table[12];\n.extern .shared .align 16 .b8 dyn[];\n"
        "// .global .u32 commented;\n/* .global .u32 too; */\n"
        + entry(".shared .align 4 .b8 tile[64];\n.local .b8 depot[8];\nld.global.u32 %r1, [%rd1];").replace(HEAD, "")
    )
    assert found.state == ()
    assert found.constants == (Variable(name="table", size_bytes=12, named=False),)
    assert found.undefined == ()


def test_names_that_are_expected_from_elsewhere() -> None:
    found = scan(
        HEAD
        + ".extern .func  (.param .b32 func_retval0) vprintf\n(\n.param .b64 a,\n.param .b64 b\n)\n;\n"
        + ".extern .func (.param .b64 r) malloc (.param .b64 n);\n.extern .func free(.param .b64 p);\n"
        + ".extern .global .align 4 .u32 elsewhere;\n.func (.param .b32 r) helper(.param .b32 x);\n"
        + ".visible .func (.param .b32 r) helper(.param .b32 x)\n{\nret;\n}\n"
        + ".extern .func (.param .b32 r) cudaLaunchDeviceV2 (.param .b64 a);\n"
        + entry().replace(HEAD, "")
    )
    assert found.undefined == ("vprintf", "malloc", "free", "elsewhere", "cudaLaunchDeviceV2")
    assert [item.symbol for item in found.entries] == ["k"]


def test_a_function_of_unknown_form_is_no_function_that_is_not_there() -> None:
    assert scan(".visible .entry ((;").undefined == ("?",)


PIECES = st.sampled_from(
    [
        *'(){};"=',
        ".global ",
        ".entry ",
        ".func ",
        ".extern ",
        "/*",
        "*/",
        "//",
        "\n",
        "x",
        "[3]",
        ".u32 ",
        "%clock",
        "64",
    ]
)


@given(st.lists(PIECES | st.text(max_size=5), max_size=60).map("".join))
def test_any_text_gives_facts(text: str) -> None:
    found = scan(text)
    assert Ptx.parse(found.canonical()) == found
    assert all(set(each.special_registers) <= set(found.special_registers) for each in found.entries)


@pytest.mark.parametrize("unit", ["/*", ".func(", ".entry ", "a", ".attribute(", "{", '"\n', "[1]", ".global ", "}"])
def test_no_repetition_takes_more_than_linear_time(unit: str) -> None:
    """Each would take minutes with a pattern that backtracks."""
    assert not scan(unit * (200_000 // len(unit)) + ";").entries


def test_a_text_beyond_the_cap_is_not_read() -> None:
    with pytest.raises(ValueError, match="characters of PTX"):
        scan(" " * (MAX_PTX_CHARS + 1))
