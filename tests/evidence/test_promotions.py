"""Attempts: what counts as another attempt at the same thing, and what the graph says came before."""

from typing import Literal

import pytest

from qualify.contract import Cell
from qualify.evidence.promotions import Promotions, attempt, contests
from qualify.plan import Plan
from tests.evidence import small

PLAIN, ADMITTED, REWORDED = "a" * 64, "b" * 64, "c" * 64
CELL = Cell(id="f32-7", integers={"n": 7}, names={})


def promotion(
    *,
    cell: Cell = CELL,
    route: str = "fast",
    candidate: str = "d" * 64,
    incumbent: str = PLAIN,
    plain: str = PLAIN,
    command: Literal["screen", "promote"] = "promote",
    number: int = 1,
    operation: str = "add",
) -> Plan:
    """A plan of one cell with one candidate, against plain or against an admitted route."""
    made = small.plan()
    base, against = made.subjects[0], made.subjects[1]
    plain_arm = base.subject.candidate.model_copy(update={"identity": plain})
    own = {"cell": cell, "operation": operation}
    first = base.subject.model_copy(update={**own, "candidate": plain_arm, "incumbent": plain_arm})
    arms = {
        "candidate": against.subject.candidate.model_copy(update={"route": route, "identity": candidate}),
        "incumbent": plain_arm.model_copy(update={"identity": incumbent}),
    }
    second = against.subject.model_copy(update={**own, **arms, "attempt": number})
    subjects = (base.model_copy(update={"subject": first}), against.model_copy(update={"subject": second}))
    return made.model_copy(update={"command": command, "operation": operation, "subjects": subjects})


def next_after(*plans: Plan, wanted: Plan | None = None) -> int:
    ((contest, _),) = contests(wanted or promotion())
    return attempt(contest, plans)


def test_every_opened_promotion_of_the_cell_counts_and_nothing_else() -> None:
    assert next_after() == 1
    assert next_after(promotion(), promotion()) == 3
    assert next_after(promotion(command="screen")) == 1
    assert next_after(promotion(operation="mul")) == 1
    other = Cell(id="f32-8", integers={"n": 8}, names={})
    assert next_after(promotion(cell=other)) == 1


@pytest.mark.parametrize(
    "wanted",
    [
        promotion(route="fast-2"),
        promotion(candidate=REWORDED),
        promotion(plain=REWORDED, incumbent=REWORDED),
        promotion(cell=CELL.model_copy(update={"id": "seven"})),
        promotion(cell=CELL.model_copy(update={"integers": {"n": 8}})),
    ],
    ids=["another route", "a reworded candidate", "a reworded plain", "a renamed cell", "a resized cell"],
)
def test_no_other_name_and_no_comment_buys_a_first_attempt_again(wanted: Plan) -> None:
    assert next_after(promotion(), wanted=wanted) == 2


def test_another_admitted_incumbent_is_another_contest() -> None:
    against_admitted = promotion(incumbent=ADMITTED)
    assert next_after(promotion(), wanted=against_admitted) == 1
    assert next_after(promotion(), against_admitted, wanted=against_admitted) == 2
    assert next_after(against_admitted) == 1


def miscounted(plans: dict[str, Plan]) -> list[str]:
    return [run for run, _ in Promotions(plans).miscounted({run: run for run in plans})]


def chain(**numbers: int) -> dict[str, Plan]:
    """Promotions that come one after the other, with a screen between each two."""
    plans: dict[str, Plan] = {}
    last: tuple[str, ...] = ()
    for run, number in numbers.items():
        plans[run] = promotion(number=number).model_copy(update={"after": last})
        plans[f"{run}-screen"] = promotion(command="screen").model_copy(update={"after": (run,)})
        last = (f"{run}-screen",)
    return plans


def test_a_promotion_counts_all_that_came_before_it_at_any_distance() -> None:
    assert miscounted(chain(a=1, b=2, c=3)) == []
    assert miscounted(chain(a=1, b=2, c=5)) == []
    assert miscounted(chain(a=1, b=1, c=2)) == ["b", "c"]
    assert miscounted(chain(a=1, b=2, c=1)) == ["c"]


def test_branches_that_did_not_see_each_other_may_count_alike() -> None:
    plans = chain(a=1, b=2)
    plans["other"] = promotion(number=2).model_copy(update={"after": ("a",)})
    assert miscounted(plans) == []
    plans["merged"] = promotion(number=3).model_copy(update={"after": ("b-screen", "other")})
    assert miscounted(plans) == ["merged"]


def test_a_forged_circle_ends() -> None:
    plans = chain(a=1, b=2)
    plans["a"] = plans["a"].model_copy(update={"after": ("b",)})
    assert set(miscounted(plans)) <= {"a", "b"}
