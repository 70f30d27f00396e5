"""Host gates of many candidates, whole command and evidence included, beside the bare compile calls on the same cores.

Candidates are generated: variants of one normalisation kernel that a program which writes kernels might try. For each
toolkit and architecture the same translation units are compiled twice: by one process a core that does nothing but
call NVRTC, and by `qualify screen --candidates ... --until`. The order alternates. Times are the wall's, and beside
them the processor's, workers included, which others' load moves less. The memory of the command's own process is read
at a quarter of the candidates and at all of them: what is left of a candidate must be its verdict, not its objects.
"""

from __future__ import annotations

import argparse
import os
import resource
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from qualify import cuda_toolkits
from qualify.workers.compile import keep_freed_memory
from qualify.workers.compilers.nvrtc_library import Nvrtc

MOST_TIMES = 1.1
MOST_KIB_A_CANDIDATE = 300
ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
COHORT = """\
operation: norm
dispatcher_revision: 1
arguments:
  - {name: y, kind: output, dtype: float32, shape: [rows, cols], align: 16}
  - {name: x, kind: input, dtype: float32, shape: [rows, cols], align: 16}
  - {name: w, kind: input, dtype: float32, shape: [cols], align: 16}
  - {name: rows, kind: scalar, dtype: int32, value: rows}
  - {name: cols, kind: scalar, dtype: int32, value: cols}
cells: [{id: c, rows: 4096, cols: 4096}]
routes: {plain: {fragments: [plain.cu], launches: [{symbol: row_norm, grid: [rows], block: [256]}]}}
plain: plain
bits: own
numeric: {cap_relative: 1e-5}
reference: reference.py:norm
"""
ROUTE = "{fragments: [norm.cu], launches: [{symbol: row_norm, grid: [rows], block: [%d]}]}\n"
KERNEL = """\
// Variant %(number)d: %(threads)d threads, %(step)d elements a thread at a time.
#define THREADS %(threads)d
#define STEP %(step)d
__device__ float sum_of(float value, float *shared) {
  for (int offset = 16; offset; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  if (threadIdx.x %% 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x < THREADS / 32 ? shared[threadIdx.x] : 0.0f;
  for (int offset = 16; offset; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  if (threadIdx.x == 0) shared[0] = value;
  __syncthreads();
  return shared[0];
}
extern "C" __global__ void __launch_bounds__(THREADS)
row_norm(float *y, const float *x, const float *w, int rows, int cols) {
  __shared__ float shared[32];
  const float *row = x + (long long)blockIdx.x * cols;
  float sum = 0.0f;
  for (int at = threadIdx.x * STEP; at < cols; at += THREADS * STEP)
#pragma unroll
    for (int i = 0; i < STEP; i++)
      if (at + i < cols) sum += row[at + i] * row[at + i];
  const float scale = rsqrtf(sum_of(sum, shared) / cols + %(number)d.5e-6f);
  for (int at = threadIdx.x * STEP; at < cols; at += THREADS * STEP)
#pragma unroll
    for (int i = 0; i < STEP; i++)
      if (at + i < cols) y[(long long)blockIdx.x * cols + at + i] = row[at + i] * scale * w[at + i];
}
"""


