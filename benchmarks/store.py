"""Adding a run to a store of 10 runs and to one of 10,000, side by side; beside them, reading the whole history.

The older runs are fabricated: each has a plan that names the run before it, and a manifest. Runs are added in turns
to both stores, with everything that opening and sealing does, fsync included. The target is the ratio: what is read
does not grow with the store.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from qualify.domain import Domain
from qualify.evidence import layout
from qualify.evidence.manifest import MANIFEST
from qualify.evidence.store import Store
from qualify.judgement import JUDGEMENT
from qualify.plan import Plan, RunRecord

SIZES = (10, 10_000)
ROUNDS = 15
MOST_TIMES_SLOWER = 1.5
SEED = bytes(32)
INPUTS = {"pipelines.yaml": b"gates: {}\n"}


def main() -> int:
    """Print the table. Returns 1 if the large store is slower than the target."""
    with TemporaryDirectory() as folder:
        stores = {size: fabricated(Path(folder) / f"evidence-{size}", size) for size in SIZES}
        whole_ms = {size: timed_ms(store.history) for size, store in stores.items()}
        added_ms: dict[int, list[float]] = {size: [] for size in SIZES}
        for number in range(ROUNDS):
            for size in SIZES if number % 2 else reversed(SIZES):
                started = time.perf_counter_ns()
                add(stores[size], f"added-{number}")
                added_ms[size].append((time.perf_counter_ns() - started) / 1e6)
    print(f"{'runs in the store':<20} {'add one, median ms':>20} {'read all, ms':>14}")
    for size in SIZES:
        print(f"{size:<20} {statistics.median(added_ms[size]):>20.1f} {whole_ms[size]:>14.0f}")
    small, large = (added_ms[size] for size in SIZES)
    ratio = statistics.median(after / before for before, after in zip(small, large, strict=True))
    met = ratio <= MOST_TIMES_SLOWER
    print(f"median of {ROUNDS} ratios: {ratio:.2f} x")
    print(f"target: at most {MOST_TIMES_SLOWER} x: {'met' if met else 'missed'}")
    return 0 if met else 1


def timed_ms(call: Callable[[], object]) -> float:
    """Wall time of one call in milliseconds."""
    started = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - started) / 1e6


def plan(run: str, after: tuple[str, ...]) -> Plan:
    """A plan without subjects: opening and sealing it costs as little as a run can."""
    return Plan(
        judgement=JUDGEMENT,
        run=run,
        command="screen",
        pipeline="default",
        until=None,
        operation="add",
        dispatcher_revision=1,
        domain=Domain(toolkit="simulated-1.0", arch="virtual"),
        toolkit_build="1.0.0",
        board=None,
        after=after,
        nodes=(),
        subjects=(),
        falls_back=(),
        seed_sha256=hashlib.sha256(SEED).hexdigest(),
        inputs_sha256={path: hashlib.sha256(data).hexdigest() for path, data in INPUTS.items()},
    )


def fabricated(root: Path, size: int) -> Store:
    """A store with a chain of runs, each no more than its plan and a manifest."""
    after: tuple[str, ...] = ()
    (root / layout.OPENED).mkdir(parents=True)
    for number in range(size):
        run = f"run-{number:05}"
        (root / layout.OPENED / f"{run}.json").write_bytes(plan(run, after).canonical())
        listed = f"{'0' * 64}  {run}\n".encode()
        (root / layout.RUNS / run).mkdir(parents=True)
        (root / layout.RUNS / run / MANIFEST).write_bytes(listed)
        after = (hashlib.sha256(listed).hexdigest(),)
    os.sync()
    return Store(root)


def add(store: Store, run: str) -> None:
    """Open and seal one more run after the heads."""
    staged = store.open(plan(run, store.heads()), INPUTS, {})
    record = RunRecord(
        run=run,
        seed=SEED.hex(),
        ended="complete",
        started_utc="2026-01-01T00:00:00Z",
        ended_utc="2026-01-01T00:00:01Z",
        versions={},
        rig=None,
    )
    staged.seal(record)


if __name__ == "__main__":
    sys.exit(main())
