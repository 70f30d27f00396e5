"""Ways to look faster on a board than one is; the virtual board's are among the tests of gates trial and timing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from qualify.arena import layout
from qualify.contract import Argument, Kernel
from qualify.domain import Runtime
from qualify.verdict import Verdict
from tests.gates.beds import Bed
from tests.gates.build import arguments, check, kernel, not_held

pytestmark = pytest.mark.gpu
N = 64
#: More than chance gives equal arms on any board, and far less than these tricks want.
FEW: dict[str, Any] = {
    "windows": 18,
    "processes": 3,
    "alpha_ppm": 250_000,
    "floor": "51/50",
    "long_run_ms": 60,
    "clock_tolerance_ppm": 900_000,
}
HEAD = "float *y, const float *a, const float *b, int n"
#: About 90 us of dependent sums for each element, on one multiprocessor.
WORK = """
__device__ float work(float x, float by) {
  for (int round = 0; round < 40000; round++) { x = fmaf(x, 0.999f, by); asm volatile("" : "+f"(x)); }
  return x;
}
"""


def source(body: str, before: str = WORK) -> bytes:
    """CUDA C++ of a kernel `add`; `i` is the global index."""
    index = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
    return f'{before}\nextern "C" __global__ void add({HEAD}) {{ {index} {body} }}\n'.encode()


FAST = source("if (i < n) y[i] = work(a[i], b[i]);")
SLOW = source("if (i < n) { float waste = work(b[i], a[i]); y[i] = waste == 0.5f ? 0.0f : work(a[i], b[i]); }")


@pytest.fixture(scope="module")
def board(beds: Callable[[Runtime], Bed]) -> Bed:
    return beds("cuda")


def judged(board: Bed, gate: str, candidate: bytes, incumbent: bytes, **changes: Any) -> Verdict:
    """What a gate says of a candidate beside an incumbent with the same bits."""
    fields = {"n": N, "launches": (kernel(grid=1, block=N),), "passed": arguments(N), **changes}
    about = board.subject(candidate, incumbent, **fields)
    return board.judge(gate, about, **(FEW if gate == "timing" else {})).verdict


def test_half_the_work_is_faster(board: Bed) -> None:
    """The honest twin of all that follows."""
    assert not not_held(judged(board, "trial", FAST, SLOW))
    assert not not_held(judged(board, "timing", FAST, SLOW))


def pitch(passed: tuple[Argument, ...]) -> int:
    """How many floats lie between a buffer and the same one of the next set."""
    places = {place.buffer: place.offset_bytes for place in layout(passed, 3).placements}
    steps = {places[f"{name}.{n + 1}"] - places[f"{name}.{n}"] for name in "yab" for n in (0, 1)}
    (step,) = steps
    return step // 4


#: Block 16 does its own set; the others each a neighbour, as long as everything up to it looks like inputs. Whoever
#: finds an answer already there returns.
BATCH = """
  int far = (int)blockIdx.x - 16, step = far < 0 ? -1 : 1; i = threadIdx.x;
  for (int at = step; far && at != far + step; at += step)
    if (!__syncthreads_and(fabsf(a[at * PITCH + i]) < 7.0f && fabsf(b[at * PITCH + i]) < 7.0f)) return;
  float *out = y + far * PITCH;
  if (__syncthreads_and(fabsf(out[i]) < 1e4f && fabsf(out[i]) > 1e-6f)) return;
  out[i] = work(a[far * PITCH + i], b[far * PITCH + i]);
"""


def test_a_launch_that_does_the_work_of_those_to_come_touches_the_bystander(board: Bed) -> None:
    passed = arguments(N)
    text = source(BATCH, WORK + f"#define PITCH {pitch(passed)}\n")
    launches: tuple[Kernel, ...] = (kernel(grid=33, block=N),)
    assert not not_held(judged(board, "digest", text, text, launches=launches, bits="own")), "nothing to see there"
    found = judged(board, "trial", text, FAST, launches=launches)
    assert check(found, "zones").holds is False
    assert check(found, "faster").holds is True, "it would have paid"


#: One thread goes through its input line by line; each next address depends on what was read.
CHASE = """
  if (i < n) y[i] = a[i] + b[i];
  AFTER
  if (i == 0) {
    float sum = 0.0f; int at = 0;
    for (int step = 0; step < 600; step++) { float v = READ(a + at); sum += v; at = (at + 32 + (v > 1e30f)) & 65535; }
    y[0] = sum;
  }
"""
READ = "#define READ(p) (*(const volatile float *)(p))\n#define AFTER\n"
STAYING = """
#define AFTER
__device__ float READ(const float *p) {
  unsigned long long policy; float v;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("ld.global.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(v) : "l"(p), "l"(policy));
  return v;
}
"""
#: Lines that the next launch's reads have to push out, again and again.
DIRTY = READ.replace(
    "AFTER\n", "AFTER if (i < n) for (int turn = 0; turn < 20; turn++) ((volatile float *)y)[i] = a[i] + b[i];\n"
)
CHASED = {"n": 1 << 20, "launches": (kernel(grid=1 << 12, block=256),), "passed": arguments(1 << 20)}
SHORT = source("if (i < n) y[i] = a[i] + b[i];", "")
SKIPS = source(
    "bool there = __syncthreads_and(fabsf(y[i]) < 1e4f && fabsf(y[i]) > 1e-6f); if (!there) y[i] = work(a[i], b[i]);"
)
#: By the contents of its inputs: a thread's own memory is its multiprocessor's, and stays there after the launch.
REMEMBERS = source("""
  volatile float kept[3 * 64];
  if (i < n) {
    int slot = 3 * ((__float_as_uint(a[i]) * 2654435761u) >> 26);
    if (kept[slot] == a[i] && kept[slot + 1] == b[i]) y[i] = kept[slot + 2];
    else { float x = work(a[i], b[i]); kept[slot] = a[i]; kept[slot + 1] = b[i]; kept[slot + 2] = x; y[i] = x; }
  }
""")
NO_GAIN: dict[str, tuple[bytes, bytes, dict[str, Any]]] = {
    "lines that are to stay in the cache": (source(CHASE, STAYING), source(CHASE, READ), CHASED),
    "lines that the other arm has to write back": (source(CHASE, DIRTY), source(CHASE, READ), CHASED),
    "no work where an answer is": (SKIPS, FAST, {}),
    "answers kept in a thread's own memory": (REMEMBERS, FAST, {}),
    "launches shorter than the host's": (SHORT + b"// again", SHORT, {}),
    "the same again": (FAST + b"// again", FAST, {}),
}


@pytest.mark.parametrize("what", NO_GAIN)
def test_what_is_no_gain_is_none(board: Bed, what: str) -> None:
    candidate, incumbent, changes = NO_GAIN[what]
    found = judged(board, "timing", candidate, incumbent, **changes)
    assert check(found, "digests").holds is True
    assert check(found, "faster").holds is not True
    assert found.outcome != "pass"
