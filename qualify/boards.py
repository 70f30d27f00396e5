"""Where a toolkit's work is done: the board that is here, as its driver describes it, or why there is none.

A toolkit whose compiler is the board's own runtime tells of both at once. One that compiles for boards elsewhere needs
none for host gates, so a board that is not here is no error until something is to be measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from qualify import targets
from qualify.channel import Describe, Described
from qualify.children import START_TIMEOUT_S, ChildLost, Job, Nursery
from qualify.domain import Board, Limits
from qualify.errors import RigError
from qualify.toolkits import Toolkit

NATIVE = "native"
#: What a measuring worker may print in its life. A kernel that prints is closed by it.
MEASURE_OUTPUT_BYTES = 1 << 20


@dataclass(frozen=True)
class Place:
    """A toolkit told where its work is done: what the board's driver said, or what is lacking to measure."""

    toolkit: Toolkit
    arch: str
    device: Described | None = None
    lacking: RigError | None = None

    def board(self, compiler: Described) -> Board | None:
        """The board: what its driver says of it, or the compiler that is its own runtime. Raises RigError.

        An architecture that is not the one that was asked for is none of this place's.
        """
        if self.arch not in (NATIVE, compiler.arch):
            raise RigError(
                f"expected {self.toolkit.name}/{self.arch} here, got {compiler.arch}",
                fix=f"plan {self.toolkit.name}/{compiler.arch}, or run where {self.arch} is",
            )
        return compiler.board if self.device is None else self.device.board

    def limits(self, compiler: Described) -> Limits:
        """What the board can do; what its driver does not say, as the toolkit's table has it."""
        if self.device is None:
            return compiler.limits
        said, table = self.device.limits, compiler.limits
        fields = [name for name in Limits.model_fields if name != "source" and getattr(said, name) is None]
        added = {name: value for name in fields if (value := getattr(table, name)) is not None}
        source = f"{said.source}; {', '.join(added)}: {table.source}" if added else said.source
        return said.model_copy(update={**added, "source": source})


def find(toolkit: Toolkit, arch: str, nursery: Nursery) -> Place:
    """Where that toolkit's work for that architecture is done. Raises RigError if it cannot even be compiled for."""
    if not toolkit.apart:
        return Place(toolkit, arch)
    try:
        device = describe(toolkit, nursery)
    except RigError as error:
        if arch == NATIVE:
            raise RigError(f"native is no architecture here: {error.args[0]}", fix=error.fix) from error
        return Place(toolkit.aimed(_checked(toolkit, arch)), arch, lacking=error)
    here = device.arch
    if arch not in (NATIVE, here):
        other = RigError(f"no board of {arch} is here, but one of {here}", fix=f"plan {toolkit.name}/{here}")
        return Place(toolkit.aimed(_checked(toolkit, arch)), arch, lacking=other)
    uuid = device.board.uuid if device.board else ""
    return Place(toolkit.aimed(here).on(uuid), here, device=device)


def _checked(toolkit: Toolkit, arch: str) -> str:
    """An architecture that boards have. Raises RigError for a target that one route may name (R7.1)."""
    board = targets.board(arch)
    if board != arch:
        wanted = board or "sm_90"
        raise RigError(
            f"expected the architecture of a board for {toolkit.name}, got {arch}",
            fix=f"plan {toolkit.name}/{wanted}" + (f", and write target: {arch} in the route" if board else ""),
        )
    return arch


def describe(toolkit: Toolkit, nursery: Nursery) -> Described:
    """What the driver says of the first board. Raises RigError if there is none, or its driver does not work."""
    if not toolkit.boards:
        raise RigError("no CUDA board is here", fix="run where one is")
    child = nursery.start(measuring_job(toolkit))
    try:
        answer, _ = child.ask(Describe(), (), timeout_s=START_TIMEOUT_S)
    except ChildLost as error:
        raise RigError(
            f"expected the driver to describe its board, but its worker {error.how}: {error.log.strip()}",
            fix="check the driver and the board with nvidia-smi",
        ) from error
    finally:
        nursery.end(child)
    if not isinstance(answer, Described) or answer.board is None:
        raise RigError("expected the description of a board, got none", fix="report it: the fault is the tool's own")
    return answer


def measuring_job(toolkit: Toolkit, *, compared: bool = False) -> Job:
    """A measuring worker of a toolkit; where it is `compared`, one that takes its candidate as Python."""
    told = {**toolkit.variables, **toolkit.device}
    name = f"{toolkit.worker}_compared" if compared else toolkit.worker
    return Job("measure", name, toolkit.measure_bytes, MEASURE_OUTPUT_BYTES, toolkit.tools, told)
