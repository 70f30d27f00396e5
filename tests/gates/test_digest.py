"""Gate digest: bits that depend on the inputs alone, and every trick beside them that must not pass."""

from typing import Any

import pytest

from gates.digest import FIRST_ZONES, OTHER_ZONES, CheckedRun, DigestFacts, Untouched, VariantRuns
from qualify.contract import Variant
from qualify.steps import Damage
from tests.gates.beds import Bed, opencl, script
from tests.gates.build import VARIANTS, arguments, buffer, check, not_held, subject, verdict


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


def runs(variant: Variant = "ordinary", **changes: Any) -> VariantRuns:
    fields: dict[str, Any] = {
        "variant": variant,
        "first": tuple(run(number, inputs) for number, inputs in enumerate(FIRST_ZONES)),
        "idle": (digest(FIRST_ZONES[-1]),),
        "untouched": None,
        "other": tuple(run(number, inputs) for number, inputs in enumerate(OTHER_ZONES)),
        "incumbent": ((digest(0),), (digest(1),)),
    }
    return VariantRuns(**{**fields, **changes})


def with_run(number: int, **changes: Any) -> tuple[CheckedRun, ...]:
    """The first session's runs, one of them changed."""
    return tuple(run(at, i, **(changes if at == number else {})) for at, i in enumerate(FIRST_ZONES))


def judged(found: VariantRuns, **changes: Any) -> dict[str, bool | None]:
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
            {"repeats": None, "zone_independent": None},
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
def test_the_nearest_bits_that_close(found: VariantRuns, closed: dict[str, bool | None]) -> None:
    assert judged(found) == closed


def test_outputs_that_ignore_their_inputs_close() -> None:
    same = {"outputs": (digest(0),), "later": (digest(0),)}
    first = tuple(run(number, inputs, **same) for number, inputs in enumerate(FIRST_ZONES))
    still: dict[str, Any] = {"idle": (digest(0),), "incumbent": ((digest(0),), (digest(0),))}
    assert judged(runs(first=first, **still)) == {"input_dependent": False}
    no_inputs = tuple(a for a in arguments() if a.kind != "input")
    kept: dict[str, Any] = {"kept_before": (), "kept_after": ()}
    iota = tuple(run(number, inputs, **same, **kept) for number, inputs in enumerate(FIRST_ZONES))
    found = runs(first=iota, other=tuple(run(i, 0, **kept) for i in (0, 1)), **still)
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
    ],
)
def test_scripted_tricks(simulated: Bed, text: bytes, closed: Closed) -> None:
    found = not_held(simulated.judge("digest", simulated.subject(text, bits="own")).verdict)
    assert {name: found.get(name, True) for name in closed} == closed


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
