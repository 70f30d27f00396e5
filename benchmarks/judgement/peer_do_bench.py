"""`python -m benchmarks.judgement.peer_do_bench CASES SECONDS`: Triton's do_bench on both arms; lower median wins."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

from benchmarks.judgement.peer_launch import launchers
from benchmarks.judgement.peers import cases, say
from benchmarks.judgement.results import Line


def main() -> int:
    """Round after round over all cases until the seconds are over."""
    path, seconds = Path(sys.argv[1]), float(sys.argv[2])
    torch, testing = importlib.import_module("torch"), importlib.import_module("triton.testing")
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    rows = [(case, launchers(case)) for case in cases(path)]
    until_s = time.monotonic() + seconds
    while rows and time.monotonic() < until_s:
        for case, launch in rows:
            if time.monotonic() >= until_s:
                break
            started_s = time.monotonic()
            took = {
                arm: float(testing.do_bench(lambda arm=arm, of=launch: of[arm](0), return_mode="median"))
                for arm in ("incumbent", "candidate")
            }
            say(_line(case, took, time.monotonic() - started_s))
    return 0


def _line(case: Line, took: dict[str, float], seconds: float) -> Line:
    faster = took["candidate"] < took["incumbent"]
    return {
        "family": case["family"],
        "gain_ppm": case["gain_ppm"],
        "outcome": "faster" if faster else "not faster",
        "ratio": took["incumbent"] / took["candidate"],
        "seconds": seconds,
    }


if __name__ == "__main__":
    sys.exit(main())
