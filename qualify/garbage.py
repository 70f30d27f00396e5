"""Commands that make many values and little garbage do without the search for it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for garbage until the end of the block, nor in what is there then when the interpreter ends.

    Documents free themselves. The search takes a fifth of a check and a quarter of an audit.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def leave(code: int) -> NoReturn:
    """End the process with a code: the interpreter's own end looks for no garbage among all that is left."""
    gc.freeze()
    sys.exit(code)


def seldom() -> None:
    """Search after half a million new values, not after seven hundred: what a command makes mostly stays.

    Nothing is found among them.
    """
    gc.set_threshold(500_000)
