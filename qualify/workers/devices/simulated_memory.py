"""Bytes of the virtual board's arena: elements that lie in a row or apart, and their digests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from qualify.fnv import OFFSET_BASIS, PRIME, fnv1a64
from qualify.placement import Placement

Memory = np.ndarray[Any, np.dtype[np.uint8]]
_PARALLEL_BYTES = 1024  # So many bytes, of all buffers together, are digested sooner by arrays than one by one.
_MANY_ROWS = 32  # So many buffers of one length are digested sooner side by side, a byte of each at a time.


def elements(memory: Memory, place: Placement) -> Memory:
    """A view of the bytes of a buffer's elements: its axes, and the bytes of a run."""
    shape = (*(count for count, _ in place.axes), place.run_bytes)
    strides = (*(stride for _, stride in place.axes), 1)
    return np.ndarray(shape, np.uint8, memory, place.offset_bytes, strides)


def digests_of(buffers: Sequence[Memory]) -> tuple[str, ...]:
    """The FNV-1a 64 of each buffer, in their order; buffers of one length are digested together."""
    found = [""] * len(buffers)
    for size in {len(buffer) for buffer in buffers}:
        alike = [at for at, buffer in enumerate(buffers) if len(buffer) == size]
        for at, digest in zip(alike, _digests(np.stack([buffers[at] for at in alike])), strict=True):
            found[at] = digest
    return tuple(found)


def _digests(rows: Memory) -> list[str]:
    if rows.shape[0] >= _MANY_ROWS:
        return _side_by_side(rows)
    if rows.size >= _PARALLEL_BYTES:
        return _in_parallel(rows)
    return [fnv1a64(row.tobytes()) for row in rows]


def _side_by_side(rows: Memory) -> list[str]:
    """The serial definition, of all rows at once."""
    digests = np.full(rows.shape[0], OFFSET_BASIS, dtype=np.uint64)
    for column in rows.T:
        digests = (digests ^ column) * np.uint64(PRIME)
    return [f"{int(digest):016x}" for digest in digests]


def _in_parallel(rows: Memory) -> list[str]:
    """FNV-1a 64 in its parallel form (R9.5): the low byte evolves alone, bit after bit, and the rest is one sum."""
    low = np.zeros((rows.shape[0], rows.shape[1] + 1), dtype=np.uint8)
    before = low[:, :-1]
    for bit in range(8):
        flips = np.full_like(low, OFFSET_BASIS & 1 << bit)
        below = (before ^ rows) & np.uint8((1 << bit) - 1)
        flips[:, 1:] = (below * np.uint8(PRIME & 0xFF) ^ rows) & np.uint8(1 << bit)
        low |= np.bitwise_xor.accumulate(flips, axis=1)
    terms = (before ^ rows).astype(np.uint64) - before
    powers = np.cumprod(np.full(rows.shape[1], PRIME, dtype=np.uint64))[::-1]
    start = OFFSET_BASIS * pow(PRIME, rows.shape[1], 1 << 64)
    return [f"{(start + int(total)) % (1 << 64):016x}" for total in (terms * powers).sum(axis=1)]
