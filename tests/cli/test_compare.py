"""Outside implementations beside plain: what their readings say, what doubts them, and what has none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qualify import cohort
from qualify.bench import Rig
from qualify.comparators import Comparator
from qualify.compare import ComparatorReading, Compared, Request, compare
from qualify.contract import Cell
from qualify.errors import Exit, InputError, NothingSelected, UsageError
from qualify.gate import WorkerLost
from qualify.identity import content
from qualify.steps import Load
from tests.cli.workspaces import COHORT, REFERENCE, Workspace
from tests.rigs import ARGUMENTS, CUDA, N

SCRIPT = '{"entries": {"add": {"does": "add", "pass_ns": 400000}}}'
#: Comparators of the virtual board by the name that a reading has.
COMPARATORS = """
import itertools


def made(work, pass_ns):
    work.pass_ns = pass_ns
    return work, "numpy of the test 1.0"


def quick(cell, stream, buffers):
    def work():
        buffers["y"][:] = buffers["a"] + buffers["b"]

    assert (cell["n"], cell["id"] if "id" in cell else "none", stream) == (32, "none", 0)
    return made(work, 200_000)


def rough(cell, stream, buffers):
    def work():
        buffers["y"][:] = (buffers["a"] + buffers["b"]) * type(buffers["a"][0])(1.25)

    return made(work, 800_000)


def slow(cell, stream, buffers):
    work, library = quick(cell, stream, buffers)
    return made(work, 40_000_000)


passes = itertools.count()


def restless(cell, stream, buffers):
    def work():
        buffers["y"][:] = buffers["a"] + buffers["b"] + type(buffers["a"][0])(next(passes))

    return made(work, 200_000)


def greedy(cell, stream, buffers):
    def work():
        buffers["y"][:] = buffers["a"] + buffers["b"]
        buffers["a"][0] += 1

    return made(work, 200_000)


def missing(cell, stream, buffers):
    import a_library_that_is_not_here
