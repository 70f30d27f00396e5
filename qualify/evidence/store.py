"""The evidence store: a plan is on record before anything is measured, a run is sealed by one rename (section 11).

Nothing that is on record is changed or removed. Two processes may write to one store at once: exclusive creates and a
rename that never replaces decide, not a lock.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from qualify.caps import MAX_DOCUMENT_BYTES
from qualify.domain import Domain
from qualify.errors import EvidenceError, InputError, RigError, UsageError
from qualify.evidence import audit, history, layout, manifest
from qualify.evidence.durable import Announce, Writer, interrupts_held, silent
from qualify.evidence.files import below, folder
from qualify.evidence.heads import HeadsCache
from qualify.evidence.problems import Problem, ProblemError, printable
from qualify.evidence.rejudge import document
from qualify.evidence.run_folder import RunFolder, as_rig_error
from qualify.evidence.withdrawal import MAX_REASON_CHARS, Withdrawal
from qualify.gate import Measurement
from qualify.identity import content
from qualify.judgement import GateVerdict, Rules, RunVerdict, absent, conclude, conclude_subject, judge_gate
from qualify.plan import Plan, Planned, RunRecord
from qualify.subject import Subject

MAX_OPERATION_CHARS = 40  # The rest of a run's name takes 86 of the 127 characters of a path segment.
MAX_SHOWN_PROBLEMS = 5


def run_id(now: datetime, operation: str, domain: Domain, random: bytes) -> str:
    """A name that tells the story in a listing; its meaning is read from the plan only (R11.2). `random` is 4 bytes."""
    moment = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{moment}-{operation[:MAX_OPERATION_CHARS]}-{domain.toolkit}--{domain.arch}-{random[:4].hex()}"


def now_utc() -> str:
    """The time as evidence writes it, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Store:
    """The evidence folder of a workspace. Reading makes nothing; the first `open` makes the folders."""

    def __init__(self, root: Path, *, announce: Announce = silent) -> None:
        self.root = Path(os.path.abspath(root))
        self._writer = Writer(str(self.root), announce)
        self._cache = HeadsCache(self.root)

    def heads(self) -> tuple[str, ...]:
        """The records that no plan names: what a new plan comes after.

        They come from the cache where it can be trusted, else from the whole history. Raises EvidenceError if that is
        bad.
        """
        cached = self._cache.read()
        return self.history().heads if cached is None else cached

    def listing(self) -> tuple[history.Entry, ...]:
        """Every opened run by name, sealed or not. Raises EvidenceError if the history is bad."""
        entries = self.history().entries
        return tuple(entries[run] for run in sorted(entries))

    def open(
        self,
        plan: Plan,
        inputs: Mapping[str, bytes],
        gates: Mapping[str, Rules],
        objects: Iterable[tuple[str, bytes]] = (),
    ) -> StagedRun:
        """Put a plan on record; nothing was measured before. Its inputs, subjects and these objects are for `fill`.

        What is recorded will be judged by the rules of `gates`.

        Raises InputError for an input's name outside the alphabet of evidence, RigError if the file system cannot
        hold evidence or a run of this name is on record, ValueError for a plan that contradicts itself.
        """
        data = _checked(plan, inputs)
        run = StagedRun(self.root, self._writer, plan, gates, inputs, objects)
        try:
            run.begin(data)
        except BaseException:
            run.close()
            raise
        return run

    def history(self) -> history.History:
        """Every record of the store, read from disk. Raises EvidenceError if one is bad or gone."""
        if not os.path.lexists(self.root):
            return history.History({})
        seen = self._cache.stamps()
        try:
            with folder(str(self.root), self.root.name) as at:
                graph, problems = history.read(at)
        except ProblemError as error:
            graph, problems = history.History({}), [error.problem]
        if problems:
            raise _evidence_error(f"the history of {self.root} does not verify", problems)
        self._cache.keep(graph.head_files, seen)
        return graph

    def withdraw(self, run: str, reason: str, now_utc: str) -> Withdrawal:
        """Put on record, for ever, that a run is not to be relied on: admissions that rest on it close.

        Raises UsageError for a run that was never opened, is withdrawn already, or without a reason; EvidenceError if
        the history is bad, RigError if it cannot be written.
        """
        graph = self.history()
        withdrawal = _withdrawal(graph, run, reason, now_utc)
        data, name = withdrawal.canonical(), f"{run}.json"
        place, staged = f"{layout.WITHDRAWN}/{name}", f"{run}.withdrawn-{os.urandom(4).hex()}.json"
        with interrupts_held(), as_rig_error(), folder(str(self.root), self.root.name) as top:
            self._writer.ensure_folder(top, layout.WITHDRAWN, layout.WITHDRAWN)
            self._writer.sync_folder(top, ".")
            with below(top, layout.STAGING) as staging, below(top, layout.WITHDRAWN) as withdrawn:
                self._writer.write(staging, staged, f"{layout.STAGING}/{staged}", data)
                with self._cache.changing(adds={hashlib.sha256(data).hexdigest(): place}, ends=()):
                    self._writer.move(staging, staged, withdrawn, name, place)
                self._writer.sync_folder(withdrawn, layout.WITHDRAWN)
                self._writer.sync_folder(staging, layout.STAGING)
        return withdrawal


