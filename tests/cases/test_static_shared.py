"""E01: how much static shared memory a block may have follows the target's suffix and the assembler's release."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qualify.bench import Rig
from qualify.contract import Composed, FragmentRef, Kernel, Module, ReferenceSource
from qualify.identity import content, identify
from qualify.objectcode import Built
from tests.gates.build import buffer
from tests.rigs import CUDA

TEXT = b"""extern "C" __global__ void add(int *y) {
  __shared__ char tile[BYTES];
  tile[threadIdx.x * 7 % BYTES] = (char)y[0];
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x * 13 % BYTES];
}
"""
ROWS = [line.split() for line in (Path(__file__).parents[1] / "data/cases/E01.txt").read_text().splitlines()]
CEILINGS = {row[0]: dict(each.split("=") for each in row[1:]) for row in ROWS if row and row[0][0].isdigit()}


@pytest.fixture(scope="module")
def rig(rigs: Callable[[str, str], Rig]) -> Rig:
    return rigs(CUDA, "sm_90")


def built(rig: Rig, size_bytes: int, target: str) -> Built:
    """The kernel with an array of so many bytes."""
    module = Module(
        frontend="cuda",
        runtime="cuda",
        fragments=(FragmentRef(path="op/k.h", blake3=content(TEXT)),),
        options=(),
        defines={"BYTES": str(size_bytes)},
        launches=(Kernel(symbol="add", grid=(1, 1, 1), block=(32, 1, 1)),),
        arguments=(buffer("y", "output", 32, "int32"),),
        target=target,
        toolkit_build=rig.toolkit_build,
    )
    identity = identify("module", module)
    source = ReferenceSource(path="none.py", code=b"", function="none")
    rig.supply({identity: Composed(module, identity, {"op/k.h": TEXT})}, source, bytes(32))
    return rig.made(identity)[0]


@pytest.mark.parametrize("suffix", ["", "a"])
def test_one_byte_over_the_tools_own_ceiling_is_refused(suffix: str, rig: Rig) -> None:
    """Elsewhere a table is right that knows this release; a ceiling of ours would be wrong for one of the two."""
    ceilings = CEILINGS[rig.toolkit_build.split("-")[1]]
    ceiling = int(ceilings[f"90{suffix}"])
    whole = built(rig, ceiling, f"sm_90{suffix}")
    assert whole.state == "built", whole.log
    assert [entry.shared_bytes for entry in whole.entries] == [ceiling]
    over = built(rig, ceiling + 1, f"sm_90{suffix}")
    assert (over.state, over.object_blake3) == ("refused", None)
    assert f"{ceiling:#x} max" in over.log


def test_the_ceiling_moved_with_releases_and_suffixes() -> None:
    assert {int(row["90"]) for row in CEILINGS.values()} == {49152, 167936}
    assert {int(row["90a"]) for row in CEILINGS.values() if "90a" in row} == {49152, 167936, 232448}
