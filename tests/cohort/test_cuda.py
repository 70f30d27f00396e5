"""Every route of this repository's cohorts is compiled for CUDA by every toolkit here, and its host gates pass."""

from pathlib import Path

import pytest

from gates import GATES
from qualify import cohort, cuda_toolkits
from qualify.bench import Rig
from qualify.engine import Gates
from qualify.gate import Bench
from qualify.subject import Subject
from qualify.verdict import Verdict
from tests.gates.build import verdict

ROOT = Path(__file__).parents[2]
OPERATIONS = sorted(path.parent.name for path in (ROOT / "cohorts").glob("*/cohort.yaml"))
RELEASES = dict.fromkeys(release for release, _ in cuda_toolkits.here())
HOST: Gates = {name: GATES[name] for name in ("contract", "compile")}


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: f"cuda-{release[0]}.{release[1]}")
def test_every_route_compiles_for_a_board_that_need_not_be_here(release: tuple[int, int]) -> None:
    with Rig.open(f"cuda-{release[0]}.{release[1]}", "sm_90") as rig:
        for operation in OPERATIONS:
            item = cohort.load(ROOT, operation)
            found = cohort.subjects(item, rig.domain, rig.limits, rig.toolkit_build)
            rig.supply(found.composed, found.reference, bytes(32))
            assert len(found.subjects) > len(item.cells)
            for subject in found.subjects:
                for name in HOST:
                    said = judged(name, subject, rig.bench(subject, {}))
                    assert said.outcome == "pass", (operation, subject.key, name, said)


def judged(name: str, subject: Subject, bench: Bench) -> Verdict:
    """What a gate says of a subject."""
    gate = HOST[name]
    return verdict(name, subject, gate.measure(subject, bench, gate.rule.settings()))
