"""Compile workers of one toolkit, one a core, and what they made of each module of a run.

What was made is kept by its code for the whole run, losses too: a module that is lost once is not tried again. Most
objects wait on disk: a thousand candidates have gigabytes of them, and one or two are needed at a time.
"""

from __future__ import annotations

import atexit
import os
import queue
import shutil
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache

from qualify import harnesses, scratch
from qualify.channel import Compile, Compiled, Describe, Described, Prepare, Prepared, Reply, Request
from qualify.children import Child, ChildLost, Job, Nursery
from qualify.contract import Composed, Kernel, Module, symbols
from qualify.errors import RigError
from qualify.identity import content
from qualify.objectcode import Built
from qualify.toolkits import Toolkit

COMPILE_TIMEOUT_S = 60.0
MAX_OBJECT_BYTES = 256 << 20
#: Objects of a rig that wait in memory, together: those of some hundred small candidates.
HELD_BYTES = 16 << 20
#: The harnesses that this process has, by all that a compile worker is told and says: a second rig of a
#: toolkit need not wait for its own.
_HARNESSES: dict[tuple[object, ...], tuple[bytes, ...]] = {}
#: Compile workers of each job that wait in this process for the next rig. They have run no candidate's code.
_WAITING: dict[tuple[object, ...], list[Child]] = {}
MOST_WAITING = 4  # Of each job: a waiting one keeps a few hundred megabytes and spares the next rig half a second.
_waiting_lock = threading.Lock()
#: What a compile worker may print in its life: a kernel that prints is closed by it, a compiler's warnings are not.
COMPILE_OUTPUT_BYTES = 256 << 20
_REPORT = "report it: the fault is the tool's own, no kernel's"


