"""Whatever one place of a cohort is turned into, loading it gives subjects or an error with file and line."""

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from qualify import cohort
from qualify.errors import InputError
from tests.cohort.bench import COHORT, CUDA, LIMITS, OPENCL, write
from tests.conftest import examples

WHOLE = yaml.safe_load(COHORT)
#: Values that are nearly right somewhere, and some that are right nowhere.
VALUES: list[Any] = [
    None, True, 0, -1, 7, 1 << 62, "", "x", "rows", "rows * rows * rows", "rows // 0", "4611686018427387904 * rows",
    "{dtype}", "{runtime}", "{no}", "}", "../x", "/x", "common/x", "a\nb", "\0", "é", "1e-5", "1/3", "float64", "int8",
    "scratch", "scalar", "input", [], [[]], ["rows"], ["0"], ["rows", "cols", "2", "3"], {}, {"memset": "y"},
    {"normal": {"mean": "0", "scale": "1"}}, {"uniform": {"low": "1", "high": "0"}}, "cuda", "simulated", "sm_90a",
]  # fmt: skip


def places(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place of a value below its top."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in items for place in ((*at, key), *places(inner, (*at, key)))]


def changed(place: tuple[str | int, ...], new: Any, *, added: bool) -> Any:
    """The cohort with one place replaced, or with a field of that name added beside it."""
    whole = copy.deepcopy(WHOLE)
    parent = whole
    for part in place[:-1]:
        parent = parent[part]
    if added and isinstance(parent, dict):
        parent["init" if place[-1] == "kind" else "target"] = new
    else:
        parent[place[-1]] = new
    return whole


@given(st.sampled_from(places(WHOLE)), st.sampled_from(VALUES), st.booleans())
@settings(max_examples=examples(250), deadline=None)
def test_any_one_change_gives_subjects_or_an_error_with_its_line(
    place: tuple[str | int, ...], new: Any, added: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps(changed(place, new, added=added), indent=1)
        workspace = write(Path(folder), scale_cohort_yaml=text)
        assert outcome(workspace) <= {"cohorts/scale/cohort.yaml", "composed", "broken"}


def outcome(workspace: Path) -> set[str]:
    """The file that is refused, or what became of the routes in two domains."""
    try:
        loaded = cohort.load(workspace, "scale")
    except InputError as error:
        return {error.where.partition(":")[0]}
    arms = [
        item.candidate for domain in (OPENCL, CUDA) for item in cohort.subjects(loaded, domain, LIMITS, "b").subjects
    ]
    return {"composed" if arm.identity else "broken" if arm.error else "neither" for arm in arms}
