"""What the recorded order of a timed segment must be (R10.3, R10.4), read from a trace of device operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qualify.steps import Segment


def segments_of(trace: Sequence[str]) -> Iterator[list[str]]:
    """The operations of each segment: from its first poison to the next one's."""
    current: list[str] = []
    for operation in trace:
        if operation.startswith("poison") and "zones" in current:
            yield current
            current = []
        current.append(operation)
    yield current


def breaches(operations: Sequence[str], step: Segment, outputs: Sequence[str]) -> list[str]:
    """Every rule that the order of one segment breaks; `outputs` are the arguments that it writes."""
    kinds = [operation.split()[0] for operation in operations]
    clocks = [at for at, kind in enumerate(kinds) if kind == "clock"]
    launches = [(at, operation.split()) for at, operation in enumerate(operations) if operation.startswith("launch ")]
    if len(clocks) != 2 or not launches:
        return ["the clock is not read twice around launches"]
    start, end = clocks
    lead_in = [words for at, words in launches if at < start]
    timed = [words for at, words in launches if start < at < end]
    sets = [words[3] for words in (*lead_in, *timed)]
    first = launches[0][0]
    written = {f"{name}.{number}" for name in outputs for number in sets}
    beside = {f"{name}.{step.bystander}" for name in outputs}
    units = len(step.timed)
    rules = {
        "K passes are timed": len(timed) == units,
        "K passes lead in": len(lead_in) == units,
        "nothing is launched after the clock": launches[-1][0] < end,
        "one arm runs": {words[1] for _, words in launches} == {step.arm},
        "no set is used twice": len(set(sets)) == 2 * units,
        "every output is poisoned before": _named(operations[:first], "poison") >= written | beside,
        "shared memory is scrubbed before": "scrub" in kinds[:first],
        "caches are flushed after that": "flush" in kinds[kinds.index("scrub") : first] if "scrub" in kinds else False,
        "the host does not wait in between": "wait" not in kinds[first:end],
        "the host waits before it looks": "wait" in kinds[end:] and "digest" not in kinds[:end],
        "every output is digested": _named(operations[end:], "digest") >= written,
        "the zones are compared": "zones" in kinds[end:],
        "the bystander is none of the sets": str(step.bystander) not in sets,
        "the bystander is looked at": _named(operations[end:], "unwritten") >= beside,
    }
    return [rule for rule, kept in rules.items() if not kept]


def _named(operations: Sequence[str], kind: str) -> set[str]:
    return {operation.split()[1] for operation in operations if operation.startswith(f"{kind} ")}