class Compilers:
    """One compile worker a core, started when there is work, and what they made of each module."""

    def __init__(self, nursery: Nursery, toolkit: Toolkit) -> None:
        limits = toolkit.compile_bytes, COMPILE_OUTPUT_BYTES
        job = Job("compile", toolkit.worker, *limits, toolkit.tools, toolkit.variables, toolkit.compiler)
        self._nursery, self._job, self._toolkit = nursery, job, toolkit
        self._cores = len(os.sched_getaffinity(0))
        self._places = threading.BoundedSemaphore(self._cores)
        self._ahead = ThreadPoolExecutor(self._cores, "build ahead")
        self._starts: list[Future[None]] = []
        self._builds: list[Future[None]] = []  # Ahead of whoever asks.
        self._idle: queue.LifoQueue[Child] = queue.LifoQueue()
        self._lock = threading.Lock()
        self._begun = 0  # Workers that are here, or on their way.
        self._harness_lock = threading.Lock()
        self._harness: tuple[bytes, ...] | None = None
        self._made: dict[str, Future[Built]] = {}
        self._keys: dict[str, str] = {}  # Of that, by a module's identity.
        self._held: dict[str, bytes] = {}
        self._room_bytes = HELD_BYTES
        self._objects = scratch.folder()

    def describe(self) -> Described:
        """What a compile worker says of itself; its build with the digest that it does not know. Raises RigError."""
        build = self._toolkit.build  # While workers start that are expected.
        wait(self._starts)
        try:
            answer, _ = self._ask(Describe(), (), 0)
        except ChildLost as error:
            raise RigError(f"the compile worker {error.how} before any work: {error.log}", fix=_REPORT) from error
        if not isinstance(answer, Described):
            raise RigError(f"expected a description, got {answer.say}", fix=_REPORT)
        whole = "-".join(filter(None, (answer.toolkit_build, build)))
        return answer.model_copy(update={"toolkit_build": whole})

    def harness(self) -> tuple[bytes, ...]:
        """The harness that measuring workers load; empty where the device needs none. Raises RigError."""
        with self._harness_lock:
            if self._harness is None:
                said, job = self.describe(), self._job
                told = (*job.variables.items(), *job.told.items(), *job.tools.items())
                key = (self._job.name, said.version, said.toolkit_build, said.arch, *map(str, sorted(told)))
                if key not in _HARNESSES:
                    _HARNESSES[key] = self._on_disk(harnesses.key(key))
                self._harness = _HARNESSES[key]
            return self._harness

    def _on_disk(self, key: str) -> tuple[bytes, ...]:
        """The harness that an earlier process kept, or a new one."""
        kept = harnesses.kept(key)
        if kept is not None:
            return (kept,)
        made = self._prepared()
        for data in made:
            harnesses.keep(key, data)
        return made

    def _prepared(self) -> tuple[bytes, ...]:
        try:
            answer, data = self._ask(Prepare(), (), MAX_OBJECT_BYTES)
        except ChildLost as error:
            raise RigError(f"the harness's compile worker {error.how}: {error.log}", fix=_REPORT) from error
        if not isinstance(answer, Prepared):
            raise RigError(f"expected the harness, got {answer.say}", fix=_REPORT)
        return data

    def report(self, composed: Composed) -> Built:
        """The report of a module, compiled once a run. Raises ChildLost, the second time too."""
        return self._future(composed)[1].result()

    def made(self, composed: Composed) -> tuple[Built, bytes | None]:
        """As `report`, with the object."""
        key, future = self._future(composed)
        built = future.result()
        return built, self._kept(key, built)

    def _future(self, composed: Composed) -> tuple[str, Future[Built]]:
        """The key of a module and what becomes of it, which is this thread's to make if nobody has begun."""
        key = self._keys.get(composed.identity, "")
        begun = self._made.get(key)
        if begun is not None:
            return key, begun
        code = code_of(composed.module)
        key = self._keys[composed.identity] = content(code.canonical())
        with self._lock:
            future = self._made.get(key)
            if future is not None:
                return key, future
            future = self._made[key] = Future()
        self._make(key, code, composed.fragments, future)
        return key, future

    def expect(self, modules: int) -> None:
        """Start the workers that so many modules will want; one that does not start says so when it is asked."""
        with self._lock:
            missing = max(0, min(modules, self._cores) - self._begun)
            self._begun += missing
        for _ in range(missing):
            with suppress(RuntimeError):  # The rig is closed, which whoever asks is told; so below.
                self._starts.append(self._ahead.submit(self._start_ahead))

    def ahead(self, composed: Composed) -> None:
        """Begin to build a module that will be asked for; whoever asks is told what became of it."""
        with suppress(RuntimeError), self._lock:
            self._builds.append(self._ahead.submit(self._build_ahead, composed))

    def settle(self) -> None:
        """Build nothing more ahead, and wait for what was begun: a board is measured beside no compiler."""
        with self._lock:
            builds, self._builds = self._builds, []
        wait([*self._starts, *(build for build in builds if not build.cancel())])

    def _start_ahead(self) -> None:
        """A worker that has answered once, so that nothing of its start is left to do."""
        with self._places:
            try:
                child = self._new()
            except RigError:
                self._gone()
                return
            with suppress(ChildLost):
                self._answer(child, Describe(), (), 0)

    def _build_ahead(self, composed: Composed) -> None:
        with suppress(ChildLost, RigError):
            self._future(composed)

    def _make(self, key: str, code: Module, texts: Mapping[str, bytes], future: Future[Built]) -> None:
        """Compile, and keep the answer or the loss. An error of the rig's own is not kept."""
        try:
            future.set_result(self._compile(key, code, texts))
        except ChildLost as error:
            future.set_exception(error)
        except BaseException as error:
            with self._lock:
                del self._made[key]
            future.set_exception(error)
            raise

    def _compile(self, key: str, code: Module, texts: Mapping[str, bytes]) -> Built:
        fragments = [texts[fragment.path] for fragment in code.fragments]
        answer, data = self._ask(Compile(module=code), fragments, MAX_OBJECT_BYTES)
        if not isinstance(answer, Compiled) or not _consistent(answer.built, data):
            raise ChildLost("protocol", 0, "an answer that is no compiler's")
        if data:
            self._keep(key, data[0])
        return answer.built

    def _keep(self, key: str, data: bytes) -> None:
        """In memory while there is room, else on disk."""
        with self._lock:
            if len(data) <= self._room_bytes:
                self._room_bytes -= len(data)
                self._held[key] = data
                return
        try:
            (self._objects / key).write_bytes(data)
        except OSError as error:
            fix = "give the temporary folder space, or name another one in TMPDIR"
            raise RigError(f"expected to keep an object in {self._objects}, got {error.strerror}", fix=fix) from error

    def _kept(self, key: str, built: Built) -> bytes | None:
        """The object of a module. Raises RigError if it is not there any more as it was made."""
        if built.object_blake3 is None or key in self._held:
            return self._held.get(key)
        try:
            data = (self._objects / key).read_bytes()
        except OSError as error:
            raise RigError(f"an object is gone: {error}", fix="run again; leave the temporary folder alone") from error
        if content(data) != built.object_blake3:
            raise RigError(f"the object {built.object_blake3} has changed on disk", fix="run again on a sound disk")
        return data

    def rest(self) -> None:
        """Let idle workers wait for the next rig; the nursery ends the others. Nothing more is begun."""
        self._ahead.shutdown(wait=False, cancel_futures=True)
        with suppress(queue.Empty):
            while True:
                child = self._idle.get_nowait()
                if self._nursery.release(child):
                    _wait(child)

    def close(self) -> None:
        """Let the objects go; the workers are the nursery's."""
        shutil.rmtree(self._objects, ignore_errors=True)

    def _ask(self, message: Request, buffers: Sequence[bytes], limit_bytes: int) -> tuple[Reply, tuple[bytes, ...]]:
        """Ask an idle worker, or a new one; whatever goes wrong, that worker is not used again."""
        with self._places:
            return self._answer(self._take(), message, buffers, limit_bytes)

    def _answer(
        self, child: Child, message: Request, buffers: Sequence[bytes], limit_bytes: int
    ) -> tuple[Reply, tuple[bytes, ...]]:
        try:
            answer = child.ask(message, buffers, timeout_s=COMPILE_TIMEOUT_S, limit_bytes=limit_bytes)
        except BaseException:
            self._nursery.end(child)
            self._gone()
            raise
        self._idle.put(child)
        return answer

    def _take(self) -> Child:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            child = self._new()
            with self._lock:
                self._begun += 1
            return child

    def _gone(self) -> None:
        with self._lock:
            self._begun -= 1

    def _new(self) -> Child:
        child = _waiting(self._job)
        return self._nursery.start(self._job) if child is None else self._nursery.adopt(child)


