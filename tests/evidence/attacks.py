"""What someone can do to a store, one function an attack, by the code that an audit must answer with.

The store has two runs; attacks go for the newest unless they say otherwise, so that no later plan gives them away.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qualify.evidence import layout
from qualify.evidence.manifest import MANIFEST
from qualify.model import Json
from tests.evidence.small import OBJECT_PATH, SERIES, SIZE, SPEED, edit, rederive, rehash

OLDER = "20260101T000000Z-add-simulated-1.0--virtual-00000001"
NEWEST = "20260101T000000Z-add-simulated-1.0--virtual-00000002"


@dataclass(frozen=True)
class Victim:
    """A store with two sealed runs."""

    root: Path

    @property
    def run(self) -> Path:
        """The newest run, which nothing comes after."""
        return self.root / layout.RUNS / NEWEST

    @property
    def older(self) -> Path:
        """The run whose manifest the newest plan names."""
        return self.root / layout.RUNS / OLDER


@dataclass(frozen=True)
class Attack:
    """One attack: the code that it must be answered with, and what it does."""

    code: str
    apply: Callable[[Victim], None]

    @property
    def name(self) -> str:
        """Code and function, as a test is called."""
        return f"{self.code}-{self.apply.__name__}"


ATTACKS: list[Attack] = []


def attack(code: str) -> Callable[[Callable[[Victim], None]], Callable[[Victim], None]]:
    """Register a function as an attack."""

    def register(apply: Callable[[Victim], None]) -> Callable[[Victim], None]:
        ATTACKS.append(Attack(code, apply))
        return apply

    return register


# C: content.


@attack("C01")
def byte_changed(victim: Victim) -> None:
    path = victim.run / OBJECT_PATH
    path.write_bytes(b"O" + path.read_bytes()[1:])


@attack("C01")
def truncated(victim: Victim) -> None:
    path = victim.run / SERIES
    path.write_bytes(path.read_bytes()[:-8])


@attack("C02")
def emptied(victim: Victim) -> None:
    (victim.run / SERIES).write_bytes(b"")


@attack("C01")
def zeroed(victim: Victim) -> None:
    path = victim.run / SERIES
    path.write_bytes(bytes(path.stat().st_size))


@attack("C01")
def exchanged(victim: Victim) -> None:
    first, second = victim.run / SIZE, victim.run / SPEED
    first_data, second_data = first.read_bytes(), second.read_bytes()
    first.write_bytes(second_data)
    second.write_bytes(first_data)


@attack("C01")
def verdict_edited(victim: Victim) -> None:
    edit(victim.run / layout.VERDICT, _admissible)


def _admissible(verdict: dict[str, Json]) -> None:
    verdict.update(admissible=True, reasons=[])


# S: the set of files.


@attack("S01")
def extra_file(victim: Victim) -> None:
    (victim.run / "subjects/f32-7/fast/other.json").write_bytes(b"{}\n")


@attack("S01")
def extra_file_rehashed(victim: Victim) -> None:
    extra_file(victim)
    rehash(victim.run)


@attack("S01")
def extra_series_rehashed(victim: Victim) -> None:
    (victim.run / "subjects/f32-7/fast/size.times.i64le").write_bytes(bytes(8))
    rehash(victim.run)


@attack("S01")
def extra_input_rehashed(victim: Victim) -> None:
    (victim.run / "inputs/other.yaml").write_bytes(b"")
    rehash(victim.run)


@attack("S01")
def file_of_no_run(victim: Victim) -> None:
    (victim.run / "README").write_bytes(b"hello")


@attack("S01")
def file_of_no_store(victim: Victim) -> None:
    (victim.root / "notes.txt").write_bytes(b"hello")


@attack("N09")
def editor_backup(victim: Victim) -> None:
    (victim.run / "plan.json~").write_bytes(b"{}\n")


@attack("S03")
def file_missing(victim: Victim) -> None:
    (victim.run / SIZE).unlink()


@attack("S08")
def file_and_line_missing(victim: Victim) -> None:
    (victim.run / SIZE).unlink()
    rederive(victim.run)


@attack("S08")
def subject_and_line_missing(victim: Victim) -> None:
    (victim.run / "subjects/f32-7/large/subject.json").unlink()
    rehash(victim.run)


@attack("S08")
def verdict_and_line_missing(victim: Victim) -> None:
    (victim.run / layout.VERDICT).unlink()
    rehash(victim.run)


@attack("S08")
def plan_and_line_missing(victim: Victim) -> None:
    (victim.run / layout.PLAN).unlink()
    rehash(victim.run)


@attack("S03")
def file_renamed(victim: Victim) -> None:
    (victim.run / OBJECT_PATH).rename(victim.run / "objects" / ("0" * 64 + ".bin"))


@attack("S06")
def empty_folder(victim: Victim) -> None:
    (victim.run / "subjects/f32-7/slow").mkdir()


@attack("S06")
def empty_folders(victim: Victim) -> None:
    (victim.run / "telemetry/a/b").mkdir(parents=True)


@attack("S09")
def manifest_missing(victim: Victim) -> None:
    (victim.run / MANIFEST).unlink()


# P: paths and file types.


@attack("P01")
def link_to_equal_bytes(victim: Victim) -> None:
    path = victim.run / SIZE
    outside = victim.root.parent / "outside"
    path.rename(outside)
    path.symlink_to(outside)


@attack("P01")
def link_to_a_folder(victim: Victim) -> None:
    (victim.run / "telemetry").symlink_to(victim.older)


@attack("P01")
def dangling_link(victim: Victim) -> None:
    (victim.run / "telemetry").symlink_to("nowhere")


@attack("P02")
def run_is_a_link(victim: Victim) -> None:
    outside = victim.root.parent / NEWEST
    victim.run.rename(outside)
    victim.run.symlink_to(outside)


@attack("P02")
def runs_is_a_link(victim: Victim) -> None:
    outside = victim.root.parent / "runs"
    victim.run.parent.rename(outside)
    (victim.root / "runs").symlink_to(outside)


@attack("P01")
def opened_plan_is_a_link(victim: Victim) -> None:
    path = victim.root / layout.OPENED / f"{NEWEST}.json"
    outside = victim.root.parent / "outside"
    path.rename(outside)
    path.symlink_to(outside)


@attack("P04")
def hard_link(victim: Victim) -> None:
    (victim.root.parent / "outside").hardlink_to(victim.run / SIZE)


@attack("P05")
def listed_fifo(victim: Victim) -> None:
    (victim.run / SIZE).unlink()
    os.mkfifo(victim.run / SIZE)


@attack("P05")
def extra_fifo(victim: Victim) -> None:
    os.mkfifo(victim.run / "telemetry")


@attack("P05")
def opened_plan_is_a_fifo(victim: Victim) -> None:
    path = victim.root / layout.OPENED / f"{NEWEST}.json"
    path.unlink()
    os.mkfifo(path)


@attack("P06")
def unix_socket(victim: Victim) -> None:
    handle = os.open(victim.run, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{handle}/telemetry")  # A socket's address has at most 107 bytes.
    os.close(handle)


@attack("P17")
def endless(victim: Victim) -> None:
    os.truncate(victim.run / SIZE, layout.MAX_BLOB_BYTES)


@attack("P19")
def deep(victim: Victim) -> None:
    (victim.run / "telemetry" / "/".join("a" * 17)).mkdir(parents=True)


# N: names.


@attack("N01")
def case_twin(victim: Victim) -> None:
    (victim.run / "telemetry").mkdir()
    for name in ("clock.json", "Clock.json"):
        (victim.run / "telemetry" / name).write_bytes(b"")
    rehash(victim.run)


@attack("N03")
def beyond_ascii(victim: Victim) -> None:
    (victim.run / "inputs/pipelin\u0435s.yaml").write_bytes(b"")


@attack("N04")
def line_end_in_a_name(victim: Victim) -> None:
    (victim.run / "inputs/a\nb").write_bytes(b"")


@attack("N06")
def blank_at_the_end(victim: Victim) -> None:
    (victim.run / "inputs/a ").write_bytes(b"")


@attack("N07")
def not_utf8(victim: Victim) -> None:
    (victim.run / "inputs/a\udcff").write_bytes(b"")


@attack("N09")
def hidden(victim: Victim) -> None:
    (victim.run / "inputs/.hidden").write_bytes(b"")
