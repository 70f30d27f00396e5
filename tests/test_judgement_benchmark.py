"""The machinery of `benchmarks/judgement` on the virtual board, whose planted gains are exact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.judgement import peer_nvbench, planting, results, table
from benchmarks.judgement.measuring import Wanted, measure
from benchmarks.judgement.planting import Line
from benchmarks.judgement.workloads import FAMILIES, Family, Work, lay
from qualify import cohort
from qualify.bench import Rig
from qualify.errors import RigError
from tests.gates.timings import FEW
from tests.rigs import CUDA

FAMILY = FAMILIES["simulated"][0]
LEAST = 5_000
IMMEDIATE_BYTES = 4


def wanted(**changes: Any) -> Wanted:
    usual: dict[str, Any] = {"families": [FAMILY.name], "gains_ppm": [0, LEAST], "gates": ["timing"]}
    few = {"timing": FEW, "trial": {"windows": 21}}
    return Wanted("simulated-1.0", 60, identical=1, planted=1, changes=few, **{**usual, **changes})


def verdicts(folder: Path) -> list[results.Line]:
    return [line for line in results.read(folder) if line["kind"] == "verdict"]


def test_a_planted_gain_is_admitted_and_an_identical_pair_is_not(tmp_path: Path) -> None:
    measure(wanted(), tmp_path, [])
    by_gain = {line["gain_ppm"]: line for line in verdicts(tmp_path)}
    assert {gain: line["outcome"] for gain, line in by_gain.items()} == {0: "fail", LEAST: "pass"}
    assert by_gain[LEAST]["long_ratio"] == pytest.approx(1.005, abs=1e-4)
    assert by_gain[LEAST]["spent_s"]["sessions"] == 5  # The probe's, three processes, the long runs'.
    said = table.printed([tmp_path])
    assert "- 0 of 200 identical pairs admitted: 0 of 1: not shown yet" in said
    assert f"- {FAMILY.name}: 0.5% found in 95%: 1 of 1: not shown yet" in said
    assert table.met([tmp_path])


def test_what_is_known_is_not_judged_again(tmp_path: Path) -> None:
    measure(wanted(gates=["trial"]), tmp_path / "first", [])
    measure(wanted(gates=["trial"], gains_ppm=[0, LEAST, 20_000]), tmp_path / "second", [tmp_path / "first"])
    assert sorted(line["gain_ppm"] for line in verdicts(tmp_path / "first")) == [0, LEAST]
    assert [line["gain_ppm"] for line in verdicts(tmp_path / "second")] == [20_000]
    assert "1 of 1" in table.printed([tmp_path / "first", tmp_path / "second"])


def test_a_tool_that_is_not_here_is_said_to_be_absent(tmp_path: Path) -> None:
    measure(wanted(gates=["trial"], gains_ppm=[0], peers=["nvbench"], peer_seconds=1), tmp_path, [])
    assert "nvbench was not measured: exit 1" in table.printed([tmp_path])


def kept(path: Path, *lines: dict[str, Any]) -> Path:
    where = {"kind": "run", "board": "b", "driver": "d", "domain": "x/y", "toolkit_build": "t"}
    rows = [{**where, "started_utc": "2026-11-30T00:00:00Z"}, *lines]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def verdict(gain_ppm: int, outcome: str, gate: str = "timing", seconds: float = 9.0) -> dict[str, Any]:
    return {"kind": "verdict", "family": FAMILY.name, "gain_ppm": gain_ppm, "gate": gate, "outcome": outcome} | {
        "seconds": seconds
    }


@pytest.mark.parametrize(
    ("lines", "missed"),
    [
        ([verdict(0, "fail")] * 200 + [verdict(LEAST, "pass")] * 20, []),
        ([verdict(0, "fail")] * 199 + [verdict(0, "pass")], ["identical pairs"]),
        ([verdict(LEAST, "pass")] * 18 + [verdict(LEAST, "inconclusive")] * 2, ["0.5% found"]),
        ([verdict(LEAST, "pass")] * 19 + [verdict(LEAST, "fail")], []),
        ([verdict(LEAST, "fail")], []),
        ([verdict(LEAST, "fail")] * 2, ["0.5% found"]),
        ([verdict(LEAST, "pass", "trial", 5.5)], ["trial under"]),
    ],
)
def test_a_miss_is_printed_as_a_miss(tmp_path: Path, lines: list[dict[str, Any]], missed: list[str]) -> None:
    place = kept(tmp_path / "r.jsonl", *lines)
    said = [text for text in table.printed([place]).splitlines() if text.endswith(": missed")]
    assert len(said) == len(missed)
    assert all(words in text for words, text in zip(missed, said, strict=True))
    assert table.met([place]) is not bool(missed)


def test_a_family_of_earlier_results_is_still_printed(tmp_path: Path) -> None:
    place = kept(tmp_path / "r.jsonl", verdict(0, "fail") | {"family": "no longer planted"}, verdict(0, "fail"))
    assert [text[:20] for text in table.printed([place]).splitlines() if text.endswith(" | 9.0 | - |")] == [
        f"| {FAMILY.name} | 0.0%"[:20],
        "| no longer planted ",
    ]


def test_work_follows_the_probed_line() -> None:
    works = planting.planted(Family("f", "chain", 256, 5_000, 30_000), Line(1_000, 2), 2_000)
    assert [work.gain_ppm for work in works] == [0, 2_000, 5_000, 10_000, 20_000, 30_000]
    assert [work.plain - work.lean for work in works] == [0, 5, 12, 25, 50, 75]  # Of 5,000 ns, 2 ns a step.


def test_nothing_is_planted_where_more_steps_took_no_longer() -> None:
    assert planting.through(10, 120.0, 30, 160.0) == Line(100.0, 2.0)
    with pytest.raises(RigError, match="expected 30 steps to take longer than 10, got 120 and 120 ns"):
        planting.through(10, 120.0, 30, 120.0)


@pytest.mark.parametrize("family", FAMILIES["cuda"], ids=lambda family: family.name)
def test_the_machine_code_of_two_arms_differs_in_the_number_of_steps_alone(tmp_path: Path, family: Family) -> None:
    few = planting.LEAST_STEPS
    lay(tmp_path, family, "cuda", (Work(0, few, few), Work(20_000, few, 1_003)))
    item = cohort.load(tmp_path, family.operation)
    with Rig.open(CUDA, "sm_90") as rig:
        found = cohort.subjects(item, rig.domain, rig.limits, rig.toolkit_build)
        rig.supply(found.composed, found.reference, bytes(32))
        for subject in found.subjects[1::2]:
            arms = [str(arm.identity) for arm in (subject.candidate, subject.incumbent)]
            objects = [rig.made(identity)[1] for identity in arms]
            assert arms[0] != arms[1]
            one, other = (data or b"" for data in objects)
            assert len(one) == len(other) > 0
            changed = sum(a != b for a, b in zip(one, other, strict=True))
            assert changed == 0 if subject.cell.id.endswith("-0ppm") else 0 < changed <= IMMEDIATE_BYTES


def test_statuses_are_read_from_the_tables_of_the_comparison() -> None:
    said = (
        "# stream-0\n\n## [0] NVIDIA H200\n\n| Ref | Cmp | Change | Status |\n|---|---|---|---|\n"
        "| 38 us | 38 us |  |  🔵 SAME  |\n\n# stream-20000\n\n| Ref | Cmp | Change | Status |\n"
        "| 38 us | 37 us | <= -1.0% |  🟢 FAST  |\n\n# Summary\n\n- Total Matches: 2\n"
    )
    assert dict(peer_nvbench.statuses(said)) == {"stream-0": "SAME", "stream-20000": "FAST"}


def test_other_tools_take_identical_pairs_first() -> None:
    assert peer_nvbench.order({0, 2_000, 5_000, 10_000, 20_000, 30_000}) == [0, 10_000, 5_000, 2_000, 20_000, 30_000]
