"""A CUDA toolkit where the board that it compiles for is not: host gates have all they need, nothing is measured."""

import os
from collections.abc import Iterator

import pytest

from qualify import boards, cuda_toolkits
from qualify.bench import Rig
from qualify.boards import MEASURE_OUTPUT_BYTES, Place
from qualify.channel import Describe, Described
from qualify.children import Job, Nursery
from qualify.domain import Board, Limits
from qualify.errors import RigError
from qualify.toolkits import Toolkit, board_nodes, driver_environment
from tests.rigs import CUDA, RELEASE

ELSEWHERE = "sm_86"  # No machine that qualifies has this board and another one first.
DEVICE = Limits(block_threads=1024, shared_bytes=99 << 10, memory_bytes=5, source="driver")
TABLE = Limits(block_threads=512, parameter_bytes=32_764, source="table")


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig.open(CUDA, ELSEWHERE) as opened:
        yield opened


def test_a_rig_without_its_board_knows_the_target(rig: Rig) -> None:
    assert (rig.board, rig.domain_arch) == (None, ELSEWHERE)
    assert rig.limits.shared_bytes == 99 << 10
    digest = cuda_toolkits.digest(cuda_toolkits.files(*cuda_toolkits.find(RELEASE)))
    assert rig.toolkit_build.startswith(f"{CUDA}.")
    assert rig.toolkit_build.endswith(f"-{digest}")


def test_nothing_is_measured_without_a_board(rig: Rig) -> None:
    with pytest.raises(RigError, match="no board to measure on: no ") as caught, rig.measuring():
        pass
    assert caught.value.fix
    account = rig.account()
    assert isinstance(account, dict)
    started = account["workers_started"]
    assert isinstance(started, dict)
    assert started["measure"] == (1 if board_nodes() else 0)  # Only a board that is here was asked what it is.


@pytest.mark.parametrize(
    ("arch", "says"),
    [
        ("sm_90a", "expected the architecture of a board"),
        ("native", "native is no architecture here"),
        ("sm_52", "sm_52 is no target of the toolkit"),
        ("hopper", "expected the architecture of a board"),
    ],
)
def test_an_architecture_that_no_board_has_is_refused(arch: str, says: str) -> None:
    if arch == "native" and board_nodes():
        return
    with pytest.raises(RigError, match=says):
        Rig.open(CUDA, arch)


def test_a_device_that_compiles_has_one_architecture() -> None:
    with Rig.open("simulated-1.0", "virtual") as rig:
        assert rig.board is not None
    with pytest.raises(RigError, match=r"expected simulated-1\.0/sm_90 here, got virtual"):
        Rig.open("simulated-1.0", "sm_90")


def described(arch: str, limits: Limits) -> Described:
    board = Board(name="b", uuid="GPU-1", driver="13.0", addressing="device", limits=limits)
    return Described(version="13.0", toolkit_build="", arch=arch, board=board, limits=limits)


def test_what_a_driver_does_not_say_comes_from_the_table_and_says_so() -> None:
    toolkit = Toolkit("cuda-13.0", "cuda", "13.0", 1, None, apart=True)
    compiler = described("sm_86", TABLE).model_copy(update={"board": None})
    place = Place(toolkit, "sm_86", device=described("sm_86", DEVICE))
    merged = DEVICE.model_copy(update={"parameter_bytes": 32_764, "source": "driver; parameter_bytes: table"})
    assert place.limits(compiler) == merged
    assert place.board(compiler) == described("sm_86", DEVICE).board
    assert Place(toolkit, "sm_86").limits(compiler) == TABLE
    assert Place(toolkit, "sm_86").board(compiler) is None


def test_a_measuring_worker_says_why_it_cannot_describe_a_board() -> None:
    if board_nodes():
        return
    nursery = Nursery()
    try:
        child = nursery.start(
            Job("measure", "cuda", None, MEASURE_OUTPUT_BYTES, variables=driver_environment(os.environ))
        )
        assert nursery.unapplied >= {"memory limit where a driver reserves addresses"}
        with pytest.raises(RigError, match=r"expected the (module cuda.bindings|CUDA driver)") as caught:
            child.ask(Describe(), (), timeout_s=60.0)
        assert "traceback" not in str(caught.value)
    finally:
        nursery.close()


def test_a_board_that_is_not_here_is_no_worker() -> None:
    nursery = Nursery()
    toolkit = Toolkit("cuda-13.0", "cuda", "13.0", 1, None, apart=True, boards=False)
    place = boards.find(toolkit, "sm_90", nursery)
    nursery.close()
    assert place.lacking is not None
    assert (place.lacking.args[0], nursery.started["measure"]) == ("no CUDA board is here", 0)
    assert place.toolkit.compiler == {cuda_toolkits.ARCH_VARIABLE: "sm_90"}
    assert place.toolkit.on("GPU-1").device == {"CUDA_VISIBLE_DEVICES": "GPU-1"}
