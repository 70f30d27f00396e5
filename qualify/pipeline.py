"""pipelines.yaml: which domains, which gates at what cost, which gates a command runs, in one total order (R8.1)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, JsonValue, StringConstraints

from qualify.documents import Field as Place
from qualify.documents import Source, parse_yaml
from qualify.domain import ArchName, Board, Calibrated, Domain, Runtime, ToolkitName
from qualify.errors import RigError, UsageError
from qualify.files import read_file
from qualify.gate import Gate, Settings
from qualify.identity import content
from qualify.model import Document, Name, Ratio, Segment, ratio
from qualify.plan import Node, Omitted, Planned
from qualify.subject import Subject
from qualify.workspace import PIPELINES

Gates = Mapping[str, Gate[Any, Any]]
#: What is planned for a command. `prove` has no list of its own: it is `promote` without what takes times.
Stage = Literal["screen", "promote", "prove", "calibrate"]
DEFAULT = "default"


BoardKey = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class PlannedDomain(Document):
    """A domain to qualify in; `native` stands for whatever board is here."""

    toolkit: ToolkitName
    arch: ArchName

    def __str__(self) -> str:
        return f"{self.toolkit}/{self.arch}"


class NodeRow(Document):
    """One gate: its declared cost, what must have passed before, where it runs, how much it measures.

    `elements` keeps it out of cells whose buffers hold more elements, by runtime: an interpreter takes minutes of them.
    """

    cost_s: Ratio
    needs: tuple[Name, ...] = ()
    runtimes: Annotated[tuple[Runtime, ...], Field(min_length=1)] | None = None
    elements: dict[Runtime, Annotated[int, Field(ge=0)]] = {}
    settings: dict[Name, JsonValue] = {}


class PipelineRow(Document):
    """Stages, each a list of gates or `all`, else as in `default`, else all; settings go over the gates' own.

    `calibrate` is a list of its own: plain against plain passes no gate that wants a gain, so needs may stay out.
    """

    screen: Annotated[tuple[Name, ...], Field(min_length=1)] | Literal["all"] | None = None
    promote: Annotated[tuple[Name, ...], Field(min_length=1)] | Literal["all"] | None = None
    calibrate: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    settings: dict[Name, dict[Name, JsonValue]] = {}


class PipelinesRow(Document):
    """A whole pipelines.yaml. `boards` are named by UUID, or by name where every such board is meant."""

    domains: Annotated[tuple[PlannedDomain, ...], Field(min_length=1)]
    gates: Annotated[dict[Name, NodeRow], Field(min_length=1)]
    pipelines: dict[Segment, PipelineRow]
    boards: dict[BoardKey, Calibrated] = {}


@dataclass(frozen=True)
class Pipelines:
    """A checked pipelines.yaml. `source` are its bytes; what depends on the gates themselves is checked by `order`."""

    row: PipelinesRow
    document: Source
    source: bytes

    @property
    def domains(self) -> tuple[PlannedDomain, ...]:
        """The domains to qualify in, in the order of the file."""
        return self.row.domains

    def selected(self, name: str | None) -> tuple[PlannedDomain, ...]:
        """The domains of the file, or the one of that toolkit or toolkit/arch. Raises UsageError for any other."""
        if name is None:
            return self.domains
        named = tuple(item for item in self.domains if name in (item.toolkit, str(item)))
        toolkit, _, arch = name.partition("/")
        native = any((item.toolkit, item.arch) == (toolkit, "native") for item in self.domains)
        if not named and arch and native:
            return (PlannedDomain(toolkit=toolkit, arch=arch),)
        if not named:
            known = f"a domain of {PIPELINES} ({', '.join(map(str, self.domains))})"
            fix = f"name one of them, or add it to the domains of {PIPELINES}"
            raise UsageError(f"expected {known}, got {name}", fix=fix)
        return named

    def order(
        self,
        pipeline: str,
        stage: Stage,
        domain: Domain,
        gates: Gates,
        until: str | None = None,
        board: Board | None = None,
    ) -> tuple[Node, ...]:
        """The gates of a stage in a domain, cheapest first among those whose needs come before (R8.1).

        `until` is the last gate that runs. Gates with a setting `board` get what calibration found of the board
        (R10.10). Raises InputError for a gate or settings that this version does not have,
        UsageError for a pipeline or an `until` that is not there.
        """
        self.check(gates)
        names = [name for name in self._stage(pipeline, stage) if self._kept_out(name, stage, domain, gates) is None]
        ordered = cheapest_first({name: self.row.gates[name] for name in names})
        if until is not None and until not in ordered:
            known = f"a gate of {pipeline} {stage} in {domain} ({', '.join(ordered)})"
            raise UsageError(f"expected {known}, got {until}", fix="name one of them with --until")
        last = len(ordered) if until is None else ordered.index(until) + 1
        calibrated = self.calibrated(board)
        return tuple(self._node(name, pipeline, gates[name], ordered, calibrated) for name in ordered[:last])

    def calibrated(self, board: Board | None) -> Calibrated | None:
        """What the file cites of a board, None if nothing. Raises InputError for what another driver showed."""
        if board is None:
            return None
        key = next((key for key in (board.uuid, board.name) if key in self.row.boards), None)
        if key is None:
            return None
        found = self.row.boards[key]
        if found.driver != board.driver:
            fix = "run `qualify calibrate` with this driver, and cite its run"
            place: Place = ("boards", key, "driver")
            raise self.document.error(place, expected=f"the board's driver, {board.driver}", got=found.driver, fix=fix)
        return found

    def left_out(self, pipeline: str, stage: Stage, domain: Domain, gates: Gates) -> tuple[Omitted, ...]:
        """The gates of a stage that policy keeps out of a domain or a command, with the reason (R6.8)."""
        found = {name: self._kept_out(name, stage, domain, gates) for name in self._stage(pipeline, stage)}
        return tuple(Omitted(gate=name, reason=reason) for name, reason in found.items() if reason is not None)

    def too_large(self, nodes: Iterable[Node], subject: Subject) -> tuple[Omitted, ...]:
        """The gates that policy keeps out of a cell of this size, with the reason (R6.8)."""
        runtime = subject.domain.runtime
        count = sum(argument.elements for argument in subject.arguments if argument.is_buffer)
        limits = {node.gate: self.row.gates[node.gate].elements.get(runtime) for node in nodes}
        return tuple(
            Omitted(gate=gate, reason=f"{count} elements, and {limit} at most on {runtime}")
            for gate, limit in limits.items()
            if limit is not None and count > limit
        )

    def check(self, gates: Gates) -> None:
        """Every node is a gate of this version, needs what will have run, and every pipeline's settings are its own.

        Raises InputError at the line that is wrong.
        """
        for name, row in self.row.gates.items():
            if name not in gates:
                expected = f"a gate ({', '.join(gates)})"
                fix = "correct the name, or install the version that has this gate"
                raise self.document.error(("gates", name), expected=expected, got=name, fix=fix)
            for index, need in enumerate(row.needs):
                if need in gates and gates[need].timed and not gates[name].timed:
                    got = f"{need}, which plain and untimed cells do not have"
                    place: Place = ("gates", name, "needs", index)
                    fix = f"remove the need, or make {name} a timed gate"
                    raise self.document.error(place, expected="a gate that every subject has", got=got, fix=fix)
        for pipeline in self.row.pipelines:
            for name in self.row.gates:
                self._settings(name, pipeline, gates[name])

    def _stage(self, pipeline: str, stage: Stage) -> tuple[str, ...]:
        if pipeline not in self.row.pipelines:
            known = ", ".join(self.row.pipelines)
            raise UsageError(f"expected a pipeline of {PIPELINES} ({known}), got {pipeline}", fix="name one of them")
        own, default = self.row.pipelines[pipeline], self.row.pipelines[DEFAULT]
        field = "promote" if stage == "prove" else stage
        names = getattr(own, field) or getattr(default, field) or "all"
        if stage == "calibrate" and names == "all":
            fix = f"add calibrate: [...] to {pipeline}, with the gates that time and that measure ceilings"
            raise UsageError(f"{pipeline} of {PIPELINES} calibrates nothing", fix=fix)
        return tuple(self.row.gates) if names == "all" else tuple(names)

    def _kept_out(self, name: str, stage: Stage, domain: Domain, gates: Gates) -> str | None:
        """Why a gate of a stage is not run, None if it is."""
        if not _meets(self.row.gates[name], domain.runtime):
            return f"runs on {', '.join(self.row.gates[name].runtimes or ())} only"
        return f"{stage} takes no times" if stage == "prove" and gates[name].timed else None

    def _node(
        self, name: str, pipeline: str, gate: Gate[Any, Any], ordered: Iterable[str], board: Calibrated | None
    ) -> Node:
        row, known = self.row.gates[name], set(ordered)
        settings = self._settings(name, pipeline, gate)
        if board is not None and getattr(settings, "board", board) is None:
            settings = settings.model_copy(update={"board": board})
        return Node(
            gate=name,
            rule=gate.rule.number,
            runs_on=gate.runs_on,
            settings=settings.model_dump(mode="json"),
            needs=tuple(need for need in row.needs if need in known),
            cost_s=row.cost_s,
            source_blake3=_source_blake3(gate),
            conclusive=gate.rule.shows == "times",
        )

    def _settings(self, name: str, pipeline: str, gate: Gate[Any, Any]) -> Settings:
        """A gate's own settings, whole by themselves, under the pipeline's. Raises InputError at the line."""
        own, over = self.row.gates[name].settings, self.row.pipelines[pipeline].settings.get(name, {})
        model: type[Settings] = gate.rule.settings
        settings = self._read(model, ("gates", name, "settings"), own)
        return self._read(model, ("pipelines", pipeline, "settings", name), {**own, **over}) if over else settings

    def _read(self, model: type[Settings], place: Place, value: Mapping[str, JsonValue]) -> Settings:
        """The settings that a mapping gives at a place of the file, where it may be left out or completed."""
        nested: JsonValue = dict(value)
        for part in reversed(place):
            nested = {str(part): nested}
        return Source(self.document.where, nested, self.document.lines).model(model, place)


def load(workspace: Path) -> Pipelines:
    """The workspace's pipelines.yaml. Raises InputError, naming a cycle along its path."""
    data = read_file(workspace, PIPELINES)
    source = parse_yaml(PIPELINES, data)
    row = source.model(PipelinesRow)
    _check_domains(source, row)
    _check_needs(source, row)
    _check_cycles(source, row)
    _check_pipelines(source, row)
    return Pipelines(row, source, data)


