"""A withdrawal: the one later word about a run, `withdrawn/<run>.json`; admissions that rest on the run close."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints

from qualify.model import Document, Hex64, Segment

MAX_REASON_CHARS = 1000  # A sentence and a link; a report belongs elsewhere.
Reason = Annotated[str, StringConstraints(min_length=1, max_length=MAX_REASON_CHARS)]


class Withdrawal(Document):
    """`record_sha256` is what is withdrawn: the run's SHA256SUMS, or the plan of a run that was not sealed."""

    format: Literal[1] = 1
    run: Segment
    record_sha256: Hex64
    reason: Reason
    withdrawn_utc: str
