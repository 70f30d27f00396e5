"""An admission against a cell's contract and arms as they are now: what is not as admitted closes it (R12.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from qualify.admission import Admission, Reference, Side
from qualify.contract import Arm, Module
from qualify.model import Document
from qualify.subject import Subject

MAX_SHOWN = 60  # Characters of a value in a difference.
#: Fields of a subject that are no part of the contract: who promoted it, where, and its arms, which differ by module.
_NOT_COMPARED = frozenset({"operation", "domain", "role", "candidate", "incumbent", "limits", "attempt", "finalists"})


@dataclass(frozen=True, order=True)
class Difference:
    """One thing that is not as admitted: a fragment's path, a field of the contract, a route."""

    what: str
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.what} moved: admitted {self.was}, now {self.now}"


@dataclass(frozen=True)
class LiveArm:
    """A route as the workspace has it now. `arm` is None, and `why` says it, where it does not apply or is gone."""

    arm: Arm | None
    module: Module | None = None
    why: str = ""


@dataclass(frozen=True)
class Live:
    """The cell's contract and arms now. `arms` are those of the admission's sides, in their order."""

    subject: Subject
    arms: tuple[LiveArm, ...]
    reference: Reference
    dispatcher_revision: int


def differences(admission: Admission, live: Live) -> tuple[Difference, ...]:
    """Everything that is not as admitted; the admission is open if there is nothing (R12.2)."""
    found = [
        *_fields(admission.subject, live.subject, _NOT_COMPARED),
        *reference_differences(admission.reference, live.reference),
    ]
    if admission.dispatcher_revision != live.dispatcher_revision:
        was, now = str(admission.dispatcher_revision), str(live.dispatcher_revision)
        found.append(Difference("dispatcher_revision", was, now))
    for side, module, arm in zip(admission.sides, admission.modules, live.arms, strict=True):
        found += _arm(side, module, arm)
    return tuple(sorted(set(found)))


def _arm(side: Side, was: Module, live: LiveArm) -> Iterator[Difference]:
    """How an arm's module moved; nothing where identity and module are the admitted ones."""
    route = f"route {side.arm.route}"
    if live.arm is None or live.module is None:
        why = live.why or (live.arm.error if live.arm else None) or "gone"
        yield Difference(route, "admitted", _short(why))
        return
    if live.arm.identity == side.arm.identity and live.module == was:
        return
    found = list(module_differences(was, live.module, side.arm.route))
    yield from found or [Difference(f"{route} identity", str(side.arm.identity), str(live.arm.identity))]


def module_differences(was: Module, now: Module, route: str) -> Iterator[Difference]:
    """Which fragments moved, and what else of a route's module; the cell's arguments are compared with the contract."""
    before, after = ({f.path: f.blake3 for f in module.fragments} for module in (was, now))
    yield from fragment_differences(before, after)
    if list(before) != list(after) and before.keys() == after.keys():
        yield Difference(f"route {route} fragments", ", ".join(before), ", ".join(after))
    yield from _fields(was, now, frozenset({"fragments", "arguments"}), f"route {route} ")


def fragment_differences(was: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Difference]:
    """Which fragments moved, from their BLAKE3 by path."""
    for path in sorted(was.keys() | now.keys()):
        if was.get(path) != now.get(path):
            yield fragment_difference(path, was.get(path, "none"), now.get(path, "none"))


@lru_cache(maxsize=1024)
def fragment_difference(path: str, was: str, now: str) -> Difference:
    """One fragment that moved; an edit moves it in every cell."""
    return Difference(f"cohorts/{path}", was[:16], now[:16])


def reference_differences(was: Reference, now: Reference) -> Iterator[Difference]:
    """How the exact reference moved."""
    yield from _fields(was, now, frozenset(), "reference ")


def _fields(was: Document, now: Document, skipped: frozenset[str], prefix: str = "") -> Iterator[Difference]:
    """The fields of two documents of one kind that differ."""
    before, after = vars(was), vars(now)
    for name in type(was).model_fields:
        if name not in skipped and before[name] != after[name]:
            yield from _values(f"{prefix}{name}", before[name], after[name])


def _values(what: str, was: object, now: object) -> Iterator[Difference]:
    """Two values that differ: the items of equally long lists one by one, anything else as a whole."""
    if isinstance(was, tuple) and isinstance(now, tuple) and len(was) == len(now):
        for index, (before, after) in enumerate(zip(was, now, strict=True)):
            if before != after:
                name = getattr(before, "name", None) or index
                yield Difference(f"{what} {name}", _text(before), _text(after))
        return
    yield Difference(what, _text(was), _text(now))


def _text(value: object) -> str:
    if isinstance(value, Document):
        return _short(value.canonical().decode().strip())
    if isinstance(value, tuple):
        return _short(", ".join(_text(item) for item in value)) or "none"
    return _short(str(value))


def _short(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
