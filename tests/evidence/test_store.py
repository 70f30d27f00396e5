"""Writing: what is on record and when, what is refused, and what one store does under two writers."""

import errno
import hashlib
import os
import re
import signal
import struct
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from qualify.domain import Domain
from qualify.errors import DocumentError, EvidenceError, InputError, RigError
from qualify.evidence import layout
from qualify.evidence.audit import verify_run, verify_store
from qualify.evidence.manifest import MANIFEST
from qualify.evidence.store import StagedRun, Store, run_id
from qualify.gate import Measurement
from qualify.model import Json
from qualify.plan import Plan
from tests.evidence.small import (
    GATES,
    INPUTS,
    OBJECT,
    OBJECT_PATH,
    RUN,
    SIZES,
    TIMES,
    measure,
    module,
    module_path,
    plan,
    run_record,
    size_of,
    speed_of,
    subject,
    write_run,
)


@pytest.fixture
def root(memory_path: Path) -> Path:
    return memory_path / "evidence"


@pytest.fixture
def staged(root: Path) -> StagedRun:
    return Store(root).open(plan(), INPUTS, GATES)


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_a_sealed_run_has_the_files_of_its_plan_and_no_others(root: Path) -> None:
    write_run(root)
    subjects = {f"subjects/f32-7/{route}/{name}.json" for route in SIZES for name in ("subject", "size")}
    speed = {f"subjects/f32-7/{name}" for name in ("fast/speed.json", "fast/speed.times.i64le", "large/speed.json")}
    inputs = {f"inputs/{path}" for path in INPUTS}
    objects = {OBJECT_PATH, *(module_path(route) for route in SIZES)}
    inside = {"plan.json", "run.json", "verdict.json", MANIFEST, *objects, *subjects, *speed, *inputs}
    assert files(root) == {f"opened/{RUN}.json", *(f"runs/{RUN}/{path}" for path in inside)}
    assert (root / f"opened/{RUN}.json").read_bytes() == (root / f"runs/{RUN}/plan.json").read_bytes()


def test_the_plan_is_on_record_before_anything_else_of_the_run(root: Path) -> None:
    operations: list[str] = []
    staged = Store(root, announce=operations.append).open(plan(), INPUTS, GATES)
    staged.fill()
    staged.close()
    opened = operations.index(f"after rename opened/{RUN}.json")
    before = [text for text in operations[:opened] if text.startswith("before create") and "probe" not in text]
    assert before == [f"before create staging/{RUN}/{name}" for name in ("plan.json", "opened.json")]
    assert operations.index(f"after sync staging/{RUN}/opened.json") < opened
    assert operations.index("after sync opened") < operations.index(f"before mkdir staging/{RUN}/inputs")


def test_a_run_that_nobody_filled_is_sealed_with_all_that_its_plan_names(root: Path) -> None:
    """As after an interrupt in the first gate."""
    modules = [(module_path(route), module(route).canonical()) for route in SIZES]
    staged = Store(root).open(plan(), INPUTS, GATES, modules)
    for planned in plan().subjects:
        for gate in planned.gates:
            staged.record(planned.subject, Measurement(gate=gate, rule=1, state="not-run", reason="interrupted"), {})
    folder, verdict = staged.seal(run_record(interrupted=True))
    assert "the run was interrupted" in verdict.reasons
    assert {path for path in files(root) if "/inputs/" in path or "/objects/" in path} == {
        f"runs/{RUN}/{path}" for path in (*(f"inputs/{name}" for name in INPUTS), *(path for path, _ in modules))
    }
    assert verify_run(folder, GATES).outcome == "verified"


def test_everything_is_on_the_device_before_the_rename_and_the_manifest_is_last(root: Path) -> None:
    operations: list[str] = []
    write_run(root, announce=operations.append)
    renamed = operations.index(f"before rename runs/{RUN}")
    staging = f"staging/{RUN}"
    created = [text.removeprefix("after create ") for text in operations if text.startswith("after create")]
    made = [text.removeprefix("after mkdir ") for text in operations if text.startswith("after mkdir staging/")]
    for path in (*created, *made):
        assert operations.index(f"after sync {path}") < renamed
    assert created[-1] == f"{staging}/{MANIFEST}"
    last_file = operations.index(f"after close {staging}/{MANIFEST}")
    for path in made:
        assert f"before sync {path}" in operations[last_file:renamed]
    assert operations[renamed + 1 :] == [
        f"after rename runs/{RUN}",
        *(f"{when} sync {name}" for name in ("runs", "staging") for when in ("before", "after")),
    ]


