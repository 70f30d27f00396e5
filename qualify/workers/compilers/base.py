"""What every compiler does: describe its target, and make a module's object code or say why not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from qualify.channel import Described
from qualify.contract import Module
from qualify.domain import Limits
from qualify.identity import content
from qualify.objectcode import Built, Entry

_LOG_HEAD_BYTES = 49_152  # The first error is what a person needs.
_LOG_TAIL_BYTES = 16_384


class Compiler(ABC):
    """One toolkit and the device that it compiles for."""

    @abstractmethod
    def describe(self) -> Described:
        """Which toolkit, architecture and board this is."""

    def readable(self) -> tuple[Path, ...]:
        """What the compiler reads beside the system's and Python's own folders."""
        return ()

    def canary(self) -> None:  # noqa: B027 -- not every compiler needs one.
        """Compile what cannot be refused, where that shows anything. Raises RigError: no module is to blame."""

    @abstractmethod
    def harness(self) -> bytes | None:
        """The harness's own kernels as every measuring worker loads them; None where a device needs none."""

    @abstractmethod
    def build(self, module: Module, fragments: Mapping[str, bytes]) -> tuple[Built, bytes | None]:
        """The report and, if it is built, the object. A refusal is an answer, not an exception."""


def cap_log(log: bytes) -> str:
    """A log's start and end, with the number of bytes between them that are left out."""
    left_out = len(log) - _LOG_HEAD_BYTES - _LOG_TAIL_BYTES
    if left_out > 0:
        log = log[:_LOG_HEAD_BYTES] + f"\n[{left_out} bytes left out]\n".encode() + log[-_LOG_TAIL_BYTES:]
    return log.decode("utf-8", errors="replace").replace("\0", "")


def refused(log: bytes, extension: str, limits: Limits) -> Built:
    """The report of a module that the compiler does not take."""
    return Built(
        state="refused",
        log=cap_log(log),
        log_bytes=len(log),
        entries=(),
        object_blake3=None,
        object_bytes=None,
        extension=extension,
        reproducible=False,
        limits=limits,
    )


def built(
    log: bytes, entries: tuple[Entry, ...], data: bytes, extension: str, limits: Limits, *, reproducible: bool
) -> Built:
    """The report of an object. `reproducible` says that equal modules give equal bytes."""
    return Built(
        state="built",
        log=cap_log(log),
        log_bytes=len(log),
        entries=entries,
        object_blake3=content(data),
        object_bytes=len(data),
        extension=extension,
        reproducible=reproducible,
        limits=limits,
    )
