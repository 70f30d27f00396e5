"""What a worker lives in, and that nothing of it is left: real processes, seen from outside."""

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from qualify.bench import Rig
from qualify.errors import RigError
from qualify.gate import Loss, WorkerLost
from qualify.sessions import board_lock
from qualify.steps import Digest
from tests.house.tree import ROOT
from tests.rigs import HONEST, LAUNCH, SEED, N, Trial, filled, kernel, sums
from tests.workers.processes import children, eventually, kind, state_and_parent, templates, workers

HANG = b'{"entries": {"add": {"does": "add", "fault": "hang"}}}'
PARENT = """
import sys, threading
from qualify.bench import Rig
from tests.rigs import Trial
with Rig.open("simulated-1.0") as rig:
    trial = Trial(rig)
    subject = trial.subject(sys.argv[1].encode())
    with rig.bench(subject, {}).session(subject, "candidate"):
        print("open", flush=True)
        threading.Event().wait()
"""


def test_a_worker_has_nothing_of_its_parents(pocl: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "of the parent")
    trial = Trial(pocl)
    subject = trial.subject(HONEST["opencl"])
    with pocl.bench(subject, {}).session(subject, "candidate"):
        pid = children(os.getpid())["measure"]
        pairs = (item.partition("=") for item in Path(f"/proc/{pid}/environ").read_text().split("\0") if item)
        environment = {key: value for key, _, value in pairs}
        folder = Path(f"/proc/{pid}/cwd").resolve().parent
        limits = Path(f"/proc/{pid}/limits").read_text()
        assert os.getsid(pid) == pid
        assert [tool.name for tool in (folder / "bin").iterdir()] == ["ld"]
    started = Path(environment["HOME"]).parent
    for key in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "POCL_CACHE_DIR", "PATH"):
        assert Path(environment.pop(key)).is_relative_to(started)
    assert (environment.pop("POCL_KERNEL_CACHE"), environment.pop("PYOPENCL_NO_CACHE")) == ("0", "1")
    assert Path(environment.pop("OCL_ICD_VENDORS")).name == "pocl.icd"
    rest = {"LC_ALL", "OPENBLAS_NUM_THREADS", "PYOPENCL_COMPILER_OUTPUT", "PYTHONHASHSEED", "PYTHONUSERBASE"}
    assert set(environment) <= rest
    assert f"{6 << 30} " in limits
    assert "Max core file size        0" in limits
    assert not folder.exists()


CONFINED = "file, network and signal limits"


def not_applied(rig: Rig) -> list[str]:
    account = rig.account()
    assert isinstance(account, dict)
    listed = account["not_applied"]
    assert isinstance(listed, list)
    return [str(name) for name in listed]


def test_what_is_not_applied_is_on_record(pocl: Rig) -> None:
    assert set(not_applied(pocl)) <= {"process limit", CONFINED}
    assert ("process limit" in not_applied(pocl)) == (os.geteuid() == 0)


def test_an_include_outside_the_module_is_not_read(pocl: Rig, tmp_path: Path) -> None:
    """Composition refuses such text; a compiler that gets it all the same must not find the file."""
    (tmp_path / "outside.h").write_text("#define BEYOND 1\n")
    trial = Trial(pocl)
    path = str(tmp_path / "outside.h").encode()
    subject = trial.subject(b'#define FILE "' + path + b'"\n#include FILE\n' + kernel("y[0] = BEYOND;"))
    report = pocl.bench(subject, {}).build(subject.candidate)
    assert report.state == ("built" if CONFINED in not_applied(pocl) else "refused")


def test_a_kernel_on_a_cpu_opens_no_file_and_signals_nobody(pocl: Rig, tmp_path: Path) -> None:
    """What system calls answer a kernel: a file of ours, an empty path of the private folder, the parent's pid."""
    (tmp_path / "plan.json").write_text("{}")
    text = b"""#define CALL(n, a, b, c) ({ long r; __asm__ volatile("syscall" \\
    : "=a"(r) : "a"((long)(n)), "D"(a), "S"(b), "d"((long)(c)) : "rcx", "r11", "memory"); r; })
""" + kernel(f"""
    if (get_global_id(0)) return;
    char path[] = "{tmp_path}/plan.json", own[] = "../tmp/own";
    y[0] = CALL(2, path, 0L, 0);
    y[1] = CALL(2, own, 0101L, 0600);
    y[2] = CALL(62, CALL(110, 0L, 0L, 0), 0L, 0);
""")
    trial = Trial(pocl)
    found = struct.unpack(f"<{N}f", trial.run(trial.subject(text)))[:3]
    if CONFINED not in not_applied(pocl):
        assert (found[0], found[2]) == (-13.0, -1.0)  # EACCES and EPERM.
    assert found[1] > 0


