"""Bytes of the virtual board's arena: elements that lie in a row or apart, and their digests."""

from __future__ import annotations

from typing import Any

import numpy as np

from qualify.fnv import OFFSET_BASIS, PRIME, fnv1a64
from qualify.placement import Placement

Memory = np.ndarray[Any, np.dtype[np.uint8]]
_PARALLEL_BYTES = 256  # So many bytes are digested sooner by arrays than one by one.


def elements(memory: Memory, place: Placement) -> Memory:
    """A view of the bytes of a buffer's elements: its axes, and the bytes of a run."""
    shape = (*(count for count, _ in place.axes), place.run_bytes)
    strides = (*(stride for _, stride in place.axes), 1)
    return np.lib.stride_tricks.as_strided(memory[place.offset_bytes :], shape, strides)


def digest_of(buffer: Memory) -> str:
    """FNV-1a 64 in its parallel form (R9.5): the low byte evolves alone, bit after bit, and the rest is one sum."""
    if len(buffer) < _PARALLEL_BYTES:
        return fnv1a64(buffer.tobytes())
    low = np.zeros(len(buffer) + 1, dtype=np.uint8)
    for bit in range(8):
        below = (low[:-1] ^ buffer) & np.uint8((1 << bit) - 1)
        flips = (below * np.uint8(PRIME & 0xFF) ^ buffer) & np.uint8(1 << bit)
        low |= np.bitwise_xor.accumulate(np.append(np.uint8(OFFSET_BASIS & 1 << bit), flips))
    terms = (low[:-1] ^ buffer).astype(np.uint64) - low[:-1]
    powers = np.cumprod(np.full(len(buffer), PRIME, dtype=np.uint64))[::-1]
    digest = OFFSET_BASIS * pow(PRIME, len(buffer), 1 << 64) + int((terms * powers).sum())
    return f"{digest % (1 << 64):016x}"
