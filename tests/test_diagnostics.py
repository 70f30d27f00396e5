"""What a toolkit says beside its figures: codes, dropped bounds, contradicted limits, refusals."""

from pathlib import Path

import pytest

from qualify.diagnostics import MAX_TEXT_CHARS, Finding, finding, lines

DATA = Path(__file__).parent / "data"


def findings(log: bytes | str) -> list[Finding]:
    return [found for line in lines(log) if (found := finding(line))]


def one(log: bytes | str) -> Finding:
    (found,) = findings(log)
    return found


def report(name: str) -> list[Finding]:
    return findings((DATA / "reports" / name).read_bytes())


def test_a_code_without_a_function_belongs_to_the_module() -> None:
    (found,) = report("hints-nvrtc-13.2.86-sm_90a.log")
    assert (found.code, found.kind, found.level, found.entry) == ("C7508", "advisory", "info", None)
    assert [item.code for item in report("hints-nvrtc-13.2.86-sm_90a-rdc.log")] == ["C7504", "C7504"]


@pytest.mark.parametrize(("release", "code"), [("12.4.127", "C7514"), ("13.2.86", "C7517")])
def test_a_code_with_a_function_belongs_to_it(release: str, code: str) -> None:
    (found,) = report(f"matrix-nvrtc-{release}-sm_90a.log")
    assert (found.code, found.entry) == (code, "early_read")


def test_a_bare_line_with_a_code_counts_and_a_number_in_prose_does_not() -> None:
    assert one("info    : (C7510) serialized in the function 'k'").code == "C7510"
    assert not findings("1>kernels.cu : warning C4819: code page (936) [proj]")
    assert not findings("kernels.cu(3): warning #177-D: see (C7508)")


@pytest.mark.parametrize(
    ("text", "requested", "effective", "entry"),
    [
        ("Overriding global maxrregcount 24 with entry-specific value 32 computed using thread count", 24, 32, None),
        ("Overriding maximum register limit 256 for 'plain' with  24 of maxrregcount option", None, 24, "plain"),
        ("For profile sm_90 adjusting per thread register count of 18 to lower bound of 24", 18, 24, None),
        ("Too big maxrregcount value specified 300, will be ignored", 300, None, None),
    ],
)
def test_a_contradicted_register_limit(
    text: str, requested: int | None, effective: int | None, entry: str | None
) -> None:
    found = one(f"ptxas info    : {text}\n")
    assert (found.kind, found.requested, found.effective, found.entry) == (
        "register-limit",
        requested,
        effective,
        entry,
    )


def test_dropped_launch_bounds_name_the_entry() -> None:
    found = one("ptxas warning : Value of threads per SM for entry k is out of range. .minnctapersm will be ignored")
    assert (found.kind, found.entry, found.about) == ("launch-bounds", "k", "minnctapersm")
    found = one("ptxas warning : .minnctapersm and .maxntid will be ignored")
    assert (found.kind, found.about) == ("launch-bounds", "minnctapersm")
    assert one("ptxas warning : Pragma 'x' unsupported").kind == "other"


def test_an_instruction_that_the_target_lacks() -> None:
    first, *_, last = report("hints-nvrtc-13.2.86-sm_90.log")
    assert (first.kind, first.level, first.line, first.target) == ("target", "error", 32, "sm_90")
    assert first.about == "Instruction 'setmaxnreg.dec'"
    assert last.level == "fatal"
    unknown = report("hints-nvrtc-11.8.89-sm_90.log")[0]
    assert (unknown.kind, unknown.about, unknown.line) == ("target", "setmaxnreg", 32)


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ("ptxas fatal   : Value 'sm_52' is not defined for option 'gpu-name'", "target"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_52'", "target"),
        ("nvrtc: error: invalid value for --gpu-architecture (-arch)", "target"),
        ("ptxas fatal   : SM version specified by .target is higher than default SM version assumed", "target"),
        ("ptxas fatal   : Invalid value for --Ofast-compile/-Ofc (mid), is not 'max' or '0'", "option"),
        ("ptxas fatal   : 'fc': expected a number", "option"),
        ("ptxas fatal   : Unknown option '-bogus'", "option"),
        ("nvrtc: error: unrecognized option --bogus found", "option"),
        ("nvlink error   : Undefined reference to 'f' in 'a.o'", "undefined"),
        ("ptxas fatal   : Unresolved extern function 'malloc'", "undefined"),
        ("nvcc error   : 'ptxas' died due to signal 11", "other"),
        ("ptxas x.ptx, line 9; fatal   : Unsupported .version 9.2; current version is '8.7'", "version"),
    ],
)
def test_a_tools_refusal_is_an_error_of_its_kind(log: str, kind: str) -> None:
    assert one(log).kind == kind
    assert one(log).level in ("error", "fatal")


def test_a_refused_version_is_named() -> None:
    found = one("ptxas x.ptx, line 2; fatal   : Unsupported .version 99.0; current version is '9.2'")
    assert (found.about, found.line) == ("99.0", 2)
    assert one("nvlink error   : Undefined reference to 'f' in 'a.o'").about == "f"


@pytest.mark.parametrize(
    "log",
    [
        'module.cu(1): error: identifier "missing" is undefined',
        'module.cu(1): catastrophic error: could not open source file "a.h" (no directories in search list)',
        "C:\\proj\\kernels.cu(12,4): error C2065: undeclared",
        "1>  kernels.obj : error LNK2001: unresolved",
        "kernels.cu:12:5: fatal error: 'a.h' file not found",
        "1 error detected in the compilation of 'module.cu'.",
        "2 catastrophic errors detected in the compilation of 'module.cu'.",
    ],
)
def test_a_compilers_error_is_an_error(log: str) -> None:
    assert one(log).level == "error"


@pytest.mark.parametrize(
    "log",
    [
        "    int unused; // error: this is only a comment",
        '  printf("error: %d", x);',
        "  x ? a : error : b;",
        "module.cu(4): warning #177-D: variable \"error\" was declared but never referenced",
        "module.cu(1): remark #20200-D: #pragma message: \"ptxas error   : made up\"",
        "ptxas info    : Function properties for error",
        "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads",
    ],
)  # fmt: skip
def test_words_in_quoted_source_are_no_error(log: str) -> None:
    assert not findings(log)


def test_texts_are_short_and_lines_end_at_nul() -> None:
    assert len(one("ptxas error   : " + "x" * 5000).text) == MAX_TEXT_CHARS
    assert [line.text for line in lines(b"ptxas info    : a\0ptxas info    : b\r\n\0\xff")] == ["a", "b", "\ufffd"]
