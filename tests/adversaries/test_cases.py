"""Kernels that failed elsewhere, each in its whole kind: what is reported of them is in tests/cases/table.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from qualify.contract import Argument, Launch, Memset
from qualify.domain import Runtime
from qualify.subject import Subject
from tests.adversaries.tricks import ADD, HEAD, source
from tests.gates.beds import REFERENCE, Bed
from tests.gates.build import VARIANTS, arguments, kernel, not_held
from tests.rigs import Trial, composed
from tests.rigs import kernel as opencl_kernel

Closed = dict[str, bool | None]
N = 1003
BOTH: tuple[Runtime, ...] = ("opencl", "cuda")
CUDA: tuple[Runtime, ...] = ("cuda",)


@dataclass(frozen=True)
class Case:
    """A kernel, what closes it, and the honest one beside it, under one contract."""

    gate: str
    closes: Closed
    body: str
    twin: str = ADD
    head: str = HEAD
    passed: tuple[Argument, ...] = arguments(N)
    launches: tuple[Launch, ...] = (kernel(grid=11),)
    reference: bytes = REFERENCE
    more: Mapping[str, Any] = field(default_factory=lambda: {"bits": "own"})
    runtimes: tuple[Runtime, ...] = BOTH

    def subject(self, bed: Bed, body: str) -> Subject:
        """A body beside the honest one."""
        text, honest = (source(bed.runtime, each, head=self.head) for each in (body, self.twin))
        return bed.subject(text, honest, passed=self.passed, launches=self.launches, **self.more)


def tensor(name: str, kind: Any, *shape: int, dtype: str = "float32") -> Argument:
    return Argument(name=name, kind=kind, dtype=dtype, shape=shape, align=16)


LARGEST = b"import numpy as np\ndef add(cell, inputs):\n    return {'y': inputs['a'].max(axis=1)}\n"
MAXIMUM: Mapping[str, Any] = {
    "twin": "if (i < 40) { float m = a[3 * i]; for (int c = 1; c < 3; c++) { float v = a[3 * i + c];"
    " m = v > m || v != v ? v : m; } y[i] = m; }",
    "head": "GLOBAL float *y, GLOBAL const float *a",
    "passed": (tensor("y", "output", 40), tensor("a", "input", 40, 3)),
    "reference": LARGEST,
    "more": {"bits": "own", "variants": VARIANTS},
}
STRIDED = b"""def add(cell, inputs):
    y = inputs['y'].copy()
    y[:, :10] = inputs['a'] + 1
    return {'y': y}
