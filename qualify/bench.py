"""The rig: one toolkit's workers and its board, and a gate's only way to them.

Compile workers are shared and what they made is kept by identity for the whole run, losses too. A measuring worker
is started for one session and ends with it. The reference worker never meets a candidate.
"""

from __future__ import annotations

import hashlib
import struct
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Self, TypeVar

from qualify import boards, fill, nvml, seeds, toolkits
from qualify.boards import NATIVE, Place, measuring_job
from qualify.channel import Described, Evaluate, Evaluated, Reply, Wrong
from qualify.children import Child, ChildLost, Job, Nursery
from qualify.compiling import COMPILE_OUTPUT_BYTES, Compilers
from qualify.contract import Arm, Composed, ReferenceSource, Variant
from qualify.domain import Board, Domain, Limits
from qualify.errors import RigError
from qualify.gate import Facts, Loss, Measurement, Outputs, Sanitized, SeriesRef, WorkerLost
from qualify.model import Json, canonical_bytes
from qualify.objectcode import Built
from qualify.sanitizers import OCLGRIND
from qualify.sanitizing import Sanitizer
from qualify.sessions import LOG_CHARS, MeasuringSession, board_lock, lost
from qualify.steps import ArmName, Load, Source, Step
from qualify.strides import under
from qualify.subject import Subject
from qualify.telemetry import Telemetry, Watch, Watched
from qualify.toolkits import Toolkit

LOAD_TIMEOUT_S = 60.0
REFERENCE_TIMEOUT_S = 120.0
REFERENCE_MEMORY_BYTES = 16 << 30
_REPORT = "report it: the fault is the tool's own, no kernel's"
F = TypeVar("F", bound=Facts)
T = TypeVar("T")
#: Measurements of needed gates, with their files' SHA-256.
Needed = Mapping[str, tuple[Measurement, str]]
Keeps = Callable[[str], bool]


