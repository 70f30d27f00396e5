"""The sessions of one subject over several processes, and after them the parent's own clock (R10.5, R10.6, R10.9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qualify import pacing, program, timed
from qualify.arena import layout
from qualify.gate import Bench, Session
from qualify.own_bits import OwnBits
from qualify.paired import Sifted
from qualify.paired_session import ARMS, LongRun, PairedSession
from qualify.program import Pace
from qualify.seeds import coin, permutation, split
from qualify.steps import ArmName
from qualify.subject import Subject
from qualify.timed import Seen

#: More sets than this make a long run no colder, only longer to fill.
MOST_LONG_SETS = 1024
#: How long the last run of an arm takes that is not kept: it tells how long a pass takes in a row.
TASTE_NS = 20_000_000
#: Blocks of ABBA that the long runs are cut into.
LONG_BLOCKS = 7
#: How often long runs are tried: on a busy machine a first look at a pass may be several times too slow.
MOST_ABBAS = 4
MS = 1_000_000


class Processes:
    """One subject's sessions, all on the same inputs; orders, places and poison are each session's own."""

    def __init__(self, subject: Subject, bench: Bench, seed: str, pace: Pace, timeout_s: int) -> None:
        self._subject, self._bench, self._seed = subject, bench, seed
        self._pace, self._timeout_s = pace, timeout_s
        self._wanted: tuple[int, ...] = ()
        chosen = permutation(split(seed, "chosen"), pace.sets)[0]
        self._own = OwnBits(subject, chosen) if subject.bits == "own" else None
        self._seen: list[Seen] = []
        self._warm: dict[ArmName, list[int]] = {arm: [] for arm in ARMS}
        self._series: dict[str, list[int]] = {"loads": [], "warm_counts": [], "inputs": []}

    def facts(self, wanted: Sequence[int], long_run_ms: int) -> Mapping[str, object]:
        """Fields of `timed.TimedFacts`, with their series kept: process p has `wanted[p]` windows that count.

        Too many rejected windows end it early, and nothing else does: to stop on what windows show would be a second
        look at the same data. Raises WorkerLost.
        """
        self._wanted = tuple(wanted)
        for process in range(len(wanted)):
            self._process(process)
            if self._sifted.over_cap:
                break
        else:
            self._long_runs(long_run_ms)
        series, names = timed.as_series(self._seen)
        series |= self._series | {f"warm_{arm}": units for arm, units in self._warm.items()}
        found: dict[str, object] = {**names, **timed.spans([self._seen[i].attempt.window for i in self._sifted.kept])}
        if self._own is not None:
            series |= {f"known_{arm}": self._own.digests[arm] for arm in ARMS}
            inputs = program.set_seed(self._inputs, self._own.chosen)
            found |= {"pairs": self._own.pairs(), "chosen": self._own.judged(self._bench, inputs)}
        return found | {name: self._bench.series(name, values) for name, values in series.items()}

    @property
    def _inputs(self) -> str:
        return split(self._seed, "inputs")

    @property
    def _sifted(self) -> Sifted:
        return timed.sifted(self._seen, self._wanted)

    def _process(self, process: int) -> None:
        """One fresh worker: fill, known outputs (in the first), warm-up, windows, inputs."""
        seed = split(self._seed, "process", process)
        candidate_first = coin(split(seed, "load"))
        arms = ARMS if candidate_first else ARMS[::-1]
        with self._bench.session(self._subject, *arms) as session:
            both = PairedSession(self._subject, session, seed, self._pace, self._timeout_s, self._inputs)
            if not process:
                self._first(both)
            self._warm_up(both)
            windows(session, both, process, self._seen, self._wanted)
            self._series["loads"].append(int(candidate_first))
            self._series["inputs"] += both.inputs()

    def _first(self, both: PairedSession) -> None:
        """What every later process is compared with."""
        self._series["inputs"] += both.inputs()
        if self._own is not None:
            self._own.see(self._pace.sets, both.known)

    def _warm_up(self, both: PairedSession) -> None:
        found = both.warm_up()
        self._series["warm_counts"] += [len(found[arm]) for arm in ARMS]
        for arm in ARMS:
            self._warm[arm] += found[arm]

    def _long_runs(self, long_run_ms: int) -> None:
        """Long runs of both arms in ABBA, over so many sets that a cold subject's stay cold (R10.9)."""
        sets = range(long_sets(self._subject, self._pace))
        pace, seed = Pace(len(sets) // 2, 1, self._pace.flush_bytes), split(self._seed, "long")
        with self._bench.session(self._subject, *ARMS) as session:
            both = PairedSession(self._subject, session, seed, pace, self._timeout_s, self._inputs)
            before = both.inputs()
            rounds = {arm: _rounds(both, arm, sets, long_run_ms * MS // LONG_BLOCKS) for arm in ARMS}
            runs = _abba(both, sets, rounds, long_run_ms * MS)
            self._series |= timed.long_series(runs) | {"long_inputs": before + both.inputs()}


def windows(session: Session, both: PairedSession, process: int, seen: list[Seen], wanted: Sequence[int]) -> None:
    """Add windows of one process to `seen`, until its share counts or too many were rejected (R10.8).

    Each has a fresh coin. What is seen around a window is what happened since the one before.
    """
    session.surroundings()
    found, number = timed.sifted(seen, wanted), 0
    while found.missing.get(process) and not found.over_cap:
        attempt = both.window(number)
        seen.append(Seen(process, session.surroundings(), attempt))
        found, number = timed.sifted(seen, wanted), number + 1


def _rounds(both: PairedSession, arm: ArmName, sets: range, wanted_ns: int) -> int:
    """Rounds that take so long in a row, by runs that are not kept; the first makes the machine code."""
    both.long_run(arm, sets, 1, 0)
    rounds = -(-TASTE_NS // both.long_run(arm, sets, 1, 0).parent_ns)
    return -(-wanted_ns * rounds // both.long_run(arm, sets, rounds, 0).parent_ns)


def _abba(both: PairedSession, sets: range, rounds: dict[ArmName, int], wanted_ns: int) -> list[LongRun]:
    """Blocks of ABBA, in which both runs of an arm take at least so long each, in slices.

    A machine that does other work hits neighbouring slices alike. All of them are run again, longer, if the slices of
    an arm were short together, whatever else they show.
    """
    arms = program.window_arms(candidate_first=False)
    runs: list[LongRun] = []
    for attempt in range(MOST_ABBAS):
        rounds = {arm: -(-number * 5 // 4) for arm, number in rounds.items()}
        first = LONG_BLOCKS * len(arms) * attempt
        runs = [both.long_run(arm, sets, rounds[arm], first + at) for at, arm in enumerate(arms * LONG_BLOCKS)]
        took = {
            arm: sum(run.parent_ns for run, of in zip(runs, arms * LONG_BLOCKS, strict=True) if of == arm)
            for arm in ARMS
        }
        if min(took.values()) >= 2 * wanted_ns:
            break
        rounds = {arm: max(rounds[arm], -(-rounds[arm] * 2 * wanted_ns // took[arm])) for arm in ARMS}
    return runs


def long_sets(subject: Subject, pace: Pace) -> int:
    """How many sets a long run goes round: an even number, no fewer than a segment's, cold ones past the flush."""
    each = layout(subject.arguments, 2).size_bytes - layout(subject.arguments, 1).size_bytes
    wanted = max(pace.sets, min(-(-pace.flush_bytes // max(each, 1)), MOST_LONG_SETS))
    wanted += wanted % 2
    while wanted > pace.sets and not pacing.fits(subject, Pace(wanted // 2, 1, pace.flush_bytes)):
        wanted -= 2
    return wanted
