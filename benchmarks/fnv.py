"""FNV-1a 64 on a device: a list of K buffers through the worker's own step, beside copying to the host and hashing.

On a CUDA board the harness's kernels are timed too, alone by the device's clock and as one call. The device's digests
are compared with the serial definition on the bytes that the device has. The host's side is what
can be had without it: each buffer copied to pageable memory, then hashed by a serial loop in C, a buffer a thread.
Rates are of bytes digested, by the parent's clock around the whole step, messages included.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from qualify import arena, cuda_toolkits
from qualify.bench import Rig
from qualify.contract import Argument, Kernel
from qualify.sessions import MeasuringSession
from qualify.steps import Arena, Digest, Digests, Fill, Poison, Read

MIB = 1 << 20
#: DESIGN section 15: a list of buffers, then where it is to go.
TARGET_GB_PER_S, NEXT_GB_PER_S = 250, 1000
ROUNDS = 9
SEED = "5eed" * 4
TIMEOUT_S = 120.0
COLUMNS = ("device, ms", "device, GB/s", "copied and hashed, GB/s", "ratio", "equal to serial")
SERIAL = """\
#include <stddef.h>
#include <stdint.h>
uint64_t fnv1a64(const uint8_t *data, size_t size) {
  uint64_t h = 0xcbf29ce484222325u;
  for (size_t i = 0; i < size; i++) h = (h ^ data[i]) * 0x100000001b3u;
  return h;
}
"""


@dataclass(frozen=True)
class Shape:
    """K buffers of one size."""

    count: int
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.count} x {self.size_bytes // MIB} MiB"

    def rate(self, seconds: float) -> float:
        """Gigabytes a second."""
        return self.count * self.size_bytes / seconds / 1e9


def main() -> int:
    """Print the table. Returns 1 if a list misses the target on a CUDA board, or if any digest is wrong."""
    given = arguments()
    if given.host:
        return host(given.host)
    if given.kernels:
        return kernels(given.kernels)
    shapes = [Shape(count, given.mib * MIB) for count in given.counts]
    shapes.append(Shape(1, given.one_mib * MIB))
    with TemporaryDirectory() as folder, Rig.open(given.toolkit) as rig:
        serial = compiled(Path(folder))
        board = "none" if rig.board is None else f"{rig.board.name}, driver {rig.board.driver}"
        print(f"{board}, {rig.domain} ({rig.toolkit_build})")
        print(line("buffers", COLUMNS))
        found = [measured(rig, shape, serial, given.rounds) for shape in shapes]
        if rig.domain.runtime == "cuda":
            code = Path(folder) / "harness"
            code.write_bytes(rig._compilers.harness()[0])
            for row in found:
                row["equal"] &= compared(code, row, given.rounds)
    lists = [row["gb_per_s"] for row in found if row["shape"].count > 1]
    right = all(row["equal"] for row in found)
    reached = min(lists) >= TARGET_GB_PER_S
    print(f"target: every list at {TARGET_GB_PER_S} GB/s on an H200: {'met' if reached else 'missed'}")
    print(f"next target: {NEXT_GB_PER_S} GB/s: {'met' if min(lists) >= NEXT_GB_PER_S else 'missed'}")
    print(f"digests: {'equal to serial' if right else 'WRONG'}")
    return 0 if right and (reached or not given.toolkit.startswith("cuda")) else 1


def arguments() -> argparse.Namespace:
    """What the command line says."""
    newest = max((release for release, _ in cuda_toolkits.here()), default=(13, 2))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toolkit", default="cuda-{}.{}".format(*newest), help="the newest CUDA here")
    parser.add_argument("--counts", type=int, nargs="+", default=[12, 24, 48], help="lists of so many buffers")
    parser.add_argument("--mib", type=int, default=64, help="of each buffer of a list")
    parser.add_argument("--one-mib", type=int, default=1024, help="of one buffer alone")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--host", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--kernels", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args()


def measured(rig: Rig, shape: Shape, serial: Path, rounds: int) -> dict[str, Any]:
    """One row: the step's median, the digests beside the serial ones, and the host's side in a process of its own."""
    with rig.measuring() as session:
        buffers = filled(session, shape)
        step = Digest(buffers=buffers)
        took: list[float] = []
        for _ in range(rounds + 1):
            started_s = time.perf_counter()
            (record,) = session.run([step], TIMEOUT_S)
            took.append(time.perf_counter() - started_s)
        digests = record.values if isinstance(record, Digests) else ()
        equal = digests == tuple(serial_digests(session, buffers, serial))
    seconds = statistics.median(took[1:])
    beside = copied_and_hashed(shape, serial) if rig.domain.runtime == "cuda" else None
    rate = shape.rate(seconds)
    host_side = ("-", "-") if beside is None else (f"{beside:.2f}", f"{rate / beside:.0f} x")
    cells = (f"{seconds * 1e3:.2f}", f"{rate:.1f}", *host_side, "yes" if equal else "NO")
    print(line(str(shape), cells), flush=True)
    return {"shape": shape, "gb_per_s": rate, "equal": equal, "digests": digests}


def line(first: str, cells: Sequence[str]) -> str:
    """One row, as wide as the columns' names."""
    return " ".join((f"{first:<14}", *(f"{cell:>{len(name)}}" for cell, name in zip(cells, COLUMNS, strict=True))))


