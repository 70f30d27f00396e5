"""What a route could say to get an edge over plain, and why it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cohort.bench import FILES, edited, identity, refusal, write


@pytest.mark.parametrize("wish", ["priority: 5", "stream: side", "persisting_l2: 1", "clock_mhz: 1980"])
def test_a_launch_asks_for_nothing_but_geometry(wish: str, tmp_path: Path) -> None:
    """Streams, their priority, cache windows and clocks are the worker's, the same for both arms."""
    launch = '{symbol: fast, grid: ["rows // 4"], block: [64]'
    found = refusal(write(tmp_path, scale_cohort_yaml=edited(f"{launch}}}", f"{launch}, {wish}}}")))
    assert wish.partition(":")[0] in str(found)


def test_what_a_candidate_defines_leaves_plain_as_it_was(tmp_path: Path) -> None:
    (before, after) = (
        write(tmp_path / "before"),
        write(tmp_path / "after", scale_cohort_yaml=edited("options: []", 'options: ["-cl-opt-disable"]')),
    )
    assert identity(before, "plain") == identity(after, "plain")
    assert identity(before) != identity(after)


def test_a_shared_fragment_that_slows_plain_makes_another_plain(tmp_path: Path) -> None:
    """Its admissions close, and attempts against plain are counted on (docs/adr/0007)."""
    slower = FILES["common/opencl.h"] + "#define BARRIER barrier(CLK_GLOBAL_MEM_FENCE)\n"
    before, after = write(tmp_path / "before"), write(tmp_path / "after", common_opencl_h=slower)
    assert identity(before, "plain") != identity(after, "plain")
