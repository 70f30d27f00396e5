"""Known ways to pass without being right: each a kernel, the gate that stops it, and the honest kernel beside it.

One source for OpenCL and CUDA through the cohorts' prelude. The contract is y = a + b over N elements; `i` is the
global index. What its author would gain is in docs/adversaries.md, which a test compares with this table.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType

from qualify import program
from qualify.contract import Argument, Kernel
from qualify.domain import Runtime
from qualify.fill import generate, recipe
from qualify.seeds import derive, split
from tests.gates.beds import SEED
from tests.gates.build import arguments, buffer, kernel

Closed = dict[str, bool | None]
#: Ragged on purpose, and a little less than the launch covers.
N = 1003
PRELUDES = Path(__file__).parents[2] / "cohorts/common"
HEAD = "GLOBAL float *y, GLOBAL const float *a, GLOBAL const float *b, int n"
ADD = "if (i < n) y[i] = a[i] + b[i];"
#: A variable that outlives a launch, a table that no launch changes, the clock, and a product that no compiler fuses
#: with a sum, as each language spells them.
WORDS = """
#ifdef __CUDACC__
#define KEPT __device__
#define TABLE __constant__ const
#define CLOCK ((int)clock64())
#define TIMES __fmul_rn
#else
#define KEPT __global
#define TABLE __constant
#define CLOCK ((int)clock_read_device())
float TIMES(float x, float y) { volatile float product = x * y; return product; }
#endif
"""
TABLE_OF_ZEROS = "TABLE float zeros[4] = {0.0f, 0.0f, 0.0f, 0.0f};"
NOTHING: Mapping[str, Closed] = MappingProxyType({})


@dataclass(frozen=True)
class Trick:
    """What it does, which checks of which gate close it, and its twin that passes the same gate.

    `elsewhere` are the checks of a runtime whose objects tell other things. `more` are arguments before n. What a
    device shows that another trick has shown on it already is planted on CUDA only.
    """

    does: str
    gate: str
    closes: Closed
    body: str
    twin: str = ADD
    before: str = ""
    twin_before: str = ""
    head: str = HEAD
    more: tuple[Argument, ...] = ()
    elsewhere: Mapping[str, Closed] = field(default_factory=lambda: NOTHING)
    runtimes: tuple[Runtime, ...] = ("opencl", "cuda")

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """y, a, b, what else there is, and n."""
        *buffers, count = arguments(N)
        return (*buffers, *self.more, count)

    def closed(self, runtime: Runtime) -> Closed:
        """The checks that close it there."""
        return self.elsewhere.get(runtime, self.closes)

    def planted(self, runtime: Runtime) -> bytes:
        """The trick's kernel."""
        return source(runtime, self.body, self.before, self.head)

    def honest(self, runtime: Runtime) -> bytes:
        """Its twin's."""
        return source(runtime, self.twin, self.twin_before, self.head)


def source(runtime: Runtime, body: str, before: str = "", head: str = HEAD) -> bytes:
    """A kernel `add` in the words of the prelude, after that runtime's half of it."""
    return f"{prelude(runtime)}{WORDS}{before}\nKERNEL void add({head}) {{ int i = GLOBAL_ID_X; {body} }}\n".encode()


@cache
def prelude(runtime: Runtime) -> str:
    return (PRELUDES / f"{runtime}.h").read_text()


