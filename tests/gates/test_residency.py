"""Gate residency: a board's answers that are the host's, every one that is not, and the questions on real devices."""

from collections.abc import Iterator
from typing import Any

import pytest

from gates.residency import Asked, Figures, ResidencyFacts, ResidencyGate, ResidencySettings
from qualify.bench import Rig
from qualify.contract import Kernel
from qualify.domain import Domain
from qualify.verdict import Verdict
from tests.gates.beds import Bed
from tests.gates.build import LIMITS, arm, check, kernel, not_held, subject, verdict
from tests.rigs import CUDA, HONEST, Trial, composed

FIGURES = Figures(
    registers=64, local_bytes=16, shared_bytes=1024, block_threads=1024, parameters=((0, 8), (8, 8), (16, 8), (24, 4))
)
SAME = Asked(symbol="add", host=FIGURES, barriers=1, device=FIGURES, blocks=4, clusters=None)
BLOCKS = kernel(grid=528, block=256)
TOGETHER = BLOCKS.model_copy(update={"cooperative": True})
PAIRS = BLOCKS.model_copy(update={"cluster": (2, 1, 1)})


def judged(asked: Asked, launch: Kernel = BLOCKS, multiprocessors: int | None = 132, arch: str = "sm_90") -> Verdict:
    about = subject(
        "cuda-13.2",
        domain=Domain(toolkit="cuda-13.2", arch=arch),
        candidate=arm("wide", launch),
        limits=LIMITS.model_copy(update={"shared_bytes": 232_448}),
    )
    return verdict("residency", about, ResidencyFacts(launches=(asked,), multiprocessors=multiprocessors))


def said(**device: Any) -> Asked:
    return SAME.model_copy(update={"device": FIGURES.model_copy(update=device)})


def test_equal_answers_pass_with_clusters_and_together_too() -> None:
    assert judged(SAME).outcome == "pass"
    assert judged(SAME, TOGETHER).outcome == "pass"
    assert judged(SAME.model_copy(update={"clusters": 264}), PAIRS).outcome == "pass"


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("registers", 65),
        ("registers", None),
        ("local_bytes", 0),
        ("shared_bytes", 1025),
        ("block_threads", 255),
        ("block_threads", 1025),
        ("parameters", ((0, 8), (8, 8), (16, 4), (20, 8))),
        ("parameters", None),
    ],
)
def test_a_figure_that_differs_is_nobodys_fault_and_opens_nothing(name: str, other: Any) -> None:
    found = judged(said(**{name: other}))
    assert not_held(found) == {name: None}
    assert (check(found, name).got or "").count("host") == 1


def test_registers_lower_the_boards_limit_of_threads() -> None:
    assert judged(said(block_threads=256)).outcome == "pass"


@pytest.mark.parametrize(
    ("changes", "arch", "closed"),
    [
        ({"blocks": 3}, "sm_90", {"blocks": None}),
        ({"blocks": 5}, "sm_90", {"blocks": None}),
        ({"blocks": 0}, "sm_90", {"blocks": None, "resident": False}),
        ({"blocks": None}, "sm_90", {"blocks": None, "resident": None}),
        ({"blocks": -1}, "sm_90", {"blocks": None, "resident": None}),
        ({}, "sm_91", {"blocks": None}),
    ],
)
def test_resident_blocks_are_the_hosts_and_some(changes: Any, arch: str, closed: Any) -> None:
    found = judged(SAME.model_copy(update=changes), arch=arch)
    assert not_held(found) == closed
    assert (check(found, "blocks").got or "").startswith("add: host ")


def test_where_sources_differ_the_board_settles_it_and_only_between_them() -> None:
    tiny = kernel(grid=528, block=32)
    figures = FIGURES.model_copy(update={"registers": 10, "shared_bytes": 0})
    asked = SAME.model_copy(update={"host": figures, "device": figures, "barriers": 0})
    for blocks, outcome in ((23, "inconclusive"), (24, "pass"), (32, "pass"), (33, "inconclusive")):
        assert judged(asked.model_copy(update={"blocks": blocks}), tiny, arch="sm_120").outcome == outcome


@pytest.mark.parametrize(
    ("grid", "multiprocessors", "state"), [(528, 132, True), (529, 132, False), (528, None, None), (528, 0, None)]
)
def test_a_cooperative_grid_is_held_whole(grid: int, multiprocessors: int | None, state: bool | None) -> None:
    launch = TOGETHER.model_copy(update={"grid": (grid, 1, 1)})
    assert check(judged(SAME, launch, multiprocessors), "cooperative").holds is state


