"""The plan: what a run promised before it measured anything. Written, fsynced, never changed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from qualify.domain import Board, Domain
from qualify.gate import Measurement
from qualify.model import Document, Hex64, Json, Name, Ratio, Segment, canonical_by_items, none
from qualify.subject import Subject

__all__ = ["FallsBack", "LeftOut", "Measurement", "Node", "Omitted", "Plan", "Planned", "RunRecord"]


class Node(Document):
    """One gate of the plan, in order: its rule, its settings, what it needs and where it runs.

    `conclusive` is whether its pass admits a time, as its rule says.
    """

    gate: Name
    rule: int
    runs_on: Literal["host", "device"]
    settings: Json
    needs: tuple[Name, ...]
    cost_s: Ratio
    source_blake3: Hex64
    conclusive: bool = False


class Omitted(Document):
    """A gate of the stage that policy leaves out for a subject (R6.8)."""

    gate: Name
    reason: str


class Planned(Document):
    """A subject and the gates that were promised for it, in the plan's order."""

    subject: Subject
    gates: tuple[Name, ...]
    omitted: tuple[Omitted, ...] = ()


class FallsBack(Document):
    """A route that says it does not apply to a cell: no subject, plain serves the cell."""

    cell: Segment
    route: Segment
    admits: str


class LeftOut(Document):
    """A cell that is too large for this run's device; it has no subject, so that what was tested has a known bound."""

    cell: Segment
    reason: str


class Plan(Document):
    """`opened/<run>.json`. `after` holds the SHA-256 of every head seen at opening (R11.1).

    `reference` is the exact reference, an input of the run, with its function: `cohorts/add/reference.py:add`.
    """

    format: Literal[1] = 1
    judgement: int
    run: Segment
    command: Literal["screen", "promote", "prove", "calibrate"]
    pipeline: Segment
    until: Name | None
    operation: Segment
    dispatcher_revision: int
    reference: str | None = None
    domain: Domain
    toolkit_build: str
    board: Board | None
    after: tuple[Hex64, ...]
    nodes: tuple[Node, ...]
    subjects: tuple[Planned, ...]
    falls_back: tuple[FallsBack, ...]
    left_out: Annotated[tuple[LeftOut, ...], Field(exclude_if=none)] = ()
    seed_sha256: Hex64
    inputs_sha256: dict[str, Hex64]

    def canonical(self) -> bytes:
        """The document's bytes, a subject at a time."""
        return canonical_by_items(self, "subjects")

    def node(self, gate: str) -> Node:
        """The node of a planned gate. Raises KeyError for any other name."""
        for node in self.nodes:
            if node.gate == gate:
                return node
        raise KeyError(gate)


class RunRecord(Document):
    """`run.json`, written when sealing: the seed, how the run ended, and the rig's own account of itself."""

    format: Literal[1] = 1
    run: Segment
    seed: Hex64
    ended: Literal["complete", "interrupted"]
    started_utc: str
    ended_utc: str
    versions: dict[str, str]
    rig: Json
