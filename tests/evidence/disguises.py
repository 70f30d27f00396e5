"""Attacks that hide: behind times and mode bits, in names that look alike, in texts that a lenient parser accepts.

Registered beside those of `attacks` and `forgeries`; each must be answered with its code.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from qualify.evidence import layout
from qualify.evidence.store import Store
from tests.evidence.attacks import ATTACKS, NEWEST, Attack, Victim, attack
from tests.evidence.small import GATES, INPUTS, OBJECT_PATH, SERIES, SIZE, plan, rehash


@attack("C01")
def appended(victim: Victim) -> None:
    with (victim.run / SERIES).open("ab") as file:
        file.write(bytes(8))


@attack("C01")
def changed_behind_its_times(victim: Victim) -> None:
    path = victim.run / OBJECT_PATH
    before = path.stat()
    path.write_bytes(b"O" + path.read_bytes()[1:])
    path.chmod(0o444)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@attack("L01")
def object_and_line_missing(victim: Victim) -> None:
    (victim.older / OBJECT_PATH).unlink()
    rehash(victim.older)


@attack("L01")
def mark_deleted_under_a_later_plan(victim: Victim) -> None:
    store = Store(victim.root)
    store.withdraw(NEWEST, "its clock was wrong", "2026-01-02T00:00:00Z")
    later = NEWEST.replace("00000002", "00000003")
    store.open(plan(later, store.heads()), INPUTS, GATES).close()
    (victim.root / layout.WITHDRAWN / f"{NEWEST}.json").unlink()


@attack("L07")
def run_copied_under_another_id(victim: Victim) -> None:
    copy = NEWEST.replace("00000002", "00000009")
    (victim.root / layout.OPENED / f"{copy}.json").write_bytes((victim.run / layout.PLAN).read_bytes())
    (victim.root / layout.RUNS / copy).mkdir()
    for path in sorted(victim.run.rglob("*")):
        target = victim.root / layout.RUNS / copy / path.relative_to(victim.run)
        target.mkdir() if path.is_dir() else target.write_bytes(path.read_bytes())


@attack("N03")
def composed_and_decomposed_twins(victim: Victim) -> None:
    for name in ("\u00e9", "e\u0301"):
        (victim.run / f"inputs/{name}").write_bytes(b"")


@attack("N03")
def text_that_runs_backwards(victim: Victim) -> None:
    (victim.run / "inputs/\u202elmay.yaml").write_bytes(b"")


@attack("P12")
def backslash_in_a_name(victim: Victim) -> None:
    (victim.run / "inputs\\plan.json").write_bytes(b"")


@attack("N09")
def percent_in_a_name(victim: Victim) -> None:
    (victim.run / "inputs/a%0A").write_bytes(b"")


@attack("N09")
def control_characters_in_a_name(victim: Victim) -> None:
    (victim.run / "inputs/a\x1b[2J").write_bytes(b"")


@attack("S01")
def second_manifest(victim: Victim) -> None:
    (victim.run / "sha256sums").write_bytes((victim.run / "SHA256SUMS").read_bytes())


def _document(code: str, name: str, change: Callable[[bytes], bytes]) -> None:
    """An attack that writes a document's bytes anew and hashes everything again."""

    def apply(victim: Victim) -> None:
        path = victim.run / SIZE
        path.write_bytes(change(path.read_bytes()))
        rehash(victim.run)

    apply.__name__ = name
    ATTACKS.append(Attack(code, apply))


_document("J12", "number_that_overflows", lambda data: data.replace(b":101", b":1e999"))
_document("J12", "integer_of_many_digits", lambda data: data.replace(b":101", b":" + b"1" * 5000))
_document("J12", "utf16", lambda data: data.decode().encode("utf-16"))
_document("J12", "byte_order_mark", lambda data: b"\xef\xbb\xbf" + data)
_document("J12", "bytes_that_are_no_text", lambda data: data.replace(b"size", b"siz\xff", 1))
_document("J12", "lone_surrogate", lambda data: data.replace(b'"size"', b'"siz\\ud800"', 1))
_document("J12", "two_documents", lambda data: data + data)
_document("P17", "huge", lambda data: data[:-1] + b" " * (1 << 26) + b"\n")
