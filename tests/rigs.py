"""A small contract for tests of the rig: y = a + b over `n` float32, with sources for every runtime."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from qualify import arena, cuda_toolkits, fill
from qualify.bench import Rig
from qualify.contract import (
    Argument,
    Arm,
    Cell,
    Composed,
    FragmentRef,
    Kernel,
    Launch,
    Module,
    Numeric,
    ReferenceSource,
    Timing,
)
from qualify.domain import Runtime
from qualify.identity import content, identify
from qualify.steps import Arena, ArmName, Fill, Read, Run, Slot, Step, Zones
from qualify.subject import Subject

N = 1000
TOOLKITS = ("simulated-1.0", "pocl-3.0")
#: The CUDA toolkit that the environment brings, or the system has; what a user installed is another on each machine.
RELEASE = next((release for release, _ in cuda_toolkits.here(cache=Path(os.devnull))), (13, 2))
CUDA = f"cuda-{RELEASE[0]}.{RELEASE[1]}"
#: Every device that is here.
DEVICES = (*TOOLKITS, pytest.param(CUDA, marks=pytest.mark.gpu))
ARGUMENTS = (
    Argument(name="y", kind="output", dtype="float32", shape=(N,), align=16),
    Argument(name="a", kind="input", dtype="float32", shape=(N,), align=16),
    Argument(name="b", kind="input", dtype="float32", shape=(N,), align=16),
    Argument(name="n", kind="scalar", dtype="int32", value=str(N)),
)
#: What bits a kernel leaves is not the optimiser's to decide, which takes PoCL longer than all else together. The
#: cohorts' own kernels are tried as they are built for use.
UNOPTIMISED: Mapping[Runtime, tuple[str, ...]] = {"opencl": ("-cl-opt-disable",)}
LAUNCHES = (Kernel(symbol="add", grid=(10, 1, 1), block=(100, 1, 1)),)
REFERENCE = b"def add(cell, inputs):\n    return {'y': inputs['a'] + inputs['b']}\n"
HONEST = {
    "simulated": b'{"entries": {"add": {"does": "add"}}}',
    "opencl": b"""__kernel void add(__global float *y, __global const float *a, __global const float *b, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = a[i] + b[i];
}""",
    "cuda": b"""extern "C" __global__ void add(float *y, const float *a, const float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a[i] + b[i];
}""",
}


def kernel(body: str) -> bytes:
    """OpenCL C of the contract's kernel with another body."""
    head = "__kernel void add(__global float *y, __global const float *a, __global const float *b, int n)"
    return f"{head} {{\n{body}\n}}\n".encode()


#: A module that asks for more memory than a compiler may have, all of it at once.
BEYOND_MEMORY = b"__constant int t[] = {[0 ... (1 << 30) - 1] = 1};\n" + kernel("y[n] = t[n];")


def composed(
    rig: Rig,
    *texts: bytes,
    paths: tuple[str, ...] = ("op/k.h",),
    options: tuple[str, ...] | None = None,
    defines: dict[str, str] | None = None,
    launches: tuple[Launch, ...] = LAUNCHES,
) -> Composed:
    """A module of the contract made of these fragments, not optimised unless `options` say so."""
    module = Module(
        frontend=rig.domain.runtime,
        runtime=rig.domain.runtime,
        fragments=tuple(FragmentRef(path=path, blake3=content(text)) for path, text in zip(paths, texts, strict=True)),
        options=UNOPTIMISED.get(rig.domain.runtime, ()) if options is None else options,
        defines=defines or {},
        launches=launches,
        arguments=ARGUMENTS,
        target=rig.domain_arch,
        toolkit_build=rig.toolkit_build,
    )
    return Composed(module, identify("module", module), dict(zip(paths, texts, strict=True)))


@dataclass
class Trial:
    """A rig and the modules that its next subjects are made of."""

    rig: Rig
    modules: dict[str, Composed] = field(default_factory=dict)
    reference: bytes = REFERENCE

    def arm(self, route: str, module: Composed) -> Arm:
        """An arm of that module, supplied to the rig."""
        self.modules[module.identity] = module
        source = ReferenceSource(path="op/reference.py", code=self.reference, function="add")
        self.rig.supply(self.modules, source, bytes(32))
        made = module.module
        return Arm(route=route, identity=module.identity, target=made.target, launches=made.launches)

    def subject(
        self, candidate: bytes, incumbent: bytes | None = None, launches: tuple[Launch, ...] = LAUNCHES
    ) -> Subject:
        """A subject of two one-fragment modules; without an incumbent's text it is the honest one.

        `launches` are the candidate's.
        """
        honest = HONEST[self.rig.domain.runtime]
        return Subject(
            operation="op",
            domain=self.rig.domain,
            cell=Cell(id="c", integers={"n": N}, names={"dtype": "float32"}),
            arguments=ARGUMENTS,
            variants=("ordinary",),
            role="candidate",
            candidate=self.arm("candidate", composed(self.rig, candidate, launches=launches)),
            incumbent=self.arm("plain", composed(self.rig, honest if incumbent is None else incumbent)),
            bits="own",
            numeric=Numeric(cap_relative="1e-5"),
            timing=Timing(),
            limits=self.rig.limits,
        )

    def run(self, subject: Subject, arm: ArmName = "candidate", *, timeout_s: float = 30.0) -> bytes:
        """Fill, launch once and read y back, in a fresh session. Raises WorkerLost."""
        launches = (subject.candidate if arm == "candidate" else subject.incumbent).launches
        with self.rig.bench(subject, {}).session(subject, arm) as session:
            session.run(filled(), 60.0)
            session.run(launched(arm, launches), timeout_s)
            return session.taken()[0]


SEED = "0123456789abcdef"
#: Where the launch is among the steps below, as a loss names it.
LAUNCH = "launch 1 of 3"
_BUFFERS = tuple(argument for argument in ARGUMENTS if argument.is_buffer)


def filled() -> list[Step]:
    """An arena with filled buffers."""
    layout = arena.layout(ARGUMENTS, 1)
    whole = Arena(size_bytes=layout.size_bytes, placements=layout.placements, zone_seed=SEED)
    return [whole, *(Fill(buffer=f"{each.name}.0", recipe=fill.recipe(each, "ordinary", SEED)) for each in _BUFFERS)]


def launched(arm: ArmName, launches: tuple[Launch, ...] = LAUNCHES) -> list[Step]:
    """One pass of an arm, its zones looked at, its output read."""
    number = Slot(argument="n", value=N.to_bytes(4, "little").hex())
    slots = (*(Slot(argument=argument.name, buffer=argument.name) for argument in _BUFFERS), number)
    return [Run(arm=arm, launches=launches, slots=slots), Zones(), Read(buffer="y.0")]


def sums() -> bytes:
    """What a right kernel leaves in y, rounded once from the exact sums."""
    inputs = [fill.generate(fill.recipe(argument, "ordinary", SEED), N) for argument in ARGUMENTS[1:3]]
    a, b = (struct.unpack(f"<{N}f", data) for data in inputs)
    return struct.pack(f"<{N}f", *(x + y for x, y in zip(a, b, strict=True)))
