"""The compile worker: source in, object code and report out. It runs no kernel but those of the harness."""

from __future__ import annotations

import ctypes

from qualify.channel import Channel, Compile, Compiled, Describe, FromWorker, Prepare, Prepared, ToWorker
from qualify.workers import sandbox
from qualify.workers.compilers import open_compiler
from qualify.workers.compilers.base import Compiler

#: What a compilation frees stays with the process up to so much: the next one takes as much again.
KEPT_BYTES = 256 << 20
_MOST_MMAP_BYTES = 32 << 20  # From this size on a block is freed at once; the C library takes no greater one.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h


def serve(channel: Channel[ToWorker], name: str) -> None:
    """Answer requests until the channel closes. Raises RigError if the toolkit is not here or does not work."""
    keep_freed_memory()
    compiler = open_compiler(name)
    sandbox.confine(compiler.readable())
    compiler.canary()
    while True:
        request, buffers = channel.receive()
        match request.message:
            case Describe():
                channel.send(FromWorker(message=compiler.describe()))
            case Prepare():
                harness = compiler.harness()
                raw = () if harness is None else (harness,)
                channel.send(FromWorker(buffers=tuple(len(item) for item in raw), message=Prepared()), raw)
            case Compile() as wanted:
                _compile(channel, compiler, wanted, buffers)
            case other:
                raise ValueError(f"a compile worker does not {other.say}")


def keep_freed_memory() -> None:
    """Give freed memory back late, where the C library has a say.

    The next compilation takes as much again, and would fault all of it in.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _MOST_MMAP_BYTES)


def _compile(channel: Channel[ToWorker], compiler: Compiler, wanted: Compile, buffers: tuple[bytes, ...]) -> None:
    paths = [fragment.path for fragment in wanted.module.fragments]
    report, data = compiler.build(wanted.module, dict(zip(paths, buffers, strict=True)))
    raw = () if data is None else (data,)
    channel.send(FromWorker(buffers=tuple(len(item) for item in raw), message=Compiled(built=report)), raw)
