"""Gate digest: bits that depend on the inputs alone, and every trick beside them that must not pass."""

import json
from typing import Any

import pytest

from gates.digest import DigestFacts
from qualify import checked, program
from qualify.arena import layout
from qualify.checked import (
    CROWD_TRIES,
    FIRST_ZONES,
    OTHER_ZONES,
    REPLAYS,
    CheckedRun,
    CrowdedRun,
    FullRuns,
    ReplayedRuns,
    Untouched,
)
from qualify.contract import Argument, Memset, Variant
from qualify.domain import Domain
from qualify.steps import Census, Damage
from tests.gates.beds import Bed, opencl, pitched, script
from tests.gates.beds import cuda as source
from tests.gates.build import (
    LIMITS,
    VARIANTS,
    arguments,
    arm,
    buffer,
    check,
    kernel,
    matrices,
    not_held,
    subject,
    verdict,
)


def digest(number: int) -> str:
    return f"{number:016x}"


def run(number: int, inputs: int, **changes: Any) -> CheckedRun:
    """A good run: outputs and kept arguments depend on the inputs alone."""
    kept = (digest(100 + inputs), digest(200 + inputs))
    fields: dict[str, Any] = {
        "inputs": inputs,
        "complement": number % 2 == 1,
        "kept_before": kept,
        "outputs": (digest(inputs),),
        "kept_after": kept,
        "damage": Damage(bytes=0, first_offset=None),
        "poisoned": (0,),
        "later": (digest(inputs),),
    }
    return CheckedRun(**{**fields, **changes})


def crowd(beside: Any, **changes: Any) -> CrowdedRun:
    """A good run beside a busy queue."""
    fields: dict[str, Any] = {"busy": True, "run": run(0, 0), "twin": (digest(1),) if beside == "itself" else None}
    return CrowdedRun(beside=beside, **{**fields, **changes})


ONE_KERNEL = Census(kernels=1, memsets=0, others=0)


def replayed(changed: int = -1, census: Census = ONE_KERNEL, **changes: Any) -> ReplayedRuns:
    """Good replays, one of them changed."""
    found = (run(at, **{"inputs": i, **(changes if at == changed else {})}) for at, i in enumerate(REPLAYS))
    return ReplayedRuns(census=census, runs=tuple(found))


def runs(variant: Variant = "ordinary", **changes: Any) -> FullRuns:
    fields: dict[str, Any] = {
        "variant": variant,
        "first": tuple(run(number, inputs) for number, inputs in enumerate(FIRST_ZONES)),
        "idle": (digest(FIRST_ZONES[-1]),),
        "untouched": None,
        "other": tuple(run(number, inputs) for number, inputs in enumerate(OTHER_ZONES)),
        "incumbent": ((digest(0),), (digest(1),)),
        "replayed": replayed(),
        "crowded": (crowd("work"), crowd("itself")),
    }
    return FullRuns(**{**fields, **changes})


def with_run(number: int, **changes: Any) -> tuple[CheckedRun, ...]:
    """The first session's runs, one of them changed."""
    return tuple(run(at, i, **(changes if at == number else {})) for at, i in enumerate(FIRST_ZONES))


def judged(found: FullRuns, **changes: Any) -> dict[str, bool | None]:
    return not_held(verdict("digest", subject(**changes), DigestFacts(variants=(found,))))


def test_bits_of_the_inputs_alone_pass() -> None:
    assert not judged(runs())
    both = DigestFacts(variants=tuple(runs(variant) for variant in VARIANTS))
    assert verdict("digest", subject(variants=VARIANTS), both).outcome == "pass"


