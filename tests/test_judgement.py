"""`decide` is the only way to a verdict, and it is closed on whatever is lost, missing, unknown or impossible."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from qualify.contract import Cell
from qualify.domain import Domain
from qualify.gate import Bench, Facts, Gate, Loss, Measurement, Rule, Series, SeriesRef, Settings, at_most, equals
from qualify.judgement import JUDGEMENT, Measured, RunVerdict, decide, judge_run, judge_subject, rules_of
from qualify.plan import Node, Plan, Planned
from qualify.subject import Subject
from qualify.verdict import Check, Note, Verdict
from tests.gates.build import arm, packed, series_ref, subject


class Spins(Facts):
    spins: int | None
    trace: SeriesRef | None = None


class Limit(Settings):
    most: int = 10


def first(about: Subject, facts: Spins, series: Series, settings: Limit) -> Iterable[Check | Note]:
    """Rule 1 counts all spins."""
    yield at_most("spins", facts.spins, settings.most, "spins")
    yield Note(name="trace", got=str(sum(series.get("trace", ()))), says="the sum")


def second(about: Subject, facts: Spins, series: Series, settings: Limit) -> Iterable[Check | Note]:
    """Rule 2 wants exactly the limit."""
    yield equals("spins", facts.spins, settings.most)


def twice(about: Subject, facts: Spins, series: Series, settings: Limit) -> Iterable[Check | Note]:
    yield from [*second(about, facts, series, settings)] * 2


def silent(about: Subject, facts: Spins, series: Series, settings: Limit) -> Iterable[Check | Note]:
    return ()


def impossible(about: Subject, facts: Spins, series: Series, settings: Limit) -> Iterable[Check | Note]:
    yield equals("spins", facts.spins, settings.most)
    yield equals("rate", 1 // (facts.spins or 0), 1)


def spins(about: Subject) -> frozenset[str]:
    return frozenset({"spins"})


SHOWS_NOTHING = Rule(1, Spins, Limit, spins, first)
SHOWS_BITS, SHOWS_VALUES = replace(SHOWS_NOTHING, shows="bits"), replace(SHOWS_NOTHING, shows="values")


class Top(Gate[Spins, Limit]):
    """A gate with two released rules."""

    id, claim, runs_on = "top", "It spins.", "host"
    rules = (Rule(1, Spins, Limit, spins, first), Rule(2, Spins, Limit, spins, second))

    def measure(self, subject: Subject, bench: Bench, settings: Limit) -> Spins:
        raise AssertionError(subject)


def node(rule: int = 1, gate: str = "top", **settings: int) -> Node:
    return Node(
        gate=gate,
        rule=rule,
        runs_on="host",
        settings=Limit(**settings).model_dump(mode="json"),
        needs=(),
        cost_s="1",
        source_blake3="0" * 64,
    )


def measured(number: int | None = 5, rule: int = 1, **changes: Any) -> Measurement:
    facts = Spins(spins=number).model_dump(mode="json")
    return Measurement(**{"gate": "top", "rule": rule, "state": "measured", "facts": facts, **changes})


def verdict(
    measurement: Measurement, at: Node | None = None, series: Mapping[str, bytes] | None = None, *rules: Rule[Any, Any]
) -> Verdict:
    known = {rule.number: rule for rule in rules} or rules_of(Top())
    return decide(at or node(measurement.rule), subject(), measurement, series or {}, known)


def states(found: Verdict) -> dict[str, bool | None]:
    return {check.name: check.holds for check in found.checks}


def test_two_rules_of_one_gate_decide_side_by_side() -> None:
    """Evidence of rule 1 is judged by rule 1 while new runs are judged by rule 2."""
    assert Top().rule.number == 2
    assert verdict(measured(5, rule=1)).outcome == "pass"
    assert verdict(measured(5, rule=2)).outcome == "fail"
    assert verdict(measured(10, rule=2)).outcome == "pass"


def test_a_rule_that_nobody_knows_is_inconclusive() -> None:
    assert states(verdict(measured(5, rule=3))) == {"rule": None}


def test_a_measurement_of_another_gate_or_rule_than_planned_is_inconclusive() -> None:
    assert states(verdict(measured(5, rule=2), node(1))) == {"planned": None}
    assert states(verdict(measured(5, gate="bottom"), node(1))) == {"planned": None}


@pytest.mark.parametrize(
    ("state", "arm", "holds"),
    [
        ("lost", "candidate", False),
        ("lost", "incumbent", None),
        ("lost", None, None),
        ("error", None, None),
        ("not-run", None, None),
    ],
)
@pytest.mark.parametrize("how", ["died", "hung", "refused", "protocol"])
def test_only_a_loss_in_the_candidates_own_step_is_its_fault(
    state: Any, arm: Any, holds: bool | None, how: Any
) -> None:
    loss = Loss(how=how, step="launch 3 of 9", arm=arm, signal=11) if state == "lost" else None
    found = verdict(Measurement(gate="top", rule=1, state=state, loss=loss, reason="it rained"))
    assert states(found) == {"measured": holds}
    assert found.outcome == ("fail" if holds is False else "inconclusive")
    assert ("launch 3 of 9" if loss else "it rained") in (found.checks[0].got or "")


def test_a_loss_without_its_record_is_inconclusive() -> None:
    assert states(verdict(Measurement(gate="top", rule=1, state="lost"))) == {"measured": None}


def test_unknown_is_not_zero() -> None:
    assert states(verdict(measured(None))) == {"spins": None}
    assert states(verdict(measured(0))) == {"spins": True}


def test_a_missing_required_check_and_no_check_at_all_are_unknown() -> None:
    assert states(verdict(measured(), None, None, Rule(1, Spins, Limit, spins, silent))) == {"spins": None}
    nothing = Rule(1, Spins, Limit, lambda about: frozenset(), silent)
    assert verdict(measured(), None, None, nothing).outcome == "inconclusive"


def test_a_check_given_twice_is_unknown() -> None:
    found = verdict(measured(10), None, None, Rule(1, Spins, Limit, spins, twice))
    assert found.outcome == "inconclusive"
    assert states(found)["spins once"] is None


def test_facts_that_no_measurement_gives_decide_nothing() -> None:
    assert states(verdict(measured(0), None, None, Rule(1, Spins, Limit, spins, impossible))) == {"facts": None}


@pytest.mark.parametrize(
    "facts", [None, {}, {"spins": 5}, {"spins": "5", "trace": None}, {"spins": 5, "trace": None, "x": 1}, []]
)
def test_facts_of_another_shape_decide_nothing(facts: Any) -> None:
    assert states(verdict(measured(facts=facts))) == {"facts": None}


def test_settings_of_another_shape_decide_nothing() -> None:
    other = node().model_copy(update={"settings": {"most": 10, "least": 1}})
    assert states(verdict(measured(), other)) == {"facts": None}


def test_series_are_exactly_those_that_the_facts_name() -> None:
    values = [3, -4, 5]
    facts = Spins(spins=5, trace=series_ref("trace", values)).model_dump(mode="json")
    good = packed(values)
    found = verdict(measured(facts=facts), None, {"trace": good})
    assert found.outcome == "pass"
    assert found.notes[0].got == "4"
    for series in ({}, {"trace": good[:-8]}, {"trace": good + good}, {"other": good}, {"trace": good, "other": good}):
        assert states(verdict(measured(facts=facts), None, series)) == {"facts": None}
    assert states(verdict(measured(), None, {"trace": good})) == {"facts": None}


# Subjects and runs ---------------------------------------------------------------------------------------------------


def plan(*gates: str, **changes: Any) -> Plan:
    fields: dict[str, Any] = {
        "judgement": JUDGEMENT,
        "run": "r",
        "command": "promote",
        "pipeline": "default",
        "until": None,
        "operation": "o",
        "dispatcher_revision": 1,
        "domain": Domain(toolkit="pocl-3.0", arch="x"),
        "toolkit_build": "3.0",
        "board": None,
        "after": (),
        "nodes": tuple(node(gate=gate) for gate in gates),
        "subjects": (Planned(subject=subject("pocl-3.0"), gates=gates),),
        "falls_back": (),
        "seed_sha256": "0" * 64,
        "inputs_sha256": {},
    }
    return Plan(**{**fields, **changes})


def test_a_subject_passes_only_if_every_planned_gate_has_a_passing_measurement() -> None:
    promised = plan("top", "more")
    rules = {"top": rules_of(Top()), "more": rules_of(Top())}
    both: dict[str, tuple[Measurement, Mapping[str, bytes]]] = {
        gate: (measured(gate=gate), {}) for gate in ("top", "more")
    }
    found = judge_subject(promised, promised.subjects[0], both, rules)
    assert (found.outcome, found.closed_by) == ("pass", None)
    missing = judge_subject(promised, promised.subjects[0], {"top": both["top"]}, rules)
    assert (missing.outcome, missing.closed_by) == ("inconclusive", "more")
    assert missing.gates[1].state == "not-run"
    failing = judge_subject(promised, promised.subjects[0], {**both, "top": (measured(99), {})}, rules)
    assert (failing.outcome, failing.closed_by) == ("fail", "top")


@pytest.mark.parametrize(
    ("changes", "ended", "reason"),
    [
        ({}, "complete", None),
        ({"command": "prove"}, "complete", None),
        ({"command": "screen"}, "complete", "screen discovers; only promote and prove admit"),
        ({"command": "calibrate"}, "complete", "calibrate discovers; only promote and prove admit"),
        ({"judgement": 1}, "complete", None),
        ({"judgement": 1, "command": "screen"}, "complete", "screen discovers; only promote admits"),
        ({"judgement": 1, "command": "prove"}, "complete", "prove discovers; only promote admits"),
        ({"until": "top"}, "complete", "partial"),
        ({"judgement": JUDGEMENT + 1}, "complete", "unknown to this version"),
        ({"domain": Domain(toolkit="simulated-1.0", arch="virtual")}, "complete", "simulated"),
        ({}, "interrupted", "interrupted"),
    ],
)
def test_a_run_is_admissible_only_without_a_reason_against_it(changes: Any, ended: str, reason: str | None) -> None:
    promised = plan("top", **changes)
    found: Measured = {("c", "wide"): {"top": (measured(), {})}}
    verdict = judge_run(promised, ended, found, {"top": {1: SHOWS_BITS}})
    assert verdict.admissible is (reason is None)
    assert reason is None or any(reason in each for each in verdict.reasons)


def judged(promised: Plan, *rules: Rule[Any, Any], passed: Mapping[str, int] | None = None) -> RunVerdict:
    """Gates a, b, ... of these rules; every route spins five times at every gate, but for what `passed` says."""
    gates = dict(zip("ab", rules, strict=False))
    spun = passed or {}
    found: Measured = {
        each.subject.key: {
            gate: (measured(spun.get(each.subject.candidate.route, 5), gate=gate), {}) for gate in each.gates
        }
        for each in promised.subjects
    }
    return judge_run(promised, "complete", found, {gate: {1: rule} for gate, rule in gates.items()})


@pytest.mark.parametrize(
    ("bits", "rules", "lacking"),
    [
        ("identical", [SHOWS_BITS], []),
        ("identical", [SHOWS_NOTHING, SHOWS_BITS], []),
        ("identical", [SHOWS_NOTHING], ["bits"]),
        ("identical", [SHOWS_VALUES], ["bits"]),
        ("own", [SHOWS_BITS, SHOWS_VALUES], []),
        ("own", [SHOWS_BITS], ["values"]),
        ("own", [SHOWS_BITS, SHOWS_NOTHING], ["values"]),
        ("own", [SHOWS_VALUES], ["bits"]),
        ("own", [SHOWS_NOTHING], ["bits", "values"]),
    ],
)
@pytest.mark.parametrize("command", ["promote", "prove"])
def test_nothing_is_admissible_whose_bits_no_gate_showed(
    command: str, bits: str, rules: list[Rule[Any, Any]], lacking: list[str]
) -> None:
    """Bits of a route's own mean nothing until they lie beside exact values."""
    gates = tuple("ab"[: len(rules)])
    about = Planned(subject=subject("pocl-3.0", bits=bits), gates=gates)
    verdict = judged(plan(*gates, command=command, subjects=(about,)), *rules)
    assert verdict.subjects[0].outcome == "pass"
    assert verdict.reasons == tuple(f"no gate showed the {each} of c/wide" for each in lacking)
    assert verdict.admissible == (not lacking)


