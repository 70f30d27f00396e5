"""What is told without composing is what composing gives; where it could not be, nothing is told."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from qualify import admission as admissions
from qualify import cohort, edited, live
from qualify.anchors import Anchors
from qualify.contract import FragmentRef, Module
from qualify.files import MAX_FILE_BYTES
from qualify.identity import identify
from qualify.model import canonical_bytes
from qualify.standing import Standing
from tests.cli.workspaces import Workspace

Standings = tuple[Standing, ...]


def reword(*names: str, text: str = "// reworded\n") -> Callable[[Path], None]:
    def change(cohorts: Path) -> None:
        for name in names:
            with (cohorts / name).open("a") as file:
                file.write(text)

    return change


def link(cohorts: Path) -> None:
    (cohorts / "add/fast.k").rename(cohorts / "add/moved.k")
    (cohorts / "add/fast.k").symlink_to("moved.k")


def fifo(cohorts: Path) -> None:
    (cohorts / "add/fast.k").unlink()
    os.mkfifo(cohorts / "add/fast.k")


EDITS: dict[str, Callable[[Path], object]] = {
    "nothing": lambda _: None,
    "the admitted route": reword("add/fast.k"),
    "plain": reword("add/plain.k"),
    "what both include": reword("common/opencl.h"),
    "all of it": reword("add/fast.k", "add/plain.k", "common/opencl.h", "add/reference.py", text="\n"),
    "a route that is not admitted": reword("add/other.k"),
    "the reference": reword("add/reference.py", text="# reworded\n"),
    "an include of what is listed": reword("add/fast.k", text='#include "common/opencl.h"\n'),
    "empty": lambda cohorts: (cohorts / "add/fast.k").write_text(""),
}
CLOSER: dict[str, Callable[[Path], object]] = {
    "an include of what is not listed": reword("add/fast.k", text='#include "add/other.k"\n'),
    "an include of a header": reword("common/opencl.h", text="#include <stdio.h>\n"),
    "what compilers read differently": reword("add/plain.k", text="/* "),
    "no file": lambda cohorts: (cohorts / "add/fast.k").unlink(),
    "no reference": lambda cohorts: (cohorts / "add/reference.py").unlink(),
    "a link": link,
    "a FIFO": fifo,
    "too many bytes": reword("add/fast.k", text="\n" * MAX_FILE_BYTES),
    "another cohort": reword("add/cohort.yaml", text="# reworded\n"),
    "no cohort": lambda cohorts: (cohorts / "add/cohort.yaml").unlink(),
}


def both(workspace: Workspace) -> tuple[Standings | None, Callable[[], Standings]]:
    """What is told without composing, and what composing tells."""
    anchors = Anchors(workspace.path / "evidence")
    (domain,) = admissions.domains(workspace.path, "add")
    found = admissions.read(workspace.path, "add", domain)
    told = edited.standings("add", domain, found, anchors, edited.Sources(workspace.path, anchors))
    return told, lambda: live.standings(cohort.load(workspace.path, "add"), domain, None, anchors, found=found)


@pytest.mark.parametrize("what", EDITS)
def test_what_is_told_is_what_composing_gives(workspace: Workspace, what: str) -> None:
    EDITS[what](workspace.path / "cohorts")
    told, composed = both(workspace)
    assert told is not None
    assert sorted(told, key=str) == sorted(composed(), key=str)
    assert len(told) == 3
    assert all(each.is_open for each in told) == (what in ("nothing", "a route that is not admitted"))


@pytest.mark.parametrize("what", CLOSER)
def test_what_needs_a_closer_look_is_not_told(workspace: Workspace, what: str) -> None:
    CLOSER[what](workspace.path / "cohorts")
    told, _ = both(workspace)
    assert told is None


def of_another_version(run: Path) -> None:
    """The record of another version, listed in the manifest as it is."""
    before = (run / "run.json").read_bytes()
    after = canonical_bytes({**json.loads(before), "versions": {"qualify": "0.0.1"}})
    (run / "run.json").write_bytes(after)
    old, new = (hashlib.sha256(data).hexdigest() for data in (before, after))
    manifest = run / "SHA256SUMS"
    manifest.write_text(manifest.read_text().replace(old, new))


@pytest.mark.parametrize(
    "change", [shutil.rmtree, of_another_version, lambda run: (run / "plan.json").write_text("{}")]
)
def test_what_no_run_of_this_version_read_is_not_told(workspace: Workspace, change: Callable[[Path], object]) -> None:
    (run,) = {each.run for each in newest(workspace)}
    change(workspace.path / "evidence/runs" / run)
    told, _ = both(workspace)
    assert told is None


@pytest.mark.parametrize(
    "moved", [{}, {"add/fast.k": "1" * 64}, {"common/opencl.h": "2" * 64, "add/plain.k": "3" * 64}]
)
def test_identities_are_those_of_the_modules(workspace: Workspace, moved: dict[str, str]) -> None:
    for made in newest(workspace):
        assert tuple(made.identities(moved)) == tuple(
            identify("module", with_moved(each, moved)) for each in made.modules
        )


def with_moved(module: Module, moved: dict[str, str]) -> Module:
    refs = (FragmentRef(path=each.path, blake3=moved.get(each.path, each.blake3)) for each in module.fragments)
    return module.model_copy(update={"fragments": tuple(refs)})


def newest(workspace: Workspace) -> list[admissions.Admission]:
    (domain,) = admissions.domains(workspace.path, "add")
    return [each for *_, each in admissions.read(workspace.path, "add", domain).values()]