@pytest.mark.parametrize(
    ("found", "closed"),
    [
        (runs(first=with_run(3, damage=Damage(bytes=2, first_offset=77))), {"zones": False}),
        (runs(first=with_run(3, kept_after=(digest(7), digest(200)))), {"inputs_unchanged": False}),
        (runs(first=with_run(3, kept_before=(digest(7), digest(200)))), {"inputs_unchanged": False}),
        (
            runs(first=with_run(3, outputs=(digest(9),), later=(digest(9),))),
            {"repeats": None, "zone_independent": None, "contention": None, "replay": None},
        ),
        (runs(first=with_run(3, later=(digest(9),))), {"stable": False}),
        (runs(idle=(digest(9),)), {"stable": False}),
        (
            runs(other=tuple(run(i, 0, outputs=(digest(9),), later=(digest(9),)) for i in (0, 1))),
            {"zone_independent": False},
        ),
        (runs(incumbent=((digest(0),), (digest(9),))), {"incumbent": False}),
        (runs(incumbent=None), {"incumbent": None}),
        (runs(incumbent=()), {"incumbent": None}),
        (runs(first=runs().first[:-1]), {"runs": None, "stable": False}),
        (runs(other=runs().other[:1]), {"runs": None}),
        (runs(first=with_run(3, complement=False)), {"runs": None}),
        (runs(first=with_run(3, poisoned=())), {"facts": None}),
        (runs(variant="exceptional"), {"runs": None, "input_dependent": None}),
    ],
)
def test_the_nearest_bits_that_close(found: FullRuns, closed: dict[str, bool | None]) -> None:
    assert judged(found) == closed


OTHER_BITS: dict[str, Any] = {"outputs": (digest(9),), "later": (digest(9),)}
QUIET = crowd("itself", busy=False)


@pytest.mark.parametrize(
    ("found", "closed"),
    [
        (runs(replayed=replayed(1, **OTHER_BITS)), {"replay": False}),
        (runs(replayed=replayed(2, outputs=(digest(1),), later=(digest(1),))), {"replay": False}),
        (runs(replayed=replayed(1, later=(digest(9),))), {"stable": False}),
        (runs(replayed=replayed(1, damage=Damage(bytes=1, first_offset=0))), {"zones": False}),
        (runs(replayed=replayed(1, kept_after=(digest(7), digest(201)))), {"inputs_unchanged": False}),
        (runs(replayed=replayed(1, complement=False)), {"runs": None}),
        (runs(replayed=replayed(census=Census(kernels=0, memsets=0, others=0))), {"node_census": False}),
        (runs(replayed=replayed(census=Census(kernels=1, memsets=0, others=1))), {"node_census": False}),
        (runs(replayed=replayed(census=Census(kernels=2, memsets=0, others=0))), {"node_census": False}),
        (runs(replayed=replayed().model_copy(update={"runs": ()})), {"runs": None, "replay": None}),
        (runs(replayed=None), {"runs": None, "node_census": None, "replay": None}),
        (runs(crowded=(crowd("work", run=run(0, 0, **OTHER_BITS)), crowd("itself"))), {"contention": False}),
        (runs(crowded=(crowd("work"), crowd("itself", twin=(digest(0),)))), {"contention": False}),
        (runs(crowded=(crowd("work"), crowd("itself", twin=None))), {"runs": None, "contention": None}),
        (runs(crowded=(crowd("work", busy=False), crowd("itself"))), {"contention": None}),
        (runs(crowded=(crowd("work"),)), {"runs": None, "contention": None}),
        (runs(crowded=()), {"runs": None, "contention": None}),
        (runs(crowded=(crowd("work"), *[QUIET] * CROWD_TRIES)), {"contention": None}),
        (runs(crowded=(crowd("work"), *[QUIET] * CROWD_TRIES, crowd("itself"))), {"runs": None, "contention": None}),
        (runs(crowded=(crowd("work"), crowd("itself"), crowd("itself"))), {"runs": None, "contention": None}),
        (
            runs(crowded=(crowd("work"), crowd("itself", busy=False, run=run(0, 0, **OTHER_BITS)), crowd("itself"))),
            {"contention": False},
        ),
    ],
)
def test_the_nearest_replays_and_crowds_that_close(found: FullRuns, closed: dict[str, bool | None]) -> None:
    assert judged(found) == closed


def test_a_queue_that_was_busy_at_the_last_try_is_enough() -> None:
    assert not judged(runs(crowded=(crowd("work"), *[QUIET] * (CROWD_TRIES - 1), crowd("itself"))))


def test_the_other_instance_has_bits_to_compare_unless_they_change_from_pass_to_pass() -> None:
    passed = (*arguments(), buffer("c", "inout"))
    for twin in (None, (digest(1),)):
        found = runs(crowded=(crowd("work"), crowd("itself", twin=twin)))
        assert checked.whole_crowds(subject(), found) is (twin is not None)
        assert checked.whole_crowds(subject(arguments=passed), found) is (twin is None)


