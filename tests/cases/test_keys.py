"""What has a key of its own: a target, a toolkit's build, a text that no compiler sees, a kernel with its tuning."""

from __future__ import annotations

from pathlib import Path

from qualify import cohort
from qualify.domain import Domain
from tests.cohort.bench import FILES, LIMITS, edited, identity, select, write

TARGETS = (
    ("cuda-13.2", "sm_90", "13.2.86"),
    ("cuda-13.2", "sm_90", "13.2.87"),
    ("cuda-13.0", "sm_90", "13.0.88"),
    ("cuda-13.2", "sm_100", "13.2.86"),
    ("cuda-13.2", "sm_103", "13.2.86"),
)


def test_every_target_and_toolkit_has_a_key_of_its_own(tmp_path: Path) -> None:
    """F05: and a suffix makes another target of the same chip."""
    workspace = write(tmp_path / "plain")
    suffixed = write(tmp_path / "suffixed", scale_cohort_yaml=edited("plain.k], ", "plain.k], target: sm_90a, "))
    found = [
        cohort.subjects(cohort.load(folder, "scale"), Domain(toolkit=toolkit, arch=arch), LIMITS, build).subjects
        for folder, (toolkit, arch, build) in [*((workspace, each) for each in TARGETS), (suffixed, TARGETS[0])]
    ]
    arms = [each.candidate for subjects in found for each in subjects if each.key == ("big", "plain")]
    assert [each.target for each in arms] == ["sm_90", "sm_90", "sm_90", "sm_100", "sm_103", "sm_90a"]
    assert None not in {each.identity for each in arms}
    assert len({each.identity for each in arms}) == len(TARGETS) + 1


def test_text_that_no_compiler_sees_is_part_of_the_identity(tmp_path: Path) -> None:
    """F02: a key of preprocessed text would not see it."""
    hidden = '#ifdef NEVER\nconst char *tag = "{}";\n#endif\n'
    one, two = (
        identity(write(tmp_path / tag, scale_fast_k=hidden.format(tag) + FILES["scale/fast.k"])) for tag in ("a", "b")
    )
    assert one != two


def test_tuning_and_kernel_are_one_identity(tmp_path: Path) -> None:
    """F13: block and grid of an older kernel make, with a newer one, neither the old route nor its time."""
    tuned = edited("block: [64]", "block: [128]")
    newer = FILES["scale/fast.k"] + "// A table in shared memory.\n"
    found = {
        identity(write(tmp_path / f"{number}", **files))
        for number, files in enumerate(({}, {"scale_cohort_yaml": tuned}, {"scale_fast_k": newer}))
    }
    found.add(identity(write(tmp_path / "both", scale_cohort_yaml=tuned, scale_fast_k=newer)))
    assert len(found) == 4
    assert select(tmp_path / "both").subjects