def filled(session: MeasuringSession, shape: Shape) -> tuple[str, ...]:
    """An arena of the shape's buffers, each with bytes of its own."""
    names = [f"b{number}" for number in range(shape.count)]
    laid = arena.layout([Argument(name=n, kind="input", dtype="uint8", shape=(shape.size_bytes,)) for n in names], 1)
    session.run([Arena(size_bytes=laid.size_bytes, placements=laid.placements, zone_seed=SEED)], TIMEOUT_S)
    buffers = tuple(f"{name}.0" for name in names)
    for number, buffer in enumerate(buffers):
        session.run([Fill(buffer=buffer, recipe=Poison(dtype="uint8", seed=f"{number:016x}"))], TIMEOUT_S)
    return buffers


# The kernels of the harness ------------------------------------------------------------------------------------------


def compared(code: Path, row: dict[str, Any], rounds: int) -> bool:
    """A line of what the kernels take, from a process with the harness alone; whether its digests are the step's."""
    shape: Shape = row["shape"]
    words = (str(code), str(shape.count), str(shape.size_bytes), str(rounds))
    done = subprocess.run(
        [sys.executable, __file__, "--kernels", *words], check=True, stdout=subprocess.PIPE, text=True
    )
    said = json.loads(done.stdout)
    equal = bool(tuple(said["digests"]) == row["digests"])
    alone, whole = (f"{shape.rate(said[name]):.1f} GB/s" for name in ("kernel_s", "whole_s"))
    print(f"{shape!s:<14} kernels alone {alone}, whole call {whole}, {'equal' if equal else 'WRONG'}", flush=True)
    return equal


def kernels(words: Sequence[str]) -> int:
    """Hash the shape's buffers, and say the medians and the digests."""
    count, size, rounds = (int(word) for word in words[1:])
    harness = _clocked(Path(words[0]).read_bytes())
    ranges = [(memory(size), size) for _ in range(count)]
    for number, (address, _) in enumerate(ranges):
        harness.poison([(address, size, Poison(dtype="uint8", seed=f"{number:016x}"))])
    harness.wait()
    found: list[tuple[float, float, tuple[str, ...]]] = []
    for _ in range(rounds + 1):
        harness.clocked_s.clear()
        started_s = time.perf_counter()
        digests = harness.hashes(ranges)
        found.append((time.perf_counter() - started_s, sum(harness.clocked_s), digests))
    whole_s = statistics.median(row[0] for row in found[1:])
    kernel_s = statistics.median(row[1] for row in found[1:])
    same = {row[2] for row in found}
    print(json.dumps({"whole_s": whole_s, "kernel_s": kernel_s, "digests": same.pop() if len(same) == 1 else ()}))
    return 0