def test_a_census_counts_memsets_but_not_of_nothing() -> None:
    launches = (kernel(), Memset(memset="y"), Memset(memset="empty"))
    passed = (*arguments(), buffer("empty", "scratch", 0))
    closed = {1: {}, 2: {"node_census": False}, 0: {"node_census": False}}
    for memsets, want in closed.items():
        found = runs(replayed=replayed(census=Census(kernels=1, memsets=memsets, others=0)))
        assert judged(found, arguments=passed, candidate=arm("wide", *launches)) == want


def test_graphs_are_asked_for_where_the_runtime_has_them() -> None:
    domain = Domain(toolkit="pocl-3.0", arch="virtual")
    assert not judged(runs(replayed=None), domain=domain)
    assert judged(runs(), domain=domain) == {"runs": None}


def test_a_route_is_beside_itself_where_two_sets_fit() -> None:
    large = tuple(buffer(argument.name, argument.kind, 1 << 20) for argument in arguments() if argument.is_buffer)
    limits = LIMITS.model_copy(update={"memory_bytes": 20 << 20})
    alone = runs(crowded=(crowd("work"),))
    assert judged(alone, limits=limits, arguments=large) == {}
    assert judged(runs(), limits=limits, arguments=large) == {"runs": None, "contention": None}
    (note,) = verdict("digest", subject(limits=limits, arguments=large), DigestFacts(variants=(alone,))).notes
    assert note.got == "neutral work only"


def test_outputs_that_ignore_their_inputs_close() -> None:
    same: dict[str, Any] = {"outputs": (digest(0),), "later": (digest(0),)}
    first = tuple(run(number, inputs, **same) for number, inputs in enumerate(FIRST_ZONES))
    still: dict[str, Any] = {"idle": (digest(0),), "incumbent": ((digest(0),), (digest(0),))}
    crowds = (crowd("work"), crowd("itself", twin=(digest(0),)))
    found = runs(first=first, crowded=crowds, replayed=replayed(1, **same), **still)
    assert judged(found) == {"input_dependent": False}
    no_inputs = tuple(a for a in arguments() if a.kind != "input")
    kept: dict[str, Any] = {"kept_before": (), "kept_after": ()}
    first, replays = (
        tuple(run(number, inputs, **same, **kept) for number, inputs in enumerate(plan))
        for plan in (FIRST_ZONES, REPLAYS)
    )
    beside = tuple(crowd(b, run=run(0, 0, **kept), twin=t) for b, t in (("work", None), ("itself", (digest(0),))))
    again = ReplayedRuns(census=ONE_KERNEL, runs=replays)
    other = tuple(run(i, 0, **kept) for i in (0, 1))
    found = runs(first=first, other=other, replayed=again, crowded=beside, **still)
    assert not judged(found, arguments=no_inputs)


def test_unwritten_elements_fail_with_count_and_first_index_and_nothing_else_is_called_nondeterministic() -> None:
    """Unwritten elements hold other poison in every run, so that repeats differ too."""
    poison = [
        {"outputs": (digest(50 + i),), "later": (digest(50 + i),), "poisoned": (3,)} for i in range(len(FIRST_ZONES))
    ]
    first = tuple(run(number, inputs, **poison[number]) for number, inputs in enumerate(FIRST_ZONES))
    left = tuple(Untouched(inputs=i, output="y", elements=3, first_index=997) for i in (0, 1))
    found = verdict(
        "digest",
        subject(),
        DigestFacts(variants=(runs(first=first, idle=poison[-1]["outputs"], untouched=left),)),
    )
    assert check(found, "unwritten").got == "3 elements of y, the first at 997"
    assert check(found, "unwritten").holds is False
    assert check(found, "repeats").holds is None
    assert "unwritten" in (check(found, "repeats").got or "")


def test_poison_in_both_polarities_must_be_looked_at() -> None:
    suspected = tuple(run(number, i, poisoned=(1,)) for number, i in enumerate(FIRST_ZONES))
    assert judged(runs(first=suspected)) == {"facts": None}
    clean = tuple(Untouched(inputs=i, output="y", elements=0, first_index=None) for i in (0, 1))
    assert not judged(runs(first=suspected, untouched=clean))
    one_side = tuple(run(number, i, poisoned=(number % 2,)) for number, i in enumerate(FIRST_ZONES))
    assert not judged(runs(first=one_side))


