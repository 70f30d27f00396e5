"""The order in which tiles of a list are hashed: a tile never waits for one that is taken after it."""

from __future__ import annotations

import struct

import pytest

from qualify.workers.devices.cuda_fnv import FNV_TILE_BYTES, listed, warps_back

SIZES = (0, 1, FNV_TILE_BYTES, 3 * FNV_TILE_BYTES + 1, 2 * FNV_TILE_BYTES)


def test_every_tile_is_taken_once_and_after_those_before_it() -> None:
    work = listed([(1 << 20, size) for size in SIZES])
    number, buffer = (struct.unpack(f"<{work.tiles}I", data) for data in (work.number, work.buffer))
    counts = [-(-size // FNV_TILE_BYTES) for size in SIZES]
    assert sorted(zip(buffer, number, strict=True)) == [(b, n) for b, count in enumerate(counts) for n in range(count)]
    assert list(number) == sorted(number)
    rows = struct.unpack(f"<{3 * len(SIZES)}Q", work.rows)
    assert rows[1::3] == SIZES
    assert rows[2::3] == tuple(sum(counts[:at]) for at in range(len(SIZES)))


@pytest.mark.parametrize(("blocks", "buffers", "warps"), [(264, 1, 10), (264, 48, 2), (1, 1, 2), (2000, 1, 16)])
def test_a_tile_looks_back_over_all_that_run_at_a_time(blocks: int, buffers: int, warps: int) -> None:
    assert warps_back(blocks, buffers) == warps