def _clocked(code: bytes) -> Any:
    """The harness, whose launches are timed by the device's clock."""
    from cuda.bindings import driver

    from qualify.workers.devices.cuda_harness import CudaHarness

    class Clocked(CudaHarness):
        clocked_s: list[float]

        def launch(self, kernel: Kernel, *parameters: Any, stream: Any = None) -> None:
            events = [checked(driver.cuEventCreate(0)) for _ in range(2)]
            checked(driver.cuEventRecord(events[0], self.stream))
            super().launch(kernel, *parameters, stream=stream)
            checked(driver.cuEventRecord(events[1], self.stream))
            checked(driver.cuEventSynchronize(events[1]))
            self.clocked_s.append(float(checked(driver.cuEventElapsedTime(*events))) / 1e3)

    made = Clocked(code)
    made.clocked_s = []
    return made


def memory(size: int) -> int:
    """So much of the device's memory."""
    from cuda.bindings import driver

    return int(checked(driver.cuMemAlloc(size)))


# The host ------------------------------------------------------------------------------------------------------------


def compiled(folder: Path) -> Path:
    """The serial definition as a shared library. Raises CalledProcessError without a C compiler that works."""
    source, library = folder / "serial.c", folder / "serial.so"
    source.write_text(SERIAL)
    subprocess.run(["cc", "-O3", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def hasher(library: Path) -> Any:
    """The serial hash of an address and a size; it holds no lock while it runs."""
    function = ctypes.CDLL(str(library)).fnv1a64
    function.argtypes, function.restype = (ctypes.c_char_p, ctypes.c_size_t), ctypes.c_uint64
    return function


def serial_digests(session: MeasuringSession, buffers: Sequence[str], library: Path) -> list[str]:
    """Every buffer read back and hashed here."""
    function = hasher(library)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = []
        for buffer in buffers:
            session.run([Read(buffer=buffer)], TIMEOUT_S)
            (data,) = session.taken()
            found.append(pool.submit(function, bytes(data), len(data)))
        return [f"{each.result():016x}" for each in found]


def copied_and_hashed(shape: Shape, library: Path) -> float:
    """Gigabytes a second of copying and hashing, in a process that drives the board itself."""
    command = [sys.executable, __file__, "--host", str(library), str(shape.count), str(shape.size_bytes)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return shape.rate(float(json.loads(done.stdout)["seconds"]))


def host(words: Sequence[str]) -> int:
    """Copy and hash as many buffers, and say the seconds of the faster of two rounds."""
    from cuda.bindings import driver

    function, count, size = hasher(Path(words[0])), int(words[1]), int(words[2])
    checked(driver.cuInit(0))
    checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(checked(driver.cuDeviceGet(0))))))
    buffers = [memory(size) for _ in range(count)]
    for address in buffers:
        checked(driver.cuMemsetD8(address, 0x5A, size))
    targets = [ctypes.create_string_buffer(size) for _ in range(min(count, os.cpu_count() or 1))]
    seconds = []
    with ThreadPoolExecutor(len(targets)) as pool:
        for _ in range(2):
            started_s = time.perf_counter()
            running: list[Future[int]] = []
            for number, address in enumerate(buffers):
                if number >= len(targets):
                    running[number - len(targets)].result()
                target = targets[number % len(targets)]
                checked(driver.cuMemcpyDtoH(ctypes.addressof(target), address, size))
                running.append(pool.submit(function, ctypes.cast(target, ctypes.c_char_p), size))
            for each in running:
                each.result()
            seconds.append(time.perf_counter() - started_s)
    print(json.dumps({"seconds": min(seconds)}))
    return 0


def checked(result: Any) -> Any:
    """A driver call's value. Raises RuntimeError with its error."""
    code, *values = result
    if int(code):
        raise RuntimeError(f"the driver says {code}")
    return values[0] if values else None


if __name__ == "__main__":
    sys.exit(main())