def gates_for(nodes: Iterable[Node], subject: Subject, gates: Gates, left_out: tuple[Omitted, ...] = ()) -> Planned:
    """The gates that are promised for a subject: the nodes less what is left out and less timing for some (R6.8)."""
    planned: list[str] = []
    omitted = list(left_out)
    elsewhere = {each.gate for each in left_out}
    for node in (each for each in nodes if each.gate not in elsewhere):
        reason = _untimed(subject) if gates[node.gate].timed else None
        if reason is None:
            planned.append(node.gate)
        else:
            omitted.append(Omitted(gate=node.gate, reason=reason))
    return Planned(subject=subject, gates=tuple(planned), omitted=tuple(omitted))


def _untimed(subject: Subject) -> str | None:
    if subject.role == "plain":
        return "plain is never timed"
    return None if subject.cell.timed else "the cell is not timed"


# Checks that need no gates.


def _check_domains(source: Source, row: PipelinesRow) -> None:
    for index, domain in enumerate(row.domains):
        if domain in row.domains[:index]:
            raise source.error(("domains", index), expected="each domain once", got=str(domain), fix="remove one")


def _meets(node: NodeRow, runtime: Runtime) -> bool:
    """Whether a gate is planned on a runtime."""
    return node.runtimes is None or runtime in node.runtimes


