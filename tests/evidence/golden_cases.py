"""What the golden cases are made of: measured on the virtual board where a device is asked, by hand elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gates.compile import Advisory, Compiled, CompileFacts, Entry, Passed
from gates.contract import ContractGate, ContractSettings
from gates.memcheck import Launched, MemcheckFacts, ToolRun
from gates.occupancy import Footprint, OccupancyFacts
from gates.residency import Asked, Figures, ResidencyFacts
from qualify.contract import Kernel, Timing
from qualify.domain import Calibrated, Domain
from qualify.pacing import Paced
from qualify.sanitizers import OCLGRIND, PLANTED, TOOLS, Finding
from qualify.subject import Subject
from qualify.timed import Span, TimedFacts
from tests.evidence.goldens import Golden, of_facts
from tests.gates.beds import Bed, bed, script
from tests.gates.build import LIMITS, NoBench, arm, buffer, kernel, matrices, subject
from tests.gates.trials import Session

Case = tuple[str, str, Callable[[], Golden]]


@contextmanager
def cases() -> Iterator[list[Case]]:
    """Every case: gate, name, and how to make it."""
    with bed("simulated") as board:
        yield [
            *_contract(),
            *_compile(),
            *_occupancy(),
            *_residency(),
            *_digest(board),
            *_numeric(board),
            *_memcheck(),
            *_trial(board),
            *_timing(board),
            *_roofline(board),
        ]


def _contract() -> Iterator[Case]:
    def case(about: Subject) -> Golden:
        return of_facts("contract", about, ContractGate().measure(about, NoBench(), ContractSettings()), {}, {})

    unknown = LIMITS.model_copy(update={"block_threads": None})
    yield "contract", "passes", lambda: case(subject("pocl-3.0"))
    yield "contract", "zero-grid", lambda: case(subject(candidate=arm("wide", kernel(grid=0))))
    yield "contract", "unknown-block-limit", lambda: case(subject(limits=unknown))


def _compile() -> Iterator[Case]:
    nowhere: dict[str, Any] = {"offset_bytes": None, "size_bytes": None}
    pointer = Passed(kind="pointer", type_name="float*", address_space="global", **nowhere)
    count = Passed(kind="value", type_name="int", address_space="private", **nowhere)
    figures: dict[str, Any] = {"shared_bytes": 0, "private_bytes": 16, "barriers": None}
    figures |= dict.fromkeys(("registers", "spill_bytes", "stack_bytes"))
    own = Entry(symbol="add", parameters=(pointer, pointer, pointer, count), **figures)
    whole: dict[str, Any] = {"state": "built", "log": "k.cl:1:1: warning: unused", "entries": (own,)}
    whole |= {"object_blake3": "cd" * 32, "object_bytes": 99}
    untold = ("device_state", "undefined", "special_registers", "target", "linked")
    whole |= dict.fromkeys((*untold, "dropped", "disagreements", "idle_state_bytes"))
    whole |= {"advisories": ()}

    def case(toolkit: str = "pocl-3.0", settings: dict[str, Any] | None = None, **changes: Any) -> Golden:
        facts = CompileFacts(candidate=Compiled(**{**whole, **changes}), incumbent=(own,))
        return of_facts("compile", subject(toolkit, candidate=arm(target="sm_90")), facts, {}, settings or {})

    places = zip((0, 8, 16, 24), (8, 8, 8, 4), strict=True)
    told: dict[str, Any] = {"kind": None, "type_name": None, "address_space": None}
    block = tuple(Passed(offset_bytes=at, size_bytes=size, **told) for at, size in places)
    cubin = Entry(symbol="add", parameters=block, **{**figures, "registers": 24, "spill_bytes": 0, "stack_bytes": 0})
    clean: dict[str, Any] = {"device_state": (), "undefined": (), "special_registers": (), "linked": True}
    clean |= {"target": "sm_90", "idle_state_bytes": 0, "dropped": (), "disagreements": ()}
    dropped = {**clean, "dropped": ("launch bounds of 2048 threads",)}
    advised = {**clean, "advisories": (Advisory(code="C7508", text="setmaxnreg ignored"),)}
    limits = {"registers": 32, "spill_bytes": 0, "stack_bytes": 0, "shared_bytes": 0}
    swapped = Entry(symbol="add", parameters=(pointer, pointer, count, pointer), **figures)
    refused: dict[str, Any] = {"log": "k.cl:1:1: error: no", "entries": (), "object_blake3": None, "object_bytes": None}
    yield "compile", "passes", lambda: case(settings={"shared_bytes": 0})
    yield "compile", "cubin-passes", lambda: case("cuda-13.2", limits, entries=(cubin,), **clean)
    yield "compile", "cubin-without-state", lambda: case("cuda-13.2", entries=(cubin,))
    yield "compile", "cubin-advised", lambda: case("cuda-13.2", entries=(cubin,), **advised)
    yield "compile", "cubin-dropped-bounds", lambda: case("cuda-13.2", entries=(cubin,), **dropped)
    yield "compile", "swapped", lambda: case(entries=(swapped,))
    yield "compile", "refused", lambda: case(state="refused", **refused)


def _occupancy() -> Iterator[Case]:
    def case(launch: Kernel, settings: dict[str, Any] | None = None, **changes: Any) -> Golden:
        own: dict[str, Any] = {"symbol": "add", "block_threads": 1024, "shared_bytes": 0, "registers": 64}
        kernels = (Footprint(**{**own, "barriers": None, **changes}),)
        about = subject(
            "cuda-13.2",
            domain=Domain(toolkit="cuda-13.2", arch="sm_90"),
            candidate=arm("wide", launch),
            limits=LIMITS.model_copy(update={"shared_bytes": 232_448, "compute_units": 132}),
        )
        facts = OccupancyFacts(kernels=kernels, incumbent=kernels, target="sm_90a")
        return of_facts("occupancy", about, facts, {}, settings or {})

    together = kernel(grid=528, block=256, cooperative=True)
    yield "occupancy", "cuda-passes", lambda: case(together, {"min_fill": "4"})
    yield "occupancy", "cuda-too-many-together", lambda: case(together, registers=65)
    yield "occupancy", "cuda-too-much-shared", lambda: case(kernel(shared_bytes=232_449))
    yield "occupancy", "cuda-too-many-registers", lambda: case(kernel(block=512), registers=254)
    yield "occupancy", "cuda-unknown-registers", lambda: case(kernel(), registers=None)


def _residency() -> Iterator[Case]:
    places = ((0, 8), (8, 8), (16, 8), (24, 4))
    own = Figures(registers=64, local_bytes=16, shared_bytes=1024, block_threads=1024, parameters=places)
    same = Asked(symbol="add", host=own, barriers=None, device=own, blocks=4, clusters=None)

    def case(grid: int = 528, **changes: Any) -> Golden:
        about = subject(
            "cuda-13.2",
            domain=Domain(toolkit="cuda-13.2", arch="sm_90"),
            candidate=arm("wide", kernel(grid=grid, block=256, cooperative=True)),
            limits=LIMITS.model_copy(update={"shared_bytes": 232_448, "compute_units": 132}),
        )
        facts = ResidencyFacts(launches=(same.model_copy(update=changes),), multiprocessors=132)
        return of_facts("residency", about, facts, {}, {})

    yield "residency", "passes", case
    yield "residency", "nothing-resident", lambda: case(blocks=0)
    yield "residency", "too-many-together", lambda: case(grid=529)
    yield "residency", "other-registers", lambda: case(device=own.model_copy(update={"registers": 65}))


def _digest(board: Bed) -> Iterator[Case]:
    def case(text: bytes, **changes: Any) -> Golden:
        return _measured(board, "digest", board.subject(text, n=19, launches=(kernel(),), **changes))

    yield "digest", "passes", lambda: case(script())
    yield "digest", "unwritten", lambda: case(script("tail", group=8), variants=("ordinary", "exceptional"))
    yield "digest", "nondeterministic", lambda: case(script("stateful", after=3), bits="own")
    yield "digest", "other-bits", lambda: case(script("copy"))
    yield "digest", "replays-nothing", lambda: case(script(captured="idle"))
    yield "digest", "captured-nothing", lambda: case(script(captured="nothing"))
    yield "digest", "breaks-beside-itself", lambda: case(script("twin"))


def _numeric(board: Bed) -> Iterator[Case]:
    def case(text: bytes, **changes: Any) -> Golden:
        return _measured(board, "numeric", board.subject(text, n=19, launches=(kernel(),), **changes))

    integers = (
        *(buffer(name, kind, 19, "int16") for name, kind in zip("yab", ("output", "input", "input"), strict=True)),
    )
    yield "numeric", "passes", lambda: case(script(), variants=("ordinary", "exceptional"))
    yield "numeric", "plain-passes", lambda: _measured(board, "numeric", board.plain(n=19, launches=(kernel(),)))
    yield "numeric", "zeros", lambda: case(script("zeros"))
    yield "numeric", "integers-differ", lambda: case(script("copy"), passed=integers)


def _memcheck() -> Iterator[Case]:
    whole: dict[str, Any] = {"version": "1", "ended": "complete", "exit_code": 0, "found": 0, "findings": ()}
    whole |= {"unexplained": 0, "strange": (), "planted": (), "errors": 0, "warnings": 0}
    seen = tuple(PLANTED), tuple(PLANTED)
    outside: dict[str, Any] = {
        "found": 1,
        "findings": (Finding(claim="bounds", text="Invalid read of size 4; Kernel: add"),),
    }

    ended = Launched(variant="ordinary", symbol="add", returned=1000)
    both = ended, ended.model_copy(update={"variant": "strided"})

    def opencl(about: Subject | None = None, **changes: Any) -> Golden:
        own = {**whole, "planted": seen, "errors": None, "warnings": None, "launches": (ended,), **changes}
        facts = MemcheckFacts(tools=(ToolRun(tool=OCLGRIND, **own),))
        return of_facts("memcheck", about or subject("pocl-3.0"), facts, {}, {})

    def cuda(tool: str = "memcheck", **changes: Any) -> Golden:
        own = {**whole, "launches": (ended.model_copy(update={"returned": None}),)}
        tools = tuple(ToolRun(tool=name, **(own | changes if name == tool else own)) for name in TOOLS["cuda"])
        return of_facts("memcheck", subject("cuda-13.2"), MemcheckFacts(tools=tools), {}, {})

    apart = subject("pocl-3.0", arguments=matrices(), variants=("ordinary", "strided"))
    hazard = Finding(claim="races", text="Warning: Race reported between Write access", warning=True)
    yield "memcheck", "passes", opencl
    yield "memcheck", "reads-past-the-end", lambda: opencl(**outside)
    yield "memcheck", "silent", lambda: opencl(planted=((), ()))
    yield "memcheck", "prints", lambda: opencl(unexplained=1, strange=("ERROR SUMMARY: 0 errors",))
    yield "memcheck", "strided-passes", lambda: opencl(apart, launches=both)
    yield "memcheck", "strided-left-out", lambda: opencl(apart)
    yield "memcheck", "cuda-passes", cuda
    yield "memcheck", "cuda-reads-past-the-end", lambda: cuda(errors=1, exit_code=86, **outside)
    yield "memcheck", "cuda-warning", lambda: cuda("racecheck", warnings=1, exit_code=86, found=1, findings=(hazard,))
    yield "memcheck", "cuda-without-a-summary", lambda: cuda("initcheck", errors=None, warnings=None)


def _trial(board: Bed) -> Iterator[Case]:
    def case(text: bytes, **changes: Any) -> Golden:
        about = board.subject(text, script(pass_ns=600_000), n=19, launches=(kernel(),), **changes)
        return _measured(board, "trial", about)

    yield "trial", "passes", lambda: case(script(pass_ns=400_000))
    yield "trial", "passes-with-own-bits", lambda: case(script(pass_ns=400_000), bits="own")
    yield "trial", "slower", lambda: case(script(pass_ns=700_000))
    yield "trial", "hopeless", lambda: case(script(pass_ns=7_000_000))
    yield "trial", "superbatch", lambda: case(script("superbatch", pass_ns=600_000))
    facts, series = Session(windows=24).around(2, 7, 9, events=("thermal", "xid unknown"), clock="low").facts()
    yield "trial", "disturbed", lambda: of_facts("trial", subject(), facts, series, {})
    yield "trial", "lost", lambda: case(script(pass_ns=400_000, fault="die", after=150))


def _timing(board: Bed) -> Iterator[Case]:
    few = {"windows": 18, "processes": 3, "alpha_ppm": 250_000, "long_run_ms": 60, "clock_tolerance_ppm": 900_000}

    def case(text: bytes, **changes: Any) -> Golden:
        fields = {"n": 19, "launches": (kernel(),), "timing": Timing(cache="hot"), **changes}
        return _measured(board, "timing", board.subject(text, script(pass_ns=600_000), **fields), **few)

    yield "timing", "passes", lambda: case(script(pass_ns=400_000))
    yield "timing", "passes-with-own-bits", lambda: case(script(pass_ns=400_000), bits="own")
    yield "timing", "passes-as-a-control", lambda: case(script(pass_ns=600_000), role="control")
    yield "timing", "within-the-margin", lambda: case(script(pass_ns=599_700))
    yield "timing", "works-ahead", lambda: case(script("ahead", pass_ns=600_000))
    yield "timing", "host-bound", lambda: case(script(pass_ns=400_000, host_bound_every=2))
    yield "timing", "hopeless", lambda: case(script(pass_ns=7_000_000))


def _roofline(board: Bed) -> Iterator[Case]:
    def case(fastest_ns: int, n: int = 1 << 20, **settings: Any) -> Golden:
        span = Span(fastest_ns=fastest_ns, median_ns=fastest_ns + 1)
        pace = Paced(passes=1, units=3, flush_bytes=0, more_bytes=None)
        timed = TimedFacts(flush_bytes=0, pace=pace, candidate=span, incumbent=Span(fastest_ns=10**9, median_ns=10**9))
        return _measured(board, "roofline", board.subject(script(), n=n), needed={"timing": timed}, **settings)

    yield "roofline", "passes", lambda: case(1_000_000)
    yield "roofline", "faster-than-copies", lambda: case(10_000)
    cited = Calibrated(calibration=("run",), driver="none", copy_bytes_per_s=10**11)
    yield "roofline", "passes-beside-what-is-cited", lambda: case(1_000_000, board=cited)
    yield "roofline", "faster-than-memory", lambda: case(10_000, board=cited)


def _measured(board: Bed, gate: str, about: Subject, /, **settings: Any) -> Golden:
    found = board.judge(gate, about, **settings)
    series = {name: tuple(found.values(name)) for name in found.series}
    return Golden(
        subject=about, settings=found.settings, measurement=found.measurement, series=series, verdict=found.verdict
    )
