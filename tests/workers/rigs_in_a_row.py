"""Rigs in a row in one process: prints which template and which compile worker served each of them, a line a rig.

After the second one the compile worker is killed, after the third one the template. The last two have work for two
compile workers, where there are as many cores.
"""

import json
import os
import signal
import time

from qualify.bench import Rig
from tests.rigs import HONEST, Trial, composed, sums
from tests.workers.processes import kind, state_and_parent, templates, workers


def opened(modules: int) -> tuple[list[int], list[int]]:
    """One rig that serves a subject and has that many modules: its templates and its compile workers."""
    with Rig.open("simulated-1.0") as rig:
        trial = Trial(rig)
        for number in range(1, modules):
            trial.arm("another", composed(rig, HONEST["simulated"] + b" " * number))
        if trial.run(trial.subject(HONEST["simulated"])) != sums():
            raise SystemExit("the rig computes wrong sums")
        while rig._compilers._idle.qsize() < min(modules, len(os.sched_getaffinity(0))):
            time.sleep(0.01)
        compiling = [pid for pid in workers(os.getpid()) if kind(pid) == "compile"]
        return sorted(templates(os.getpid())), sorted(compiling)


def main() -> None:
    """Six rigs."""
    for victim, modules in ((None, 1), (1, 1), (0, 1), (None, 1), (None, 2), (None, 2)):
        found = opened(modules)
        print(json.dumps(found), flush=True)
        if victim is not None:
            os.kill(found[victim][0], signal.SIGKILL)
            while state_and_parent(found[victim][0])[0] not in ("gone", "Z"):
                time.sleep(0.01)


if __name__ == "__main__":
    main()
