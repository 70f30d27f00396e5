"""Gate numeric: as near as the incumbent, on inputs where doing nothing would be found out."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gates.numeric import NullOutput, NumericFacts, VariantOutputs
from qualify.comparison import distances, nulls, witness
from qualify.contract import Argument, Numeric
from qualify.gate import Outputs
from qualify.nearness import Element, limit
from qualify.subject import Subject
from tests.gates.beds import Bed, opencl, pitched, script
from tests.gates.build import VARIANTS, buffer, check, kernel, matrices, not_held, subject, verdict

A = tuple(1.0 + i / 7 for i in range(8))
B = tuple(0.5 - i / 3 for i in range(8))


def f32(values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def f64(values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


def rounded(values: Sequence[float]) -> tuple[float, ...]:
    return struct.unpack(f"<{len(values)}f", f32(values))


EXACT = tuple(a + b for a, b in zip(rounded(A), rounded(B), strict=True))
PASSED = (buffer("y", "output", 8), buffer("a", "input", 8), buffer("b", "input", 8))


def about(**changes: Any) -> Subject:
    return subject(**{"arguments": PASSED, "numeric": Numeric(cap_relative="1e-5"), **changes})


def facts(candidate: Sequence[float], incumbent: Sequence[float] | None, judged: Subject) -> NumericFacts:
    """The facts as the gate makes them of these outputs."""
    inputs: Mapping[str, tuple[bytes, str]] = {"a": (f32(A), "float32"), "b": (f32(B), "float32")}
    exact = Outputs(dtype={"y": "float64"}, data={"y": f64(EXACT)})
    other = None if incumbent is None else {"y": f32(incumbent)}
    ((found, oracle),) = distances(PASSED[:1], {"y": f32(candidate)}, other, exact, judged.numeric)
    bounds = limit(found, judged.numeric, plain=incumbent is None)
    shown = [(name, witness(data, oracle, bounds)) for name, data in nulls(oracle, inputs)]
    return NumericFacts(
        variants=(VariantOutputs(variant="ordinary", outputs=(found,)),),
        nulls=tuple(NullOutput(output="y", null=n, variant="ordinary", witness=w) for n, w in shown),
    )


def judged(candidate: Sequence[float], incumbent: Sequence[float] | None = EXACT, **changes: Any) -> dict[str, Any]:
    which = about(**({"role": "plain"} if incumbent is None else {}), **changes)
    return not_held(verdict("numeric", which, facts(candidate, incumbent, which)))


def off(ulps: float, at: int = 3) -> tuple[float, ...]:
    """The exact outputs, one of them off by so many units in the last place."""
    unit = 2.0**-23 * 2.0 ** (struct.unpack("<I", f32([EXACT[at]]))[0] >> 23 & 255) / 2.0**127
    return tuple(value + (ulps * unit if i == at else 0) for i, value in enumerate(rounded(EXACT)))


def test_rounded_sums_pass_for_candidate_and_plain() -> None:
    assert not judged(EXACT)
    assert not judged(EXACT, None)


@pytest.mark.parametrize(
    ("candidate", "incumbent", "closed"),
    [
        (off(4), EXACT, {}),
        (off(5), EXACT, {"error": False}),
        (off(6), off(3), {}),
        (off(7), off(3), {"error": False}),
        (off(400), off(300), {"cap": False}),
        (off(5), None, {}),
        (off(400), None, {"cap": False}),
        ((*EXACT[:7], float("nan")), EXACT, {"classes": False}),
        ((*EXACT[:7], float("inf")), EXACT, {"classes": False}),
    ],
)
def test_the_limit_is_the_incumbents_or_the_floor_and_the_cap_is_above_both(
    candidate: Sequence[float], incumbent: Sequence[float] | None, closed: dict[str, bool | None]
) -> None:
    assert judged(candidate, incumbent) == closed


def test_a_failure_shows_its_elements_and_a_pass_none() -> None:
    found = verdict("numeric", about(), facts(off(9), EXACT, about()))
    (note,) = [note for note in found.notes if note.name == "y[3]"]
    bits = struct.unpack("<I", f32([off(9)[3]]))[0]
    assert note.got == f"candidate {bits:08x}, incumbent {bits - 9:08x}, exact {EXACT[3].hex()}"
    assert not verdict("numeric", about(), facts(EXACT, EXACT, about())).notes


@pytest.mark.parametrize("null", ["zeros", "constant", "copy of a", "copy of b"])
def test_an_output_that_nobody_computed_fails_as_a_candidate(null: str) -> None:
    data = {
        "zeros": (0.0,) * 8,
        "constant": (sum(EXACT) / 8,) * 8,
        "copy of a": A,
        "copy of b": B,
    }
    assert "error" in judged(data[null])
    assert "cap" in judged(data[null], None)


def test_a_judge_that_lets_zeros_pass_says_so() -> None:
    lenient = Numeric(multiple="1", floor_ulp=1 << 24, cap_relative="2")
    found = verdict("numeric", about(numeric=lenient), facts(EXACT, EXACT, about(numeric=lenient)))
    assert check(found, "null_outputs").holds is False
    assert (check(found, "null_outputs").got or "").startswith("zeros as y")


def test_every_null_is_asked_for_and_its_witness_is_checked() -> None:
    whole = facts(EXACT, EXACT, about())
    fewer = whole.model_copy(update={"nulls": whole.nulls[1:]})
    assert not_held(verdict("numeric", about(), fewer)) == {"null_outputs": None}
    near = whole.variants[0].outputs[0].candidate.worst
    passing = whole.model_copy(
        update={"nulls": (whole.nulls[0].model_copy(update={"witness": near}), *whole.nulls[1:])}
    )
    assert not_held(verdict("numeric", about(), passing)) == {"null_outputs": False}


def test_figures_that_do_not_follow_from_their_bits_are_no_measurement() -> None:
    whole = facts(off(5), EXACT, about())
    (output,) = whole.variants[0].outputs
    assert isinstance(output.candidate.worst, Element)
    better = output.candidate.worst.model_copy(update={"error": "1024"})
    found = output.model_copy(update={"candidate": output.candidate.model_copy(update={"worst": better})})
    forged = whole.model_copy(update={"variants": (whole.variants[0].model_copy(update={"outputs": (found,)}),)})
    assert not_held(verdict("numeric", about(), forged)) == {"facts": None}


def test_an_incumbent_that_is_left_out_does_not_widen_nor_narrow_the_limit() -> None:
    whole = facts(EXACT, EXACT, about())
    (output,) = whole.variants[0].outputs
    alone = whole.variants[0].model_copy(update={"outputs": (output.model_copy(update={"incumbent": None}),)})
    assert not_held(verdict("numeric", about(), whole.model_copy(update={"variants": (alone,)}))) == {"compared": None}


def test_nothing_compared_is_inconclusive() -> None:
    nothing = NumericFacts(variants=(), nulls=())
    found = not_held(verdict("numeric", about(), nothing))
    assert found["compared"] is None
    assert found["null_outputs"] is None


# Through workers -----------------------------------------------------------------------------------------------------

INTEGERS: tuple[Argument, ...] = (
    buffer("y", "output", dtype="int32"),
    buffer("a", "input", dtype="int32"),
    buffer("b", "input", dtype="int32"),
)
WRAPS = b"""import numpy as np
def add(cell, inputs):
    return {'y': (inputs['a'] + inputs['b']).astype(np.int32).astype(np.int64)}