@pytest.mark.parametrize("judgement", [1, 2])
def test_older_versions_of_judgement_ask_for_no_gate_of_bits(judgement: int) -> None:
    verdict = judged(plan("a", judgement=judgement), SHOWS_NOTHING)
    assert (verdict.admissible, verdict.reasons) == (True, ())


def test_bits_are_shown_of_each_candidate_that_passed_and_of_no_other() -> None:
    """Size keeps a gate out of some cells; what was shown of one cell is nothing to the next."""
    small, large = (subject("pocl-3.0", cell=Cell(id=cell, integers={"n": 1}, names={})) for cell in ("s", "l"))
    loser = subject("pocl-3.0", candidate=arm("slow"))
    both = Planned(subject=small, gates=("a", "b")), Planned(subject=loser, gates=("a",))
    promised = plan("a", "b", subjects=both)
    assert judged(promised, SHOWS_NOTHING, SHOWS_BITS, passed={"slow": 99}).reasons == ()
    shown_of_one = plan("a", "b", subjects=(*both, Planned(subject=large, gates=("a",))))
    verdict = judged(shown_of_one, SHOWS_NOTHING, SHOWS_BITS, passed={"slow": 99})
    assert verdict.reasons == ("no gate showed the bits of l/wide",)
    verdict = judged(shown_of_one, SHOWS_NOTHING, SHOWS_BITS)
    assert verdict.reasons == ("no gate showed the bits of c/slow and 1 more",)


def test_a_run_in_which_only_plain_passes_admits_nobody() -> None:
    promised = plan("top")
    only_plain = promised.model_copy(
        update={"subjects": (Planned(subject=subject("pocl-3.0", role="plain"), gates=("top",)),)}
    )
    found: Measured = {("c", "wide"): {"top": (measured(), {})}}
    assert "no candidate passed" in judge_run(only_plain, "complete", found, {"top": rules_of(Top())}).reasons
