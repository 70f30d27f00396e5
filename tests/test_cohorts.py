"""The workspace's own cohorts: whole in every runtime, exact in their references, and each with its traps."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gates import GATES
from qualify import cohort, pipeline
from qualify.cohort import Cohort
from qualify.contract import Argument, Cell
from qualify.domain import Domain, Limits
from qualify.fill import generate, recipe
from qualify.model import ratio
from qualify.patterns import numpy_dtype

ROOT = Path(__file__).resolve().parent.parent
OPERATIONS = sorted(path.parent.name for path in (ROOT / "cohorts").glob("*/cohort.yaml"))
DOMAINS = (Domain(toolkit="pocl-3.0", arch="cpu"), Domain(toolkit="cuda-13.2", arch="sm_90"))
#: The quietly wrong route of each cohort: right in the round cell, and stopped elsewhere or everywhere by this gate.
TRAPS = {
    "column_sum": ("split", "digest"),  # The order of additions is another one.
    "gemm": ("fours", "numeric"),  # Terms beyond the last four are lost.
    "rmsnorm": ("first", "numeric"),  # Lanes past the end of a row add its last element instead of nothing.
    "softmax": ("bare", "numeric"),  # exp overflows.
    "transpose": ("vectors", "digest"),  # Rows start where no vector of four does.
    "vector_add": ("tail", "digest"),  # What is left over after the last four is not written.
}
INF, NAN, GREATEST = math.inf, math.nan, float(np.finfo(np.float32).max)
Matrix = Sequence[Sequence[float]]
Outputs = Mapping[str, Any]


def load(operation: str) -> Cohort:
    return cohort.load(ROOT, operation)


def exact(operation: str, cell: Mapping[str, object], **inputs: object) -> Outputs:
    """What the cohort's reference gives for these inputs."""
    source = load(operation).reference
    namespace: dict[str, Any] = {}
    exec(compile(source.code, source.path, "exec"), namespace)
    with np.errstate(all="ignore"):
        found: Outputs = namespace[source.function](cell, {name: np.asarray(value) for name, value in inputs.items()})
    return found


def tiny(found: Cohort) -> Cell:
    return next(cell for cell in found.cells if not cell.timed)


def values(argument: Argument) -> np.ndarray[Any, np.dtype[np.float64]]:
    """An input's ordinary values, or a scalar's, as a reference is given them."""
    if argument.kind == "scalar":
        return np.asarray(float(ratio(argument.value or "")), numpy_dtype(argument.dtype)).astype(np.float64)
    raw = generate(recipe(argument, "ordinary", "0123456789abcdef"), argument.elements)
    return np.frombuffer(raw, numpy_dtype(argument.dtype)).astype(np.float64).reshape(argument.shape)


# Whole ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_route_of_every_cell_composes_or_falls_back_by_its_own_words(operation: str, domain: Domain) -> None:
    found = load(operation)
    selection = cohort.subjects(found, domain, Limits(source="test"), "build 1")
    for subject in selection.subjects:
        assert subject.candidate.error is None, (subject.key, subject.candidate.error)
        composed = selection.composed[subject.candidate.identity or ""]
        assert next(iter(composed.fragments)) == f"common/{domain.runtime}.h"
        text = b"".join(composed.fragments.values()).decode()
        assert all(f"KERNEL void {symbol}(" in text for symbol in subject.candidate.symbols)
    planned = len(selection.subjects) + len(selection.falls_back) + len(selection.left_out) * len(found.routes)
    assert planned == len(found.cells) * len(found.routes)
    assert {left.route for left in selection.falls_back}.isdisjoint({"plain", TRAPS[operation][0]})


def test_both_halves_of_the_prelude_define_the_same_words() -> None:
    halves = [(ROOT / f"cohorts/common/{runtime}.h").read_text() for runtime in ("opencl", "cuda")]
    opencl, cuda = (set(re.findall(r"^#define (\w+)", half, re.MULTILINE)) for half in halves)
    assert cuda - opencl == {"INFINITY", "NAN"}  # OpenCL C brings them.
    assert opencl <= cuda


@pytest.mark.parametrize("operation", OPERATIONS)
def test_cells_are_round_ragged_and_tiny_and_the_tiny_one_is_not_timed(operation: str) -> None:
    found = load(operation)
    timed = [[extent for extent in cell.integers.values() if extent > 1] for cell in found.cells if cell.timed]
    assert any(all(extent % 64 == 0 for extent in extents) for extents in timed)
    assert any(math.prod(extents) % 64 for extents in timed)
    assert math.prod(tiny(found).integers.values()) <= 1024


def test_one_large_cell_has_elements_that_no_int_counts_and_is_planned_where_they_fit() -> None:
    found = load("transpose")
    (large,) = found.where_memory_allows
    (cell,) = [cell for cell in found.cells if cell.id == large]
    assert 1 << 31 < math.prod(cell.integers.values()) < 33 << 26
    assert not cell.timed
    domain = Domain(toolkit="cuda-13.2", arch="sm_90")
    for gibibytes, fits in ((16, False), (17, True)):
        limits = Limits(source="test", memory_bytes=gibibytes << 30)
        selection = cohort.subjects(found, domain, limits, "build 1")
        assert (large in {subject.cell.id for subject in selection.subjects}) is fits
        assert (large in {left.cell for left in selection.left_out}) is not fits
    policy = pipeline.load(ROOT)
    for stage in ("screen", "promote"):
        nodes = policy.order("default", stage, domain, GATES)
        (plain,) = [each for each in selection.subjects if each.role == "plain" and each.cell == cell]
        left = policy.too_large(nodes, plain)
        planned = pipeline.gates_for(nodes, plain, GATES, left).gates
        assert planned == ("contract", "compile", "occupancy", "residency", "digest")
        assert not policy.too_large(nodes, plain.model_copy(update={"arguments": found.arguments["f32-1024x256"]}))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_quietly_wrong_route_excuses_itself_from_no_cell_and_its_gate_is_screened(operation: str) -> None:
    route, gate = TRAPS[operation]
    row = load(operation).routes[route].row
    assert row is not None
    assert row.admits is None
    assert gate in (pipeline.load(ROOT).row.pipelines["default"].screen or ())
    wanted = json.loads((ROOT / "demo/expected.json").read_text())["screened"]
    ends = [ends for subject, ends in wanted.items() if re.fullmatch(f"{operation}/[^/]+/{route}", subject)]
    assert not ends or any(all(end.startswith(f"fail at {gate}") for end in each) for each in ends)


