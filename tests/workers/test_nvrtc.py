"""The compile worker for CUDA, with the NVRTC of this environment and no board: what it says of what it builds."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from qualify.channel import Compile, Compiled, Describe, Described
from qualify.children import Child, Job, Nursery
from qualify.contract import FragmentRef, Kernel, Module
from qualify.cuda_toolkits import here
from qualify.errors import RigError
from qualify.identity import content
from qualify.objectcode import Built, Entry

REPORTS = Path(__file__).parents[1] / "data" / "reports"
RELEASE, FOLDERS = next(here(cache=Path("/nowhere")))
MEMORY_BYTES, OUTPUT_BYTES, TIMEOUT_S = 2 << 30, 1 << 20, 60.0
PLAIN = b'extern "C" __global__ void plain(int *out) { out[threadIdx.x] = 1; }\n'


def job(**changed: str) -> Job:
    told = {"QUALIFY_CUDA_FOLDERS": os.pathsep.join(map(str, FOLDERS)), "QUALIFY_CUDA_ARCH": "sm_90"}
    return Job("compile", "cuda", MEMORY_BYTES, OUTPUT_BYTES, told={**told, **changed})


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


@pytest.fixture(scope="module")
def worker(nursery: Nursery) -> Child:
    return nursery.start(job())


def build(
    worker: Child,
    *texts: bytes,
    symbols: tuple[str, ...] = ("plain",),
    paths: tuple[str, ...] = ("op/k.cu",),
    target: str = "sm_90",
    options: tuple[str, ...] = (),
    defines: dict[str, str] | None = None,
) -> tuple[Built, bytes | None]:
    module = Module(
        frontend="cuda",
        runtime="cuda",
        fragments=tuple(FragmentRef(path=path, blake3=content(text)) for path, text in zip(paths, texts, strict=True)),
        options=options,
        defines=defines or {},
        launches=tuple(Kernel(symbol=symbol, grid=(1, 1, 1), block=(32, 1, 1)) for symbol in symbols),
        arguments=(),
        target=target,
        toolkit_build="any",
    )
    answer, data = worker.ask(Compile(module=module), texts, timeout_s=TIMEOUT_S)
    assert isinstance(answer, Compiled)
    return answer.built, data[0] if data else None


def report(name: str) -> bytes:
    return (REPORTS / f"{name}.cu").read_bytes()


def entry(built: Built, symbol: str) -> Entry:
    found = built.entry(symbol)
    assert found, built.log
    return found


def test_it_says_what_it_is(worker: Child) -> None:
    answer, _ = worker.ask(Describe(), (), timeout_s=TIMEOUT_S)
    assert isinstance(answer, Described)
    release = f"{RELEASE[0]}.{RELEASE[1]}"
    assert (answer.version, answer.arch) == (release, "sm_90")
    assert answer.toolkit_build.startswith(f"cuda-{release}.")
    assert (answer.board, answer.limits.shared_bytes, answer.reports) == (None, 232_448, True)
    assert {"sm_80", "sm_90"} <= set(answer.targets)


def test_a_template_instance_keeps_the_contracts_name(worker: Child) -> None:
    prelude = b"#pragma once\n#define TWICE(x) (2 * (x))\n"
    text = b"""#include "common/prelude.h"
