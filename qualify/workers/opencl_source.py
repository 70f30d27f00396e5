"""A module as OpenCL C: one translation unit, its options, and its fragments in the worker's private folder.

Whoever compiles a module for an OpenCL platform compiles the same text with the same options.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from qualify.contract import Module

STANDARD = "-cl-std=CL1.2"


def options(module: Module) -> tuple[str, ...]:
    """What the compiler is told: the standard unless the module names one, and where fragments are."""
    given = any(option.startswith("-cl-std=") for option in module.options)
    return (*(() if given else (STANDARD,)), "-cl-kernel-arg-info", "-I .", *module.options)


def lay_out(fragments: Mapping[str, bytes]) -> None:
    """Write the fragments, and nothing else, into the working folder, which is private to this worker."""
    here = Path.cwd()
    for left in here.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    for path, text in fragments.items():
        parts = PurePosixPath(path).parts
        if not parts or ".." in parts or PurePosixPath(path).is_absolute():
            raise ValueError(f"a fragment outside the working folder: {path}")
        file = here.joinpath(*parts)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text)