"""


def make(folder: Path, *names: str, cell: str = "{id: small, n: 32}") -> Path:
    """A workspace of one operation for the virtual board, with these comparators."""
    rows = "".join(
        f"  - {{name: the {name} one, source: 'comparators.py:{name}', runtimes: [simulated], needs: get {name}}}\n"
        for name in names
    )
    made = folder / "cohorts/add"
    made.mkdir(parents=True)
    text = COHORT.replace("{id: small, n: 1000, timed: false}", cell).replace("cache: cold", "cache: hot")
    (made / "cohort.yaml").write_text(text + (f"comparators:\n{rows}" if rows else ""))
    (made / "reference.py").write_text(REFERENCE)
    (made / "comparators.py").write_text(COMPARATORS)
    for route in ("plain", "candidate", "next"):
        (made / f"{route}.k").write_text(SCRIPT)
    (folder / "pipelines.yaml").write_text(
        "domains:\n  - {toolkit: simulated-1.0, arch: virtual}\ngates:\n  contract: {cost_s: 0.001}\n"
        "pipelines:\n  default: {screen: [contract], promote: all}\n"
    )
    return folder


class Silent:
    """Nobody watches."""

    def measuring(self, text: str) -> None: ...

    def read(self, reading: ComparatorReading) -> None: ...


def run(workspace: Path) -> Compared:
    return compare(Request(workspace, "add"), Silent())


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ComparatorReading]:
    done = run(make(tmp_path_factory.mktemp("workspace"), "quick", "rough", "restless", "greedy"))
    assert (done.unread, done.absent, done.exit_code()) == ([], {}, Exit.DONE)
    return {reading.source.partition(":")[2]: reading for reading in done.readings}


def test_a_reading_is_the_route_over_the_comparator_on_the_same_clock(compared: dict[str, ComparatorReading]) -> None:
    quick, rough = compared["quick"], compared["rough"]
    assert (quick.windows, quick.rejected, quick.doubts) == (21, 0, ())
    assert 1.99 < float(quick.ratio) < 2.01
    assert 0.49 < float(rough.ratio) < 0.51
    assert 199_000 < quick.of_comparator.p50_ns <= quick.of_comparator.p95_ns < 201_000
    assert 399_000 < quick.of_route.p50_ns <= quick.of_route.p95_ns < 401_000


def test_the_error_is_that_against_the_exact_reference(compared: dict[str, ComparatorReading]) -> None:
    quick, rough = compared["quick"], compared["rough"]
    assert quick.of_comparator.error is not None
    assert quick.of_comparator.error <= 512  # Half a unit: one rounding.
    assert rough.of_comparator.error is not None
    assert rough.of_comparator.error > 1 << 30  # A quarter of the value.
    assert rough.doubts == ()  # How near is near enough is no reading's business.
    assert rough.of_route.error is not None
    assert rough.of_route.error <= 512


def test_a_reading_names_all_that_it_is_of(compared: dict[str, ComparatorReading]) -> None:
    text = "\n".join(compared["quick"].lines())
    parts = ("add small in simulated-1.0/virtual: the quick one", "numpy of the test 1.0", "comparators.py:quick")
    assert all(part in text for part in (*parts, "plain (add)", "y of float32", "hot cache", "virtual board", "ulp"))
    assert ComparatorReading.parse(compared["quick"].canonical()) == compared["quick"]


def test_what_a_gate_would_not_pass_is_a_doubt(compared: dict[str, ComparatorReading]) -> None:
    assert any("timed launches differ" in doubt for doubt in compared["restless"].doubts)
    assert "inputs changed" in compared["greedy"].doubts
    assert "doubt: inputs changed" in "\n".join(compared["greedy"].lines())


def test_what_cannot_be_measured_is_said_with_its_fix_and_the_others_are_read(tmp_path: Path) -> None:
    done = run(make(tmp_path, "missing", "slow", "absent", "quick"))
    assert [reading.comparator for reading in done.readings] == ["the quick one"]
    missing, slow, absent = done.unread
    assert missing.startswith("no reading of the missing one on small: refused in launch")
    assert "No module named 'a_library_that_is_not_here'" in missing
    assert missing.endswith("fix: get missing")
    assert "over ten times slower" in slow
    assert "has no function absent" in absent
    assert done.exit_code() == Exit.RIG


def test_the_command_prints_readings_and_leaves_no_evidence(tmp_path: Path) -> None:
    workspace = Workspace(make(tmp_path, "quick", "missing"))
    done = workspace.here("compare", "add", "--json")
    (line,) = done.out.splitlines()
    assert (done.code, json.loads(line)["comparator"]) == (4, "the quick one")
    assert "small in simulated-1.0/virtual: the quick one" in done.err
    assert "get missing" in done.err
    assert not (tmp_path / "evidence").exists()


def test_nothing_to_compare_is_said(tmp_path: Path) -> None:
    with pytest.raises(NothingSelected, match="no comparator"):
        run(make(tmp_path / "none"))
    with pytest.raises(NothingSelected, match="no comparator"):
        run(make(tmp_path / "untimed", "quick", cell="{id: small, n: 32, timed: false}"))
    with pytest.raises(UsageError, match="a cell of add, got big"):
        compare(Request(tmp_path / "none", "add", cells=frozenset({"big"})), Silent())
    with pytest.raises(UsageError, match="an operation of this workspace"):
        compare(Request(tmp_path / "none", "multiply"), Silent())


def test_nothing_but_a_comparison_reads_the_python(tmp_path: Path) -> None:
    workspace = make(tmp_path, "quick")
    (workspace / "cohorts/add/comparators.py").unlink()
    item = cohort.load(workspace, "add")
    assert not any(path.endswith("comparators.py") for path in item.inputs)
    with pytest.raises(InputError, match=r"comparators\.py"):
        run(workspace)
    (workspace / "cohorts/add/comparators.py").write_bytes(b"# \xff")
    with pytest.raises(InputError, match="UTF-8"):
        run(workspace)


# Workers -------------------------------------------------------------------------------------------------------------

QUICK = Comparator(
    path="cohorts/add/comparators.py",
    code=COMPARATORS,
    function="quick",
    cell=Cell(id="small", integers={"n": 32}, names={}),
    arguments=ARGUMENTS,
)


def load(data: bytes, symbol: str, *, compared: bool, toolkit: str = "simulated-1.0") -> str:
    """Why a measuring worker refuses to load a candidate."""
    step = Load(arm="candidate", object_blake3=content(data), symbols=(symbol,))
    with Rig.open(toolkit) as rig, rig.measuring(compared=compared) as session:
        with pytest.raises(WorkerLost) as lost:
            session.load({"candidate": (step, data)}, 30.0)
        return f"{lost.value.loss.how}: {lost.value.loss.log}"


def test_a_worker_that_runs_candidates_takes_no_python() -> None:
    assert "refused: object of" in load(QUICK.canonical(), "quick", compared=False)


def test_a_worker_that_compares_takes_no_candidate() -> None:
    assert "refused: no comparator" in load(SCRIPT.encode(), "add", compared=True)
    assert "refused: quick is loaded as add" in load(QUICK.canonical(), "add", compared=True)
    broken = QUICK.model_copy(update={"code": "def quick("})
    assert "refused: comparator: SyntaxError" in load(broken.canonical(), "quick", compared=True)


# On a board ----------------------------------------------------------------------------------------------------------

BOARD_COHORT = """\
operation: duplicate
dispatcher_revision: 1
arguments:
  - {name: y, kind: output, dtype: float32, shape: [n], align: 16}
  - {name: a, kind: input, dtype: float32, shape: [n], align: 16}
  - {name: n, kind: scalar, dtype: int32, value: n}
  - {name: cycles, kind: scalar, dtype: int32, value: cycles}
