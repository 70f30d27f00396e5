"""How long `qualify --help` takes, whole process, side by side with a Python that does nothing.

Each round runs both, in an order that alternates, so that both see the same machine. The median of the rounds' own
ratios is what moves least between machines; the target is under 150 ms.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 15
TARGET_MS = 150
COMMANDS = {
    "python -c pass": (sys.executable, "-c", "pass"),
    "qualify --help": (str(Path(sys.executable).with_name("qualify")), "--help"),
}


def main() -> int:
    """Print the table. Returns 1 if the median is over the target."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # What is installed has its bytecode after the first start.
    for command in COMMANDS.values():  # Once unmeasured: bytecode written, files cached.
        run_ms(command)
    rounds = [one_round(forward=index % 2 == 0) for index in range(ROUNDS)]
    print(f"{'whole process':<16} {'median ms':>10} {'least ms':>10}")
    for name in COMMANDS:
        times = [times_ms[name] for times_ms in rounds]
        print(f"{name:<16} {statistics.median(times):>10.1f} {min(times):>10.1f}")
    bare, help_ = COMMANDS
    ratio = statistics.median(times_ms[help_] / times_ms[bare] for times_ms in rounds)
    print(f"median of {ROUNDS} ratios: {ratio:.1f} x")
    median_ms = statistics.median(times_ms[help_] for times_ms in rounds)
    print(f"target: under {TARGET_MS} ms: {'met' if median_ms < TARGET_MS else 'missed'}")
    return 0 if median_ms < TARGET_MS else 1


def one_round(*, forward: bool) -> dict[str, float]:
    """Milliseconds of each command, run one after the other."""
    names = list(COMMANDS) if forward else list(reversed(COMMANDS))
    return {name: run_ms(COMMANDS[name]) for name in names}


def run_ms(command: tuple[str, ...]) -> float:
    """Wall time of one whole process in milliseconds. Raises CalledProcessError if it fails."""
    started = time.perf_counter_ns()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter_ns() - started) / 1e6


if __name__ == "__main__":
    sys.exit(main())