def _withdrawal(graph: history.History, run: str, reason: str, now_utc: str) -> Withdrawal:
    entry, earlier = graph.entries.get(run), graph.withdrawn.get(run)
    if entry is None:
        raise UsageError(f"expected a run of this store, got {run}", fix="qualify verify-evidence lists the runs")
    if earlier is not None:
        raise UsageError(f"{run} is withdrawn already: {earlier.reason}", fix="nothing: a withdrawal never changes")
    if not 0 < len(reason.strip()) <= MAX_REASON_CHARS:
        raise UsageError(
            f"expected a reason of 1 to {MAX_REASON_CHARS} characters, got {len(reason.strip())}",
            fix="say in a sentence why nobody may rely on the run",
        )
    digest = entry.manifest_sha256 or entry.plan_sha256
    return Withdrawal(run=run, record_sha256=digest, reason=reason.strip(), withdrawn_utc=now_utc)


class StagedRun:
    """A run that is being written, in staging/ until it is sealed. Its methods may be called from several threads."""

    def __init__(
        self,
        root: Path,
        writer: Writer,
        plan: Plan,
        gates: Mapping[str, Rules],
        inputs: Mapping[str, bytes],
        objects: Iterable[tuple[str, bytes]],
    ) -> None:
        self.plan = plan
        self.path = root / layout.STAGING / plan.run
        self._root, self._writer, self._cache, self._gates = root, writer, HeadsCache(root), gates
        self._planned = {planned.subject.key: planned for planned in plan.subjects}
        self._inputs, self._objects = sorted(inputs.items()), objects
        self._filled = False
        #: By subject and gate what verdict.json will say, as JSON, which is smaller than documents are.
        self._judged: dict[tuple[tuple[str, str], str], bytes] = {}
        self._attached: dict[str, str] = {}  # BLAKE3 by path
        self._lock = threading.Lock()
        self._handles = ExitStack()

    def close(self) -> None:
        """Give the folders' descriptors back; an unsealed run stays in staging/."""
        self._handles.close()

    def begin(self, data: bytes) -> None:
        """Make the folders and put the plan's bytes on record. `Store.open` calls it once."""
        with as_rig_error():
            self._make_store()
            self._probe()
            self._put_on_record(data)

    def fill(self) -> None:
        """Store what is known before anything is measured: inputs, subjects, objects. Once; a seal sees to it.

        The plan names all of it, so it may be written beside the first measurements. Raises RigError.
        """
        if not self._filled:
            self._filled = True
            with interrupts_held():
                self._fill()

    def _fill(self) -> None:
        with self._lock:
            for path, data in self._inputs:
                self._folder.write(layout.input_path(path), data)
            for key, planned in self._planned.items():
                self._folder.write(f"{layout.subject_folder(key)}/{layout.SUBJECT}", planned.subject.canonical())
        for path, data in self._objects:
            self.attach(path, data)

    def record(self, subject: Subject, measurement: Measurement, series: Mapping[str, bytes]) -> GateVerdict:
        """Write a measurement and its series, and judge what a reader gets back; the seal waits for the device.

        Called once a gate, but that a `not-run` never takes the place of a measurement: what is on record stays.
        Raises DocumentError if the measurement has no canonical form, ValueError if the plan has no such gate or the
        series are not those of the facts, RigError if it cannot be written.
        """
        place, path = (subject.key, measurement.gate), layout.measurement_path(subject.key, measurement.gate)
        data = measurement.canonical()
        parsed = Measurement.parse(data)
        self._check_planned(subject, measurement, series)
        with interrupts_held(), self._lock:
            if place in self._judged:
                if measurement.state == "not-run":
                    return GateVerdict.parse(self._judged[place])
                raise ValueError(f"{measurement.gate} of {'/'.join(subject.key)} is on record already")
            for name, values in sorted(series.items()):
                self._folder.write(layout.series_path(*place, name), values)
            self._folder.write(path, data)
            self._check_written(path, data)
            verdict = judge_gate(self.plan, subject, parsed, series, self._gates)
            self._judged[place] = verdict.canonical()
        return verdict

    def sha256(self, subject: Subject, gate: str) -> str:
        """The SHA-256 of a recorded measurement's file. Raises KeyError if there is none."""
        return self._folder.digests[layout.measurement_path(subject.key, gate)]

    def measurement(self, subject: Subject, gate: str) -> tuple[Measurement, str]:
        """A recorded measurement and the SHA-256 of its file. Raises KeyError if there is none, RigError if it changed.

        It is read again, so that a run of a thousand subjects holds none of them.
        """
        path, sha256 = layout.measurement_path(subject.key, gate), self.sha256(subject, gate)
        with as_rig_error():
            data = self._folder.read(path, MAX_DOCUMENT_BYTES)
            if hashlib.sha256(data).hexdigest() != sha256:
                raise ProblemError("C01", path, "it is not what was written")
            return document(Measurement, data, path), sha256

    def attach(self, path: str, data: bytes) -> None:
        """Keep an object under objects/<BLAKE3>.<extension>, or telemetry under telemetry/; the same again is fine.

        Raises ValueError for another path, or another content of a path, RigError if it cannot be written.
        """
        limit = layout.limit_of(path)
        if not layout.is_attached(path) or limit is None or len(data) > limit:
            raise ValueError(f"a run keeps no file {path} of {len(data)} bytes")
        digest = content(data)
        if path.startswith("objects/") and layout.object_digest(path) != digest:
            raise ValueError(f"expected objects/{digest}.<extension>, got {path}")
        with interrupts_held(), self._lock:
            if path not in self._attached:
                self._folder.write(path, data)
                self._attached[path] = digest
            elif self._attached[path] != digest:
                raise ValueError(f"{path} is kept already with another content")

    def keeps(self, path: str) -> bool:
        """Whether something was attached under a path."""
        return path in self._attached

    def seal(self, record: RunRecord) -> tuple[Path, RunVerdict]:
        """Write the verdict and the list of all files, audit the whole as a stranger would, and rename it.

        The folder, and the verdict that the audit derived.

        Raises EvidenceError if the audit does not verify: it reads every file again, judges every measurement again,
        and wants what was written and said here. RigError if it cannot be written. The run then stays in staging/, and
        its plan stays on record.
        """
        with interrupts_held():
            self.fill()
            return self._seal(record)

    def _seal(self, record: RunRecord) -> tuple[Path, RunVerdict]:
        self._folder.write(layout.RECORD, record.canonical())
        self._folder.write(layout.VERDICT, self._concluded(record).canonical())
        listed = manifest.write(self._folder.digests)
        self._folder.write(manifest.MANIFEST, listed)
        with self._folder.syncing():
            audited = audit.verify_run(self.path, self._gates)
        if audited.outcome != "verified" or audited.verdict is None:
            raise _evidence_error(f"{self.path} does not verify", audited.problems)
        self._publish(hashlib.sha256(listed).hexdigest(), self._folder.digests[layout.PLAN])
        return self._root / layout.RUNS / self.plan.run, audited.verdict

    def _concluded(self, record: RunRecord) -> RunVerdict:
        subjects = (
            conclude_subject(planned, tuple(self._verdict(planned, gate) for gate in planned.gates))
            for planned in self.plan.subjects
        )
        return conclude(self.plan, record.ended, tuple(subjects), self._gates)

    def _verdict(self, planned: Planned, gate: str) -> GateVerdict:
        """What was said of a gate when it was recorded."""
        judged = self._judged.get((planned.subject.key, gate))
        if judged is None:
            return judge_gate(self.plan, planned.subject, absent(self.plan, gate), {}, self._gates)
        return GateVerdict.model_validate_json(judged)  # Spelled here a moment ago; the audit spells it again.

    def _make_store(self) -> None:
        """Make the store's folders where they are not there, and hold all of them open until the run is sealed."""
        with folder(str(self._root.parent), self._root.parent.name) as parent:
            self._writer.ensure_folder(parent, self._root.name, ".")
            self._writer.sync_folder(parent, "..")
        top = self._handles.enter_context(folder(str(self._root), self._root.name))
        for name in (layout.OPENED, layout.RUNS, layout.STAGING):
            self._writer.ensure_folder(top, name, name)
        self._writer.sync_folder(top, ".")
        self._opened = self._handles.enter_context(below(top, layout.OPENED))
        self._runs = self._handles.enter_context(below(top, layout.RUNS))
        self._staging = self._handles.enter_context(below(top, layout.STAGING))

    def _probe(self) -> None:
        """Refuse a file system without an exclusive rename now, not after an hour of measuring."""
        name, moved = f"{self.plan.run}.probe", f"{self.plan.run}.probed"
        self._writer.write(self._staging, name, f"{layout.STAGING}/{name}", b"")
        try:
            self._writer.move(self._staging, name, self._staging, moved, f"{layout.STAGING}/{moved}")
        except RigError:
            with suppress(RigError):
                self._writer.remove(self._staging, name, f"{layout.STAGING}/{name}")
            raise
        self._writer.remove(self._staging, moved, f"{layout.STAGING}/{moved}")

    def _put_on_record(self, data: bytes) -> None:
        """Write the plan twice: one copy stays with the run, one moves to opened/ exclusively."""
        run = self.plan.run
        self._writer.make_folder(self._staging, run, f"{layout.STAGING}/{run}")
        at = self._handles.enter_context(below(self._staging, run))
        self._folder = RunFolder(at, run, self._writer)
        self._folder.write(layout.PLAN, data, synced=True)
        self._folder.write(f"{layout.OPENED}.json", data, synced=True)
        place = f"{layout.OPENED}/{run}.json"
        with self._cache.changing(adds={hashlib.sha256(data).hexdigest(): place}, ends=self.plan.after):
            self._writer.move(at, f"{layout.OPENED}.json", self._opened, f"{run}.json", place)
        del self._folder.digests[f"{layout.OPENED}.json"]
        self._writer.sync_folder(self._opened, layout.OPENED)
        self._writer.sync_folder(at, f"{layout.STAGING}/{run}")
        self._writer.sync_folder(self._staging, layout.STAGING)

    def _check_written(self, path: str, data: bytes) -> None:
        """A reader must get the bytes that were judged. Raises RigError."""
        with as_rig_error():
            if self._folder.read(path, len(data)) != data:
                raise ProblemError("C01", path, "the disk returned other bytes than were written")

    def _publish(self, manifest_sha256: str, plan_sha256: str) -> None:
        """The one step that makes a run: a rename to a free name. The folders were opened before it."""
        run = self.plan.run
        place = f"{layout.RUNS}/{run}"
        with self._cache.changing(adds={manifest_sha256: f"{place}/{manifest.MANIFEST}"}, ends=(plan_sha256,)):
            self._writer.move(self._staging, run, self._runs, run, place)
        self._writer.sync_folder(self._runs, layout.RUNS)
        self._writer.sync_folder(self._staging, layout.STAGING)
        self.close()

    def _check_planned(self, subject: Subject, measurement: Measurement, series: Mapping[str, bytes]) -> None:
        planned = self._planned.get(subject.key)
        if planned is None or planned.subject != subject or measurement.gate not in planned.gates:
            raise ValueError(f"{measurement.gate} of {'/'.join(subject.key)} is not planned")
        named = {ref.name: (8 * ref.count, ref.sha256) for ref in layout.named_series(measurement)}
        given = {name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in series.items()}
        if named != given:
            raise ValueError(f"series {sorted(given)} are not those that the facts name, {sorted(named)}")


