"""What sanitizers print, read closed: known errors, summaries, counts, and everything else as strange."""

import pytest

from qualify.sanitizers import CLAIMS, PLANTED, TOOLS, Counted, Finding, compute_sanitizer, counted, oclgrind, planted

READ = (
    "Invalid read of size 4 at global memory address 0x2000000000100\n"
    "\tKernel: add\n"
    "\tEntity: Global(63,0,0) Local(63,0,0) Group(0,0,0)\n"
    "\t  %0 = load float, float addrspace(1)* %arrayidx, align 4, !dbg !45, !tbaa !46\n"
    "\tAt line 2 (column 108) of ./op/k.h:\n"
    "\t  y[i] = a[i + 1];\n"
    "\t\n"
)
RACE = (
    "Read-write data race at local memory address 0x1000000000004\n"
    "\tKernel: add\n"
    "\t\n"
    "\tFirst entity:  Global(1,0,0) Local(1,0,0) Group(0,0,0)\n"
    "\t  store float %0, float addrspace(3)* %arrayidx2, align 4, !dbg !40, !tbaa !34\n"
    "\tAt line 5 (column 131) of ./op/k.h:\n"
    "\t  t[l] = a[i];\n"
    "\t\n"
    "\tSecond entity: Global(0,0,0) Local(0,0,0) Group(0,0,0)\n"
    "\t\n"
)
DIVERGENCE = (
    "Work-group divergence detected (barrier)\n"
    "\tKernel:     add\n"
    "\tWork-group: (1,0,0)\n"
    "\tOnly 36 out of 64 work-items executed barrier\n"
    "\t\n"
)
COUNTS = (
    "Instructions executed for kernel 'add':\n"
    "             128 - br\n"
    "              64 - call _Z13get_global_idj()\n"
    "              64 - load global (256 bytes)\n"
    "              64 - ret\n"
    "\n"
)


def test_every_tool_looks_for_something_and_every_claim_is_looked_for() -> None:
    for runtime in ("opencl", "cuda"):
        assert sorted(claim for claims in TOOLS[runtime].values() for claim in claims) == sorted(CLAIMS)
    assert set(PLANTED.values()) == set(CLAIMS)


# Oclgrind ------------------------------------------------------------------------------------------------------------


def test_an_error_is_found_with_kind_address_kernel_item_and_place() -> None:
    found = oclgrind(f"\n{READ}\n")
    text = (
        "Invalid read of size 4 at global memory address 0x2000000000100; Kernel: add; "
        "Entity: Global(63,0,0) Local(63,0,0) Group(0,0,0); At line 2 (column 108) of ./op/k.h:"
    )
    assert (found.findings, found.strange) == ((Finding(claim="bounds", text=text),), ())


@pytest.mark.parametrize(
    ("head", "claim"),
    [
        ("Invalid write of size 4 at local memory address 0x0", "bounds"),
        ("Invalid write to read-only buffer at address 0x1", "bounds"),
        ("Unaligned address on generic load of size 4", "bounds"),
        ("Uninitialized value written to global memory address 0x30", "initialised"),
        ("Uninitialized address used to read 4 bytes", "initialised"),
        ("Controlflow depends on uninitialized value", "initialised"),
        ("Instruction depends on an uninitialized value", "initialised"),
        ("Write-write data race at global memory address 0x2000000000002", "races"),
        ("Work-group divergence detected (async copy)", "barriers"),
    ],
)
def test_each_kind_of_error_is_known(head: str, claim: str) -> None:
    found = oclgrind(f"\n{head}\n\tKernel: add\n\t\n")
    assert [finding.claim for finding in found.findings] == [claim]
    assert not found.strange


def test_several_errors_are_kept_in_order_and_apart() -> None:
    found = oclgrind(f"\n{RACE}\n{DIVERGENCE}\n{READ}")
    assert [finding.claim for finding in found.findings] == ["races", "barriers", "bounds"]
    assert "Second entity: Global(0,0,0)" in found.findings[0].text
    assert "Only 36 out of 64 work-items" in found.findings[1].text


