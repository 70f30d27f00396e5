"""Arguments that are no buffers and no scalars, from the contract to the device, through the gates that see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from qualify.arena import layout
from qualify.contract import Argument, Kernel, PointerMember, PointerTable, ScalarMember, Struct
from qualify.sessions import MeasuringSession
from qualify.steps import Arena, Table
from qualify.subject import Subject
from tests.devices.beds import refusal
from tests.gates.beds import Bed, bed
from tests.gates.build import arguments, kernel, not_held

RUNTIMES = ("opencl", pytest.param("cuda", marks=pytest.mark.gpu))
GATES = ("contract", "compile", "digest", "numeric")
INDEX = {"opencl": "int i = get_global_id(0);", "cuda": "int i = blockIdx.x * blockDim.x + threadIdx.x;"}
KERNEL = {"opencl": "__kernel void add", "cuda": 'extern "C" __global__ void add'}
GLOBAL = {"opencl": "__global", "cuda": ""}
PASSES: dict[str, dict[str, bool | None]] = {gate: {} for gate in GATES}
BUFFERS = arguments(200)[:3]


@pytest.fixture(scope="module", params=RUNTIMES)
def any_bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    with bed(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def cuda() -> Iterator[Bed]:
    with bed("cuda") as made:
        yield made


@pytest.fixture
def pocl_session() -> Iterator[MeasuringSession]:
    with bed("opencl") as made, made.rig.measuring() as session:
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
    found = judged(any_bed, about, SCALED)
    assert found["contract"] == {}
    # A cubin tells sizes; an OpenCL object names the type only, so that bits have to show it.
    closed = {"opencl": ("numeric", "cap"), "cuda": ("compile", "parameter_layout")}
    gate, check = closed[any_bed.runtime]
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
    assert not {"digests", "zones", "sets"} & set(not_held(cuda.judge("trial", timed, HALVED).verdict))


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
    assert not {"digests", "zones", "sets"} & set(not_held(cuda.judge("trial", timed, SUMS).verdict))


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
    timed = about.model_copy(update={"role": "candidate"})
    assert not {"digests", "zones", "sets"} & set(not_held(any_bed.judge("trial", timed, FILTERED).verdict))


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


@pytest.mark.parametrize("made", [with_addresses, batched, filtered])
def test_host_gates_pass_what_only_a_board_can_run(cuda: Bed, made: Callable[[Bed], Subject]) -> None:
    found = judged(cuda, made(cuda), b"", "contract", "compile")
    assert found == {"contract": {}, "compile": {}}
