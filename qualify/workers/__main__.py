"""`python -P -m qualify.workers compile|measure|reference NAME`: one worker on an inherited socket."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import traceback
from collections.abc import Callable

from qualify.channel import Channel, Closed, Crash, FromWorker, Ready, ToWorker, Unable
from qualify.errors import QualifyError
from qualify.workers import sandbox

#: Workers that drive a board apart from the machine: the driver opens files of its own at any time.
BOARD_DRIVERS = (("measure", "cuda"), ("measure", "cuda_compared"), ("measure", "cuda_separate"))
Serve = Callable[[Channel[ToWorker], str], None]
_MAX_TRACEBACK_CHARS = 16_384


def main() -> None:
    """One worker in a process that was started for it."""
    parser = argparse.ArgumentParser(prog="python -P -m qualify.workers")
    parser.add_argument("kind", choices=("compile", "measure", "reference"))
    parser.add_argument("name")
    parser.add_argument("--channel", type=int, required=True, help="descriptor of the inherited socket")
    parser.add_argument("--parent", type=int, help="process to die with; whoever started this one if left out")
    parser.add_argument("--memory", type=int, help="address space in bytes; no limit if left out")
    given = parser.parse_args()
    work(given.kind, given.name, given.channel, given.parent or os.getppid(), given.memory)


def work(kind: str, name: str, descriptor: int, parent: int, memory_bytes: int | None) -> None:
    """Be a worker on the socket `descriptor`: limits first, then requests until the parent closes it."""
    unapplied = sandbox.apply(parent, memory_bytes, drives_board=(kind, name) in BOARD_DRIVERS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(descriptor, False)
    with Channel(descriptor, ToWorker) as channel:
        channel.send(FromWorker(message=Ready(unapplied=unapplied)))
        _serve(channel, kind, name)


def _serve(channel: Channel[ToWorker], kind: str, name: str) -> None:
    """Serve until the end. An exception of the worker's own code is sent as such and ends the worker."""
    try:
        _server(kind)(channel, name)
    except Closed:
        return
    except QualifyError as error:
        message = error.args[0] if error.args else str(error)
        channel.send(FromWorker(message=Unable(message=str(message), fix=error.fix)))
    except Exception:  # noqa: BLE001 -- the parent must learn of any bug as the rig's own, with its traceback.
        channel.send(FromWorker(message=Crash(traceback=traceback.format_exc()[-_MAX_TRACEBACK_CHARS:])))


def _server(kind: str) -> Serve:
    """The worker's module is imported by name and late, so that no worker pays for another's libraries."""
    serve: Serve = importlib.import_module(f"qualify.workers.{kind}").serve
    return serve


if __name__ == "__main__":
    main()
