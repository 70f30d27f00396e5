"""A released rule decides for ever: golden verdicts do not change, and no damage to a passing measurement passes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gates import GATES
from qualify.errors import DocumentError
from qualify.gate import Measurement
from qualify.model import canonical_bytes
from qualify.verdict import Verdict
from tests.conftest import part
from tests.evidence.goldens import FOLDER, Golden, files, judged, packed_series, read, write

#: What says where, whose, how long or what was printed, and decides nothing.
NOTES = frozenset(
    {
        "host_ns",  # A measurement's own time.
        "reason",  # Why nothing was measured; empty where something was.
        "log",  # A compiler's output.
        "incumbent",  # compile: figures to show beside the candidate's.
        "private_bytes",  # compile: a figure without a limit.
        "idle_state_bytes",  # compile: constants that no code names.
        "advisories",  # compile: what the assembler said under a code.
        "index",  # numeric: where an element lies.
        "set",  # trial: which set was drawn.
        "graphs",  # roofline: whether a note may hold launches to be a roof.
    }
)


#: What a runtime does not tell; that it is None there decides nothing.
UNTOLD = frozenset({"kind", "type_name", "address_space", "offset_bytes", "size_bytes", "stack_bytes", "spill_bytes"})
UNTOLD |= {"registers", "barriers"}


def name(path: Path) -> str:
    return str(path.relative_to(FOLDER).with_suffix(""))


PASSING = [path for path in files() if read(path).verdict.outcome == "pass"]


@pytest.mark.parametrize("path", files(), ids=name)
def test_a_golden_verdict_stands(path: Path) -> None:
    case = read(path)
    assert path.parts[-3:-1] == (case.measurement.gate, str(case.measurement.rule))
    again = judged(case, case.measurement, packed_series(case))
    assert again == case.verdict, (
        f"{name(path)}: rule {case.measurement.rule} decided otherwise when it was released. Add a rule: give the new "
        f"decision the next number and leave this one as it was (R5.2)."
    )


@pytest.mark.parametrize("gate", GATES)
def test_every_rule_has_golden_cases_of_which_some_pass_and_some_do_not(gate: str) -> None:
    for rule in GATES[gate].rules:
        found = [read(path).verdict.outcome for path in files() if path.parts[-3:-1] == (gate, str(rule.number))]
        assert "pass" in found
        assert set(found) - {"pass"}


def test_what_is_there_is_never_written_again() -> None:
    path = files()[0]
    before = path.read_bytes()
    other = read(path).model_copy(update={"verdict": Verdict(checks=())})
    assert not write(path.stem, other)
    assert path.read_bytes() == before


# Damage --------------------------------------------------------------------------------------------------------------


def damaged(value: Any) -> Iterator[tuple[str, Any]]:
    """Every damage to one value inside a measurement, but for its removal."""
    yield "nulled", None
    yield "duplicated", [value, value]
    match value:
        case bool():
            yield from (("negated", not value), ("zeroed", False), ("stringified", str(value)))
        case int():
            yield from (("negated", -value), ("zeroed", 0), ("stringified", str(value)))
        case str():
            yield "zeroed", ""
        case list():
            yield from (("zeroed", []), ("stringified", str(value)), ("duplicated", value + value))
        case dict():
            yield from (("zeroed", {}), ("stringified", str(value)))
        case None:
            yield "zeroed", 0


def paths(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The place of every value inside a document."""
    if at:
        yield at
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else spread(len(value)):
            yield from paths(value[key], (*at, key))


def spread(count: int) -> list[int]:
    """Some of the items of a long list: equal rows need not all be damaged."""
    return sorted({0, 1, 6, count // 2, count - 1} & set(range(count)))


def changes(document: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Any one value of a document damaged or removed in place: where, and how; it is as it was after each."""
    for path in list(paths(document)):
        if NOTES & set(path):
            continue
        parent, key = document, path[-1]
        for step in path[:-1]:
            parent = parent[step]
        value = parent[key]
        for how, instead in damaged(value):
            if value is None and key in UNTOLD:
                continue
            parent[key] = instead
            if instead != value or type(instead) is not type(value):
                yield path, how
        del parent[key]
        yield path, "deleted"
        if isinstance(parent, list):
            parent.insert(int(key), value)
        else:
            parent[key] = value


def passes(case: Golden, measurement: Measurement, series: dict[str, bytes]) -> bool:
    return judged(case, measurement, series).outcome == "pass"


def read_back(document: Any, path: tuple[str | int, ...], case: Golden) -> Measurement | None:
    """The measurement that a document damaged there is; None for none. Judges see damaged facts whatever reads them."""
    if path[0] == "facts" and len(path) > 1:
        return case.measurement.model_copy(update={"facts": document["facts"]})
    try:
        return Measurement.parse(canonical_bytes(document))
    except DocumentError:
        return None


@pytest.mark.parametrize("path", PASSING, ids=name)
def test_no_damaged_fact_passes(path: Path) -> None:
    case = read(path)
    series = packed_series(case)
    document = case.measurement.model_dump(mode="json")
    assert passes(case, Measurement.parse(canonical_bytes(document)), series)
    found, changed = [], 0
    for at, how in part(changes(document)):
        measurement = read_back(document, at, case)
        changed += 1
        if measurement is not None and passes(case, measurement, series):
            found.append(f"{how} {at}")
    assert not found
    assert changed
    assert canonical_bytes(document) == case.measurement.canonical()


@pytest.mark.parametrize("path", PASSING, ids=name)
def test_no_damaged_series_passes(path: Path) -> None:
    case = read(path)
    measurement, series = case.measurement, packed_series(case)
    for which, values in series.items():
        shorter = {name: found for name, found in series.items() if name != which}
        for other in (values[:-8], values[8:], values + values, values + values[-8:], values[::-1], bytes(len(values))):
            if other != values:
                assert not passes(case, measurement, {**shorter, which: other}), which
        assert not passes(case, measurement, shorter), which
        assert not passes(case, measurement, {**series, "more": values}), which
