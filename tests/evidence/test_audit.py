"""An audit from disk alone: every attack has its answer, and what cannot be seen is said."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qualify.errors import Exit, UsageError
from qualify.evidence import layout, report
from qualify.evidence.audit import (
    RunAudit,
    RunFindings,
    StoreAudit,
    verify_run,
    verify_store,
    verify_store_side_by_side,
)
from qualify.evidence.files import LARGE_BYTES
from qualify.evidence.manifest import MANIFEST
from qualify.evidence.problems import CODES, UNKNOWN, Problem
from qualify.evidence.store import Store
from qualify.judgement import Rules
from tests.evidence import disguises, forgeries  # noqa: F401 -- they register their attacks.
from tests.evidence.attacks import ATTACKS, NEWEST, OLDER, Attack, Victim
from tests.evidence.small import GATES, INPUTS, SIZE, edit, plan, rederive, rehash, write_run


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two runs; tests copy it."""
    root = tmp_path_factory.mktemp("sealed") / "evidence"
    for run in (OLDER, NEWEST):
        write_run(root, run)
    return root


@pytest.fixture
def victim(sealed: Path, memory_path: Path) -> Victim:
    return Victim(Path(shutil.copytree(sealed, memory_path / "evidence")))


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file's time and bytes, to show that an audit writes nothing."""
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in root.rglob("*")
    }


def test_an_untouched_store_verifies_and_says_what_that_is_worth(
    victim: Victim, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(victim.root)
    audit = verify_store(victim.root, GATES)
    assert (audit.outcome, audit.exit, audit.opened) == ("verified", Exit.DONE, ())
    assert [run.run for run in audit.runs] == [OLDER, NEWEST]
    assert audit.heads == (hashlib.sha256((victim.run / MANIFEST).read_bytes()).hexdigest(),)
    assert report.print_store(victim.root, GATES) is Exit.DONE
    assert "unanchored" in capsys.readouterr().out
    assert report.print_runs([victim.run], GATES) is Exit.DONE
    assert "history not checked" in capsys.readouterr().out
    assert snapshot(victim.root) == before


def alike(one: StoreAudit[RunAudit], other: StoreAudit[RunFindings]) -> None:
    """What is found of runs side by side is what is found of one after the other, but for what they hold."""
    assert [vars(run) for run in other.runs] == [
        {name: value for name, value in vars(run).items() if name not in ("plan", "verdict")} for run in one.runs
    ]
    assert (one.problems, one.opened, one.heads, one.outcome) == (
        other.problems,
        other.opened,
        other.heads,
        other.outcome,
    )


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_is_answered(attack: Attack, victim: Victim) -> None:
    attack.apply(victim)
    audit = verify_store(victim.root, GATES)
    alike(audit, verify_store_side_by_side(victim.root, GATES))
    assert attack.code in audit.codes, audit
    outcome = "unknown" if attack.code in UNKNOWN else "bad"
    assert (audit.outcome, audit.exit) == (outcome, Exit.INCONCLUSIVE if outcome == "unknown" else Exit.EVIDENCE), audit


def test_a_report_names_every_problem(victim: Victim, capsys: pytest.CaptureFixture[str]) -> None:
    (victim.run / "READ\x1bME").write_bytes(b"")
    (victim.older / SIZE).unlink()
    assert report.print_store(victim.root, GATES) is Exit.EVIDENCE
    printed = capsys.readouterr().out
    assert f"{NEWEST}: bad\n  N09 READ\\x1bME: " in printed
    assert f"{OLDER}: bad\n  S03 {SIZE}: " in printed
    assert "unanchored" not in printed
    assert report.print_runs([victim.run, victim.older], GATES) is Exit.EVIDENCE
    assert "history not checked" in capsys.readouterr().out


def test_every_code_of_an_attack_is_a_code_and_names_are_told_apart() -> None:
    assert {attack.code for attack in ATTACKS} <= set(CODES)
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)


def test_codes_without_an_attack_are_few() -> None:
    """F05, P07 and P14 need another user, a mount and a race; they have tests of their own."""
    assert set(CODES) - {attack.code for attack in ATTACKS} == {"F05", "P07", "P14"}


def test_a_lost_verdict_derives_again_to_the_same_bytes(victim: Victim) -> None:
    before = (victim.run / layout.VERDICT).read_bytes(), (victim.run / MANIFEST).read_bytes()
    (victim.run / layout.VERDICT).unlink()
    assert "S03" in verify_store(victim.root, GATES).codes
    rederive(victim.run)
    assert ((victim.run / layout.VERDICT).read_bytes(), (victim.run / MANIFEST).read_bytes()) == before
    assert verify_store(victim.root, GATES).outcome == "verified"


def test_all_problems_are_listed_not_only_the_first(victim: Victim) -> None:
    (victim.run / "README").write_bytes(b"")
    (victim.run / SIZE).unlink()
    (victim.older / "inputs/pipelines.yaml").write_bytes(b"")
    assert {"S01", "S03", "C02"} <= verify_store(victim.root, GATES).codes


def test_facts_and_verdict_rewritten_together_show_only_through_a_successor(victim: Victim) -> None:
    for run in (victim.run, victim.older):
        edit(run / SIZE, lambda value: value.update(facts={"size_bytes": 5000}))
        rederive(run)
        assert verify_run(run, GATES).outcome == "verified"
    audit = verify_store(victim.root, GATES)
    assert audit.codes == {"L01"}
    assert [problem.path for problem in audit.problems] == [f"{layout.OPENED}/{NEWEST}.json"]


