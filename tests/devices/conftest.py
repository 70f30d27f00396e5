"""The rig of each toolkit. A session holds the board alone, so a test has either the shared one or its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qualify.bench import Rig
from tests.rigs import DEVICES


@pytest.fixture(scope="session", params=DEVICES)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with Rig.open(request.param) as opened:
        yield opened
