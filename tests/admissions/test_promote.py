"""`promote`: what it refuses, what it counts, what it appends, and against whom it measures."""

import json
import re
import shutil
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from gates import GATES
from qualify import inventory
from qualify.admission import Admission
from qualify.admitting import counts
from qualify.errors import EvidenceError, Exit, NothingSelected, UsageError
from qualify.evidence.audit import verify_run, verify_store
from qualify.evidence.store import Store
from qualify.finalists import Refused
from qualify.gate import Bench
from qualify.judgement import rules_of
from qualify.promote import Promoted
from qualify.subject import Subject
from tests.admissions import beds
from tests.cli.workspaces import ROOT, Workspace

RULES = {name: rules_of(gate) for name, gate in beds.gates().items()}


def admissions(workspace: Workspace) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(file(workspace).read_bytes())
    return found


def file(workspace: Workspace) -> Path:
    return next(workspace.path.glob("cohorts/add/admissions/*.json"))


def opened(workspace: Workspace) -> int:
    return len(list((workspace.path / "evidence/opened").glob("*.json")))


def subject_of(done: Promoted, route: str) -> Subject:
    (_, plan, _) = done.runs[-1]
    return next(each.subject for each in plan.subjects if each.subject.candidate.route == route)


def reword(workspace: Workspace, name: str) -> None:
    path = workspace.path / "cohorts" / name
    path.write_text(path.read_text() + "// reworded\n")


def test_an_admission_says_what_was_true(workspace: Workspace, run: str) -> None:
    (large,), (tiny,) = admissions(workspace)["large"], admissions(workspace)["tiny"]
    assert (large["kind"], large["bound"], tiny["kind"], tiny["bound"]) == ("measured", "1.250000", "proven", None)
    assert (large["subject"]["attempt"], large["subject"]["finalists"]) == (1, 2)
    assert large["subject"]["candidate"]["route"] == "fast"
    assert large["subject"]["incumbent"]["route"] == "plain"
    assert large["counts"] == {"opened": 2, "passed": 2, "failed": 0, "inconclusive": 0, "left_open": 0}
    assert large["board"]["addressing"] == "host"
    assert large["object_blake3"] is None, "equal sources give other objects on this device"
    digests = [each["digests"]["y"] for each in large["outputs"]]
    assert len(set(digests)) == len(large["subject"]["variants"]) == 2
    assert large["run"] != run
    assert verify_store(workspace.path / "evidence", RULES).outcome == "verified"


def test_a_loser_is_rejected_and_no_other_name_and_no_comment_makes_it_a_first_attempt(workspace: Workspace) -> None:
    before = file(workspace).read_bytes()
    workspace.replace("cohorts/add/cohort.yaml", "  other:", "  quick:")
    reword(workspace, "add/other.k")
    reword(workspace, "common/opencl.h")
    run = beds.screened(workspace, {"quick": 1_300_000}, cells={"large"}, routes={"quick"})
    done = beds.promoted(workspace, run, script={"quick": 1_300_000}, timing={"quick": 900_000})
    assert (done.exit_code(), done.admitted) == (Exit.REJECTED, [])
    assert file(workspace).read_bytes() == before
    subject = subject_of(done, "quick")
    assert (subject.incumbent.route, subject.attempt, subject.finalists) == ("plain", 2, 1)
    (note,) = done.notes
    assert "add large in pocl-3.0/" in note
    assert "fast is closed, plain is the incumbent: cohorts/common/opencl.h moved" in note
    entries = Store(workspace.path / "evidence").listing()
    seen = counts(entries, "add", subject.domain, "large", workspace.path / "evidence")
    assert (seen.opened, seen.passed, seen.failed, seen.left_open) == (4, 3, 1, 0)


def test_what_moved_since_its_screen_is_refused_and_nothing_is_opened(workspace: Workspace, run: str) -> None:
    before = opened(workspace)
    reword(workspace, "add/other.k")
    with pytest.raises(
        Refused, match=r"large/other: identity .* as screened, .* now; cohorts/add/other\.k moved"
    ) as found:
        beds.promoted(workspace, run, routes={"other"})
    assert found.value.exit is Exit.REJECTED
    assert "screen again" in found.value.fix
    assert opened(workspace) == before


