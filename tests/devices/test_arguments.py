"""Arguments that are no buffers and no scalars, from the contract to the device, through the gates that see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from qualify.arena import layout
from qualify.contract import Argument, Kernel, PointerMember, PointerTable, ScalarMember, Struct, TensorMap
from qualify.domain import Runtime
from qualify.sessions import MeasuringSession
from qualify.steps import Arena, Table
from qualify.subject import Subject
from tests.devices.beds import refusal
from tests.gates.beds import Bed
from tests.gates.build import arguments, idling, kernel, not_held

RUNTIMES = ("opencl", pytest.param("cuda", marks=pytest.mark.gpu))
GATES = ("contract", "compile", "digest", "numeric")
INDEX = {"opencl": "int i = get_global_id(0);", "cuda": "int i = blockIdx.x * blockDim.x + threadIdx.x;"}
KERNEL = {"opencl": "__kernel void add", "cuda": 'extern "C" __global__ void add'}
GLOBAL = {"opencl": "__global", "cuda": ""}
PASSES: dict[str, dict[str, bool | None]] = {gate: {} for gate in GATES}
BUFFERS = arguments(200)[:3]


@pytest.fixture(scope="module", params=RUNTIMES)
def any_bed(request: pytest.FixtureRequest, beds: Callable[[Runtime], Bed]) -> Bed:
    return beds(request.param)


@pytest.fixture(scope="module")
def cuda(beds: Callable[[Runtime], Bed]) -> Bed:
    return beds("cuda")


@pytest.fixture
def pocl_session(beds: Callable[[Runtime], Bed]) -> Iterator[MeasuringSession]:
    with beds("opencl").rig.measuring() as session:
        yield session


def judged(on: Bed, about: Subject, reference: bytes, *gates: str) -> dict[str, dict[str, bool | None]]:
    """What closes each gate."""
    return {gate: not_held(on.judge(gate, about, reference).verdict) for gate in gates or GATES}


def launch(*names: str, **more: Any) -> Kernel:
    return kernel(grid=2, arguments=names, **more)


# Structs by value ----------------------------------------------------------------------------------------------------

SCALE = ScalarMember(name="scale", offset_bytes=4, dtype="float32", value="0.5")
COUNT = ScalarMember(name="n", offset_bytes=0, dtype="int32", value="200")
FAR = ScalarMember(name="far", offset_bytes=8, dtype="float64", value="3")
TYPE = "typedef struct { int n; float scale; double far; } Params;\n"
SCALED = b"def add(cell, inputs):\n    return {'y': inputs['a'] * inputs['p.scale'] + inputs['p.far']}\n"
BODY = "if (i < p.n) y[i] = a[i] * p.scale + (float)p.far;"


def struct(*members: ScalarMember | PointerMember, size: int = 16, align: int = 8) -> Argument:
    held = Struct(type_name="Params", members=members)
    return Argument(name="p", kind="struct", dtype="uint8", shape=(size,), align=align, holds=held)


def with_struct(on: Bed, argument: Argument, text: str = TYPE, body: str = BODY) -> Subject:
    head = f"{GLOBAL[on.runtime]} float *y, {GLOBAL[on.runtime]} const float *a, Params p"
    source = f"{text}{KERNEL[on.runtime]}({head}) {{ {INDEX[on.runtime]} {body} }}\n".encode()
    return on.plain(source, launches=(launch("y", "a", "p"),), passed=(*BUFFERS, argument))


def test_a_struct_of_numbers_is_passed_by_value(any_bed: Bed) -> None:
    about = with_struct(any_bed, struct(COUNT, SCALE, FAR))
    assert judged(any_bed, about, SCALED) == PASSES


def test_a_struct_laid_out_otherwise_than_the_kernels_is_found_out(any_bed: Bed) -> None:
    other = TYPE.replace("float scale; double far", "double far; float scale")
    about = with_struct(any_bed, struct(COUNT, SCALE, FAR), other)
    # A cubin tells sizes; an OpenCL object names the type only, so that bits have to show it.
    closed = {"opencl": ("numeric", "cap"), "cuda": ("compile", "parameter_layout")}
    gate, check = closed[any_bed.runtime]
    found = judged(any_bed, about, SCALED, "contract", gate)
    assert found["contract"] == {}
    assert found[gate][check] is False


def with_addresses(cuda: Bed) -> Subject:
    text = "struct Params { int n; float scale; const float *a; float *y; };\n"
    addresses = (PointerMember(name="a", offset_bytes=8, to="a"), PointerMember(name="y", offset_bytes=16, to="y"))
    source = f"{text}{KERNEL['cuda']}(Params p) {{ {INDEX['cuda']} if (i < p.n) p.y[i] = p.a[i] * p.scale; }}\n"
    passed = (*BUFFERS, struct(COUNT, SCALE, *addresses, size=24))
    return cuda.plain(source.encode(), launches=(launch("p"),), passed=passed)


HALVED = b"def add(cell, inputs):\n    return {'y': inputs['a'] * inputs['p.scale']}\n"


@pytest.mark.gpu
def test_addresses_in_a_struct_are_those_of_the_launchs_set(cuda: Bed) -> None:
    about = with_addresses(cuda)
    assert judged(cuda, about, HALVED) == PASSES
    timed = about.model_copy(update={"role": "candidate"})
    assert not {"digests", "zones", "sets"} & set(not_held(cuda.judge("trial", timed, HALVED, windows=2).verdict))


# Tables of addresses -------------------------------------------------------------------------------------------------

TABLES = (
    Argument(
        name="in",
        kind="pointers",
        dtype="uint64",
        shape=(4,),
        holds=PointerTable(to=("a", "b"), count=2, step_bytes=400),
    ),
    Argument(
        name="out", kind="pointers", dtype="uint64", shape=(2,), holds=PointerTable(to=("y",), count=2, step_bytes=400)
    ),
)
BATCHED = """{kernel}(const float *const *in, float **out) {{
  int half = blockIdx.x, i = threadIdx.x;
  out[half][i] = in[half][i] + in[2 + half][i];
  {more}
}}
"""


def batched(on: Bed, more: str = "") -> Subject:
    """Two sums of a hundred elements, whose places only the tables tell."""
    text = BATCHED.format(kernel=KERNEL["cuda"], more=more).encode()
    return on.plain(text, launches=(launch("in", "out"),), passed=(*BUFFERS, *TABLES))


SUMS = b"def add(cell, inputs):\n    return {'y': inputs['a'] + inputs['b']}\n"


@pytest.mark.gpu
def test_a_batched_kernel_finds_its_buffers_in_tables(cuda: Bed) -> None:
    about = batched(cuda)
    assert judged(cuda, about, SUMS) == PASSES
    timed = about.model_copy(update={"role": "candidate"})
    assert not {"digests", "zones", "sets"} & set(not_held(cuda.judge("trial", timed, SUMS, windows=2).verdict))


@pytest.mark.gpu
def test_a_table_that_a_kernel_changes_is_damage(cuda: Bed) -> None:
    about = batched(cuda, "if (half == 1 && i == 0) out[1] = out[0];")
    found = cuda.judge("digest", about, SUMS).verdict
    assert not_held(found)["zones"] is False


def test_a_device_without_addresses_refuses_a_table(pocl_session: MeasuringSession) -> None:
    made = layout((*BUFFERS, TABLES[1]), 1)
    table = Table(buffer="out.0", to=("y.0",), count=2, step_bytes=400)
    step = Arena(size_bytes=made.size_bytes, placements=made.placements, zone_seed="12" * 8, tables=(table,))
    assert "this device gives kernels no addresses to load" in refusal(pocl_session, step)


# Constants -----------------------------------------------------------------------------------------------------------

TAPS = Argument(name="taps", kind="constant", dtype="float32", shape=(16,), align=16)
FILTERED = b"""import numpy as np
def add(cell, inputs):
    return {'y': inputs['a'] * np.resize(inputs['taps'], 200)}
