"""Private folders: what a killed process left is swept by the next one, and nothing else is."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from qualify import scratch
from tests.cli.workspaces import clean

HOLD = "from qualify import scratch; print(scratch.folder(), flush=True); input()"


def holding(temporary: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that made a private folder and waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=clean({"TMPDIR": str(temporary)}),
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def ended(process: subprocess.Popen[str], number: int | None = None) -> None:
    """End a process that waits, by a signal or by letting it go on."""
    if number is not None:
        process.send_signal(number)
    process.communicate("\n", timeout=60)


def test_what_a_killed_process_left_is_swept_by_the_next(tmp_path: Path) -> None:
    killed, left = holding(tmp_path)
    (left / "object").write_text("bytes")
    ended(killed, signal.SIGKILL)
    assert left.exists()
    after, own = holding(tmp_path)
    assert (left.exists(), own.exists()) == (False, True)
    ended(after)
    assert list(tmp_path.iterdir()) == []


def test_what_a_living_process_uses_is_left_alone(tmp_path: Path) -> None:
    living, used = holding(tmp_path)
    scratch.sweep(tmp_path)
    assert used.exists()
    ended(living)
    assert not used.parent.exists()


@pytest.mark.parametrize("kind", ["link", "file", "other name"])
def test_what_is_no_folder_of_ours_is_left_alone(tmp_path: Path, kind: str) -> None:
    target, temporary = tmp_path / "target", tmp_path / "temporary"
    target.mkdir()
    (target / "precious").touch()
    temporary.mkdir()
    place = temporary / f"{scratch.PREFIX}x"
    match kind:
        case "link":
            place.symlink_to(target)
        case "file":
            place.touch()
        case _:
            (temporary / "qualify-other").mkdir()
    before = sorted(os.listdir(temporary))
    scratch.sweep(temporary)
    assert sorted(os.listdir(temporary)) == before
    assert (target / "precious").exists()
