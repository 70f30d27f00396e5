"""pipelines.yaml is checked whole, at its lines; a stage has one order; policy leaves gates out and says so."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from qualify import pipeline
from qualify.contract import Argument, Arm, Cell, Numeric, Timing
from qualify.domain import Domain, Limits
from qualify.errors import InputError, UsageError
from qualify.gate import Bench, Facts, Gate, Rule, Settings
from qualify.identity import content
from qualify.model import Ratio
from qualify.pipeline import Pipelines, gates_for, load
from qualify.plan import Omitted
from qualify.subject import Subject

POCL = Domain(toolkit="pocl-3.0", arch="cpu")
CUDA = Domain(toolkit="cuda-13.2", arch="sm_90")


class Windows(Settings):
    windows: Annotated[int, Field(ge=1)] = 21
    floor: Ratio = "1"


def _no_checks(_subject: Subject) -> frozenset[str]:
    return frozenset()


def gate(name: str, runs: Literal["host", "device"] = "host", *, is_timed: bool = False) -> Gate[Any, Any]:
    class Made(Gate[Facts, Windows]):
        id: ClassVar[str] = name
        claim: ClassVar[str] = "a test"
        runs_on: ClassVar[Literal["host", "device"]] = runs
        timed: ClassVar[bool] = is_timed
        rules: ClassVar[tuple[Rule[Any, Any], ...]] = (Rule(7, Facts, Windows, _no_checks, lambda *_: ()),)

        def measure(self, subject: Subject, bench: Bench, settings: Windows) -> Facts:
            return Facts()

    return Made()


GATES: Mapping[str, Gate[Any, Any]] = {
    "contract": gate("contract"),
    "build": gate("build"),
    "bits": gate("bits", "device"),
    "memcheck": gate("memcheck", "device"),
    "trial": gate("trial", "device", is_timed=True),
}
GOOD = """\
domains:
  - {toolkit: cuda-13.2, arch: sm_90}
  - {toolkit: pocl-3.0, arch: native}
gates:
  contract: {cost_s: 0.01}
  build: {cost_s: 0.5, needs: [contract]}
  bits: {cost_s: 2, needs: [build]}
  memcheck: {cost_s: 60, needs: [bits], runtimes: [cuda]}
  trial: {cost_s: 3, needs: [bits], settings: {windows: 21}}
pipelines:
  default: {screen: [contract, build, bits, trial, memcheck], promote: all}
  long: {settings: {trial: {windows: 101, floor: 11/10}}}
