"""One rig a toolkit for all tests of workers: opening one costs a second."""

from collections.abc import Iterator

import pytest

from qualify.bench import Rig
from tests.rigs import TOOLKITS, Trial


@pytest.fixture(scope="session")
def pocl() -> Iterator[Rig]:
    with Rig.open("pocl-3.0") as rig:
        yield rig


@pytest.fixture(scope="session")
def simulated() -> Iterator[Rig]:
    with Rig.open("simulated-1.0") as rig:
        yield rig


@pytest.fixture(params=TOOLKITS)
def trial(request: pytest.FixtureRequest, pocl: Rig, simulated: Rig) -> Trial:
    return Trial(pocl if request.param == "pocl-3.0" else simulated)