def test_a_measurement_comes_back_as_a_reader_sees_it(staged: StagedRun) -> None:
    written = size_of("fast")
    judged = staged.record(subject("fast"), written, {})
    assert (judged.gate, judged.outcome, [check.name for check in judged.checks]) == ("size", "pass", ["size"])
    path = staged.path / "subjects/f32-7/fast/size.json"
    assert path.read_bytes() == written.canonical()
    assert staged.measurement(subject("fast"), "size") == (written, hashlib.sha256(written.canonical()).hexdigest())


def test_a_measurement_stays_and_not_run_never_takes_its_place(staged: StagedRun) -> None:
    judged = staged.record(subject("fast"), size_of("fast"), {})
    absent = Measurement(gate="size", rule=1, state="not-run", reason="interrupted")
    assert staged.record(subject("fast"), absent, {}) == judged
    with pytest.raises(ValueError, match="on record already"):
        staged.record(subject("fast"), size_of("fast"), {})


def test_what_is_not_planned_is_not_recorded(staged: StagedRun) -> None:
    for other, gate in (("slow", "size"), ("plain", "speed"), ("fast", "numeric")):
        with pytest.raises(ValueError, match="not planned"):
            staged.record(subject(other), Measurement(gate=gate, rule=1, state="error"), {})
    with pytest.raises(ValueError, match="not planned"):
        staged.record(subject("fast").model_copy(update={"attempt": 2}), size_of("fast"), {})


@pytest.mark.parametrize("series", [{}, {"times": TIMES[:16]}, {"other": TIMES}, {"times": TIMES, "other": TIMES}])
def test_series_are_exactly_those_of_the_facts(series: dict[str, bytes], staged: StagedRun) -> None:
    with pytest.raises(ValueError, match="series"):
        staged.record(subject("fast"), speed_of(TIMES, "0" * 64), series)
    assert not list(staged.path.glob("subjects/*/*/speed*"))


def test_facts_without_a_canonical_form_are_refused_before_they_are_written(staged: StagedRun) -> None:
    deep: Json = []
    for _ in range(30):
        deep = [deep]
    measurement = Measurement.model_construct(
        gate="size", rule=1, state="measured", facts=deep, loss=None, reason=None, uses={}, host_ns=0
    )
    with pytest.raises(DocumentError):
        staged.record(subject("fast"), measurement, {})
    assert not list(staged.path.glob("subjects/*/*/size*"))


def test_objects_lie_under_their_own_digest_and_once(staged: StagedRun) -> None:
    staged.attach(OBJECT_PATH, OBJECT)
    staged.attach(OBJECT_PATH, OBJECT)
    staged.attach("telemetry/clocks.json", b"{}")
    for path, data in ((OBJECT_PATH, b"other"), ("objects/a.bin", OBJECT), ("plan.json", b""), ("telemetry", b"")):
        with pytest.raises(ValueError, match=r"objects/|keeps no file"):
            staged.attach(path, data)
    with pytest.raises(ValueError, match="another content"):
        staged.attach("telemetry/clocks.json", b"[]")


def test_a_run_without_all_its_measurements_is_not_sealed(staged: StagedRun, root: Path) -> None:
    staged.record(subject("fast"), size_of("fast"), {})
    with pytest.raises(EvidenceError, match="S08") as caught:
        staged.seal(run_record())
    assert staged.path.is_dir()
    assert not list((root / layout.RUNS).iterdir())
    assert caught.value.fix
    assert verify_store(root, GATES).opened == (RUN,)


@pytest.mark.parametrize(
    "path", ["inputs/cohorts/add/add.k", "subjects/f32-7/large/size.json", OBJECT_PATH, "plan.json"]
)
def test_a_run_whose_files_changed_after_they_were_written_is_not_sealed(path: str, staged: StagedRun) -> None:
    """The list of a run's files says what was written, not what the disk gives back."""
    measure(staged)
    data = (staged.path / path).read_bytes()
    (staged.path / path).write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(EvidenceError, match=f"{path}: C01|C01.*{path}"):
        staged.seal(run_record())
    assert staged.path.is_dir()