def main() -> int:
    """Print the table. Returns 1 if a target is missed."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # What is installed has its bytecode after the first start.
    given = arguments()
    texts = [kernel(number) for number in range(given.candidates)]
    print(f"{given.candidates} candidates on {cores()} cores, until {given.until}")
    columns = ("bare, s", "screen, s", "ratio", "of CPU", "MiB", "KiB a candidate")
    print(" ".join((f"{'domain':<18}", *(f"{column:>10}" for column in columns))))
    found: list[Sides] = []
    with TemporaryDirectory() as folder:  # Until the end: a file system may search long among what was just removed.
        for toolkit, arch in product(given.toolkits, given.archs):
            how = {"keep": given.keep, "bare_first": len(found) % 2 == 0}
            found.append(measured(Path(folder, toolkit, arch), toolkit, arch, texts, given.until, **how))
            print(found[-1].line(f"{toolkit}/{arch}"), flush=True)
    median = statistics.median(sides.ratio for sides in found)
    met = median <= MOST_TIMES and max(sides.kib_a_candidate for sides in found) <= MOST_KIB_A_CANDIDATE
    print(f"median of {len(found)} ratios: {median:.2f} x")
    wanted = f"at most {MOST_TIMES} x, {MOST_KIB_A_CANDIDATE} KiB a candidate"
    print(f"target: {wanted}: {'met' if met else 'missed'}")
    return 0 if met else 1


@dataclass(frozen=True)
class Spent:
    """Wall and processor seconds, and the most memory of one process in bytes where it was watched."""

    wall_s: float
    cpu_s: float
    most_bytes: int = 0


@dataclass(frozen=True)
class Sides:
    """One domain: the bare calls, the command, and the command with a quarter of the candidates."""

    candidates: int
    bare: Spent
    screen: Spent
    quarter: Spent

    @property
    def ratio(self) -> float:
        """How many times the bare calls the command takes."""
        return self.screen.wall_s / self.bare.wall_s

    @property
    def kib_a_candidate(self) -> float:
        """What one more candidate adds to the command's memory."""
        more = self.candidates - max(1, self.candidates // 4)
        return (self.screen.most_bytes - self.quarter.most_bytes) / 1024 / max(more, 1)

    def line(self, name: str) -> str:
        """One row of the table."""
        times = (self.bare.wall_s, self.screen.wall_s, self.ratio, self.screen.cpu_s / self.bare.cpu_s)
        memory = (self.screen.most_bytes / 2**20, self.kib_a_candidate)
        return " ".join(
            (f"{name:<18}", *(f"{value:>10.2f}" for value in times), *(f"{value:>10.0f}" for value in memory))
        )


def measured(
    folder: Path, toolkit: str, arch: str, texts: list[str], until: str, *, keep: bool, bare_first: bool
) -> Sides:
    """Both sides on the same candidates, and the command once more on a quarter of them."""
    workspace = laid_out(folder, toolkit, arch, texts)
    few = laid_out(folder / "few", toolkit, arch, texts[: max(1, len(texts) // 4)])
    before = compile_bare(toolkit, arch, texts, keep=keep) if bare_first else None
    whole = screen(workspace, until)
    return Sides(len(texts), before or compile_bare(toolkit, arch, texts, keep=keep), whole, screen(few, until))


def arguments() -> argparse.Namespace:
    """The command line."""
    here = list(dict.fromkeys(f"cuda-{major}.{minor}" for (major, minor), _ in cuda_toolkits.here()))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--toolkits", nargs="*", default=here, help="all that are here, if left out")
    parser.add_argument("--archs", nargs="*", default=ARCHITECTURES)
    parser.add_argument("--until", default="compile")
    parser.add_argument("--keep", action="store_true", help="bare calls keep freed memory, as compile workers do")
    return parser.parse_args()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def kernel(number: int) -> str:
    """The text of one candidate; no two are the same program."""
    return KERNEL % {"number": number, "threads": 64 << number % 4, "step": 1 + number // 4 % 8}


def laid_out(folder: Path, toolkit: str, arch: str, texts: list[str]) -> Path:
    """A workspace whose candidates lie in a folder beside it."""
    cohort = folder / "w/cohorts/norm"
    cohort.mkdir(parents=True)
    (folder / "w/pipelines.yaml").write_text(
        f"domains: [{{toolkit: {toolkit}, arch: {arch}}}]\n"
        "gates: {contract: {cost_s: 0.001}, compile: {cost_s: 0.4, needs: [contract]},"
        " occupancy: {cost_s: 0.5, needs: [compile]}}\n"
        "pipelines: {default: {screen: all}}\n"
    )
    (cohort / "cohort.yaml").write_text(COHORT)
    (cohort / "plain.cu").write_text(kernel(3).replace("Variant", "Plain, as variant"))
    (cohort / "reference.py").write_text("def norm(cell, inputs):\n    return {}\n")
    for number, text in enumerate(texts):
        candidate = folder / f"candidates/c{number}"
        candidate.mkdir(parents=True)
        (candidate / "route.yaml").write_text(ROUTE % (64 << number % 4))
        (candidate / "norm.cu").write_text(text)
    return folder / "w"


# The two sides -------------------------------------------------------------------------------------------------------


def compile_bare(toolkit: str, arch: str, texts: list[str], *, keep: bool) -> Spent:
    """All compile calls by one process a core, from before the processes start."""
    parts = [texts[start :: cores()] for start in range(cores())]
    started, used = time.perf_counter(), children_cpu_s()
    with ProcessPoolExecutor(cores()) as pool:
        list(pool.map(partial(compiled, toolkit, arch, keep=keep), parts))
    return Spent(time.perf_counter() - started, children_cpu_s() - used)


def children_cpu_s() -> float:
    """Processor seconds of every process that this one started and that has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compiled(toolkit: str, arch: str, texts: list[str], *, keep: bool) -> int:
    """Compile every text as a compile worker asks for it. Raises RuntimeError for one that is refused."""
    if keep:
        keep_freed_memory()
    major, minor = toolkit.partition("-")[2].split(".")
    files = cuda_toolkits.files(*cuda_toolkits.find((int(major), int(minor))))
    nvrtc = Nvrtc(files)
    cache = ("--no-cache",) if nvrtc.release >= (12, 9) else ()
    includes = tuple(f"--include-path={folder}" for folder in files.includes)
    options = (f"--gpu-architecture={arch}", "--ptxas-options=-v", "--std=c++17", *cache, *includes)
    for text in texts:
        made = nvrtc.compile('#include "norm.cu"\n', {"norm.cu": text.encode()}, options, ("row_norm",))
        if not made.succeeded:
            raise RuntimeError(made.log.decode())
    return len(texts)


def screen(workspace: Path, until: str) -> Spent:
    """The whole command with its workers, and the most memory that its own process held. Raises RuntimeError."""
    words = ("screen", "--candidates", str(workspace.parent / "candidates"), "--until", until, "--json")
    command = [sys.executable, "-m", "qualify", *words, "--workspace", str(workspace)]
    started, used = time.perf_counter(), children_cpu_s()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        most = max(peaks(process))
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return Spent(time.perf_counter() - started, children_cpu_s() - used, most)


def peaks(process: subprocess.Popen[bytes]) -> Iterator[int]:
    """The high water mark of a process's memory, again and again until it ends."""
    ended = os.pidfd_open(process.pid)
    while True:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        found = [line for line in lines if line.startswith("VmHWM:")]
        if found:
            yield int(found[0].split()[1]) * 1024
        if select.select([ended], [], [], 0.1)[0]:  # At once: to wait with a time-out looks every 50 ms.
            os.close(ended)
            process.wait()
            return


if __name__ == "__main__":
    sys.exit(main())
