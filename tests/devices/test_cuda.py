"""What only a CUDA board can show: launches with all that CUDA has, and faults that close one session and no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from cuda.bindings import driver

from qualify import program
from qualify.arena import layout
from qualify.bench import Rig
from qualify.contract import Argument, Kernel, Launch, Memset
from qualify.fill import generate
from qualify.fnv import fnv1a64
from qualify.gate import Loss, WorkerLost
from qualify.steps import Census, Contend, Contended, Digest, Digests, Fill, Poison, Scrub
from qualify.workers.devices.cuda_driver import call
from qualify.workers.devices.cuda_harness import CudaHarness
from tests.devices.beds import arena, bed, do, read, refusal, segment
from tests.rigs import CUDA, HONEST, LAUNCH, SEED, Trial, sums

pytestmark = pytest.mark.gpu
HEAD = "float *y, const float *a, const float *b, int n"
INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"


def source(body: str, before: str = "") -> bytes:
    """CUDA C++ of a kernel `add`; `i` is the global index."""
    return f'{before}\nextern "C" __global__ void add({HEAD}) {{ {INDEX} {body} }}\n'.encode()


def launch(**changes: Any) -> Kernel:
    """A launch of `add` over all elements."""
    return Kernel(**{"symbol": "add", "grid": (10, 1, 1), "block": (100, 1, 1), **changes})


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig.open(CUDA) as opened:
        yield opened


@pytest.fixture
def trial(rig: Rig) -> Trial:
    return Trial(rig)


# Launches ------------------------------------------------------------------------------------------------------------

TEMPLATE = source("if (i < n) y[i] = a[i] + b[i];").replace(b'extern "C"', b"template <typename T, int N>")
CLUSTERED = (
    'unsigned size; asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size)); if (i < n && size == 2) y[i] = a[i] + b[i];'
)
TILED = "tile[last] = a[i] + b[i]; __syncthreads(); if (i < n) y[i] = tile[last];"
DYNAMIC = source(f"extern __shared__ float tile[]; int last = 50000 + threadIdx.x; {TILED}")
BOTH = source(
    f"extern __shared__ float tile[]; __shared__ float fixed[10000]; int last = 4000 + threadIdx.x; "
    f"fixed[threadIdx.x] = i; __syncthreads(); {TILED} if (fixed[99 - threadIdx.x] < 0) y[i] = 0;"
)
TWO_STEPS = source("if (i < n) y[i] += a[i] + b[i];")
LAUNCHED: dict[str, tuple[bytes, tuple[Launch, ...]]] = {
    "an instance of a template": (TEMPLATE.replace(b"float", b"T"), (launch(symbol="add<float, 8>"),)),
    "clusters of two": (source(CLUSTERED), (launch(cluster=(2, 1, 1)),)),
    "a cooperative grid": (HONEST["cuda"], (launch(cooperative=True),)),
    "a carve-out": (HONEST["cuda"], (launch(carve_out_percent=100),)),
    "much dynamic shared memory": (DYNAMIC, (launch(shared_bytes=220_000),)),
    "static and dynamic shared memory beyond 48 KiB": (BOTH, (launch(shared_bytes=20_000),)),
    "a memset before": (TWO_STEPS, (Memset(memset="y"), launch())),
}


@pytest.mark.parametrize("what", LAUNCHED)
def test_launches(trial: Trial, what: str) -> None:
    text, launches = LAUNCHED[what]
    assert trial.run(trial.subject(text, launches=launches)) == sums()


def test_passes_that_launch_nothing_have_no_time(rig: Rig) -> None:
    empty = Argument(name="none", kind="output", dtype="float32", shape=(0,))
    with bed(rig, layout((empty,), 2), sets=0) as session:
        step = segment((), (0, 1), passes=2, graph=True, launches=(Memset(memset="none"),))
        slot = step.slots[0].model_copy(update={"argument": "none", "buffer": "none"})
        step = step.model_copy(update={"slots": (slot,), "poisoned": (), "digested": ()})
        assert "passes that launch nothing have no time" in refusal(session, step)


def test_a_scrub_reaches_all_shared_memory_of_every_multiprocessor(rig: Rig, trial: Trial) -> None:
    """A block of all shared memory on each of them finds the same pattern, and another one after another seed."""
    size, units = rig.limits.shared_bytes, rig.limits.compute_units
    assert size is not None
    assert units is not None
    found = f"for (int w = 0; w < {size // 4}; w++) sum = sum * 31 + held[w]; ((unsigned *)y)[blockIdx.x] = sum;"
    text = source(f"extern __shared__ unsigned held[]; unsigned sum = 0; {found}")
    about = trial.subject(text, launches=(launch(grid=(units, 1, 1), block=(1, 1, 1), shared_bytes=size),))
    seen = []
    with rig.bench(about, {}).session(about, "candidate") as session:
        do(session, program.arena(about, 1, SEED))
        for seed in ("1" * 16, "2" * 16):
            do(session, Scrub(seed=seed), program.run(about, "candidate"))
            (data,) = read(session, "y.0")
            assert len({data[at : at + 4] for at in range(0, 4 * units, 4)}) == 1
            seen.append(data[:4])
    assert seen[0] != seen[1]


# Graphs and a second stream ------------------------------------------------------------------------------------------

#: Wrong where blocks of two launches run at once: the one that is there alone sees no more blocks than its own.
ALONE = source(
    "__shared__ int most; if (threadIdx.x == 0) { most = atomicAdd(&inside, 1) + 1; long long from = clock64(); "
    "while (clock64() - from < 2000000) most = max(most, atomicAdd(&inside, 0)); atomicSub(&inside, 1); } "
    "__syncthreads(); if (i < n) y[i] = most > gridDim.x ? -1.0f : a[i] + b[i];",
    "__device__ int inside;",
)


def test_launches_of_two_streams_run_at_once(rig: Rig, trial: Trial) -> None:
    about = trial.subject(ALONE, launches=(launch(),))
    launches = about.candidate.launches
    beside = Contend(arm="candidate", launches=launches, slots=program.slots(about), beside=1)
    with rig.bench(about, {}).session(about, "candidate") as session:
        fills = [fill for number in (0, 1) for fill in program.values(about, "ordinary", SEED, number)]
        do(session, program.arena(about, 2, SEED), *fills, program.run(about, "candidate"))
        assert read(session, "y.0") == (sums(),)
        assert do(session, beside) == (Contended(busy=True),)
        assert read(session, "y.0") != (sums(),)
        assert do(session, beside.model_copy(update={"beside": None})) == (Contended(busy=True),)
        assert read(session, "y.0") == (sums(),)


CENSUSES = """
from cuda.bindings import driver
from qualify.workers.devices.cuda_driver import call
from qualify.workers.devices.cuda_graphs import capture

