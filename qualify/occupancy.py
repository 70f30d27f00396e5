"""How many blocks of a kernel a CUDA multiprocessor holds at once, and what keeps it from holding more.

Integers only, from a table whose rows name their sources. Where sources differ, both rows stand and the answer is the
range between them. A kernel's figure that is not known widens the range too; it is never taken for zero. The table
and the arithmetic are part of the rules of gates occupancy and residency: a row that changes needs a new rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

Limiter = Literal["barriers", "registers", "shared memory", "warps", "blocks"]

WARP = 32
BLOCK_THREADS = 1024
#: Registers of a multiprocessor and, at most, of a block; a warp gets them in units, from one of four partitions.
REGISTERS, REGISTER_UNIT, PARTITIONS = 65_536, 256, 4
THREAD_REGISTERS = 256
BLOCK_BARRIERS = 16  # What PTX lets one block name.
CLUSTER_BLOCKS = 16  # Eight run everywhere that has clusters, up to sixteen by a function's attribute.
_BARRIERS_COUNT_FROM = _CLUSTERS_FROM = 90


@dataclass(frozen=True)
class Multiprocessor:
    """One source's row: what a multiprocessor of a capability holds, and the shared memory one block may opt in to.

    `reserved_bytes` of shared memory are the driver's in every block; a block's share is a multiple of `granule_bytes`.
    `barriers` is how many its resident blocks have together, None where they do not limit.
    """

    capability: int
    threads: int
    blocks: int
    shared_bytes: int
    opt_in_bytes: int
    reserved_bytes: int
    granule_bytes: int
    barriers: int | None
    source: str


@dataclass(frozen=True)
class Need:
    """What one block takes: threads, registers of a thread, shared bytes (static and dynamic), barriers."""

    threads: int
    registers: int | None
    shared_bytes: int | None
    barriers: int | None


@dataclass(frozen=True)
class Residency:
    """Between `least` and `most` blocks at once, and what limits the most; they are equal where all is known."""

    least: int
    most: int
    limiter: Limiter
    sources: tuple[tuple[str, int], ...]

    @property
    def blocks(self) -> int | None:
        """The number of blocks; None where only a range is known."""
        return self.least if self.least == self.most else None

    def __str__(self) -> str:
        return f"{self.most}" if self.blocks is not None else f"{self.least} to {self.most}"


class UnknownCapability(LookupError):
    """A compute capability that the table has no row for; nothing is assumed of it."""


_HEADER = "cuda_occupancy.h of CUDA 13.0 and 13.5; threads and opt-in by arch_traits.h of CCCL 13.3"
_GUIDE = "NVIDIA's tuning guide for compute capability 12.0, as quoted in a public review"


def _row(
    capability: int, threads: int, blocks: int, shared_kib: int, barriers_a_block: int | None, source: str = _HEADER
) -> Multiprocessor:
    """From 8.0 on the driver keeps 1 KiB of a block's shared memory, in the units that the header states."""
    reserved_kib = 1 if capability >= 80 else 0
    opt_in_kib = (100 if source == _GUIDE else shared_kib) - reserved_kib  # The guide too gives a block 99 KiB.
    return Multiprocessor(
        capability=capability,
        threads=threads,
        blocks=blocks,
        shared_bytes=shared_kib << 10,
        opt_in_bytes=opt_in_kib << 10,
        reserved_bytes=reserved_kib << 10,
        granule_bytes=128 if capability >= 80 else 256,
        barriers=None if barriers_a_block is None else barriers_a_block * blocks,
        source=source,
    )


_TABLE = (
    _row(75, 1024, 16, 64, None),
    _row(80, 2048, 32, 164, None),
    _row(86, 1536, 16, 100, None),
    _row(87, 1536, 16, 164, None),
    _row(89, 1536, 24, 100, None),
    _row(90, 2048, 32, 228, 2),
    _row(100, 2048, 32, 228, 2),
    _row(103, 2048, 32, 228, 1),
    _row(110, 1536, 24, 228, 1),
    _row(120, 1536, 24, 100, 1),
    _row(120, 1536, 32, 128, 1, _GUIDE),  # Contradicts the row above; only a board can tell.
    _row(121, 1536, 24, 100, 1),
)


