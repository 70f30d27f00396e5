"""The compile worker: what it builds, what it refuses as data, what it is lost to."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from qualify.bench import Rig
from qualify.compiling import code_of
from qualify.errors import RigError
from qualify.gate import WorkerLost
from qualify.objectcode import Built
from tests.house.tree import ROOT
from tests.rigs import BEYOND_MEMORY, HONEST, LAUNCHES, Trial, composed, kernel
from tests.workers.processes import templates


def build(rig: Rig, *texts: bytes, **how: object) -> Built:
    trial = Trial(rig)
    subject = trial.subject(HONEST["simulated" if rig.domain_arch == "virtual" else "opencl"])
    arm = trial.arm("candidate", composed(rig, *texts, **how))  # type: ignore[arg-type]
    return rig.bench(subject, {}).build(arm)


def test_objects_wait_in_memory_while_there_is_room_and_on_disk_beyond_it() -> None:
    with Rig.open("simulated-1.0") as rig:
        subject, compilers = Trial(rig).subject(HONEST["simulated"] + b" "), rig._compilers
        incumbent, candidate = str(subject.incumbent.identity), str(subject.candidate.identity)
        assert rig.made(incumbent)[1]
        assert not list(compilers._objects.iterdir())
        compilers._room_bytes = 0
        _, data = rig.made(candidate)
        (place,) = compilers._objects.iterdir()
        assert place.read_bytes() == data == rig.made(candidate)[1]
        place.write_bytes(b"another")
        with pytest.raises(RigError, match="changed on disk"):
            rig.made(candidate)
        assert rig.made(incumbent)[1]


def test_a_kernel_is_described_by_its_own_parameters(trial: Trial) -> None:
    rig = trial.rig
    report = build(rig, HONEST["simulated" if rig.domain_arch == "virtual" else "opencl"])
    assert report.state == "built", report.log
    entry = report.entry("add")
    assert entry is not None
    assert entry.parameters is not None
    found = [(item.name, item.kind, item.type_name, item.address_space) for item in entry.parameters]
    pointer = ("pointer", "float*", "global")
    assert found == [("y", *pointer), ("a", *pointer), ("b", *pointer), ("n", "value", "int", "private")]
    assert entry.block_threads
    assert report.limits == rig.limits


def test_a_built_module_is_kept_for_the_run(pocl: Rig) -> None:
    """PoCL's bytes differ between builds, so equal digests show that there was one build."""
    first, second = (build(pocl, HONEST["opencl"]) for _ in range(2))
    assert first == second
    assert not first.reproducible


def test_cells_that_differ_in_size_alone_have_one_object(pocl: Rig) -> None:
    text = HONEST["opencl"]
    larger = tuple(each.model_copy(update={"grid": (20, 1, 1), "block": (64, 1, 1)}) for each in LAUNCHES)
    first = build(pocl, text)
    assert build(pocl, text, launches=larger) == first
    assert build(pocl, text, launches=larger + LAUNCHES) == first
    others: tuple[dict[str, object], ...] = (
        {"defines": {"A": "1"}},
        {"options": ("-cl-mad-enable",)},
        {"paths": ("op/other.k",)},
        {"launches": (*LAUNCHES, LAUNCHES[0].model_copy(update={"symbol": "another"}))},
    )
    objects = {build(pocl, text, **other).object_blake3 for other in others}
    assert len(objects | {first.object_blake3}) == 1 + len(others)


def test_the_virtual_boards_objects_follow_the_contract(simulated: Rig) -> None:
    module = composed(simulated, HONEST["simulated"])
    fewer = module.module.model_copy(update={"arguments": module.module.arguments[:2]})
    assert code_of(fewer) != code_of(module.module)
    real = module.module.model_copy(update={"frontend": "opencl", "runtime": "opencl"})
    assert code_of(real) == code_of(real.model_copy(update={"arguments": real.arguments[:2]}))


