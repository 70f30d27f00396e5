"""The beds of all runtimes, by name."""

from collections.abc import Callable

import pytest

from qualify.domain import Runtime
from tests.gates.beds import Bed


@pytest.fixture(scope="session")
def simulated(beds: Callable[[Runtime], Bed]) -> Bed:
    """The virtual board."""
    return beds("simulated")


@pytest.fixture(scope="session")
def cuda(beds: Callable[[Runtime], Bed]) -> Bed:
    """The first CUDA toolkit here, for a board that need not be."""
    return beds("cuda")


@pytest.fixture(scope="session")
def pocl(beds: Callable[[Runtime], Bed]) -> Bed:
    """PoCL on this machine."""
    return beds("opencl")
