"""One rig a runtime, so that compile workers start once."""

from collections.abc import Iterator

import pytest

from tests.gates.beds import Bed, bed


@pytest.fixture(scope="session")
def simulated() -> Iterator[Bed]:
    """The virtual board."""
    with bed("simulated") as made:
        yield made


@pytest.fixture(scope="session")
def cuda() -> Iterator[Bed]:
    """The first CUDA toolkit here, for a board that need not be."""
    with bed("cuda") as made:
        yield made


@pytest.fixture(scope="session")
def pocl() -> Iterator[Bed]:
    """PoCL on this machine."""
    with bed("opencl") as made:
        yield made
