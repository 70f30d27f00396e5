"""Subjects and verdicts for tests of gates: y = a + b over `n` elements, judged through `decide` as evidence is."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from gates import GATES
from qualify.contract import Argument, Arm, Cell, Kernel, Launch, Numeric, Stride, Timing, Variant
from qualify.domain import Domain, Limits
from qualify.gate import Facts, Measurement, Outputs, Sanitized, SeriesRef, Session
from qualify.judgement import decide, rules_of
from qualify.objectcode import Built
from qualify.plan import Node
from qualify.steps import ArmName, Step
from qualify.subject import Subject
from qualify.verdict import Check, Verdict

F = TypeVar("F", bound=Facts)
N = 1000
LIMITS = Limits(
    block_threads=1024,
    block=(1024, 1024, 64),
    grid=(1 << 30, 65535, 65535),
    shared_bytes=65536,
    parameter_bytes=4096,
    compute_units=8,
    memory_bytes=256 << 20,
    cache_bytes=1 << 20,
    source="test",
)


def buffer(name: str, kind: Any, n: int = N, dtype: str = "float32", **more: Any) -> Argument:
    """A buffer argument of `n` elements."""
    return Argument(name=name, kind=kind, dtype=dtype, shape=(n,), align=16, **more)


def arguments(n: int = N, dtype: str = "float32") -> tuple[Argument, ...]:
    """y, a, b and n."""
    return (
        buffer("y", "output", n, dtype),
        buffer("a", "input", n, dtype),
        buffer("b", "input", n, dtype),
        Argument(name="n", kind="scalar", dtype="int32", value=str(n)),
    )


def kernel(symbol: str = "add", grid: int = 10, block: int = 100, **more: Any) -> Kernel:
    """A launch in one dimension."""
    return Kernel(symbol=symbol, grid=(grid, 1, 1), block=(block, 1, 1), **more)


def arm(route: str = "wide", *launches: Launch, **more: Any) -> Arm:
    """A composed route; without launches it launches `add`."""
    return Arm(route=route, **{"identity": "ab" * 32, "launches": launches or (kernel(),), **more})


def subject(toolkit: str = "simulated-1.0", **changes: Any) -> Subject:
    """A candidate beside plain on a device of LIMITS."""
    fields: dict[str, Any] = {
        "operation": "vector_add",
        "domain": Domain(toolkit=toolkit, arch="virtual"),
        "cell": Cell(id="c", integers={"n": N}, names={}),
        "arguments": arguments(),
        "variants": ("ordinary",),
        "role": "candidate",
        "candidate": arm(),
        "incumbent": arm("plain"),
        "bits": "identical",
        "numeric": Numeric(cap_relative="1e-5"),
        "timing": Timing(),
        "limits": LIMITS,
    }
    return Subject(**{**fields, **changes})


def idling(about: Subject, groups: int = 200) -> Subject:
    """A plain route as a candidate whose grids have so many work-groups that most find nothing to do.

    Its passes are as long as a unit, so that a trial of it takes dozens of sets and not hundreds.
    """
    launches = tuple(
        each.model_copy(update={"grid": (groups, 1, 1)}) if isinstance(each, Kernel) else each
        for each in about.candidate.launches
    )
    wide = about.candidate.model_copy(update={"launches": launches})
    return about.model_copy(update={"role": "candidate", "candidate": wide, "incumbent": wide})


def series_ref(name: str, values: Sequence[int]) -> SeriesRef:
    """The reference of a series as a bench makes it."""
    data = packed(values)
    return SeriesRef(name=name, count=len(values), sha256=hashlib.sha256(data).hexdigest())


def packed(values: Sequence[int]) -> bytes:
    """A series as it lies beside the facts."""
    return struct.pack(f"<{len(values)}q", *values)


def verdict(
    gate: str,
    about: Subject,
    facts: Facts,
    series: Mapping[str, Sequence[int]] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Verdict:
    """What `decide` says of these facts under the gate's newest rule."""
    rule = GATES[gate].rule
    node = Node(
        gate=gate,
        rule=rule.number,
        runs_on=GATES[gate].runs_on,
        settings=rule.settings(**(settings or {})).model_dump(mode="json"),
        needs=(),
        cost_s="1",
        source_blake3="0" * 64,
    )
    measurement = Measurement(gate=gate, rule=rule.number, state="measured", facts=facts.model_dump(mode="json"))
    data = {name: packed(values) for name, values in (series or {}).items()}
    return decide(node, about, measurement, data, rules_of(GATES[gate]))


def check(found: Verdict, name: str) -> Check:
    """The check of that name; fails the test if there is none or more than one."""
    (only,) = [each for each in found.checks if each.name == name]
    return only


def not_held(found: Verdict) -> dict[str, bool | None]:
    """The checks that close a verdict: name, and whether false or unknown."""
    return {each.name: each.holds for each in found.checks if each.holds is not True}


class NoBench:
    """The bench of a gate that needs no child; asking it for one fails the test."""

    def build(self, arm: Arm) -> Built:
        raise AssertionError(arm)

    def exact(self, subject: Subject, variant: Variant, seed: str) -> Outputs:
        raise AssertionError(variant)

    def session(self, subject: Subject, *arms: ArmName) -> AbstractContextManager[Session]:
        raise AssertionError(arms)

    def sanitized(self, subject: Subject, tool: str, steps: Sequence[Step], timeout_s: float) -> Sanitized:
        raise AssertionError(tool)

    def needed(self, gate: str, facts: type[F]) -> F:
        raise AssertionError(gate)

    def seed(self, label: str) -> str:
        raise AssertionError(label)

    def series(self, name: str, values: Sequence[int]) -> SeriesRef:
        raise AssertionError(name)


def matrices(rows: int = 13, cols: int = 7) -> tuple[Argument, ...]:
    """y, a and b of `rows` by `cols`, both numbers, and the stride of their rows."""
    shaped = (("y", "output"), ("a", "input"), ("b", "input"))
    return (
        *(buffer(name, kind).model_copy(update={"shape": (rows, cols)}) for name, kind in shaped),
        *(Argument(name=n, kind="scalar", dtype="int32", value=str(v)) for n, v in (("rows", rows), ("cols", cols))),
        *(
            Argument(name=f"{n}_pitch", kind="scalar", dtype="int32", value=str(cols), stride=Stride(of=n, axis=0))
            for n, _ in shaped
        ),
    )


VARIANTS: tuple[Variant, ...] = ("ordinary", "exceptional")