"""


def test_honest_kernels_pass_in_every_variant(simulated: Bed, pocl: Bed) -> None:
    for bed, text in ((simulated, script()), (pocl, opencl())):
        for which in (bed.plain(variants=VARIANTS), bed.subject(text, variants=VARIANTS)):
            assert not not_held(bed.judge("numeric", which).verdict)


def test_integers_are_equal_or_fail(simulated: Bed) -> None:
    which = simulated.subject(script(), passed=INTEGERS, variants=VARIANTS)
    assert not not_held(simulated.judge("numeric", which, WRAPS).verdict)
    other = simulated.subject(script("stateful"), passed=INTEGERS, variants=VARIANTS)
    assert not_held(simulated.judge("numeric", other, WRAPS).verdict) == {"classes": False}


@pytest.mark.parametrize(
    ("body", "closed"),
    [
        ("if (i < n) y[i] = a[i] + (fabs(b[i]) < 10.0f ? b[i] * 1.000001f : b[i]);", {"error": False}),
        ("if (i < n) y[i] = a[i] != a[i] ? 0.0f : a[i] + b[i];", {"classes": False}),
    ],
)
def test_opencl_kernels(pocl: Bed, body: str, closed: dict[str, bool | None]) -> None:
    which = pocl.subject(opencl(body), launches=(kernel(grid=11),), variants=VARIANTS)
    assert not_held(pocl.judge("numeric", which).verdict) == closed


def test_rows_may_lie_apart(pocl: Bed) -> None:
    """Elements are compared wherever they lie; what lies between them is none."""
    shape: dict[str, Any] = {"passed": matrices(), "launches": (kernel(grid=1),), "variants": ("ordinary", "strided")}
    assert pocl.judge("numeric", pocl.subject(pitched(), pitched(), **shape)).verdict.outcome == "pass"
    found = pocl.judge("numeric", pocl.subject(pitched(read="i"), pitched(), **shape)).verdict
    assert found.outcome == "fail"
    assert "strided" in (check(found, "classes").got or "") + (check(found, "error").got or "")
