"""The table of gates, in the order of docs/gates.md: one file a gate, one line here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gates.compile import CompileGate
from gates.contract import ContractGate
from gates.digest import DigestGate
from gates.memcheck import MemcheckGate
from gates.numeric import NumericGate
from gates.occupancy import OccupancyGate
from gates.residency import ResidencyGate
from gates.roofline import RooflineGate
from gates.timing import TimingGate
from gates.trial import TrialGate
from qualify.gate import Gate

_GATES: tuple[Gate[Any, Any], ...] = (
    ContractGate(),
    CompileGate(),
    OccupancyGate(),
    ResidencyGate(),
    DigestGate(),
    NumericGate(),
    MemcheckGate(),
    TrialGate(),
    TimingGate(),
    RooflineGate(),
)
#: Every gate by id.
GATES: Mapping[str, Gate[Any, Any]] = MappingProxyType({gate.id: gate for gate in _GATES})