"""
#: Past 2^31 elements of one byte. No index of 32 bits reaches them.
HUGE = (1 << 31) + 4096
FLOATS = 1 << 20

CASES: dict[str, Case] = {
    "B01": Case(
        "digest",
        {"unwritten": False},
        "\n#ifdef __CUDA_ARCH_FEAT_SM90_ALL\nif (i < n) y[i] = a[i] + b[i];\n#endif\n",
        runtimes=CUDA,
    ),
    "C04": Case(
        "digest",
        {"repeats": None},
        "volatile LOCAL int total; if (LOCAL_ID_X == 0) { for (int t = 0; t < 5000; t++) total = t; total = 2; }"
        " if (i < n) y[i] = a[i] + b[i] + (float)(total & 1);",
        twin="volatile LOCAL int total; if (LOCAL_ID_X == 0) { for (int t = 0; t < 5000; t++) total = t; total = 2; }"
        " BARRIER; if (i < n) y[i] = a[i] + b[i] + (float)(total & 1);",
        runtimes=CUDA,
    ),
    "C05": Case(
        "digest",
        {"zones": False},
        "int at = i / 72 * 143 + i % 72 * 2; if (at < n) { y[at] = a[at] + b[at]; y[at + 1] = a[at + 1] + b[at + 1]; }",
        passed=arguments(7 * 143),
        runtimes=CUDA,
    ),
    "C07": Case(
        "numeric",
        {"error": False},
        "int r = i / 10, c = i % 10; if (i < 100) y[r * 10 + c] = a[i] + 1.0f;",
        twin="int r = i / 10, c = i % 10; if (i < 100) y[r * 16 + c] = a[i] + 1.0f;",
        head="GLOBAL float *y, GLOBAL const float *a",
        passed=(tensor("y", "inout", 10, 16), tensor("a", "input", 10, 10)),
        reference=STRIDED,
    ),
    "C08": Case(
        "numeric",
        {"classes": False},
        "if (i < 40) { float m = a[3 * i]; for (int c = 1; c < 3; c++) m = fmax(m, a[3 * i + c]); y[i] = m; }",
        **MAXIMUM,
    ),
    "C14": Case(
        "numeric",
        {"error": False},
        "if (i < 40) { float m = 0.0f; for (int c = 0; c < 3; c++) { float v = a[3 * i + c];"
        " m = v > m || v != v ? v : m; } y[i] = m; }",
        **MAXIMUM,
    ),
    "C10": Case(
        "digest",
        {"incumbent": False},
        "if (i < n) y[i] = fma(a[i], b[i], -b[i] * b[i]);",
        twin="if (i < n) y[i] = TIMES(a[i], b[i]) - TIMES(b[i], b[i]);",
        more={"bits": "identical"},
    ),
    "C11": Case(
        "digest",
        {"repeats": None},
        "atomicAdd(y, i < n ? a[i] + b[i] : 0.0f);",
        twin="if (i == 0) { float s = 0.0f; for (int c = 0; c < 1000; c++) s += a[c] + b[c]; y[0] = s; }",
        passed=(tensor("y", "output", 1), *arguments(FLOATS)[1:]),
        launches=(Memset(memset="y"), kernel(grid=1 << 12, block=256)),
        runtimes=CUDA,
    ),
    "C16": Case(
        "digest",
        {"measured": False},
        "int at = (int)(blockIdx.x * blockDim.x + threadIdx.x); if ((long long)at < n) y[at] = a[at];",
        twin="long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x; if (at < n) y[at] = a[at];",
        head="unsigned char *y, const unsigned char *a, long long n",
        passed=(
            tensor("y", "output", HUGE, dtype="uint8"),
            tensor("a", "input", HUGE, dtype="uint8"),
            Argument(name="n", kind="scalar", dtype="int64", value=str(HUGE)),
        ),
        launches=(kernel(grid=HUGE // 1024, block=1024),),
        runtimes=CUDA,
    ),
}
ROWS = [
    pytest.param(name, runtime, marks=pytest.mark.gpu if runtime == "cuda" else (), id=f"{name}-{runtime}")
    for name, case in CASES.items()
    for runtime in case.runtimes
]


@pytest.fixture(scope="module")
def closing(beds: Callable[[Runtime], Bed]) -> Callable[[Runtime, Case, str], Closed]:
    """What closes a body under a case's contract; a twin that two cases share is judged once."""
    known: dict[object, Closed] = {}

    def judged(runtime: Runtime, case: Case, body: str) -> Closed:
        key = (runtime, case.gate, body, case.passed)
        if key not in known:
            bed = beds(runtime)
            known[key] = not_held(bed.judge(case.gate, case.subject(bed, body), case.reference).verdict)
        return known[key]

    return judged


@pytest.mark.parametrize(("name", "runtime"), ROWS)
def test_what_failed_elsewhere_closes_here(
    name: str, runtime: Runtime, closing: Callable[[Runtime, Case, str], Closed]
) -> None:
    case = CASES[name]
    found = closing(runtime, case, case.body)
    assert {check: found.get(check, True) for check in case.closes} == case.closes
    assert not closing(runtime, case, case.twin)


def test_an_include_that_changed_is_another_module_with_other_bits(beds: Callable[[Runtime], Bed]) -> None:
    """F01 and F14: one rig and one program text, and a constant of its include is another in the second build."""
    trial = Trial(beds("opencl").rig)
    text = b'#include "op/scale.h"\n' + opencl_kernel(
        "int i = get_global_id(0); if (i < n) y[i] = SCALE * a[i] + b[i];"
    )
    found = []
    for scale in (b"2.0f", b"3.0f", b"2.0f"):
        module = composed(trial.rig, b"#define SCALE " + scale + b"\n", text, paths=("op/scale.h", "op/k.h"))
        about = trial.subject(text)
        about = about.model_copy(update={"candidate": trial.arm("candidate", module)})
        found.append((module.identity, trial.run(about)))
    assert found[0] == found[2]
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1]
