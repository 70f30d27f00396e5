"""One measuring worker as a gate sees it, and the lock that gives it the board alone.

Every answer is compared with what was asked: a worker that announces other steps, or sends records of another kind,
broke the protocol, and what it says is not used.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from qualify.channel import Open, Opened, Perform, Performed
from qualify.children import START_TIMEOUT_S, Child, ChildLost
from qualify.errors import RigError
from qualify.gate import Loss, Surroundings, WorkerLost
from qualify.sanitizers import MAX_TOLD_BYTES
from qualify.steps import (
    Answer,
    Arena,
    ArmName,
    Bytes,
    Capture,
    Census,
    Contend,
    Contended,
    Copy,
    Damage,
    Digest,
    Digests,
    Done,
    Equal,
    Go,
    Load,
    Query,
    Read,
    Record,
    Refused,
    Segment,
    Source,
    Spans,
    Stamps,
    Step,
    Told,
    Unwritten,
    Zones,
    owner,
)
from qualify.telemetry import Watch, Watched

LOG_CHARS = 4096
_POLL_S = 0.02
_ANSWERS: Mapping[type, type] = {
    Segment: Stamps,
    Go: Spans,
    Capture: Census,
    Contend: Contended,
    Copy: Spans,
    Digest: Digests,
    Zones: Damage,
    Unwritten: Equal,
    Read: Bytes,
    Told: Bytes,
    Query: Answer,
}


def lost(child: ChildLost, step: str, arm: ArmName | None) -> WorkerLost:
    """The loss that a measurement records: the announced step, whose code it ran, and the end of the output."""
    log, how = child.log, child.how
    if how == "flooded":
        log, how = f"printed more than it may\n{log}", "died"
    return WorkerLost(
        Loss(how=how, step=step, arm=arm, exit_code=child.exit_code, signal=child.signal, log=log[-LOG_CHARS:])
    )


class MeasuringSession:
    """`gate.Session` over one child: announced steps, checked records, losses with an owner."""

    def __init__(self, child: Child, watch: Watch | None = None) -> None:
        """`watch` reads the board; None where there is none apart from this machine, and nobody watches."""
        self._child, self._watch = child, watch
        #: What the driver refused to set when the device was opened.
        self.unapplied: tuple[str, ...] = ()
        self._buffers: dict[str, int] = {}
        self._taken: tuple[bytes, ...] = ()
        self._steps: Sequence[Step] = ()
        self._at = -1
        self._guest: ArmName | None = None

    def open(self, harness: Sequence[bytes]) -> None:
        """Open the device; its canary must run right. Raises RigError: no kernel is to blame for its failure."""
        try:
            answer, _ = self._child.ask(Open(), harness, timeout_s=START_TIMEOUT_S)
            if not isinstance(answer, Opened):
                raise self._child.refuse(f"answered {answer.say} when asked to open its device")
            self.unapplied = answer.unapplied
            if self._watch is not None:
                self._watch.opened(self._child.pid)
        except ChildLost as error:
            raise RigError(
                f"expected the device's canary to run right, but its worker {error.how} "
                f"(exit {error.exit_code}, signal {error.signal}): {error.log.strip()}",
                fix="run any small kernel with this toolkit; the machine, its driver or the toolkit is at fault",
            ) from error

    def load(self, objects: Mapping[ArmName, tuple[Load, bytes]], timeout_s: float) -> None:
        """Load each arm's object. Raises WorkerLost."""
        steps = [step for step, _ in objects.values()]
        self._perform(steps, [data for _, data in objects.values()], timeout_s)

    def bring(self, step: Load | Source, buffers: Sequence[bytes], timeout_s: float) -> None:
        """Load one arm, as an object or as the fragments of its source. Raises WorkerLost."""
        self._perform([step], buffers, timeout_s)

    def run(self, steps: Sequence[Step], timeout_s: float) -> Sequence[Record]:
        """One record a step. Raises WorkerLost, or ValueError for a Load, which only the bench composes."""
        if any(isinstance(step, Load | Source) for step in steps):
            raise ValueError("arms are loaded when the session opens")
        return self._perform(steps, (), timeout_s)

    def taken(self) -> Sequence[bytes]:
        """The raw buffers of the last `run`, one a Bytes record."""
        return self._taken

    def surroundings(self) -> Surroundings:
        """What was seen around the board since this was last asked, or since the session began."""
        return Surroundings() if self._watch is None else self._watch()

    @property
    def watched(self) -> Watched | None:
        """What was read of the board, if anyone asked for surroundings."""
        return None if self._watch is None else self._watch.watched

    def _perform(self, steps: Sequence[Step], objects: Sequence[bytes], timeout_s: float) -> tuple[Record, ...]:
        self._steps, self._at, self._taken = steps, -1, ()
        self._buffers.update(
            {place.buffer: place.size_bytes for step in steps if isinstance(step, Arena) for place in step.placements}
        )
        limit = sum(self._buffers.get(step.buffer, 0) for step in steps if isinstance(step, Read))
        limit += sum(MAX_TOLD_BYTES for step in steps if isinstance(step, Told))
        try:
            answer, data = self._child.ask(
                Perform(steps=tuple(steps)),
                objects,
                timeout_s=timeout_s,
                limit_bytes=limit,
                announced=self._announced,
            )
            records = self._checked(answer, data)
        except ChildLost as error:
            raise self._lost(error) from error
        self._taken = data
        return records

    def _announced(self, index: int) -> None:
        if index != self._at + 1 or index >= len(self._steps):
            raise self._child.refuse(f"announced step {index} after step {self._at} of {len(self._steps)}")
        self._at = index
        self._guest = owner(self._steps[index]) or self._guest

    def _checked(self, answer: object, data: tuple[bytes, ...]) -> tuple[Record, ...]:
        """The records, one a step that was announced. Raises WorkerLost for a refusal, ChildLost for nonsense."""
        if not isinstance(answer, Performed) or len(answer.records) != self._at + 1:
            raise self._child.refuse("answered with something else than a record a step")
        records = answer.records
        if records and isinstance(records[-1], Refused):
            raise WorkerLost(self._refusal(records[-1]))
        fitting = all(_fits(step, record) for step, record in zip(self._steps, records, strict=False))
        sizes = tuple(record.size_bytes for record in records if isinstance(record, Bytes))
        if len(records) != len(self._steps) or not fitting or sizes != tuple(len(item) for item in data):
            raise self._child.refuse("sent records that do not fit their steps")
        return records

    def _refusal(self, record: Refused) -> Loss:
        step = self._steps[self._at]
        return Loss(how="refused", step=self._name(), arm=owner(step), log=record.error[:LOG_CHARS])

    def _lost(self, error: ChildLost) -> WorkerLost:
        """Only a kernel prints much, so a flood is laid at the last arm that ran; else the announced step decides."""
        step = self._steps[self._at] if self._at >= 0 else None
        arm = self._guest if error.how == "flooded" else owner(step) if step is not None else None
        return lost(error, self._name(), arm)

    def _name(self) -> str:
        """The announced step with its place in the list, `launch 3 of 9`."""
        return f"{self._steps[self._at].do} {self._at + 1} of {len(self._steps)}" if self._at >= 0 else "none"


