"""Templates: a process that has the libraries of workers loaded and forks one of them when asked.

A worker needs half a second of libraries, and a subject needs half a dozen fresh workers. A template is started as
clean as any worker, runs no candidate code and opens no device, so its forks are fresh, and it is kept for the next rig
of this process (docs/adr).
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import shutil
import signal
import site
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from qualify import scratch
from qualify.errors import RigError

LOAD_TIMEOUT_S = 60.0
_MAX_ANSWER_BYTES = 64
_LOG_BYTES = 4096
T = TypeVar("T")


def environment(folder: Path) -> dict[str, str]:
    """A worker's whole environment: private folders, no caches, nothing of the parent's (DESIGN section 13)."""
    clean = {
        "HOME": str(folder / "home"),
        "LC_ALL": "C.UTF-8",
        "OPENBLAS_NUM_THREADS": "1",
        "PATH": str(folder / "bin"),
        "POCL_CACHE_DIR": str(folder / "cache"),
        "POCL_KERNEL_CACHE": "0",
        "PYOPENCL_COMPILER_OUTPUT": "0",
        "PYOPENCL_NO_CACHE": "1",
        "PYTHONHASHSEED": "0",
        "TMPDIR": str(folder / "tmp"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    if site.ENABLE_USER_SITE:
        clean["PYTHONUSERBASE"] = site.getuserbase()  # Found through HOME otherwise, which is private here.
    return clean


def make_folders(folder: Path, tools: Mapping[str, Path]) -> None:
    """The private folders that `environment` names, with links to the tools that its PATH holds."""
    for name in ("bin", "cache", "home", "tmp", "work"):
        (folder / name).mkdir()
    for name, tool in tools.items():
        (folder / "bin" / name).symlink_to(tool)


@dataclass(frozen=True)
class Forked:
    """A worker process that a template forked; its number is its session's too."""

    pid: int
    template: Template

    def wait(self) -> int:
        """Reap it: its exit status, or less the signal that ended it."""
        return self.template.reap(self.pid)


#: A worker that a template forked, or one that was started under a command.
Process = Forked | subprocess.Popen[bytes]


def under(
    command: Sequence[str], kind: str, name: str, folder: Path, variables: Mapping[str, str], channel: int, output: int
) -> Process:
    """A worker as the argument of a command, a tool that watches it; as clean as a template. Raises OSError."""
    worker = (sys.executable, "-P", "-m", "qualify.workers", kind, name, "--channel", str(channel))
    return subprocess.Popen(  # noqa: S603 -- a tool that the toolkit brings and a module of our own, no shell.
        [*command, *worker],
        cwd=folder / "work",
        env=dict(variables),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=(channel,),
        start_new_session=True,
    )


class Template:
    """The parent's end of one template. It dies with the thread that makes it; any thread may ask it. Use `kept`."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        """Start the process."""
        self._lock = threading.Lock()
        self._folder = scratch.folder()
        make_folders(self._folder, {})
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, (self._folder / "log").open("wb") as log:
            options = ["--socket", str(theirs.fileno()), "--parent", str(os.getpid())]
            self._process = subprocess.Popen(  # noqa: S603 -- our own interpreter and module, no shell.
                [sys.executable, "-P", "-m", "qualify.workers.template", *options],
                cwd=self._folder / "work",
                env={**environment(self._folder), **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._socket.settimeout(LOAD_TIMEOUT_S)

    def fork(
        self,
        kind: str,
        name: str,
        folder: Path,
        variables: Mapping[str, str],
        memory_bytes: int | None,
        channel: int,
        output: int,
    ) -> Forked:
        """A new worker on the socket `channel`, in its private `folder`.

        Raises RigError with what the template printed if the worker's libraries do not load.
        """
        request = {"kind": kind, "name": name, "environment": dict(variables), "folder": str(folder)}
        try:
            return Forked(self._ask({**request, "memory": memory_bytes}, [channel, output]), self)
        except OSError as error:
            log = (self._folder / "log").read_bytes()[-_LOG_BYTES:].decode(errors="replace").strip()
            raise RigError(
                f"expected the {kind} worker {name} to load its libraries, got: {log or error}",
                fix=f"run `{sys.executable} -P -m qualify.workers {kind} {name} --help` and mend what it says",
            ) from error

    def reap(self, pid: int) -> int:
        """Await the end of a fork; its exit status, or less its signal. A template that is gone took it along."""
        try:
            return os.waitstatus_to_exitcode(self._ask({"reap": pid}, []))
        except OSError:
            return -signal.SIGKILL

    def _ask(self, request: dict[str, Any], descriptors: list[int]) -> int:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            answer = self._socket.recv(_MAX_ANSWER_BYTES)
        if not answer:
            raise OSError("the workers' template ended")
        return int(json.loads(answer))

    @property
    def lives(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the template, and with it every fork that is left."""
        self._socket.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


class _Kept:
    """The templates of this process and the one thread that starts them, which lives as long as the process.

    Linux ties a child's life to the thread that started it. It is a daemon, so that what is done at the process's end
    is done before it ends.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._templates: dict[tuple[tuple[str, str], ...], Template] = {}
        threading.Thread(target=self._serve, name="worker starter", daemon=True).start()

    def _serve(self) -> None:
        while True:
            future, call = self._calls.get()
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 -- whoever asked gets it.
                future.set_exception(error)

    def start(self, call: Callable[[], T]) -> Future[T]:
        """A call in that thread."""
        future: Future[T] = Future()
        self._calls.put((future, call))
        return future

    def template(self, variables: Mapping[str, str]) -> Template:
        """The template that is told these, started if there is none that lives."""
        key = tuple(sorted(variables.items()))
        found = self._templates.get(key)
        if found is None or not found.lives:
            found = self._templates[key] = Template(variables)
        return found

    def close(self) -> None:
        """End every template."""
        for template in self._templates.values():
            template.close()


@cache
def _of_this_process() -> _Kept:
    made = _Kept()
    atexit.register(made.close)
    return made


#: A fork of this process has neither the thread nor the templates.
os.register_at_fork(after_in_child=_of_this_process.cache_clear)


def started(call: Callable[[], T]) -> T:
    """A call in the thread that starts processes, with which they die."""
    return _of_this_process().start(call).result()


def kept(variables: Mapping[str, str]) -> Template:
    """The process's template that is told these variables; within `started` only."""
    return _of_this_process().template(variables)


def begin() -> None:
    """Start the template that is told nothing, which forks compile workers: it loads beside what comes until then."""
    _of_this_process().start(partial(kept, {}))
