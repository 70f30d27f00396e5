"""Compilers, one file each, found by name."""

from __future__ import annotations

import importlib

from qualify.workers.compilers.base import Compiler

_CLASSES = {
    "cuda": ("nvrtc", "NvrtcCompiler"),
    "opencl": ("opencl", "OpenCLCompiler"),
    "simulated": ("simulated", "SimulatedCompiler"),
}


def open_compiler(name: str) -> Compiler:
    """The compiler of that name. Raises RigError if its library or device is not here, KeyError if unknown."""
    file, kind = _CLASSES[name]
    compiler: Compiler = getattr(importlib.import_module(f"qualify.workers.compilers.{file}"), kind)()
    return compiler