def test_fragments_are_named_headers_of_each_other(pocl: Rig) -> None:
    prelude, text = b"#define FACTOR SCALE\n", b'#include "op/part.h"\n' + kernel("y[n] = FACTOR * PART;")
    report = build(
        pocl,
        prelude,
        text,
        b"#ifndef PART\n#define PART 3.0f\n#endif\n",
        paths=("common/opencl.h", "op/k.h", "op/part.h"),
        defines={"SCALE": "2.0f"},
    )
    assert report.state == "built", report.log


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (kernel("y[0] = missing;"), "op/k.h:2"),
        (b'#include "other.h"\n' + HONEST["opencl"], "other.h"),  # A fragment of the module before, long gone.
        (b'#include "bin/ld"\n', "bin/ld"),
    ],
)
def test_a_refusal_names_file_and_line(text: bytes, says: str, pocl: Rig) -> None:
    assert build(pocl, HONEST["opencl"], b"\n", paths=("op/k.h", "other.h")).state == "built"
    report = build(pocl, text)
    assert (report.state, report.object_blake3) == ("refused", None)
    assert says in report.log


@pytest.mark.parametrize("option", ["-I/usr/include", "-I", "-include", "-cl-std=CL1.2 -I/usr"])
def test_an_option_that_carries_a_path_is_refused(option: str, pocl: Rig) -> None:
    assert build(pocl, HONEST["opencl"], options=(option,)).state == "refused"


@pytest.mark.parametrize("option", ["-cl-std=CL2.0", "-cl-std=CL3.0", "-cl-ext=all"])
def test_no_language_is_chosen_in_which_a_variable_outlives_a_launch(option: str, pocl: Rig) -> None:
    """It would be device state that nothing tells of."""
    keeps = b"__global int calls;\n" + kernel("y[get_global_id(0)] = calls++;")
    assert build(pocl, keeps, options=(option,)).state == "refused"
    assert build(pocl, HONEST["opencl"], options=(option,)).state == "refused"
    assert build(pocl, HONEST["opencl"], options=("-cl-std=CL1.2",)).state == "built"


def test_an_option_of_the_language_is_taken(pocl: Rig) -> None:
    assert build(pocl, HONEST["opencl"], options=("-cl-fast-relaxed-math",)).state == "built"


def test_a_megabyte_of_warnings_is_counted_and_cut(pocl: Rig) -> None:
    report = build(pocl, kernel("1 == 2;\n" * 20_000))
    assert report.state == "built"
    assert report.log_bytes > 1 << 20
    assert len(report.log) < 70_000
    assert "bytes left out" in report.log


STRINGS = (
    b"""#define A(x) x x x x x x x x x x x x x x x x
#define B(x) A(A(A(x)))
__constant char t[] = B(B("%b"));
"""
    % (b"much" * 100)
    + kernel("y[n] = t[n];")
)


@pytest.mark.parametrize("text", [BEYOND_MEMORY, STRINGS], ids=["array", "strings"])
def test_a_module_beyond_memory_loses_its_worker_only(text: bytes, pocl: Rig) -> None:
    """The compiler dies, or PoCL says that memory is refused.

    The loss is the candidate's, is remembered, and the next module finds a new worker.
    """
    trial = Trial(pocl)
    subject = trial.subject(text)
    bench = pocl.bench(subject, {})
    for _ in range(2):
        with pytest.raises(WorkerLost) as caught:
            bench.build(subject.candidate)
        loss = caught.value.loss
        assert (loss.how, loss.step, loss.arm) == ("died", "compile", "candidate")
        assert loss.signal
    assert bench.build(subject.incumbent).state == "built"


#: PoCL in a process of its own, which fails somewhere behind the build of a module.
GIVES_UP = """
import sys
import pyopencl as cl
from qualify.workers.compilers.opencl import OpenCLCompiler

class GivesUp(OpenCLCompiler):
    def _objection(self, module):
        return None

    def _compiled(self, module):
        raise {"memory": MemoryError("std::bad_alloc"), "call": cl.Error("clGetProgramInfo failed")}[sys.argv[1]]

GivesUp().build(None, {})
"""


