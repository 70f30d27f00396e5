"""Any bytes on the channel are a message or a clear error, never anything else."""

import socket
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qualify.channel import (
    Announce,
    Channel,
    Closed,
    Evaluated,
    FromWorker,
    Performed,
    ProtocolError,
    Ready,
    ToWorker,
)
from qualify.steps import Bytes, Done


def received(data: bytes, limit_bytes: int = 1 << 20) -> tuple[FromWorker, tuple[bytes, ...]]:
    """What a channel makes of raw bytes after which the sender is gone."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(data)
    with Channel(ours.detach(), FromWorker) as channel:
        return channel.receive(limit_bytes)


def framed(*parts: bytes) -> bytes:
    return b"".join(struct.pack("!i", len(part)) + part for part in parts)


def test_a_message_arrives_with_its_buffers() -> None:
    sent = FromWorker(buffers=(3, 0), message=Performed(records=(Done(), Bytes(size_bytes=3), Bytes(size_bytes=0))))
    ours, theirs = socket.socketpair()
    with Channel(theirs.detach(), ToWorker) as worker, Channel(ours.detach(), FromWorker) as parent:
        worker.send(sent, [b"abc", b""])
        assert parent.receive() == (sent, (b"abc", b""))


header = FromWorker(message=Announce(step=3)).canonical()
with_buffer = FromWorker(buffers=(4,), message=Evaluated(outputs=(("y", "float64"),))).canonical()


@given(st.one_of(st.binary(max_size=200), st.lists(st.binary(max_size=120), max_size=3).map(lambda p: framed(*p))))
@example(framed(header))
@example(framed(with_buffer, b"abcd"))
@example(struct.pack("!i", -5))
@example(struct.pack("!iQ", -1, 1 << 62))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    try:
        message, buffers = received(data)
    except (ProtocolError, Closed):
        return
    assert message.buffers == tuple(len(item) for item in buffers)
    assert data.startswith(framed(message.canonical(), *buffers))


@given(st.binary(min_size=1, max_size=4), st.integers(0, len(header) - 1))
def test_a_damaged_header_is_refused(noise: bytes, at: int) -> None:
    damaged = header[:at] + noise + header[at + 1 :]
    if damaged == header:
        return
    try:
        message, _ = received(framed(damaged))
    except ProtocolError:
        return
    assert message.canonical() == damaged


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (framed(with_buffer, b"abc"), ProtocolError),  # One byte short of what the header says.
        (framed(with_buffer, b"abcde"), ProtocolError),
        (framed(with_buffer), Closed),
        (framed(with_buffer, b"abcd")[:-1], Closed),  # The sender died inside a buffer.
        (framed(FromWorker(buffers=(1 << 20, 1), message=Ready(unapplied=())).canonical()), ProtocolError),
        (framed(FromWorker(buffers=(0,) * 1025, message=Ready(unapplied=())).canonical()), ProtocolError),
        (struct.pack("!i", (4 << 20) + 1), ProtocolError),
        (framed(header.replace(b":3", b": 3")), ProtocolError),  # A second spelling of the same message.
        (framed(header.replace(b"}}", b'},"buffers":[]}')), ProtocolError),
        (framed(ToWorker.parse(b'{"buffers":[],"message":{"say":"describe"}}\n').canonical()), ProtocolError),
        (b"", Closed),
    ],
)
def test_the_nearest_thing_to_a_message_is_refused(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        received(data)


def test_a_gone_receiver_is_closed() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with Channel(ours.detach(), FromWorker) as channel, pytest.raises(Closed):
        channel.send(ToWorker.parse(b'{"buffers":[],"message":{"say":"describe"}}\n'), [b"x" * (1 << 20)])
