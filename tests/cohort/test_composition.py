"""A route is composed from the bytes it names and nothing else; one that cannot be is an arm with its error."""

from collections.abc import Callable
from pathlib import Path

import pytest

from qualify import cohort
from qualify.contract import Memset
from qualify.domain import Domain
from qualify.identity import identify
from qualify.plan import FallsBack
from tests.cohort.bench import (
    COHORT,
    CUDA,
    FILES,
    LIMITS,
    OPENCL,
    changed_lines,
    edited,
    identity,
    select,
    subject,
    write,
)


def test_a_composed_arm_has_its_launches_and_the_identity_of_its_module(tmp_path: Path) -> None:
    found = select(write(tmp_path))
    fast = next(item for item in found.subjects if item.key == ("big", "fast")).candidate
    assert fast.identity is not None
    composed = found.composed[fast.identity]
    assert identify("module", composed.module) == composed.identity == fast.identity
    assert [ref.path for ref in composed.module.fragments] == ["common/opencl.h", "scale/fast.k"]
    assert composed.fragments["scale/fast.k"] == FILES["scale/fast.k"].encode()
    assert (composed.module.defines, composed.module.target) == ({"T": "float32"}, "cpu")
    assert composed.module.toolkit_build == "build 1"
    assert fast.launches[0] == Memset(memset="y")
    assert (fast.kernels[0].grid, fast.kernels[0].block) == ((2, 1, 1), (64, 1, 1))


def test_the_prelude_follows_the_runtime(tmp_path: Path) -> None:
    workspace = write(tmp_path, scale_fast_k="void fast() {}\n")
    found = select(workspace, CUDA)
    module = next(iter(found.composed.values())).module
    assert (module.fragments[0].path, module.runtime, module.target) == ("common/cuda.h", "cuda", "sm_90")
    assert identity(workspace, domain=CUDA) != identity(workspace, domain=OPENCL)


def test_plain_is_first_in_each_cell_and_is_its_own_incumbent(tmp_path: Path) -> None:
    found = select(write(tmp_path))
    assert [item.key for item in found.subjects] == [("big", "plain"), ("big", "fast"), ("small", "plain")]
    assert [item.role for item in found.subjects] == ["plain", "candidate", "plain"]
    assert all(item.incumbent.route == "plain" for item in found.subjects)
    assert found.falls_back == (FallsBack(cell="small", route="fast", admits="cols % 2 == 0"),)


def test_filters_keep_plain_and_may_leave_nothing(tmp_path: Path) -> None:
    loaded = cohort.load(write(tmp_path), "scale")

    def keys(cells: set[str] | None = None, routes: set[str] | None = None) -> list[tuple[str, str]]:
        found = cohort.subjects(loaded, OPENCL, LIMITS, "b", cells=cells, routes=routes)
        return [item.key for item in found.subjects]

    assert keys(routes={"fast"}) == [("big", "plain"), ("big", "fast")]
    assert keys(cells={"small"}) == [("small", "plain")]
    assert keys(cells={"small"}, routes={"fast"}) == []
    assert keys(cells={"none"}) == []


def test_a_route_of_another_frontend_falls_back(tmp_path: Path) -> None:
    text = edited("    options: []", "    frontend: cuda")
    workspace = write(tmp_path, scale_cohort_yaml=text, scale_fast_k="void fast() {}")
    assert FallsBack(cell="big", route="fast", admits="frontend cuda") in select(workspace, OPENCL).falls_back
    assert identity(workspace, domain=CUDA)


Change = Callable[[Path], object]


def rewrite(path: str, old: str, new: str) -> Change:
    def change(workspace: Path) -> None:
        file = workspace / "cohorts" / path
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    return change


@pytest.mark.parametrize(
    "change",
    [
        rewrite("scale/fast.k", "fast()", "fast( )"),
        rewrite("common/opencl.h", "1", "2"),
        rewrite("scale/cohort.yaml", "options: []", "options: [-w]"),
        rewrite("scale/cohort.yaml", "{T: ", "{U: "),
        rewrite("scale/cohort.yaml", '"{dtype}"}\n', '"{dtype}1"}\n'),
        rewrite("scale/cohort.yaml", "rows // 4", "rows // 2"),
        rewrite("scale/cohort.yaml", "{memset: y}", "{memset: y, byte: 1}"),
        rewrite("scale/cohort.yaml", "kind: input,", "kind: input, align: 8,"),
        rewrite("scale/cohort.yaml", "kind: input,", "kind: input, fill: {normal: {mean: 0, scale: 1}},"),
        rewrite("scale/cohort.yaml", "value: rows", "value: cols"),
        rewrite("scale/cohort.yaml", '["common/{runtime}.h", fast.k]', '[fast.k, "common/{runtime}.h"]'),
    ],
)
def test_any_change_of_what_is_compiled_or_launched_changes_the_identity(tmp_path: Path, change: Change) -> None:
    workspace = write(tmp_path)
    before = identity(workspace)
    change(workspace)
    assert identity(workspace) != before


def test_a_byte_moved_over_a_fragments_boundary_changes_the_identity(tmp_path: Path) -> None:
    text = edited("plain.k]", "body.k]")
    ends = (("int a;\n", "int b;\n"), ("int a;\nint ", "b;\n"))
    found = set()
    for number, (header, body) in enumerate(ends):
        workspace = write(tmp_path / str(number), common_opencl_h=header, scale_cohort_yaml=text)
        (workspace / "cohorts/scale/body.k").write_text(body)
        found.add(identity(workspace, "plain"))
    assert len(found) == 2


