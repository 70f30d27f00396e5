"""What sanitizers say, read closed: known errors become findings, and what nothing explains is kept as strange.

Silence is no answer. compute-sanitizer must print its summary; Oclgrind prints nothing of a clean kernel, so it must
report every error of the harness's planted kernels, and count the work-items of every launch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from qualify.domain import Runtime
from qualify.model import Document

#: What a sanitizer can say of a kernel: it stays inside its buffers, reads what was written, orders what threads
#: share, and meets its barriers whole.
Claim = Literal["bounds", "initialised", "races", "barriers"]
CLAIMS: tuple[Claim, ...] = ("bounds", "initialised", "races", "barriers")
OCLGRIND = "oclgrind"
#: The tools of each runtime and what each of them looks for.
TOOLS: Mapping[Runtime, Mapping[str, tuple[Claim, ...]]] = {
    "opencl": {OCLGRIND: CLAIMS},
    "cuda": {
        "memcheck": ("bounds",),
        "racecheck": ("races",),
        "initcheck": ("initialised",),
        "synccheck": ("barriers",),
    },
    "simulated": {},
}
#: The kernels of workers/devices/planted.cl in the order in which they run, each with the one error that it makes.
PLANTED: Mapping[str, Claim] = {
    "planted_read": "bounds",
    "planted_write": "bounds",
    "planted_uninitialised": "initialised",
    "planted_race": "races",
    "planted_divergence": "barriers",
}
#: What a worker sends of each stream of its sanitizer at a time; a longer report ends in what nothing explains.
MAX_TOLD_BYTES = 1 << 20
MAX_TEXT_CHARS = 600  # Of one finding: kind, address, kernel, work-item, place in the source.

_OCLGRIND: tuple[tuple[re.Pattern[str], Claim], ...] = (
    (re.compile(r"Invalid (read|write) "), "bounds"),
    (re.compile(r"Unaligned address on "), "bounds"),
    (
        re.compile(r"Uninitialized (value|address) |(Controlflow|Instruction) depends on (an )?uninitialized value"),
        "initialised",
    ),
    (re.compile(r"\w+-\w+ data race at "), "races"),
    (re.compile(r"Work-group divergence detected "), "barriers"),
)
_COMPUTE_SANITIZER: tuple[tuple[re.Pattern[str], Claim], ...] = (
    (re.compile(r"Invalid __\w+__ (read|write|atomic)\b"), "bounds"),
    (re.compile(r"Uninitialized __\w+__ memory (read|access)\b"), "initialised"),
    (re.compile(r"(Error|Warning): (Potential )?(Race reported|\w+ hazard)"), "races"),
    (re.compile(r"Barrier error detected\b"), "barriers"),
)
_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) errors?")
_RACES = re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed \((\d+) errors?, (\d+) warnings?\)")
_EXPECTED = re.compile(r"COMPUTE-SANITIZER|ERROR SUMMARY: \d+ errors? (was|were) not printed\..*")
_PREFIX = "========="
_COUNTED = re.compile(r"Instructions executed for kernel '([^']+)':")
_COUNT = re.compile(r" *(\d+) - (.+)")


class Finding(Document):
    """One error of a kernel in the tool's words: what, where, which work-item. A warning closes and blames nobody."""

    claim: Claim
    text: str
    warning: bool = False


@dataclass(frozen=True)
class Report:
    """What a tool's report says. `errors` and `warnings` are its own summary's, None where it has none or two."""

    findings: tuple[Finding, ...]
    strange: tuple[str, ...]
    errors: int | None = None
    warnings: int | None = None


@dataclass(frozen=True)
class Counted:
    """What Oclgrind counted of one launch: its kernel, and how many times something returned; None is not told."""

    symbol: str
    returned: int | None


def oclgrind(text: str) -> Report:
    """Oclgrind's log: messages that start at the line's start, each with details that start with a tab."""
    return _report(_messages(text.split("\n"), "\t"), _OCLGRIND)


def planted(report: Report) -> tuple[str, ...]:
    """The planted kernels whose own error a report names, in the order in which they ran."""
    seen = {
        (found.claim, kernel) for found in report.findings for kernel in PLANTED if f"Kernel: {kernel};" in found.text
    }
    return tuple(kernel for kernel, claim in PLANTED.items() if (claim, kernel) in seen)


def compute_sanitizer(text: str) -> Report:
    """compute-sanitizer's log of one tool; a line without its mark is strange."""
    lines = [line for line in text.split("\n") if line]
    foreign = [line for line in lines if not line.startswith(_PREFIX)]
    own = [line.removeprefix(_PREFIX).removeprefix(" ") for line in lines if line.startswith(_PREFIX)]
    messages = list(_messages(own, " "))
    sums = [found for head, _ in messages if (found := _summary(head)) is not None]
    rest = ((head, details) for head, details in messages if _summary(head) is None and not _EXPECTED.fullmatch(head))
    report = _report(rest, _COMPUTE_SANITIZER)
    errors, warnings = sums[0] if len(sums) == 1 else (None, None)
    return Report(report.findings, (*map(_shown, foreign), *report.strange), errors, warnings)


def counted(text: str) -> tuple[tuple[Counted, ...], tuple[str, ...]]:
    """What Oclgrind counted of each launch, in order, and the lines that are nothing of its own."""
    launches: list[Counted] = []
    strange: list[str] = []
    for line in text.split("\n"):
        count = _COUNT.fullmatch(line)
        if head := _COUNTED.fullmatch(line):
            launches.append(Counted(head[1], None))
        elif count and launches and count[2] == "ret":
            strange += [_shown(line)] if launches[-1].returned is not None else []
            launches[-1] = Counted(launches[-1].symbol, int(count[1]))
        elif line and not (count and launches):
            strange.append(_shown(line))
    return tuple(launches), tuple(strange)


def _messages(lines: Iterable[str], indent: str) -> Iterator[tuple[str, list[str]]]:
    """Each message's first line with its indented ones. Details that follow nothing are a message without a head."""
    head, details = "", list[str]()
    for line in lines:
        if line.startswith(indent):
            details.append(line.strip())
        elif line:
            if head or any(details):
                yield head, details
            head, details = line, []
    if head or any(details):
        yield head, details


def _report(messages: Iterable[tuple[str, list[str]]], known: Iterable[tuple[re.Pattern[str], Claim]]) -> Report:
    table = tuple(known)
    findings: list[Finding] = []
    strange: list[str] = []
    for head, details in messages:
        claim = next((claim for pattern, claim in table if pattern.match(head)), None)
        if claim is None:
            strange.append(_shown(head or details[0]))
        else:
            text = _shown("; ".join((head, *_telling(details))))
            findings.append(Finding(claim=claim, text=text, warning=head.startswith("Warning: ")))
    return Report(tuple(findings), tuple(strange))


def _telling(details: Iterable[str]) -> Iterator[str]:
    """The details that say where: not the host's frames, nor instructions, nor lines of the source."""
    starts = ("Kernel:", "Entity:", "First entity:", "Second entity:", "Work-group:", "Only ", "At line ", "at ", "by ")
    for line in details:
        if line.startswith((*starts, "and ", "Address ", "Access ")):
            yield " ".join(line.split())


def _summary(head: str) -> tuple[int, int] | None:
    """Errors and warnings that a summary counts; hazards that are neither are errors."""
    if found := _SUMMARY.fullmatch(head):
        return int(found[1]), 0
    if found := _RACES.fullmatch(head):
        return max(int(found[2]), int(found[1]) - int(found[3])), int(found[3])
    return None


def _shown(text: str) -> str:
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text)[:MAX_TEXT_CHARS]