"""
HEADS = {
    "opencl": ("", "__global float *y, __global const float *a, __constant float *taps"),
    "cuda": ("__constant__ float taps[16];\n", "float *y, const float *a"),
}
MULTIPLY = "if (i < 200) y[i] = a[i] * taps[i % 16];"


def filtered(on: Bed, before: str = "", body: str = MULTIPLY) -> Subject:
    """Products with sixteen constants, which CUDA finds in the module and OpenCL behind a pointer."""
    variable, head = HEADS[on.runtime]
    text = f"{before or variable}{KERNEL[on.runtime]}({head}) {{ {INDEX[on.runtime]} {body} }}\n"
    return on.plain(text.encode(), launches=(launch("y", "a", "taps"),), passed=(*BUFFERS, TAPS))


def test_constants_are_read_where_the_runtime_keeps_them(any_bed: Bed) -> None:
    about = filtered(any_bed)
    assert judged(any_bed, about, FILTERED) == PASSES
    timed = idling(about)
    assert not {"digests", "zones", "sets"} & set(not_held(any_bed.judge("trial", timed, FILTERED, windows=2).verdict))


def test_a_kernel_that_brings_its_own_constants_is_wrong(any_bed: Bed) -> None:
    about = filtered(any_bed, body="if (i < 200) y[i] = a[i] * (i % 16);")
    assert judged(any_bed, about, FILTERED, "numeric")["numeric"]["cap"] is False


MISSING = "__constant__ float taps[17];\n"


@pytest.mark.gpu
def test_a_variable_that_a_kernel_changes_is_damage(cuda: Bed) -> None:
    memory = "__device__ float taps[16];\n"
    assert judged(cuda, filtered(cuda, memory), FILTERED) == PASSES
    changed = filtered(cuda, memory, f"{MULTIPLY} if (i == 0) taps[3] += 1;")
    assert judged(cuda, changed, FILTERED, "compile")["compile"] == {}
    assert not_held(cuda.judge("digest", changed, FILTERED).verdict)["zones"] is False


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("before", "says"),
    [
        (MISSING, "taps has 68 bytes, the contract's constant 64"),
        (MISSING.replace("taps", "other"), "no variable taps"),
    ],
)
def test_a_module_without_the_constant_is_refused(cuda: Bed, before: str, says: str) -> None:
    name = "other" if "other" in before else "taps"
    found = cuda.judge("digest", filtered(cuda, before, MULTIPLY.replace("taps", name)), FILTERED).measurement
    assert found.loss is not None
    assert (found.loss.how, found.loss.arm) == ("refused", "candidate")
    assert says in found.loss.log


# Tensor maps ---------------------------------------------------------------------------------------------------------

BOXED = """
struct alignas(64) Map {{ unsigned long long words[16]; }};
{kernel}(float *y, const float *b, int n, const __grid_constant__ Map map) {{
  __shared__ alignas(1024) float tile[{rows} * {cols}];
  __shared__ alignas(8) unsigned long long barrier;
  unsigned at = (unsigned)__cvta_generic_to_shared(&barrier), to = (unsigned)__cvta_generic_to_shared(tile), done;
  if (threadIdx.x == 0) {{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(at), "r"({rows} * {cols} * 4));
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {{%2, %3}}], [%4];"
        :: "r"(to), "l"(&map), "r"(0), "r"((int)blockIdx.x * {rows}), "r"(at) : "memory");
  }}
  __syncthreads();
  do asm volatile("{{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }}"
      : "=r"(done) : "r"(at) : "memory"); while (!done);
  int local = threadIdx.x, i = blockIdx.x * {rows} * {cols} + local;
  if (i < n) y[i] = tile[{place}] + b[i];
}}
"""
#: Rows of 20 floats in two boxes of five; and of eight, whose halves a swizzle of 32 bytes exchanges every 128 bytes.
BOXES = {0: (5, 20, "local"), 32: (25, 8, "local ^ (local >> 5 & 1) << 2")}


def boxed(cuda: Bed, swizzle_bytes: Literal[0, 32] = 0) -> Subject:
    """Sums whose first input is copied by hardware."""
    rows, cols, place = BOXES[swizzle_bytes]
    held = TensorMap(
        of="a", dims=(cols, 200 // cols), strides_bytes=(4 * cols,), box=(cols, rows), swizzle_bytes=swizzle_bytes
    )
    passed = Argument(name="m", kind="tensormap", dtype="uint8", shape=(128,), align=64, holds=held)
    text = BOXED.format(kernel=KERNEL["cuda"], rows=rows, cols=cols, place=place).encode()
    launched = kernel(grid=200 // (rows * cols), block=rows * cols, arguments=("y", "b", "n", "m"))
    return cuda.plain(text, launches=(launched,), passed=(*arguments(200), passed))


def swizzled(cuda: Bed) -> Subject:
    return boxed(cuda, 32)


@pytest.mark.gpu
@pytest.mark.parametrize("made", [boxed, swizzled])
def test_hardware_copies_boxes_of_the_launchs_set(cuda: Bed, made: Callable[[Bed], Subject]) -> None:
    about = made(cuda)
    assert judged(cuda, about, SUMS) == PASSES
    timed = about.model_copy(update={"role": "candidate"})
    assert not {"digests", "zones", "sets"} & set(not_held(cuda.judge("trial", timed, SUMS, windows=2).verdict))


@pytest.mark.parametrize("made", [with_addresses, batched, filtered, boxed, swizzled])
def test_host_gates_pass_what_only_a_board_can_run(cuda: Bed, made: Callable[[Bed], Subject]) -> None:
    found = judged(cuda, made(cuda), b"", "contract", "compile")
    assert found == {"contract": {}, "compile": {}}
