"""Compilers, one file each, found by name."""

from __future__ import annotations

import importlib

from qualify.workers.compilers.base import Compiler

_CLASSES = {"opencl": "OpenCLCompiler", "simulated": "SimulatedCompiler"}


def open_compiler(name: str) -> Compiler:
    """The compiler of that name. Raises RigError if its library or device is not here, KeyError if unknown."""
    module = importlib.import_module(f"qualify.workers.compilers.{name}")
    compiler: Compiler = getattr(module, _CLASSES[name])()
    return compiler