def _check_needs(source: Source, row: PipelinesRow) -> None:
    """Needs exist and run wherever the gate runs."""
    for name, node in row.gates.items():
        if ratio(node.cost_s) < 0:
            place: Place = ("gates", name, "cost_s")
            raise source.error(place, expected="seconds, at least 0", got=node.cost_s, fix="write the usual seconds")
        for index, need in enumerate(node.needs):
            place = ("gates", name, "needs", index)
            if need not in row.gates:
                expected = f"a gate of this file ({', '.join(row.gates)})"
                raise source.error(place, expected=expected, got=need, fix=f"add {need}: under gates, or correct it")
            for runtime, most in row.gates[need].elements.items():
                if node.elements.get(runtime, most + 1) > most and _meets(node, runtime):
                    got = f"{need}, which cells of more than {most} elements do not have on {runtime}"
                    fix = f"remove the need of {need}, or give {name} no more elements"
                    raise source.error(place, expected="a gate of every cell", got=got, fix=fix)
            elsewhere = row.gates[need].runtimes
            if elsewhere is not None and not set(node.runtimes or get_args(Runtime)) <= set(elsewhere):
                got = f"{need}, which runs on {', '.join(elsewhere)} only"
                expected = f"a gate that runs wherever {name} runs"
                raise source.error(place, expected=expected, got=got, fix=f"give {name} the same runtimes")