def test_a_file_that_the_run_did_not_write_is_not_sealed(staged: StagedRun) -> None:
    measure(staged)
    (staged.path / "objects" / f"{'0' * 64}.bin").write_bytes(b"planted")
    with pytest.raises(EvidenceError, match="S01"):
        staged.seal(run_record())


def test_what_is_sealed_is_what_was_said_when_it_was_recorded(staged: StagedRun) -> None:
    said = staged.record(subject("large"), size_of("large"), {})
    for route in ("plain", "fast"):
        staged.record(subject(route), size_of(route), {})
    for route in ("fast", "large"):
        staged.record(subject(route), Measurement(gate="speed", rule=1, state="not-run", reason="why"), {})
    for route in SIZES:
        staged.attach(module_path(route), module(route).canonical())
    folder, verdict = staged.seal(run_record(interrupted=True))
    assert said.outcome == "fail"
    assert said in [gate for one in verdict.subjects if one.route == "large" for gate in one.gates]
    assert (folder / "verdict.json").read_bytes() == verdict.canonical()


def test_an_interrupted_run_is_sealed_with_what_was_not_run(staged: StagedRun) -> None:
    for route in SIZES:
        for gate in ("size",) if route == "plain" else ("size", "speed"):
            absent = Measurement(gate=gate, rule=1, state="not-run", reason="interrupted")
            staged.record(subject(route), absent, {})
    audit = verify_run(staged.seal(run_record(interrupted=True))[0], GATES)
    assert audit.outcome == "verified"
    assert audit.verdict is not None
    assert "the run was interrupted" in audit.verdict.reasons


def test_the_same_run_is_not_sealed_as_complete(staged: StagedRun) -> None:
    for route in SIZES:
        for gate in ("size",) if route == "plain" else ("size", "speed"):
            staged.record(subject(route), Measurement(gate=gate, rule=1, state="not-run", reason="why not"), {})
    with pytest.raises(EvidenceError, match="V20"):
        staged.seal(run_record())


def test_a_run_name_is_used_once(root: Path) -> None:
    write_run(root)
    with pytest.raises(RigError, match="File exists") as caught:
        Store(root).open(plan(), INPUTS, GATES)
    assert "no record is ever replaced" in caught.value.fix
    assert verify_store(root, GATES).outcome == "verified"


def test_a_sealed_place_is_never_replaced(staged: StagedRun, root: Path) -> None:
    """An empty folder in the way is what a plain rename would replace silently."""
    (root / layout.RUNS / RUN).mkdir()
    measure(staged)
    with pytest.raises(RigError, match="rename"):
        staged.seal(run_record())
    assert staged.path.is_dir()


@pytest.mark.parametrize("path", ["a b.k", "../out.k", "/abs.k", "a/.hidden", "Pipelines.yaml", "pipelines.yaml/x"])
def test_an_input_that_cannot_lie_everywhere_is_refused_before_anything_is_on_record(path: str, root: Path) -> None:
    inputs = {**INPUTS, path: b""}
    made = plan().model_copy(
        update={"inputs_sha256": {name: hashlib.sha256(data).hexdigest() for name, data in inputs.items()}}
    )
    with pytest.raises(InputError) as caught:
        Store(root).open(made, inputs, GATES)
    assert caught.value.fix
    assert not root.exists()