def test_only_identical_candidates_are_compared_with_the_incumbent() -> None:
    assert not judged(runs(incumbent=None), bits="own")
    assert not judged(runs(incumbent=None), role="plain")


# Through measuring workers -------------------------------------------------------------------------------------------

Closed = dict[str, bool | None]
#: Launches of one session before the first replay: what counts them can be right in all of these.
EAGER = len(FIRST_ZONES)


def test_an_honest_kernel_passes_in_every_variant_with_the_incumbents_bits(simulated: Bed, pocl: Bed) -> None:
    assert not not_held(simulated.judge("digest", simulated.subject(script(), variants=VARIANTS)).verdict)
    assert not not_held(pocl.judge("digest", pocl.subject(opencl(), n=1003, variants=VARIANTS)).verdict)


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        (script("reads_shared"), {"repeats": None}),
        (script("stateful", after=3), {"repeats": None}),
        (script("input_changer"), {"inputs_unchanged": False}),
        (script("memo_by_pointer"), {"input_dependent": False}),
        (script("crowded"), {"contention": False, "repeats": True, "replay": True}),
        (script("twin"), {"contention": False, "repeats": True, "replay": True}),
        (script(captured="nothing"), {"node_census": False, "replay": False, "repeats": True}),
        (script(captured="elsewhere"), {"node_census": False, "replay": False, "repeats": True}),
        (script(captured="idle"), {"node_census": True, "replay": False, "repeats": True}),
        (script(captured="answer"), {"node_census": True, "replay": False, "repeats": True}),
        (script("stateful", after=EAGER), {"replay": False, "contention": False, "repeats": True}),
    ],
)
def test_scripted_tricks(simulated: Bed, text: bytes, closed: Closed) -> None:
    found = not_held(simulated.judge("digest", simulated.subject(text, bits="own")).verdict)
    assert {name: found.get(name, True) for name in closed} == closed


@pytest.mark.parametrize("sets", [1, 2])
@pytest.mark.parametrize("left", [None, 77])
def test_bytes_that_equal_their_poison_by_chance_are_no_unwritten_ones(pocl: Bed, sets: int, left: int | None) -> None:
    """Of so many some do in both polarities, so every one is looked at: with memory for a second set, and without."""
    count = 20_000
    passed = (
        *(buffer(name, kind, count, "uint8") for name, kind in (("y", "output"), ("a", "input"), ("b", "input"))),
        Argument(name="n", kind="scalar", dtype="int32", value=str(count)),
    )
    head = "__global uchar *y, __global const uchar *a, __global const uchar *b, int n"
    text = opencl(f"if (i < n && i != {-1 if left is None else left}) y[i] = a[i] + b[i];", head)
    memory = layout(passed, sets).size_bytes * 8 // 7 + 8
    limits = pocl.rig.limits.model_copy(update={"memory_bytes": memory})
    about = pocl.subject(text, text, passed=passed, launches=(kernel(grid=200),), bits="own", limits=limits)
    measured = pocl.judge("digest", about)
    facts = DigestFacts.model_validate_json(json.dumps(measured.measurement.facts)).variants[0]
    assert {crowd.beside for crowd in facts.crowded} == {"work", *(("itself",) if sets == 2 else ())}
    wanted = Untouched(inputs=0, output="y", elements=0 if left is None else 1, first_index=left)
    assert facts.untouched == tuple(wanted.model_copy(update={"inputs": inputs}) for inputs in (0, 1))
    assert not_held(measured.verdict).get("unwritten", True) is (left is None)
    assert (measured.verdict.outcome == "pass") is (left is None)