def multiprocessors(capability: int, opt_in_bytes: int | None = None) -> tuple[Multiprocessor, ...]:
    """Every source's row of 90 for 9.0; `opt_in_bytes` is the device's own limit of a block, where it is known.

    Raises UnknownCapability.
    """
    rows = tuple(row for row in _TABLE if row.capability == capability)
    if not rows:
        raise UnknownCapability(f"compute capability {capability // 10}.{capability % 10}")
    return rows if opt_in_bytes is None else tuple(replace(row, opt_in_bytes=opt_in_bytes) for row in rows)


def largest_cluster(capability: int) -> int:
    """Blocks of the largest cluster that could run; 0 where there are none."""
    return CLUSTER_BLOCKS if capability >= _CLUSTERS_FROM else 0


@lru_cache(maxsize=1024)
def residency(rows: tuple[Multiprocessor, ...], need: Need) -> Residency:
    """Resident blocks by all rows of one capability. Raises ValueError for a need that no kernel can have."""
    if need.threads < 1 or (need.registers or 0) < 0 or (need.shared_bytes or 0) < 0 or (need.barriers or 0) < 0:
        raise ValueError(f"no kernel needs {need}")
    ranges = [(_least(row, need), _most(row, need), row) for row in rows]
    most, row = max(((most, row) for _, most, row in ranges), key=lambda found: found[0])
    return Residency(
        least=min(least for least, _, _ in ranges),
        most=most,
        limiter=_limits(row, need)[0][1],
        sources=tuple((row.source, most) for _, most, row in ranges),
    )


def _most(row: Multiprocessor, need: Need) -> int:
    return _limits(row, need)[0][0]


def _least(row: Multiprocessor, need: Need) -> int:
    """As `_most`, if every figure that is not known is the worst that a kernel can have."""
    if need.registers is None or need.shared_bytes is None:
        return 0
    barriers = BLOCK_BARRIERS if need.barriers is None else need.barriers
    return _most(row, Need(need.threads, need.registers, need.shared_bytes, barriers))


def _limits(row: Multiprocessor, need: Need) -> list[tuple[int, Limiter]]:
    """Blocks by each resource, fewest first; of equal ones barriers and registers are named before the others."""
    warps = -(-need.threads // WARP)
    found: list[tuple[int, Limiter]] = []
    if row.barriers is not None and need.barriers:
        found.append((row.barriers // need.barriers, "barriers"))
    if need.registers:
        found.append((_by_registers(need.registers, warps), "registers"))
    if need.shared_bytes is not None:
        found.append((_by_shared(row, need.shared_bytes), "shared memory"))
    found.append((row.threads // WARP // warps if need.threads <= BLOCK_THREADS else 0, "warps"))
    found.append((row.blocks, "blocks"))
    return sorted(found, key=lambda each: each[0])


def _by_registers(registers: int, warps: int) -> int:
    if registers > THREAD_REGISTERS or excess_registers(registers, warps * WARP) > 0:
        return 0
    return REGISTERS // PARTITIONS // _of_a_warp(registers) * PARTITIONS // warps


def _of_a_warp(registers: int) -> int:
    return -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT


def excess_registers(registers: int, threads: int) -> int:
    """By how many registers a block is too large; the hardware counts its warps in fours, one for each partition."""
    warps = -(-threads // WARP)
    return max(0, _of_a_warp(registers) * (-(-warps // PARTITIONS) * PARTITIONS) - REGISTERS)


def excess_shared_bytes(row: Multiprocessor, shared_bytes: int) -> int:
    """By how many bytes of shared memory a block is over what it may opt in to."""
    return max(0, shared_bytes - row.opt_in_bytes)


def _by_shared(row: Multiprocessor, shared_bytes: int) -> int:
    taken = -(-(shared_bytes + row.reserved_bytes) // row.granule_bytes) * row.granule_bytes
    if taken > row.opt_in_bytes + row.reserved_bytes:
        return 0
    return row.shared_bytes // taken if taken else row.threads