def test_nothing_is_left_after_the_rig_closes() -> None:
    """Nothing but one compile worker, which has run no kernel and waits for the next rig."""
    others = workers(os.getpid())
    with Rig.open("simulated-1.0") as rig:
        trial = Trial(rig)
        subject = trial.subject(HONEST["simulated"])
        rig.bench(subject, {}).exact(subject, "ordinary", SEED)
        with rig.bench(subject, {}).session(subject, "candidate"):
            found = {pid: kind(pid) for pid in workers(os.getpid()) - others}
            rig.close()
    assert {"measure", "reference"} <= set(found.values())
    assert all(state_and_parent(pid)[0] == "gone" for pid, name in found.items() if name != "compile")
    with pytest.raises(RigError, match="interrupted"):
        rig.bench(subject, {}).exact(subject, "ordinary", SEED)


def test_what_a_rig_leaves_serves_the_next_one_and_is_replaced_where_it_ended() -> None:
    """In a process of its own, where no other rig is open."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.workers.rigs_in_a_row"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    rigs = [json.loads(line) for line in done.stdout.splitlines()]
    first, second, without_worker, without_template, two, two_again = rigs
    assert [len(pids) for pids in first] == [1, 1]
    assert second == first
    assert (without_worker[0], len(without_worker[1])) == (first[0], 1)
    assert without_worker[1] != first[1]
    assert without_template[0] != first[0]
    assert len(two[1]) == min(2, len(os.sched_getaffinity(0)))
    assert two_again == two


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_die_with_their_parent(how: signal.Signals, tmp_path: Path) -> None:
    """Killed, the kernel ends them; interrupted, the rig does, and leaves no folder either."""
    command = [sys.executable, "-c", PARENT, HONEST["simulated"].decode()]
    parent = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"open\n"
        orphans = children(parent.pid)
        assert set(orphans) == {"compile", "measure"}
        parent.send_signal(how)
    eventually(lambda: all(state_and_parent(pid)[0] in ("gone", "Z") for pid in orphans.values()), "the workers' death")
    assert how == signal.SIGKILL or not list(tmp_path.iterdir())


def test_workers_that_are_told_the_same_come_from_one_template() -> None:
    before = templates(os.getpid())
    with Rig.open("simulated-1.0") as rig:
        trial = Trial(rig)
        subject = trial.subject(HONEST["simulated"])
        assert trial.run(subject) == sums()
        assert rig.evaluate(subject, "ordinary", SEED).data["y"]
        assert len(templates(os.getpid()) - before) <= 1
        started = rig.account()
    assert isinstance(started, dict)
    assert isinstance(started["workers_started"], dict)
    assert started["workers_started"] | {"compile": 1} == {"compile": 1, "measure": 1, "reference": 1}


def test_closing_the_rig_blames_no_kernel() -> None:
    """An interrupt kills the candidate's worker in the middle of its launch: that is no verdict on it."""
    caught: list[Exception] = []
    with Rig.open("simulated-1.0") as rig:
        trial = Trial(rig)
        subject = trial.subject(HANG)

        def gate() -> None:
            try:
                trial.run(subject, timeout_s=60.0)
            except (RigError, WorkerLost) as error:
                caught.append(error)

        thread = threading.Thread(target=gate)
        thread.start()
        eventually(lambda: "measure" in children(os.getpid()), "the measuring worker's start")
        rig.close()
        thread.join()
    assert [type(error) for error in caught] == [RigError]


