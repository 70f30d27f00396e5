"""Commands that need no heavy library load none: `--help` starts fast, and a verdict derives without numpy."""

import subprocess
import sys
from pathlib import Path

import pytest

from qualify import cli

HEAVY = {"numpy", "pyopencl", "rich", "ml_dtypes", "importlib.metadata"}
RUN = """
import atexit, sys
atexit.register(lambda: sys.stderr.write("loaded: " + " ".join(sorted(sys.modules))))
from qualify.cli import main
main()
"""


LIGHT = {
    ("--help",): 0,
    ("screen", "--help"): 0,
    ("check", "--workspace", "."): 0,
    ("verify-evidence", "--workspace", "."): 3,
}
ALONE, WHOLE = "from qualify.cli import main; main()", "from qualify.cli import app; app()"


@pytest.mark.parametrize(("words", "code"), LIGHT.items())
def test_a_light_command_loads_no_heavy_library(words: tuple[str, ...], code: int, tmp_path: Path) -> None:
    (tmp_path / "pipelines.yaml").touch()
    (tmp_path / "evidence").mkdir()
    command = (sys.executable, "-c", RUN, *words)
    result = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert result.returncode == code, result.stderr
    loaded = set(result.stderr.partition("loaded: ")[2].split())
    assert "qualify.cli" in loaded
    assert not loaded & {*HEAVY, "qualify.templates"}


@pytest.mark.parametrize("words", [("check", "--help"), ("verify-evidence", "--no"), ("toolkits", "--help"), ("chek",)])
def test_a_command_that_is_built_alone_says_what_it_says_among_all(words: tuple[str, ...]) -> None:
    alone, whole = (
        subprocess.run((sys.executable, "-c", code, *words), check=False, capture_output=True, text=True)
        for code in (ALONE, WHOLE)
    )
    assert (alone.returncode, alone.stdout, alone.stderr) == (whole.returncode, whole.stdout, whole.stderr)


def test_commands_that_open_a_rig_begin_its_template_before_they_are_looked_at() -> None:
    names = {each.name or getattr(each.callback, "__name__", "") for each in cli.app.registered_commands}
    assert names >= cli.ON_RIGS
    for word in cli.ON_RIGS:
        done = subprocess.run((sys.executable, "-c", RUN, word, "--no"), check=False, capture_output=True, text=True)
        assert "qualify.templates" in done.stderr.split()


def test_an_audit_begins_to_read_before_it_imports_what_judges() -> None:
    code = "import sys; from qualify.evidence import report, released; print(*sys.modules)"
    done = subprocess.run((sys.executable, "-c", code), check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert {"qualify.evidence.audit", "qualify.evidence.contents"} <= loaded
    assert not loaded & {"pydantic", "gates", "qualify.model", "qualify.plan", "qualify.judgement"}
