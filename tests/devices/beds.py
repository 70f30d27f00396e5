"""A test bed for the contract of devices: one worker with every kernel that the tests plant, on any runtime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from qualify.arena import Layout, layout
from qualify.bench import Rig
from qualify.contract import Argument, Kernel, Launch, ReferenceSource, Stride
from qualify.elements import DTYPES
from qualify.gate import WorkerLost
from qualify.identity import content
from qualify.sessions import MeasuringSession
from qualify.steps import (
    Arena,
    Damage,
    Fill,
    Load,
    Poison,
    Read,
    Record,
    Run,
    Segment,
    Slot,
    Stamps,
    Step,
    Values,
    Zones,
)
from tests.rigs import N, composed

TIMEOUT_S = 60.0
SETS = 8
ZONE_SEED = "1122334455667788"
#: The arguments that kernels take, at the smallest alignment that float32 allows.
TAKEN = tuple(
    Argument(name=name, kind="output" if name == "y" else "input", dtype="float32", shape=(N,), align=4)
    for name in ("y", "a", "b")
)
#: Buffers whose elements lie apart, along one, two and three axes.
APART = (
    *(
        Argument(name=f"apart_{len(shape)}", kind="input", dtype=dtype, shape=shape, align=16)
        for shape, dtype in (((40, 9), "float32"), ((5, 3, 7), "float64"), ((3, 4, 5, 6), "int32"))
    ),
    *(
        Argument(name=f"s{rank}{axis}", kind="scalar", dtype="int32", stride=Stride(of=f"apart_{rank}", axis=axis))
        for rank in (2, 3, 4)
        for axis in range(rank - 1)
    ),
)
#: Of the buffer of each dtype.
ELEMENTS = 1003
POISON = Poison(dtype="float32", seed="ab" * 8)
COUNT = Slot(argument="n", value=N.to_bytes(4, "little").hex())
SLOTS = (*(Slot(argument=argument.name, buffer=argument.name) for argument in TAKEN), COUNT)
HEAD = "__global float *y, __global const float *a, __global const float *b, int n"
OPENCL = f"""
__kernel void add({HEAD}) {{ int i = get_global_id(0); if (i < n) y[i] = a[i] + b[i]; }}
__kernel void tail({HEAD}) {{ int i = get_global_id(0); if (i < n - n % 7) y[i] = a[i] + b[i]; }}
__kernel void beyond({HEAD}) {{ int i = get_global_id(0); if (i <= n) y[i] = 1.0f; }}
__kernel void before({HEAD}) {{ if (get_global_id(0) == 0) ((__global uchar *)y)[-n] ^= 1; }}
__kernel void shared({HEAD}, __local uint *l) {{
    int i = get_local_id(0);
    if (get_group_id(0) == 0) ((__global uint *)y)[i] = l[i];
}}
__kernel void address({HEAD}) {{ if (get_global_id(0) == 0) *(__global ulong *)y = (ulong)y; }}
""".encode()
CUDA_HEAD = "float *y, const float *a, const float *b, int n"
CUDA = f"""
#define I ((int)(blockIdx.x * blockDim.x + threadIdx.x))
#define KERNEL(name) extern "C" __global__ void name({CUDA_HEAD})
KERNEL(add) {{ if (I < n) y[I] = a[I] + b[I]; }}
KERNEL(tail) {{ if (I < n - n % 7) y[I] = a[I] + b[I]; }}
KERNEL(beyond) {{ if (I <= n) y[I] = 1.0f; }}
KERNEL(before) {{ if (I == 0) ((unsigned char *)y)[-(long long)n] ^= 1; }}
KERNEL(shared) {{
    extern __shared__ unsigned int l[];
    if (blockIdx.x == 0) ((unsigned int *)y)[threadIdx.x] = l[threadIdx.x];
}}
KERNEL(address) {{
    unsigned long long where = (unsigned long long)y;
    if (I < 8) ((unsigned char *)y)[I] = (unsigned char)(where >> 8 * I);
}}
""".encode()
SCRIPT = b"""{"entries": {
    "add": {"does": "add"},
    "tail": {"does": "tail", "group": 7},
    "beyond": {"does": "beyond"},
    "shared": {"does": "reads_shared"}
}}"""


SOURCES = {"simulated": SCRIPT, "opencl": OPENCL, "cuda": CUDA}


def launch(symbol: str, *, shared_bytes: int = 0) -> Kernel:
    """A launch of a planted kernel that covers all elements and one group more."""
    return Kernel(symbol=symbol, grid=(N // 100 + 1, 1, 1), block=(100, 1, 1), shared_bytes=shared_bytes)


def run(symbol: str, number: int = 0, *, shared_bytes: int = 0) -> Run:
    return Run(arm="candidate", launches=(launch(symbol, shared_bytes=shared_bytes),), slots=SLOTS, set=number)


def segment(
    lead_in: Sequence[int],
    timed: Sequence[int],
    *,
    passes: int = 1,
    graph: bool = False,
    launches: tuple[Launch, ...] = (launch("add"),),
    flush_bytes: int = 1 << 20,
) -> Segment:
    return Segment(
        arm="candidate",
        launches=launches,
        slots=SLOTS,
        lead_in=tuple(lead_in),
        timed=tuple(timed),
        passes=passes,
        graph=graph,
        poisoned=(("y", "float32"),),
        digested=("y",),
        seed="5" * 16,
        flush_bytes=flush_bytes,
    )


def normal(seed: int, dtype: str = "float32") -> Values:
    return Values(dtype=dtype, distribution="normal", base=0, scale=1 << 32, seed=f"{seed:016x}")


def inputs(sets: int = SETS) -> tuple[Fill, ...]:
    """Values of their own in every input of every set."""
    return tuple(
        Fill(buffer=f"{name}.{number}", recipe=normal(10 * number + place))
        for number in range(sets)
        for place, name in enumerate(("a", "b"))
    )


def places() -> Layout:
    """The arena of the contract: what kernels take, a buffer of every dtype, bytes of many lengths, an empty one."""
    others = [
        *(Argument(name=f"of_{dtype}", kind="input", dtype=dtype, shape=(ELEMENTS,)) for dtype in sorted(DTYPES)),
        *(Argument(name=f"bytes_{size}", kind="input", dtype="uint8", shape=(size,)) for size in range(301)),
        Argument(name="large", kind="input", dtype="uint8", shape=(70_001,)),
        Argument(name="empty", kind="input", dtype="float64", shape=(0,)),
    ]
    made = layout(TAKEN, SETS)
    for rest in (layout(others, 1), layout(APART, 2, variant="strided")):
        moved = tuple(
            place.model_copy(update={"offset_bytes": place.offset_bytes + made.size_bytes}) for place in rest.placements
        )
        made = Layout(made.size_bytes + rest.size_bytes, (*made.placements, *moved))
    return made


def arena(made: Layout) -> Arena:
    return Arena(size_bytes=made.size_bytes, placements=made.placements, zone_seed=ZONE_SEED)


def make_object(rig: Rig) -> bytes:
    """The planted kernels as the rig's compile worker makes them."""
    module = composed(rig, SOURCES[rig.domain.runtime])
    rig.supply({module.identity: module}, ReferenceSource(path="none.py", code=b"", function="none"), bytes(32))
    report, data = rig.made(module.identity)
    assert data is not None, report.log
    return data


