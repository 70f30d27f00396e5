"""`qualify check` of 500 admissions, whole process, beside reading the same files with json in a bare Python.

Once nothing has moved, once a comment of the one fragment that all modules share, so that every cell is composed
again and closed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from gates import GATES
from qualify import __version__, cohort
from qualify.admission import Admission, Counts, Parts, append
from qualify.contract import Arm, Cell, Module
from qualify.domain import Board, Domain, Limits
from qualify.evidence import layout, manifest
from qualify.judgement import JUDGEMENT, GateVerdict, RunVerdict, SubjectVerdict
from qualify.live import reference
from qualify.plan import Node, Plan, Planned, RunRecord
from qualify.subject import Subject
from qualify.verdict import Check

OPERATIONS, CELLS, ROUNDS = 10, 50, 9
TARGET_S = 0.5
BUILD = "a build"
DOMAIN = Domain(toolkit="pocl-3.0", arch="bench")
LIMITS = Limits(source="bench")
BOARD = Board(name="bench", uuid="0", driver="0", addressing="host", limits=LIMITS)
COHORT = """\
operation: {operation}
dispatcher_revision: 1
arguments:
  - {{name: y, kind: output, dtype: "{{dtype}}", shape: [rows, cols], align: 16}}
  - name: x
    kind: input
    dtype: "{{dtype}}"
    shape: [rows, cols]
    align: 16
    fill: {{normal: {{mean: 0.3, scale: 1.7}}}}
  - {{name: w, kind: input, dtype: float32, shape: [cols], align: 16}}
  - {{name: rows, kind: scalar, dtype: int32, value: rows}}
  - {{name: cols, kind: scalar, dtype: int32, value: cols}}
cells:
{cells}
routes:
  plain: {{fragments: ["common/{{runtime}}.h", plain.k], launches: [{{symbol: plain, grid: [rows], block: [256]}}]}}
  fast:
    fragments: ["common/{{runtime}}.h", fast.k]
    launches: [{{symbol: fast, grid: ["ceil_div(rows, 8)"], block: [256]}}]
    admits: "cols % 4 == 0"
    defines: {{T: "{{dtype}}"}}
plain: plain
bits: own
numeric: {{multiple: 2, floor_ulp: 4, cap_relative: 1e-5}}
reference: reference.py:exact
"""
KERNEL = '#include "common/opencl.h"\n' + "/* a kernel of the usual length */\n" * 200
READ = (
    "import glob, json, sys\nfor path in glob.glob(sys.argv[1] + '/cohorts/*/admissions/*.json'): json.load(open(path))"
)


def main() -> int:
    """Make the workspaces, time all in turns, print medians and ratios. Returns 1 if a check is over the target."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # What is installed has its bytecode after the first start.
    with TemporaryDirectory() as folder:
        workspace, edited = Path(folder) / "as-admitted", Path(folder) / "edited"
        workspace.mkdir()
        (workspace / "pipelines.yaml").touch()
        for number in range(OPERATIONS):
            make(workspace, f"operation_{number}")
        shutil.copytree(workspace, edited)
        (edited / "cohorts/common/opencl.h").write_text("/* reworded */\n")
        qualify = str(Path(sys.executable).with_name("qualify"))
        commands = {
            "python reads the files with json": (sys.executable, "-c", READ, str(workspace)),
            "qualify check, nothing moved": (qualify, "check", "--workspace", str(workspace)),
            "qualify check, all closed": (qualify, "check", "--workspace", str(edited)),
        }
        found = rounds(commands)
    medians = {name: statistics.median(times) for name, times in found.items()}
    read, *checks = medians
    print(f"{OPERATIONS * CELLS} admissions in {OPERATIONS} operations, median of {ROUNDS}, whole process")
    for name, seconds in medians.items():
        print(f"{name:<34} {seconds * 1000:>6.0f} ms {seconds / medians[read]:>6.1f} x")
    met = all(medians[name] <= TARGET_S for name in checks)
    print(f"target: under {TARGET_S * 1000:.0f} ms: {'met' if met else 'missed'}")
    return 0 if met else 1


def rounds(commands: Mapping[str, tuple[str, ...]]) -> dict[str, list[float]]:
    """Seconds of each command in each round; what the checks say is checked too."""
    said = {"qualify check, nothing moved": "500 open, 0 closed", "qualify check, all closed": "0 open, 500 closed"}
    found: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(ROUNDS):
        for name in list(commands)[:: 1 if number % 2 else -1]:
            started = time.perf_counter()
            done = subprocess.run(commands[name], check=False, capture_output=True, text=True)
            found[name].append(time.perf_counter() - started)
            assert said.get(name, "") in done.stdout, done
    return found


def make(workspace: Path, operation: str) -> None:
    """An operation whose every cell is admitted, and as much of the run behind it as a check reads."""
    folder = workspace / "cohorts" / operation
    folder.mkdir(parents=True)
    (workspace / "cohorts/common").mkdir(exist_ok=True)
    (workspace / "cohorts/common/opencl.h").write_text(KERNEL.replace("#include", "//"))
    for name in ("plain.k", "fast.k"):
        (folder / name).write_text(KERNEL)
    (folder / "reference.py").write_text("def exact(cell, inputs):\n    return {}\n")
    cells = "\n".join(f"  - {{id: f32-{n}x512, dtype: float32, rows: {n}, cols: 512}}" for n in range(1, CELLS + 1))
    (folder / "cohort.yaml").write_text(COHORT.format(operation=operation, cells=cells))
    item = cohort.load(workspace, operation)
    subjects = [subject for cell in item.cells for subject in subjects_of(item, cell)]
    run = f"run-of-{operation}"
    manifest_sha256 = keep(workspace / "evidence/runs" / run, planned(item, run, subjects), verdict(run, subjects))
    admitted = {each.cell.id: admission(item, each, run, manifest_sha256) for each in subjects if each.role != "plain"}
    append(workspace, operation, DOMAIN, admitted)


