"""Small workspaces for tests of the commands: one operation, y = a + b, on the CPU device or on the virtual board."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qualify import cli
from tests.rigs import UNOPTIMISED

ROOT = Path(__file__).resolve().parents[2]
PIPELINES = """\
domains:
  - {toolkit: TOOLKIT, arch: native}
gates:
  contract: {cost_s: 0.001}
  compile: {cost_s: 0.4, needs: [contract]}
  digest: {cost_s: 1, needs: [compile], settings: {timeout_s: 10}}
pipelines:
  default: {screen: [contract, compile, digest], promote: all}
"""
COHORT = """\
operation: add
dispatcher_revision: 1
arguments:
  - {name: y, kind: output, dtype: float32, shape: [n], align: 16}
  - {name: a, kind: input, dtype: float32, shape: [n], align: 16}
  - {name: b, kind: input, dtype: float32, shape: [n], align: 16}
  - {name: n, kind: scalar, dtype: int32, value: n}
cells:
  - {id: small, n: 1000, timed: false}
routes:
  plain: {fragments: [plain.k], launches: [{symbol: add, grid: ["ceil_div(n, 64)"], block: [64]}]}
  candidate: {fragments: [candidate.k], launches: [{symbol: add, grid: ["ceil_div(n, 64)"], block: [64]}]}
  next: {fragments: [next.k], launches: [{symbol: add, grid: ["ceil_div(n, 64)"], block: [64]}]}
plain: plain
bits: identical
numeric: {multiple: 2, floor_ulp: 4, cap_relative: 1e-5}
reference: reference.py:add
timing: {use: launch, cache: cold}
state: []
"""
REFERENCE = "def add(cell, inputs):\n    return {'y': inputs['a'] + inputs['b']}\n"
HEAD = "__kernel void add(__global float *y, __global const float *a, __global const float *b, int n)"
HONEST = HEAD + " {\n  int i = get_global_id(0);\n  if (i < n) y[i] = a[i] + b[i];\n}\n"
NEXT = HEAD + " {\n  int i = get_global_id(0);\n  if (i < n) y[i] = b[i] + a[i];\n}\n"
SIMULATED = '{"entries": {"add": {"does": "add"}}}'


@dataclass(frozen=True)
class Done:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def verdict(self) -> Any:
        """verdict.json, as `--json` printed it."""
        return json.loads(self.out)

    def outcome(self, route: str) -> tuple[str, str | None]:
        """A route's outcome and the gate that closed it."""
        for subject in self.verdict["subjects"]:
            if subject["route"] == route:
                return subject["outcome"], subject["closed_by"]
        raise AssertionError(f"no subject {route} in {self.out}")


@dataclass(frozen=True)
class Workspace:
    """A workspace on disk and the command run in it."""

    path: Path

    def write(self, name: str, text: str) -> None:
        """Write one file of the operation."""
        (self.path / "cohorts/add" / name).write_text(text)

    def replace(self, name: str, old: str, new: str) -> None:
        """Change one place of a workspace file; the place must be there."""
        file = self.path / name
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def run(self, *arguments: str, environment: Mapping[str, str] | None = None, **options: Any) -> Done:
        """Run `qualify` here to its end."""
        found = subprocess.run(
            command(*arguments),
            cwd=self.path,
            env=clean(environment),
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
            **options,
        )
        return Done(found.returncode, found.stdout, found.stderr)

    def screen(self, *arguments: str, **options: Any) -> Done:
        """`qualify screen --json`."""
        return self.run("screen", "--json", *arguments, **options)

    def here(self, *arguments: str) -> Done:
        """Run `qualify` in this process: the same command without a second of imports; a bug is its own traceback."""
        out, err, on_end = io.StringIO(), io.StringIO(), signal.getsignal(signal.SIGTERM)
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            patch.chdir(self.path)
            patch.setattr(sys, "argv", ["qualify", *arguments])
            try:
                with pytest.raises(SystemExit) as ended:
                    cli.main()
            finally:
                signal.signal(signal.SIGTERM, on_end)
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, out.getvalue(), err.getvalue())

    def screen_here(self, *arguments: str) -> Done:
        """`qualify screen --json` in this process."""
        return self.here("screen", "--json", *arguments)

    def sealed(self) -> list[Path]:
        """The sealed runs."""
        return sorted((self.path / "evidence/runs").glob("*"))

    def opened(self) -> list[Path]:
        """The plans on record."""
        return sorted((self.path / "evidence/opened").glob("*.json"))


def command(*arguments: str) -> list[str]:
    """The command line of `qualify` in this environment."""
    return [sys.executable, "-m", "qualify", *arguments]


def clean(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment with the tree on the path."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **(more or {})}


ROUTE = """\
  {name}: {{fragments: [{name}.k], launches: [{{symbol: add, grid: ["ceil_div(n, 64)"], block: [64]}}]}}
"""


def with_routes(path: Path, kernels: Mapping[str, str]) -> Workspace:
    """A workspace with these kernels as routes between the honest candidate and the honest next."""
    made = make(path)
    rows = unoptimised("".join(ROUTE.format(name=name) for name in kernels))
    made.replace("cohorts/add/cohort.yaml", "  next: {", rows + "  next: {")
    for name, text in kernels.items():
        made.write(f"{name}.k", text)
    return made


def unoptimised(routes: str) -> str:
    """The same routes, compiled without what takes PoCL longer than all else together."""
    return routes.replace("], launches:", f"], options: {json.dumps(UNOPTIMISED['opencl'])}, launches:")


def make(path: Path, toolkit: str = "pocl-3.0") -> Workspace:
    """A workspace whose candidate and next route are honest."""
    (path / "cohorts/add").mkdir(parents=True)
    (path / "pipelines.yaml").write_text(PIPELINES.replace("TOOLKIT", toolkit))
    made = Workspace(path)
    honest = toolkit.startswith("pocl")
    made.write("cohort.yaml", unoptimised(COHORT) if honest else COHORT)
    made.write("reference.py", REFERENCE)
    made.write("plain.k", HONEST if honest else SIMULATED)
    made.write("candidate.k", HONEST.replace("int i", "size_t i") if honest else SIMULATED + " ")
    made.write("next.k", NEXT if honest else SIMULATED + "  ")
    return made
