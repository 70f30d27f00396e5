"""All that a gate author reads: Gate, Rule, Bench, Session, and the helpers that turn figures into checks.

A gate is one file in `gates/`. `measure` runs in the parent, composes steps and returns facts; a rule's `judge`
turns facts into checks and is pure: the engine and `verify-evidence` call it on the same bytes (R5.1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

from qualify.contract import Arm, Variant
from qualify.model import Document, Hex64, Json, Name, canonical_after, canonical_bytes
from qualify.objectcode import Built
from qualify.steps import ArmName, Record, Step
from qualify.subject import Subject
from qualify.verdict import Check, Note


class Facts(Document):
    """What one gate saw: integers, strings, series. Unknown is None."""


class Settings(Document):
    """One gate's block in pipelines.yaml: how much to measure and what decides."""


class SeriesRef(Document):
    """A long series of int64 that lies beside the facts as `<gate>.<name>.i64le`."""

    name: Name
    count: int
    sha256: Hex64


Series = Mapping[str, Sequence[int]]
F = TypeVar("F", bound=Facts)
S = TypeVar("S", bound=Settings)


class Loss(Document):
    """How a worker was lost: the announced step, whose arm it ran, and the end of what the worker printed."""

    how: Literal["died", "hung", "refused", "protocol"]
    step: str
    arm: ArmName | None
    exit_code: int | None = None
    signal: int | None = None
    log: str = ""


class Measurement(Document):
    """`<gate>.json`: facts only. Every verdict is derived from it."""

    gate: Name
    rule: int
    state: Literal["measured", "lost", "error", "not-run"]
    facts: Json = None
    loss: Loss | None = None
    reason: str | None = None
    uses: dict[Name, Hex64] = {}
    host_ns: int = 0

    def canonical(self) -> bytes:
        """The document's bytes; facts, their first field and most of them, are JSON already and are not copied."""
        rest = canonical_bytes(self.model_dump(mode="json", exclude={"facts"}))
        return canonical_after("facts", canonical_bytes(self.facts), rest)


class WorkerLost(Exception):
    """A worker died, hung, refused a step or broke the protocol. The engine records it; gates let it pass."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(f"worker {loss.how} in step {loss.step}")
        self.loss = loss


@dataclass(frozen=True)
class Outputs:
    """Arrays by argument name: raw little-endian bytes of `dtype`, row-major."""

    dtype: Mapping[str, str]
    data: Mapping[str, bytes]


@dataclass(frozen=True)
class Surroundings:
    """What the parent saw around the board, whichever arm ran: events by name (R10.8), and the clocks' state.

    `clock` is a name for the state, None where nothing tells it; no events where nothing watches.
    """

    events: frozenset[str] = frozenset()
    clock: str | None = None


@dataclass(frozen=True)
class Sanitized:
    """What one session under a sanitizer left; nothing of it blames a kernel by itself.

    `told` are the texts of the `Told` steps, `report` the log of a tool that writes one at its end, `output` what was
    printed beside it. A `loss` says where the session broke off; `exit_code` is None if it was killed.
    """

    version: str | None = None
    records: tuple[Record, ...] = ()
    told: tuple[str, ...] = ()
    report: str = ""
    output: str = ""
    loss: Loss | None = None
    exit_code: int | None = None


class Session(Protocol):
    """One measuring process, one context; it interprets steps and knows no verdict."""

    def run(self, steps: Sequence[Step], timeout_s: float) -> Sequence[Record]:
        """One record a step. Raises WorkerLost if the worker ends, hangs, or the device refuses a step."""
        ...

    def taken(self) -> Sequence[bytes]:
        """The raw buffers of the last `run`, one a Bytes record."""
        ...

    def surroundings(self) -> Surroundings:
        """What was seen since this was last asked, or since the session began."""
        ...


class Bench(Protocol):
    """A gate's only way to a child process. Calls block; they are made from threads."""

    def build(self, arm: Arm) -> Built:
        """What the compile worker made of an arm's module; a refusal is data. Raises WorkerLost."""
        ...

    def exact(self, subject: Subject, variant: Variant, seed: str) -> Outputs:
        """The exact outputs for the inputs of (variant, seed), from the reference worker. Raises WorkerLost."""
        ...

    def session(self, subject: Subject, *arms: ArmName) -> AbstractContextManager[Session]:
        """A fresh measuring worker with those arms of the subject loaded, after its canary ran right."""
        ...

    def sanitized(self, subject: Subject, tool: str, steps: Sequence[Step], timeout_s: float) -> Sanitized:
        """The candidate's steps in a fresh worker under a sanitizer of the runtime (`qualify.sanitizers`).

        Every buffer is an allocation of its own. Raises RigError if the tool is not here.
        """
        ...

    def needed(self, gate: str, facts: type[F]) -> F:
        """The facts of a needed gate; its file's digest is noted in the measurement's `uses`."""
        ...

    def seed(self, label: str) -> str:
        """16 hexadecimal digits derived from the run's one secret seed (R5.6)."""
        ...

    def series(self, name: str, values: Sequence[int]) -> SeriesRef:
        """Keep a series beside the facts."""
        ...


