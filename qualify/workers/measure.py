"""The measuring worker: the step loop over one device. It knows no verdict, no reference and no gate."""

from __future__ import annotations

from functools import cache

from qualify.channel import Announce, Channel, Describe, FromWorker, Open, Opened, Perform, Performed, ToWorker
from qualify.steps import (
    Arena,
    Bytes,
    Capture,
    Contend,
    Copy,
    Digest,
    Done,
    Fill,
    Fills,
    Go,
    Load,
    Plant,
    Query,
    Read,
    Record,
    Refused,
    Replay,
    Run,
    Scrub,
    Segment,
    Source,
    Stage,
    Step,
    Told,
    Unwritten,
    Zones,
)
from qualify.workers import sandbox
from qualify.workers.devices import Device, StepRefused, describe_board, open_device

#: Where a kernel has the rights of its worker. The driver of a board opens files of its own at any time.
_CPU_DEVICES = ("oclgrind", "opencl", "simulated", "simulated_compared")


def serve(channel: Channel[ToWorker], name: str) -> None:
    """Open the device, run its canary, then perform lists of steps until the channel closes. Raises RigError.

    Asked to describe the board first, it answers and does nothing else.
    """
    request, buffers = channel.receive()
    if isinstance(request.message, Describe):
        channel.send(FromWorker(message=describe_board(name)))
        return
    if not isinstance(request.message, Open):
        raise ValueError(f"a device is opened first, before {request.message.say}")
    if name in _CPU_DEVICES:
        sandbox.confine()  # Before the device starts threads of its own, which it would not reach.
    device = open_device(name, buffers[0] if buffers else None)
    device.canary()
    channel.send(FromWorker(message=Opened(unapplied=device.unapplied)))
    while True:
        request, buffers = channel.receive()
        wanted = request.message
        if not isinstance(wanted, Perform):
            raise ValueError(f"a measuring worker does not {wanted.say}")
        _Performance(channel, device, list(buffers)).perform(wanted.steps)


class _Performance:
    """One list of steps: announce, execute, record; a refused step ends it."""

    def __init__(self, channel: Channel[ToWorker], device: Device, objects: list[bytes]) -> None:
        self._channel, self._device, self._objects = channel, device, objects
        self._read: list[bytes] = []

    def perform(self, steps: tuple[Step, ...]) -> None:
        """Send one record a step."""
        records: list[Record] = []
        for index, step in enumerate(steps):
            self._channel.send_spelled(_announced(index))
            try:
                records.append(self._execute(step))
            except StepRefused as refusal:
                records.append(Refused(error=refusal.error))
                break
        header = FromWorker(buffers=tuple(len(data) for data in self._read), message=Performed(records=tuple(records)))
        self._channel.send(header, self._read)

    def _execute(self, step: Step) -> Record:
        self._device.expect(step)
        match step:
            case Load() | Source():
                self._load(step)
                return Done()
            case Arena() | Fill() | Fills() | Scrub() | Run() | Stage() | Replay() | Plant():
                self._change(step)
                return Done()
            case Segment() | Go() | Copy():
                return self._time(step)
            case Capture() | Contend():
                return self._device.capture(step) if isinstance(step, Capture) else self._device.contend(step)
            case Read() | Told():
                data = self._device.read(step) if isinstance(step, Read) else self._device.told(step)
                self._read.append(data)
                return Bytes(size_bytes=len(data))
            case _:
                return self._ask(step)

    def _time(self, step: Segment | Go | Copy) -> Record:
        """Steps that read the device's clock."""
        match step:
            case Segment():
                return self._device.segment(step)
            case Go():
                return self._device.go()
            case Copy():
                return self._device.copy(step)

    def _load(self, step: Load | Source) -> None:
        """Steps that take raw buffers of the message: one object, or every fragment."""
        count = 1 if isinstance(step, Load) else len(step.module.fragments)
        taken, self._objects = self._objects[:count], self._objects[count:]
        if isinstance(step, Load):
            self._device.load(step, taken[0])
        else:
            self._device.source(step, taken)

    def _change(self, step: Arena | Fill | Fills | Scrub | Run | Stage | Replay | Plant) -> None:
        """Steps that tell nothing but that they ended."""
        match step:
            case Arena():
                sandbox.allow(step.size_bytes)
                self._device.arena(step)
            case Fill():
                self._device.fill(step)
            case Fills():
                self._device.fills(step)
            case Scrub():
                self._device.scrub(step)
            case Run():
                self._device.run(step)
            case Stage():
                self._device.stage(step)
            case Replay():
                self._device.replay(step)
            case Plant():
                self._device.plant()

    def _ask(self, step: Digest | Zones | Unwritten | Query) -> Record:
        """Steps that look and change nothing."""
        match step:
            case Digest():
                return self._device.digest(step)
            case Zones():
                return self._device.zones(step)
            case Unwritten():
                return self._device.unwritten(step)
            case Query():
                return self._device.query(step)


@cache
def _announced(index: int) -> bytes:
    """The message that a step starts, the same in every list."""
    return FromWorker(message=Announce(step=index)).canonical()