def test_the_next_route_is_measured_against_the_admitted_one_and_appended(workspace: Workspace) -> None:
    first = file(workspace).read_bytes()
    screened = beds.screened(workspace, cells={"large"})
    done = beds.promoted(workspace, screened)
    assert done.exit_code() is Exit.DONE, list(done.lines())
    subject = subject_of(done, "other")
    assert (subject.incumbent.route, subject.attempt, subject.finalists) == ("fast", 1, 1)
    older, newer = admissions(workspace)["large"]
    assert older == json.loads(first)["large"][0]
    assert (newer["subject"]["candidate"]["route"], newer["plain"]["arm"]["route"]) == ("other", "plain")
    assert inventory.check(workspace.path, None) is Exit.DONE

    reword(workspace, "add/fast.k")
    assert inventory.check(workspace.path, None) is Exit.REJECTED, "its incumbent moved"


def test_what_serves_already_is_not_promoted_again(workspace: Workspace, run: str) -> None:
    before = opened(workspace)
    with pytest.raises(NothingSelected, match="large: fast serves it already"):
        beds.promoted(workspace, run, cells={"large"})
    assert opened(workspace) == before


def test_a_timed_cell_needs_a_timing_gate(screened: Workspace, run: str) -> None:
    with pytest.raises(
        UsageError, match=r"no timing gate: no-timing of pipelines\.yaml runs .*, trial in promote"
    ) as found:
        beds.promoted(screened, run, pipeline="no-timing", routes={"fast"})
    assert found.value.fix == "add timing to the promote stage"
    assert opened(screened) == 1


@pytest.mark.parametrize(
    ("pipeline", "says", "fix"),
    [
        ("no-bits", "no gate of bits: no-bits of pipelines.yaml runs contract, numeric, trial, timing", "digest"),
        ("no-values", "no gate of values: no-values of pipelines.yaml runs contract, digest, trial, timing", "numeric"),
    ],
)
@pytest.mark.parametrize("cell", ["large", "tiny"])
def test_what_shows_no_bits_admits_nothing_and_opens_nothing(
    screened: Workspace, run: str, cell: str, pipeline: str, says: str, fix: str
) -> None:
    """Bits of a route's own, of a cell that is timed and of one that is not."""
    with pytest.raises(UsageError, match=re.escape(says)) as found:
        beds.promoted(screened, run, pipeline=pipeline, routes={"fast"}, cells={cell})
    assert found.value.fix == f"add {fix} to the promote stage"
    assert opened(screened) == 1


def test_bits_that_are_the_incumbents_need_no_values(screened: Workspace) -> None:
    screened.replace("cohorts/add/cohort.yaml", "bits: own", "bits: identical")
    run = beds.screened(screened)
    done = beds.promoted(screened, run, pipeline="no-values", routes={"fast"}, cells={"tiny"})
    assert [each.kind for each, _ in done.admitted] == ["proven"], list(done.lines())
    with pytest.raises(UsageError, match="no gate of bits"):
        beds.promoted(screened, run, pipeline="no-bits", routes={"other"}, cells={"tiny"})


def test_a_gate_of_bits_that_does_not_run_in_the_domain_shows_none(screened: Workspace, run: str) -> None:
    screened.replace("pipelines.yaml", "digest: {cost_s: 1,", "digest: {cost_s: 1, runtimes: [cuda],")
    with pytest.raises(UsageError, match=r"no gate of bits: .* \(digest: runs on cuda only\)") as found:
        beds.promoted(screened, run, routes={"fast"})
    assert re.fullmatch(r"let digest run in pocl-3\.0/\S+, under gates in pipelines\.yaml", found.value.fix)


@pytest.mark.parametrize(
    ("gate", "title"), [("digest", "gate of bits"), ("numeric", "gate of values"), ("timing", "timing gate")]
)
def test_a_cell_that_is_too_large_for_what_admits_it_is_left_out_before_anything_is_measured(
    screened: Workspace, run: str, gate: str, title: str
) -> None:
    """The large cell has 3,000 elements, the ragged one 231."""
    screened.replace("pipelines.yaml", f"  {gate}: {{", f"  {gate}: {{elements: {{opencl: 2999}}, ")
    done = beds.promoted(screened, run, cells={"large", "ragged"}, routes={"fast"})
    assert [each.subject.cell.id for each, _ in done.admitted] == ["ragged"]
    assert done.exit_code() is Exit.INCONCLUSIVE
    (note,) = done.notes
    why = f"large is left out: no {title} is planned there ({gate}: 3000 elements, and 2999 at most on opencl)"
    assert note == f"{why}; give {gate} more elements, under gates in pipelines.yaml"
    ((_, plan, _),) = done.runs
    assert {planned.subject.cell.id for planned in plan.subjects} == {"ragged"}
    assert verify_store(screened.path / "evidence", RULES).outcome == "verified"
    before = opened(screened)
    with pytest.raises(NothingSelected, match="large is left out: no"):
        beds.promoted(screened, run, cells={"large"}, routes={"fast"})
    assert opened(screened) == before


