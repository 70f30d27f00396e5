"""`python -P -m qualify.workers.template`: libraries loaded once, a worker forked whenever one is asked for.

Loading libraries is most of a worker's start. A template loads them once, those of a kind when the first of it is asked
for, opens no device, runs no candidate code and keeps one thread, so that each fork is as fresh as a process of its
own. It ends with its parent, and its forks with it.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from qualify.model import Document
from qualify.workers import sandbox
from qualify.workers.__main__ import work

#: What each kind of worker needs beside its own module, by name of the worker where that matters.
_LIBRARIES = {
    "measure": "qualify.workers.devices.{name}",
    "compile": "qualify.workers.compilers.{module}",
    "reference": "qualify.patterns",
}
_MODULES = {"cuda": "nvrtc"}
MAX_REQUEST_BYTES = 1 << 16


def main() -> None:
    """Fork and reap as asked until the parent closes the socket."""
    parser = argparse.ArgumentParser(prog="python -P -m qualify.workers.template")
    parser.add_argument("--socket", type=int, required=True, help="descriptor of the inherited socket")
    parser.add_argument("--parent", type=int, required=True, help="process to die with")
    given = parser.parse_args()
    sandbox.die_with(given.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _build(Document)
    with socket.socket(fileno=given.socket) as asked:
        while _serve(asked):
            pass


@cache
def _load(kind: str, name: str) -> None:
    importlib.import_module(f"qualify.workers.{kind}")
    with suppress(ImportError):  # A worker without its library says itself what to install.
        importlib.import_module(_LIBRARIES[kind].format(name=name, module=_MODULES.get(name, name)))
        if name == "opencl":
            importlib.import_module("qualify.workers.pocl").load_ahead()
    _build(Document)
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise RuntimeError(f"a template forks, so it has one thread; its libraries started {threads - 1} more")
    gc.collect()
    gc.freeze()


def _build(kind: type[Document]) -> None:
    """Build every model, which is put off until its first use: each fork would do it again."""
    for each in kind.__subclasses__():
        each.model_rebuild()
        _build(each)


def _serve(asked: socket.socket) -> bool:
    """Answer one request; false at the end of them."""
    data, descriptors, _, _ = socket.recv_fds(asked, MAX_REQUEST_BYTES, 2)
    if not data:
        return False
    request: dict[str, Any] = json.loads(data)
    if "reap" in request:
        asked.send(json.dumps(os.waitpid(request["reap"], 0)[1]).encode())
        return True
    _load(request["kind"], request["name"])
    pid = os.fork()
    if pid == 0:
        asked.close()
        _become(request, descriptors)
        _work(request["kind"], request["name"], descriptors[0], request["memory"])
    for descriptor in descriptors:
        os.close(descriptor)
    asked.send(json.dumps(pid).encode())
    return True


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """A session, an environment, a folder and an output of its own.

    The template's environment has the same names and is as clean; what libraries set while loading stays.
    """
    os.setsid()
    Path("/proc/self/comm").write_text(request["kind"])
    os.environ.update(request["environment"])
    os.chdir(Path(request["folder"]) / "work")
    os.dup2(descriptors[1], sys.stdout.fileno())
    os.dup2(descriptors[1], sys.stderr.fileno())
    os.close(descriptors[1])


def _work(kind: str, name: str, descriptor: int, memory_bytes: int | None) -> None:
    """Be a worker to the end of the process; nothing of the template's runs after it."""
    status = 1
    try:
        work(kind, name, descriptor, os.getppid(), memory_bytes)
        status = 0
    except BaseException:  # noqa: BLE001 -- the process ends here whatever happens, and says why.
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
