"""One rig a module and runtime, so that compile workers start once."""

from collections.abc import Iterator

import pytest

from tests.gates.beds import Bed, bed


@pytest.fixture(scope="module")
def simulated() -> Iterator[Bed]:
    """The virtual board."""
    with bed("simulated") as made:
        yield made


@pytest.fixture(scope="module")
def cuda() -> Iterator[Bed]:
    """The first CUDA toolkit here, for a board that need not be."""
    with bed("cuda") as made:
        yield made


@pytest.fixture(scope="module")
def pocl() -> Iterator[Bed]:
    """PoCL on this machine."""
    with bed("opencl") as made:
        yield made
