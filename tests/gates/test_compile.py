"""Gate compile: entry points that take what the contract passes, and the nearest that do not."""

from typing import Any

import pytest

from gates.compile import Advisory, Compiled, CompileFacts, Entry, Passed
from qualify.contract import Argument, PointerMember, ScalarMember, Struct
from qualify.subject import Subject
from tests.gates.beds import Bed, opencl, script
from tests.gates.beds import cuda as cuda_text
from tests.gates.build import arguments, arm, buffer, check, kernel, not_held, subject, verdict

PLACES: dict[str, Any] = {"offset_bytes": None, "size_bytes": None}
POINTER: dict[str, Any] = {"kind": "pointer", "address_space": "global", **PLACES}
VALUE: dict[str, Any] = {"kind": "value", "address_space": "private", **PLACES}
UNTOLD = (
    *("device_state", "undefined", "special_registers", "target", "linked"),
    *("dropped", "disagreements", "idle_state_bytes"),
)
FIGURES = ("registers", "spill_bytes", "stack_bytes", "shared_bytes", "private_bytes", "barriers")
PARAMETERS = (*(Passed(type_name="float*", **POINTER) for _ in "yab"), Passed(type_name="int", **VALUE))


def placed(offset_bytes: int | None, size_bytes: int | None) -> Passed:
    """A parameter as a cubin tells it."""
    return Passed(kind=None, type_name=None, address_space=None, offset_bytes=offset_bytes, size_bytes=size_bytes)


def entry(symbol: str = "add", parameters: tuple[Passed, ...] | None = PARAMETERS, **figures: Any) -> Entry:
    return Entry(symbol=symbol, parameters=parameters, **{**dict.fromkeys(FIGURES), **figures})


def facts(*entries: Entry, incumbent: tuple[Entry, ...] = (), **changes: Any) -> CompileFacts:
    whole: dict[str, Any] = {
        "state": "built",
        "log": "",
        "entries": entries,
        "object_blake3": "cd" * 32,
        "object_bytes": 99,
    }
    whole |= dict.fromkeys(UNTOLD)
    whole |= {"advisories": ()}
    return CompileFacts(candidate=Compiled(**{**whole, **changes}), incumbent=incumbent)


def changed(index: int, **fields: Any) -> CompileFacts:
    parameters = list(PARAMETERS)
    parameters[index] = parameters[index].model_copy(update=fields)
    return facts(entry(parameters=tuple(parameters)))


@pytest.mark.parametrize("toolkit", ["simulated-1.0", "pocl-3.0"])
def test_the_contracts_parameters_pass(toolkit: str) -> None:
    assert not not_held(verdict("compile", subject(toolkit), facts(entry())))


@pytest.mark.parametrize(
    ("found", "closed"),
    [
        (changed(0, type_name="int*"), {"parameter_types": False}),
        (changed(3, type_name="long"), {"parameter_types": False}),
        (changed(3, type_name="uint"), {"parameter_types": False}),
        (changed(3, type_name="int2"), {"parameter_types": None}),
        (changed(0, type_name="float"), {"parameter_types": False}),
        (changed(0, type_name="real*"), {"parameter_types": None}),
        (changed(0, type_name="float3*"), {"parameter_types": None}),
        (changed(0, type_name=None), {"parameter_types": None}),
        (changed(0, address_space="constant"), {"parameter_spaces": False}),
        (changed(1, address_space="local"), {"parameter_spaces": False}),
        (changed(1, kind=None), {"parameter_spaces": None}),
        (changed(3, kind="pointer"), {"parameter_spaces": False}),
        (facts(entry(parameters=PARAMETERS[:3])), {"parameter_count": False}),
        (facts(entry(parameters=(*PARAMETERS, PARAMETERS[3]))), {"parameter_count": False}),
        (
            facts(entry(parameters=None)),
            {"parameter_count": None, "parameter_types": None, "parameter_spaces": None},
        ),
        (facts(entry(), entry("spare")), {"entries": False}),
        (facts(entry(), entry()), {"symbols": False}),
        (facts(entry(), object_bytes=0), {"object": False}),
        (facts(entry(), object_blake3=None), {"object": None}),
    ],
)
def test_the_nearest_parameters_that_close(found: CompileFacts, closed: dict[str, bool | None]) -> None:
    assert not_held(verdict("compile", subject("pocl-3.0"), found)) == closed