@pytest.mark.parametrize(
    "text",
    ["Oclgrind: 1000 errors generated - suppressing further errors\n", "OCLGRIND FATAL ERROR (x.cpp:1)\n", "\tAlone\n"],
)
def test_what_is_no_known_error_is_strange(text: str) -> None:
    found = oclgrind(f"\n{READ}\n{text}")
    assert len(found.findings) == 1
    assert oclgrind(text).strange == (text.strip(),)
    assert oclgrind("").strange == ()


def test_a_line_of_source_is_no_error_whatever_it_says() -> None:
    quoted = READ.replace("y[i] = a[i + 1];", "// Work-group divergence detected (barrier)")
    assert [finding.claim for finding in oclgrind(quoted).findings] == ["bounds"]


def test_planted_errors_count_by_kernel_and_kind() -> None:
    heads = {
        "bounds": "Invalid read of size 4",
        "initialised": "Uninitialized value written",
        "races": "Read-write data race at local",
        "barriers": "Work-group divergence detected (barrier)",
    }
    texts = {
        kernel: f"\n{heads[claim]} \n\tKernel: {kernel}\n\tEntity: Global(0)\n" for kernel, claim in PLANTED.items()
    }
    assert planted(oclgrind("".join(texts.values()))) == tuple(PLANTED)
    for kernel in PLANTED:
        rest = [text for name, text in texts.items() if name != kernel]
        assert planted(oclgrind("".join(rest))) == tuple(name for name in PLANTED if name != kernel)
    other = texts["planted_race"].replace(heads["races"], heads["bounds"])
    assert planted(oclgrind(other)) == ()


def test_counts_say_how_often_something_returned() -> None:
    two = COUNTS + COUNTS.replace("add", "scale").replace("64 - ret", "7 - ret")
    assert counted(two) == ((Counted("add", 64), Counted("scale", 7)), ())
    assert counted(COUNTS.replace("64 - ret", "64 - sext")) == ((Counted("add", None),), ())
    assert counted("") == ((), ())


@pytest.mark.parametrize(
    "more",
    ["0 errors\n", "             200 - ret\n", "ERROR SUMMARY: 0 errors\n", "Instructions executed for kernel add:\n"],
)
def test_what_a_kernel_prints_is_strange(more: str) -> None:
    assert counted(COUNTS + more)[1] == (more.rstrip("\n"),)


def test_counts_that_a_kernel_prints_are_a_launch_too_many() -> None:
    launches, _ = counted(COUNTS + COUNTS)
    assert len(launches) == 2


# compute-sanitizer ---------------------------------------------------------------------------------------------------

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
NO_RACES = "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
OUTSIDE = (
    "========= COMPUTE-SANITIZER\n"
    "========= Invalid __global__ read of size 4 bytes\n"
    "=========     at add+0xc0\n"
    "=========     by thread (103,0,0) in block (7,0,0)\n"
    "=========     Access to 0x7fd01e800fa0 is out of bounds\n"
    "=========     and is 1 bytes after the nearest allocation at 0x7fd01e800000 of size 4,000 bytes\n"
    "=========     Saved host backtrace up to driver entry point at kernel launch time\n"
    "=========         Host Frame:  [0x55b15] in cydriver.cpython-312-x86_64-linux-gnu.so\n"
    "=========         Host Frame: PyObject_Vectorcall [0x1499b4] in python\n"
    "========= \n"
    "========= ERROR SUMMARY: 1 error\n"
)
HAZARD = (
    "========= COMPUTE-SANITIZER\n"
    "========= Error: Race reported between Write access at add+0x100\n"
    "=========     and Read access at add+0x150 [4000 hazards]\n"
    "========= \n"
    "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
)
#: As release 2025.3 prints it, each error twice and more.
NEVER_WRITTEN = (
    "========= COMPUTE-SANITIZER\n"
    "========= Uninitialized __global__ memory read of size 4 bytes\n"
    "=========     at add+0xe0\n"
    "=========     by thread (96,0,0) in block (0,0,0)\n"
    "=========     Address 0x7f9122801180\n"
    "=========     Saved host backtrace up to driver entry point at kernel launch time\n"
    "========= \n"
    "========= Uninitialized __global__ memory read of size 4 bytes\n"
    "=========     at add+0xe0\n"
    "=========     by thread (97,0,0) in block (0,0,0)\n"
    "=========     Address 0x7f9122801184\n"
    "========= \n"
    "========= ERROR SUMMARY: 1000 errors\n"
    "========= ERROR SUMMARY: 998 errors were not printed. "
    "Use --print-limit option to adjust the number of printed errors\n"
)


