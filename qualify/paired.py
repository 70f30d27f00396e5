"""The paired decision of DESIGN section 10: exact signed-rank on ratios, its bound, attempts and layout.

A ratio is an incumbent's time over the candidate's in one window (R10.2), so above 1 favours the candidate. Ratios
are positive fractions and everything that decides is integer arithmetic, so that a verdict re-derives on any
machine (R5.3); decimals appear in texts only. What holds of the logarithms of ratios (ranks, pairwise means) is
decided on products of the ratios themselves.

The null hypothesis is that exchanging the labels of the arms changes nothing but the side of the limit on which a
window falls. The coin flip of each window's order makes it true by construction for equal arms, whatever the drift.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import lcm

#: Chance of a false admission over all attempts on one (cell, domain, incumbent) (R10.7).
ALPHA = Fraction(1, 100)
#: Margin where the board has no calibration for the unit mode (R10.6).
MARGIN_PPM = 1_000
#: Fewer processes than this cannot show that a gain is not the luck of one process (R10.6).
MIN_PROCESSES = 11
#: More ratios than this are no measurement of ours; the null distribution of 400 takes a second.
MAX_RATIOS = 400
#: What makes a window worthless whichever arm ran in it (R10.8). Anything else, a power cap too, is a record only.
REJECTING = frozenset({"hardware-slow-down", "thermal", "sync-boost", "xid", "foreign-process", "host-bound"})

_DIGITS = 6


@dataclass(frozen=True)
class Mean:
    """The geometric mean of `count` ratios, kept as their product: an irrational number compared exactly."""

    product: Fraction
    count: int = 1

    def exceeds(self, limit: Fraction) -> bool:
        """Whether the mean is above `limit`, a positive ratio."""
        return self.product > limit**self.count

    def reaches(self, limit: Fraction) -> bool:
        """Whether the mean is at least `limit`, a positive ratio."""
        return self.product >= limit**self.count

    def to_count(self, count: int) -> Fraction:
        """The product of `count` ratios that has this mean; `count` is a multiple of the mean's own."""
        return Fraction(self.product ** (count // self.count))

    def floor(self) -> str:
        """Six significant digits, rounded down: for a bound, which must not be shown above itself."""
        return self._text(ROUND_FLOOR)

    def __str__(self) -> str:
        """Six significant digits, rounded half to even: for an estimate."""
        return self._text(ROUND_HALF_EVEN)

    def _text(self, rounding: str) -> str:
        """Decimal's division and square root round correctly, so the digits are the same on every machine."""
        exact = Context(prec=200, rounding=ROUND_HALF_EVEN)
        value = exact.divide(Decimal(self.product.numerator), Decimal(self.product.denominator))
        for _ in range(self.count.bit_length() - 1):
            value = exact.sqrt(value)
        rounded = Context(prec=_DIGITS, rounding=rounding).plus(value)
        return f"{exact.quantize(rounded, Decimal(1).scaleb(rounded.adjusted() + 1 - _DIGITS)):f}"


@dataclass(frozen=True)
class SignedRank:
    """The one-sided test that ratios lie above `limit`, and the bound that the same data support.

    `critical` is the smallest rank sum that rejects at `level`, None where `n` ratios cannot reject at all. `bound`
    is the lower confidence bound at 1 - level; it exceeds `limit` exactly when the test rejects.
    """

    n: int
    limit: Fraction
    level: Fraction
    rank_sum: int
    critical: int | None
    bound: Mean | None

    @property
    def rejects(self) -> bool:
        """Whether the data show at `level` that the ratios lie above the limit."""
        return self.critical is not None and self.rank_sum >= self.critical

    @property
    def p(self) -> Fraction:
        """The exact chance of this rank sum or a greater one under the null hypothesis."""
        return Fraction(patterns_at_least(self.n)[self.rank_sum], 1 << self.n)


@lru_cache(maxsize=64)
def patterns_at_least(n: int) -> tuple[int, ...]:
    """Entry w: how many of the 2^n sign patterns have a rank sum of w or more, w from 0 to n (n + 1) / 2."""
    if not 1 <= n <= MAX_RATIOS:
        raise ValueError(f"{n} ratios where 1 to {MAX_RATIOS} are decided")
    width = n // 8 + 1  # Bytes of one count, which is at most 2^n.
    packed = 1
    for rank in range(1, n + 1):
        packed += packed << (8 * width * rank)
    data = packed.to_bytes((n * (n + 1) // 2 + 1) * width, "big")
    counts = (int.from_bytes(data[start : start + width], "big") for start in range(0, len(data), width))
    return tuple(accumulate(counts))[::-1]


@lru_cache(maxsize=256)
def critical(n: int, level: Fraction) -> int | None:
    """The smallest rank sum of `n` ratios that rejects at `level`; None if no rank sum is that rare.

    A level of a half or more would let both directions pass: ValueError.
    """
    if not 0 < level < Fraction(1, 2):
        raise ValueError(f"level {level} where above 0 and under 1/2 is decided")
    rare = level.numerator << n
    return next((w for w, patterns in enumerate(patterns_at_least(n)) if patterns * level.denominator <= rare), None)


def signed_rank(ratios: Sequence[Mean], limit: Fraction, level: Fraction) -> SignedRank:
    """Test `ratios` against `limit` at `level`. Raises ValueError for no ratios and for one that is not positive."""
    _check_positive((ratio.product for ratio in ratios), limit)
    count = lcm(*(ratio.count for ratio in ratios))
    powers = [ratio.to_count(count) for ratio in ratios]
    critical_sum = critical(len(powers), level)
    bound = None
    if critical_sum is not None:
        pairs = _pairs(powers)
        bound = Mean(Fraction(*pairs[len(pairs) - critical_sum]), 2 * count)
    return SignedRank(len(powers), limit, level, rank_sum(powers, limit**count), critical_sum, bound)


def rank_sum(ratios: Sequence[Fraction], limit: Fraction) -> int:
    """The sum of the ranks, by distance from `limit`, of the ratios above it.

    A ratio at the limit counts against the candidate, and of equally distant ones those below take the higher
    ranks: the sum is then never greater than any other order of the ties would make it.
    """
    scaled = [(r.numerator * limit.denominator, r.denominator * limit.numerator) for r in ratios]
    distances = _keys([(max(pair), min(pair)) for pair in scaled])
    ranked = sorted(zip(distances, (above <= below for above, below in scaled), strict=True))
    return sum(rank for rank, (_, opposed) in enumerate(ranked, start=1) if not opposed)


def hodges_lehmann(ratios: Sequence[Fraction]) -> Mean:
    """The median of all pairwise geometric means: the speed-up to show, which decides nothing."""
    _check_positive(ratios)
    pairs = _pairs(ratios)
    return Mean(Fraction(*pairs[(len(pairs) - 1) // 2]) * Fraction(*pairs[len(pairs) // 2]), 4)


def median(ratios: Sequence[Fraction]) -> Mean:
    """The median; of an even number the geometric mean of the middle two, so that exchanged arms give its inverse."""
    _check_positive(ratios)
    order = _ascending([(ratio.numerator, ratio.denominator) for ratio in ratios])
    low, high = Fraction(*order[(len(order) - 1) // 2]), Fraction(*order[len(order) // 2])
    return Mean(low) if len(order) % 2 else Mean(low * high, 2)


def alpha(attempt: int, finalists: int = 1, total: Fraction = ALPHA) -> Fraction:
    """The level of the `attempt`-th opened promotion of (cell, domain, incumbent) with so many finalists (R10.7).

    The levels of all attempts add up to `total`. Raises ValueError for a number below 1.
    """
    if attempt < 1 or finalists < 1:
        raise ValueError(f"attempt {attempt} of {finalists} finalists where both count from 1")
    return total / (attempt * (attempt + 1) * finalists)


def processes(level: Fraction) -> int:
    """How many processes a decision at `level` needs: with three more than the least, one may disagree (R10.6)."""
    least = (-(-level.denominator // level.numerator) - 1).bit_length()
    return max(MIN_PROCESSES, least + 3)


def spread(windows: int, count: int) -> tuple[int, ...]:
    """The windows of each of `count` processes, as even as can be. Raises ValueError if one would be left empty."""
    if not 1 <= count <= windows:
        raise ValueError(f"{windows} windows cannot be spread over {count} processes")
    each, more = divmod(windows, count)
    return tuple(each + (index < more) for index in range(count))


def delta(margin_ppm: int | None, floor: Fraction) -> Fraction:
    """The ratio that the bound must exceed (R10.6): the greater of the board's margin and the pipeline's floor.

    `margin_ppm` is the calibrated A/A margin of this unit mode, None where the board has none. Zero is never the
    margin, since identical arms differ by a steady trifle: ValueError.
    """
    margin_ppm = MARGIN_PPM if margin_ppm is None else margin_ppm
    if margin_ppm < 1:
        raise ValueError(f"a margin of {margin_ppm} ppm where at least 1 is needed")
    return max(1 + Fraction(margin_ppm, 1_000_000), floor)


@dataclass(frozen=True)
class Reading:
    """One kept window: its process, its ratio of totals and its ratio of tails (R10.2)."""

    process: int
    total: Fraction
    tail: Fraction


@dataclass(frozen=True)
class Trial:
    """The medians of a trial's windows; cheap, biased to pass, and never an admission."""

    total: Mean
    tail: Mean
    tail_limit: Fraction

    @property
    def promising(self) -> bool:
        """Whether both medians favour the candidate (R10.6)."""
        return self.total.exceeds(Fraction(1)) and self.tail.reaches(self.tail_limit)


@dataclass(frozen=True)
class Decision:
    """The four tests that must all reject, and whether the windows lie over the processes as R10.6 wants."""

    windows: SignedRank
    tails: SignedRank
    process_windows: SignedRank
    process_tails: SignedRank
    per_process: tuple[int, ...]
    layout_holds: bool
    speed_up: Mean

    @property
    def admits(self) -> bool:
        """Whether the candidate is faster than the limit at the level, in its total and no worse in its tail."""
        tests = (self.windows, self.tails, self.process_windows, self.process_tails)
        return self.layout_holds and all(test.rejects for test in tests)

    @property
    def bound(self) -> Mean | None:
        """The speed-up that windows and processes both support: the smaller of their bounds."""
        first, second = self.windows.bound, self.process_windows.bound
        if first is None or second is None:
            return None
        count = lcm(first.count, second.count)
        return min(first, second, key=lambda mean: mean.to_count(count))


def trial(readings: Sequence[Reading], tail_margin: Fraction) -> Trial:
    """The trial's reading (R10.6). Raises ValueError for no windows or a ratio that is not positive."""
    total, tail = median([r.total for r in readings]), median([r.tail for r in readings])
    return Trial(total, tail, _tail_limit(tail_margin))


def decide(
    readings: Sequence[Reading], *, windows: int, level: Fraction, limit: Fraction, tail_margin: Fraction
) -> Decision:
    """The decision of R10.6 over `windows` planned windows. Raises ValueError for figures no measurement can give.

    `limit` is a `delta`; the tail may be worse by at most `tail_margin`. The process tests take each process's
    median as one ratio, because more windows in one process only make its own bias more certain.
    """
    if limit <= 1:
        raise ValueError(f"a limit of {limit} where the margin must be above 1")
    tail_limit = _tail_limit(tail_margin)
    groups: dict[int, list[Reading]] = {}
    for reading in readings:
        groups.setdefault(reading.process, []).append(reading)
    totals, of_tails = [r.total for r in readings], [r.tail for r in readings]
    middle = [median([r.total for r in group]) for group in groups.values()]
    middle_tails = [median([r.tail for r in group]) for group in groups.values()]
    per_process = tuple(sorted((len(group) for group in groups.values()), reverse=True))
    return Decision(
        windows=signed_rank([Mean(total) for total in totals], limit, level),
        tails=signed_rank([Mean(tail) for tail in of_tails], tail_limit, level),
        process_windows=signed_rank(middle, limit, level),
        process_tails=signed_rank(middle_tails, tail_limit, level),
        per_process=per_process,
        layout_holds=len(groups) >= processes(level) and per_process == spread(windows, len(groups)),
        speed_up=hodges_lehmann(totals),
    )


@dataclass(frozen=True)
class Condition:
    """What the rig saw around one window, whichever arm ran: its process, events, and the state of the clocks.

    `clock` is a name for the state, None where it cannot be read. There is no time in it: a window is never
    rejected for how long it took (R10.8).
    """

    process: int
    events: frozenset[str] = frozenset()
    clock: str | None = None


@dataclass(frozen=True)
class Sifted:
    """The windows that count, the reasons against those that do not, and what is still to be measured."""

    kept: tuple[int, ...]
    rejected: Mapping[int, tuple[str, ...]]
    missing: Mapping[int, int]
    cap: int

    @property
    def over_cap(self) -> bool:
        """Whether so many windows were rejected that the session itself is in doubt."""
        return len(self.rejected) > self.cap


def rejection_cap(windows: int) -> int:
    """How many windows may be rejected and measured again: 2 of 21, 10 of 101 (R10.8)."""
    return windows // 10


def sift(conditions: Sequence[Condition], wanted: Sequence[int]) -> Sifted:
    """Reject windows by what disturbed them, blind to the arms; process p wants `wanted[p]` good ones (R10.8).

    Windows are in the order in which they were measured; the first good ones of a process are kept, so that the
    number of windows never depends on what they show. Raises ValueError for a process that was not planned.
    """
    usual = _usual_clocks(conditions)
    room = Counter(dict(enumerate(wanted)))
    kept: list[int] = []
    rejected: dict[int, tuple[str, ...]] = {}
    for index, condition in enumerate(conditions):
        if condition.process not in room:
            raise ValueError(f"a window of process {condition.process} where {len(wanted)} were planned")
        if reasons := _reasons(condition, usual):
            rejected[index] = reasons
        elif room[condition.process]:
            room[condition.process] -= 1
            kept.append(index)
    missing = {process: count for process, count in room.items() if count}
    return Sifted(tuple(kept), rejected, missing, rejection_cap(sum(wanted)))


def _usual_clocks(conditions: Sequence[Condition]) -> dict[int, frozenset[str | None]]:
    """Per process the clock state of more than half of its windows; an empty set where there is none."""
    states: dict[int, Counter[str | None]] = {}
    for condition in conditions:
        states.setdefault(condition.process, Counter())[condition.clock] += 1
    return {
        process: frozenset(state for state, times in counts.items() if 2 * times > counts.total())
        for process, counts in states.items()
    }


def _reasons(condition: Condition, usual: Mapping[int, frozenset[str | None]]) -> tuple[str, ...]:
    unusual = {"clock-state"} if condition.clock not in usual[condition.process] else set()
    return tuple(sorted((condition.events & REJECTING) | unusual))


def _tail_limit(tail_margin: Fraction) -> Fraction:
    if not 0 <= tail_margin < 1:
        raise ValueError(f"a tail margin of {tail_margin} where from 0 to under 1 is decided")
    return 1 - tail_margin


def _check_positive(ratios: Iterable[Fraction], *limits: Fraction) -> None:
    seen = (*ratios, *limits)
    if len(seen) == len(limits):
        raise ValueError("no ratios to decide on")
    if min(seen) <= 0:
        raise ValueError(f"a ratio of {min(seen)} where times are positive")


def _pairs(ratios: Sequence[Fraction]) -> list[tuple[int, int]]:
    """Numerator and denominator of the product of every pair of ratios, each with itself too, ascending."""
    parts = [(ratio.numerator, ratio.denominator) for ratio in ratios]
    return _ascending([(a * c, b * d) for index, (a, b) in enumerate(parts) for c, d in parts[index:]])


def _ascending(ratios: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    keys = _keys(ratios)
    return [ratios[index] for index in sorted(range(len(ratios)), key=keys.__getitem__)]


def _keys(ratios: Sequence[tuple[int, int]]) -> list[int]:
    """Integers that are ordered, and equal, exactly as the positive ratios (numerator, denominator) are.

    Two different ratios are apart by at least one over the product of their denominators; scaled by more than
    that product, their whole parts differ.
    """
    shift = 2 * max(denominator.bit_length() for _, denominator in ratios)
    return [(numerator << shift) // denominator for numerator, denominator in ratios]
