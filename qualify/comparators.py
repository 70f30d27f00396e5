"""A comparator as a measuring worker loads it: trusted Python of a cohort where a candidate has object code."""

from __future__ import annotations

from qualify.contract import Argument, Cell
from qualify.model import Document, Name


class Comparator(Document):
    """An outside implementation for one cell: a function of the file `path`, and what it is told of the contract."""

    path: str
    code: str
    function: Name
    cell: Cell
    arguments: tuple[Argument, ...]