# Exact ---------------------------------------------------------------------------------------------------------------


def added(a: Sequence[float], b: Sequence[float], **_: object) -> list[float]:
    return [float(Fraction(left) + Fraction(right)) for left, right in zip(a, b, strict=True)]


def turned(x: Matrix, **_: object) -> list[list[float]]:
    return [[row[col] for row in x] for col in range(len(x[0]))]


def normalised(x: Matrix, w: Sequence[float], eps: float, **_: object) -> list[list[float]]:
    roots = [math.sqrt(sum(Fraction(each) ** 2 for each in row) / len(row) + Fraction(eps)) for row in x]
    return [[each / root * by for each, by in zip(row, w, strict=True)] for row, root in zip(x, roots, strict=True)]


def summed(x: Matrix, **_: object) -> list[float]:
    return [math.fsum(column) for column in turned(x)]


def shared(x: Matrix, **_: object) -> list[list[float]]:
    totals = [math.fsum(math.exp(each) for each in row) for row in x]
    return [[math.exp(each) / total for each in row] for row, total in zip(x, totals, strict=True)]


def product(a: Matrix, b: Matrix, **_: object) -> list[list[float]]:
    return [[math.fsum(x * y for x, y in zip(row, col, strict=True)) for col in turned(b)] for row in a]


INDEPENDENT: Mapping[str, tuple[str, Callable[..., object]]] = {
    "column_sum": ("y", summed),
    "gemm": ("c", product),
    "rmsnorm": ("y", normalised),
    "softmax": ("y", shared),
    "transpose": ("y", turned),
    "vector_add": ("c", added),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_reference_agrees_with_another_way_to_compute_it(operation: str) -> None:
    output, independent = INDEPENDENT[operation]
    found = load(operation)
    cell = tiny(found)
    arguments = found.arguments[cell.id]
    inputs = {each.name: values(each) for each in arguments if each.kind != "output"}
    got = exact(operation, {**cell.integers, **cell.names}, **inputs)[output]
    shape = next(each.shape for each in arguments if each.name == output)
    assert (got.dtype, got.shape) == (np.float64, shape)
    want = independent(**{name: value.tolist() for name, value in inputs.items()})
    np.testing.assert_allclose(got, np.asarray(want), rtol=1e-13, atol=1e-13)


def same(got: object, want: object) -> None:
    """Equal to float64's rounding, NaN where NaN is wanted, and each zero with its sign."""
    found, wanted = np.asarray(got), np.asarray(want)
    np.testing.assert_allclose(found, wanted, rtol=1e-13)
    zeros = wanted == 0
    assert (np.signbit(found)[zeros] == np.signbit(wanted)[zeros]).all()


@pytest.mark.parametrize(
    ("row", "want"),
    [
        ([1.0, NAN], [NAN, NAN]),
        ([INF, -1.0], [NAN, -0.0]),
        ([GREATEST, -GREATEST], [1.0, -1.0]),
        ([0.0, -0.0], [0.0, -0.0]),
    ],
)
def test_a_norm_of_what_is_not_ordinary(row: list[float], want: list[float]) -> None:
    same(exact("rmsnorm", {}, x=[row], w=[1.0, 1.0], eps=1e-5)["y"], [want])


@pytest.mark.parametrize(
    ("column", "want"),
    [
        ([1.0, NAN], NAN),
        ([INF, -INF], NAN),
        ([GREATEST, GREATEST, -GREATEST], INF),
        ([-GREATEST, -GREATEST, INF], NAN),
        ([GREATEST, 1.0, -GREATEST], 0.0),
        ([-0.0, -0.0], 0.0),
    ],
)
def test_a_sum_of_what_is_not_ordinary(column: list[float], want: float) -> None:
    same(exact("column_sum", {"cols": 1}, x=[[each] for each in column])["y"], [want])


@pytest.mark.parametrize(
    ("row", "want"),
    [
        ([1.0, NAN], [NAN, NAN]),
        ([INF, 1.0], [NAN, NAN]),
        ([-INF, -INF], [NAN, NAN]),
        ([-INF, 1.0], [0.0, 1.0]),
        ([GREATEST, -GREATEST], [1.0, 0.0]),
        ([-GREATEST, -GREATEST], [0.5, 0.5]),
    ],
)
def test_a_softmax_of_what_is_not_ordinary(row: list[float], want: list[float]) -> None:
    same(exact("softmax", {}, x=[row])["y"], [want])


@pytest.mark.parametrize("ta", [0, 1])
@pytest.mark.parametrize("tb", [0, 1])
def test_a_product_of_operands_that_lie_turned(ta: int, tb: int) -> None:
    a, b = [[1.0, NAN, 2.0], [-0.0, 3.0, INF]], [[1.0], [2.0], [0.5]]
    turned_a, turned_b = turned(a) if ta else a, turned(b) if tb else b
    same(exact("gemm", {"ta": ta, "tb": tb}, a=turned_a, b=turned_b)["c"], [[NAN], [INF]])