#: What is shown of outputs. `bits`: every element is written, the same in every run, and the incumbent's where the
#: cohort says identical. `values`: they are near the exact ones. `times`: which arm is faster; only a timed gate's.
Shows = Literal["bits", "values", "times"]


@dataclass(frozen=True)
class Rule(Generic[F, S]):
    """One released version of a decision; old ones stay, so that old evidence re-judges (R5.2).

    `checks` names what must appear, a pure function of the subject. `fixes` says what to do about a check that does
    not hold; it is help, looked up when printing and never in evidence. `shows` is what a pass is enough for: nothing
    is admitted whose bits no gate showed, and no time but one that a gate showed; a trial's is a promise (R10.6).
    """

    number: int
    facts: type[F]
    settings: type[S]
    checks: Callable[[Subject], frozenset[str]]
    judge: Callable[[Subject, F, Series, S], Iterable[Check | Note]]
    fixes: Mapping[str, str] = field(default_factory=dict)
    shows: Shows | None = None


class Gate(ABC, Generic[F, S]):
    """One claim about a subject."""

    id: ClassVar[str]
    claim: ClassVar[str]
    runs_on: ClassVar[Literal["host", "device"]]
    #: Timing gates are not planned for plain routes nor for cells with `timed: false` (R6.8).
    timed: ClassVar[bool] = False
    rules: ClassVar[tuple[Rule[Any, Any], ...]]

    @property
    def rule(self) -> Rule[Any, Any]:
        """The newest rule: what a run that starts now is judged by."""
        return self.rules[-1]

    @abstractmethod
    def measure(self, subject: Subject, bench: Bench, settings: S) -> F:
        """The facts about one subject. Raises WorkerLost; anything else it raises is the rig's error."""


def at_most(name: str, got: int | None, limit: int, unit: str) -> Check:
    """`got` is at most `limit`; unknown stays unknown."""
    shown = None if got is None else f"{got} {unit}"
    return Check(name=name, got=shown, want=f"at most {limit} {unit}", holds=None if got is None else got <= limit)


def at_least(name: str, got: int | None, limit: int, unit: str) -> Check:
    """`got` is at least `limit`; unknown stays unknown."""
    shown = None if got is None else f"{got} {unit}"
    return Check(name=name, got=shown, want=f"at least {limit} {unit}", holds=None if got is None else got >= limit)


def equals(name: str, got: object, want: object) -> Check:
    """`got` equals `want`; a got of None is unknown."""
    return Check(
        name=name, got=None if got is None else str(got), want=str(want), holds=None if got is None else got == want
    )


#: A text about one launch or kernel, and whether the check holds for it.
State = tuple[str, bool | None]


def worst_of(name: str, states: Sequence[State], want: str) -> Check:
    """The first that is false, else the first that is unknown, else all of them; none at all is unknown."""
    for state in (False, None):
        for text, found in states:
            if found is state:
                return holds(name, text, want, verdict=state)
    return holds(name, ", ".join(text for text, _ in states) or None, want, verdict=True)


def holds(name: str, got: str | None, want: str, verdict: bool | None) -> Check:
    """Any other comparison, decided by the caller; a got of None is unknown whatever the caller says."""
    return Check(name=name, got=got, want=want, holds=None if got is None else verdict)