BROKEN: dict[str, Callable[[Plan], Plan]] = {
    "other inputs": lambda made: made.model_copy(update={"inputs_sha256": {}}),
    "a subject twice": lambda made: made.model_copy(update={"subjects": made.subjects + made.subjects[1:2]}),
    "no plain": lambda made: made.model_copy(update={"subjects": made.subjects[1:]}),
    "nodes turned round": lambda made: made.model_copy(update={"nodes": made.nodes[::-1]}),
    "another operation": lambda made: made.model_copy(update={"operation": "mul"}),
    "heads out of order": lambda made: made.model_copy(update={"after": ("f" * 64, "0" * 64)}),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_plan_that_no_audit_would_verify_is_not_put_on_record(broken: str, root: Path) -> None:
    with pytest.raises(ValueError, match=RUN):
        Store(root).open(BROKEN[broken](plan()), INPUTS, GATES)
    assert not root.exists()


def test_a_file_system_without_an_exclusive_rename_is_refused_before_anything_is_on_record(root: Path) -> None:
    def refuse(operation: str) -> None:
        if operation.startswith("before rename"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    with pytest.raises(RigError) as caught:
        Store(root, announce=refuse).open(plan(), INPUTS, GATES)
    assert "put evidence/ on a local file system" in caught.value.fix
    assert files(root) == set()


@pytest.mark.parametrize("name", ["evidence", "evidence/opened", "evidence/staging", "evidence/runs"])
def test_a_store_behind_a_link_is_not_written(name: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RigError, match="P02"):
        Store(tmp_path / "evidence").open(plan(), INPUTS, GATES)
    assert not files(tmp_path)


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM])
def stop(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that raises KeyboardInterrupt, as a command hears both."""
    before = signal.signal(request.param, signal.default_int_handler)
    yield request.param
    signal.signal(request.param, before)


def stopping(number: signal.Signals, moment: str) -> Callable[[str], None]:
    """An announcement that raises a signal at one moment."""

    def announce(operation: str) -> None:
        if operation == moment:
            signal.raise_signal(number)

    return announce


def test_an_interrupt_is_heard_after_the_file_that_is_being_written(root: Path, stop: signal.Signals) -> None:
    moment = f"before write staging/{RUN}/subjects/f32-7/fast/size.json"
    staged = Store(root, announce=stopping(stop, moment)).open(plan(), INPUTS, GATES)
    with pytest.raises(KeyboardInterrupt):
        staged.record(subject("fast"), size_of("fast"), {})
    absent = Measurement(gate="size", rule=1, state="not-run", reason="interrupted")
    assert staged.record(subject("fast"), absent, {}).state == "measured"
    assert staged.measurement(subject("fast"), "size")[0] == size_of("fast")


def test_an_interrupt_while_sealing_is_heard_when_the_run_is_whole(root: Path, stop: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_run(root, announce=stopping(stop, f"before write staging/{RUN}/verdict.json"))
    audit = verify_store(root, GATES)
    assert (audit.outcome, len(audit.runs)) == ("verified", 1)


def test_a_run_id_tells_the_story_in_the_alphabet_of_paths() -> None:
    moment = datetime(2026, 1, 2, 1, 4, 5, tzinfo=timezone(timedelta(hours=2)))
    assert (
        run_id(moment, "rmsnorm", Domain(toolkit="cuda-13.2", arch="sm_90"), b"\x00\x01\x02\xff")
        == "20260101T230405Z-rmsnorm-cuda-13.2--sm_90-000102ff"
    )
    longest = run_id(moment, "o" * 127, Domain(toolkit="simulated-999.999", arch="a" * 41), bytes(4))
    assert re.fullmatch(r"[A-Za-z0-9_.+-]{1,127}", longest)


def in_children(*works: Callable[[], None]) -> list[int]:
    """Run each in a process of its own, at once; exit codes in order, 1 for an exception."""
    children = []
    for work in works:
        child = os.fork()
        if not child:
            code = 1
            try:
                work()
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def test_two_writers_share_a_store(root: Path) -> None:
    def write(name: str) -> None:
        for number in range(8):
            write_run(root, f"run-{name}-{number}")

    assert in_children(lambda: write("a"), lambda: write("b")) == [0, 0]
    audit = verify_store(root, GATES)
    assert (audit.outcome, len(audit.runs), audit.opened) == ("verified", 16, ())


def test_of_two_writers_with_one_name_one_wins(root: Path) -> None:
    names = [f"run-{number}" for number in range(8)]

    def write(mark: bytes) -> None:
        for name in names:
            try:
                write_run(root, name)
            except RigError:
                continue
            (root.parent / f"{name}.{os.getpid()}").write_bytes(mark)

    assert in_children(lambda: write(b"a"), lambda: write(b"b")) == [0, 0]
    assert len(list(root.parent.glob("run-*"))) == len(names)
    audit = verify_store(root, GATES)
    assert (audit.outcome, [run.run for run in audit.runs]) == ("verified", names)


def test_series_are_little_endian_integers(root: Path) -> None:
    data = (write_run(root) / "subjects/f32-7/fast/speed.times.i64le").read_bytes()
    assert struct.unpack("<3q", data) == (5, 6, 7)
