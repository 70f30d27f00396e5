"""Worker processes: start one in a clean place, ask it, and end it with all that it started.

A worker that dies, hangs, floods or breaks the protocol is data: `ChildLost` says how. Nothing here knows a kernel,
a gate or a verdict.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from qualify import deadlines, scratch, templates
from qualify.channel import (
    MAX_MESSAGE_BYTES,
    Announce,
    Channel,
    Closed,
    Crash,
    FromWorker,
    ProtocolError,
    Ready,
    Reply,
    Request,
    ToWorker,
    Unable,
)
from qualify.errors import RigError
from qualify.templates import Process, Template, environment, make_folders, under

START_TIMEOUT_S = 60.0
_GRACE_S = 2.0  # For a worker that closed its channel to end by itself, so that its own signal is seen.
_KEPT_BYTES = 2048  # Of a worker's output: so much from its start and so much from its end.
_READ_BYTES = 65_536
_UNLIMITED = "limits on the tool that a worker is watched by, which dies with it"
_OUR_CODE_FIX = "report it with this text: the fault is the tool's own, no kernel's"

Kind = Literal["compile", "measure", "reference"]
How = Literal["died", "hung", "flooded", "protocol"]


@dataclass(frozen=True)
class Job:
    """What to start: the worker's kind and name, its address space (None: no limit), and how much it may print.

    `tools` is what its PATH holds, `variables` what it is given beside the clean environment: its template too, whose
    loader may read them; `told` only the worker. `under` is the command that the worker is an argument of; such a
    worker is a process of its own and no template's fork.
    """

    kind: Kind
    name: str
    memory_bytes: int | None
    output_bytes: int
    tools: Mapping[str, Path] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    told: Mapping[str, str] = field(default_factory=dict)
    under: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal jobs."""
        told = (*sorted(self.tools.items()), *sorted(self.variables.items()), *sorted(self.told.items()))
        return self.kind, self.name, self.memory_bytes, self.output_bytes, told, self.under


class ChildLost(Exception):
    """The worker is gone, and everything that it started: how, with what status, and what it printed."""

    def __init__(self, how: How, status: int, log: str) -> None:
        super().__init__(f"worker {how} with status {status}")
        self.how, self.log = how, log
        self.exit_code = status if status >= 0 else None
        self.signal = -status if status < 0 else None