def test_spelling_of_the_yaml_does_not_change_the_identity(tmp_path: Path) -> None:
    flow = '{symbol: fast, grid: ["rows // 4"], block: [64]}'
    block = "block: [64]\n        symbol: 'fast'\n        grid: ['rows//4']   # in blocks"
    assert flow in COHORT
    before = identity(write(tmp_path / "a"))
    again = identity(write(tmp_path / "b", scale_cohort_yaml=edited(f"- {flow}", f"- {block}")))
    other = subject(write(tmp_path / "c", scale_cohort_yaml=edited("rows: 1,", "rows: 2,")), "fast").candidate.identity
    assert before == again == other


@pytest.mark.parametrize(
    ("old", "new", "says", "fix"),
    [
        ("rows // 4", "rows // 9", "launches[1].grid[0]: expected at least 1, got 0", "by admits"),
        ("[64]", "[64, 0]", "launches[1].block[1]: expected at least 1, got 0", "correct the formula"),
        ("[64]", "[64], shared: -1", "launches[1].shared: expected at least 0", "correct"),
        ("rows // 4", "rows // (rows - 8)", "launches[1].grid[0]: expected divisors", "correct column 6"),
        ("cols % 2 == 0", "cols % (rows - 8) == 0", "admits: expected divisors", "correct column 6"),
        (" fast.k]", " none.k]", "fragments[1]: expected a regular file, got nothing", "put it at"),
        (" fast.k]", " ../x.k]", "fragments[1]: expected a path below", "put the fragment"),
        (" fast.k]", " /etc/passwd]", "fragments[1]: expected a path below", "put the fragment"),
        (" fast.k]", " fast.k, fast.k]", "fragments[2]: expected each fragment once", "remove"),
        ("options: []", "options: [-I/etc]", "options[0]: expected an option for opencl", "remove it"),
        ("options: []", "options: ['-w -I /etc']", "options[0]: expected an option", "remove it"),
        ("options: []", "options: ['-include x']", "options[0]: expected an option", "remove it"),
        ("options: []", "options: ['@file']", "options[0]: expected an option", "remove it"),
        ("options: []", "target: sm_90", "target: expected a variant", "remove target"),
        ('"{dtype}"}\n', '"a\\nb"}\n', "defines.T: expected one line of tokens", "write it in a fragment"),
        ('"{dtype}"}\n', '"/*"}\n', "defines.T: expected one line of tokens", "write it in a fragment"),
        ('"{dtype}"}\n', "'__has_include(<x>)'}\n", "defines.T: expected one", "write it in a fragment"),
    ],
)  # fmt: skip
def test_a_route_that_cannot_be_composed_is_an_arm_with_its_error(
    tmp_path: Path, old: str, new: str, says: str, fix: str
) -> None:
    text = edited(old, new)
    found = broken(write(tmp_path, scale_cohort_yaml=text))
    assert found.startswith(f"cohorts/scale/cohort.yaml:{min(changed_lines(text))}: routes.fast.{says}"), found
    assert fix in found.split("fix: ")[1]


def broken(workspace: Path, domain: Domain = OPENCL) -> str:
    """The error of the route `fast`, whose neighbour is whole."""
    found = select(workspace, domain)
    arms = {item.key: item.candidate for item in found.subjects}
    assert arms["big", "plain"].identity is not None
    fast = arms["big", "fast"]
    assert fast.identity is None
    assert fast.launches == ()
    assert fast.error is not None
    return fast.error


@pytest.mark.parametrize(
    ("text", "line", "got"),
    [
        ('\n#include "/etc/passwd"', 2, '#include "/etc/passwd"'),
        ('#define F "common/opencl.h"\n#include F', 2, "#include F"),
        ('#include "fast.k"', 1, '"fast.k"'),
        ('#include "plain.k"', 1, '"plain.k"'),
        ('#include "scale/plain.k"', 1, '"scale/plain.k"'),
        ("#include <math.h>", 1, "<math.h>"),
        ('/**/ %:include "x.h"', 1, '"x.h"'),
        ('#import "common/opencl.h"', 1, "#import"),
    ],
)
def test_an_include_out_of_the_module_breaks_the_route_at_its_line(
    tmp_path: Path, text: str, line: int, got: str
) -> None:
    found = broken(write(tmp_path, scale_fast_k=text))
    assert found.startswith(f"cohorts/scale/fast.k:{line}: expected ")
    assert f"got {got}\n  fix: " in found


def test_headers_of_the_toolkit_are_for_cuda_only(tmp_path: Path) -> None:
    workspace = write(tmp_path, scale_fast_k="#include <cuda_fp16.h>\n")
    assert identity(workspace, domain=CUDA)
    assert "<cuda_fp16.h>" in broken(workspace, OPENCL)


def test_a_target_is_a_variant_of_the_domains_architecture(tmp_path: Path) -> None:
    text = edited("options: []", "target: sm_90a")
    workspace = write(tmp_path, scale_cohort_yaml=text, scale_fast_k="void fast() {}")
    assert identity(workspace, domain=CUDA) != identity(
        write(tmp_path / "plain", scale_fast_k="void fast() {}"), domain=CUDA
    )
    other = Domain(toolkit="cuda-13.2", arch="sm_100")
    assert "sm_100, sm_100a, sm_100f" in broken(workspace, other)


def test_a_linked_fragment_is_not_read(tmp_path: Path) -> None:
    workspace = write(tmp_path)
    (workspace / "cohorts/scale/fast.k").unlink()
    (workspace / "cohorts/scale/fast.k").symlink_to("/etc/passwd")
    assert "got a link at cohorts/scale/fast.k" in broken(workspace)
