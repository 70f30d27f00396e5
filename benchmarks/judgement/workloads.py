"""What is judged: four families of kernels, and a workspace of cells in which plain does a known share more work.

Both arms compute the same bits. `work` is a number of steps, of a chain of dependent operations or of reads of 16
bytes; plain's is greater by what the planted gain asks for. Where nothing is planted both arms are the same source
with the same steps, built twice.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from qualify.domain import Runtime

ROOT = Path(__file__).resolve().parents[2]
KERNELS = Path(__file__).parent / "kernels"
PPM = 1_000_000
#: Gains in total time, in parts per million of the faster arm's; 0 is an identical pair.
GAINS_PPM = (0, 2_000, 5_000, 10_000, 20_000)
ELEMENTS_A_BLOCK = {"chain": 256, "cold": 1024, "stream": 1024}
_ONE = (
    "  - {name: one, kind: scalar, dtype: float32, value: 1}\n  - {name: zero, kind: scalar, dtype: float32, value: 0}"
)
_SPARE = "  - {name: spare, kind: input, dtype: float32, shape: [spare], align: 16}"
_MORE = {"chain": _ONE, "cold": _ONE, "stream": _SPARE}
COHORT = """\
operation: {operation}
dispatcher_revision: 1
arguments:
  - {{name: y, kind: output, dtype: float32, shape: [n], align: 16}}
  - {{name: x, kind: input, dtype: float32, shape: [n], align: 16}}
{more}
  - {{name: n, kind: scalar, dtype: int32, value: n}}
cells:
{cells}
routes:
  plain: {{fragments: [{plain}], launches: [{launch}], defines: {{STEPS: "{{plain_work}}", ARM: "0"}}}}
  lean: {{fragments: [{lean}], launches: [{launch}], defines: {{STEPS: "{{lean_work}}", ARM: "1"}}}}
plain: plain
bits: identical
numeric: {{multiple: 2, floor_ulp: 4, cap_relative: 1e-5}}
reference: reference.py:copied
{timing}"""
#: The virtual board has no cache, so it need not go round hundreds of sets in long runs.
_TIMING = {"simulated": "timing: {cache: hot}\n"}


@dataclass(frozen=True)
class Family:
    """One kind of kernel. `least_ppm` is the planted gain that DESIGN section 15 wants found.

    `target_ns` is how long a pass of the faster arm should take, None where its bytes say so.
    """

    name: str
    operation: str
    n: int
    target_ns: int | None
    least_ppm: int

    @property
    def gains_ppm(self) -> tuple[int, ...]:
        """What is planted, nothing first."""
        return tuple(sorted({*GAINS_PPM, self.least_ppm}))


@dataclass(frozen=True)
class Work:
    """Steps of both arms for one gain of a family."""

    gain_ppm: int
    lean: int
    plain: int


#: Sizes by runtime. On a board as in the recordings that the protocol was made with: 195 us and 5 us of arithmetic,
#: 128 MB and 8 MB of cold memory, the latter in some 4 us. A CPU device gets what it can judge in a minute, the virtual
#: board what is quick.
FAMILIES: Mapping[Runtime, tuple[Family, ...]] = {
    "cuda": (
        Family("compute-195us", "chain", 132 * 2048, 195_000, 5_000),
        Family("stream-128MB", "stream", 1 << 24, None, 5_000),
        Family("compute-5us", "chain", 132 * 256, 5_000, 10_000),
        Family("cold-8MB", "cold", 1 << 20, None, 30_000),
    ),
    "opencl": (
        Family("compute-400us", "chain", 1 << 12, 400_000, 5_000),
        Family("stream-1MB", "stream", 1 << 17, None, 5_000),
    ),
    "simulated": (
        Family("compute-195us", "chain", 256, 195_000, 5_000),
        Family("compute-25us", "chain", 256, 25_000, 10_000),
    ),
}


def lay(workspace: Path, family: Family, runtime: Runtime, works: Iterable[Work]) -> None:
    """Write the cohort of a family, with a cell for each of `works`, over what the workspace has of it."""
    folder = workspace / "cohorts" / family.operation
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    common = workspace / "cohorts/common"
    if not common.exists():
        shutil.copytree(ROOT / "cohorts/common", common)
    works = tuple(works)
    if runtime == "simulated":
        for steps in {steps for work in works for steps in (work.lean, work.plain)}:
            (folder / f"{steps}.k").write_text(_script(family, steps))
        plain, lean = '"{plain_work}.k"', '"{lean_work}.k"'
    else:
        shutil.copy(KERNELS / f"{family.operation}.k", folder)
        plain = lean = f'"common/{{runtime}}.h", {family.operation}.k'
    shutil.copy(KERNELS / "reference.py", folder)
    cells = "\n".join(_cell(family, work) for work in works)
    launch = (
        f'{{symbol: {family.operation}, grid: ["ceil_div(n, {ELEMENTS_A_BLOCK[family.operation]})"], block: [256]}}'
    )
    more = {"more": _MORE[family.operation], "timing": _TIMING.get(runtime, "")}
    names = {"operation": family.operation, "cells": cells, "launch": launch, **more}
    (folder / "cohort.yaml").write_text(COHORT.format(**names, plain=plain, lean=lean))


def cell_id(family: Family, work: Work) -> str:
    """The cell of one gain of a family."""
    return f"{family.name}-{work.gain_ppm}ppm"


def _cell(family: Family, work: Work) -> str:
    spare = 4 * max(work.plain, work.lean, 1)
    return (
        f"  - {{id: {cell_id(family, work)}, n: {family.n}, spare: {spare}, "
        f"plain_work: {work.plain}, lean_work: {work.lean}}}"
    )


def _script(family: Family, steps: int) -> str:
    """A kernel of the virtual board, on which a step is a nanosecond."""
    return json.dumps({"entries": {family.operation: {"does": "copy", "inputs": [1], "pass_ns": steps}}})
