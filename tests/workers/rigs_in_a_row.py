"""Rigs in a row in one process: prints which template and which compile worker served each of them, a line a rig.

After the second one the compile worker is killed, after the third one the template.
"""

import json
import os
import signal
import time

from qualify.bench import Rig
from tests.rigs import HONEST, Trial, sums
from tests.workers.processes import kind, state_and_parent, templates, workers


def opened() -> tuple[list[int], list[int]]:
    """One rig that serves a subject: its templates and its compile workers."""
    with Rig.open("simulated-1.0") as rig:
        trial = Trial(rig)
        if trial.run(trial.subject(HONEST["simulated"])) != sums():
            raise SystemExit("the rig computes wrong sums")
        compiling = [pid for pid in workers(os.getpid()) if kind(pid) == "compile"]
        return sorted(templates(os.getpid())), sorted(compiling)


def main() -> None:
    """Four rigs."""
    for victim in (None, 1, 0, None):
        found = opened()
        print(json.dumps(found), flush=True)
        if victim is not None:
            os.kill(found[victim][0], signal.SIGKILL)
            while state_and_parent(found[victim][0])[0] not in ("gone", "Z"):
                time.sleep(0.01)


if __name__ == "__main__":
    main()
