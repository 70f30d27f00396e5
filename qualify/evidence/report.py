"""What a person reads of an audit: one line a run, one line a problem, and what a success does not say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from qualify.errors import Exit, worst
from qualify.evidence.audit import (
    RUN_ANCHOR,
    STORE_ANCHOR,
    RunFindings,
    verify_runs,
    verify_store_side_by_side,
)
from qualify.evidence.problems import Problem, printable
from qualify.garbage import uncollected

if TYPE_CHECKING:
    from qualify.judgement import Rules


def print_runs(runs: Iterable[Path], gates: Mapping[str, Rules]) -> Exit:
    """Verify and print single runs; the exit code of the worst. Raises UsageError if one is not there."""
    with uncollected():
        audits = verify_runs(tuple(runs), gates)
    for audit in audits:
        _print_run(audit)
        print(f"  {RUN_ANCHOR}")
    return worst({audit.exit for audit in audits})


def print_store(root: Path, gates: Mapping[str, Rules]) -> Exit:
    """Verify and print a store; NOTHING_SELECTED if nothing was ever opened in it. Raises UsageError without one."""
    with uncollected():
        store = verify_store_side_by_side(root, gates)
    for audit in store.runs:
        _print_run(audit)
    for run in store.opened:
        print(printable(f"{run}: opened, never sealed"))
    for run, withdrawal in store.withdrawn.items():
        print(printable(f"{run}: withdrawn: {withdrawal.reason}"))
    _print_problems(store.problems)
    if not (store.runs or store.opened or store.problems):
        print("no run was ever opened here")
        return Exit.NOTHING_SELECTED
    print(f"{store.outcome}: {len(store.runs)} sealed, {len(store.opened)} opened and not sealed")
    if store.outcome == "verified":
        print(f"  {STORE_ANCHOR}")
    return store.exit


def _print_run(audit: RunFindings) -> None:
    print(printable(f"{audit.run}: {audit.outcome}"))
    _print_problems(audit.problems)


def _print_problems(problems: Iterable[Problem]) -> None:
    for problem in problems:
        print(f"  {problem}")