class Rig:
    """One toolkit of this machine and its board: workers on demand, losses counted, nothing left behind.

    `board` is None where modules can be compiled for a board that is not here: `lacking` says why, and `limits` are
    the target's.
    """

    def __init__(self, place: Place, described: Described, nursery: Nursery, compilers: Compilers) -> None:
        """Use `open`. Raises RigError for an architecture that is not here."""
        self.domain = Domain(toolkit=place.toolkit.name, arch=described.arch)
        self.domain_arch: str = described.arch
        self.toolkit_build: str = described.toolkit_build
        self.board: Board | None = place.board(described)
        self.limits: Limits = place.limits(described)
        self.lacking: RigError = place.lacking or RigError("no board is described", fix=_REPORT)
        self._toolkit = place.toolkit
        self._nursery, self._compilers = nursery, compilers
        self._closed = threading.Event()
        self._reference: Child | None = None
        self._reference_lock = threading.Lock()
        self._composed: Mapping[str, Composed] = {}
        self._source: ReferenceSource | None = None
        self._seed = b""
        self._losses: Counter[str] = Counter()
        self._watched: nvml.Nvml | nvml.Blind | None = None
        self._settings: Json = None

    @classmethod
    def open(cls, toolkit: str, arch: str = NATIVE) -> Self:
        """The rig of a toolkit by name, `pocl-3.0`, for an architecture, or for that of the board here.

        Raises RigError if toolkit, linker, device or, where the device compiles, architecture is not here.
        """
        return cls.of(toolkits.find(toolkit), arch)

    @classmethod
    def of(cls, found: Toolkit, arch: str, modules: int = 1) -> Self:
        """The rig of a toolkit that was found, for so many modules at least. Raises RigError as `open`."""
        nursery = Nursery()
        try:
            place = boards.find(found, arch, nursery)
            compilers = Compilers(nursery, place.toolkit)
            compilers.expect(modules)
            described = compilers.describe()
            toolkits.check_version(found, described.version)
            return cls(place, described, nursery, compilers)
        except BaseException:
            nursery.close()
            raise

    def supply(self, composed: Mapping[str, Composed], reference: ReferenceSource, seed: bytes) -> None:
        """What a planned run works on: modules by identity, the exact reference, the run's secret seed."""
        self._composed, self._source, self._seed = dict(composed), reference, seed
        self._compilers.expect(len(composed))

    def ahead(self, subject: Subject) -> None:
        """Begin to build a subject's module: a gate will ask for it, and is told then what became of it."""
        composed = self._composed.get(subject.candidate.identity or "")
        if composed is not None:
            self._compilers.ahead(composed)

    def settle(self) -> None:
        """Wait until nothing is built ahead any more; what nobody has asked for and nobody has begun is not begun."""
        self._compilers.settle()

    def bench(self, subject: Subject, needed: Needed, keeps: Keeps | None = None) -> GateBench:
        """One gate's bench for one subject. `keeps` tells whether its run has a file already."""
        return GateBench(self, subject, needed, keeps)

    def report(self, identity: str) -> Built:
        """The report of a supplied module. Raises ChildLost, KeyError for an unknown identity."""
        return self._compilers.report(self._composed[identity])

    def made(self, identity: str) -> tuple[Built, bytes | None]:
        """As `report`, with the object."""
        return self._compilers.made(self._composed[identity])

    @contextmanager
    def measuring(self, *, compared: bool = False) -> Iterator[MeasuringSession]:
        """A fresh measuring worker whose canary ran right, alone with the board. Raises RigError.

        Only one that is `compared` takes its candidate as Python of a cohort.
        """
        alone, harness = self._board_alone(), self._compilers.harness()
        with alone:
            watch = self._watch()
            child = self._nursery.start(measuring_job(self._toolkit, compared=compared))
            try:
                session = MeasuringSession(child, watch)
                session.open(harness)
                self._nursery.unapplied.update(session.unapplied)
                yield session
            finally:
                self._nursery.end(child)

    def _board_alone(self) -> AbstractContextManager[None]:
        """The board's lock; the virtual board is one for every rig, so it has none. Raises RigError without a board."""
        if self.board is None:
            raise RigError(f"no board to measure on: {self.lacking.args[0]}", fix=self.lacking.fix)
        if self._toolkit.worker == "simulated":
            return nullcontext()
        return board_lock(self.board.uuid, Path(tempfile.gettempdir()), self._closed)

    def _watch(self) -> Watch | None:
        """A watch on the board for one session, where the board is another than this machine."""
        if self.board is None or not self._toolkit.apart:
            return None
        if self._watched is None:
            self._watched = nvml.open_board(self.board.uuid, self._toolkit.device)
            self._settings = self._watched.settings()
        return Watch(self._watched.read, self._watched.greatest_sm_mhz)

    def sanitized(
        self, tool: str, load: Load | Source, buffers: Sequence[bytes], steps: Sequence[Step], timeout_s: float
    ) -> Sanitized:
        """One session under a sanitizer, alone with the board. Raises RigError if the tool is not here."""
        with self._board_alone():
            made = Sanitizer(self._nursery, self._toolkit).session(tool, load, buffers, steps, timeout_s)
        if made.loss is not None:
            self._losses[made.loss.how] += 1
        return made

    def composed(self, identity: str) -> Composed:
        """A supplied module. Raises KeyError for an unknown identity."""
        return self._composed[identity]

    def evaluate(self, subject: Subject, variant: Variant, seed: str) -> Outputs:
        """The exact outputs for the inputs that (variant, seed) gives. Raises ChildLost, RigError."""
        if self._source is None:
            raise RuntimeError("no reference was supplied")
        wanted = _evaluate(subject, variant, seed, self._source)
        with self._reference_lock:
            answer, data = self._ask_reference(wanted, self._source.code)
        if isinstance(answer, Wrong):
            raise RigError(
                f"{self._source.path}: {self._source.function}: expected {answer.expected}, got {answer.got}",
                fix=f"mend {self._source.function} in {self._source.path}; it is part of the contract",
            )
        if not isinstance(answer, Evaluated) or not _complete(subject, answer, data):
            raise RigError("the reference worker sent something else than the outputs", fix=_REPORT)
        names = [name for name, _ in answer.outputs]
        return Outputs(dtype=dict(answer.outputs), data=dict(zip(names, data, strict=True)))

    def _ask_reference(self, wanted: Evaluate, code: bytes) -> tuple[Reply, tuple[bytes, ...]]:
        """Ask the one reference worker; a lost one is replaced the next time."""
        child = self._reference or self._nursery.start(
            Job("reference", "numpy", REFERENCE_MEMORY_BYTES, COMPILE_OUTPUT_BYTES)
        )
        self._reference = None
        try:
            answer = child.ask(wanted, [code], timeout_s=REFERENCE_TIMEOUT_S)
        except BaseException:
            self._nursery.end(child)
            raise
        self._reference = child
        return answer

    def derive(self, label: str) -> str:
        """16 hexadecimal digits of the run's secret seed for a label."""
        return seeds.derive(self._seed, label)

    def count(self, loss: WorkerLost) -> WorkerLost:
        """Note a loss in the account, and give it back to be raised."""
        self._losses[loss.loss.how] += 1
        return loss

    def account(self) -> Json:
        """What the sandbox could not apply here, how many workers were started, how many were lost and how."""
        return {
            "toolkit": self._toolkit.name,
            "inherited": {**self._toolkit.variables},
            "device_environment": {**self._toolkit.device},
            "not_applied": [*sorted(self._nursery.unapplied)],
            "workers_started": {**self._nursery.started},
            "workers_lost": {**self._losses},
            **({} if self._settings is None else {"board": self._settings}),
        }

    def close(self) -> None:
        """End every worker. From any thread, and again; whoever waits for one gets RigError, blaming no kernel."""
        self._closed.set()
        self._compilers.rest()
        self._nursery.close()
        self._compilers.close()
        if self._watched is not None:
            self._watched.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _evaluate(subject: Subject, variant: Variant, seed: str, source: ReferenceSource) -> Evaluate:
    """The reference's task: the same recipes that a gate fills the device's inputs with."""
    return Evaluate(
        path=source.path,
        function=source.function,
        cell=subject.cell,
        arguments=under(subject.arguments, variant),
        recipes={
            argument.name: fill.recipe(argument, variant, seed)
            for argument in subject.buffers("input", "inout", "constant")
        },
        finite=variant != "exceptional",
    )