def test_a_worker_ignores_an_interrupt_and_is_lost_to_a_kill(simulated: Rig) -> None:
    """Ctrl-C is the parent's to handle; any other end is seen, with its signal and the step that it hit."""
    subject = Trial(simulated).subject(HONEST["simulated"])
    with simulated.bench(subject, {}).session(subject, "candidate") as session:
        session.run(filled(), 30.0)
        pid = children(os.getpid())["measure"]
        os.kill(pid, signal.SIGINT)
        assert len(session.run([Digest(buffers=("y.0",))], 30.0)) == 1
        os.kill(pid, signal.SIGTERM)
        with pytest.raises(WorkerLost) as caught:
            session.run([Digest(buffers=("y.0",))], 30.0)
    assert caught.value.loss.model_copy(update={"step": ""}) == Loss(how="died", step="", arm=None, signal=15)


def test_garbage_on_the_channel_is_a_loss(pocl: Rig) -> None:
    """A kernel that writes to every descriptor of its worker: hostile, and no traceback of ours."""
    garbage = kernel("""
        if (get_global_id(0)) return;
        char text[64];
        for (int i = 0; i < 64; i++) text[i] = 1;
        for (long to = 3; to < 32; to++) {
            long done;
            __asm__ volatile("syscall" : "=a"(done) : "a"(1L), "D"(to), "S"(text), "d"(64L) : "rcx", "r11", "memory");
        }""")
    trial = Trial(pocl)
    with pytest.raises(WorkerLost) as caught:
        trial.run(trial.subject(garbage))
    loss = caught.value.loss
    assert (loss.how, loss.step, loss.arm) == ("protocol", LAUNCH, "candidate")


def test_a_board_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    """The second one waits until the first one ends, or until its own rig is closed."""
    order: list[str] = []
    going, closed = threading.Event(), threading.Event()

    def hold(name: str, event: threading.Event) -> None:
        try:
            with board_lock("b", tmp_path, event):
                order.append(name)
        except RigError:
            order.append(f"{name} interrupted")

    closed.set()
    with board_lock("b", tmp_path, going):
        waiting = threading.Thread(target=hold, args=("second", going))
        waiting.start()
        hold("third", closed)
        order.append("first")
    waiting.join()
    assert order == ["third interrupted", "first", "second"]


def test_whoever_waits_for_a_board_is_next(tmp_path: Path) -> None:
    """Many sessions in a row do not keep a second screen waiting for the last of them."""
    going, came = threading.Event(), threading.Event()

    def come() -> None:
        with board_lock("b", tmp_path, going):
            came.set()

    waiting = threading.Thread(target=come)
    turns = 0
    while not came.is_set() and turns < 100:
        with board_lock("b", tmp_path, going):
            if not turns:
                waiting.start()
            time.sleep(0.05)
            turns += 1
    waiting.join()
    assert turns < 100


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_a_lock_that_is_no_file_is_refused(kind: str, tmp_path: Path) -> None:
    lock = tmp_path / "qualify-board-b.lock"
    if kind == "link":
        lock.symlink_to(tmp_path / "elsewhere")
    elif kind == "fifo":
        os.mkfifo(lock)
    else:
        lock.mkdir()
    with pytest.raises(RigError, match="lock"), board_lock("b", tmp_path, threading.Event()):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_no_linker_is_a_rig_error_with_its_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RigError, match="expected `ld` on PATH") as caught:
        Rig.open("pocl-3.0")
    assert "binutils" in caught.value.fix


def test_no_platform_is_a_rig_error_with_its_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path / "none"))
    with pytest.raises(RigError, match="OpenCL platform") as caught:
        Rig.open("pocl-3.0")
    assert "pip install 'qualify[opencl]'" in caught.value.fix


@pytest.mark.parametrize(
    ("toolkit", "says"),
    [
        ("pocl-9.9", "expected pocl-9.9, got pocl-3.0"),
        ("simulated-2.0", "expected simulated-2.0, got simulated-1.0"),
        ("cuda-9.9", "expected cuda-9.9 here, found"),
        ("pocl", "expected a toolkit such as"),
    ],
)
def test_a_toolkit_that_is_not_here_is_named(toolkit: str, says: str) -> None:
    before = workers(os.getpid())
    with pytest.raises(RigError, match=says):
        Rig.open(toolkit)
    assert workers(os.getpid()) <= before
