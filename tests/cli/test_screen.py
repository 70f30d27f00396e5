"""`qualify screen` on the CPU device: kernels that fail are closed subjects, and the next subject passes."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.cli.workspaces import HEAD, HONEST, Done, Workspace, clean, command, make, with_routes
from tests.rigs import BEYOND_MEMORY

WARNINGS = "".join(f"#warning {'loud ' * 20}{i}\n" for i in range(4_000))
LEAVES = '{"entries": {"add": {"does": "tail", "group": 16}}}'
HANGS = '{"entries": {"add": {"does": "add", "fault": "hang"}}}'
#: It waits for a signal for ever (pause of Linux on x86-64), so that it costs no processor; loops without end are
#: tried in workers/test_losses.
PAUSES = """ {
  for (long number = 34; get_global_id(0) == 0; number = 34)
    __asm__ volatile("syscall" : "+a"(number) : : "rcx", "r11", "memory");
}
"""
#: Kernels that fail: the gate that closes each, and a word of its verdict.
FAILING = {
    "nonsense": (HEAD + " { y[0] = nothing; }\n", "compile", "nothing"),
    "hangs": (HEAD + PAUSES, "digest", "hung"),
    "overruns": (
        HEAD + " { int i = get_global_id(0); if (i <= n) y[i] = i < n ? a[i] + b[i] : 0; }\n",
        "digest",
        "zones",
    ),
    "wild": (HEAD + " { y[(long)1 << 40] = 1.0f; }\n", "digest", "died"),
    "divides": (HEAD + " { volatile int zero = 0; y[0] = 1 / zero; }\n", "digest", ""),
    "bomb": (BEYOND_MEMORY.decode(), "compile", "compile"),
    "shouts": (
        HEAD + ' { for (int i = 0; i < 200; i++) printf("too much for anyone to read %d\\n", i); }\n',
        "digest",
        "measured",
    ),
    "idle": (HEAD + " { }\n", "digest", "unwritten"),
}


@pytest.fixture(scope="module")
def screened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Done]:
    """One screen of everything that fails, an honest kernel before and one after."""
    kernels = {name: text for name, (text, _, _) in FAILING.items()}
    workspace = with_routes(tmp_path_factory.mktemp("failing") / "w", {**kernels, "warns": WARNINGS + HONEST})
    workspace.replace("pipelines.yaml", "timeout_s: 10", "timeout_s: 3")
    return workspace, workspace.screen_here()


@pytest.mark.parametrize("route", FAILING)
def test_a_kernel_that_fails_is_data(screened: tuple[Workspace, Done], route: str) -> None:
    _, gate, says = FAILING[route]
    subject = next(s for s in screened[1].verdict["subjects"] if s["route"] == route)
    assert (subject["outcome"], subject["closed_by"]) == ("fail", gate), screened[1].err
    closing = next(g for g in subject["gates"] if g["gate"] == gate)
    assert says in str([check for check in closing["checks"] if check["holds"] is False])


@pytest.mark.parametrize("route", ["plain", "candidate", "next"])
def test_honest_kernels_beside_failing_ones_pass(screened: tuple[Workspace, Done], route: str) -> None:
    assert screened[1].outcome(route) == ("pass", None)


def test_failing_kernels_leave_the_exit_code_and_the_evidence_sound(screened: tuple[Workspace, Done]) -> None:
    workspace, done = screened
    assert done.code == 0, done.err
    assert workspace.here("verify-evidence").code == 0


def test_a_megabyte_of_warnings_is_cut_and_decides_nothing(screened: tuple[Workspace, Done]) -> None:
    workspace, done = screened
    assert done.outcome("warns") == ("pass", None)
    assert max(file.stat().st_size for file in workspace.sealed()[0].rglob("compile.json")) < 200_000


def test_an_incumbent_that_fails_closes_the_cell(tmp_path: Path) -> None:
    workspace = make(tmp_path / "w", "simulated-1.0")
    workspace.write("plain.k", LEAVES)
    done = workspace.screen_here()
    assert done.outcome("plain") == ("fail", "digest")
    assert done.outcome("candidate")[0] == done.outcome("next")[0] == "inconclusive"
    assert "incumbent unsound" in done.out
    assert done.code == 11


def test_the_table_says_why_a_loser_lost_and_what_to_do(tmp_path: Path) -> None:
    workspace = make(tmp_path / "w", "simulated-1.0")
    workspace.write("candidate.k", LEAVES)
    done = workspace.here("screen")
    assert "small/candidate failed digest: unwritten" in done.out
    assert f"evidence: {workspace.sealed()[0]}" in done.out
    assert "digest: 3 subjects" in done.err
    assert workspace.here("screen", "--route", "candidate", "--fail-on-reject").code == 10


def test_two_screens_at_once_leave_two_sealed_runs(tmp_path: Path) -> None:
    workspace = make(tmp_path / "w", "simulated-1.0")
    ended: list[int] = []
    other = threading.Thread(target=lambda: ended.append(workspace.screen().code))
    other.start()
    ended.append(workspace.screen_here().code)
    other.join()
    assert ended == [0, 0]
    assert len(workspace.sealed()) == len(workspace.opened()) == 2
    assert workspace.here("verify-evidence").code == 0


def interrupted(workspace: Workspace, when: str) -> tuple[int, str]:
    """Start a screen, interrupt it once standard error says `when` (at once if that is empty), await the end."""
    with subprocess.Popen(
        command("screen"), cwd=workspace.path, env=clean(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        said = ""
        assert process.stderr is not None
        if when:
            while when not in said:
                said += process.stderr.readline()
            time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=60)
    return process.returncode, said + rest


def test_an_interrupt_on_the_device_seals_what_is_there(tmp_path: Path) -> None:
    workspace = make(tmp_path / "w", "simulated-1.0")
    workspace.write("plain.k", HANGS)
    code, said = interrupted(workspace, "digest:")
    assert code == 130, said
    assert len(workspace.sealed()) == 1
    assert '"ended":"interrupted"' in (workspace.sealed()[0] / "run.json").read_text()
    assert workspace.here("verify-evidence").code == 0


def test_an_interrupt_while_planning_leaves_nothing(tmp_path: Path) -> None:
    workspace = make(tmp_path / "w", "simulated-1.0")
    code, said = interrupted(workspace, "")
    assert code in (130, -signal.SIGINT), said
    assert not workspace.sealed()
