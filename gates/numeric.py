"""Gate numeric: the outputs are as near to the exact ones as the incumbent's, on inputs that nothing simpler passes.

The reference is asked after both arms have run, in a worker of its own; no exact value is near a candidate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from qualify import program
from qualify.contract import Argument, Variant
from qualify.elements import DTYPES
from qualify.fill import generate, recipe
from qualify.gate import Bench, Facts, Gate, Outputs, Rule, Series, Settings, holds
from qualify.model import Document, Name
from qualify.nearness import (
    FAITHFUL,
    PARTS,
    Bound,
    Distance,
    Element,
    checked,
    limit,
    near,
    right_class,
    under_cap,
    whole,
    within,
)
from qualify.seeds import split
from qualify.steps import ArmName, Read, Step
from qualify.strides import placed_alike
from qualify.subject import Subject
from qualify.verdict import Check, Note

CHECKS = frozenset({"compared", "classes", "error", "cap", "null_outputs"})


class VariantOutputs(Document):
    """One variant's outputs in ABI order."""

    variant: Variant
    outputs: tuple[Distance, ...]


class NullOutput(Document):
    """An output that nobody computed, and an element that shows that it would fail here; None if it would pass."""

    output: Name
    null: str
    variant: Variant
    witness: Element | None


class NumericFacts(Facts):
    """Distances of every variant, and what zeros, the mean and copies of inputs would have scored."""

    variants: tuple[VariantOutputs, ...]
    nulls: tuple[NullOutput, ...]


class NumericSettings(Settings):
    """`timeout_s` is for one run with its fills and reads."""

    timeout_s: Annotated[int, Field(ge=1)] = 60


# Judgement -----------------------------------------------------------------------------------------------------------


def judge(subject: Subject, facts: NumericFacts, series: Series, settings: NumericSettings) -> Iterable[Check | Note]:
    """Every check of rule 1. Raises ValueError for figures that do not follow from their bits."""
    found = [_Found(each.variant, output, subject) for each in facts.variants for output in each.outputs]
    elements = sum(each.distance.candidate.elements for each in found)
    yield holds("compared", f"{elements} elements", "every element of every variant", _planned(subject, facts) or None)
    wrong = [f"{count} in {each.where}" for each in found if (count := each.distance.candidate.other_class)]
    yield holds("classes", "; ".join(wrong[:2]) or "0 elements", "NaN, infinities and integers as exact", not wrong)
    yield _worst("error", subject, found)
    yield _worst("cap", subject, found)
    yield _nulls(subject, facts, {(each.variant, each.distance.output): each.limit for each in found})
    for each in found:
        yield from _table(each)


class _Found:
    """One output of one variant with its limit."""

    def __init__(self, variant: Variant, distance: Distance, subject: Subject) -> None:
        self.variant, self.distance = variant, distance
        self.where = f"{distance.output}, {variant}"
        self.limit = limit(distance, subject.numeric, plain=subject.role == "plain")


def _planned(subject: Subject, facts: NumericFacts) -> bool:
    """Whether every output of every variant was compared element by element."""
    outputs, plain = program.outputs(subject), subject.role == "plain"
    names = [argument.name for argument in outputs]
    return (
        [each.variant for each in facts.variants] == list(subject.variants)
        and bool(names)
        and all([found.output for found in each.outputs] == names for each in facts.variants)
        and all(
            whole(found, argument.dtype, argument.elements, plain=plain)
            for each in facts.variants
            for found, argument in zip(each.outputs, outputs, strict=True)
        )
    )


