"""The heads cache: what it says is what the history says, whatever was done to the store in between."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qualify.errors import EvidenceError
from qualify.evidence import history, layout
from qualify.evidence.audit import verify_store
from qualify.evidence.files import folder
from qualify.evidence.heads import FILE, HeadsCache
from qualify.evidence.store import StagedRun, Store
from qualify.model import canonical_bytes
from tests.conftest import examples
from tests.evidence.small import GATES, INPUTS, measure, plan, run_record, write_run
from tests.evidence.test_history import take

NOW = "2026-01-02T00:00:00Z"
#: Ours: open, seal and withdraw. Of others: copy the neighbour's files in, lose the cache, spoil it.
ACTIONS = st.lists(st.sampled_from(["open", "seal", "withdraw", "copy in", "lose", "spoil"]), max_size=9)


def read(root: Path) -> tuple[str, ...]:
    """The heads of the whole history."""
    with folder(str(root), "store") as at:
        graph, problems = history.read(at)
    assert not problems
    return graph.heads


def cached(root: Path) -> tuple[str, ...] | None:
    return HeadsCache(root).read()


@pytest.fixture
def root(memory_path: Path) -> Path:
    root = memory_path / "evidence"
    write_run(root, "run-1")
    write_run(root, "run-2")
    return root


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ACTIONS)
def test_the_cache_never_says_anything_but_the_history(memory_path: Path, actions: list[str]) -> None:
    with TemporaryDirectory(dir=memory_path) as place:
        life = Life(Path(place) / "evidence", Path(place) / "other")
        write_run(life.root, "run-0")
        Store(life.root).heads()
        for number, action in enumerate(actions):
            life.act(action, f"run-{number}-{action.replace(' ', '-')}")
            assert Store(life.root).heads() == cached(life.root) == read(life.root)
        assert verify_store(life.root, GATES).outcome == "verified"


@dataclass
class Life:
    """A store, a neighbour that it takes files from, and the runs that are not sealed yet."""

    root: Path
    other: Path
    waiting: list[StagedRun] = field(default_factory=list)

    def act(self, action: str, name: str) -> None:
        store = Store(self.root)
        match action:
            case "open":
                self.waiting.append(store.open(plan(name, store.heads()), INPUTS, GATES))
            case "seal" if self.waiting:
                run = self.waiting.pop(0)
                measure(run)
                run.seal(run_record(run.plan.run))
            case "withdraw" if "run-0" not in store.history().withdrawn:
                store.withdraw("run-0", "a reason", NOW)
            case "copy in":
                write_run(self.other, name)
                take(self.other, self.root)
            case "lose":
                shutil.rmtree(self.root / layout.HEADS, ignore_errors=True)
            case "spoil":
                (self.root / layout.HEADS / FILE).write_bytes(b"{}\n")


def test_a_run_is_added_without_reading_the_older_ones(root: Path) -> None:
    Store(root).heads()
    older = root / layout.OPENED / "run-1.json"
    older.write_bytes(b"not a plan")
    write_run(root, "run-3")
    with pytest.raises(EvidenceError, match="run-1"):
        Store(root).listing()


def test_a_record_that_came_or_went_is_seen_at_once(root: Path) -> None:
    Store(root).heads()
    (root / layout.OPENED / "run-1.json").unlink()
    assert cached(root) is None
    with pytest.raises(EvidenceError, match="history"):
        Store(root).heads()


def fields(root: Path) -> Iterator[tuple[str, object]]:
    yield "heads", {"0" * 64: f"{layout.OPENED}/run-1.json"}
    yield "heads", {digest: "../outside" for digest in read(root)}
    yield "opened", None
    yield "runs", {"inode": 0, "modified_ns": 0, "changed_ns": 0}


def test_a_cache_that_someone_wrote_is_not_believed(root: Path) -> None:
    heads = Store(root).heads()
    file = root / layout.HEADS / FILE
    good = file.read_bytes()
    for name, value in fields(root):
        file.write_bytes(canonical_bytes({**json.loads(good), name: value}))
        assert cached(root) is None, name
        assert Store(root).heads() == heads
    file.write_bytes(good)
    assert cached(root) == heads


def test_a_head_that_was_rewritten_in_place_is_not_named(root: Path) -> None:
    Store(root).heads()
    manifest = root / layout.RUNS / "run-2/SHA256SUMS"
    manifest.write_bytes(manifest.read_bytes() + b"\n")
    assert cached(root) is None


def test_git_does_not_see_the_cache_and_an_audit_does_not_mind_it(root: Path) -> None:
    Store(root).heads()
    assert (root / layout.HEADS / ".gitignore").read_text() == "*\n"
    assert verify_store(root, GATES).outcome == "verified"
