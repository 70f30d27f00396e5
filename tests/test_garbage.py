"""How commands end."""

import subprocess
import sys

import pytest

from tests.house.tree import ROOT

ENDS = """
import atexit, gc, sys
from qualify import cli
atexit.register(lambda: print(gc.get_freeze_count(), file=sys.stderr))
sys.argv[0] = "qualify"
cli.main()
"""


@pytest.mark.parametrize(("word", "code"), [("--help", 0), ("nothing", 2)])
def test_a_command_ends_with_its_code_and_without_a_look_at_what_is_left(word: str, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", ENDS, word], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert int(done.stderr.splitlines()[-1]) > 10_000
