"""Gate memcheck: a sanitizer watches every access of the candidate and says, by itself, that there is no error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from qualify import program, sanitizers
from qualify.contract import Variant
from qualify.gate import Bench, Facts, Gate, Rule, Sanitized, Series, Settings, holds
from qualify.model import Document, Name
from qualify.sanitizers import OCLGRIND, PLANTED, TOOLS, Claim, Finding, Report
from qualify.seeds import split
from qualify.steps import Plant, Step, Told
from qualify.subject import Subject
from qualify.verdict import Check

MAX_FINDINGS, MAX_STRANGE = 3, 4  # Kept of each claim, and of each tool; how many there were is counted.
_COMPLETE = "complete"


class Launched(Document):
    """One kernel launch that ended; `returned` is how often Oclgrind saw something return, None where nobody counts."""

    variant: Variant
    symbol: str
    returned: int | None


class ToolRun(Document):
    """What one tool said of one session: every variant of the candidate once, in fresh buffers of exact sizes.

    `errors` and `warnings` are those of the tool's own summary; Oclgrind has none and shows the planted kernels whose
    errors it reported, before the candidate and after it. `found` counts errors and warnings, of which the first of
    each claim are kept; `strange` are the first lines that nothing explains, of `unexplained`.
    """

    tool: Name
    version: str | None
    ended: str
    exit_code: int | None
    launches: tuple[Launched, ...]
    planted: tuple[tuple[str, ...], ...]
    errors: int | None
    warnings: int | None
    found: int
    findings: tuple[Finding, ...]
    unexplained: int
    strange: tuple[str, ...]


class MemcheckFacts(Facts):
    """Every tool of the runtime, in order."""

    tools: tuple[ToolRun, ...]


class MemcheckSettings(Settings):
    """How long one tool may take over all variants of a subject."""

    timeout_s: Annotated[int, Field(ge=1)] = 300


_ALWAYS = frozenset({"tools", "understood", "launches", *sanitizers.CLAIMS})


def checks(subject: Subject) -> frozenset[str]:
    """Required names: planted errors where the tool says nothing of a clean kernel."""
    return _ALWAYS | ({"planted"} if OCLGRIND in TOOLS[subject.domain.runtime] else frozenset())


# Judgement -----------------------------------------------------------------------------------------------------------


def judge(subject: Subject, facts: MemcheckFacts, series: Series, settings: MemcheckSettings) -> Iterable[Check]:
    """Every check of rule 2: every variant. Raises ValueError for facts that no measurement gives."""
    return _judged(subject, facts, subject.variants)


def first_judge(subject: Subject, facts: MemcheckFacts, series: Series, settings: MemcheckSettings) -> Iterable[Check]:
    """Every check of rule 1, under which rows that lie apart were not looked at. Raises ValueError as `judge` does."""
    return _judged(subject, facts, [variant for variant in subject.variants if variant != "strided"])


def _judged(subject: Subject, facts: MemcheckFacts, variants: Sequence[Variant]) -> Iterator[Check]:
    known = TOOLS[subject.domain.runtime]
    if not known or [each.tool for each in facts.tools] != list(known):
        raise ValueError(f"{len(facts.tools)} tools that are not those of {subject.domain.runtime}")
    for each in facts.tools:
        _possible(each)
    positive = []
    for check in _evidence(subject, facts.tools, variants):
        positive.append(check.holds is True)
        yield check
    for claim in sanitizers.CLAIMS:
        yield _claim(claim, facts.tools, proven=all(positive))


def _possible(each: ToolRun) -> None:
    """Raises ValueError for counts that do not fit what is kept, and for what that tool cannot say."""
    of_claim = Counter(finding.claim for finding in each.findings)
    left_out = each.found - len(each.findings)
    whole = left_out == 0 or (left_out > 0 and MAX_FINDINGS in of_claim.values())
    if not whole or len(each.strange) != min(each.unexplained, MAX_STRANGE):
        raise ValueError(f"{each.tool} counts what it does not show")
    own = (each.errors, each.warnings) if each.tool == OCLGRIND else tuple(got.returned for got in each.launches)
    planted = each.tool != OCLGRIND and each.planted
    if planted or not set(of_claim) <= set(_looks_for(each)) or any(count is not None for count in own):
        raise ValueError(f"{each.tool} cannot have said that")


def _evidence(subject: Subject, tools: Sequence[ToolRun], variants: Sequence[Variant]) -> Iterator[Check]:
    """What must be positively there before silence about errors means anything."""
    broken = [f"{each.tool}: {_end(each)}" for each in tools if _end(each) != _COMPLETE]
    versions = ", ".join(f"{each.tool} {each.version}" for each in tools)
    yield holds("tools", "; ".join(broken) or versions, "every tool, to its own end", verdict=not broken or None)
    strange = [f"{each.tool}: {line}" for each in tools for line in each.strange[:1]]
    got = "; ".join(strange) or "every line"
    yield holds("understood", got, "every line of every report", verdict=not strange or None)
    short = [f"{each.tool}: {lacking}" for each in tools if (lacking := _lacking(subject, each, variants))]
    count = len(variants) * len(subject.candidate.launches)
    got = "; ".join(short) or f"{count} of {count} under every tool"
    yield holds("launches", got, "every launch of every variant, to its end", verdict=not short or None)
    for each in tools:
        if each.tool == OCLGRIND:
            yield _planted(each)


def _end(each: ToolRun) -> str:
    """How a tool's session ended; a version, a status of 0 and (but for Oclgrind) a summary belong to its own end."""
    if each.ended != _COMPLETE:
        return each.ended
    if not each.version:
        return "of no version"
    if each.tool != OCLGRIND and (each.errors is None or each.warnings is None):
        return "without a summary"
    quiet = not (each.errors or each.warnings or each.found)
    return _COMPLETE if each.exit_code == 0 or not quiet else f"exit {each.exit_code} where it reports nothing"


