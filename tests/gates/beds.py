"""A rig and subjects made of source text, measured by gates through real workers."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gates import GATES
from qualify.bench import Rig
from qualify.boards import NATIVE
from qualify.contract import Argument, Arm, Composed, FragmentRef, Launch, Module, ReferenceSource
from qualify.domain import Runtime
from qualify.gate import Facts, Measurement, WorkerLost
from qualify.identity import content, identify
from qualify.judgement import decide, rules_of
from qualify.plan import Node
from qualify.subject import Subject
from qualify.verdict import Verdict
from tests.gates.build import arguments, kernel, subject
from tests.rigs import CUDA, UNOPTIMISED

#: Exact for float32 inputs, whose sums float64 nearly always holds.
REFERENCE = b"def add(cell, inputs):\n    return {'y': inputs['a'] + inputs['b']}\n"
SEED = bytes(range(32))


def script(does: str = "add", **more: Any) -> bytes:
    """A simulated kernel `add`."""
    return json.dumps({"entries": {"add": {"does": does, **more}}}).encode()


def opencl(body: str = "if (i < n) y[i] = a[i] + b[i];", head: str | None = None) -> bytes:
    """OpenCL C of a kernel `add`; `i` is the global id."""
    usual = "__global float *y, __global const float *a, __global const float *b, int n"
    return f"__kernel void add({head or usual}) {{ int i = get_global_id(0); {body} }}\n".encode()


def pitched(write: str = "i / cols * y_pitch + i % cols", read: str = "i / cols * {}_pitch + i % cols") -> bytes:
    """OpenCL C of a kernel `add` over matrices whose rows may lie apart."""
    buffers = "__global float *y, __global const float *a, __global const float *b"
    sizes = "int rows, int cols, int y_pitch, int a_pitch, int b_pitch"
    total = f"a[{read.format('a')}] + b[{read.format('b')}]"
    return opencl(f"if (i < rows * cols) y[{write}] = {total};", f"{buffers}, {sizes}")


def cuda(body: str = "if (i < n) y[i] = a[i] + b[i];", head: str | None = None) -> bytes:
    """CUDA C++ of a kernel `add`; `i` is the global id."""
    usual = "float *y, const float *a, const float *b, int n"
    start = f'extern "C" __global__ void add({head or usual})'
    return f"{start} {{ int i = blockIdx.x * blockDim.x + threadIdx.x; {body} }}\n".encode()


HONEST = {"simulated": script(), "opencl": opencl(), "cuda": cuda()}


@dataclass
class Measured:
    """What the engine would record of one gate on one subject, and the verdict on it."""

    measurement: Measurement
    series: Mapping[str, bytes]
    verdict: Verdict
    settings: Any

    def values(self, name: str) -> Sequence[int]:
        """A series."""
        data = self.series[name]
        return struct.unpack(f"<{len(data) // 8}q", data)


@dataclass
class Bed:
    """A rig with the modules of its subjects."""

    rig: Rig
    runtime: Runtime
    modules: dict[str, Composed] = field(default_factory=dict)

    def arm(self, route: str, text: bytes, launches: tuple[Launch, ...], passed: tuple[Argument, ...]) -> Arm:
        """A route of one fragment, known to the rig."""
        module = Module(
            frontend=self.runtime,
            runtime=self.runtime,
            fragments=(FragmentRef(path="op/k.h", blake3=content(text)),),
            options=UNOPTIMISED.get(self.runtime, ()),
            defines={},
            launches=launches,
            arguments=passed,
            target=self.rig.domain_arch,
            toolkit_build=self.rig.toolkit_build,
        )
        identity = identify("module", module)
        self.modules[identity] = Composed(module, identity, {"op/k.h": text})
        return Arm(route=route, identity=identity, target=module.target, launches=launches)

    def subject(
        self,
        candidate: bytes,
        incumbent: bytes | None = None,
        *,
        n: int = 200,
        launches: tuple[Launch, ...] | None = None,
        passed: tuple[Argument, ...] | None = None,
        **changes: Any,
    ) -> Subject:
        """A candidate beside the honest route, y = a + b over n elements."""
        passed = passed or arguments(n)
        usual = launches or (kernel(grid=-(-n // 100)),)
        plain = self.arm("plain", HONEST[self.runtime] if incumbent is None else incumbent, usual, passed)
        return subject(
            **{
                "domain": self.rig.domain,
                "arguments": passed,
                "candidate": self.arm("candidate", candidate, usual, passed),
                "incumbent": plain,
                "limits": self.rig.limits,
                **changes,
            }
        )

    def plain(self, text: bytes | None = None, **changes: Any) -> Subject:
        """A plain route as a subject: it is its own incumbent."""
        about = self.subject(HONEST[self.runtime] if text is None else text, **changes)
        return about.model_copy(update={"role": "plain", "incumbent": about.candidate})

    def judge(
        self,
        gate: str,
        about: Subject,
        reference: bytes = REFERENCE,
        *,
        needed: Mapping[str, Facts] = MappingProxyType({}),
        **settings: Any,
    ) -> Measured:
        """Measure and decide as the engine does; `needed` are facts of gates that this one reads."""
        source = ReferenceSource(path="op/reference.py", code=reference, function="add")
        self.rig.supply(self.modules, source, SEED)
        rule = GATES[gate].rule
        chosen = rule.settings(**settings)
        found = {
            name: (Measurement(gate=name, rule=1, state="measured", facts=each.model_dump(mode="json")), "0" * 64)
            for name, each in needed.items()
        }
        bench = self.rig.bench(about, found)
        try:
            facts = GATES[gate].measure(about, bench, chosen).model_dump(mode="json")
            measurement = Measurement(gate=gate, rule=rule.number, state="measured", facts=facts)
        except WorkerLost as loss:
            measurement = Measurement(gate=gate, rule=rule.number, state="lost", loss=loss.loss)
        node = Node(
            gate=gate,
            rule=rule.number,
            runs_on=GATES[gate].runs_on,
            settings=chosen.model_dump(mode="json"),
            needs=(),
            cost_s="1",
            source_blake3="0" * 64,
        )
        measurement = Measurement.parse(measurement.canonical())
        series = dict(bench.series_data) if measurement.state == "measured" else {}
        verdict = decide(node, about, measurement, series, rules_of(GATES[gate]))
        return Measured(measurement, series, verdict, node.settings)


PLACES = {"simulated": ("simulated-1.0", NATIVE), "opencl": ("pocl-3.0", NATIVE), "cuda": (CUDA, "sm_90")}


@contextmanager
def bed(runtime: Runtime) -> Iterator[Bed]:
    """The virtual board, PoCL or a CUDA target whose board may be elsewhere, ended with all its workers."""
    with Rig.open(*PLACES[runtime]) as rig:
        yield Bed(rig, runtime)
