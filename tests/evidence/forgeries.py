"""What someone who knows the formats can do: manifest texts, documents, verdicts, plans and history.

One function an attack, by the code that an audit must answer with. Most hash everything again, so that only what the
bytes mean gives them away.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from typing import Any

from qualify.evidence import layout
from qualify.evidence.manifest import MANIFEST
from qualify.evidence.store import Store
from qualify.judgement import JUDGEMENT
from qualify.model import Json, canonical_bytes
from tests.evidence.attacks import ATTACKS, NEWEST, OLDER, Attack, Victim, attack, file_renamed, verdict_edited
from tests.evidence.small import SERIES, SIZE, SPEED, edit, module, module_path, rederive, rehash, speed_of


def _manifest(change: Callable[[bytes], bytes]) -> Callable[[Victim], None]:
    def apply(victim: Victim) -> None:
        path = victim.run / MANIFEST
        path.write_bytes(change(path.read_bytes()))

    return apply


def _register_manifest(code: str, name: str, change: Callable[[bytes], bytes]) -> None:
    apply = _manifest(change)
    apply.__name__ = name
    ATTACKS.append(Attack(code, apply))


# M: the manifest's text. Its grammar has tests of its own; here each class goes through an audit once.

_register_manifest(
    "M01", "line_twice", lambda data: data.replace(data.splitlines(True)[1], data.splitlines(True)[1] * 2)
)
_register_manifest("M02", "name_twice", lambda data: b"0" * 64 + b"  " + data.splitlines(True)[0][66:] + data)
_register_manifest("M03", "out_of_order", lambda data: b"".join(reversed(data.splitlines(True))))
_register_manifest("M04", "carriage_returns", lambda data: data.replace(b"\n", b"\r\n"))
_register_manifest("M05", "upper_case", lambda data: data[:64].upper() + data[64:])
_register_manifest("M05", "comment", lambda data: b"# a comment\n" + data)
_register_manifest("M06", "empty", lambda _: b"")
_register_manifest("M07", "nul", lambda data: data[:-1] + b"\0\n")
_register_manifest("M08", "lists_itself", lambda data: b"0" * 64 + b"  SHA256SUMS\n" + data)
_register_manifest("M09", "long_line", lambda data: data + b"0" * 64 + b"  z" + b"z" * 1024 + b"\n")
_register_manifest("M10", "lists_a_folder", lambda data: b"0" * 64 + b"  inputs\n" + data)
_register_manifest("P08", "climbs_out", lambda data: data + b"0" * 64 + b"  ../outside\n")
_register_manifest("P09", "absolute", lambda data: data + b"0" * 64 + b"  /etc/passwd\n")
_register_manifest("P10", "dotted", lambda data: data + b"0" * 64 + b"  ./plan.json\n")
_register_manifest("P11", "option", lambda data: data + b"0" * 64 + b"  -\n")
_register_manifest("P12", "backslash", lambda data: data + b"0" * 64 + b"  subjects\\x\n")


@attack("M11")
def other_spelling(victim: Victim) -> None:
    path = victim.run / SIZE
    path.write_bytes(path.read_bytes().replace(b":", b": "))
    rehash(victim.run)


@attack("M11")
def duplicate_key(victim: Victim) -> None:
    path = victim.run / SIZE
    path.write_bytes(path.read_bytes().replace(b'{"facts"', b'{"rule":2,"facts"', 1))
    rehash(victim.run)


# J: documents.


@attack("J12")
def not_a_number(victim: Victim) -> None:
    path = victim.run / SIZE
    path.write_bytes(path.read_bytes().replace(b":101", b":NaN"))
    rehash(victim.run)


@attack("J12")
def unknown_key(victim: Victim) -> None:
    edit(victim.run / SIZE, lambda value: value.update(outcome="pass"))
    rehash(victim.run)


@attack("J06")
def nested(victim: Victim) -> None:
    (victim.run / SIZE).write_bytes(b'{"facts":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n")
    rehash(victim.run)


# V: verdicts and plans.


@attack("V02")
def verdict_edited_and_rehashed(victim: Victim) -> None:
    verdict_edited(victim)
    rehash(victim.run)


@attack("V02")
def verdict_spelled_otherwise(victim: Victim) -> None:
    path = victim.run / layout.VERDICT
    path.write_bytes(path.read_bytes().replace(b":", b": "))
    rehash(victim.run)


@attack("V02")
def fact_edited_and_rehashed(victim: Victim) -> None:
    edit(victim.run / SIZE, lambda value: value.update(facts={"size_bytes": 1}))
    rehash(victim.run)


@attack("V20")
def fact_edited_and_rejudged(victim: Victim) -> None:
    """The loser is small now, but then it should have met the next gate."""
    edit(victim.run / SIZE, lambda value: value.update(facts={"size_bytes": 1}))
    rederive(victim.run)


@attack("V05")
def series_edited_and_rejudged(victim: Victim) -> None:
    path = victim.run / SERIES
    path.write_bytes(path.read_bytes()[:16])
    rehash(victim.run)


@attack("V06")
def limit_raised_after_the_fact(victim: Victim) -> None:
    edit(victim.run / layout.PLAN, _raise_limit)
    rederive(victim.run)


def _raise_limit(plan: dict[str, Json]) -> None:
    text = json.dumps(plan).replace('"limit_bytes": 100', '"limit_bytes": 1000')
    plan.update(json.loads(text))


@attack("V07")
def rule_of_the_future(victim: Victim) -> None:
    text = (victim.run / layout.PLAN).read_bytes().replace(b'"rule":1', b'"rule":2')
    (victim.run / layout.PLAN).write_bytes(text)
    (victim.root / layout.OPENED / f"{NEWEST}.json").write_bytes(text)
    for path in victim.run.glob("subjects/*/*/s[ip]*.json"):
        path.write_bytes(path.read_bytes().replace(b'"rule":1', b'"rule":2'))
    rehash(victim.run)


@attack("V07")
def judgement_of_the_future(victim: Victim) -> None:
    _replan(victim, lambda plan: plan.update(judgement=JUDGEMENT + 1))


@attack("V07")
def plan_of_the_future(victim: Victim) -> None:
    _replan(victim, lambda plan: plan.update(format=2, news=1))


@attack("V07")
def format_of_the_future(victim: Victim) -> None:
    edit(victim.run / layout.RECORD, lambda value: value.update(format=2, news=1))
    rehash(victim.run)


@attack("V07")
def signature(victim: Victim) -> None:
    (victim.run / f"{MANIFEST}.sig").write_bytes(b"not looked at")


@attack("V07")
def withdrawal_of_the_future(victim: Victim) -> None:
    _withdraw(victim, format=2, news=1)


@attack("V08")
def input_edited_and_rehashed(victim: Victim) -> None:
    (victim.run / "inputs/pipelines.yaml").write_bytes(b"gates: {speed: {}}\n")
    rehash(victim.run)


@attack("V08")
def object_under_another_name(victim: Victim) -> None:
    file_renamed(victim)
    rehash(victim.run)


@attack("V08")
def module_of_other_sources(victim: Victim) -> None:
    """Source and plan agree; the module's identity stands for another source."""
    source = b"not what was compiled\n"
    (victim.run / "inputs/cohorts/add/add.k").write_bytes(source)
    digest = hashlib.sha256(source).hexdigest()
    _replan(victim, lambda plan: plan["inputs_sha256"].update({"cohorts/add/add.k": digest}))