template <typename T, int N> __global__ void __launch_bounds__(64) made(T *out) {
  __shared__ T tile[N];
  tile[threadIdx.x % N] = TWICE(SCALE);
  __syncthreads();
  out[threadIdx.x] = tile[0];
}
"""
    symbol = "made<float, 8>"
    paths = ("common/prelude.h", "op/k.cu")
    built, data = build(worker, prelude, text, symbols=(symbol,), paths=paths, defines={"SCALE": "3"})
    assert built.state == "built", built.log
    assert data
    assert (built.object_bytes, built.reproducible, built.linked) == (len(data), True, True)
    found = entry(built, symbol)
    assert found.linkage_name == "_Z4madeIfLi8EEvPT_"
    assert (found.shared_bytes, found.barriers, found.block_threads) == (32, 1, 64)
    assert (found.spill_store_bytes, found.spill_load_bytes) == (0, 0)
    assert found.parameters
    assert [(item.offset_bytes, item.size_bytes) for item in found.parameters] == [(0, 8)]
    assert (built.target, built.findings, built.device_state) == ("sm_90", (), ())


def test_equal_modules_give_equal_bytes_in_two_workers(worker: Child, nursery: Nursery) -> None:
    another = nursery.start(job())
    assert build(worker, PLAIN)[1] == build(another, PLAIN)[1] is not None
    nursery.end(another)


def test_headers_of_the_toolkit_are_there_and_their_constants_are_no_state(worker: Child) -> None:
    """Many headers of the toolkit leave constants in device memory, as this fragment does; no code names them."""
    header, text = b"__device__ const int sizes = 512;\n", b"#include <cuda_fp16.h>\n" + PLAIN
    built, _ = build(worker, header, text, paths=("sizes.h", "op/k.cu"))
    assert built.state == "built", built.log
    assert (built.device_state, built.idle_state_bytes) == ((), 4)


def test_what_a_kernel_keeps_lacks_and_asks(worker: Child) -> None:
    text = b"""__device__ int kept;
