"""Golden measurements: facts, settings, subject and the verdict that a released rule gave them, for ever.

`python -m tests.evidence.goldens` measures the cases below that have no file yet and writes them; what is there is
never written again. A rule that must decide otherwise gets a new number, and its cases a folder of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gates import GATES
from qualify.gate import Facts, Measurement
from qualify.judgement import decide, rules_of
from qualify.model import Document, Json
from qualify.plan import Node
from qualify.subject import Subject
from qualify.verdict import Verdict
from tests.gates.build import packed

FOLDER = Path(__file__).parent / "golden"


class Golden(Document):
    """One case as it lies on disk."""

    subject: Subject
    settings: Json
    measurement: Measurement
    series: dict[str, tuple[int, ...]]
    verdict: Verdict


def files() -> list[Path]:
    """Every golden file, `<gate>/<rule>/<case>.json`."""
    return sorted(FOLDER.glob("*/*/*.json"))


def read(path: Path) -> Golden:
    """A golden case. Raises DocumentError for a file that is not canonical."""
    return Golden.parse(path.read_bytes())


def judged(case: Golden, measurement: Measurement, series: Mapping[str, bytes]) -> Verdict:
    """What `decide` says of a measurement under the case's subject, settings and rule."""
    gate = case.measurement.gate
    node = Node(
        gate=gate,
        rule=case.measurement.rule,
        runs_on=GATES[gate].runs_on,
        settings=case.settings,
        needs=(),
        cost_s="1",
        source_blake3="0" * 64,
    )
    return decide(node, case.subject, measurement, series, rules_of(GATES[gate]))


def packed_series(case: Golden) -> dict[str, bytes]:
    """The series as they lie beside the facts."""
    return {name: packed(values) for name, values in case.series.items()}


def write(name: str, case: Golden) -> bool:
    """Write a case that has no file yet; false if it has one, which is then left as it is."""
    path = FOLDER / case.measurement.gate / str(case.measurement.rule) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("xb") as file:
            file.write(case.canonical())
    except FileExistsError:
        return False
    return True


def of_facts(
    gate: str, about: Subject, facts: Facts, series: Mapping[str, Sequence[int]], settings: Mapping[str, Any]
) -> Golden:
    """A case made of facts by hand."""
    rule = GATES[gate].rule
    measurement = Measurement(gate=gate, rule=rule.number, state="measured", facts=facts.model_dump(mode="json"))
    case = Golden(
        subject=about,
        settings=rule.settings(**settings).model_dump(mode="json"),
        measurement=measurement,
        series={name: tuple(values) for name, values in series.items()},
        verdict=Verdict(checks=()),
    )
    return case.model_copy(update={"verdict": judged(case, measurement, packed_series(case))})


Cases = Iterator[tuple[str, str, Callable[[], Golden]]]


def main() -> None:
    """Measure and write what is missing; say what was written and what was kept."""
    from tests.evidence.golden_cases import cases

    with cases() as found:
        for gate, name, make in found:
            path = FOLDER / gate / str(GATES[gate].rule.number) / f"{name}.json"
            if path.exists():
                print(f"kept     {path.relative_to(FOLDER)}")
                continue
            case = make()
            write(name, case)
            print(f"written  {path.relative_to(FOLDER)}: {case.verdict.outcome}")


if __name__ == "__main__":
    main()
