"""Rigs that open when a test first asks for their runtime, once a session."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from qualify.domain import Runtime
from tests.gates.beds import Bed, bed


@pytest.fixture(scope="session")
def beds() -> Iterator[Callable[[Runtime], Bed]]:
    """The bed of each runtime."""
    with ExitStack() as stack:
        yield cache(lambda runtime: stack.enter_context(bed(runtime)))
