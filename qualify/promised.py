"""What a stage promises of a finalist, and whether a pass of all of it would admit: asked before anything is measured.

An admission rests on gates that show bits, for `bits: own` values too, and for a time on one that is enough for a time.
What no pass would admit is not measured: the command says which gate to plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from qualify import cohort
from qualify.domain import Domain
from qualify.errors import UsageError
from qualify.gate import Shows
from qualify.judgement import unshown
from qualify.pipeline import Gates, Pipelines, Stage
from qualify.plan import Omitted
from qualify.running import Task, promised
from qualify.workspace import PIPELINES

#: What shows it, and what that does, in a sentence.
_SAYS: Mapping[Shows, tuple[str, str]] = {
    "bits": ("gate of bits", "shows that every element is written, and the same in every run"),
    "values": ("gate of values", "lays outputs beside exact ones, without which bits of a route's own mean nothing"),
    "times": ("timing gate", "shows what is faster"),
}


def check_stage(
    pipelines: Pipelines, name: str, stage: Stage, domain: Domain, gates: Gates, item: cohort.Cohort, cells: set[str]
) -> None:
    """Raises UsageError unless a pass of the stage would admit a route of these cells, whatever their size."""
    ran = [node.gate for node in pipelines.order(name, stage, domain, gates)]
    timed = ", ".join(sorted(cells & {cell.id for cell in item.cells if cell.timed}))
    for wanted in _lacking(item.row.bits, ran, gates, timed=stage == "promote" and bool(timed)):
        title, does = _SAYS[wanted]
        shows, where = _showing(wanted, gates), f" in {timed}" if wanted == "times" else ""
        kept_out = _reasons(pipelines.left_out(name, stage, domain, gates), shows)
        planned = f"{name} of {PIPELINES} runs {', '.join(ran) or 'nothing'} in {stage}"
        add, let = f"add {shows} to the promote stage", f"let {shows} run in {domain}, under gates in {PIPELINES}"
        raise UsageError(
            f"the promote stage has no {title}: {planned}; none of them {does}{where}{kept_out}",
            fix=let if kept_out else add,
        )


def kept_out(task: Task, gates: Gates) -> Mapping[str, str]:
    """The cells of which policy keeps out a gate that an admission rests on, each with a sentence and its fix."""
    found: dict[str, str] = {}
    nodes = task.pipelines.order(task.pipeline, task.stage, task.domain, gates)
    for planned in promised(task, nodes, gates):
        subject, timed = planned.subject, task.stage == "promote" and planned.subject.cell.timed
        for wanted in _lacking(subject.bits, planned.gates, gates, timed=timed) if subject.role != "plain" else ():
            shows = _showing(wanted, gates)
            why = f"no {_SAYS[wanted][0]} is planned there{_reasons(planned.omitted, shows)}"
            found[subject.cell.id] = f"{why}; give {shows} more elements, under gates in {PIPELINES}"
    return found


def _lacking(bits: str, names: Collection[str], gates: Gates, *, timed: bool) -> Iterator[Shows]:
    """What an admission rests on and these gates do not show."""
    rules = [gates[name].rule for name in names]
    yield from unshown(bits, rules)
    if timed and not any(rule.shows == "times" for rule in rules):
        yield "times"


def _showing(wanted: Shows, gates: Gates) -> str:
    """The gates of this version that show it."""
    return " or ".join(name for name, gate in gates.items() if gate.rule.shows == wanted)


def _reasons(omitted: Iterable[Omitted], shows: str) -> str:
    """Why policy keeps out what would show it, in brackets; nothing where it was never planned."""
    told = [f"{each.gate}: {each.reason}" for each in omitted if each.gate in shows.split(" or ")]
    return f" ({'; '.join(told)})" if told else ""
