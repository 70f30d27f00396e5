"""Withdrawals: one mark a run, for ever; a record like any other, that an audit and a successor know."""

import hashlib
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from qualify.errors import EvidenceError, UsageError
from qualify.evidence import layout, report
from qualify.evidence.audit import verify_store
from qualify.evidence.manifest import MANIFEST
from qualify.evidence.store import Store
from tests.evidence.small import GATES, INPUTS, plan, write_run

NOW = "2026-01-02T00:00:00Z"


@pytest.fixture
def root(memory_path: Path) -> Path:
    root = memory_path / "evidence"
    write_run(root, "run-1")
    return root


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_withdrawn_run_verifies_and_is_called_withdrawn(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Store(root).withdraw("run-1", " its clock was wrong\n", NOW)
    assert made.record_sha256 == sha256(root / layout.RUNS / "run-1" / MANIFEST)
    audit = verify_store(root, GATES)
    assert (audit.outcome, dict(audit.withdrawn)) == ("verified", {"run-1": made})
    report.print_store(root, GATES)
    assert "run-1: withdrawn: its clock was wrong\n" in capsys.readouterr().out


def test_a_withdrawal_is_a_head_that_the_next_plan_names(root: Path) -> None:
    store = Store(root)
    store.withdraw("run-1", "a reason", NOW)
    mark = root / layout.WITHDRAWN / "run-1.json"
    assert set(store.heads()) == {sha256(root / layout.RUNS / "run-1" / MANIFEST), sha256(mark)}
    write_run(root, "run-2")
    assert sha256(mark) not in store.heads()
    assert verify_store(root, GATES).outcome == "verified"
    mark.unlink()
    assert verify_store(root, GATES).codes == {"L01"}


def test_a_run_that_was_never_sealed_can_be_withdrawn_and_sealing_does_not_undo_it(root: Path) -> None:
    store = Store(root)
    store.open(plan("run-2", store.heads()), INPUTS, GATES).close()
    made = store.withdraw("run-2", "the board was shared", NOW)
    assert made.record_sha256 == sha256(root / layout.OPENED / "run-2.json")
    assert verify_store(root, GATES).outcome == "verified"


@pytest.mark.parametrize(
    ("run", "reason", "says"),
    [("run-9", "a reason", "got run-9"), ("run-1", "  ", "got 0"), ("run-1", "x" * 1001, "got 1001")],
)
def test_what_is_no_withdrawal_is_refused(run: str, reason: str, says: str, root: Path) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        Store(root).withdraw(run, reason, NOW)
    assert caught.value.fix
    assert not (root / layout.WITHDRAWN).exists()


def test_a_withdrawal_never_changes(root: Path) -> None:
    Store(root).withdraw("run-1", "the first reason", NOW)
    before = (root / layout.WITHDRAWN / "run-1.json").read_bytes()
    with pytest.raises(UsageError, match="the first reason"):
        Store(root).withdraw("run-1", "another reason", NOW)
    assert (root / layout.WITHDRAWN / "run-1.json").read_bytes() == before


def test_a_store_whose_history_is_bad_takes_no_mark(root: Path) -> None:
    write_run(root, "run-2")
    (root / layout.OPENED / "run-1.json").unlink()
    with pytest.raises(EvidenceError, match="history"):
        Store(root).withdraw("run-2", "a reason", NOW)


def test_a_stop_at_any_operation_leaves_no_mark_or_a_whole_one(memory_path: Path) -> None:
    marked = []
    for number in count():
        root = memory_path / f"evidence-{number}"
        write_run(root, "run-1")
        left = [None] * number
        try:
            Store(root, announce=partial(_stop, left)).withdraw("run-1", "a reason", NOW)
        except KeyboardInterrupt:
            assert verify_store(root, GATES).outcome == "verified"
            marked.append((root / layout.WITHDRAWN / "run-1.json").exists())
        else:
            break
    assert marked == sorted(marked)
    assert set(marked) == {False, True}


def _stop(left: list[None], _operation: str) -> None:
    if not left:
        raise KeyboardInterrupt
    left.pop()