def test_vectors_of_the_element_type_and_constant_inputs_are_the_contracts_own() -> None:
    assert not not_held(verdict("compile", subject("pocl-3.0"), changed(0, type_name="float4*")))
    assert not not_held(verdict("compile", subject("pocl-3.0"), changed(1, address_space="constant")))


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        ("float16", "half*", "float*"),
        ("bfloat16", "ushort*", "half*"),
        ("float64", "double2*", "float*"),
        ("uint8", "uchar16*", "char*"),
        ("int64", "long*", "ulong*"),
        ("uint32", "unsigned int*", "int*"),
        ("float8_e4m3", "uchar*", "char*"),
    ],
)
def test_type_names(dtype: str, good: str, bad: str) -> None:
    about = subject("pocl-3.0", arguments=(buffer("y", "output", dtype=dtype),))
    for name, holds in ((good, True), (bad, False)):
        found = facts(entry(parameters=(Passed(type_name=name, **POINTER),)))
        assert check(verdict("compile", about, found), "parameter_types").holds is holds


def test_a_kernel_is_compared_with_the_arguments_that_its_launch_passes() -> None:
    about = subject(candidate=arm("two", kernel(), kernel("sum", arguments=("n", "y"))))
    second = entry("sum", (PARAMETERS[3], PARAMETERS[0]))
    assert not not_held(verdict("compile", about, facts(entry(), second)))
    wrong = entry("sum", (PARAMETERS[0], PARAMETERS[3]))
    assert set(not_held(verdict("compile", about, facts(entry(), wrong)))) == {"parameter_types", "parameter_spaces"}


@pytest.mark.parametrize(
    ("dtypes", "places", "holds"),
    [
        (("int32", "int64"), ((0, 4), (8, 8)), True),
        (("int32", "int64"), ((0, 4), (4, 8)), False),
        (("int64", "int64"), ((0, 8), (8, 4)), False),
        (("int32", "int64"), ((0, 4), (None, 8)), None),
    ],
)
def test_a_cubin_shows_offsets_and_sizes(dtypes: Any, places: Any, holds: bool | None) -> None:
    passed = tuple(Argument(name=f"s{i}", kind="scalar", dtype=dtype, value="1") for i, dtype in enumerate(dtypes))
    found = facts(entry(parameters=tuple(placed(at, size) for at, size in places)))
    judged = verdict("compile", subject("cuda-13.2", arguments=passed), found)
    assert check(judged, "parameter_layout").holds is holds
    assert "parameter_types" not in {each.name for each in judged.checks}


CLEAN: dict[str, Any] = {"device_state": (), "undefined": (), "special_registers": ()}
CLEAN |= {"target": "sm_90a", "linked": True, "idle_state_bytes": 0, "dropped": (), "disagreements": ()}
RECORD: dict[str, Any] = {"registers": 24, "spill_bytes": 0, "stack_bytes": 0, "shared_bytes": 0}
CUBIN = entry(parameters=(placed(0, 8),), **RECORD)


def cubin() -> Subject:
    """A subject whose candidate takes one pointer and is compiled for a variant of its board."""
    return subject("cuda-13.2", arguments=arguments()[:1], candidate=arm(target="sm_90a"))


def test_a_cubin_keeps_nothing_and_reads_no_clock() -> None:
    about, own, clean = cubin(), CUBIN, CLEAN
    assert not not_held(verdict("compile", about, facts(own, **clean)))
    dirty = {
        "device_state": ("calls",),
        "undefined": ("malloc",),
        "special_registers": ("%gridid",),
    }
    for name, value in dirty.items():
        assert not_held(verdict("compile", about, facts(own, **{**clean, name: value}))) == {name: False}
        assert not_held(verdict("compile", about, facts(own, **{**clean, name: None}))) == {name: None}


@pytest.mark.parametrize(
    ("own", "changes", "closed"),
    [
        ({}, {"target": "sm_90"}, {"target": False}),
        ({}, {"target": None}, {"target": None}),
        ({}, {"linked": False}, {"linked": False}),
        ({}, {"linked": None}, {"linked": None}),
        ({"spill_bytes": None}, {}, {"record": None}),
        ({"stack_bytes": None}, {}, {"record": None}),
        ({"registers": 0}, {}, {"record": None}),
        ({"shared_bytes": None}, {}, {"record": None}),
        ({}, {"dropped": ("bounds of 2048 threads",)}, {"launch_bounds": False}),
        ({}, {"dropped": None}, {"launch_bounds": None}),
        ({}, {"disagreements": ("registers: object says 24, report says 8",)}, {"agreement": False}),
        ({}, {"disagreements": None}, {"agreement": None}),
    ],
)
def test_a_cubin_is_whole_for_its_target_and_its_assembler_kept_every_promise(
    own: dict[str, Any], changes: dict[str, Any], closed: dict[str, bool | None]
) -> None:
    found = verdict("compile", cubin(), facts(CUBIN.model_copy(update=own), **{**CLEAN, **changes}))
    assert not_held(found) == closed


