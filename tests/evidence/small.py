"""A small synthetic store: two gates of its own, three subjects, one series, and what a forger can do to it."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from qualify.contract import Arm, Cell, FragmentRef, Kernel, Module, Numeric, Timing
from qualify.domain import Domain, Limits
from qualify.evidence import layout, manifest
from qualify.evidence.durable import silent
from qualify.evidence.rejudge import rejudge
from qualify.evidence.store import StagedRun, Store
from qualify.gate import Facts, Measurement, Rule, Series, SeriesRef, Settings, at_least, at_most
from qualify.identity import content, identify
from qualify.judgement import JUDGEMENT, Rules
from qualify.model import Json, canonical_bytes
from qualify.plan import Node, Plan, Planned, RunRecord
from qualify.subject import Subject
from qualify.verdict import Check

SEED = bytes(range(32))
INPUTS = {
    "pipelines.yaml": b"gates: {}\n",
    "cohorts/add/cohort.yaml": b"operation: add\n",
    "cohorts/add/add.k": b"every route is this\n",
}
OBJECT = b"object code"
OBJECT_PATH = f"objects/{content(OBJECT)}.bin"
RUN = "20260101T000000Z-add-simulated-1.0--virtual-00000000"
LIMIT_BYTES = 100


class SizeFacts(Facts):
    """What gate `size` saw."""

    size_bytes: int | None


class SizeSettings(Settings):
    """What gate `size` allows."""

    limit_bytes: int


class SpeedFacts(Facts):
    """What gate `speed` saw."""

    times: SeriesRef


class SpeedSettings(Settings):
    """What gate `speed` demands."""

    windows: int


def _judge_size(_subject: Subject, facts: SizeFacts, _series: Series, settings: SizeSettings) -> Iterable[Check]:
    yield at_most("size", facts.size_bytes, settings.limit_bytes, "byte")


def _judge_speed(_subject: Subject, facts: SpeedFacts, series: Series, settings: SpeedSettings) -> Iterable[Check]:
    yield at_least("windows", len(series[facts.times.name]), settings.windows, "windows")
    yield at_least("gain", min(series[facts.times.name]), 1, "ns")


GATES: Mapping[str, Rules] = {
    "size": {1: Rule(1, SizeFacts, SizeSettings, lambda _: frozenset({"size"}), _judge_size)},
    "speed": {1: Rule(1, SpeedFacts, SpeedSettings, lambda _: frozenset({"windows", "gain"}), _judge_speed)},
}


def module(route: str) -> Module:
    """The module of a route: one fragment for all, told apart by a define."""
    return Module(
        frontend="simulated",
        runtime="simulated",
        fragments=(FragmentRef(path="add/add.k", blake3=content(INPUTS["cohorts/add/add.k"])),),
        options=(),
        defines={"ROUTE": route},
        launches=(),
        arguments=(),
        target="virtual",
        toolkit_build="1.0.0",
    )


def module_path(route: str) -> str:
    """Where the run keeps the module's document."""
    return f"objects/{content(module(route).canonical())}.module.json"


def subject(route: str, cell: str = "f32-7") -> Subject:
    """A subject of the small operation; the route `plain` is its plain."""

    def arm(name: str) -> Arm:
        kernel = Kernel(symbol=name, grid=(1, 1, 1), block=(1, 1, 1))
        return Arm(route=name, identity=identify("module", module(name)), launches=(kernel,))

    return Subject(
        operation="add",
        domain=Domain(toolkit="simulated-1.0", arch="virtual"),
        cell=Cell(id=cell, integers={"n": 7}, names={}),
        arguments=(),
        variants=("ordinary",),
        role="plain" if route == "plain" else "candidate",
        candidate=arm(route),
        incumbent=arm("plain"),
        bits="own",
        numeric=Numeric(cap_relative="1e-5"),
        timing=Timing(),
        limits=Limits(source="test"),
    )


#: Size by route: `large` is stopped by gate `size`.
SIZES = {"plain": 10, "fast": 20, "large": LIMIT_BYTES + 1}