@attack("V08")
def module_missing(victim: Victim) -> None:
    (victim.run / module_path("fast")).unlink()
    rehash(victim.run)


@attack("V08")
def module_of_no_route(victim: Victim) -> None:
    data = module("slow").canonical()
    (victim.run / module_path("slow")).write_bytes(data)
    rehash(victim.run)


@attack("V09")
def subject_edited_and_rehashed(victim: Victim) -> None:
    edit(victim.run / "subjects/f32-7/fast/subject.json", lambda value: value.update(attempt=2))
    rehash(victim.run)


@attack("V09")
def measurement_of_another_gate(victim: Victim) -> None:
    shutil.copy(victim.run / SPEED, victim.run / SIZE)
    rehash(victim.run)


@attack("V09")
def cell_without_plain(victim: Victim) -> None:
    _replan(victim, lambda plan: plan["subjects"][0]["subject"].update(role="candidate"))


@attack("V09")
def gates_turned_round(victim: Victim) -> None:
    _replan(victim, lambda plan: plan["nodes"].reverse())


@attack("V09")
def gate_called_conclusive_in_the_plan(victim: Victim) -> None:
    _replan(victim, lambda plan: plan["nodes"][-1].update(conclusive=True))


def _replan(victim: Victim, change: Callable[[dict[str, Any]], object], run: str = NEWEST) -> None:
    """Change a run's plan everywhere: a plan of its own making, hashed well."""
    folder = victim.root / layout.RUNS / run
    plan = json.loads((folder / layout.PLAN).read_bytes())
    change(plan)
    for path in (folder / layout.PLAN, victim.root / layout.OPENED / f"{run}.json"):
        path.write_bytes(canonical_bytes(plan))
    rehash(folder)


