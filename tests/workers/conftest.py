"""The rigs that tests of workers share: opening one costs a second."""

from collections.abc import Callable

import pytest

from qualify.bench import Rig
from qualify.boards import NATIVE
from tests.rigs import TOOLKITS, Trial


@pytest.fixture(scope="session")
def pocl(rigs: Callable[[str, str], Rig]) -> Rig:
    return rigs("pocl-3.0", NATIVE)


@pytest.fixture(scope="session")
def simulated(rigs: Callable[[str, str], Rig]) -> Rig:
    return rigs("simulated-1.0", NATIVE)


@pytest.fixture(params=TOOLKITS)
def trial(request: pytest.FixtureRequest, pocl: Rig, simulated: Rig) -> Trial:
    return Trial(pocl if request.param == "pocl-3.0" else simulated)
