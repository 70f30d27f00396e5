"""`python -m benchmarks.judgement.peer_nvbench CASES SECONDS`: cuda-bench, then nvbench-compare-robust.

Each arm has a process of its own, one after the other, since that is how the two files are made that the comparison
reads. With `--arm NAME GAIN OUT` it is such a process, and runs that arm of every family at that gain once.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.judgement.peer_launch import launchers
from benchmarks.judgement.peers import cases, say
from benchmarks.judgement.results import Line

COMPARE = "cuda.bench.scripts.nvbench_compare_robust"
NEAR_PPM = 10_000
STATUSES = ("FAST", "SLOW", "SAME", "AMBG", "????")


def main() -> int:
    """Gain by gain, both arms and the comparison, as long as another round as long as the longest fits."""
    path, seconds = Path(sys.argv[1]), float(sys.argv[2])
    if len(sys.argv) > 3:
        return one_arm([case for case in cases(path) if case["gain_ppm"] == int(sys.argv[5])], *sys.argv[4::2])
    importlib.import_module("cuda.bench")
    until_s, longest_s = time.monotonic() + seconds, 0.0
    for number, gain in enumerate(cycle(order({case["gain_ppm"] for case in cases(path)}))):
        started_s = time.monotonic()
        if started_s + longest_s >= until_s:
            break
        these = [case for case in cases(path) if case["gain_ppm"] == gain]
        found = dict(one_round(path, gain, number))
        round_s = time.monotonic() - started_s
        longest_s = max(longest_s, round_s)
        for case in these:
            say(_line(case, found.get(_name(case), "absent"), round_s / len(these)))
    return 0


def order(gains: Iterable[int]) -> list[int]:
    """Identical pairs first, then the gains near 1 %, at which the comparison begins to see any."""
    return sorted(gains, key=lambda gain: (gain > 0, abs(gain - NEAR_PPM)))


def one_round(path: Path, gain: int, number: int) -> Iterator[tuple[str, str]]:
    """What the comparison says of each family at one gain, by its benchmark's name."""
    files = {arm: path.parent / f"{arm}-{number}.json" for arm in ("incumbent", "candidate")}
    for arm, file in files.items():
        command = [sys.executable, "-m", __spec__.name, str(path), "0", "--arm", arm, str(gain), str(file)]
        subprocess.run(command, check=True, stdout=sys.stderr)
    command = [sys.executable, "-m", COMPARE, "--no-color", *map(str, files.values())]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    print(said, file=sys.stderr)
    return statuses(said)


def statuses(said: str) -> Iterator[tuple[str, str]]:
    """Name and status of every benchmark in the comparison's tables."""
    name = ""
    for text in said.splitlines():
        if text.startswith("# "):
            name = text[2:].strip()
        elif text.startswith("|"):
            yield from ((name, status) for status in STATUSES if status in text.rpartition("|")[0].rpartition("|")[2])


def one_arm(these: Iterable[Line], arm: str, out: str) -> int:
    """Register every case as a benchmark and run them all."""
    bench: Any = importlib.import_module("cuda.bench")
    for case in these:
        bench.register(_benchmark(case, arm)).set_name(_name(case))
    bench.run_all_benchmarks([sys.argv[0], "--jsonbin", out])
    return 0


def _benchmark(case: Line, arm: str) -> Callable[[Any], None]:
    def benchmark(state: Any) -> None:
        launch = launchers(case)[arm]
        state.exec(
            lambda launched: launch(launched.get_stream().addressof()), batched=False
        )  # The comparison reads cold.

    benchmark.__name__ = _name(case).replace("-", "_")
    return benchmark


def _name(case: Line) -> str:
    return f"{case['family']}-{case['gain_ppm']}"


def _line(case: Line, status: str, seconds: float) -> Line:
    outcome = {"FAST": "faster"}.get(status, status)
    return {"family": case["family"], "gain_ppm": case["gain_ppm"], "outcome": outcome, "seconds": seconds}


if __name__ == "__main__":
    sys.exit(main())
