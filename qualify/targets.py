"""CUDA targets by name: board, suffix, which toolkits know them, what their blocks may use. Unknown is None.

A target is `sm_90`, or with a suffix `sm_90a` (this chip only) and `sm_100f` (its family). Which release knows which
target was measured with ptxas; a release between two measured ones that agree is taken to agree too.
"""

from __future__ import annotations

import re

from qualify import occupancy
from qualify.domain import Limits

_TARGET = re.compile(r"sm_([1-9][0-9]{1,2})([af]?)")
#: First release with the target, and the first without it again.
_KNOWN: dict[str, tuple[tuple[int, int], tuple[int, int] | None]] = {
    **dict.fromkeys(("sm_52", "sm_60", "sm_70"), ((11, 8), (13, 0))),
    **dict.fromkeys(("sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90"), ((11, 8), None)),
    "sm_90a": ((12, 1), None),
    **dict.fromkeys(("sm_100", "sm_100a", "sm_120", "sm_120a"), ((12, 8), None)),
    "sm_101a": ((12, 8), (13, 0)),
    **dict.fromkeys(("sm_100f", "sm_103a", "sm_120f", "sm_121a"), ((12, 9), None)),
    **dict.fromkeys(("sm_88", "sm_110a"), ((13, 0), None)),
}
#: Releases that were measured; between the last of the table and the next measured one nothing is known.
_MEASURED = ((11, 8), (12, 1), (12, 4), (12, 6), (12, 8), (12, 9), (13, 0), (13, 1), (13, 2), (13, 5))
_SUFFIXES = {90: "a", 100: "af", 101: "af", 103: "af", 110: "af", 120: "af", 121: "af"}


def number(target: str) -> int | None:
    """90 for sm_90 and sm_90a; None for what is no target's name."""
    match = _TARGET.fullmatch(target)
    return int(match[1]) if match else None


def board(target: str) -> str | None:
    """The board's architecture, sm_90 for sm_90a: verdicts are kept by it (R7.1)."""
    match = _TARGET.fullmatch(target)
    return f"sm_{match[1]}" if match else None


def variants(arch: str) -> tuple[str, ...]:
    """The suffixed targets of a board's architecture: what could accept an instruction that the plain one lacks."""
    return tuple(f"{arch}{suffix}" for suffix in _SUFFIXES.get(number(arch) or 0, ""))


def knows(release: tuple[int, int], target: str) -> bool | None:
    """Whether a release of the toolkit has the target; None where that was never measured."""
    if target not in _KNOWN or not _MEASURED[0] <= release <= _MEASURED[-1]:
        return None
    first, without = _KNOWN[target]
    before = max(measured for measured in _MEASURED if measured <= release)
    after = min(measured for measured in _MEASURED if measured >= release)
    answers = {first <= measured and (without is None or measured < without) for measured in (before, after)}
    return answers.pop() if len(answers) == 1 else None


def limits(target: str, release: tuple[int, int]) -> Limits:
    """What one block on the target may use when it was built by that release.

    Sizes of block and grid are those of every chip in the table; parameters passed 4 KiB with 12.1 on sm_70.
    """
    wide = release >= (12, 1) and (number(target) or 0) >= 70
    return Limits(
        block_threads=1024,
        block=(1024, 1024, 64),
        grid=(2_147_483_647, 65_535, 65_535),
        shared_bytes=_opt_in_bytes(number(target) or 0),
        parameter_bytes=32_764 if wide else 4096,
        source="CUDA C++ Programming Guide, technical specifications; shared memory as in qualify.occupancy",
    )


def _opt_in_bytes(capability: int) -> int | None:
    """The least shared memory that one block can opt in to by any source of the table."""
    try:
        return min(row.opt_in_bytes for row in occupancy.multiprocessors(capability))
    except occupancy.UnknownCapability:
        return None