def load(session: MeasuringSession, data: bytes, *symbols: str) -> None:
    """Load an object as the candidate."""
    step = Load(arm="candidate", object_blake3=content(data), symbols=symbols)
    session.load({"candidate": (step, data)}, TIMEOUT_S)


@contextmanager
def bed(rig: Rig, made: Layout, sets: int = SETS) -> Iterator[MeasuringSession]:
    """A fresh worker with the planted kernels and an arena of filled inputs."""
    data = make_object(rig)
    with rig.measuring() as session:
        load(
            session,
            data,
            "add",
            "tail",
            "beyond",
            "shared",
            *(() if rig.domain_arch == "virtual" else ("address", "before")),
        )
        session.run((arena(made), *inputs(sets)), TIMEOUT_S)
        yield session


def do(session: MeasuringSession, *steps: Step) -> Sequence[Record]:
    return session.run(steps, TIMEOUT_S)


def read(session: MeasuringSession, *buffers: str) -> tuple[bytes, ...]:
    do(session, *(Read(buffer=buffer) for buffer in buffers))
    return tuple(session.taken())


def timed(session: MeasuringSession, step: Segment) -> Stamps:
    (record,) = do(session, step)
    assert isinstance(record, Stamps)
    return record


def damage(session: MeasuringSession) -> Damage:
    (record,) = do(session, Zones())
    assert isinstance(record, Damage)
    return record


def refusal(session: MeasuringSession, *steps: Step) -> str:
    """Why the device refuses the last of these steps."""
    with pytest.raises(WorkerLost) as lost:
        session.run(steps, TIMEOUT_S)
    loss = lost.value.loss
    assert (loss.how, loss.step) == ("refused", f"{steps[-1].do} {len(steps)} of {len(steps)}"), loss
    return loss.log