def test_a_summary_of_no_errors_is_read() -> None:
    for text in (CLEAN, NO_RACES):
        found = compute_sanitizer(text)
        assert (found.errors, found.warnings, found.findings, found.strange) == (0, 0, (), ())


def test_an_access_outside_is_found_with_where_and_who() -> None:
    found = compute_sanitizer(OUTSIDE)
    assert (found.errors, found.strange) == (1, ())
    assert found.findings == (
        Finding(
            claim="bounds",
            text="Invalid __global__ read of size 4 bytes; at add+0xc0; by thread (103,0,0) in block (7,0,0); "
            "Access to 0x7fd01e800fa0 is out of bounds; "
            "and is 1 bytes after the nearest allocation at 0x7fd01e800000 of size 4,000 bytes",
        ),
    )


def test_errors_beyond_the_print_limit_are_in_the_summary() -> None:
    found = compute_sanitizer(NEVER_WRITTEN)
    assert (found.errors, len(found.findings), found.strange) == (1000, 2, ())
    assert found.findings[1].text.endswith("by thread (97,0,0) in block (0,0,0); Address 0x7f9122801184")


@pytest.mark.parametrize(
    ("head", "claim"),
    [
        ("Invalid __shared__ write of size 8 bytes", "bounds"),
        ("Invalid __local__ read of size 4 bytes", "bounds"),
        ("Invalid __global__ atomic of size 4 bytes", "bounds"),
        ("Uninitialized __global__ memory read of size 4 bytes", "initialised"),
        ("Barrier error detected. Divergent thread(s) in block.", "barriers"),
        ("Barrier error detected. Divergent thread(s) in warp.", "barriers"),
        ("Error: Race reported between Write access at add+0x10", "races"),
        ("Error: Potential RAW hazard detected at __shared__ 0x0 in block (0,0,0) :", "races"),
    ],
)
def test_each_kind_of_report_is_known(head: str, claim: str) -> None:
    found = compute_sanitizer(OUTSIDE.replace("Invalid __global__ read of size 4 bytes", head))
    assert [(finding.claim, finding.warning) for finding in found.findings] == [(claim, False)]
    assert not found.strange


def test_a_hazard_is_an_error_and_a_warning_is_a_warning() -> None:
    found = compute_sanitizer(HAZARD)
    assert (found.errors, found.warnings) == (1, 0)
    assert found.findings[0].text.endswith("and Read access at add+0x150 [4000 hazards]")
    text = HAZARD.replace("Error: Race", "Warning: Race").replace("(1 error, 0 warnings)", "(0 errors, 1 warning)")
    found = compute_sanitizer(text)
    assert (found.errors, found.warnings, found.findings[0].warning) == (0, 1, True)


def test_hazards_that_are_neither_errors_nor_warnings_are_errors() -> None:
    found = compute_sanitizer(NO_RACES.replace("0 hazards", "3 hazards"))
    assert (found.errors, found.warnings) == (3, 0)


@pytest.mark.parametrize(
    ("text", "strange"),
    [
        ("", 0),
        ("========= COMPUTE-SANITIZER\n", 0),
        (CLEAN + CLEAN, 0),
        (CLEAN.replace("0 errors", "no errors"), 1),
        ("ERROR SUMMARY: 0 errors\n", 1),
        ("========= COMPUTE-SANITIZER\n========= Error: Device not supported. Please refer to the documentation.\n", 1),
    ],
)
def test_no_summary_is_no_count(text: str, strange: int) -> None:
    found = compute_sanitizer(text)
    assert (found.errors, found.warnings, len(found.strange)) == (None, None, strange)


@pytest.mark.parametrize(
    "line",
    [
        "========= Internal Sanitizer Error: out of memory",
        "========= Error: process didn't terminate successfully",
        "========= Target application returned an error",
        "printed by something else",
    ],
)
def test_a_line_that_nothing_explains_is_strange_beside_any_summary(line: str) -> None:
    assert len(compute_sanitizer(f"{CLEAN}{line}\n").strange) == 1
