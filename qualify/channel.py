"""Framed messages between the parent and its workers, the same closed documents in both directions.

One message is a canonical JSON header, which names the sizes of the raw buffers that follow. Nothing is unpickled
or evaluated: bytes that are no such message are a protocol error, whoever sent them (DESIGN section 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from multiprocessing.connection import Connection
from typing import Annotated, Generic, Literal, Self, TypeVar

from pydantic import Field

from qualify.caps import MAX_DOCUMENT_BYTES
from qualify.contract import Argument, Cell, Module
from qualify.domain import ArchName, Board, Limits
from qualify.errors import DocumentError
from qualify.model import Document, Name
from qualify.objectcode import Built
from qualify.steps import Recipe, Record, Step

MAX_BUFFERS = 1024  # One buffer a fragment or a Read step.
_SHORT_BYTES = 128  # Announcements, nearly all of what is said, are under 64; each says what one before it said.
MAX_MESSAGE_BYTES = 1 << 35  # Twice the exact outputs of a cell of 2^31 elements, in float64.

ExactDtype = Literal["float64", "int64", "uint64"]


class ProtocolError(Exception):
    """Bytes arrived that are no message of this channel."""


class Closed(Exception):
    """The other end is gone."""


# What the parent asks ------------------------------------------------------------------------------------------------


class Describe(Document):
    """Say which toolkit, architecture and board are here; a measuring worker says it of its board, opening nothing."""

    say: Literal["describe"] = "describe"


class Compile(Document):
    """Compile worker: build a module. Its fragments are the raw buffers, in the module's order."""

    say: Literal["compile"] = "compile"
    module: Module


class Prepare(Document):
    """Compile worker: make the harness, our own kernels that fill, check and digest, for this device."""

    say: Literal["prepare"] = "prepare"


class Open(Document):
    """Measuring worker: open the device with the harness that is the raw buffer, if there is one; run the canary."""

    say: Literal["open"] = "open"


class Perform(Document):
    """Measuring worker: do these steps in order. The objects of its Load steps are the raw buffers."""

    say: Literal["perform"] = "perform"
    steps: tuple[Step, ...]


class Evaluate(Document):
    """Reference worker: the exact outputs of a cell. The reference's code is the one raw buffer.

    `recipes` gives the values of every input and inout argument by name; scalars carry theirs. `finite` says that
    nothing but finite numbers can be right.
    """

    say: Literal["evaluate"] = "evaluate"
    path: str
    function: Name
    cell: Cell
    arguments: tuple[Argument, ...]
    recipes: dict[Name, Recipe]
    finite: bool


Request = Annotated[Describe | Compile | Prepare | Open | Perform | Evaluate, Field(discriminator="say")]


# What a worker answers -----------------------------------------------------------------------------------------------


class Ready(Document):
    """The first message of a worker: its limits are applied, but for those named here."""

    say: Literal["ready"] = "ready"
    unapplied: tuple[str, ...]


class Announce(Document):
    """A measuring worker starts this step of the list, counted from 0."""

    say: Literal["announce"] = "announce"
    step: int


class Described(Document):
    """What a worker's toolkit is and what it compiles for; of a measuring worker, its driver and its board.

    `board` is None where a compiler needs none to know its target. `targets` are all that it compiles for, where that
    is more than `arch`; `reports` says whether builds come with the assembler's figures.
    """

    say: Literal["described"] = "described"
    version: str
    toolkit_build: str
    arch: ArchName
    board: Board | None
    limits: Limits
    targets: tuple[str, ...] = ()
    reports: bool | None = None


class Compiled(Document):
    """What became of a module; the object, if there is one, is the one raw buffer."""

    say: Literal["compiled"] = "compiled"
    built: Built


class Prepared(Document):
    """The harness is the one raw buffer; there is none where a device needs none."""

    say: Literal["prepared"] = "prepared"


class Opened(Document):
    """The device is open and its canary ran right; `unapplied` is what its driver refused to set."""

    say: Literal["opened"] = "opened"
    unapplied: tuple[str, ...] = ()