class Output:
    """A worker's standard output and error, read to the end by a thread: the first and last bytes, and the count."""

    def __init__(self, descriptor: int, limit_bytes: int, flooded: Callable[[], None]) -> None:
        self.count, self._limit, self._flooded = 0, limit_bytes, flooded
        self._head, self._tail = b"", b""
        self._descriptor = descriptor
        self._thread = threading.Thread(target=self._read, name="worker output", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while data := self._next():
            self.count += len(data)
            room = max(0, _KEPT_BYTES - len(self._head))
            self._head += data[:room]
            self._tail = (self._tail + data[room:])[-_KEPT_BYTES:]
            if self.count > self._limit:
                self._flooded()
        os.close(self._descriptor)

    def _next(self) -> bytes:
        try:
            return os.read(self._descriptor, _READ_BYTES)
        except OSError:
            return b""

    def text(self) -> str:
        """What was kept, in printable ASCII, after giving the rest a moment to arrive."""
        self._thread.join(timeout=_GRACE_S)
        left_out = self.count - len(self._head) - len(self._tail)
        middle = f"\n[{left_out} bytes left out]\n".encode() if left_out else b""
        kept = self._head + middle + self._tail
        return "".join(chr(byte) if 32 <= byte < 127 or byte == 10 else "?" for byte in kept)


class Child:
    """One worker process. One thread asks it; any thread may kill it."""

    def __init__(self, job: Job, template: Template | None) -> None:
        """Fork the worker from its template, with which it dies; without one, start it under the job's command."""
        self.job = job
        self._fate: How | Literal["closed"] | None = None
        self._status: int | None = None
        self._lock = threading.Lock()
        #: What could not be applied to it; of a worker under a command, what its limits do not reach.
        self.unapplied: tuple[str, ...] = (_UNLIMITED,) if job.under else ()
        self._busy = False  # While a thread uses the channel, nobody else may close its descriptor.
        self._folder = scratch.folder()
        self._socket, theirs = socket.socketpair()
        try:
            self._process, printed = _begin(job, template, self._folder, theirs.fileno())
        except (OSError, RigError):
            self._socket.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        finally:
            theirs.close()
        self._channel = Channel(os.dup(self._socket.fileno()), FromWorker)
        self._output = Output(printed, job.output_bytes, lambda: self._kill("flooded"))

    @property
    def pid(self) -> int:
        """The process's number, which is also its session's."""
        return self._process.pid

    def ready(self) -> None:
        """Await the worker's first message, which says what it could not apply. Raises RigError if there is none."""
        try:
            with self._deadline(START_TIMEOUT_S):
                message, _ = self._receive(None, 0)
        except ChildLost as lost:
            raise RigError(
                f"expected a {self.job.kind} worker to start, but it {lost.how}: {lost.log.strip() or lost}",
                fix=f"run `{sys.executable} -P -m qualify.workers --help` and mend what it says",
            ) from lost
        if not isinstance(message, Ready):
            raise RigError(f"expected a ready worker, got {message.say}", fix=_OUR_CODE_FIX)
        self.unapplied += message.unapplied

    def ask(
        self,
        message: Request,
        buffers: Sequence[bytes] = (),
        *,
        timeout_s: float,
        limit_bytes: int = MAX_MESSAGE_BYTES,
        announced: Callable[[int], None] | None = None,
    ) -> tuple[Reply, tuple[bytes, ...]]:
        """Send a request and await its answer, of `limit_bytes` raw bytes at most; `announced` hears of each step.

        Raises ChildLost if the worker ends, hangs, floods or sends anything but an answer, RigError if the worker's
        own code fails or its device is not here.
        """
        header = ToWorker(buffers=tuple(len(data) for data in buffers), message=message)
        with self._deadline(timeout_s):
            self._send(header, buffers)
            answer, data = self._receive(announced, limit_bytes)
        if isinstance(answer, Crash):
            self.close()
            raise RigError(f"the {self.job.kind} worker failed by itself:\n{answer.traceback}", fix=_OUR_CODE_FIX)
        if isinstance(answer, Unable):
            self.close()
            raise RigError(answer.message, fix=answer.fix)
        return answer, data

    def _send(self, header: ToWorker, buffers: Sequence[bytes]) -> None:
        """Send a request. A worker that has closed its end may have said why, so that is read before it is lost."""
        with suppress(Closed):
            self._channel.send(header, buffers)

    def _receive(self, announced: Callable[[int], None] | None, limit_bytes: int) -> tuple[Reply, tuple[bytes, ...]]:
        try:
            while True:
                header, data = self._channel.receive(limit_bytes)
                if announced is None or not isinstance(header.message, Announce):
                    return header.message, data
                announced(header.message.step)
        except Closed as error:
            raise self._lost() from error
        except ProtocolError as error:
            raise self.refuse(str(error)) from error

    @contextmanager
    def _deadline(self, timeout_s: float) -> Iterator[None]:
        """Kill the worker after that time. An answer that came as late as the kill counts as none."""
        with deadlines.within(timeout_s, lambda: self._kill("hung")):
            self._busy = True
            try:
                yield
            finally:
                with self._lock:
                    self._busy = False
                    self._release()
        if self._fate is not None:
            raise self._lost()

    def refuse(self, why: str) -> ChildLost:
        """End a worker whose messages make no sense; the error to raise."""
        self._kill("protocol")
        lost = self._lost()
        lost.log = f"{why}\n{lost.log}"
        return lost

    def _lost(self) -> ChildLost:
        """End what is left of the worker and say how it was lost. Raises RigError if we ended it ourselves."""
        if self._fate is None:
            self._await_end(_GRACE_S)
        status, fate = self._end(), self._fate
        if fate == "closed":
            raise _interrupted()
        return ChildLost(fate or "died", status, self._output.text())

    def _await_end(self, timeout_s: float) -> bool:
        """Whether the worker ends within that time."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        ended, _, _ = select.select([descriptor], [], [], timeout_s)
        os.close(descriptor)
        return bool(ended)

    def _kill(self, fate: How | Literal["closed"]) -> None:
        """Kill the worker's session and cut the channel, so that whoever waits for an answer hears of it."""
        with self._lock:
            self._fate = self._fate or fate
            if self._status is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _end(self) -> int:
        """Kill what is left of the session, reap the worker, remove its folder; its exit status."""
        with self._lock:
            if self._status is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
                self._status = self._process.wait()
                shutil.rmtree(self._folder, ignore_errors=True)
                self._release()
            return self._status

    def _release(self) -> None:
        """Close our ends of the channel of a worker that has ended, unless a thread still reads from it."""
        if self._status is not None and not self._busy:
            self._channel.close()
            self._socket.close()

    def finish(self, timeout_s: float) -> tuple[int, str]:
        """Let the worker end by itself: no request is left for it. Its exit status, and what it printed.

        Raises ChildLost if it does not end in time, RigError if it was ended meanwhile.
        """
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if not self._await_end(timeout_s):
            self._kill("hung")
        if self._fate is not None:
            raise self._lost()
        return self._end(), self._output.text()

    def close(self) -> None:
        """End the worker. May be called from any thread, and again."""
        self._kill("closed")
        self._end()


class Nursery:
    """Every child of a rig. What forks them is the process's, and so are compile workers that wait for the next rig."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._children: set[Child] = set()
        self.started: dict[str, int] = {"compile": 0, "measure": 0, "reference": 0}
        self.unapplied: set[str] = set()

    def start(self, job: Job) -> Child:
        """A ready worker. Raises RigError if it cannot start or the nursery is closed."""
        try:
            child = templates.started(lambda: self._start(job))
        except OSError as error:
            raise RigError(
                f"expected to start a {job.kind} worker, got: {error}",
                fix="free what the message names, then run again",
            ) from error
        try:
            child.ready()
        except BaseException:
            self.end(child)
            raise
        self.unapplied.update(child.unapplied)
        return child

    def _start(self, job: Job) -> Child:
        if self._closed:
            raise _interrupted()
        child = Child(job, None if job.under else templates.kept(job.variables))
        self.started[job.kind] += 1
        return self.adopt(child)

    def adopt(self, child: Child) -> Child:
        """Answer for a child from now on. Ends it and raises RigError if the nursery is closed."""
        with self._lock:
            if not self._closed:
                self._children.add(child)
                self.unapplied.update(child.unapplied)
                return child
        child.close()
        raise _interrupted()

    def release(self, child: Child) -> bool:
        """Answer for a child no longer; false if it is not this nursery's any more."""
        with self._lock:
            mine = child in self._children
            self._children.discard(child)
            return mine

    def end(self, child: Child) -> None:
        """End one child and forget it."""
        child.close()
        self.release(child)

    def close(self) -> None:
        """End every child. Whoever waits for one gets RigError, so that no kernel is blamed. May be called again."""
        with self._lock:
            self._closed = True
            children, self._children = self._children, set()
        for child in children:
            child.close()


def _interrupted() -> RigError:
    """What whoever waits for a worker gets that we ended."""
    return RigError("the work was interrupted and its workers ended", fix="run the command again")


def _begin(job: Job, template: Template | None, folder: Path, descriptor: int) -> tuple[Process, int]:
    """The worker, and the descriptor that its standard output and error can be read from."""
    make_folders(folder, job.tools)
    told = {**environment(folder), **job.variables, **job.told}
    reading, writing = os.pipe()
    try:
        if template is None:
            worker = under(job.under, job.kind, job.name, folder, told, descriptor, writing)
            return worker, reading
        return template.fork(job.kind, job.name, folder, told, job.memory_bytes, descriptor, writing), reading
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