def _worst(name: Literal["error", "cap"], subject: Subject, found: Sequence[_Found]) -> Check:
    """The error in ulp against its limit, or the distance against the cap, of the output that is nearest to it."""
    numeric = subject.numeric
    want = f"at most max({numeric.multiple} x the incumbent's, {numeric.floor_ulp}) ulp"
    if name == "cap":
        want = f"at most {numeric.cap_relative} of its row's largest, or 1 ulp"
    shown: list[tuple[bool, Fraction, str]] = []
    for each in found:
        own = each.distance.candidate
        element = own.worst if name == "error" else own.farthest
        if element is not None:
            keeps = within(element, each.limit) if name == "error" else under_cap(element, each.limit)
            size, text = _shown(name, element, each.limit)
            shown.append((not keeps, size, f"{text} in {each.where}"))
    if not shown:
        integers = all(DTYPES[argument.dtype].kind != "float" for argument in program.outputs(subject))
        return holds(name, "integers" if integers else None, want, integers)
    fails, _, text = max(shown)
    return holds(name, text, want, not fails)


def _shown(name: Literal["error", "cap"], element: Element, bounds: Bound) -> tuple[Fraction, str]:
    """How near to its limit an element is, and in words."""
    error = int(element.error or 0)
    if name == "error":
        return error / max(bounds.error, Fraction(1)), f"{_ulp(error)} of {_ulp(bounds.error)} ulp"
    share = "beyond a row of zeros" if element.share is None else f"{int(element.share)}e-9"
    return Fraction(int(element.share or 0)), share if error > FAITHFUL else f"{_ulp(error)} ulp"


