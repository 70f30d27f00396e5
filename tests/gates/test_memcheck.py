"""Gate memcheck: a tool that is seen to work and finds nothing passes; everything short of that does not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gates.memcheck import MAX_FINDINGS, Launched, MemcheckFacts, ToolRun
from qualify import program, sanitizing, toolkits
from qualify.contract import Memset, ReferenceSource
from qualify.errors import RigError
from qualify.sanitizers import OCLGRIND, PLANTED, TOOLS, Finding, compute_sanitizer
from qualify.steps import Step
from qualify.subject import Subject
from qualify.verdict import Verdict
from tests.gates.beds import SEED, Bed, bed, cuda, opencl
from tests.gates.build import VARIANTS, arm, buffer, check, kernel, not_held, subject, verdict

OPENCL = subject("pocl-3.0", variants=VARIANTS)
CUDA = subject("cuda-13.2", variants=VARIANTS)
ENDED = tuple(Launched(variant=variant, symbol="add", returned=None) for variant in VARIANTS)
COUNTED = tuple(each.model_copy(update={"returned": 1000}) for each in ENDED)
WHOLE: dict[str, Any] = {"version": "1", "ended": "complete", "exit_code": 0, "found": 0, "findings": ()}
WHOLE |= {"unexplained": 0, "strange": ()}
SEEN = (tuple(PLANTED), tuple(PLANTED))
READ = Finding(claim="bounds", text="Invalid read of size 4 at 0x10; Kernel: add")
UNKNOWN = dict.fromkeys(("bounds", "initialised", "races", "barriers"))


def interpreted(about: Subject = OPENCL, **changes: Any) -> Verdict:
    fields = {**WHOLE, "launches": COUNTED, "planted": SEEN, "errors": None, "warnings": None, **changes}
    return verdict("memcheck", about, MemcheckFacts(tools=(ToolRun(tool=OCLGRIND, **fields),)))


def watched(tool: str = "memcheck", about: Subject = CUDA, **changes: Any) -> Verdict:
    """Four clean tools, but for the changes of one of them."""
    clean = {**WHOLE, "launches": ENDED, "planted": (), "errors": 0, "warnings": 0}
    tools = (ToolRun(tool=name, **(clean | changes if name == tool else clean)) for name in TOOLS["cuda"])
    return verdict("memcheck", about, MemcheckFacts(tools=tuple(tools)))


def found(*findings: Finding) -> dict[str, Any]:
    return {"found": len(findings), "findings": findings}


# Judgement -----------------------------------------------------------------------------------------------------------


def test_clean_tools_that_are_seen_to_work_pass() -> None:
    assert interpreted().outcome == "pass"
    assert watched().outcome == "pass"
    assert check(interpreted(), "bounds").got == "none by oclgrind"
    assert check(watched(), "races").got == "none by racecheck"


def test_more_returns_than_work_items_pass_because_functions_return_too() -> None:
    more = (COUNTED[0], COUNTED[1].model_copy(update={"returned": 3000}))
    assert interpreted(launches=more).outcome == "pass"


@pytest.mark.parametrize("claim", UNKNOWN)
def test_an_error_fails_its_claim_with_the_tools_line(claim: Any) -> None:
    error = READ.model_copy(update={"claim": claim})
    closed = interpreted(**found(error))
    assert (closed.outcome, not_held(closed)) == ("fail", {claim: False})
    assert check(closed, claim).got == READ.text


@pytest.mark.parametrize(("tool", "claims"), TOOLS["cuda"].items())
def test_each_tool_of_cuda_answers_for_its_claim(tool: str, claims: Any) -> None:
    error = READ.model_copy(update={"claim": claims[0]})
    closed = watched(tool, errors=1, exit_code=86, **found(error))
    assert (closed.outcome, not_held(closed)) == ("fail", {claims[0]: False})


def test_errors_fail_whatever_became_of_the_tool() -> None:
    for ended in ("complete", "refused in launch 5 of 9: add: CUDA_ERROR_LAUNCH_FAILED (719)"):
        closed = watched(errors=1, ended=ended, exit_code=86, launches=(), **found(READ))
        assert closed.outcome == "fail"
        assert check(closed, "bounds").holds is False


def test_a_warning_closes_and_blames_nobody() -> None:
    warning = Finding(claim="races", text="Warning: Race reported", warning=True)
    closed = watched("racecheck", warnings=1, exit_code=86, **found(warning))
    assert (closed.outcome, not_held(closed)) == ("inconclusive", {"races": None})


def test_errors_that_nothing_explains_blame_nobody() -> None:
    closed = watched(errors=2, exit_code=86)
    assert (closed.outcome, not_held(closed)) == ("inconclusive", {"bounds": None})
    assert check(closed, "bounds").got == "2 that nothing explains"


@pytest.mark.parametrize(
    "planted",
    [(), (tuple(PLANTED),), (tuple(PLANTED), ()), ((), tuple(PLANTED)), (tuple(PLANTED)[1:], tuple(PLANTED))],
)
def test_silence_means_nothing_from_a_tool_that_misses_a_planted_error(planted: Any) -> None:
    assert not_held(interpreted(planted=planted)) == {"planted": None, **UNKNOWN}


@pytest.mark.parametrize(
    "launches",
    [
        (),
        COUNTED[:1],
        (*COUNTED, COUNTED[0]),
        COUNTED[::-1],
        ENDED,
        (COUNTED[0], COUNTED[1].model_copy(update={"returned": 999})),
        (COUNTED[0], COUNTED[1].model_copy(update={"symbol": "other"})),
    ],
    ids="none one three swapped uncounted short other".split(),  # noqa: SIM905
)
def test_every_work_item_of_every_launch_is_counted(launches: Any) -> None:
    assert not_held(interpreted(launches=launches)) == {"launches": None, **UNKNOWN}


def test_a_launch_that_did_not_end_under_one_tool_proves_nothing() -> None:
    assert not_held(watched("synccheck", launches=ENDED[:1])) == {"launches": None, **UNKNOWN}


def test_a_route_that_launches_no_kernel_proves_nothing() -> None:
    about = OPENCL.model_copy(update={"candidate": arm("wide", Memset(memset="y"))})
    assert interpreted(about, launches=()).outcome == "inconclusive"


@pytest.mark.parametrize(
    "changes",
    [
        {"ended": "died in launch 4 of 9: "},
        {"version": None},
        {"version": ""},
        {"exit_code": 1},
        {"exit_code": None},
        {"errors": None, "warnings": None},
        {"exit_code": 86},
    ],
)
def test_a_tool_that_did_not_come_to_its_own_end_is_unknown(changes: Any) -> None:
    assert not_held(watched(**changes)) == {"tools": None, **UNKNOWN}
    if "errors" not in changes:
        assert not_held(interpreted(**changes)) == {"tools": None, **UNKNOWN}


def test_a_line_that_nothing_explains_is_unknown() -> None:
    lines: dict[str, Any] = {"unexplained": 1, "strange": ("ERROR SUMMARY: 0 errors",)}
    for closed in (interpreted(**lines), watched(**lines)):
        assert not_held(closed) == {"understood": None, **UNKNOWN}
        assert "ERROR SUMMARY: 0 errors" in (check(closed, "understood").got or "")


@pytest.mark.parametrize(
    "changes",
    [
        {"found": 1},
        {"found": 1, "findings": (READ, READ)},
        {"unexplained": 1},
        {"found": 2, "findings": (READ,)},
        {"errors": 0},
        {"warnings": 0},
    ],
)
def test_facts_that_contradict_themselves_decide_nothing(changes: Any) -> None:
    assert not_held(interpreted(**changes)) == {"facts": None}


def test_more_errors_than_are_kept_are_counted() -> None:
    assert interpreted(found=1000, findings=(READ,) * MAX_FINDINGS).outcome == "fail"


def test_a_tool_says_what_is_its_own() -> None:
    assert not_held(watched("racecheck", errors=1, **found(READ))) == {"facts": None}
    assert not_held(watched(planted=SEEN)) == {"facts": None}
    assert not_held(watched(launches=COUNTED)) == {"facts": None}
    assert not_held(watched(about=OPENCL)) == {"facts": None}
    assert not_held(interpreted(CUDA)) == {"facts": None}


def test_no_tools_are_no_evidence() -> None:
    for about in (OPENCL, CUDA, subject("simulated-1.0")):
        assert not_held(verdict("memcheck", about, MemcheckFacts(tools=()))) == {"facts": None}


# Tools ---------------------------------------------------------------------------------------------------------------


def test_without_its_tool_a_runtime_gets_no_facts_but_a_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RigError, match=r"compute-sanitizer.*found none\n  fix: install"):
        sanitizing.compute_sanitizer((tmp_path,), tmp_path)
    with pytest.raises(RigError, match=r"Oclgrind's wheel, found none\n  fix: pip install"):
        sanitizing.oclgrind("no_such_wheel")
    with pytest.raises(RigError, match=r"no sanitizer knows simulated-1\.0\n  fix: "):
        sanitizing.find(toolkits.find("simulated-1.0"))


@pytest.mark.parametrize("where", ["bin", "compute-sanitizer"])
def test_the_tool_itself_goes_before_its_script_and_the_toolkits_own_before_the_systems(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    for folder in ("cuda-12.8", "cuda-13.0"):
        for name in {"bin", where}:
            (tmp_path / folder / name).mkdir(parents=True)
            (tmp_path / folder / name / "compute-sanitizer").touch()
    assert sanitizing.compute_sanitizer((), tmp_path) == tmp_path / "cuda-13.0" / where / "compute-sanitizer"
    own = tmp_path / "cuda-12.8"
    assert sanitizing.compute_sanitizer((own,), tmp_path) == own / where / "compute-sanitizer"


# Oclgrind ------------------------------------------------------------------------------------------------------------

TILE = "__local float t[128]; int l = get_local_id(0); "
#: The nearest kernels: what is wrong, the honest twin, the wrong one, and the claim that it breaks.
PAIRS = {
    "reads one past the end": ("y[i] = a[i] + b[i];", "y[i] = a[i + 1] + b[i];", "bounds"),
    "writes one past the end": ("y[i] = a[i] + b[i];", "y[i + 1] = a[i] + b[i];", "bounds"),
    "reads before the start": ("y[i] = a[i] + b[i];", "y[i] = a[i - 1] + b[i];", "bounds"),
    "reads local memory that nobody wrote": (
        f"{TILE} t[l] = a[i]; barrier(CLK_LOCAL_MEM_FENCE); y[i] = t[l] + b[i];",
        f"{TILE} if (l != 7) t[l] = a[i]; barrier(CLK_LOCAL_MEM_FENCE); y[i] = t[l] + b[i];",
        "initialised",
    ),
    "reads the output": ("y[i] = a[i]; y[i] += b[i];", "y[i] += a[i] + b[i];", "initialised"),
    "races in local memory": (
        f"{TILE} t[l] = 0; barrier(CLK_LOCAL_MEM_FENCE); t[l] = a[i]; barrier(CLK_LOCAL_MEM_FENCE); y[i] = t[l ^ 1];",
        f"{TILE} t[l] = 0; barrier(CLK_LOCAL_MEM_FENCE); t[l] = a[i]; y[i] = t[l ^ 1];",
        "races",
    ),
    "races in global memory": ("y[i] = a[i];", "y[i & ~1] = a[i]; y[i | 1] = b[i];", "races"),
    "a barrier that some miss": (
        "barrier(CLK_LOCAL_MEM_FENCE); y[i] = a[i] + b[i];",
        "if (i != 120) barrier(CLK_LOCAL_MEM_FENCE); y[i] = a[i] + b[i];",
        "barriers",
    ),
}


def interpret(pocl: Bed, text: bytes, **settings: Any) -> Verdict:
    """Two hundred elements in two groups: every work-item has one."""
    return pocl.judge("memcheck", pocl.subject(text, n=200, variants=VARIANTS), **settings).verdict


@pytest.mark.parametrize("pair", PAIRS)
def test_oclgrind_tells_the_nearest_kernels_apart(pair: str, pocl: Bed) -> None:
    honest, wrong, claim = PAIRS[pair]
    assert not_held(interpret(pocl, opencl(honest))) == {}
    closed = interpret(pocl, opencl(wrong))
    assert closed.outcome == "fail"
    assert check(closed, claim).holds is False
    for word in ("Kernel: add", "./op/k.h"):
        assert word in (check(closed, claim).got or "")


def test_an_overrun_of_one_element_names_its_work_item(pocl: Bed) -> None:
    got = check(interpret(pocl, opencl("y[i] = a[i + 1] + b[i];")), "bounds").got or ""
    assert got.startswith("Invalid read of size 4 at global memory address 0x")
    assert "Global(199,0,0) Local(99,0,0) Group(1,0,0)" in got


COUNTS = "Instructions executed for kernel 'add':\\n             200 - ret\\n\\n"


@pytest.mark.parametrize("text", ["ERROR SUMMARY: 0 errors\\n", COUNTS, "             200 - ret\\n", "hello"])
def test_what_a_kernel_prints_never_passes(text: str, pocl: Bed) -> None:
    closed = interpret(pocl, opencl(f'if (i == 0) printf("{text}"); y[i] = a[i] + b[i];'))
    assert closed.outcome == "inconclusive"
    assert set(not_held(closed)) & {"understood", "launches"}


def test_what_a_kernel_prints_hides_no_error(pocl: Bed) -> None:
    text = opencl(f'if (i == 0) printf("{COUNTS}"); y[i] = a[i + 1] + b[i];')
    assert check(interpret(pocl, text), "bounds").holds is False


def lost(pocl: Bed) -> int:
    """How many workers the rig's account has as lost."""
    account: Any = pocl.rig.account()
    return sum(account["workers_lost"].values())