@pytest.mark.parametrize(("kind", "says"), [("memory", "std::bad_alloc"), ("call", "clGetProgramInfo failed")])
def test_a_module_that_pocl_gives_up_takes_its_worker_along(kind: str, says: str, tmp_path: Path) -> None:
    """PoCL's compiler has crashed by then, on a kernel of wide vectors for one, and no call of it may be believed."""
    command = [sys.executable, "-c", GIVES_UP, kind]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGABRT
    assert f"PoCL gives the module up: {'MemoryError' if kind == 'memory' else 'Error'}" in done.stderr
    assert says in done.stderr


def test_a_module_is_built_once_however_it_was_asked_for(pocl: Rig) -> None:
    """PoCL's bytes differ between builds."""
    subject = Trial(pocl).subject(kernel("y[get_global_id(0)] = 7.0f;"))
    bench = pocl.bench(subject, {})
    pocl.ahead(subject)
    found = {bench.build(subject.candidate).object_blake3 for _ in range(4)}
    pocl.ahead(subject)
    assert found == {bench.build(subject.candidate).object_blake3}


def test_an_object_that_the_run_keeps_is_neither_read_nor_kept_again_and_loads(simulated: Rig) -> None:
    subject = Trial(simulated).subject(HONEST["simulated"])
    first = simulated.bench(subject, {})
    report = first.build(subject.candidate)
    assert [*first.objects] == [f"objects/{report.object_blake3}.{report.extension}"]
    later = simulated.bench(subject, {}, first.objects.__contains__)
    assert later.build(subject.candidate) == report
    with later.session(subject, "candidate"):
        assert not later.objects


def test_a_lost_incumbent_is_not_the_candidates(pocl: Rig) -> None:
    trial = Trial(pocl)
    subject = trial.subject(HONEST["opencl"], BEYOND_MEMORY)
    with pytest.raises(WorkerLost) as caught:
        pocl.bench(subject, {}).build(subject.incumbent)
    assert caught.value.loss.arm == "incumbent"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (b'{"entries": {"add": {"does": "add", "more": 1}}}', "more"),
        (b'{"entries": {"add": {"does": "fly"}}}', "does"),
        (b'{"entries": {"add": {"does": "add"}, "add": {"does": "copy"}}}', "twice"),
        (b'{"entries": {"add": {"does": "add", "pass_ns": NaN}}}', "pass_ns"),
        (b"{", ""),
        (b"\xff", ""),
        (b"[" * 100_000, ""),
    ],
)
def test_a_script_that_is_not_closed_is_refused(script: bytes, says: str, simulated: Rig) -> None:
    report = build(simulated, script)
    assert report.state == "refused"
    assert says in report.log


def test_equal_scripts_give_equal_objects(simulated: Rig) -> None:
    script = HONEST["simulated"]
    first, second = build(simulated, script), build(simulated, json.dumps(json.loads(script), indent=1).encode())
    assert first.object_blake3 == second.object_blake3
    assert first.reproducible


#: Takes and frees 128 MiB in pieces, twice, as compilations do; the pages that were faulted in the second time.
CHURN = """
import ctypes, resource, sys
from qualify.workers.compile import keep_freed_memory

def churn():
    pieces = [ctypes.create_string_buffer(1 << 20) for _ in range(128)]

if sys.argv[1] == "keeping":
    keep_freed_memory()
churn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
churn()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_a_compile_worker_keeps_what_a_compilation_freed_for_the_next() -> None:
    def faults(how: str) -> int:
        command = [sys.executable, "-c", CHURN, how]
        return int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)

    assert faults("keeping") * 10 < faults("giving back")


def test_pocl_is_loaded_before_its_workers_are_forked(pocl: Rig) -> None:
    with pocl.measuring():
        loaded = [pid for pid in templates(os.getpid()) if "libpocl" in Path(f"/proc/{pid}/maps").read_text()]
    assert loaded
    assert [len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in loaded] == [1] * len(loaded)