def _ulp(parts: int | Fraction) -> str:
    """Thousandths of a unit, rounded up."""
    thousandths = -(-Fraction(parts) * 1000 // PARTS)
    return f"{thousandths // 1000}.{thousandths % 1000:03}"


def _nulls(subject: Subject, facts: NumericFacts, limits: Mapping[tuple[Variant, str], Bound]) -> Check:
    """Every null must have an element that fails; one without shows that these inputs prove nothing."""
    outputs = {output.name: output for output in program.outputs(subject)}
    wanted = [(name, null) for name, output in outputs.items() for null in _null_names(subject, output)]
    if [(each.output, each.null) for each in facts.nulls] != wanted or not wanted:
        return holds("null_outputs", None, "zeros, the mean and copies fail", None)
    passing = []
    for each in facts.nulls:
        dtype = outputs[each.output].dtype
        element = None if each.witness is None else checked(each.witness, dtype)
        if element is None or (right_class(element, dtype) and near(element, limits[each.variant, each.output])):
            passing.append(f"{each.null} as {each.output}")
    return holds("null_outputs", "; ".join(passing) or "all fail", "zeros, the mean and copies fail", not passing)


def _null_names(subject: Subject, output: Argument) -> Iterator[str]:
    yield "zeros"
    if output.elements > 1:
        yield "constant"
    for argument in subject.buffers("input", "inout"):
        if argument.shape == output.shape:
            yield f"copy of {argument.name}"


def _table(found: _Found) -> Iterator[Note]:
    for row in found.distance.table:
        got = f"candidate {row.candidate}, incumbent {row.incumbent}, exact {row.exact}"
        yield Note(name=f"{found.distance.output}[{row.index}]", got=got, says=f"{found.variant}, bits in hexadecimal")


FIXES = {
    "compared": "screen again; the record of the comparison is not whole",
    "classes": "keep NaN and infinities as the exact value has them, and integers equal",
    "error": "sum in a wider type or in another order; the table shows the worst elements",
    "cap": "compute in a type that holds the contract's precision",
    "null_outputs": "give the cohort inputs with another mean and scale, or a tighter cap",
}


class NumericGate(Gate[NumericFacts, NumericSettings]):
    """Outputs beside exact ones."""

    id: ClassVar[str] = "numeric"
    claim: ClassVar[str] = "Errors stay within the incumbent's, the floor and the cap, where doing nothing would not."
    runs_on: ClassVar[Literal["host", "device"]] = "device"
    rules: ClassVar[tuple[Rule[NumericFacts, NumericSettings], ...]] = (
        Rule(1, NumericFacts, NumericSettings, lambda subject: CHECKS, judge, FIXES, shows="values"),
    )

    def measure(self, subject: Subject, bench: Bench, settings: NumericSettings) -> NumericFacts:
        """The candidate's outputs, then the incumbent's, then the exact ones; each in a worker of its own."""
        seed = bench.seed("numeric")
        candidate = _outputs(subject, bench, "candidate", seed, settings)
        incumbent = None if subject.role == "plain" else _outputs(subject, bench, "incumbent", seed, settings)
        beside = []
        for variant in subject.variants:
            own = split(seed, variant)
            exact = bench.exact(subject, variant, own)
            other = None if incumbent is None else incumbent[variant]
            beside.append(_Beside(subject, variant, own, _Arms(candidate[variant], other), exact))
        return NumericFacts(
            variants=tuple(VariantOutputs(variant=each.variant, outputs=each.distances) for each in beside),
            nulls=tuple(_measured_nulls(subject, beside)),
        )


# Measurement ---------------------------------------------------------------------------------------------------------


def _outputs(
    subject: Subject, bench: Bench, arm: ArmName, seed: str, settings: NumericSettings
) -> dict[Variant, Mapping[str, bytes]]:
    """An arm's outputs of every variant, by argument, from one fresh worker for each placement."""
    found: dict[Variant, Mapping[str, bytes]] = {}
    for alike in placed_alike(subject.variants):
        found |= _placed_outputs(subject, bench, arm, seed, settings, alike)
    return found


def _placed_outputs(
    subject: Subject, bench: Bench, arm: ArmName, seed: str, settings: NumericSettings, alike: Sequence[Variant]
) -> dict[Variant, Mapping[str, bytes]]:
    wanted = program.outputs(subject)
    found: dict[Variant, Mapping[str, bytes]] = {}
    with bench.session(subject, arm) as session:
        session.run([program.arena(subject, 1, split(seed, "zones"), alike[0])], settings.timeout_s)
        for variant in alike:
            steps: tuple[Step, ...] = (
                *program.values(subject, variant, split(seed, variant)),
                *program.poison(subject, split(seed, "poison", variant)),
                program.run(subject, arm, variant=variant),
                *(Read(buffer=name) for name in program.buffers(wanted)),
            )
            session.run(steps, settings.timeout_s)
            found[variant] = dict(zip((argument.name for argument in wanted), session.taken(), strict=True))
    return found


class _Arms(NamedTuple):
    """Both arms' outputs of one variant; a plain route has no other incumbent."""

    candidate: Mapping[str, bytes]
    incumbent: Mapping[str, bytes] | None


class _Beside:
    """One variant's outputs beside their exact values."""

    def __init__(self, subject: Subject, variant: Variant, seed: str, arms: _Arms, exact: Outputs) -> None:
        from qualify import comparison

        self._subject, self.variant, self._seed = subject, variant, seed
        outputs = program.outputs(subject)
        found = comparison.distances(outputs, arms.candidate, arms.incumbent, exact, subject.numeric)
        self.distances = tuple(distance for distance, _ in found)
        self._found = {distance.output: (distance, oracle) for distance, oracle in found}

    def witnesses(self, output: Argument) -> dict[str, Element | None]:
        """For every null of an output an element that fails, or None."""
        from qualify import comparison

        inputs = {
            argument.name: (generate(recipe(argument, self.variant, self._seed), argument.elements), argument.dtype)
            for argument in self._subject.buffers("input", "inout")
            if argument.shape == output.shape
        }
        found, oracle = self._found[output.name]
        bounds = limit(found, self._subject.numeric, plain=self._subject.role == "plain")
        return {name: comparison.witness(data, oracle, bounds) for name, data in comparison.nulls(oracle, inputs)}


def _measured_nulls(subject: Subject, beside: Sequence[_Beside]) -> Iterator[NullOutput]:
    """Every null of every output, with an element of the first variant that shows it for what it is."""
    for output in program.outputs(subject):
        shown: dict[str, tuple[Variant, Element | None]] = {}
        for each in beside:
            if not shown or any(witness is None for _, witness in shown.values()):
                found = {name: (each.variant, witness) for name, witness in each.witnesses(output).items()}
                shown = {name: old if (old := shown.get(name)) and old[1] else new for name, new in found.items()}
        for name, (variant, witness) in shown.items():
            yield NullOutput(output=output.name, null=name, variant=variant, witness=witness)