@pytest.mark.parametrize(
    ("body", "got"),
    [
        ("volatile int z = 1; while (z) { } y[i] = a[i];", "oclgrind: hung in launch"),
        ('__asm__ volatile("nop"); y[i] = a[i];', "oclgrind: died in source"),
        ("y[i] = no_such_function(a[i]);", "oclgrind: refused in source"),
    ],
    ids="hangs crashes refuses".split(),  # noqa: SIM905
)
def test_a_tool_that_does_not_end_is_inconclusive_and_the_next_subject_is_served(
    body: str, got: str, pocl: Bed
) -> None:
    before = lost(pocl)
    closed = interpret(pocl, opencl(body), timeout_s=2)
    assert lost(pocl) == before + 1
    assert closed.outcome == "inconclusive"
    assert (check(closed, "tools").got or "").startswith(got)
    assert interpret(pocl, opencl()).outcome == "pass"


def test_a_module_does_not_learn_from_options_that_it_is_watched(pocl: Bed) -> None:
    tells = b"#ifdef PYOPENCL_USING_OCLGRIND\n#error watched\n#endif\n"
    assert interpret(pocl, tells + opencl()).outcome == "pass"


SCRATCH = (buffer("y", "output", 200), buffer("a", "input", 200), buffer("s", "scratch", 200, init="zero-by-route"))
STEPS = b"""
__kernel void first(__global float *y, __global const float *a, __global float *s) {
    int i = get_global_id(0);
    s[i] += a[i];
}
__kernel void second(__global float *y, __global const float *a, __global float *s) {
    int i = get_global_id(0);
    y[i] = s[199 - i];
}
"""


