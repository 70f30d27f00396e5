"""Arguments that are no buffers and no scalars, from the contract to the device, through the gates that see them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from qualify.contract import Argument, Kernel, PointerMember, ScalarMember, Struct
from qualify.subject import Subject
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
def board() -> Iterator[Bed]:
    with bed("cuda") as made:
        yield made


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


@pytest.mark.gpu
def test_addresses_in_a_struct_are_those_of_the_launchs_set(board: Bed) -> None:
    text = "struct Params { int n; float scale; const float *a; float *y; };\n"
    addresses = (PointerMember(name="a", offset_bytes=8, to="a"), PointerMember(name="y", offset_bytes=16, to="y"))
    source = f"{text}{KERNEL['cuda']}(Params p) {{ {INDEX['cuda']} if (i < p.n) p.y[i] = p.a[i] * p.scale; }}\n"
    passed = (*BUFFERS, struct(COUNT, SCALE, *addresses, size=24))
    about = board.plain(source.encode(), launches=(launch("p"),), passed=passed)
    halved = b"def add(cell, inputs):\n    return {'y': inputs['a'] * inputs['p.scale']}\n"
    assert judged(board, about, halved) == PASSES
    timed = about.model_copy(update={"role": "candidate"})
    assert not {"digests", "zones", "sets"} & set(not_held(board.judge("trial", timed, halved).verdict))