cells:
  - {id: short, n: 4096, cycles: 0}
  - {id: long, n: 4096, cycles: 200000}
routes:
  plain: {fragments: [plain.k], launches: [{symbol: duplicate, grid: ["ceil_div(n, 256)"], block: [256]}]}
plain: plain
bits: identical
numeric: {multiple: 2, floor_ulp: 4, cap_relative: 1e-5}
reference: reference.py:duplicate
timing: {use: launch, cache: cold}
state: []
comparators:
  - {name: "driver cuMemcpyDtoDAsync", source: "comparators.py:driver_copy", runtimes: [cuda]}
"""
BOARD_COMPARATORS = """
from functools import lru_cache

from cuda.bindings import driver

BYTES = 128 << 20


@lru_cache
def elsewhere():
    error, memory = driver.cuMemAlloc(2 * BYTES)
    assert int(error) == 0, error
    return int(memory)


def driver_copy(cell, stream, buffers):
    y, a = (buffers[name].__cuda_array_interface__ for name in ("y", "a"))
    assert y["shape"] == a["shape"] == (cell["n"],) and y["typestr"] == "<f4" and y["strides"] is None
    copies = [(y["data"][0], a["data"][0], 4 * cell["n"])]
    if cell["cycles"]:  # As long as the kernel spins.
        copies.append((elsewhere(), elsewhere() + BYTES, BYTES))

    def enqueue():
        for copy in copies:
            (error,) = driver.cuMemcpyDtoDAsync(*copy, stream)
            assert int(error) == 0, error

    return enqueue, f"CUDA driver {driver.cuDriverGetVersion()[1]}"
"""
BOARD_KERNEL = """\
extern "C" __global__ void duplicate(float *y, const float *a, int n, int cycles) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (long long start = clock64(); clock64() - start < cycles;) {}
    if (i < n) y[i] = a[i];
}
"""


@pytest.mark.gpu
def test_a_board_compares_a_copy_by_its_driver_with_a_kernel_in_graphs_and_without(tmp_path: Path) -> None:
    made = tmp_path / "cohorts/duplicate"
    made.mkdir(parents=True)
    (made / "cohort.yaml").write_text(BOARD_COHORT)
    (made / "comparators.py").write_text(BOARD_COMPARATORS)
    (made / "reference.py").write_text("def duplicate(cell, inputs):\n    return {'y': inputs['a']}\n")
    (made / "plain.k").write_text(BOARD_KERNEL)
    (tmp_path / "pipelines.yaml").write_text(
        f"domains:\n  - {{toolkit: {CUDA}, arch: native}}\ngates:\n  contract: {{cost_s: 0.001}}\n"
        "pipelines:\n  default: {screen: [contract], promote: all}\n"
    )
    done = compare(Request(tmp_path, "duplicate"), Silent())
    assert (done.unread, done.absent) == ([], {})
    found = {reading.cell: reading for reading in done.readings}
    assert [(found[cell].passes > 1, found[cell].doubts) for cell in ("short", "long")] == [(True, ()), (False, ())]
    for reading in found.values():
        assert (reading.windows, reading.of_comparator.error, reading.of_route.error) == (21, 0, 0)
        assert 0.1 < float(reading.ratio) < 10
        assert reading.library.startswith("CUDA driver 1")


@pytest.mark.gpu
def test_a_board_worker_that_runs_candidates_takes_no_python() -> None:
    comparator = QUICK.model_copy(update={"cell": Cell(id="c", integers={"n": N}, names={})})
    assert load(comparator.canonical(), "quick", compared=False, toolkit=CUDA).startswith("refused: ")