@pytest.mark.parametrize(("cleared", "outcome"), [(True, "pass"), (False, "fail")])
def test_scratch_of_a_route_of_several_launches_is_written_before_it_is_read(
    cleared: bool, outcome: str, pocl: Bed
) -> None:
    kernels = (kernel("first", grid=2), kernel("second", grid=2))
    launches = (Memset(memset="s"), *kernels) if cleared else kernels
    about = pocl.subject(STEPS, STEPS, launches=launches, passed=SCRATCH)
    assert pocl.judge("memcheck", about).verdict.outcome == outcome


# compute-sanitizer ---------------------------------------------------------------------------------------------------

SHARED = "__shared__ float t[128]; int l = threadIdx.x; "
#: What the wrong ones below have in common, done right.
HONEST = f"{SHARED} t[l] = a[i]; __syncthreads(); y[i] = t[99 - l]; __syncthreads(); y[i] += b[i];"
WRONG = {
    "reads one past the end": ("y[i] = a[i + 1] + b[i];", "bounds"),
    "writes one past the end": ("y[i + 1] = a[i] + b[i];", "bounds"),
    "races in shared memory": (HONEST.replace("__syncthreads(); y[i] = t", "y[i] = t"), "races"),
    "reads the output": (HONEST.replace("y[i] = t[99 - l]", "y[i] += t[99 - l]"), "initialised"),
    "a barrier that some miss": (
        HONEST.replace("__syncthreads(); y[i] +=", "if (l % 2) __syncthreads(); y[i] +="),
        "barriers",
    ),
}


