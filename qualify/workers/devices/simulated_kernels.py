"""What scripted kernels do to memory, honest and planted; the device gives them arrays and asks for their cost."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from qualify.patterns import numpy_dtype
from qualify.placement import Placement
from qualify.workers.devices.binding import StepRefused
from qualify.workers.devices.simulated_memory import Memory
from qualify.workers.virtual import Entry

#: What the other queue does while a kernel runs.
Beside = Literal["work", "itself"]

_PRINTED_BYTES = 4 << 20
_SLOW_S = 0.25
_NEIGHBOUR_BYTES = 4


@dataclass
class Call:
    """One launch: the script, the arena, where its output and inputs lie, and what the kernel can remember."""

    entry: Entry
    memory: Memory
    shared: Memory
    out: Placement
    inputs: tuple[Placement, ...]
    earlier: int
    memo: dict[int, bytes] = field(default_factory=dict)
    beside: Beside | None = None

    def bytes_of(self, place: Placement) -> Memory:
        """A buffer's bytes in the arena."""
        return self.memory[place.offset_bytes : place.offset_bytes + place.size_bytes]

    def array(self, place: Placement) -> Any:
        """A buffer's elements in the arena."""
        return self.bytes_of(place).view(numpy_dtype(place.dtype))

    def sum(self) -> Any:
        """The honest answer."""
        arrays = [self.array(place) for place in self.inputs]
        if not arrays or any(len(array) < len(self.array(self.out)) for array in arrays):
            raise StepRefused("the script reads inputs that are shorter than its output, or none")
        with np.errstate(all="ignore"):
            total = arrays[0].copy()
            for other in arrays[1:]:
                total = (total + other).astype(total.dtype, copy=False)
        return total[: len(self.array(self.out))]


def execute(call: Call) -> int:
    """Do what the script says; the divisor of the pass's time. Raises StepRefused, or does not return."""
    if call.earlier >= call.entry.after:
        _fault(call.entry)
    return _BEHAVIOURS[call.entry.does](call)


def _fault(entry: Entry) -> None:
    match entry.fault:
        case "hang":
            while True:
                time.sleep(3600)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "refuse":
            raise StepRefused("the script refuses this launch")
        case "print":
            sys.stdout.write("the script prints\n" * (_PRINTED_BYTES // 18))
            sys.stdout.flush()
        case "slow":
            time.sleep(_SLOW_S)


def _add(call: Call) -> int:
    call.array(call.out)[:] = call.sum()
    return 1


def _copy(call: Call) -> int:
    call.array(call.out)[:] = call.array(call.inputs[0])[: len(call.array(call.out))]
    return 1


def _nothing(call: Call) -> int:
    return 1


def _zeros(call: Call) -> int:
    call.bytes_of(call.out)[:] = 0
    return 1


def _constant(call: Call) -> int:
    call.array(call.out)[:] = 1
    return 1


def _tail(call: Call) -> int:
    out = call.array(call.out)
    whole = len(out) - len(out) % call.entry.group
    out[:whole] = call.sum()[:whole]
    return 1


def _beyond(call: Call) -> int:
    _add(call)
    end = call.out.offset_bytes + call.out.size_bytes
    call.memory[end : end + numpy_dtype(call.out.dtype).itemsize] ^= 0xFF
    return 1


def _reads_neighbour(call: Call) -> int:
    _add(call)
    end = call.inputs[0].offset_bytes + call.inputs[0].size_bytes
    out = call.bytes_of(call.out)[:_NEIGHBOUR_BYTES]
    out ^= call.memory[end : end + len(out)]
    return 1


def _reads_shared(call: Call) -> int:
    _add(call)
    out = call.bytes_of(call.out)[:_NEIGHBOUR_BYTES]
    out ^= call.shared[: len(out)]
    return 1


def _stateful(call: Call) -> int:
    _add(call)
    if call.earlier >= call.entry.after:
        call.bytes_of(call.out)[:1] ^= 1
    return 1


def _crowded(call: Call) -> int:
    _add(call)
    call.bytes_of(call.out)[:1] ^= call.beside is not None
    return 1


def _twin(call: Call) -> int:
    _add(call)
    call.bytes_of(call.out)[:1] ^= call.beside == "itself"
    return 1


def _input_changer(call: Call) -> int:
    _add(call)
    call.bytes_of(call.inputs[0])[:1] += np.uint8(1)
    return 1


def _memo_by_pointer(call: Call) -> int:
    known = call.memo.get(call.out.offset_bytes)
    if known is not None:
        call.bytes_of(call.out)[:] = np.frombuffer(known, dtype=np.uint8)
        return 10
    _add(call)
    call.memo[call.out.offset_bytes] = call.bytes_of(call.out).tobytes()
    return 1


def _poison_detector(call: Call) -> int:
    answer = call.sum()
    if call.bytes_of(call.out).tobytes() == answer.tobytes():
        return 10
    call.array(call.out)[:] = answer
    return 1


_BEHAVIOURS: Mapping[str, Callable[[Call], int]] = {
    "add": _add,
    "copy": _copy,
    "nothing": _nothing,
    "zeros": _zeros,
    "constant": _constant,
    "tail": _tail,
    "beyond": _beyond,
    "reads_neighbour": _reads_neighbour,
    "reads_shared": _reads_shared,
    "stateful": _stateful,
    "input_changer": _input_changer,
    "memo_by_pointer": _memo_by_pointer,
    "superbatch": _add,
    "ahead": _add,
    "poison_detector": _poison_detector,
    "crowded": _crowded,
    "twin": _twin,
}