def plan(run: str = RUN, after: Iterable[str] = ()) -> Plan:
    """The plan of a small run: plain meets `size`, candidates meet `size` and `speed`."""
    settings: dict[str, Json] = {"size": {"limit_bytes": LIMIT_BYTES}, "speed": {"windows": 3}}
    needs: dict[str, tuple[str, ...]] = {"size": (), "speed": ("size",)}
    nodes = tuple(
        Node(
            gate=gate,
            rule=1,
            runs_on="host",
            settings=settings[gate],
            needs=needs[gate],
            cost_s="1",
            source_blake3="0" * 64,
        )
        for gate in ("size", "speed")
    )
    return Plan(
        judgement=JUDGEMENT,
        run=run,
        command="screen",
        pipeline="default",
        until=None,
        operation="add",
        dispatcher_revision=1,
        domain=Domain(toolkit="simulated-1.0", arch="virtual"),
        toolkit_build="1.0.0",
        board=None,
        after=tuple(sorted(after)),
        nodes=nodes,
        subjects=tuple(
            Planned(subject=subject(route), gates=("size",) if route == "plain" else ("size", "speed"))
            for route in SIZES
        ),
        falls_back=(),
        seed_sha256=hashlib.sha256(SEED).hexdigest(),
        inputs_sha256={path: hashlib.sha256(data).hexdigest() for path, data in INPUTS.items()},
    )


def run_record(run: str = RUN, *, interrupted: bool = False) -> RunRecord:
    """run.json of a small run."""
    return RunRecord(
        run=run,
        seed=SEED.hex(),
        ended="interrupted" if interrupted else "complete",
        started_utc="2026-01-01T00:00:00Z",
        ended_utc="2026-01-01T00:00:01Z",
        versions={},
        rig=None,
    )


def size_of(route: str) -> Measurement:
    """Gate `size` of one route."""
    return Measurement(gate="size", rule=1, state="measured", facts={"size_bytes": SIZES[route]}, host_ns=1)


def speed_of(times: bytes, size_sha256: str) -> Measurement:
    """Gate `speed` with its series."""
    ref: Json = {"name": "times", "count": len(times) // 8, "sha256": hashlib.sha256(times).hexdigest()}
    return Measurement(gate="speed", rule=1, state="measured", facts={"times": ref}, uses={"size": size_sha256})


TIMES = struct.pack("<3q", 5, 6, 7)


def measure(staged: StagedRun) -> None:
    """Record everything that a small run measures."""
    for route in SIZES:
        staged.attach(module_path(route), module(route).canonical())
        staged.record(subject(route), size_of(route), {})
    staged.fill()
    fast = subject("fast")
    staged.attach(OBJECT_PATH, OBJECT)
    staged.record(fast, speed_of(TIMES, staged.measurement(fast, "size")[1]), {"times": TIMES})
    closed = Measurement(gate="speed", rule=1, state="not-run", reason="closed by size")
    staged.record(subject("large"), closed, {})


def write_run(root: Path, run: str = RUN, announce: Callable[[str], None] = silent) -> Path:
    """Open, measure and seal one small run after everything that the store holds."""
    store = Store(root, announce=announce)
    staged = store.open(plan(run, store.heads()), INPUTS, GATES)
    measure(staged)
    return staged.seal(run_record(run))[0]


# What a forger can do. Paths are relative to the run's folder.
SPEED = "subjects/f32-7/fast/speed.json"
SIZE = "subjects/f32-7/large/size.json"
SERIES = "subjects/f32-7/fast/speed.times.i64le"


def rehash(run: Path) -> None:
    """Write a manifest that fits whatever lies in the run's folder now."""
    paths = sorted(path for path in run.rglob("*") if path.is_file() and path.name != manifest.MANIFEST)
    digests = {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    lines = "".join(f"{digest}  {path}\n" for path, digest in sorted(digests.items()))
    (run / manifest.MANIFEST).write_text(lines)


def rederive(run: Path) -> None:
    """Write the verdict that the files give now, then the manifest: a forger who knows the tool."""
    files = {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}
    judged = rejudge(Plan.parse(files[layout.PLAN]), RunRecord.parse(files[layout.RECORD]), files, GATES)
    assert judged.verdict is not None, judged.problems
    (run / layout.VERDICT).write_bytes(judged.verdict.canonical())
    rehash(run)


def edit(path: Path, change: Callable[[dict[str, Json]], None]) -> None:
    """Change a document's fields and write it canonically."""
    value = json.loads(path.read_bytes())
    change(value)
    path.write_bytes(canonical_bytes(value))