def test_the_newest_run_vanishes_only_as_opened(victim: Victim, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(victim.run)
    audit = verify_store(victim.root, GATES)
    assert (audit.outcome, audit.opened) == ("verified", (NEWEST,))
    report.print_store(victim.root, GATES)
    assert f"{NEWEST}: opened, never sealed" in capsys.readouterr().out


def test_a_run_verifies_alone_and_a_copy_of_it_too(victim: Victim, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(victim.run, tmp_path / "elsewhere" / NEWEST))
    audit = verify_run(copied, GATES)
    assert (audit.outcome, audit.run) == ("verified", NEWEST)
    assert audit.verdict is not None
    assert [subject.outcome for subject in audit.verdict.subjects] == ["pass", "pass", "fail"]
    assert {problem.code for problem in verify_run(copied.rename(copied.with_name("other")), GATES).problems} == {"L07"}


def test_an_unknown_gate_is_unknown_and_never_a_pass(victim: Victim) -> None:
    audit = verify_store(victim.root, {"size": GATES["size"]})
    assert audit.outcome == "unknown"
    assert audit.codes == {"V07"}
    assert all(run.verdict is None for run in audit.runs)


def test_damage_beside_an_unknown_rule_is_still_bad(victim: Victim) -> None:
    (victim.run / "README").write_bytes(b"")
    assert verify_store(victim.root, {"size": GATES["size"]}).outcome == "bad"


def test_staging_and_the_heads_cache_are_never_looked_at(victim: Victim) -> None:
    for name in ("staging", "heads"):
        (victim.root / name).mkdir(exist_ok=True)
        os.mkfifo(victim.root / name / "anything")
    assert verify_store(victim.root, GATES).outcome == "verified"


def test_what_is_not_there_is_a_question_of_usage(tmp_path: Path) -> None:
    for verify in (verify_run, verify_store):
        with pytest.raises(UsageError, match="nothing at"):
            verify(tmp_path / "absent", GATES)


def test_an_empty_store_selects_nothing_and_an_opened_run_alone_is_fine(tmp_path: Path) -> None:
    (tmp_path / "evidence").mkdir()
    assert report.print_store(tmp_path / "evidence", GATES) is Exit.NOTHING_SELECTED
    Store(tmp_path / "evidence").open(plan(), INPUTS, GATES).close()
    assert report.print_store(tmp_path / "evidence", GATES) is Exit.DONE


def test_names_and_messages_cannot_steer_a_terminal() -> None:
    text = str(Problem("subjects/\x1b[2J\u202e\udcff", "S01", "a\nb"))
    assert text == "S01 subjects/\\x1b[2J\\u202e\\udcff: a\\nb"


@pytest.fixture
def public(sealed: Path) -> Iterator[Victim]:
    """A copy of the store that another user can reach."""
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o755)
        yield Victim(Path(shutil.copytree(sealed, Path(parent) / "evidence")))


HIDDEN = (
    f"runs/{OLDER}/{MANIFEST}",
    f"runs/{OLDER}/{layout.PLAN}",
    f"runs/{OLDER}/{SIZE}",
    f"runs/{OLDER}/subjects/f32-7/large",
    f"runs/{OLDER}",
    f"opened/{OLDER}.json",
    "opened",
    "runs",
    ".",
)


def test_a_large_file_that_is_written_while_its_run_is_judged_leaves_no_verdict(victim: Victim) -> None:
    large = victim.run / "telemetry/large"
    large.parent.mkdir()
    large.write_bytes(bytes(LARGE_BYTES))
    rehash(victim.run)
    before = verify_run(victim.run, GATES)
    assert (before.outcome, before.verdict is None) == ("verified", False), before.problems

    class Writing(dict[str, Rules]):
        def get(self, gate: str, default: Any = None) -> Any:
            large.write_bytes(bytes(LARGE_BYTES + 1))
            return super().get(gate, default)

    found = verify_run(victim.run, Writing(GATES))
    assert ([problem.code for problem in found.problems], found.outcome) == (["P14"], "unknown")
    assert found.verdict is None


@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_cannot_be_read_is_unknown(hidden: str, public: Victim) -> None:
    """As another user than root, who reads everything; a missing permission is no proof of anything."""
    os.chmod(public.root / hidden, 0)
    child = os.fork()
    if not child:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            audit = verify_store(public.root, GATES)
            code = int((audit.outcome, audit.exit) != ("unknown", Exit.INCONCLUSIVE) or "F05" not in audit.codes)
        finally:
            os._exit(code)  # Whatever was raised: this process must not go on with the tests.
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.chmod(public.root / hidden, 0o755)


BARE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"numpy", "pyopencl", "rich"}:
            raise AssertionError(f"{name} was imported")
sys.meta_path.insert(0, Refuse())
from pathlib import Path
from qualify.evidence import report
from tests.evidence.small import GATES
sys.exit(report.print_store(Path(sys.argv[1]), GATES))
"""


def test_a_store_verifies_where_nothing_heavy_can_be_imported(victim: Victim) -> None:
    command = (sys.executable, "-c", BARE, str(victim.root))
    top = Path(__file__).resolve().parents[2]
    result = subprocess.run(command, cwd=top, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    assert "verified: 2 sealed" in result.stdout