STRIDED: tuple[Variant, ...] = ("ordinary", "strided")


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        (pitched(), {}),
        (pitched(write="i"), {"zones": False, "unwritten": False}),
        (pitched(read="i"), {"zone_independent": False, "zones": True, "unwritten": True}),
    ],
)
def test_rows_may_lie_apart(pocl: Bed, text: bytes, closed: Closed) -> None:
    """A kernel that takes every row to follow the last is right where they do, and only there."""
    about = pocl.subject(text, pitched(), passed=matrices(), launches=(kernel(grid=1),), bits="own", variants=STRIDED)
    measured = pocl.judge("digest", about)
    assert measured.verdict.outcome == ("fail" if closed else "pass")
    assert {name: not_held(measured.verdict).get(name, True) for name in closed} == closed
    facts = DigestFacts.model_validate_json(json.dumps(measured.measurement.facts))
    in_a_row = facts.model_copy(update={"variants": facts.variants[:1]})
    assert verdict("digest", about.model_copy(update={"variants": STRIDED[:1]}), in_a_row).outcome == "pass"


@pytest.mark.parametrize("spare_bytes", [-64, 0])
def test_rows_are_looked_at_on_the_device_where_memory_is_left_for_two_of_them(pocl: Bed, spare_bytes: int) -> None:
    """One byte in 256 equals its poison by chance, so that every element is looked at: there, or here."""
    passed = tuple(
        each.model_copy(update={"dtype": "uint8"}) if each.is_buffer else each for each in matrices(200, 100)
    )
    text = pitched().replace(b"float", b"uchar")
    about = pocl.subject(text, text, passed=passed, launches=(kernel(grid=200),), bits="own", variants=STRIDED)
    wanted = layout(passed, 2, variant="strided").size_bytes + 2 * 200 * 100 + spare_bytes
    limits = pocl.rig.limits.model_copy(update={"memory_bytes": -(-wanted * 8 // 7)})
    about = about.model_copy(update={"limits": limits})
    made = program.arena(about, 2, "0" * 16, "strided")
    assert checked.compares(about, made) is (spare_bytes == 0)
    measured = pocl.judge("digest", about)
    assert measured.verdict.outcome == "pass"
    strided = DigestFacts.model_validate_json(json.dumps(measured.measurement.facts)).variants[1]
    assert {(each.elements, each.first_index) for each in strided.untouched or ()} == {(0, None)}


def test_shared_memory_holds_another_pattern_in_every_run(simulated: Bed) -> None:
    """Bits of a kernel that reads it differ from run to run, in both polarities of one poison too."""
    facts = simulated.judge("digest", simulated.subject(script("reads_shared"))).measurement.facts
    (found,) = DigestFacts.model_validate_json(json.dumps(facts)).variants
    assert len({run.outputs for run in found.runs}) == len(found.runs)


@pytest.mark.gpu
def test_a_kernel_that_does_nothing_in_replays_is_caught_on_a_board(cuda: Bed) -> None:
    counts = (
        "__shared__ int now; if (threadIdx.x == 0) now = atomicAdd(&launches, 1) / gridDim.x; __syncthreads(); "
        f"if (now < {EAGER} && i < n) y[i] = a[i] + b[i];"
    )
    text = b"__device__ int launches;\n" + source(counts)
    assert cuda.judge("digest", cuda.subject(source())).verdict.outcome == "pass"
    found = not_held(cuda.judge("digest", cuda.subject(text, bits="own")).verdict)
    assert found == {"replay": False, "contention": False}


def test_a_lost_incumbent_is_not_the_candidates_fault(simulated: Bed) -> None:
    about = simulated.subject(script(), script(fault="die"))
    assert not_held(simulated.judge("digest", about).verdict) == {"measured": None}


def test_a_hang_is_ended_by_the_setting(simulated: Bed) -> None:
    found = simulated.judge("digest", simulated.subject(script(fault="hang")), timeout_s=1)
    assert found.measurement.loss is not None
    assert (found.measurement.loss.how, found.verdict.outcome) == ("hung", "fail")


def test_inouts_and_scratch(simulated: Bed) -> None:
    """An inout holds its input before every run; scratch that is zero at load must be left as it was."""
    passed = (buffer("y", "inout"), buffer("a", "input"), buffer("s", "scratch", init="zero-at-load"))
    inplace = script("add", inputs=(0, 1))
    assert simulated.judge("digest", simulated.subject(inplace, inplace, passed=passed)).verdict.outcome == "pass"
    into_scratch = script("add", out=2, inputs=(0, 1))
    found = simulated.judge("digest", simulated.subject(into_scratch, inplace, passed=passed)).verdict
    assert not_held(found)["inputs_unchanged"] is False