extern "C" __global__ void plain(int *out) {
  out[0] = kept++;
  out[1] = (int)clock64();
  printf("%d", out[2]);
}
"""
    built, _ = build(worker, text)
    assert built.device_state
    assert {item.name for item in built.device_state} == {"kept", "$str"}
    assert (built.undefined, built.special_registers) == (("vprintf",), ("%clock64",))


def test_a_suffix_is_the_routes(worker: Child) -> None:
    built, _ = build(worker, report("hints"), symbols=("bounded", "unbounded"), target="sm_90a")
    assert (built.state, built.target) == ("built", "sm_90a")
    assert [item.code for item in built.findings] == ["C7508"]
    assert entry(built, "unbounded").register_hints
    plain, data = build(worker, report("hints"), symbols=("bounded",))
    assert (plain.state, data, plain.entries) == ("refused", None, ())
    assert plain.findings[0].kind == "target"
    assert plain.findings[0].text.endswith("not supported on .target 'sm_90'; a variant may have it: sm_90a")


def test_one_source_for_two_targets_is_two_objects(worker: Child) -> None:
    """The plain target compiles and writes nothing: the object says which of the two it is, nothing else here does."""
    guarded = (
        b"#ifdef __CUDA_ARCH_FEAT_SM90_ALL\n" + PLAIN + b'#else\nextern "C" __global__ void plain(int *) {}\n#endif\n'
    )
    empty, full = (build(worker, guarded, target=target)[0] for target in ("sm_90", "sm_90a"))
    assert (empty.state, empty.target, full.target) == ("built", "sm_90", "sm_90a")
    assert entry(empty, "plain").registers_per_thread != entry(full, "plain").registers_per_thread


def test_a_residency_promise_is_judged_for_each_target(worker: Child) -> None:
    kept, dropped = (
        build(worker, report("report"), symbols=("crowded",), target=name)[0] for name in ("sm_90", "sm_86")
    )
    assert entry(kept, "crowded").spill_store_bytes
    assert not kept.findings
    assert entry(dropped, "crowded").spill_store_bytes == 0
    assert [(item.kind, item.entry, item.target) for item in dropped.findings] == [
        ("launch-bounds", "crowded", "sm_86")
    ]
    assert [entry(built, "crowded").min_blocks for built in (kept, dropped)] == [8, 8]


def test_whatever_changes_in_a_module_changes_the_object(worker: Child) -> None:
    """Nothing is served from a cache that does not see it: a constant, an included fragment, a define, a name."""
    header, text = b"#define VALUE 1\n", b'extern "C" __global__ void plain(int *out) { out[0] = VALUE + MORE; }\n'
    paths = ("value.h", "op/k.cu")
    variants = (
        build(worker, header, text, paths=paths, defines={"MORE": "1"}),
        build(worker, header.replace(b"1", b"5"), text, paths=paths, defines={"MORE": "1"}),
        build(worker, header, text, paths=paths, defines={"MORE": "7"}),
        build(worker, header, text.replace(b"out[0]", b"out[1]"), paths=paths, defines={"MORE": "1"}),
        build(worker, header, text.replace(b"plain", b"ready"), symbols=("ready",), paths=paths, defines={"MORE": "1"}),
    )
    assert len({built.object_blake3 for built, _ in variants}) == len(variants)
    assert all(
        entry(built, "ready" if built.entry("ready") else "plain").spill_store_bytes == 0 for built, _ in variants
    )


def test_a_refused_build_with_a_complete_record_is_refused(worker: Child) -> None:
    built, data = build(worker, report("oversized"), symbols=("oversized",))
    assert "300000 bytes smem" in built.log
    assert (built.state, data, built.entries, built.object_blake3) == ("refused", None, (), None)
    assert [item.kind for item in built.findings] == ["shared-limit"]


def test_a_printed_report_never_becomes_the_kernels(worker: Child) -> None:
    """What the object tells stays known; what only the report tells is unknown once there are two."""
    printed = report("quoting").replace(b"0 bytes spill stores", b"8 bytes spill stores")
    found = entry(build(worker, printed, symbols=("quoting",))[0], "quoting")
    assert found.registers_per_thread
    assert found.registers_per_thread > 4
    assert (found.spill_store_bytes, found.spill_load_bytes) == (None, 0)


@pytest.mark.parametrize(
    ("text", "how", "says"),
    [
        (b"nonsense\n", {}, "error: this declaration has no storage class"),
        (b'#include "missing.h"\n' + PLAIN, {}, 'source file "missing.h"'),
        (PLAIN, {"symbols": ("other",)}, 'identifier "other" is undefined'),
        (PLAIN, {"target": "sm_52"}, "sm_52 is no target of the toolkit"),
        (PLAIN, {"options": ("--ptxas-options=-arch=sm_100",)}, "not taken: --ptxas-options=-arch=sm_100"),
        (PLAIN, {"options": ("-I/",)}, "not taken: -I/"),
        (PLAIN, {"options": ("-rdc=true",)}, "not taken: -rdc=true"),
    ],
)
def test_a_refusal_is_an_answer(worker: Child, text: bytes, how: dict[str, tuple[str, ...]], says: str) -> None:
    built, data = build(worker, text, **how)  # type: ignore[arg-type]  # Each case names fields of their types.
    assert (built.state, data) == ("refused", None)
    assert says in built.log
    assert any(item.level == "error" for item in built.findings)


def test_options_that_are_taken(worker: Child) -> None:
    for options in (("--use_fast_math", "--std=c++20"), ("-lineinfo", "--maxrregcount=32"), ("--fmad=false",)):
        assert build(worker, PLAIN, options=options)[0].state == "built"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"QUALIFY_CUDA_ARCH": "sm_52"}, "sm_52 is no target of the toolkit"),
        ({"QUALIFY_CUDA_ARCH": ""}, "expected QUALIFY_CUDA_ARCH"),
        ({"QUALIFY_CUDA_FOLDERS": "/nowhere"}, "expected one libnvrtc with its builtins, got none"),
    ],
)
def test_a_toolkit_that_is_not_here_is_the_rigs_error(nursery: Nursery, changed: dict[str, str], says: str) -> None:
    child = nursery.start(job(**changed))
    with pytest.raises(RigError, match=says):
        child.ask(Describe(), (), timeout_s=TIMEOUT_S)
    nursery.end(child)
