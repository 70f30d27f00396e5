"""`python -m benchmarks.judgement`: pairs through gates trial and timing, then through other tools; or the tables.

It measures until its seconds are over and keeps every line at once, so several short runs on a board add up: what is
judged next is whatever the results so far have least of. `--table` prints what result files say and measures nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.judgement import table
from benchmarks.judgement.measuring import Wanted, measure
from qualify import cuda_toolkits

RESULTS = Path(__file__).parent / "results"


def main() -> int:
    """Measure or print. Returns 1 if a target is missed, as far as it was measured."""
    given = arguments()
    if not given.table:
        wanted = Wanted(
            toolkit=given.toolkit,
            seconds=given.seconds,
            identical=given.identical,
            planted=given.planted,
            families=given.family,
            gains_ppm=given.gain_ppm,
            gates=given.gate,
            peers=given.peer,
            peer_seconds=given.peer_seconds,
        )
        measure(wanted, given.results, [*given.known, given.results])
    places = [*given.known, given.results]
    print(table.printed(places))
    return 0 if table.met(places) else 1


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judgement", description=__doc__)
    newest = max((release for release, _ in cuda_toolkits.here()), default=(13, 2))
    parser.add_argument("--toolkit", default="cuda-{}.{}".format(*newest), help="the newest CUDA here")
    parser.add_argument("--seconds", type=float, default=600, help="of verdicts, 600")
    parser.add_argument("--identical", type=int, default=50, help="identical pairs a family, 50: 200 together")
    parser.add_argument("--planted", type=int, default=20, help="pairs of each planted gain, 20")
    parser.add_argument("--family", action="append", help="only this one; may be repeated")
    parser.add_argument("--gain-ppm", action="append", type=int, help="only this one; may be repeated")
    parser.add_argument("--gate", action="append", choices=("trial", "timing"), help="only this one")
    parser.add_argument("--peer", action="append", choices=("do_bench", "nvbench"), help="beside; may be repeated")
    parser.add_argument("--peer-seconds", type=float, default=60, help="of each other tool, 60")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of results")
    parser.add_argument("--known", type=Path, action="append", default=[], help="more results that count")
    parser.add_argument("--table", action="store_true", help="print the tables and measure nothing")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
