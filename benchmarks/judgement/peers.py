"""Other tools on the same object code: Triton's `do_bench`, lower median wins; cuda-bench with its robust comparison.

Each runs in a process of its own after the gates are done, so that it shares the board with nobody. A tool that is
not here is said to be absent, never left out in silence.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.judgement.results import Line
from benchmarks.judgement.workloads import ROOT
from qualify import program
from qualify.bench import Rig
from qualify.elements import DTYPES
from qualify.subject import Subject

TOOLS = {"do_bench": "benchmarks.judgement.peer_do_bench", "nvbench": "benchmarks.judgement.peer_nvbench"}


@dataclass(frozen=True)
class Objects:
    """What other tools need of each case: object code by arm, and how it is launched."""

    cases: tuple[Line, ...]
    code: dict[str, bytes]

    @classmethod
    def of(cls, rig: Rig, cases: Sequence[tuple[Line, Subject]]) -> Objects:
        """Every case's two arms, as the compile workers made them."""
        rows: list[Line] = []
        code: dict[str, bytes] = {}
        for fields, subject in cases:
            arms: Line = {}
            for name in ("candidate", "incumbent"):
                arm = subject.candidate if name == "candidate" else subject.incumbent
                identity = str(arm.identity)
                _, data = rig.made(identity)
                code[identity] = data or b""
                (kernel,) = arm.kernels
                arms[name] = {"object": identity, "symbol": kernel.symbol, "grid": kernel.grid, "block": kernel.block}
            rows.append({**fields, "arms": arms, "arguments": _arguments(subject)})
        return cls(tuple(rows), code)

    def write(self, folder: Path) -> Path:
        """Objects as files, and the list of cases that names them."""
        for identity, data in self.code.items():
            (folder / identity).write_bytes(data)
        path = folder / "cases.json"
        path.write_text(json.dumps({"cases": self.cases}))
        return path


def _arguments(subject: Subject) -> list[Line]:
    """Each argument's size in memory, or a scalar's bytes."""
    slots = {slot.argument: slot for slot in program.slots(subject)}
    return [
        {"name": each.name, "kind": each.kind, "bytes": each.elements * DTYPES[each.dtype].size_bytes}
        if each.is_buffer
        else {"name": each.name, "kind": "scalar", "value": slots[each.name].value}
        for each in subject.arguments
    ]


def run(tool: str, objects: Objects, seconds: float) -> Iterator[Line]:
    """What a tool says of the cases within about so many seconds, line by line."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", TOOLS[tool], str(objects.write(Path(folder))), str(seconds)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
            for text in child.stdout or ():
                if text.startswith("{"):
                    yield {"kind": "peer", "tool": tool, **json.loads(text)}
            code = child.wait()
    if code:
        yield {"kind": "absent", "tool": tool, "family": "-", "gain_ppm": 0, "outcome": f"exit {code}", "seconds": 0.0}


def cases(path: Path) -> tuple[Line, ...]:
    """The cases of a list, with object code in place of its file's name."""
    rows: tuple[Line, ...] = tuple(json.loads(path.read_text())["cases"])
    for row in rows:
        for arm in row["arms"].values():
            arm["code"] = (path.parent / arm["object"]).read_bytes()
    return rows


def say(line: Any) -> None:
    """One line for the parent."""
    print(json.dumps(line), flush=True)