"""


def read(folder: Path, text: str = GOOD) -> Pipelines:
    (folder / "pipelines.yaml").write_text(text)
    return load(folder)


def test_the_order_is_cheapest_first_among_those_whose_needs_came_before(tmp_path: Path) -> None:
    nodes = read(tmp_path).order("default", "screen", CUDA, GATES)
    assert [node.gate for node in nodes] == ["contract", "build", "bits", "trial", "memcheck"]
    trial = nodes[3]
    assert (trial.rule, trial.runs_on, trial.needs, trial.cost_s) == (7, "device", ("bits",), "3")
    assert trial.settings == {"windows": 21, "floor": "1"}
    assert trial.source_blake3 == content(Path(__file__).read_bytes())


def test_a_pipeline_takes_stages_from_default_and_overrides_settings(tmp_path: Path) -> None:
    nodes = read(tmp_path).order("long", "screen", CUDA, GATES)
    assert nodes[3].settings == {"windows": 101, "floor": "11/10"}


def test_until_ends_the_order_and_must_be_in_it(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert [node.gate for node in found.order("default", "screen", CUDA, GATES, "build")] == ["contract", "build"]
    with pytest.raises(UsageError, match=r"\(contract, build, bits, trial\), got memcheck"):
        found.order("default", "screen", POCL, GATES, "memcheck")
    with pytest.raises(UsageError, match=r"a pipeline of pipelines.yaml \(default, long\), got none"):
        found.order("none", "screen", POCL, GATES)


def test_a_gate_of_another_runtime_is_left_out_on_record(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert "memcheck" not in [node.gate for node in found.order("default", "screen", POCL, GATES)]
    assert found.left_out("default", "screen", POCL, GATES) == (Omitted(gate="memcheck", reason="runs on cuda only"),)
    assert found.left_out("default", "screen", CUDA, GATES) == ()


def test_proving_is_promoting_without_what_takes_times_on_record(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert [node.gate for node in found.order("default", "prove", CUDA, GATES)] == [
        "contract",
        "build",
        "bits",
        "memcheck",
    ]
    kept_out = {each.gate: each.reason for each in found.left_out("default", "prove", POCL, GATES)}
    assert kept_out == {"memcheck": "runs on cuda only", "trial": "prove takes no times"}


LARGE = GOOD.replace("runtimes: [cuda]", "elements: {opencl: 100}")


@pytest.mark.parametrize(("rows", "planned"), [(9, True), (10, True), (11, False)])
def test_a_cell_that_is_too_large_for_a_gate_has_it_left_out_on_record(
    tmp_path: Path, rows: int, planned: bool
) -> None:
    found = read(tmp_path, LARGE)
    about = subject("plain", timed=True)
    buffers = [Argument(name=name, kind="input", dtype="float32", shape=(rows, 5)) for name in ("a", "b")]
    about = about.model_copy(update={"arguments": (*buffers, Argument(name="n", kind="scalar", dtype="int32"))})
    nodes = found.order("default", "screen", POCL, GATES)
    too_large = found.too_large(nodes, about)
    reason = Omitted(gate="memcheck", reason=f"{10 * rows} elements, and 100 at most on opencl")
    assert too_large == (() if planned else (reason,))
    made = gates_for(nodes, about, GATES, too_large)
    assert ("memcheck" in made.gates) == planned
    assert [item for item in made.omitted if item.gate == "memcheck"] == list(too_large)


def test_a_limit_holds_for_its_runtime_only(tmp_path: Path) -> None:
    found = read(tmp_path, LARGE)
    buffer = Argument(name="a", kind="input", dtype="float32", shape=(101,))
    about = subject("plain", timed=True).model_copy(update={"arguments": (buffer,), "domain": CUDA})
    assert found.too_large(found.order("default", "screen", CUDA, GATES), about) == ()


def subject(role: Literal["plain", "candidate"], *, timed: bool) -> Subject:
    arm = Arm(route="r", identity=None, launches=())
    return Subject(
        operation="o",
        domain=POCL,
        cell=Cell(id="c", integers={}, names={}, timed=timed),
        arguments=(),
        variants=("ordinary",),
        role=role,
        candidate=arm,
        incumbent=arm,
        bits="own",
        numeric=Numeric(cap_relative="1"),
        timing=Timing(),
        limits=Limits(source="test"),
    )


@pytest.mark.parametrize(
    ("role", "timed", "reason"),
    [
        ("plain", True, "plain is never timed"),
        ("candidate", False, "the cell is not timed"),
        ("candidate", True, None),
    ],
)
def test_timing_gates_are_not_planned_for_plain_and_untimed_cells(
    tmp_path: Path, role: Literal["plain", "candidate"], timed: bool, reason: str | None
) -> None:
    found = read(tmp_path)
    nodes, left_out = found.order("default", "screen", POCL, GATES), found.left_out("default", "screen", POCL, GATES)
    planned = gates_for(nodes, subject(role, timed=timed), GATES, left_out)
    assert ("trial" in planned.gates) == (reason is None)
    assert planned.omitted == left_out + (() if reason is None else (Omitted(gate="trial", reason=reason),))


def test_a_gate_may_need_one_that_is_planned_wherever_it_is_itself(tmp_path: Path) -> None:
    limited = GOOD.replace("cost_s: 2,", "cost_s: 2, elements: {opencl: 9},")
    for most, fits in ((9, True), (8, True), (10, False)):
        text = limited.replace("3, needs: [bits],", f"3, needs: [bits], elements: {{opencl: {most}}},")
        if fits:
            assert read(tmp_path, text).order("default", "screen", POCL, GATES)
            continue
        with pytest.raises(InputError, match="more than 9 elements"):
            read(tmp_path, text)


@pytest.mark.parametrize(
    ("old", "new", "says", "fix"),
    [
        (
            "pipelines:\n",
            "  bild: {cost_s: 1}\npipelines:\n",
            "10: gates.bild: expected a gate (contract, build,",
            "correct",
        ),
        ("needs: [contract]", "needs: [contrakt]", "6: gates.build.needs[0]: expected a gate of this file", "add"),
        ("needs: [build]", "needs: [build, bits]", "7: gates.bits.needs: expected needs without a cycle", "remove"),
        ("cost_s: 3", "cost_s: -3", "9: gates.trial.cost_s: expected seconds", "write"),
        (
            "3, needs: [bits]",
            "3, needs: [memcheck]",
            "9: gates.trial.needs[0]: expected a gate that runs",
            "give trial",
        ),
        (
            "60, needs: [bits]",
            "60, needs: [trial]",
            "8: gates.memcheck.needs[0]: expected a gate that",
            "remove the need",
        ),
        (
            "3, needs: [bits],",
            "3, needs: [bits], elements: {opencl: -1},",
            "9: gates.trial.elements.opencl: expected at least 0",
            "write",
        ),
        (
            "cost_s: 2,",
            "cost_s: 2, elements: {opencl: 9},",
            "9: gates.trial.needs[0]: expected a gate of every",
            "remove",
        ),
        ("{windows: 21}", "{windows: 0}", "9: gates.trial.settings.windows: expected at least 1, got 0", "write"),
        ("{windows: 21}", "{window: 21}", "9: gates.trial.settings.window: expected one of floor", "write windows"),
        ("{windows: 101,", "{windows: many,", "12: pipelines.long.settings.trial.windows: expected an", "write"),
        ("{trial: {windows", "{trail: {windows", "12: pipelines.long.settings.trail: expected a gate", "correct"),
        ("bits, trial, memcheck]", "trail]", "11: pipelines.default.screen[2]: expected a gate of this", "correct"),
        ("trial, memcheck]", "bits]", "11: pipelines.default.screen[3]: expected each gate once", "remove one"),
        ("[contract, build, bits,", "[contract, bits,", "11: pipelines.default.screen[1]: expected what", "add build"),
        ("  default:", "  usual:", "10: pipelines.default: expected the pipeline default", "add default:"),
        ("arch: native", "arch: native, board: x", "3: domains[1].board: expected one of arch, toolkit", "remove it"),
        ("pocl-3.0, arch: native", "cuda-13.2, arch: sm_90", "3: domains[1]: expected each domain once", "remove one"),
        ("runtimes: [cuda]", "runtimes: [rocm]", "8: gates.memcheck.runtimes[0]: expected 'cuda', 'op", "write"),
        ("pocl-3.0", "pocl", "3: domains[1].toolkit: expected text that matches", "write it in that form"),
    ],
)
def test_a_malformed_file_is_refused_at_its_line(tmp_path: Path, old: str, new: str, says: str, fix: str) -> None:
    assert old in GOOD
    with pytest.raises(InputError) as caught:
        read(tmp_path, GOOD.replace(old, new)).order("default", "screen", CUDA, GATES)
    assert str(caught.value).startswith(f"pipelines.yaml:{says}"), str(caught.value)
    assert caught.value.fix.startswith(fix)


def test_a_cycle_is_named_along_its_path(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, GOOD.replace("contract: {cost_s: 0.01}", "contract: {cost_s: 0.01, needs: [bits]}"))
    path = caught.value.got.split(" -> ")
    assert path[0] == path[-1]
    assert set(pairwise(path)) == {("contract", "build"), ("build", "bits"), ("bits", "contract")}


names = st.sampled_from("abcdef")


@given(st.dictionaries(names, st.tuples(st.integers(0, 3), st.sets(names)), min_size=1))
def test_at_each_step_the_cheapest_gate_that_is_ready_comes_next(graph: dict[str, tuple[int, set[str]]]) -> None:
    rows = {
        name: pipeline.NodeRow(
            cost_s=str(cost), needs=tuple(need for need in sorted(needs) if need < name and need in graph)
        )
        for name, (cost, needs) in graph.items()
    }
    found = pipeline.cheapest_first(rows)
    assert sorted(found) == sorted(graph)
    done: set[str] = set()
    for name in found:
        ready = [other for other in graph if other not in done and set(rows[other].needs) <= done]
        assert name == min(ready, key=lambda other: (graph[other][0], other))
        done.add(name)


def test_the_pipelines_of_this_repository_are_read() -> None:
    found = load(Path(__file__).parents[1])
    cuda = [f"cuda-{release}/sm_90" for release in ("12.8", "13.0", "13.2")]
    assert [str(domain) for domain in found.domains] == [*cuda, "pocl-3.0/native"]
    assert found.source.startswith(b"#")
