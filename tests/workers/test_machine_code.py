"""An OpenCL object holds the machine code of its module's launches, so that no measuring worker makes any."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from qualify import toolkits
from qualify.bench import Rig
from qualify.boards import measuring_job
from qualify.children import Nursery
from qualify.compiling import Compilers
from qualify.contract import Kernel
from qualify.gate import WorkerLost
from qualify.identity import content
from qualify.sessions import MeasuringSession
from qualify.steps import Load
from tests.rigs import HONEST, composed, filled, sums
from tests.rigs import launched as steps

#: Kernels of the contract that end behind its elements: groups of every size, small grids and large ones.
LAUNCHES = tuple(
    Kernel(symbol="add", grid=grid, block=block)
    for grid, block in (
        ((10, 1, 1), (100, 1, 1)),
        ((65_534, 1, 1), (1, 1, 1)),
        ((65_535, 1, 1), (1, 1, 1)),
        ((1024, 1, 1), (64, 1, 1)),
        ((300, 300, 1), (4, 2, 1)),
        ((10, 3, 2), (100, 2, 1)),
    )
)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


def launched(pocl: Rig, nursery: Nursery, planned: Kernel, run: Kernel) -> bytes:
    """What a launch writes in a worker that cannot make machine code, of a module that was built for another one."""
    toolkit = toolkits.find("pocl-3.0")
    compilers = Compilers(nursery, toolkit)
    module = composed(pocl, HONEST["opencl"], launches=(planned,))
    _, data = compilers.made(module)
    assert data is not None
    child = nursery.start(measuring_job(replace(toolkit, tools={"ld": Path("/bin/false")})))
    session = MeasuringSession(child)
    session.open(compilers.harness())
    session.load({"candidate": (Load(arm="candidate", object_blake3=content(data), symbols=("add",)), data)}, 60)
    session.run([*filled(), *steps("candidate", (run,))], 60)
    return session.taken()[0]


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda each: f"{each.grid} of {each.block}")
def test_a_launch_of_the_module_needs_no_linker(launch: Kernel, pocl: Rig, nursery: Nursery) -> None:
    assert launched(pocl, nursery, launch, launch) == sums()


@pytest.mark.parametrize(
    ("planned", "run"),
    [
        (LAUNCHES[0], LAUNCHES[0].model_copy(update={"block": (50, 1, 1)})),
        (LAUNCHES[1], LAUNCHES[2]),
    ],
    ids=["other group", "larger grid"],
)
def test_any_other_launch_needs_one(planned: Kernel, run: Kernel, pocl: Rig, nursery: Nursery) -> None:
    with pytest.raises(WorkerLost):
        launched(pocl, nursery, planned, run)
