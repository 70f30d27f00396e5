"""One store life, stopped or failing at each of its file operations: the old state or the new one, nothing between."""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from qualify.errors import RigError
from qualify.evidence.audit import RunAudit, StoreAudit, verify_store
from qualify.evidence.durable import Writer, silent, synced
from qualify.evidence.run_folder import RunFolder
from qualify.evidence.store import Store
from tests.conftest import part
from tests.evidence.lives import lives
from tests.evidence.small import GATES, RUN, write_run

#: How far a run got, by what an audit of the store says of it.
ABSENT, OPENED, SEALED = range(3)


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What one life of a store does, in order."""
    seen: list[str] = []
    write_run(tmp_path_factory.mktemp("life") / "evidence", announce=seen.append)
    return seen


def stage(root: Path) -> int:
    """How far the run got; fails unless the store verifies and no half of a run is in it."""
    if not root.exists():
        return ABSENT
    audit: StoreAudit[RunAudit] = verify_store(root, GATES)
    assert audit.outcome == "verified", audit
    listed = {entry.plan.run: entry.sealed for entry in Store(root).listing()}
    assert listed == {**dict.fromkeys(audit.opened, False), **{run.run: True for run in audit.runs}}
    return SEALED if audit.runs else OPENED if audit.opened else ABSENT


def test_a_kill_before_or_after_any_operation_leaves_the_old_state_or_the_new(
    operations: list[str], memory_path: Path
) -> None:
    assert len(operations) > 150
    opened, sealed = (operations.index(f"after rename {path}") for path in (f"opened/{RUN}.json", f"runs/{RUN}"))
    numbers = sorted({*part(range(len(operations))), opened - 1, opened, sealed - 1, sealed})
    stages = []
    root = memory_path / "evidence"
    with lives() as kill:
        for at, number in enumerate(numbers):
            kill(root, number)
            stages.append(stage(root))
            if at % 20 == 0:
                write_run(root, "after-the-crash")
                assert verify_store(root, GATES).outcome == "verified"
            shutil.rmtree(root, ignore_errors=True)
    assert stages == sorted(stages)
    assert set(stages) == {ABSENT, OPENED, SEALED}
    assert [numbers[stages.index(each)] for each in (OPENED, SEALED)] == [opened, sealed]


def failing(seen: list[str], number: int, code: int) -> Callable[[str], None]:
    """An announcement that fails one operation and remembers all."""

    def announce(operation: str) -> None:
        seen.append(operation)
        if len(seen) == number + 1:
            raise OSError(code, os.strerror(code))

    return announce


@pytest.mark.parametrize(("code", "every"), [(errno.ENOSPC, 1), (errno.EIO, 9)])
def test_an_operation_that_fails_ends_the_run_and_is_not_tried_again(
    code: int, every: int, operations: list[str], memory_path: Path
) -> None:
    for number in part(range(0, len(operations), every)):
        root = memory_path / "evidence"
        seen: list[str] = []
        with pytest.raises(RigError) as caught:
            write_run(root, announce=failing(seen, number, code))
        failed = seen[number].split(" ", 2)[2]
        assert failed in str(caught.value)
        assert os.strerror(code) in str(caught.value)
        assert re.search("space" if code == errno.ENOSPC else "check the disk", caught.value.fix)
        assert not [text for text in seen[number + 1 :] if not re.search("remove .*probe", text)]
        assert stage(root) in (ABSENT, OPENED, SEALED)
        shutil.rmtree(root, ignore_errors=True)


def test_a_sync_that_fails_among_many_names_its_file_and_the_others_are_done() -> None:
    done: list[int] = []

    def syncs(number: int) -> Iterator[OSError | None]:
        for each in (number, number + 1):
            done.append(each)
            yield synced(partial(fail, each))

    def fail(number: int) -> None:
        if number == 42:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    groups = [((f"f{number}", f"f{number + 1}"), partial(syncs, number)) for number in range(0, 100, 2)]
    with (
        pytest.raises(RigError, match=f"sync of .*/f42: {os.strerror(errno.EIO)}") as caught,
        Writer("/store", silent).syncing(groups),
    ):
        pass
    assert "check the disk" in caught.value.fix
    assert sorted(done) == [*range(100)]


def test_a_folder_that_was_changed_for_a_link_is_not_synced_through_it(tmp_path: Path) -> None:
    at = os.open(tmp_path, os.O_RDONLY)
    folder = RunFolder(at, RUN, Writer("/store", silent))
    folder.write("a/b/0", b"")
    (tmp_path / "a/b").rename(tmp_path / "c")
    (tmp_path / "a/b").symlink_to(tmp_path / "c")
    with pytest.raises(RigError, match=r"sync of .*/a/b"), folder.syncing():
        pass
    os.close(at)