def test_advisories_and_idle_constants_are_notes() -> None:
    advised = {"idle_state_bytes": 4, "advisories": (Advisory(code="C7508", text="setmaxnreg ignored"),)}
    found = verdict("compile", cubin(), facts(CUBIN, **{**CLEAN, **advised}))
    notes = {note.name: (note.got, note.says) for note in found.notes}
    assert found.outcome == "pass"
    assert notes["advisory"] == ("C7508", "setmaxnreg ignored")
    assert notes["idle_state"] == ("4 bytes", "constants that no code names")


def test_figures_are_findings_until_a_setting_limits_them() -> None:
    own = entry(registers=40, spill_bytes=12, shared_bytes=0)
    found = facts(own, incumbent=(entry(registers=32),))
    judged = verdict("compile", subject(), found)
    assert judged.outcome == "pass"
    notes = {note.name: (note.got, note.says) for note in judged.notes}
    assert notes["registers"] == ("add 40", "a thread; incumbent add 32")
    assert notes["spill_bytes"] == ("add 12", "bytes a thread; incumbent not reported")
    assert notes["stack_bytes"] == ("not reported", "bytes a thread; incumbent not reported")
    limits = {"registers": 39, "spill_bytes": 12, "stack_bytes": 0, "shared_bytes": 0}
    assert not_held(verdict("compile", subject(), found, settings=limits)) == {"registers": False, "stack_bytes": None}


def test_a_refusal_shows_its_first_error_and_warnings_are_notes() -> None:
    log = "k.cl:1:1: warning: unused\nk.cl:3:9: error: use of undeclared identifier 'z'\n"
    found = verdict("compile", subject(), facts(state="refused", log=log, object_blake3=None, object_bytes=None))
    assert found.outcome == "fail"
    assert check(found, "builds").got == "k.cl:3:9: error: use of undeclared identifier 'z'"
    assert [note.got for note in found.notes] == ["1 lines"]


# Through compile workers ---------------------------------------------------------------------------------------------


def test_a_scripted_kernel_compiles_and_a_script_that_is_not_closed_does_not(simulated: Bed) -> None:
    assert simulated.judge("compile", simulated.subject(script())).verdict.outcome == "pass"
    assert not_held(simulated.judge("compile", simulated.subject(script("magic"))).verdict)["builds"] is False


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        (opencl(), {}),
        (
            opencl(
                "if (i < n / 4) y[i] = a[i] + b[i];",
                "__global float4 *y, __constant float4 *a, __global float4 *b, int n",
            ),
            {},
        ),
        (
            opencl("y[i] = n[i];", "__global float *y, __global float *a, __global int *n, float b"),
            {"parameter_types": False},
        ),
        (opencl(head="__global float *y, __global float *a, __global float *b, long n"), {"parameter_types": False}),
        (
            opencl("y[i] = a[i] + b[i];", "__global float *y, __global float *a, __global float *b"),
            {"parameter_count": False},
        ),
        (opencl(head="__global float *y, __local float *a, __global float *b, int n"), {"parameter_spaces": False}),
        (opencl() + opencl().replace(b"add(", b"spare("), {"entries": False}),
        (opencl().replace(b"add(", b"sum("), {"symbols": False, "entries": False, "parameter_count": None}),
    ],
)
def test_opencl_kernels(pocl: Bed, text: bytes, closed: dict[str, bool | None]) -> None:
    found = not_held(pocl.judge("compile", pocl.subject(text)).verdict)
    assert {name: found.get(name, True) for name in closed} == closed
    assert bool(found) is bool(closed)


STRUCT = b"struct P { int n; double far; float *y; char last; };\n"
MEMBERS = (
    ScalarMember(name="n", offset_bytes=0, dtype="int32", value="3"),
    ScalarMember(name="far", offset_bytes=8, dtype="float64", value="3"),
    PointerMember(name="y", offset_bytes=16, to="y"),
    ScalarMember(name="last", offset_bytes=24, dtype="int8", value="3"),
)


def held(size: int, align: int = 8, type_name: str = "P") -> tuple[Argument, ...]:
    """y, the bytes of a struct that points to it, and a number behind it."""
    inside = Struct(type_name=type_name, members=MEMBERS)
    passed = Argument(name="p", kind="struct", dtype="uint8", shape=(size,), align=align, holds=inside)
    return (arguments()[0], passed, Argument(name="k", kind="scalar", dtype="int32", value="1"))