def _lacking(subject: Subject, each: ToolRun, variants: Sequence[Variant]) -> str:
    """The first launch that is not on record as ended, or that Oclgrind counts too few work-items of; else nothing."""
    want = [(variant, kernel) for variant in variants for kernel in subject.candidate.kernels]
    if not want or len(each.launches) != len(want):
        return f"{len(each.launches)} launches of {len(want)}"
    for (variant, kernel), got in zip(want, each.launches, strict=True):
        if (got.variant, got.symbol) != (variant, kernel.symbol):
            return f"{got.symbol} in {got.variant} where {kernel.symbol} in {variant} is launched"
        items = kernel.blocks * kernel.threads
        if each.tool == OCLGRIND and (got.returned is None or got.returned < items):
            return f"{got.returned or 0} of {items} work-items of {kernel.symbol} returned in {variant}"
    return ""


def _planted(each: ToolRun) -> Check:
    """The errors of our own kernels, before the candidate and after it: a tool that misses one proves nothing."""
    whole = each.planted == (tuple(PLANTED), tuple(PLANTED))
    got = ", ".join(f"{len(seen)} of {len(PLANTED)}" for seen in each.planted) or None
    return holds("planted", got, "every planted error, before and after", verdict=whole or None)


def _claim(claim: Claim, tools: Sequence[ToolRun], *, proven: bool) -> Check:
    """False for an error, unknown for a warning or for anything that is not proven, and only then true."""
    mine = [each for each in tools if claim in _looks_for(each)]
    found = [finding for each in mine for finding in each.findings if finding.claim == claim]
    errors = [finding.text for finding in found if not finding.warning]
    if errors:
        return holds(claim, errors[0], "no error", verdict=False)
    counted = sum((each.errors or 0) + (each.warnings or 0) for each in mine)
    if found or counted:
        return holds(claim, found[0].text if found else f"{counted} that nothing explains", "no error", verdict=None)
    names = ", ".join(each.tool for each in mine)
    return holds(claim, f"none by {names}" if proven else None, "no error", verdict=proven or None)


def _looks_for(each: ToolRun) -> tuple[Claim, ...]:
    return sanitizers.CLAIMS if each.tool == OCLGRIND else TOOLS["cuda"][each.tool]


FIXES = {
    "tools": "run the tool by hand on any small program; raise timeout_s where it only takes long",
    "understood": "print nothing; if the kernel prints nothing, report the line with the tool's version",
    "launches": "raise timeout_s, or keep cells of this size out by `elements` in pipelines.yaml",
    "planted": "reinstall the tool: it does not report errors that our own kernels make",
    "bounds": "stay inside the buffers: guard the tail, and check index arithmetic at both ends",
    "initialised": "write every element of private, local and scratch memory before it is read; read no output",
    "races": "put a barrier between one thread's write and another's access of the same element",
    "barriers": "let every thread of a block reach each barrier: move it out of the branch",
}


