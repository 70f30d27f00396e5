"""The errors of a rig: each says what was expected, what came, what to do, and which exit code it means.

A kernel that fails is a verdict and never one of these (DESIGN section 14). A bug is a traceback.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class Exit(IntEnum):
    """Exit codes of the commands."""

    DONE = 0
    BUG = 1
    USAGE = 2
    NOTHING_SELECTED = 3
    RIG = 4
    REJECTED = 10
    INCONCLUSIVE = 11
    EVIDENCE = 12
    INTERRUPTED = 130


#: When several apply, the first of these is the command's exit code.
EXIT_ORDER = (
    Exit.BUG,
    Exit.INTERRUPTED,
    Exit.USAGE,
    Exit.RIG,
    Exit.EVIDENCE,
    Exit.INCONCLUSIVE,
    Exit.REJECTED,
    Exit.NOTHING_SELECTED,
)


def worst(codes: set[Exit]) -> Exit:
    """The one exit code that stands for all of `codes`; DONE for an empty set."""
    return next((code for code in EXIT_ORDER if code in codes), Exit.DONE)


class QualifyError(Exception):
    """Something outside the kernels is wrong; `fix` says what to do about it."""

    exit: ClassVar[Exit] = Exit.RIG

    def __init__(self, message: str, *, fix: str) -> None:
        super().__init__(message)
        self.fix = fix

    def __str__(self) -> str:
        return f"{super().__str__()}\n  fix: {self.fix}"


class UsageError(QualifyError):
    """The command line names something that does not exist or cannot be combined."""

    exit = Exit.USAGE


class InputError(QualifyError):
    """A workspace file is malformed: where, what was expected, what came (R6.9)."""

    exit = Exit.USAGE

    def __init__(self, where: str, *, expected: str, got: str, fix: str, field: str | None = None) -> None:
        at = f"{where}: {field}" if field else where
        super().__init__(f"{at}: expected {expected}, got {got}", fix=fix)
        self.where, self.field, self.expected, self.got = where, field, expected, got


class NothingSelected(QualifyError):
    """The filters of a command leave no subject."""

    exit = Exit.NOTHING_SELECTED


class RigError(QualifyError):
    """This machine cannot do it: no device, no toolkit, no space, no exclusive rename."""

    exit = Exit.RIG


class EvidenceError(QualifyError):
    """Evidence on disk does not verify."""

    exit = Exit.EVIDENCE


class DocumentError(ValueError):
    """Bytes that are not the canonical form of the document they claim to be."""


class ShapeError(DocumentError):
    """Bytes that no parser is given: too many of them, or nested too deeply."""