def _wait(child: Child) -> None:
    """Keep a compile worker for the next rig, of each job a few."""
    _end_at_exit()
    with _waiting_lock:
        waiting = _WAITING.setdefault(child.job.key, [])
        if len(waiting) < MOST_WAITING:
            waiting.append(child)
            return
    child.close()


def _waiting(job: Job) -> Child | None:
    """A compile worker that waits for such a job and still answers."""
    while True:
        with _waiting_lock:
            if not (waiting := _WAITING.get(job.key)):
                return None
            child = waiting.pop()
        try:
            child.ask(Describe(), timeout_s=COMPILE_TIMEOUT_S)
        except (ChildLost, RigError):
            child.close()
            continue
        return child


@cache
def _end_at_exit() -> None:
    """What waits ends before its template does, which reaps it; what was registered last is called first."""
    atexit.register(_end_waiting)


def _end_waiting() -> None:
    while _WAITING:
        for child in _WAITING.popitem()[1]:
            child.close()


os.register_at_fork(after_in_child=_WAITING.clear)


def code_of(module: Module) -> Module:
    """All of a module that a compiler reads: of its launches the symbols, and nothing of the contract.

    So the cells of a route that differ in size alone have one object. The virtual board's compiler makes parameters of
    the contract, so it reads everything.
    """
    if module.frontend == "simulated":
        return module
    launches = tuple(Kernel(symbol=symbol, grid=(1, 1, 1), block=(1, 1, 1)) for symbol in symbols(module.launches))
    return module.model_copy(update={"launches": launches, "arguments": ()})


def _consistent(built: Built, data: tuple[bytes, ...]) -> bool:
    """Whether a report fits the bytes that came with it."""
    if built.state == "refused":
        return not data and built.object_blake3 is None
    return len(data) == 1 and built.object_bytes == len(data[0]) and built.object_blake3 == content(data[0])