@attack("V17")
def another_seed(victim: Victim) -> None:
    edit(victim.run / layout.RECORD, lambda value: value.update(seed="f" * 64))
    rehash(victim.run)


@attack("V18")
def another_base(victim: Victim) -> None:
    edit(victim.run / SPEED, lambda value: value.update(uses={"size": "0" * 64}))
    rederive(victim.run)


@attack("V18")
def no_base(victim: Victim) -> None:
    edit(victim.run / SPEED, lambda value: value.update(uses={}))
    rederive(victim.run)


@attack("V19")
def measured_after_a_failure(victim: Victim) -> None:
    times = (victim.run / SERIES).read_bytes()
    size_sha256 = hashlib.sha256((victim.run / SIZE).read_bytes()).hexdigest()
    folder = victim.run / "subjects/f32-7/large"
    (folder / "speed.json").write_bytes(speed_of(times, size_sha256).canonical())
    (folder / "speed.times.i64le").write_bytes(times)
    rederive(victim.run)


@attack("V19")
def measured_beside_an_unsound_incumbent(victim: Victim) -> None:
    edit(victim.run / "subjects/f32-7/plain/size.json", lambda value: value.update(facts={"size_bytes": 1000}))
    rederive(victim.run)


def _not_run(value: dict[str, Json]) -> None:
    value.update(state="not-run", facts=None, reason="closed", uses={})


@attack("V20")
def failure_turned_to_not_run(victim: Victim) -> None:
    edit(victim.run / SIZE, _not_run)
    rederive(victim.run)


@attack("V20")
def last_gate_turned_to_not_run(victim: Victim) -> None:
    edit(victim.run / SPEED, _not_run)
    (victim.run / SERIES).unlink()
    rederive(victim.run)


@attack("V21")
def attempt_counted_anew(victim: Victim) -> None:
    """Both runs are first promotions of one cell against one incumbent, the newest after the older."""
    _replan(victim, lambda plan: plan.update(command="promote"), run=OLDER)
    head = hashlib.sha256((victim.older / MANIFEST).read_bytes()).hexdigest()
    _replan(victim, lambda plan: plan.update(command="promote", after=[head]))


# L: runs and their history.


@attack("J12")
def withdrawal_that_says_nothing(victim: Victim) -> None:
    _withdraw(victim, reason="")


@attack("L01")
def withdrawn_run_sealed_anew(victim: Victim) -> None:
    """The run was made again after it was withdrawn, so that the mark is of something that is gone."""
    _withdraw(victim)
    edit(victim.run / SIZE, lambda value: value.update(host_ns=2))
    rederive(victim.run)


@attack("L01")
def withdrawn_run_deleted(victim: Victim) -> None:
    _withdraw(victim)
    shutil.rmtree(victim.run)
    (victim.root / layout.OPENED / f"{NEWEST}.json").unlink()


@attack("L07")
def withdrawal_under_another_name(victim: Victim) -> None:
    _withdraw(victim)
    (victim.root / layout.WITHDRAWN / f"{NEWEST}.json").rename(victim.root / layout.WITHDRAWN / f"{OLDER}.json")


def _withdraw(victim: Victim, **change: Json) -> None:
    """A mark on the newest run, changed after it was made."""
    Store(victim.root).withdraw(NEWEST, "its clock was wrong", "2026-01-02T00:00:00Z")
    edit(victim.root / layout.WITHDRAWN / f"{NEWEST}.json", lambda mark: mark.update(change))


@attack("L01")
def older_run_deleted(victim: Victim) -> None:
    shutil.rmtree(victim.older)
    (victim.root / layout.OPENED / f"{OLDER}.json").unlink()


@attack("L01")
def older_run_unsealed(victim: Victim) -> None:
    shutil.rmtree(victim.older)


@attack("L01")
def older_run_rewritten(victim: Victim) -> None:
    """Facts, verdict and manifest all fit; the next plan named the old manifest."""
    edit(victim.older / SIZE, lambda value: value.update(host_ns=2))
    rederive(victim.older)


@attack("L05")
def plan_never_opened(victim: Victim) -> None:
    (victim.root / layout.OPENED / f"{NEWEST}.json").unlink()


@attack("L07")
def run_under_another_name(victim: Victim) -> None:
    other = f"{NEWEST[:-1]}3"
    shutil.copytree(victim.run, victim.run.with_name(other))
    shutil.copy(victim.root / layout.OPENED / f"{NEWEST}.json", victim.root / layout.OPENED / f"{other}.json")


@attack("L07")
def record_of_another_run(victim: Victim) -> None:
    shutil.copy(victim.older / layout.RECORD, victim.run / layout.RECORD)
    rehash(victim.run)