@pytest.mark.parametrize(
    ("clusters", "closed"),
    [
        (0, {"resident": False, "clusters": None, "cooperative": False}),
        (None, {"resident": None, "clusters": None, "cooperative": None}),
        (265, {"clusters": None}),
        (263, {"cooperative": False}),
    ],
)
def test_clusters_are_counted_as_clusters(clusters: int | None, closed: Any) -> None:
    launch = TOGETHER.model_copy(update={"cluster": (2, 1, 1)})
    assert not_held(judged(SAME.model_copy(update={"clusters": clusters}), launch)) == closed


def test_answers_about_other_launches_decide_nothing() -> None:
    assert not_held(judged(SAME.model_copy(update={"symbol": "other"}))) == {"facts": None}


# Devices -------------------------------------------------------------------------------------------------------------


def test_a_device_that_knows_nothing_of_residency_leaves_it_unknown(simulated: Bed) -> None:
    found = simulated.judge("residency", simulated.subject(HONEST["simulated"])).verdict
    assert found.outcome == "inconclusive"
    assert not_held(found)["resident"] is None


@pytest.fixture(scope="module")
def board() -> Iterator[Rig]:
    with Rig.open(CUDA) as opened:
        yield opened


HEAD = 'extern "C" __global__ void add(float *y, const float *a, const float *b, int n)'
INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
SHARED = f"{HEAD} {{ __shared__ float s[1000]; {INDEX} s[threadIdx.x] = a[i % n]; __syncthreads(); "
SHARED += "if (i < n) y[i] = s[threadIdx.x] + b[i]; }"
STACK = f"{HEAD} {{ {INDEX} float t[64]; for (int j = 0; j < 64; ++j) t[(j * n) & 63] = a[(i + j) % n]; "
STACK += "if (i < n) y[i] = t[(int)b[i] & 63] + b[i]; }"
CALL = f"__device__ __noinline__ float deep(const float *a, int n) {{ {STACK[STACK.index('float t[64]') :]}"
CALL = CALL.replace("y[i] = t[(int)b[i] & 63] + b[i]", "return t[n & 63]").replace("(i + j) % n", "j % n")
CALL = CALL.replace("if (i < n) ", "") + f" {HEAD} {{ {INDEX} if (i < n) y[i] = deep(a, i + 1) + b[i]; }}"
BARRIERS = f"{HEAD} {{ {INDEX} " + "".join(f'asm volatile("bar.sync {b}, 256;" ::: "memory"); ' for b in range(16))
BARRIERS += "if (i < n) y[i] = a[i] + b[i]; }"
BOUND = HONEST["cuda"].decode().replace("void add", "void __launch_bounds__(256, 4) add")
WIDE = kernel(grid=4, block=256)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("text", "launch", "closed"),
    [
        (HONEST["cuda"].decode(), kernel(), {}),
        (HONEST["cuda"].decode(), kernel(grid=4, block=1000), {}),
        (HONEST["cuda"].decode(), kernel(shared_bytes=200 << 10), {}),
        (HONEST["cuda"].decode(), WIDE.model_copy(update={"cluster": (2, 1, 1)}), {}),
        (HONEST["cuda"].decode(), WIDE.model_copy(update={"cooperative": True}), {}),
        (HONEST["cuda"].decode(), kernel(grid=1 << 20, block=256, cooperative=True), {"cooperative": False}),
        (BOUND, WIDE, {}),
        (SHARED, WIDE, {}),
        (STACK, WIDE, {}),
        (CALL, WIDE, {}),
        (BARRIERS, WIDE, {}),
    ],
    ids="plain thousand dynamic cluster cooperative too-many bound static stack call barriers".split(),  # noqa: SIM905
)
def test_a_board_answers_as_the_host_did(board: Rig, text: str, launch: Kernel, closed: Any) -> None:
    trial = Trial(board)
    about = trial.subject(text.encode())
    module = composed(board, text.encode(), launches=(launch,))
    about = about.model_copy(update={"candidate": trial.arm("candidate", module)})
    facts = ResidencyGate().measure(about, board.bench(about, {}), ResidencySettings())
    assert not_held(verdict("residency", about, facts)) == closed, facts