call(driver.cuInit, 0)
call(driver.cuCtxSetCurrent, call(driver.cuDevicePrimaryCtxRetain, call(driver.cuDeviceGet, 0)))
here, elsewhere = (call(driver.cuStreamCreate, driver.CUstream_flags.CU_STREAM_NON_BLOCKING) for _ in range(2))
memory = int(call(driver.cuMemAlloc, 8))
for streams in ((), (elsewhere,), (here, elsewhere, here)):
    work = lambda: [call(driver.cuMemsetD8Async, memory, 1, 8, each) for each in streams]
    print(capture(work, here).census.canonical().decode(), end="")
"""


def test_a_census_shows_work_that_went_elsewhere_or_nowhere() -> None:
    """No route can plant it, launches go to the stream that is captured; a context in this process would be foreign."""
    said = subprocess.run([sys.executable, "-c", CENSUSES], check=True, capture_output=True)
    counts = [Census.parse(line).memsets for line in said.stdout.splitlines(keepends=True)]
    assert counts == [0, 0, 2]


def test_no_line_stays_in_the_cache_by_a_kernels_choice_or_the_record_says_why(rig: Rig) -> None:
    """A part of a board and a shared one cannot: the driver refuses both calls."""
    with rig.measuring() as session:
        assert all(" persisting L2: CUDA_ERROR_" in text for text in session.unapplied)
        assert not [text for text in session.unapplied if text not in str(rig.account())]
    assert rig.board is not None
    assert not session.unapplied or "MIG" in rig.board.name


# Faults --------------------------------------------------------------------------------------------------------------

FAULTS = {
    "an illegal address": (source("y[(1ll << 40) + i] = 1.0f;"), launch(), "CUDA_ERROR_ILLEGAL_ADDRESS"),
    "a misaligned access": (source("*(float4 *)(y + 1) = make_float4(1, 2, 3, i);"), launch(), "CUDA_ERROR_MISALIGNED"),
    "a trap": (source('if (i == 7) asm("trap;");'), launch(), "CUDA_ERROR"),
    "too much shared memory": (HONEST["cuda"], launch(shared_bytes=1 << 20), "CUDA_ERROR_INVALID"),
    "too many threads": (HONEST["cuda"], launch(block=(2048, 1, 1)), "CUDA_ERROR_INVALID"),
    "a cluster that does not divide the grid": (HONEST["cuda"], launch(cluster=(4, 1, 1)), "CUDA_ERROR_INVALID"),
    "another parameter": (source("y[i] = 0;").replace(b"int n", b"int n, int m"), launch(), "takes parameters of"),
}


def loss_of(trial: Trial, text: bytes, launched: Kernel, timeout_s: float = 20.0) -> Loss:
    with pytest.raises(WorkerLost) as caught:
        trial.run(trial.subject(text, launches=(launched,)), timeout_s=timeout_s)
    return caught.value.loss


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_the_candidates_and_the_next_subject_passes(trial: Trial, fault: str) -> None:
    text, launched, says = FAULTS[fault]
    loss = loss_of(trial, text, launched)
    assert (loss.how, loss.step, loss.arm) == ("refused", LAUNCH, "candidate")
    assert says in loss.log
    assert trial.run(trial.subject(HONEST["cuda"])) == sums()


def test_an_endless_kernel_is_killed_and_the_board_is_clean_after_it(trial: Trial) -> None:
    loss = loss_of(trial, source("for (;;) *(volatile float *)y = 1.0f;"), launch(), timeout_s=2.0)
    assert (loss.how, loss.step, loss.arm) == ("hung", LAUNCH, "candidate")
    assert trial.run(trial.subject(HONEST["cuda"])) == sums()


def test_a_worker_that_is_killed_leaves_the_board_clean(trial: Trial) -> None:
    subject = trial.subject(HONEST["cuda"])
    with trial.rig.bench(subject, {}).session(subject, "candidate") as session:
        os.kill(session._child.pid, signal.SIGKILL)
        with pytest.raises(WorkerLost, match="died"):
            session.run([arena(layout((), 1))], 20.0)
    assert trial.run(subject) == sums()


# Digests -------------------------------------------------------------------------------------------------------------

TILE = 1 << 16
EDGES = {edge + near for edge in (TILE, 2 * TILE, 5 * TILE) for near in (-2, -1, 0, 1, 2)}
SIZES = sorted({*range(120, 140), *EDGES, 333_333})


def test_digests_of_a_list_equal_serial_fnv_around_every_edge(rig: Rig) -> None:
    recipe = Poison(dtype="uint8", seed="5eed" * 4)
    arguments = [Argument(name=f"b{size}", kind="input", dtype="uint8", shape=(size,)) for size in SIZES]
    buffers = tuple(f"b{size}.0" for size in SIZES)
    with bed(rig, layout(arguments, 1), sets=0) as session:
        do(session, *(Fill(buffer=buffer, recipe=recipe) for buffer in buffers))
        (record,) = do(session, Digest(buffers=buffers))
    assert isinstance(record, Digests)
    whole = generate(recipe, max(SIZES))
    assert record.values == tuple(fnv1a64(whole[:size]) for size in SIZES)


@pytest.fixture(scope="module")
def harness(rig: Rig) -> Iterator[CudaHarness]:
    """The harness without a worker, for buffers at any address."""
    made = CudaHarness(rig._compilers.harness()[0])
    yield made
    made.close()


def poisoned(harness: CudaHarness, size: int, ahead: int) -> tuple[int, int]:
    """Device memory of so many bytes of poison, so far behind a multiple of 256."""
    address = int(call(driver.cuMemAlloc, size + ahead + 8)) + ahead
    harness.poison([(address, size, Poison(dtype="uint8", seed=f"{size:016x}"))])
    return address, size


def test_digests_equal_serial_fnv_at_every_place_and_length(harness: CudaHarness) -> None:
    sizes = [*SIZES, 0, 1, 280 * TILE + 77]  # The last one has more tiles than run at a time.
    ranges = [poisoned(harness, size, number % 17) for number, size in enumerate(sizes)]
    wanted = tuple(fnv1a64(generate(Poison(dtype="uint8", seed=f"{size:016x}"), size)) for size in sizes)
    assert harness.hashes(ranges) == wanted
    assert tuple(harness.hashes([each])[0] for each in ranges) == wanted


def test_digests_of_large_buffers_are_the_same_every_time_alone_and_in_a_list(harness: CudaHarness) -> None:
    ranges = [poisoned(harness, size, 0) for size in (1 << 28, (1 << 27) + 3)]
    alone = tuple(harness.hashes([each])[0] for each in ranges)
    assert {harness.hashes(ranges) for _ in range(50)} == {alone}
    assert {harness.hashes(ranges[:1]) for _ in range(50)} == {alone[:1]}