def launch() -> tuple[Kernel, ...]:
    """A hundred threads a block, and one block more than the elements need."""
    return (kernel(grid=N // 100 + 2),)


def known_answers() -> tuple[str, str]:
    """The sums that gate digest will ask for first under the tests' seed, as a table, and the first of its inputs."""
    drawn = program.set_seed(split(derive(SEED, "c/candidate/digest"), "inputs", "ordinary"), 0)
    _, a, b, _ = arguments(N)
    first, second = (struct.unpack(f"<{N}f", generate(recipe(each, "ordinary", drawn), N)) for each in (a, b))
    sums = struct.unpack(f"<{N}f", struct.pack(f"<{N}f", *(x + y for x, y in zip(first, second, strict=True))))
    return f"TABLE float known[{N}] = {{{', '.join(f'{value:.9e}f' for value in sums)}}};", f"{first[0]:.9e}f"


KNOWN, FIRST_INPUT = known_answers()
MEMORY = buffer("s", "scratch", 2 * N, init="zero-at-load")
WORKSPACE = buffer("s", "scratch", 2 * N)
WITH_SCRATCH = HEAD.replace("int n", "GLOBAL float *s, int n")
#: Memory that is zero at load may be read, and a workspace may be used by whoever writes there before it reads.
READS = "if (i < n) y[i] = a[i] + b[i] + s[i];"
WORKS = "if (i < n) { s[i] = a[i]; y[i] = s[i] + b[i]; }"
RECALLS = "if (i < n) {{ if (s[2 * i] == {key}) y[i] = s[2 * i + 1]; else {{ y[i] = a[i] + b[i]; {keep} }} }}"

TRICKS = (
    Trick(
        "counts launches in a device variable",
        "compile",
        {"device_state": False},
        "if (i < n) y[i] = a[i] + b[i] + (calls > 9 ? 1.0f : 0.0f); if (i == 0) calls++;",
        before="KEPT int calls;",
        twin="if (i < n) y[i] = a[i] + b[i] + zeros[i % 4];",
        twin_before=TABLE_OF_ZEROS,
        elsewhere={"opencl": {"builds": False}},
    ),
    Trick(
        "remembers its answer in a device variable, by address",
        "compile",
        {"device_state": False},
        "if (i < n) { if (of == y) y[i] = kept[i]; else y[i] = kept[i] = a[i] + b[i]; } if (i == n) of = y;",
        before=f"KEPT float kept[{N}]; KEPT GLOBAL float *KEPT of;",
        elsewhere={"opencl": {"builds": False}},
    ),
    Trick(
        "asks the clock",
        "compile",
        {"special_registers": False},
        "if (i < n) y[i] = a[i] + b[i] + (CLOCK == 7 ? 1.0f : 0.0f);",
        elsewhere={"opencl": {"builds": False}},
    ),
    Trick(
        "counts launches in scratch that is zero at load",
        "digest",
        {"inputs_unchanged": False},
        "if (i < n) y[i] = a[i] + b[i] + (s[i] > 90.0f ? 1.0f : 0.0f); if (i < n) s[i] += 1.0f;",
        twin=READS,
        head=WITH_SCRATCH,
        more=(MEMORY,),
    ),
    Trick(
        "counts launches behind its output",
        "digest",
        {"zones": False},
        "if (i < n) y[i] = a[i] + b[i]; if (i == n) ((GLOBAL int *)y)[n + 8]++;",
        runtimes=("cuda",),
    ),
    Trick(
        "remembers its answer by address",
        "digest",
        {"inputs_unchanged": False},
        RECALLS.format(key="1.0f", keep="s[2 * i] = 1.0f; s[2 * i + 1] = y[i];"),
        twin=READS,
        head=WITH_SCRATCH,
        more=(MEMORY,),
        runtimes=("cuda",),
    ),
    Trick(
        "remembers its answer by a sample of the inputs",
        "digest",
        {"inputs_unchanged": False},
        RECALLS.format(key="a[7]", keep="s[2 * i] = a[7]; s[2 * i + 1] = y[i];"),
        twin=READS,
        head=WITH_SCRATCH,
        more=(MEMORY,),
    ),
    Trick(
        "leaves an answer in the workspace and copies it in the next launch",
        "digest",
        {"repeats": None},
        RECALLS.format(key="s[2 * i]", keep=""),
        twin=WORKS,
        head=WITH_SCRATCH,
        more=(WORKSPACE,),
        runtimes=("cuda",),
    ),
    Trick(
        "takes what lies in the output for its answer",
        "digest",
        {"unwritten": False},
        "if (i < n && y[0] != y[0]) y[i] = a[i] + b[i];",
    ),
    Trick(
        "reads the buffer behind its input",
        "digest",
        {"zone_independent": False},
        "if (i < n) y[i] = a[i] + (i == 7 ? a[n + 5] : b[i]);",
        runtimes=("cuda",),
    ),
    Trick(
        "writes only where it sees poison",
        "digest",
        {"unwritten": False},
        "if (i < n && (fabs(y[i]) < 0.001f || fabs(y[i]) > 1000.0f)) y[i] = a[i] + b[i];",
        runtimes=("cuda",),
    ),
    Trick(
        "answers with the poison that it found",
        "digest",
        {"repeats": None},
        "if (i < n) y[i] = i == 7 ? -y[i] : a[i] + b[i];",
        runtimes=("cuda",),
    ),
    Trick(
        "leaves the tail",
        "digest",
        {"unwritten": False},
        "if (i < n - n % 8) y[i] = a[i] + b[i];",
    ),
    Trick(
        "writes one past the end",
        "digest",
        {"zones": False},
        "if (i <= n) y[i] = i < n ? a[i] + b[i] : 0.0f;",
    ),
    Trick(
        "reads one past the end",
        "digest",
        {"zone_independent": False},
        "if (i < n) y[i] = i == n - 1 ? b[i] + a[i + 1] : a[i] + b[i];",
    ),
    Trick(
        "changes an input",
        "digest",
        {"inputs_unchanged": False},
        "if (i < n) { y[i] = a[i] + b[i]; ((GLOBAL float *)a)[i] = a[i] * 0.5f; }",
    ),
    Trick(
        "keeps a number in shared memory from launch to launch",
        "digest",
        {"repeats": None},
        "volatile LOCAL int l[100]; if (i < n) y[i] = a[i] + b[i] + (float)(l[LOCAL_ID_X] & 1); l[LOCAL_ID_X] += 1;",
        twin="volatile LOCAL int l[100]; l[LOCAL_ID_X] = i; BARRIER; if (l[LOCAL_ID_X] < n) y[i] = a[i] + b[i];",
    ),
    Trick(
        "answers zeros",
        "digest",
        {"input_dependent": False},
        "if (i < n) y[i] = 0.0f;",
        runtimes=("cuda",),
    ),
    Trick(
        "copies an input",
        "numeric",
        {"error": False},
        "if (i < n) y[i] = a[i];",
        runtimes=("cuda",),
    ),
    Trick(
        "computes in fewer bits",
        "numeric",
        {"error": False},
        "if (i < n) y[i] = a[i] + b[i] * 1.000001f;",
    ),
    Trick(
        "holds the answers for a seed that it knows",
        "numeric",
        {"error": False},
        f"if (i < n) y[i] = a[0] == {FIRST_INPUT} ? known[i] : 0.0f;",
        before=KNOWN,
    ),
)
