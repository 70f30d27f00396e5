"""The file of admissions: it only grows, whoever writes and whenever a writer dies."""

import json
import os
from multiprocessing import get_context
from pathlib import Path

import pytest

from qualify import admission as admissions
from qualify.admission import Admission, append, parse, read
from qualify.domain import Domain
from qualify.errors import InputError
from qualify.model import canonical_bytes
from tests.admissions import beds
from tests.cli.workspaces import Workspace

WRITERS, EACH = 3, 5


def where(workspace: Workspace) -> tuple[Path, Domain]:
    path = next(workspace.path.glob("cohorts/add/admissions/*.json"))
    toolkit, _, arch = path.stem.partition("--")
    return path, Domain(toolkit=toolkit, arch=arch)


def newest(workspace: Workspace) -> Admission:
    path, _ = where(workspace)
    return beds.admission(json.loads(path.read_bytes())["large"][-1])


def test_appending_keeps_every_byte_of_what_was_there(workspace: Workspace) -> None:
    path, domain = where(workspace)
    before = json.loads(path.read_bytes())
    with admissions.alone(workspace.path, "add"):
        append(workspace.path, "add", domain, {"large": newest(workspace)})
    after = json.loads(path.read_bytes())
    assert after == {**before, "large": [*before["large"], before["large"][0]]}
    assert canonical_bytes(after) == path.read_bytes()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_writer_that_died_leaves_the_old_file_and_is_in_nobodys_way(workspace: Workspace) -> None:
    path, domain = where(workspace)
    before = path.read_bytes()
    path.with_suffix(".json.new").write_bytes(before[: len(before) // 2])
    assert set(read(workspace.path, "add", domain)) == {"large", "ragged", "tiny"}
    assert workspace.here("check").code == 0
    with admissions.alone(workspace.path, "add"):
        append(workspace.path, "add", domain, {"large": newest(workspace)})
    assert len(read(workspace.path, "add", domain)["large"]) == 2


def test_a_file_that_someone_broke_is_never_written_over(workspace: Workspace) -> None:
    path, domain = where(workspace)
    made = newest(workspace)
    found = json.loads(path.read_bytes())
    found["large"][0]["kind"] = "believed"
    path.write_bytes(canonical_bytes(found))
    with pytest.raises(InputError, match="admissions as promote wrote them"):
        append(workspace.path, "add", domain, {"large": made})
    assert path.read_bytes() == canonical_bytes(found)


def _write(workspace: str, count: int) -> None:
    made = Workspace(Path(workspace))
    _, domain = where(made)
    for _ in range(count):
        with admissions.alone(made.path, "add"):
            append(made.path, "add", domain, {"large": newest(made)})
    os._exit(0)


def test_writers_at_once_lose_nothing(workspace: Workspace) -> None:
    children = [get_context("fork").Process(target=_write, args=(str(workspace.path), EACH)) for _ in range(WRITERS)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * WRITERS
    path, domain = where(workspace)
    assert len(read(workspace.path, "add", domain)["large"]) == 1 + WRITERS * EACH
    assert parse("file", path.read_bytes())


def test_a_file_of_no_domain_is_refused(workspace: Workspace) -> None:
    path, _ = where(workspace)
    path.rename(path.with_name("somewhere.json"))
    with pytest.raises(InputError, match=r"expected <toolkit>--<arch>\.json, got somewhere\.json"):
        admissions.domains(workspace.path, "add")
