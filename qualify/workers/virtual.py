"""The virtual board: what it is, and the scripts that are its object code.

A kernel here is not code but a closed description of behaviour, honest or planted, so that gates and the engine can
be tested on every outcome without a device. Nothing measured here can be admitted.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from qualify.contract import Symbol
from qualify.domain import Board, Limits
from qualify.model import Document

TOOLKIT = "simulated-1.0"
ARCH = "virtual"
LIMITS = Limits(
    block_threads=1024,
    block=(1024, 1024, 64),
    grid=((1 << 31) - 1, 65535, 65535),
    shared_bytes=64 << 10,
    parameter_bytes=4096,
    compute_units=8,
    memory_bytes=256 << 20,
    cache_bytes=1 << 20,
    source=TOOLKIT,
)
BOARD = Board(name="virtual board", uuid="simulated-0", driver=TOOLKIT, addressing="device", limits=LIMITS)

Count = Annotated[int, Field(ge=0)]


class Entry(Document):
    """One scripted kernel. `out` and `inputs` are positions among its arguments; `after` counts earlier launches.

    Honest: add (out = sum of the inputs), copy, nothing. Wrong: zeros, constant (ones), tail (leaves what does not
    fill a last group of `group`), beyond (writes one element past the end), reads_neighbour (bytes behind its
    first input decide output bits), reads_shared (shared memory that it never wrote does), stateful (off by one bit
    from launch number `after` on), input_changer, memo_by_pointer (answers again what it once wrote to an address),
    superbatch (the first launch of a segment's phase does the work of all), ahead (the first launch of the lead-in
    does the work of the timed passes too), poison_detector (skips the work where the answer already is).
    Wrong beside others only: crowded (off by one bit while another queue is busy), twin (so while that queue runs the
    kernel itself). `captured` is what becomes of a launch that is captured: work; or nothing; elsewhere (it runs at
    once, outside of the graph); idle (a node that does nothing); answer (a node that writes what the launch would
    have written when it was captured).
    Faults begin after `after` launches: hang, die, refuse, print (megabytes), slow (of the host, not the clock).
    Of time: `wake_ppm` is what it costs each of the other arm's next `wake_passes` passes; of its segments, each
    `host_bound_every`th was paced by the host; `wall_ppm` is real time in parts of what the device's clock says.
    """

    does: Literal[
        "add",
        "copy",
        "nothing",
        "zeros",
        "constant",
        "tail",
        "beyond",
        "reads_neighbour",
        "reads_shared",
        "stateful",
        "input_changer",
        "memo_by_pointer",
        "superbatch",
        "ahead",
        "poison_detector",
        "crowded",
        "twin",
    ]
    out: Count = 0
    inputs: tuple[Count, ...] = (1, 2)
    pass_ns: Annotated[int, Field(gt=0)] = 100_000
    noise_ppm: Count = 200
    drift_ppm_per_s: int = 0
    wake_ppm: Count = 0
    wake_passes: Count = 0
    host_bound_every: Count = 0
    wall_ppm: Annotated[int, Field(gt=0)] = 1_000_000
    group: Annotated[int, Field(gt=0)] = 4
    after: Count = 0
    captured: Literal["work", "nothing", "elsewhere", "idle", "answer"] = "work"
    fault: Literal["hang", "die", "refuse", "print", "slow"] | None = None
    shared_bytes: Count = 0
    private_bytes: Count = 0
    block_threads: Annotated[int, Field(gt=0)] = 1024


class Script(Document):
    """The object code of the virtual board: kernels by symbol."""

    entries: dict[Symbol, Entry]