def test_a_cell_of_just_as_many_elements_is_not_left_out(screened: Workspace, run: str) -> None:
    screened.replace("pipelines.yaml", "  digest: {", "  digest: {elements: {opencl: 3000}, ")
    done = beds.promoted(screened, run, cells={"large"}, routes={"fast"})
    assert done.exit_code() is Exit.DONE, list(done.lines())


def test_a_run_that_says_it_admits_what_no_gate_showed_is_bad(workspace: Workspace) -> None:
    """Its plan, its facts and its verdict are whole, and gate digest was never planned."""
    (run,) = beds.runs_of(workspace, "promote")
    beds.forget(run, "digest")
    audit = verify_run(run, RULES)
    assert [str(problem) for problem in audit.problems if problem.code == "V02"], audit.problems
    assert audit.verdict is not None
    assert audit.verdict.reasons == ("no gate showed the bits of large/fast and 5 more",)
    older = beds.forget(run, "numeric", judgement=2)
    assert verify_run(older, RULES).outcome == "verified", "version 2 asks for no gate of bits"


def test_several_that_nothing_ranks_wait_for_a_word(screened: Workspace, run: str) -> None:
    with pytest.raises(NothingSelected, match="tiny: fast, other passed and nothing ranks them; name one with --route"):
        beds.promoted(screened, run, cells={"tiny"})


def test_evidence_that_does_not_verify_is_refused(workspace: Workspace, run: str) -> None:
    verdict = workspace.path / "evidence/runs" / run / "verdict.json"
    verdict.write_bytes(verdict.read_bytes().replace(b'"pass"', b'"fail"', 1))
    with pytest.raises(EvidenceError, match="C01"):
        beds.promoted(workspace, run, routes={"other"})


def test_a_withdrawn_screen_is_refused(workspace: Workspace, run: str) -> None:
    Store(workspace.path / "evidence").withdraw(run, "the board was shared", "2026-01-01T00:00:00Z")
    with pytest.raises(EvidenceError, match="withdrawn: the board was shared"):
        beds.promoted(workspace, run, routes={"other"})