@pytest.fixture(scope="module")
def board() -> Iterator[Bed]:
    """The board of this machine under the toolkit that is here."""
    with bed("cuda") as made:
        yield made


def watch(board: Bed, text: bytes) -> Verdict:
    return board.judge("memcheck", board.subject(text, n=200, variants=VARIANTS), timeout_s=20).verdict


@pytest.mark.gpu
def test_under_four_tools_an_honest_kernel_passes_and_an_overrun_of_one_element_fails(board: Bed) -> None:
    honest = watch(board, cuda(HONEST))
    assert not_held(honest) == {}, honest
    outside = watch(board, cuda(WRONG["reads one past the end"][0]))
    assert outside.outcome == "fail", outside
    assert check(outside, "bounds").holds is False, outside


@pytest.mark.gpu
@pytest.mark.parametrize("what", WRONG)
def test_the_tool_for_it_names_the_error_of_the_nearest_wrong_kernel(what: str, board: Bed) -> None:
    wrong, claim = WRONG[what]
    about = board.subject(cuda(wrong), n=200)
    board.rig.supply(board.modules, ReferenceSource(path="none.py", code=b"", function="none"), SEED)
    seed = "1" * 16
    tool = next(tool for tool, claims in TOOLS["cuda"].items() if claim in claims)
    steps: tuple[Step, ...] = (
        program.arena(about, 1, seed),
        *program.values(about, "ordinary", seed),
        program.run(about, "candidate"),
    )
    made = board.rig.bench(about, {}).sanitized(about, tool, steps, 20)
    report = compute_sanitizer(made.report)
    assert report.errors, made
    assert not report.strange, made
    assert {found.claim for found in report.findings} == {claim}, made
    assert "add" in report.findings[0].text, made