def _fits(step: Step, record: Record) -> bool:
    """Whether a record is of the kind, and as long, as its step asks."""
    if not isinstance(record, _ANSWERS.get(type(step), Done)):
        return False
    match step, record:
        case Digest(), Digests():
            return len(record.values) == len(step.buffers)
        case Segment(), Stamps():
            sets, units = len(step.lead_in) + len(step.timed), len(step.timed) // step.passes
            rows = all(len(row) == len(step.digested) for row in record.digests)
            return len(record.digests) == sets and len(record.unit_end_ns) == units and rows
        case Go() | Copy(), Spans():
            return len(record.start_ns) == len(record.end_ns) == (step.times if isinstance(step, Copy) else 1)
        case _:
            return True


@contextmanager
def board_lock(uuid: str, folder: Path, closed: threading.Event) -> Iterator[None]:
    """Hold the board: one session on this machine, whoever runs it (R8.2). Waits; raises RigError once `closed`.

    `folder` is the system's temporary folder, which all workspaces share. Whoever waits holds the place next in
    line, so that a screen with many sessions in a row lets another screen in between two of them.
    """
    name = f"qualify-board-{re.sub(r'[^A-Za-z0-9._-]', '-', uuid)}"
    with ExitStack() as board:
        with _held(folder / f"{name}.next.lock", closed):
            board.enter_context(_held(folder / f"{name}.lock", closed))
        yield


@contextmanager
def _held(path: Path, closed: threading.Event) -> Iterator[None]:
    """An exclusive lock, which the kernel drops when its holder dies."""
    descriptor = _open_lock(path)
    try:
        while not _locked(descriptor):
            if closed.is_set():
                raise RigError("interrupted while waiting for the board", fix="run the command again")
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open_lock(path: Path) -> int:
    """A descriptor of the lock's file: made if absent, never through a link. Raises RigError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        with suppress(FileExistsError):
            os.close(os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644))
        descriptor = os.open(path, flags)
    except OSError as error:
        raise RigError(f"expected to open the board's lock {path}, got: {error}", fix=f"remove {path}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RigError(f"expected a regular file at {path}, got something else", fix=f"remove {path}")
    return descriptor
