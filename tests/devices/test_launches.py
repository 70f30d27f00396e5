"""Routes of several launches, memsets between them, and launches with all that CUDA has, through the gates.

Beside each launch that works is the one that lacks what it needs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from qualify.contract import Argument, Launch, Memset
from qualify.domain import Runtime
from qualify.subject import Subject
from tests.gates.beds import Bed
from tests.gates.build import arguments, buffer, idling, kernel, not_held

RUNTIMES = ("simulated", "opencl", pytest.param("cuda", marks=pytest.mark.gpu))
GATES = ("contract", "compile", "digest", "numeric")
PASSES: dict[str, dict[str, bool | None]] = {gate: {} for gate in GATES}
SUMS = b"def add(cell, inputs):\n    return {'y': inputs['a'] + inputs['b']}\n"


@pytest.fixture(scope="module", params=RUNTIMES)
def on(request: pytest.FixtureRequest, beds: Callable[[Runtime], Bed]) -> Bed:
    return beds(request.param)


@pytest.fixture(scope="module")
def cuda(beds: Callable[[Runtime], Bed]) -> Bed:
    return beds("cuda")


def judged(on: Bed, about: Subject, *gates: str) -> dict[str, dict[str, bool | None]]:
    """What closes each gate."""
    return {gate: not_held(on.judge(gate, about, SUMS).verdict) for gate in gates or GATES}


# Memsets between kernels ---------------------------------------------------------------------------------------------

PASSED = (*arguments(200), buffer("s", "scratch", 200, init="zero-by-route"))
GATHER = kernel("gather", grid=2, arguments=("s", "a", "n"))
EMPTY = Memset(memset="s")
FINISH = kernel("finish", grid=2, arguments=("y", "s", "b", "n"))
ROUTE = (EMPTY, GATHER, GATHER, Memset(memset="y", byte=7), EMPTY, GATHER, FINISH)
C = """
{kernel} gather({space} float *s, {space} const float *a, int n) {{ {index} if (i < n) s[i] += a[i]; }}
{kernel} finish({space} float *y, {space} const float *s, {space} const float *b, int n) {{
  {index} if (i < n) y[i] = s[i] + b[i];
}}
"""
WORDS = {
    "opencl": {"kernel": "__kernel void", "space": "__global", "index": "int i = get_global_id(0);"},
    "cuda": {
        "kernel": 'extern "C" __global__ void',
        "space": "",
        "index": "int i = blockIdx.x * blockDim.x + threadIdx.x;",
    },
}
SCRIPT = {"gather": {"does": "add", "inputs": (0, 1)}, "finish": {"does": "add", "inputs": (1, 2)}}


def accumulating(on: Bed, launches: tuple[Launch, ...]) -> Subject:
    """Sums by way of scratch that every launch of `gather` adds to; only memsets in their places make them right."""
    words = WORDS.get(on.runtime)
    text = json.dumps({"entries": SCRIPT}) if words is None else C.format(**words)
    return on.plain(text.encode(), launches=launches, passed=PASSED)


def test_memsets_between_kernels_happen_in_their_places(on: Bed) -> None:
    about = accumulating(on, ROUTE)
    assert judged(on, about) == PASSES
    timed = idling(about)
    assert not {"digests", "zones", "sets"} & set(not_held(on.judge("trial", timed, SUMS, windows=2).verdict))


@pytest.mark.parametrize(
    ("launches", "gate", "check"),
    [
        (ROUTE[1:4] + ROUTE[5:], "digest", "repeats"),  # Scratch is never set to zero: poison decides the bits.
        (ROUTE[:4] + ROUTE[5:], "numeric", "cap"),  # Not between the kernels: the sum holds `a` three times.
    ],
)
def test_a_memset_that_is_missing_shows(on: Bed, launches: tuple[Launch, ...], gate: str, check: str) -> None:
    found = judged(on, accumulating(on, launches), "contract", "compile", gate)
    assert found["contract"] == found["compile"] == {}
    assert check in found[gate]


# Launches that only CUDA has -----------------------------------------------------------------------------------------

HEAD = "float *y, const float *a, const float *b, int n"
START = f'extern "C" __global__ void add({HEAD}) {{ {WORDS["cuda"]["index"]} '
ADD = "if (i < n) y[i] = a[i] + b[i];"
TEMPLATE = f"""template <typename T, int N> struct Tile {{ T sum[N]; }};
template <typename T, int N, typename S = Tile<T, N>> __global__ void add(T *y, const T *a, const T *b, int n) {{
  {WORDS["cuda"]["index"]}
  S tile;
  tile.sum[i % N] = a[i];
  if (i < n) y[i] = tile.sum[i % N] + b[i];
}}
"""
OTHER_BLOCK = (
    "__shared__ float own[100]; own[threadIdx.x] = a[i]; "
    'asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory"); '
    "unsigned rank, at, far; float value; "
    'asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank)); '
    "at = (unsigned)__cvta_generic_to_shared(&own[threadIdx.x]); "
    'asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(far) : "r"(at), "r"(rank ^ 1)); '
    'asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(far)); '
    "int j = i + (rank ? -100 : 100); y[j] = value + b[j]; "
    'asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");'
)
TILED = "extern __shared__ float tile[]; int at = 50000 + threadIdx.x; tile[at] = a[i]; y[i] = tile[at] + b[i];"
LAUNCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "an instance of a template": (TEMPLATE, {"symbol": "add<float, 4>"}),
    "an instance with a type of its own": (TEMPLATE, {"symbol": "add<float, 8, Tile<float, 9>>"}),
    "a cluster that reads its other block": (f"{START}{OTHER_BLOCK} }}", {"cluster": (2, 1, 1)}),
    "more than 48 KiB of shared memory": (f"{START}{TILED} }}", {"shared_bytes": 200_400}),
    "a carve-out": (f"{START}{ADD} }}", {"carve_out_percent": 50}),
    "a cooperative grid": (f"{START}{ADD} }}", {"cooperative": True}),
}


def launched(cuda: Bed, what: str, **changes: Any) -> Subject:
    text, extras = LAUNCHES[what]
    one = kernel(**{"grid": 2, **extras, **changes})
    return cuda.plain(text.encode(), launches=(one,))


@pytest.mark.parametrize("what", LAUNCHES)
def test_host_gates_pass_what_only_cuda_launches(cuda: Bed, what: str) -> None:
    about = launched(cuda, what)
    assert [not_held(cuda.judge(gate, about, SUMS).verdict) for gate in GATES[:2]] == [{}, {}]


@pytest.mark.gpu
@pytest.mark.parametrize("what", LAUNCHES)
def test_what_only_cuda_launches_gives_right_bits_eagerly_and_timed(cuda: Bed, what: str) -> None:
    about = launched(cuda, what)
    assert judged(cuda, about) == PASSES
    assert not_held(cuda.judge("residency", about, SUMS).verdict) == {}
    timed = about.model_copy(update={"role": "candidate"})
    assert not {"digests", "zones", "sets"} & set(not_held(cuda.judge("trial", timed, SUMS, windows=2).verdict))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("what", "without"),
    [
        ("a cluster that reads its other block", {"cluster": None}),
        ("more than 48 KiB of shared memory", {"shared_bytes": 40_000}),
        ("a cooperative grid", {"grid": 1 << 20}),
    ],
)
def test_the_same_kernel_without_what_it_needs_fails(cuda: Bed, what: str, without: dict[str, Any]) -> None:
    assert not_held(cuda.judge("digest", launched(cuda, what, **without), SUMS).verdict)


def test_a_name_that_no_template_has_is_refused_by_the_compiler(cuda: Bed) -> None:
    about = launched(cuda, "an instance of a template", symbol="add<float>")
    assert not_held(cuda.judge("compile", about, SUMS).verdict)["builds"] is False


def test_an_instance_that_takes_other_elements_is_found_by_its_parameters(cuda: Bed) -> None:
    text = "template <typename T> __global__ void add(float *y, const float *a, const float *b, T n) { y[0] = n; }"
    for name, closed in (("add<int>", {}), ("add<long long>", {"parameter_layout": False})):
        about = cuda.plain(text.encode(), launches=(kernel(name, grid=2),))
        assert not_held(cuda.judge("compile", about, SUMS).verdict) == closed


def test_a_memset_of_a_table_or_a_constant_is_no_launch(cuda: Bed) -> None:
    taps = Argument(name="taps", kind="constant", dtype="float32", shape=(16,))
    text = f"__constant__ float taps[16];\n{START}if (i < n) y[i] = taps[i % 16]; }}".encode()
    about = cuda.plain(text, launches=(Memset(memset="taps"), kernel(grid=2)), passed=(*arguments(200), taps))
    assert not_held(cuda.judge("contract", about, SUMS).verdict) == {"arguments": False}