def test_a_run_of_another_store_is_refused(workspace: Workspace, run: str, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(workspace.path / "evidence/runs" / run, tmp_path / run)
    with pytest.raises(UsageError, match="expected a run of this workspace's evidence"):
        beds.promoted(workspace, str(elsewhere), routes={"other"})
    with pytest.raises(UsageError, match="nothing at"):
        beds.promoted(workspace, "run-9")


@pytest.mark.parametrize(("filters", "says"), [({"cells": {"huge"}}, "a cell of add"), ({"routes": {"x"}}, "a route")])
def test_unknown_names_are_refused(workspace: Workspace, run: str, filters: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        beds.promoted(workspace, run, **filters)


class Interrupting(beds.ScriptedGate):
    """A timing gate during which somebody else promotes another route."""

    def __init__(self, workspace: Workspace, run: str) -> None:
        super().__init__("timing", beds.FASTER, "times")
        self._workspace, self._run = workspace, run
        self.others: list[Promoted] = []

    def measure(self, subject: Subject, bench: Bench, settings: beds.Nothing) -> beds.Measured:
        if not self.others:
            self.others.append(beds.promoted(self._workspace, self._run, cells={"large"}, routes={"other"}))
        return super().measure(subject, bench, settings)


def test_of_two_promotions_at_once_each_counts_and_the_later_one_is_not_admitted(screened: Workspace, run: str) -> None:
    workspace, timing = screened, Interrupting(screened, run)
    done = beds.promoted(workspace, run, cells={"large"}, table={**beds.gates(), "timing": timing})
    (other,) = timing.others
    assert (subject_of(done, "fast").attempt, subject_of(other, "other").attempt) == (1, 2)
    assert [each.route for each, _ in other.admitted] == ["other"]
    assert (done.admitted, done.exit_code()) == ([], Exit.INCONCLUSIVE)
    assert done.notes == ["large: another route was admitted meanwhile; promote again"]
    assert [each["subject"]["candidate"]["route"] for each in admissions(workspace)["large"]] == ["other"]


class Stopping(beds.ScriptedGate):
    """A timing gate during which somebody interrupts, once the first cell has passed."""

    runs_on: ClassVar[Literal["host", "device"]] = "device"  # One cell after the other.

    def measure(self, subject: Subject, bench: Bench, settings: beds.Nothing) -> beds.Measured:
        if subject.cell.id == "ragged":
            raise KeyboardInterrupt
        return super().measure(subject, bench, settings)


def test_what_passed_in_a_run_that_may_admit_nothing_is_not_admitted_and_the_reason_is_said(
    screened: Workspace, run: str
) -> None:
    table = {**beds.gates(), "timing": Stopping("timing", beds.FASTER, "times")}
    done = beds.promoted(screened, run, cells={"large", "ragged"}, routes={"fast"}, table=table)
    ((_, _, verdict),) = done.runs
    assert [each.cell for each in verdict.subjects if (each.role, each.outcome) == ("candidate", "pass")] == ["large"]
    assert (done.admitted, done.exit_code()) == ([], Exit.INTERRUPTED)
    assert done.notes == ["nothing is admitted: the run was interrupted"]


def test_the_simulated_device_admits_nothing(tmp_path: Path) -> None:
    workspace = beds.make(tmp_path / "w")
    workspace.replace("pipelines.yaml", "pocl-3.0", "simulated-1.0")
    workspace.write("cohort.yaml", beds.ROUTES.replace("common/opencl.h, ", ""))
    with pytest.raises(UsageError, match=r"expected a domain with a board, got simulated-1\.0/virtual"):
        beds.promoted(workspace, beds.screened(workspace), routes={"fast"})


def test_the_command_promotes_bits_on_a_cell_without_times(workspace: Workspace) -> None:
    """The workspace's own pipeline through the command: its gates are not those of the screen, its evidence is."""
    text = (workspace.path / "pipelines.yaml").read_text()
    timeless = text.replace("  trial: {cost_s: 2, needs: [contract]}\n  timing: {cost_s: 30, needs: [trial]}\n", "")
    timeless = timeless.replace("[contract, trial]", "[contract]").partition("  no-timing")[0]
    (workspace.path / "pipelines.yaml").write_text(timeless)
    before = workspace.sealed()
    screen = workspace.here("screen", "add", "--cell", "tiny", "--cell", "large", "--route", "other")
    assert screen.code == 0, screen
    (name,) = (run.name for run in workspace.sealed() if run not in before)
    assert "no timing gate" in workspace.here("promote", name).err
    workspace.replace("pipelines.yaml", "promote: all", "promote: [contract, numeric]")
    refused = workspace.here("promote", name, "--cell", "tiny")
    assert (refused.code, "no gate of bits" in refused.err) == (2, True), refused
    workspace.replace("pipelines.yaml", "promote: [contract, numeric]", "promote: all")
    done = workspace.here("promote", name, "--cell", "tiny")
    assert done.code == 0, done
    assert "admitted: add tiny in pocl-3.0/" in done.out
    assert "other, proven on" in done.out
    assert "bits only\n" in done.out


def test_the_gates_that_admit_a_time_are_few() -> None:
    shows = [gate for gate in GATES.values() if any(rule.shows == "times" for rule in gate.rules)]
    assert [(gate.id, gate.timed) for gate in shows] == [("timing", True)]


def test_the_gates_that_show_bits_are_few_and_take_no_times() -> None:
    shows = {name: gate.rule.shows for name, gate in GATES.items() if gate.rule.shows}
    assert shows == {"digest": "bits", "numeric": "values", "timing": "times"}
    document = " ".join((ROOT / "docs/gates.md").read_text().split())
    assert "a pass of digest shows `bits`, one of numeric shows `values`" in document
    assert {name for name in shows if GATES[name].timed} == {"timing"}, "prove runs them, of untimed cells too"


def test_admissions_parse_as_written(workspace: Workspace) -> None:
    for (found,) in admissions(workspace).values():
        made = Admission.model_validate_json(json.dumps(found))
        assert json.loads(made.canonical()) == found
        assert not list(made.contradictions())
