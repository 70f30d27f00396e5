"""Pydantic without plugins: no package but this one has a say in what a document is."""

from __future__ import annotations

import os
import sys
from types import ModuleType

_LOADER = "pydantic.plugin._loader"


def unplug() -> None:
    """Look for no plugin, before a first model is built.

    What looks for them loads the metadata of packages before it asks whether it should.
    """
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"  # Where it is loaded already, and in children.
    if _LOADER not in sys.modules:
        nobody = ModuleType(_LOADER, "A stand-in that knows no plugin.")
        nobody.__dict__["get_plugins"] = tuple
        sys.modules[_LOADER] = nobody
