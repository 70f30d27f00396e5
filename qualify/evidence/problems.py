"""What an audit finds: stable codes, bad or unknown, and text that is safe to print."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from qualify.errors import Exit

AuditOutcome = Literal["verified", "bad", "unknown"]

#: Every code that an audit can give: C content, S set of files, P paths and types, N names, M manifest text,
#: J documents, V verdicts and plans, L history, F storage. A code keeps its meaning for ever.
CODES = {
    "C01": "the bytes are not those of the manifest",
    "C02": "a file is empty where the manifest names content",
    "S01": "a file that no run or store has",
    "S03": "a listed file is missing",
    "S06": "a folder that no listed file lies in",
    "S08": "a required file is neither listed nor there",
    "S09": "there is no manifest",
    "P01": "a symbolic link",
    "P02": "not a folder, or a symbolic link in place of one",
    "P04": "a file with a second hard link",
    "P05": "a FIFO",
    "P06": "a device or a socket",
    "P07": "a mount point",
    "P08": "a path that climbs out",
    "P09": "an absolute path",
    "P10": "a path with an empty or a `.` segment",
    "P11": "a path segment that starts with a hyphen",
    "P12": "a path with a backslash",
    "P14": "a file changed while it was read",
    "P17": "more bytes or files than are read",
    "P19": "a path that is too long or too deep",
    "N01": "two names that differ by case only",
    "N03": "a name beyond ASCII",
    "N04": "a name with a line end",
    "N06": "a name that ends in a blank",
    "N07": "a name that is not UTF-8",
    "N09": "a name outside the alphabet",
    "M01": "a manifest line twice",
    "M02": "one name with two digests",
    "M03": "manifest lines out of order",
    "M04": "a manifest with a byte order mark, a carriage return or a tab",
    "M05": "a line that is not a digest, two blanks and a path",
    "M06": "an empty manifest",
    "M07": "a NUL byte",
    "M08": "a manifest that lists itself or its signature",
    "M09": "a manifest or a line that is too long",
    "M10": "a path that is both a file and a folder",
    "M11": "a document in another spelling than its canonical one",
    "J06": "a document nested too deep",
    "J12": "a document that does not fit its closed model",
    "V02": "verdict.json is not what the measurements give",
    "V05": "a series is not the one that the facts name",
    "V06": "the plan is not the one that was opened",
    "V07": "a format, a rule or a kind of record that this version does not know",
    "V08": "a source or an object is not the one that its name or the plan says",
    "V09": "the plan contradicts itself, or a subject is not the planned one",
    "V17": "the seed is not the one that the plan committed to",
    "V18": "a measurement does not stand on the files that its gate needs",
    "V19": "a gate was measured although something before it did not pass",
    "V20": "a planned gate was not run, and nothing before it says why",
    "V21": "a promotion counts fewer attempts than were on record before it",
    "L01": "a record that a later plan or a withdrawal names is gone",
    "L05": "a sealed run whose plan was never opened",
    "L07": "a run under another name than its own",
    "F05": "it cannot be read",
}

#: Codes that leave a question open; every other code is proof that the evidence does not stand.
UNKNOWN = frozenset({"P14", "V07", "F05"})


@dataclass(frozen=True, order=True)
class Problem:
    """One finding of an audit: its code, the file, and what was expected and got."""

    path: str
    code: str
    message: str

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"{self.code} is no code of an audit")

    @property
    def outcome(self) -> AuditOutcome:
        """Whether the finding is proof against the evidence or leaves a question open."""
        return "unknown" if self.code in UNKNOWN else "bad"

    def __str__(self) -> str:
        return printable(f"{self.code} {self.path}: {self.message}")


class ProblemError(Exception):
    """A problem that ends the reading of one file."""

    def __init__(self, code: str, path: str, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(path, code, message)

    def __str__(self) -> str:
        return str(self.problem)


def outcome_of(problems: Iterable[Problem]) -> AuditOutcome:
    """Bad if any problem is, else unknown if there is any, else verified."""
    outcomes = {problem.outcome for problem in problems}
    if "bad" in outcomes:
        return "bad"
    return "unknown" if outcomes else "verified"


#: What an audit means to the shell (DESIGN section 14).
EXITS: dict[AuditOutcome, Exit] = {
    "verified": Exit.DONE,
    "bad": Exit.EVIDENCE,
    "unknown": Exit.INCONCLUSIVE,
}


def printable(text: str) -> str:
    """Printable ASCII: everything else is escaped, so that no name can steer a terminal (N10 of the attacks)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if " " <= char <= "~" else char.encode("unicode_escape").decode() for char in text)
