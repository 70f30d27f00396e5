"""A folder in memory for the tests that write hundreds of stores: there an fsync costs nothing."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """An empty folder on a tmpfs; in the system's temporary folder where there is none."""
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as path:
        yield Path(path)