def _checked(plan: Plan, inputs: Mapping[str, bytes]) -> bytes:
    """The bytes of a plan. Refuses one that no audit would verify, before it is on record."""
    for text in layout.contradictions(plan):
        raise ValueError(f"the plan of {plan.run} contradicts itself: {text}")
    if {path: hashlib.sha256(data).hexdigest() for path, data in inputs.items()} != plan.inputs_sha256:
        raise ValueError(f"the plan of {plan.run} names other inputs than were given")
    spelled = plan.canonical()
    if len(spelled) > MAX_DOCUMENT_BYTES:
        got = f"{len(spelled)} ({len(plan.subjects)} subjects)"
        fix = "select fewer cells or routes at once"
        raise UsageError(f"expected a plan of at most {MAX_DOCUMENT_BYTES} bytes, got {got}", fix=fix)
    for path, data in inputs.items():
        if len(data) > layout.MAX_INPUT_BYTES:
            _refuse_input(path, f"at most {layout.MAX_INPUT_BYTES} bytes", f"{len(data)}")
    try:
        layout.check_names(plan)
    except ProblemError as error:
        _refuse_input(error.problem.path, "names of the evidence alphabet, unique without regard to case", str(error))
    return spelled


def _refuse_input(path: str, expected: str, got: str) -> NoReturn:
    raise InputError(printable(path), expected=expected, got=got, fix="rename it, or leave it out")


def _evidence_error(what: str, problems: Iterable[Problem]) -> EvidenceError:
    found = sorted(set(problems))
    lines = "".join(f"\n  {problem}" for problem in found[:MAX_SHOWN_PROBLEMS])
    more = f"\n  and {len(found) - MAX_SHOWN_PROBLEMS} more" if len(found) > MAX_SHOWN_PROBLEMS else ""
    return EvidenceError(
        f"{what}:{lines}{more}", fix="keep the store as it is, see verify-evidence, and restore what was changed"
    )