class Performed(Document):
    """One record a step, fewer only if the last one is a refusal. Each Bytes record has its raw buffer."""

    say: Literal["performed"] = "performed"
    records: tuple[Record, ...]


class Evaluated(Document):
    """The exact outputs by argument name, row-major and little-endian, one raw buffer each in this order."""

    say: Literal["evaluated"] = "evaluated"
    outputs: tuple[tuple[Name, ExactDtype], ...]


class Wrong(Document):
    """The reference does not keep its own contract."""

    say: Literal["wrong"] = "wrong"
    expected: str
    got: str


class Unable(Document):
    """The worker's device or library is not here or does not work, and what to do about it."""

    say: Literal["unable"] = "unable"
    message: str
    fix: str


class Crash(Document):
    """An exception of the worker's own code: the rig's failure, never a kernel's."""

    say: Literal["crash"] = "crash"
    traceback: str


Reply = Annotated[
    Ready | Announce | Described | Compiled | Prepared | Opened | Performed | Evaluated | Wrong | Unable | Crash,
    Field(discriminator="say"),
]
M = TypeVar("M")


class ToWorker(Document):
    """The header of a request: the bytes of each raw buffer, and the message."""

    buffers: tuple[Annotated[int, Field(ge=0)], ...] = ()
    message: Request


class FromWorker(Document):
    """The header of a reply."""

    buffers: tuple[Annotated[int, Field(ge=0)], ...] = ()
    message: Reply


H = TypeVar("H", ToWorker, FromWorker)


class Channel(Generic[H]):
    """One end of a socket on which headers of class `incoming` arrive."""

    def __init__(self, descriptor: int, incoming: type[H]) -> None:
        self._connection: Connection[object, object] = Connection(descriptor)
        self._incoming: type[H] = incoming

    def send(self, header: Document, buffers: Sequence[bytes] = ()) -> None:
        """Send one header with its raw buffers. There is no time-out. Raises Closed."""
        self.send_spelled(header.canonical(), buffers)

    def send_spelled(self, header: bytes, buffers: Sequence[bytes] = ()) -> None:
        """Send a header that was spelled before. Raises Closed."""
        try:
            self._connection.send_bytes(header)
            for data in buffers:
                self._connection.send_bytes(data)
        except OSError as error:
            raise Closed(str(error)) from error

    def receive(self, limit_bytes: int = MAX_MESSAGE_BYTES) -> tuple[H, tuple[bytes, ...]]:
        """The next header and its raw buffers, of `limit_bytes` together at most.

        Raises Closed when the other end is gone, ProtocolError for anything but a message.
        """
        data = self._bytes(MAX_DOCUMENT_BYTES)
        try:
            header = _short(self._incoming, data) if len(data) <= _SHORT_BYTES else self._incoming.parse(data)
        except DocumentError as error:
            raise ProtocolError(str(error)) from error
        sizes = header.buffers
        if len(sizes) > MAX_BUFFERS or sum(sizes) > limit_bytes:
            raise ProtocolError(f"{len(sizes)} buffers of {sum(sizes)} bytes where at most {limit_bytes} are read")
        return header, tuple(self._buffer(size) for size in sizes)

    def _buffer(self, size: int) -> bytes:
        data = self._bytes(size)
        if len(data) != size:
            raise ProtocolError(f"a buffer of {len(data)} bytes where the header says {size}")
        return data

    def _bytes(self, limit: int) -> bytes:
        try:
            return self._connection.recv_bytes(limit)
        except EOFError as error:
            raise Closed("end of file") from error
        except OSError as error:
            if not self._connection.readable:  # How a length beyond the limit leaves a connection.
                raise ProtocolError(f"{error}: more than {limit} bytes") from error
            raise Closed(str(error)) from error

    def close(self) -> None:
        """Close this end."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@lru_cache(maxsize=1024)
def _short(model: type[H], data: bytes) -> H:
    """A short header, read once as often as it comes. Raises DocumentError, each time."""
    return model.parse(data)
