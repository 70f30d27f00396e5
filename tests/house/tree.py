"""The project's own files, as git sees them: tracked, or new and not ignored."""

import ast
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@cache
def files(*suffixes: str) -> tuple[Path, ...]:
    """Every file of the project that still exists, of those suffixes or of any."""
    command = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode()
    paths = (ROOT / name for name in sorted(set(listing.split("\0")) - {""}))
    return tuple(path for path in paths if path.is_file() and (not suffixes or path.suffix in suffixes))


def sources(*folders: str) -> tuple[Path, ...]:
    """Every Python file under the named top folders; a folder without any is an error of the test."""
    found = tuple(path for path in files(".py") if path.relative_to(ROOT).parts[0] in folders)
    assert {path.relative_to(ROOT).parts[0] for path in found} == set(folders)
    return found


@cache
def syntax(path: Path) -> ast.Module:
    """The parsed file."""
    return ast.parse(path.read_text(), filename=str(path))


def where(path: Path, node: ast.expr | ast.stmt) -> str:
    """`file:line` for a message."""
    return f"{path.relative_to(ROOT)}:{node.lineno}"


@cache
def pyproject() -> dict[str, Any]:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())
