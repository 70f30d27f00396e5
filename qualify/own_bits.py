"""Timed outputs where an arm's bits are its own (R10.5): every set beside the other arm's, one beside exact values.

Elements are facts of `qualify.nearness`, which every judge derives again from their bits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from fractions import Fraction
from typing import Annotated

from pydantic import Field

from qualify import program
from qualify.contract import Argument
from qualify.elements import DTYPES
from qualify.gate import Bench, holds
from qualify.model import Document, Name
from qualify.nearness import Bound, Distance, Element, checked, close, remoteness, under_cap, whole
from qualify.paired_session import ARMS, Known
from qualify.steps import ArmName
from qualify.subject import Subject
from qualify.verdict import Check

#: By arm and set: one digest an output, in ABI order.
KnownDigests = dict[ArmName, dict[int, tuple[int, ...]]]
#: Of each output of one set: elements of another class than the other arm's, and the farthest of the rest.
_Beside = list[tuple[int, Element | None]]
_MOST_WAITING = 32  # Sets whose outputs are in memory, not compared yet.


class Pair(Document):
    """Both arms' untimed outputs of every set beside each other: elements, those of another class, the farthest."""

    output: Name
    elements: int
    other_class: int
    farthest: Element | None


class Chosen(Document):
    """One set, drawn by the run's seed, beside its exact values."""

    set: Annotated[int, Field(ge=0)]
    outputs: tuple[Distance, ...]


# Measurement ---------------------------------------------------------------------------------------------------------


class OwnBits:
    """The untimed outputs of both arms, set by set; bytes are kept of the chosen set only."""

    def __init__(self, subject: Subject, chosen: int) -> None:
        self._subject, self.chosen = subject, chosen
        self.digests: dict[ArmName, list[int]] = {arm: [] for arm in ARMS}
        self._pairs: dict[str, Pair] = {}
        self._kept: dict[ArmName, dict[str, bytes]] = {}

    def see(self, sets: int, known: Callable[[int], Mapping[ArmName, Known]]) -> None:
        """Take the outputs of every set: digests of all, distances between the arms, the bytes of the chosen set.

        Arms are compared while the device makes the next sets, of which few wait. Raises what `known` does.
        """
        outputs, waiting = program.outputs(self._subject), deque[Future[_Beside]]()
        with ThreadPoolExecutor() as pool:
            for number in range(sets):
                seen = known(number)
                self._keep(number, seen)
                waiting.append(pool.submit(_beside, outputs, seen))
                if len(waiting) > _MOST_WAITING:
                    self._add(waiting.popleft().result())
            for each in waiting:
                self._add(each.result())

    def _keep(self, number: int, seen: Mapping[ArmName, Known]) -> None:
        for arm in ARMS:
            self.digests[arm] += seen[arm].digests
            if number == self.chosen:
                names = (output.name for output in program.outputs(self._subject))
                self._kept[arm] = dict(zip(names, seen[arm].data, strict=True))

    def _add(self, found: _Beside) -> None:
        for output, (other_class, farthest) in zip(program.outputs(self._subject), found, strict=True):
            name = output.name
            old = self._pairs.get(name, Pair(output=name, elements=0, other_class=0, farthest=None))
            both = [each for each in (old.farthest, farthest) if each is not None]
            self._pairs[name] = Pair(
                output=name,
                elements=old.elements + output.elements,
                other_class=old.other_class + other_class,
                farthest=max(both, key=remoteness, default=None),
            )

    def pairs(self) -> tuple[Pair, ...]:
        """Both arms beside each other, output by output."""
        return tuple(self._pairs[output.name] for output in program.outputs(self._subject))

    def judged(self, bench: Bench, seed: str) -> Chosen:
        """The chosen set, whose inputs come from `seed`, beside its exact values. Raises WorkerLost, RigError."""
        from qualify import comparison

        subject, exact = self._subject, bench.exact(self._subject, "ordinary", seed)
        outputs, kept = program.outputs(subject), self._kept
        found = comparison.distances(outputs, kept["candidate"], kept["incumbent"], exact, subject.numeric)
        return Chosen(set=self.chosen, outputs=tuple(distance for distance, _ in found))


def _beside(outputs: Sequence[Argument], known: Mapping[ArmName, Known]) -> _Beside:
    from qualify import comparison

    both = zip(outputs, known["candidate"].data, known["incumbent"].data, strict=True)
    return [comparison.beside(candidate, incumbent, output) for output, candidate, incumbent in both]


# Judgement -----------------------------------------------------------------------------------------------------------


def known(values: Mapping[ArmName, Sequence[int]], sets: int, outputs: int) -> KnownDigests:
    """Each arm's known digests by set. Raises ValueError unless there is one row a set."""
    for arm, digests in values.items():
        if len(digests) != sets * outputs:
            raise ValueError(f"{len(digests)} known digests of {arm} for {sets} sets")
    return {
        arm: {number: tuple(digests[number * outputs :][:outputs]) for number in range(sets)}
        for arm, digests in values.items()
    }


def near(subject: Subject, sets: int, pairs: Sequence[Pair] | None, chosen: Chosen | None) -> Iterator[Check]:
    """The timed outputs of both arms are near each other and near the exact ones."""
    yield _pairs(subject, sets, pairs or ())
    yield _exact(subject, sets, chosen)


def _pairs(subject: Subject, sets: int, pairs: Sequence[Pair]) -> Check:
    """Both arms' results of every set lie within twice the cap of each other, as two results under the cap do."""
    outputs, want = program.outputs(subject), "within twice the cap of each other on every set"
    if [(each.output, each.elements) for each in pairs] != [(o.name, o.elements * sets) for o in outputs]:
        return holds("pairs", None, want, None)
    cap = Bound(Fraction(0), 2 * Fraction(subject.numeric.cap_relative))
    far = [each.output for each, output in zip(pairs, outputs, strict=True) if not _pair_near(each, output, cap)]
    return holds("pairs", f"apart in {', '.join(far)}" if far else "near", want, not far)


def _pair_near(pair: Pair, output: Argument, cap: Bound) -> bool:
    if DTYPES[output.dtype].kind != "float":
        return pair.other_class == 0
    if pair.other_class < 0 or pair.farthest is None:
        raise ValueError(f"{pair.output}: {pair.other_class} elements of another class, and no farthest")
    return pair.other_class == 0 and under_cap(checked(pair.farthest, output.dtype), cap)


def _exact(subject: Subject, sets: int, chosen: Chosen | None) -> Check:
    """One set is judged as gate numeric judges."""
    outputs, want = program.outputs(subject), "a set that is near the exact values"
    if chosen is None or chosen.set >= sets or [d.output for d in chosen.outputs] != [o.name for o in outputs]:
        return holds("exact", None, want, None)
    pairs = tuple(zip(chosen.outputs, outputs, strict=True))
    if not all(whole(found, output.dtype, output.elements, plain=False) for found, output in pairs):
        return holds("exact", None, want, None)
    far = [found.output for found, _ in pairs if not close(found, subject.numeric, plain=False)]
    return holds("exact", f"set {chosen.set}: {'far in ' + ', '.join(far) if far else 'near'}", want, not far)
