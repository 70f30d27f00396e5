"""Result files to text: verdicts and other tools by family and gain, each board apart, and the targets beside."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.judgement.results import Line, read
from benchmarks.judgement.workloads import FAMILIES, PPM, Family

IDENTICAL_PAIRS = 200
POWER = 0.95
PLANTED_PAIRS = 20  # Of fewer, one that is missed or found says nothing of one in twenty.
TRIAL_S = 5.0
_FAMILIES = {family.name: family for families in FAMILIES.values() for family in families}
_HEAD = (
    "family", "planted", "in a row (least to most)", "timing admits", "trial passes", "p50 and p95 at 21",
    "and at 101", "one window", "timing, s", "trial, s",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """What was wanted and what was seen; `holds` is None where too little was measured to say."""

    what: str
    got: str
    holds: bool | None

    def __str__(self) -> str:
        said = {True: "met", False: "missed", None: "not shown yet"}[self.holds]
        return f"- {self.what}: {self.got}: {said}"


def printed(places: Sequence[Path]) -> str:
    """The tables of every board and domain."""
    return "\n".join(text for lines in _boards(places) for text in _board(lines)).strip() or "no results"


def met(places: Sequence[Path]) -> bool:
    """Whether nothing that was measured misses its target."""
    return all(target.holds is not False for lines in _boards(places) for target in targets(lines))


def _boards(places: Sequence[Path]) -> list[list[Line]]:
    """The lines of each board, driver and toolkit."""
    found: dict[tuple[str, ...], list[Line]] = {}
    for line in read(*(place for place in places if place.exists())):
        run = line["run"]
        found.setdefault((run["board"], run["driver"], run["domain"], run["toolkit_build"]), []).append(line)
    return [found[key] for key in sorted(found)]


def _board(lines: Sequence[Line]) -> Iterator[str]:
    run = lines[0]["run"]
    days = sorted({line["run"]["started_utc"][:10] for line in lines})
    yield f"## {run['board']}, driver {run['driver']}, {run['domain']} ({run['toolkit_build']}), {' to '.join(days)}\n"
    yield from _markdown(_HEAD, [_row(family, gain, lines) for family, gain in _keys(lines, "verdict")])
    tools = sorted({line["tool"] for line in lines if line["kind"] == "peer"})
    for tool in tools:
        yield from _markdown((tool, "planted", "faster", "said", "s a pair"), list(_peer(tool, lines)))
    for line in lines:
        if line["kind"] == "absent":
            yield f"{line['tool']} was not measured: {line['outcome']}\n"
    yield "Targets:\n"
    yield from map(str, targets(lines))
    yield ""


def _keys(lines: Iterable[Line], kind: str) -> list[tuple[str, int]]:
    order = {name: at for at, name in enumerate(_FAMILIES)}
    keys = {(line["family"], line["gain_ppm"]) for line in lines if line["kind"] == kind}
    return sorted(keys, key=lambda key: (order.get(key[0], len(order)), key))


def _row(family: str, gain_ppm: int, lines: Sequence[Line]) -> tuple[str, ...]:
    timing, trial = (_verdicts(lines, gate, family, gain_ppm) for gate in ("timing", "trial"))
    both = [line for line in trial if line.get("naive")]
    later = [line["naive"] for line in timing if "naive" in line]
    return (
        family,
        f"{gain_ppm / PPM:.1%}",
        _ratios([line["long_ratio"] for line in timing if "long_ratio" in line]),
        _count(timing, lambda line: line["outcome"] == "pass"),
        _count(trial, lambda line: line["outcome"] == "pass"),
        f"{len(both)} of {len(trial)}" if trial else "-",
        f"{sum(later)} of {len(later)}" if later else "-",
        _percent([line["d_spread"] for line in timing if "d_spread" in line]),
        _median([line["seconds"] for line in timing]),
        _median([line["seconds"] for line in trial]),
    )


def _verdicts(lines: Iterable[Line], gate: str, family: str, gain_ppm: int | None = None) -> list[Line]:
    return [
        line
        for line in lines
        if line["kind"] == "verdict" and (line["gate"], line["family"]) == (gate, family)
        if gain_ppm is None or line["gain_ppm"] == gain_ppm
    ]


def _peer(tool: str, lines: Sequence[Line]) -> Iterator[tuple[str, ...]]:
    own = [line for line in lines if line["kind"] == "peer" and line["tool"] == tool]
    for family, gain_ppm in _keys(own, "peer"):
        these = [line for line in own if (line["family"], line["gain_ppm"]) == (family, gain_ppm)]
        said = sorted({line["outcome"] for line in these})
        counts = ", ".join(f"{sum(line['outcome'] == each for line in these)} {each}" for each in said)
        faster = _count(these, lambda line: line["outcome"] == "faster")
        yield family, f"{gain_ppm / PPM:.1%}", faster, counts, _median([line["seconds"] for line in these])


# Targets -------------------------------------------------------------------------------------------------------------


def targets(lines: Sequence[Line]) -> list[Target]:
    """The targets of DESIGN section 15 as these lines show them."""
    families = [family for name, family in _FAMILIES.items() if _verdicts(lines, "timing", name)]
    found = [_false_admissions(lines)]
    found += [_power(family, _verdicts(lines, "timing", family.name, family.least_ppm)) for family in families]
    medians = [
        statistics.median(line["seconds"] for line in trials)
        for name in _FAMILIES
        if (trials := _verdicts(lines, "trial", name))
    ]
    got = f"{max(medians):.1f} s, the slowest family's median" if medians else "not measured"
    return [*found, Target(f"trial under {TRIAL_S:.0f} s", got, max(medians) < TRIAL_S if medians else None)]


def _false_admissions(lines: Sequence[Line]) -> Target:
    pairs = [line for line in lines if line["kind"] == "verdict" and line["gate"] == "timing" and not line["gain_ppm"]]
    wrong = sum(line["outcome"] == "pass" for line in pairs)
    holds = False if wrong else True if len(pairs) >= IDENTICAL_PAIRS else None
    return Target(f"0 of {IDENTICAL_PAIRS} identical pairs admitted", f"{wrong} of {len(pairs)}", holds)


def _power(family: Family, verdicts: Sequence[Line]) -> Target:
    count, found = len(verdicts), sum(line["outcome"] == "pass" for line in verdicts)
    what = f"{family.name}: {family.least_ppm / PPM:.1%} found in {POWER:.0%}"
    lost = count - found > max(count, PLANTED_PAIRS) // PLANTED_PAIRS
    return Target(what, f"{found} of {count}", False if lost else True if count >= PLANTED_PAIRS else None)


# Text ----------------------------------------------------------------------------------------------------------------


def _count(lines: Sequence[Line], holds: Callable[[Line], bool]) -> str:
    return f"{sum(map(holds, lines))} of {len(lines)}" if lines else "-"


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f}" if values else "-"


def _percent(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3%}" if values else "-"


def _ratios(values: Sequence[float]) -> str:
    """The gain that was really there, in per cent: the median of the long runs, the least and the most."""
    if not values:
        return "-"
    median, least, most = (value - 1 for value in (statistics.median(values), min(values), max(values)))
    return f"{median:+.3%} ({least:+.3%} to {most:+.3%})"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(row)} |"
    yield ""
