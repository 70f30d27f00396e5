"""The rig of each toolkit. A session holds the board alone, so a test has either the shared one or its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qualify.bench import Rig
from qualify.boards import NATIVE
from tests.rigs import DEVICES


@pytest.fixture(scope="session", params=DEVICES)
def rig(request: pytest.FixtureRequest, rigs: Callable[[str, str], Rig]) -> Rig:
    return rigs(request.param, NATIVE)