def _complete(subject: Subject, answer: Evaluated, data: tuple[bytes, ...]) -> bool:
    """Whether every output is there, of 8 bytes an element."""
    written = subject.buffers("output", "inout")
    names = [name for name, _ in answer.outputs]
    sizes = [8 * argument.elements for argument in written]
    return names == [argument.name for argument in written] and sizes == [len(item) for item in data]


class GateBench:
    """`gate.Bench` for one gate on one subject, and what it gathered: `uses`, `series_data`, `objects` to be kept."""

    def __init__(self, rig: Rig, subject: Subject, needed: Needed, keeps: Keeps | None = None) -> None:
        self._rig, self._subject, self._needed = rig, subject, needed
        self._keeps = keeps or (lambda _path: False)
        self.uses: dict[str, str] = {}
        self.series_data: dict[str, bytes] = {}
        self.objects: dict[str, bytes] = {}
        self._watched: list[Watched] = []

    def build(self, arm: Arm) -> Built:
        """What the compile worker made of an arm's module; a refusal is data. Raises WorkerLost."""
        built = self._of(arm, self._rig.report)
        if built.object_blake3 is not None and not self._keeps(_object_path(built)):
            self._made(arm)
        return built

    def exact(self, subject: Subject, variant: Variant, seed: str) -> Outputs:
        """The exact outputs for the inputs of (variant, seed). Raises WorkerLost, RigError for a wrong reference."""
        try:
            return self._rig.evaluate(subject, variant, seed)
        except ChildLost as error:
            raise self._rig.count(lost(error, "reference", None)) from error

    @contextmanager
    def session(self, subject: Subject, *arms: ArmName) -> Iterator[MeasuringSession]:
        """A fresh measuring worker with those arms loaded. Raises WorkerLost, RigError if the canary fails."""
        objects = {name: self._loadable(name, _arm(subject, name)) for name in arms}
        with self._measuring() as session:
            try:
                session.load(objects, LOAD_TIMEOUT_S)
                yield session
            except WorkerLost as error:
                self._rig.count(error)
                raise
            finally:
                self._watched += [] if session.watched is None else [session.watched]

    def _measuring(self) -> AbstractContextManager[MeasuringSession]:
        return self._rig.measuring()

    @property
    def telemetry(self) -> Telemetry | None:
        """What was read of the board around the gate's windows; None where nobody read or asked."""
        return Telemetry(sessions=tuple(self._watched)) if self._watched else None

    def sanitized(self, subject: Subject, tool: str, steps: Sequence[Step], timeout_s: float) -> Sanitized:
        """The candidate's steps under a sanitizer; a tool that takes no objects gets the module itself."""
        arm = subject.candidate
        if tool != OCLGRIND:
            load, data = self._loadable("candidate", arm)
            return self._rig.sanitized(tool, load, [data], steps, timeout_s)
        if arm.identity is None:
            raise ValueError(f"{arm.route} has no module: {arm.error}")
        composed = self._rig.composed(arm.identity)
        source = Source(arm="candidate", module=composed.module, symbols=arm.symbols)
        texts = [composed.fragments[fragment.path] for fragment in composed.module.fragments]
        return self._rig.sanitized(tool, source, texts, steps, timeout_s)

    def needed(self, gate: str, facts: type[F]) -> F:
        """The facts of a needed gate; its file's digest is noted in `uses`. Raises KeyError, DocumentError."""
        measurement, sha256 = self._needed[gate]
        self.uses[gate] = sha256
        return facts.parse(canonical_bytes(measurement.facts))

    def seed(self, label: str) -> str:
        """16 hexadecimal digits that differ for every subject and label of the run."""
        return self._rig.derive(f"{'/'.join(self._subject.key)}/{label}")

    def series(self, name: str, values: Sequence[int]) -> SeriesRef:
        """Keep a series of int64 beside the facts."""
        data = struct.pack(f"<{len(values)}q", *values)
        self.series_data[name] = data
        return SeriesRef(name=name, count=len(values), sha256=hashlib.sha256(data).hexdigest())

    def _made(self, arm: Arm) -> tuple[Built, bytes | None]:
        """The report with the object, which the run is to keep unless it does."""
        built, data = self._of(arm, self._rig.made)
        if data is not None and not self._keeps(path := _object_path(built)):
            self.objects[path] = data
        return built, data

    def _of(self, arm: Arm, ask: Callable[[str], T]) -> T:
        """What the rig answers about an arm's module. Raises WorkerLost."""
        if arm.identity is None:
            raise ValueError(f"{arm.route} has no module: {arm.error}")
        try:
            return ask(arm.identity)
        except ChildLost as error:
            raise self._rig.count(lost(error, "compile", self._owner(arm))) from error

    def _owner(self, arm: Arm) -> ArmName:
        """Whose module it is. A plain subject is both; then it is the candidate's, which is what is judged."""
        return "candidate" if arm.identity == self._subject.candidate.identity else "incumbent"

    def _loadable(self, name: ArmName, arm: Arm) -> tuple[Load, bytes]:
        built, data = self._made(arm)
        if data is None or built.object_blake3 is None:
            raise self._rig.count(WorkerLost(Loss(how="refused", step="compile", arm=name, log=built.log[-LOG_CHARS:])))
        entries = {symbol: built.entry(symbol) for symbol in arm.symbols}
        linkage = {symbol: entry.linkage_name for symbol, entry in entries.items() if entry and entry.linkage_name}
        step = Load(arm=name, object_blake3=built.object_blake3, symbols=arm.symbols, linkage_names=linkage)
        return step, data


def _object_path(built: Built) -> str:
    """Where a run keeps an object."""
    return f"objects/{built.object_blake3}.{built.extension}"


def _arm(subject: Subject, name: ArmName) -> Arm:
    return subject.candidate if name == "candidate" else subject.incumbent