class MemcheckGate(Gate[MemcheckFacts, MemcheckSettings]):
    """Memory as a sanitizer sees it."""

    id: ClassVar[str] = "memcheck"
    claim: ClassVar[str] = "A sanitizer that is seen to work finds no error in any access of any thread."
    runs_on: ClassVar[Literal["host", "device"]] = "device"
    rules: ClassVar[tuple[Rule[MemcheckFacts, MemcheckSettings], ...]] = (
        Rule(1, MemcheckFacts, MemcheckSettings, checks, first_judge, FIXES),
        Rule(2, MemcheckFacts, MemcheckSettings, checks, judge, FIXES),
    )

    def measure(self, subject: Subject, bench: Bench, settings: MemcheckSettings) -> MemcheckFacts:
        """A fresh worker under each tool of the runtime; the same inputs under all of them."""
        seed = bench.seed("memcheck")
        runs = []
        for tool in TOOLS[subject.domain.runtime]:
            made = bench.sanitized(subject, tool, _steps(subject, tool, seed), settings.timeout_s)
            runs.append(_oclgrind(subject, made) if tool == OCLGRIND else _compute_sanitizer(subject, tool, made))
        return MemcheckFacts(tools=tuple(runs))


# Measurement ---------------------------------------------------------------------------------------------------------


def _steps(subject: Subject, tool: str, seed: str) -> tuple[Step, ...]:
    """Each variant once on a set of its own, so that no output was written before; Oclgrind is asked after each."""
    told: tuple[Step, ...] = (Told(stream="report"), Told(stream="output")) if tool == OCLGRIND else ()
    plant: tuple[Step, ...] = (Plant(), *told) if tool == OCLGRIND else ()
    steps: list[Step] = [*plant, program.arena_of_each(subject, seed)]
    for number, variant in enumerate(subject.variants):
        steps += program.values(subject, variant, split(seed, "inputs", variant), number)
        steps += [program.run(subject, "candidate", number, variant), *told]
    return (*steps, *plant)


def _oclgrind(subject: Subject, made: Sanitized) -> ToolRun:
    """Reports by the step that asked for them: what a kernel prints cannot move from one to another."""
    pairs = list(zip(made.told[::2], made.told[1::2], strict=True))
    before, between, after = pairs[:1], pairs[1:-1], pairs[1:][-1:]
    launches: list[Launched] = []
    strange: list[str] = []
    findings: list[Finding] = []
    for variant, (report, output) in zip(subject.variants, between, strict=False):
        said = sanitizers.oclgrind(report)
        counted, printed = sanitizers.counted(output)
        launches += [Launched(variant=variant, symbol=each.symbol, returned=each.returned) for each in counted]
        findings += said.findings
        strange += [*said.strange, *printed]
    planted = [sanitizers.oclgrind(report) for report, _ in (*before, *after)]
    strange += [line for report in planted for line in report.strange]
    seen = tuple(sanitizers.planted(report) for report in planted)
    return _tool_run(OCLGRIND, made, launches, seen, Report(tuple(findings), tuple(strange)))


def _compute_sanitizer(subject: Subject, tool: str, made: Sanitized) -> ToolRun:
    """Launches are on record where their steps are: the worker waits for each and reads its error."""
    launches = [
        Launched(variant=variant, symbol=kernel.symbol, returned=None)
        for variant in subject.variants
        for kernel in subject.candidate.kernels
        if made.loss is None
    ]
    return _tool_run(tool, made, launches, (), sanitizers.compute_sanitizer(made.report))


def _tool_run(
    tool: str, made: Sanitized, launches: Iterable[Launched], planted: tuple[tuple[str, ...], ...], said: Report
) -> ToolRun:
    strange = (*said.strange, *(line for line in made.output.split("\n") if line.strip()))
    loss = made.loss
    return ToolRun(
        tool=tool,
        version=made.version,
        ended=f"{loss.how} in {loss.step}: {loss.log[: sanitizers.MAX_TEXT_CHARS]}" if loss else _COMPLETE,
        exit_code=made.exit_code,
        launches=tuple(launches),
        planted=planted,
        errors=said.errors,
        warnings=said.warnings,
        found=len(said.findings),
        findings=tuple(_first(said.findings)),
        unexplained=len(strange),
        strange=strange[:MAX_STRANGE],
    )


def _first(findings: Iterable[Finding]) -> Iterator[Finding]:
    seen: Counter[Claim] = Counter()
    for finding in findings:
        seen[finding.claim] += 1
        if seen[finding.claim] <= MAX_FINDINGS:
            yield finding