def module_of(item: cohort.Cohort, cell: Cell, route: str) -> tuple[Arm, Module]:
    """A route of a cell, composed."""
    made = cohort.compose(item, cell, item.routes[route], DOMAIN, BUILD)
    assert made.arm is not None
    assert made.composed is not None
    return made.arm, made.composed.module


def subjects_of(item: cohort.Cohort, cell: Cell) -> list[Subject]:
    """Plain and fast of a cell."""
    plain, fast = (module_of(item, cell, route)[0] for route in ("plain", "fast"))
    return [cohort.subject(item, DOMAIN, LIMITS, cell, arm, plain) for arm in (plain, fast)]


def planned(item: cohort.Cohort, run: str, subjects: list[Subject]) -> Plan:
    """The plan of a promotion through every gate there is."""
    nodes = tuple(
        Node(
            gate=name,
            rule=gate.rule.number,
            runs_on=gate.runs_on,
            settings=gate.rule.settings().model_dump(mode="json"),
            needs=(),
            cost_s="1",
            source_blake3="0" * 64,
            conclusive=gate.rule.shows == "times",
        )
        for name, gate in GATES.items()
    )
    return Plan(
        judgement=JUDGEMENT,
        run=run,
        command="promote",
        pipeline="default",
        until=None,
        operation=item.operation,
        dispatcher_revision=1,
        reference=f"{item.reference.path}:{item.reference.function}",
        domain=DOMAIN,
        toolkit_build=BUILD,
        board=BOARD,
        after=(),
        nodes=nodes,
        subjects=tuple(Planned(subject=each, gates=gates_of(each)) for each in subjects),
        falls_back=(),
        seed_sha256="0" * 64,
        inputs_sha256={path: hashlib.sha256(data).hexdigest() for path, data in item.inputs.items()},
    )


def gates_of(subject: Subject) -> tuple[str, ...]:
    """What is planned for a subject."""
    return tuple(name for name, gate in GATES.items() if not (gate.timed and subject.role == "plain"))


def gate_verdict(name: str) -> GateVerdict:
    """A pass of a gate, with every check that it may have and figures as long as real ones."""
    found = {"faster": "at least 1.25"}
    got = dict.fromkeys(GATES[name].rule.fixes, "large: 4096 of 4096 bytes as planned") | found
    checks = tuple(Check(name=each, got=got[each], want="as planned", holds=True) for each in GATES[name].rule.fixes)
    number = GATES[name].rule.number
    return GateVerdict(gate=name, rule=number, state="measured", outcome="pass", checks=checks, notes=())


def verdict(run: str, subjects: list[Subject]) -> RunVerdict:
    """Everything passes."""
    passes = {name: gate_verdict(name) for name in GATES}
    return RunVerdict(
        run=run,
        operation=subjects[0].operation,
        domain=DOMAIN,
        trust=DOMAIN.trust,
        addressing="host",
        partial=False,
        admissible=True,
        reasons=(),
        subjects=tuple(
            SubjectVerdict(
                cell=each.cell.id,
                route=each.candidate.route,
                role=each.role,
                outcome="pass",
                closed_by=None,
                gates=tuple(passes[name] for name in gates_of(each)),
            )
            for each in subjects
        ),
    )


def keep(folder: Path, plan: Plan, verdict: RunVerdict) -> str:
    """The files that a check reads, and the digest of their manifest, which lists all that a run has."""
    folder.mkdir(parents=True)
    record = RunRecord(
        run=plan.run,
        seed="0" * 64,
        ended="complete",
        started_utc="2026-01-01T00:00:00Z",
        ended_utc="2026-01-01T00:00:01Z",
        versions={"qualify": __version__},
        rig=None,
    )
    files = {
        layout.PLAN: plan.canonical(),
        layout.RECORD: record.canonical(),
        layout.VERDICT: verdict.canonical(),
    }
    for path, data in files.items():
        (folder / path).write_bytes(data)
    for each in plan.subjects:
        files[f"{layout.subject_folder(each.subject.key)}/{layout.SUBJECT}"] = each.subject.canonical()
        files |= {layout.measurement_path(each.subject.key, name): b"" for name in each.gates}
    data = manifest.write({path: hashlib.sha256(data).hexdigest() for path, data in files.items()})
    (folder / manifest.MANIFEST).write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def admission(item: cohort.Cohort, subject: Subject, run: str, manifest_sha256: str) -> Admission:
    """What promote would write of a subject."""
    candidate, incumbent = (module_of(item, subject.cell, route)[1] for route in ("fast", "plain"))
    return Admission(
        kind="measured",
        subject=subject,
        toolkit_build=BUILD,
        candidate=Parts.of(candidate),
        incumbent=Parts.of(incumbent),
        plain=None,
        reference=reference(item),
        dispatcher_revision=1,
        pipeline="default",
        board=BOARD,
        object_blake3=None,
        outputs=None,
        bound="1.25",
        run=run,
        manifest_sha256=manifest_sha256,
        counts=Counts(opened=2, passed=2, failed=0, inconclusive=0, left_open=0),
        admitted_utc="2026-01-01T00:00:00Z",
    )


if __name__ == "__main__":
    sys.exit(main())
