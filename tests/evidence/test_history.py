"""The hash-linked graph: heads, what is gone, and stores that merge by copying files in any order."""

import hashlib
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qualify.errors import EvidenceError
from qualify.evidence import history, layout
from qualify.evidence.audit import verify_store
from qualify.evidence.files import folder
from qualify.evidence.manifest import MANIFEST
from qualify.evidence.store import Store
from tests.conftest import examples
from tests.evidence.small import GATES, INPUTS, measure, plan, run_record, write_run

#: What happens to three stores that began as one: open a run, seal one, take all of a neighbour's files.
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["open", "seal", "take"]), st.integers(0, 2), st.integers(0, 2)), max_size=12
)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def graph(root: Path) -> history.History:
    with folder(str(root), "store") as at:
        found, problems = history.read(at)
    assert not problems
    return found


def take(source: Path, target: Path) -> None:
    """Copy whatever the target has not; plans and runs only, as a merge of two branches does."""
    for kind in (layout.OPENED, layout.RUNS):
        for path in (source / kind).glob("*"):
            if not (target / kind / path.name).exists():
                copy = shutil.copytree if path.is_dir() else shutil.copy
                copy(path, target / kind / path.name)


def grow(stores: list[Path], actions: list[tuple[str, int, int]]) -> None:
    """Act on the stores. A sealed run is its manifest here: history reads no more of it."""
    for number, (action, index, other) in enumerate(actions):
        root = stores[index]
        if action == "open":
            made = plan(f"run-{number}", Store(root).heads())
            (root / layout.OPENED / f"run-{number}.json").write_bytes(made.canonical())
        elif action == "seal":
            for run in sorted(path.stem for path in (root / layout.OPENED).glob("*"))[-1:]:
                (root / layout.RUNS / run).mkdir(exist_ok=True)
                (root / layout.RUNS / run / MANIFEST).write_bytes(run.encode())
        else:
            take(stores[other], root)


@settings(max_examples=examples(40), deadline=None)
@given(ACTIONS)
def test_merging_is_commutative_associative_and_idempotent(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, int, int]]
) -> None:
    base = tmp_path_factory.mktemp("stores")
    stores = [base / name for name in "abc"]
    for root in stores:
        for kind in (layout.OPENED, layout.RUNS):
            (root / kind).mkdir(parents=True)
    grow(stores, actions)
    merged: list[history.History] = []
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0, 1, 1)):
        target = base / f"merged-{len(merged)}"
        for kind in (layout.OPENED, layout.RUNS):
            (target / kind).mkdir(parents=True)
        for index in order:
            take(stores[index], target)
        merged.append(graph(target))
    assert merged[0] == merged[1] == merged[2]
    assert bool(merged[0].heads) == bool(merged[0].entries)


def test_a_head_is_what_no_plan_names(memory_path: Path) -> None:
    root = memory_path / "evidence"
    store = Store(root)
    assert store.heads() == ()
    first = write_run(root, "run-1")
    assert store.heads() == (sha256(first / MANIFEST),)
    second = store.open(plan("run-2", store.heads()), INPUTS, GATES)
    opened = sha256(root / layout.OPENED / "run-2.json")
    assert store.heads() == (opened,)
    third = write_run(root, "run-3")
    assert graph(root).entries["run-3"].plan.after == (opened,)
    assert store.heads() == (sha256(third / MANIFEST),)
    measure(second)
    sealed = second.seal(run_record("run-2"))[0]
    assert store.heads() == tuple(sorted((sha256(third / MANIFEST), sha256(sealed / MANIFEST))))
    assert [(entry.plan.run, entry.sealed) for entry in store.listing()] == [
        ("run-1", True),
        ("run-2", True),
        ("run-3", True),
    ]
    assert verify_store(root, GATES).outcome == "verified"


def test_a_later_store_merges_with_an_earlier_branch_of_itself(memory_path: Path) -> None:
    ours, theirs = memory_path / "ours", memory_path / "theirs"
    write_run(ours, "run-1")
    shutil.copytree(ours, theirs)
    write_run(ours, "run-2")
    write_run(theirs, "run-3")
    take(theirs, ours)
    assert len(Store(ours).heads()) == 2
    write_run(ours, "run-4")
    assert len(Store(ours).heads()) == 1
    assert verify_store(ours, GATES).outcome == "verified"
    take(ours, theirs)
    assert graph(theirs) == graph(ours)


@pytest.mark.parametrize("lost", ["opened/run-1.json", f"runs/run-1/{MANIFEST}"])
def test_a_store_that_lost_a_record_takes_no_new_plan(lost: str, memory_path: Path) -> None:
    root = memory_path / "evidence"
    write_run(root, "run-1")
    write_run(root, "run-2")
    (root / lost).unlink()
    with pytest.raises(EvidenceError, match="history") as caught:
        Store(root).listing()
    assert caught.value.fix
    shutil.rmtree(root / layout.HEADS)
    with pytest.raises(EvidenceError, match="history"):
        Store(root).heads()