def _check_cycles(source: Source, row: PipelinesRow) -> None:
    try:
        _sorter(row.gates)
    except CycleError as error:
        cycle: list[str] = error.args[1]
        place: Place = ("gates", cycle[0], "needs")
        got, fix = " -> ".join(cycle), "remove one of these needs"
        raise source.error(place, expected="needs without a cycle", got=got, fix=fix) from error


def _sorter(gates: Mapping[str, NodeRow]) -> TopologicalSorter[str]:
    """Gives each gate once its needs are done. Raises CycleError."""
    sorter = TopologicalSorter({name: [need for need in row.needs if need in gates] for name, row in gates.items()})
    sorter.prepare()
    return sorter


def cheapest_first(gates: Mapping[str, NodeRow]) -> list[str]:
    """Every gate after its needs, the cheapest of those that are ready first, then by name."""
    sorter, ready, order = _sorter(gates), set[str](), list[str]()
    while sorter.is_active():
        ready.update(sorter.get_ready())
        order.append(min(ready, key=lambda name: (ratio(gates[name].cost_s), name)))
        ready.remove(order[-1])
        sorter.done(order[-1])
    return order


def _check_pipelines(source: Source, row: PipelinesRow) -> None:
    if DEFAULT not in row.pipelines or row.pipelines[DEFAULT].screen is None:
        place: Place = ("pipelines", DEFAULT)
        fix = f"add {DEFAULT}: {{screen: [...], promote: all}} under pipelines"
        raise source.error(place, expected=f"the pipeline {DEFAULT} with screen", got="nothing", fix=fix)
    for name, pipeline in row.pipelines.items():
        for stage in ("screen", "promote", "calibrate"):
            names = getattr(pipeline, stage)
            if isinstance(names, tuple):
                _check_stage(source, row, ("pipelines", name, stage), names)
        for gate in pipeline.settings:
            if gate not in row.gates:
                place = ("pipelines", name, "settings", gate)
                known = ", ".join(row.gates)
                raise source.error(place, expected=f"a gate of this file ({known})", got=gate, fix="correct the name")


def _check_stage(source: Source, row: PipelinesRow, place: Place, names: tuple[str, ...]) -> None:
    """A stage names gates of the file, each once, with everything that they need."""
    for index, name in enumerate(names):
        at: Place = (*place, index)
        if name not in row.gates:
            expected = f"a gate of this file ({', '.join(row.gates)})"
            raise source.error(at, expected=expected, got=name, fix="correct the name, or add it under gates")
        if name in names[:index]:
            raise source.error(at, expected="each gate once", got=f"{name} again", fix="remove one of the two")
        lacking = [need for need in row.gates[name].needs if need not in names and place[-1] != "calibrate"]
        if lacking:
            expected = f"what {name} needs ({', '.join(row.gates[name].needs)}) in the same stage"
            fix = f"add {', '.join(lacking)} to the stage"
            raise source.error(at, expected=expected, got=f"no {', '.join(lacking)}", fix=fix)


def _source_blake3(gate: Gate[Any, Any]) -> str:
    """The digest of the file that a gate is written in: provenance, no part of a verdict (R5.2)."""
    return content(Path(inspect.getfile(type(gate))).read_bytes())


def nowhere(absent: Mapping[str, RigError]) -> RigError:
    """No planned domain is here: the reason of each, and the fix that all of them have, or each its own."""
    fixes = {error.fix for error in absent.values()}
    if len(fixes) == 1:
        why, fix = [f"{name}: {error.args[0]}" for name, error in absent.items()], fixes.pop()
    else:
        why = [f"{name}: {error.args[0]} ({error.fix})" for name, error in absent.items()]
        fix = f"run where one of these domains is, or plan another domain in {PIPELINES}"
    return RigError(f"no planned domain is here: {'; '.join(why)}", fix=fix)