@pytest.mark.parametrize(("size", "closed"), [(32, {}), (40, {"parameter_layout": False})])
def test_a_struct_has_the_contracts_size_in_the_objects_table(
    cuda: Bed, size: int, closed: dict[str, bool | None]
) -> None:
    text = STRUCT + cuda_text("if (i < p.n) p.y[i] = p.far * k;", "float *y, P p, int k")
    assert not_held(cuda.judge("compile", cuda.subject(text, passed=held(size))).verdict) == closed


def test_a_structs_alignment_places_what_follows() -> None:
    passed = (Argument(name="n", kind="scalar", dtype="int32", value="1"), *held(32)[1:])
    for at, holds in ((8, True), (4, False)):
        found = facts(entry(parameters=(placed(0, 4), placed(at, 32), placed(40, 4))))
        judged = verdict("compile", subject("cuda-13.2", arguments=passed), found)
        assert check(judged, "parameter_layout").holds is holds


@pytest.mark.parametrize(
    ("name", "holds"), [("P", True), ("struct P", True), ("int", False), ("P*", None), ("Q", None), (None, None)]
)
def test_an_opencl_struct_is_known_by_its_types_name(name: str | None, holds: bool | None) -> None:
    found = facts(entry(parameters=(PARAMETERS[0], Passed(type_name=name, **VALUE), PARAMETERS[3])))
    judged = verdict("compile", subject("pocl-3.0", arguments=held(32)), found)
    assert check(judged, "parameter_types").holds is holds


TAPS = (*arguments(200), buffer("taps", "constant", 16))


@pytest.mark.parametrize("space", ["__constant__", "__device__"])
def test_a_constant_is_the_one_variable_that_a_module_may_keep(cuda: Bed, space: str) -> None:
    text = f"{space} float taps[16];\n".encode() + cuda_text("if (i < n) y[i] = a[i] * taps[i % 16];")
    assert not not_held(cuda.judge("compile", cuda.subject(text, passed=TAPS)).verdict)
    other = b"__device__ float more[16];\n" + text.replace(b"= a[i]", b"= more[i % 16]")
    assert not_held(cuda.judge("compile", cuda.subject(other, passed=TAPS)).verdict) == {"device_state": False}


NAMED = kernel("add<float, 4>", grid=2)
TEMPLATE = b"""template <typename T, int N> __global__ void add(T *y, const T *a, const T *b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a[i] + b[i];
}
"""


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        (cuda_text(), {}),
        (cuda_text('asm("trap;");'), {}),
        (cuda_text(head="float *y, const float *a, const float *b, long long n"), {"parameter_layout": False}),
        (cuda_text("y[0] = b;", "float *y, const float *a, float b, int n"), {"parameter_layout": False}),
        (cuda_text("y[i] = a[i];", "float *y, const float *a, int n"), {"parameter_count": False}),
        (cuda_text() + cuda_text().replace(b"add(", b"spare("), {"entries": False}),
        (b"__device__ int calls;\n" + cuda_text("y[i] = calls++;"), {"device_state": False}),
        (cuda_text('printf("%d", i);'), {"undefined": False}),
        (cuda_text("y[i] = (float)clock64();"), {"special_registers": False}),
        (cuda_text().replace(b"void add", b"void __launch_bounds__(2048) add"), {"launch_bounds": False}),
        (cuda_text('asm("nonsense;");'), {"builds": False}),
        (TEMPLATE, {"builds": False}),
    ],
)
def test_cuda_kernels(cuda: Bed, text: bytes, closed: dict[str, bool | None]) -> None:
    found = not_held(cuda.judge("compile", cuda.subject(text)).verdict)
    assert {name: found.get(name, True) for name in closed} == closed
    assert bool(found) is bool(closed)


def test_an_instance_of_a_template_is_launched_by_the_contracts_name(cuda: Bed) -> None:
    about = cuda.subject(TEMPLATE, TEMPLATE, launches=(NAMED,))
    assert cuda.judge("compile", about).verdict.outcome == "pass"
    found = cuda.rig.bench(about, {}).build(about.candidate).entry(NAMED.symbol)
    assert found is not None
    assert (found.symbol, found.linkage_name) == ("add<float, 4>", "_Z3addIfLi4EEvPT_PKS0_S3_i")


def test_thousands_of_warnings_are_cut_and_closes_nothing(pocl: Bed) -> None:
    text = opencl() + b"".join(b"int f%d(int x) { unsigned u = -1; if (x == u) return x; }\n" % i for i in range(1500))
    found = pocl.judge("compile", pocl.subject(text))
    assert found.verdict.outcome == "pass"
    assert len(found.measurement.canonical()) < 1 << 17
    assert "warnings" in {note.name for note in found.verdict.notes}
