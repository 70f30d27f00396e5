"""Plant, judge pair after pair until the seconds are over, hand the same objects to other tools."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.judgement import peers, planting, results
from benchmarks.judgement.results import Line, Results
from benchmarks.judgement.verdicts import Judge, nodes
from benchmarks.judgement.workloads import FAMILIES, PPM, ROOT, Family, Work, cell_id, lay
from qualify import __version__, cohort, pipeline
from qualify.bench import Rig
from qualify.errors import RigError
from qualify.subject import Subject


@dataclass(frozen=True)
class Wanted:
    """What is measured; None is all. `changes` replace settings of gates, for tests."""

    toolkit: str
    seconds: float
    identical: int
    planted: int
    families: Sequence[str] | None = None
    gains_ppm: Sequence[int] | None = None
    gates: Sequence[str] | None = None
    peers: Sequence[str] | None = None
    peer_seconds: float = 60
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def pairs(self, gain_ppm: int) -> int:
        """How many pairs of a gain are wanted."""
        return self.planted if gain_ppm else self.identical


@dataclass(frozen=True)
class Case:
    """One gain of one family, as a subject, and who can judge it."""

    family: Family
    work: Work
    subject: Subject
    judge: Judge

    @property
    def fields(self) -> Line:
        """What names it in results."""
        return {"family": self.family.name, "gain_ppm": self.work.gain_ppm}


def measure(wanted: Wanted, folder: Path, known: Iterable[Path]) -> Results:
    """Plant, judge, compare; every line is kept at once. Raises RigError where the board is not here."""
    done = counted(results.read(*(place for place in known if place.exists())))
    with Rig.open(wanted.toolkit) as rig, TemporaryDirectory() as workspace:
        if rig.board is None:
            raise RigError(f"no board to measure on: {rig.lacking.args[0]}", fix=rig.lacking.fix)
        kept = Results.begin(folder, _where(rig))
        started_s = time.monotonic()
        cases = planned(rig, wanted, Path(workspace), kept)
        print(f"planted in {time.monotonic() - started_s:.1f} s", flush=True)
        judge_all(wanted, cases, done, kept, time.monotonic() + wanted.seconds)
        modules = {key: made for case in cases for key, made in case.judge.composed.items()}
        rig.supply(modules, cases[0].judge.reference, bytes(32))
        objects = peers.Objects.of(rig, [(case.fields, case.subject) for case in cases])
    for peer in wanted.peers or ():
        for line in peers.run(peer, objects, wanted.peer_seconds):
            kept.add(line)
            _say(line)
    return kept


def _where(rig: Rig) -> Line:
    board = rig.board
    return {
        "board": board.name if board else "none",
        "driver": board.driver if board else "none",
        "domain": str(rig.domain),
        "toolkit_build": rig.toolkit_build,
        "qualify": __version__,
    }


def planned(rig: Rig, wanted: Wanted, workspace: Path, kept: Results) -> list[Case]:
    """The cases of every wanted family, planted on this board."""
    plans = nodes(rig, pipeline.load(ROOT), wanted.changes)
    cases: list[Case] = []
    for family in FAMILIES[rig.domain.runtime]:
        if wanted.families and family.name not in wanted.families:
            continue
        works = planting.works(rig, workspace, family)
        lay(workspace, family, rig.domain.runtime, works)
        item = cohort.load(workspace, family.operation)
        selection = cohort.subjects(item, rig.domain, rig.limits, rig.toolkit_build)
        judge = Judge(rig, plans, selection.composed, selection.reference)
        found = {each.cell.id: each for each in selection.subjects if each.role == "candidate"}
        for work in works:
            kept.add({"kind": "planted", "family": family.name, **vars(work)})
            if wanted.gains_ppm is None or work.gain_ppm in wanted.gains_ppm:
                cases.append(Case(family, work, found[cell_id(family, work)], judge))
    return cases


def counted(lines: Iterable[Line]) -> Counter[tuple[str, int, str]]:
    """How many verdicts there are of each family, gain and gate."""
    return Counter((line["family"], line["gain_ppm"], line["gate"]) for line in lines if line["kind"] == "verdict")


def judge_all(
    wanted: Wanted, cases: Sequence[Case], done: Counter[tuple[str, int, str]], kept: Results, until_s: float
) -> None:
    """Judge what there is least of, as long as another verdict of its kind can end in time."""
    took: dict[tuple[str, str], float] = {}
    while True:
        left = _left(wanted, cases, done)
        due = [
            (case, gate) for case, gate in left if time.monotonic() + took.get((case.family.name, gate), 0) < until_s
        ]
        if not due:
            return
        case, gate = due[0]
        verdict = case.judge.judge(gate, case.subject)
        took[case.family.name, gate] = max(verdict.seconds, took.get((case.family.name, gate), 0))
        done[case.family.name, case.work.gain_ppm, gate] += 1
        line = {"kind": "verdict", **case.fields, "gate": gate, "outcome": verdict.outcome, **verdict.fields}
        line |= {"seconds": round(verdict.seconds, 3)}
        kept.add(line)
        _say(line)


def _left(wanted: Wanted, cases: Sequence[Case], done: Counter[tuple[str, int, str]]) -> list[tuple[Case, str]]:
    """What is still wanted, least first: by the share of what is wanted, the gain that must be found before others."""

    def share(entry: tuple[Case, str]) -> tuple[float, int]:
        case, gate = entry
        gain = case.work.gain_ppm
        count = done[case.family.name, gain, gate]
        return count / max(wanted.pairs(gain), 1), {0: 0, case.family.least_ppm: 1}.get(gain, 2)

    every = [(case, gate) for case in cases for gate in wanted.gates or ("trial", "timing")]
    open_ = [entry for entry in every if share(entry)[0] < 1]
    return sorted(open_, key=share)


def _say(line: Line) -> None:
    """One line for whoever watches."""
    words = [line["family"], f"{line['gain_ppm'] / PPM:.1%}", line.get("gate") or line["tool"], line["outcome"]]
    words += [f"{name} {line[name]:.5f}" for name in ("d_median", "long_ratio", "ratio") if name in line]
    words += [f"{line['seconds']:.2f} s", *line.get("failed", ())]
    print("  ".join(words), flush=True)
