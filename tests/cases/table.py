"""What went wrong elsewhere, case by case, and the tests that cover its whole kind.

The cases are public reports of kernel projects and measured output of compilers, in groups: A reports of compilers,
B builds here and not there, C answers, D times, E occupancy and launches, F reproducibility and evidence.
"""

from __future__ import annotations

_ADVERSARIES = "tests/adversaries/test_tricks.py::test_the_named_gate_stops_it_and_lets_its_honest_twin_pass"
_KERNELS = "tests/adversaries/test_cases.py::test_what_failed_elsewhere_closes_here"
_BOARD = "tests/adversaries/test_timing.py::"
_REPORTS = "tests/test_resources.py::"
_FINDINGS = "tests/test_diagnostics.py::"
_NVRTC = "tests/workers/test_nvrtc.py::"
_TIMING = "tests/gates/test_timing.py::"
_TRIAL = "tests/gates/test_trial.py::"
_OCCUPANCY = "tests/gates/test_occupancy.py::"
_TIMES = "tests/cases/test_times.py::"

#: Each case in a few words, and where its kind is tested.
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "A01": (
        "one log, two targets, the same entry names",
        (f"{_REPORTS}test_entries_are_told_apart_by_target",),
    ),
    "A02": (
        "names of hundreds of characters, no shared memory on the line",
        (f"{_REPORTS}test_long_names_and_an_installers_blanks",),
    ),
    "A04": (
        "linkers' logs without the tool's name, and none the second time",
        (f"{_REPORTS}test_linkers_without_the_tools_name",),
    ),
    "A05": (
        "register hints dropped under a code that names no function",
        (
            f"{_FINDINGS}test_a_code_without_a_function_belongs_to_the_module",
            f"{_NVRTC}test_a_suffix_is_the_routes",
            "tests/gates/test_compile.py::test_advisories_and_idle_constants_are_notes",
        ),
    ),
    "A07": (
        "registers and stack that only the linker knows",
        (
            f"{_REPORTS}test_a_relocatable_build_is_judged_by_its_linker",
            "tests/workers/test_cubin.py::test_a_relocatable_object_is_not_linked",
        ),
    ),
    "A08": (
        "a refused build with a report that looks complete",
        (
            f"{_REPORTS}test_a_refused_build_stays_refused_beside_a_complete_record",
            f"{_NVRTC}test_a_refused_build_with_a_complete_record_is_refused",
        ),
    ),
    "A10": (
        "register limits and bounds that the tool gave up",
        (
            f"{_FINDINGS}test_a_contradicted_register_limit",
            f"{_FINDINGS}test_dropped_launch_bounds_name_the_entry",
        ),
    ),
    "A11": (
        "prefixes, line ends, encodings, functions between entries",
        (f"{_REPORTS}test_prefixes_line_ends_encodings_and_functions_between",),
    ),
    "B01": (
        "built for the plain target, where the kernel is empty",
        (_KERNELS, f"{_NVRTC}test_one_source_for_two_targets_is_two_objects"),
    ),
    "B02": (
        "an instruction that only a suffixed target has",
        (f"{_FINDINGS}test_an_instruction_that_the_target_lacks", f"{_NVRTC}test_a_suffix_is_the_routes"),
    ),
    "B04": (
        "one register that costs a block",
        (f"{_OCCUPANCY}test_a_register_that_costs_a_block_is_told_and_one_that_does_not_is_not",),
    ),
    "B05": (
        "a renamed kernel has other machine code",
        (
            "tests/cohort/test_composition.py::test_any_change_of_what_is_compiled_or_launched_changes_the_identity",
            f"{_NVRTC}test_whatever_changes_in_a_module_changes_the_object",
        ),
    ),
    "B07": ("targets and options that come and go", ("tests/test_targets.py::test_the_measured_table",)),
    "B08": (
        "a promise of resident blocks that only some chips can keep",
        (f"{_NVRTC}test_a_residency_promise_is_judged_for_each_target",),
    ),
    "C01": ("never written, and equal to what lay there", (_ADVERSARIES,)),
    "C02": (
        "zeros within a tolerance",
        (
            _ADVERSARIES,
            "tests/gates/test_numeric.py::test_an_output_that_nobody_computed_fails_as_a_candidate",
            "tests/gates/test_numeric.py::test_a_judge_that_lets_zeros_pass_says_so",
        ),
    ),
    "C04": (
        "a race that some builds hide",
        (
            _KERNELS,
            "tests/gates/test_memcheck.py::test_oclgrind_tells_the_nearest_kernels_apart",
        ),
    ),
    "C05": ("the tail of a row in the next row", (_KERNELS, _ADVERSARIES)),
    "C07": ("a leading dimension that is ignored", (_KERNELS,)),
    "C08": ("NaN that a maximum drops", (_KERNELS, "tests/gates/test_numeric.py::test_opencl_kernels")),
    "C10": ("contraction changes the last bit", (_KERNELS,)),
    "C11": ("float atomics, another sum in every run", (_KERNELS,)),
    "C13": ("an input used as scratch", (_ADVERSARIES,)),
    "C14": ("lanes that are not there take part in a maximum", (_KERNELS,)),
    "C16": ("32-bit indices on a large shape", (_KERNELS,)),
    "C17": ("right for ten calls", (_ADVERSARIES, f"{_TRIAL}test_scripted_candidates")),
    "D02": (
        "events on one stream, work on another",
        ("tests/gates/test_timing_clock.py::test_work_that_the_devices_clock_does_not_see_is_inconclusive",),
    ),
    "D03": (
        "an empty graph",
        (
            "tests/devices/test_cuda.py::test_passes_that_launch_nothing_have_no_time",
            "tests/gates/test_digest.py::test_a_census_counts_memsets_but_not_of_nothing",
            "tests/gates/test_digest.py::test_a_kernel_that_does_nothing_in_replays_is_caught_on_a_board",
        ),
    ),
    "D05": (
        "lines that persist through a flush",
        (
            f"{_BOARD}test_what_is_no_gain_is_none",
            "tests/gates/test_roofline.py::test_a_segment_at_the_copy_ceiling_passes_and_memory_binds",
        ),
    ),
    "D06": (
        "clocks that fall in the middle",
        (
            f"{_TIMES}test_a_board_that_slows_down_halfway_makes_nobody_faster",
            f"{_TIMING}test_a_disturbed_window_is_measured_again_whichever_arm_it_hurt",
            "tests/test_paired_rejection.py::test_without_a_majority_no_window_counts",
        ),
    ),
    "D08": (
        "the host's overhead decides who wins",
        (
            f"{_TIMING}test_segments_that_the_host_paced_are_rejected_and_unknown_ones_prove_nothing",
            f"{_TIMING}test_a_faster_candidate_passes_with_its_bound",
            f"{_BOARD}test_what_is_no_gain_is_none",
        ),
    ),
    "D09": ("the first call compiles", (f"{_TIMES}test_calls_that_compile_are_in_no_median",)),
    "D11": (
        "friendly shapes",
        (
            f"{_TIMES}test_a_gain_on_friendly_sizes_is_no_gain_on_their_neighbours",
            "tests/test_cohorts.py::test_cells_are_round_ragged_and_tiny_and_the_tiny_one_is_not_timed",
        ),
    ),
    "D12": (
        "the same binary wins against itself",
        (
            f"{_TIMES}test_a_place_in_the_order_that_costs_six_percent_makes_nobody_faster",
            f"{_TIMING}test_a_penalty_on_whoever_runs_first_favours_nobody",
        ),
    ),
    "D14": (
        "times under another kernel's name",
        ("tests/evidence/test_audit.py::test_an_attack_is_answered",),
    ),
    "E01": (
        "a ceiling of static shared memory for each release and suffix",
        (
            "tests/cases/test_static_shared.py::test_one_byte_over_the_tools_own_ceiling_is_refused",
            f"{_REPORTS}test_too_much_shared_memory_names_the_tools_own_ceiling",
        ),
    ),
    "E03": (
        "a budget of shared memory for another chip",
        (f"{_OCCUPANCY}test_a_block_that_fits_nowhere_is_told_by_how_much",),
    ),
    "E04": (
        "too many registers for the block",
        (
            f"{_OCCUPANCY}test_a_block_that_fits_nowhere_is_told_by_how_much",
            f"{_OCCUPANCY}test_the_nearest_block_that_fits",
        ),
    ),
    "E06": (
        "warps, units of registers, partitions",
        ("tests/test_occupancy.py::test_the_vendors_own_numbers_limiter_included",),
    ),
    "E07": ("barriers limit blocks", (f"{_OCCUPANCY}test_barriers_count_from_hopper_on",)),
    "E09": (
        "blocks that must all be resident",
        (
            f"{_OCCUPANCY}test_a_cooperative_grid_is_resident_as_a_whole",
            "tests/gates/test_residency.py::test_a_cooperative_grid_is_held_whole",
            "tests/devices/test_cuda.py::test_an_endless_kernel_is_killed_and_the_board_is_clean_after_it",
        ),
    ),
    "E10": (
        "sources that contradict each other",
        (
            "tests/test_occupancy.py::test_the_published_limits",
            f"{_OCCUPANCY}test_sources_that_differ_are_shown",
        ),
    ),
    "F01": (
        "a kernel cache that misses a changed constant",
        ("tests/adversaries/test_cases.py::test_an_include_that_changed_is_another_module_with_other_bits",),
    ),
    "F02": (
        "a compiler cache keyed on what the device compiler sees",
        (
            "tests/cases/test_keys.py::test_text_that_no_compiler_sees_is_part_of_the_identity",
            "tests/workers/test_sandbox.py::test_a_worker_has_nothing_of_its_parents",
        ),
    ),
    "F04": (
        "a cut object",
        ("tests/workers/test_cubin.py::test_a_cut_file_still_has_its_header_and_is_refused_for_its_table",),
    ),
    "F05": (
        "one key for two chips",
        (
            "tests/cases/test_keys.py::test_every_target_and_toolkit_has_a_key_of_its_own",
            f"{_NVRTC}test_one_source_for_two_targets_is_two_objects",
        ),
    ),
    "F07": ("no report on a cache hit", (f"{_REPORTS}test_a_successful_build_without_a_record_is_unknown",)),
    "F08": (
        "PTX newer than its reader",
        (
            "tests/test_ptx.py::test_a_version_from_the_future_is_read_as_it_stands",
            f"{_FINDINGS}test_a_refused_version_is_named",
        ),
    ),
    "F10": (
        "a header in two layouts, and a suffix that no flag holds",
        (
            "tests/workers/test_cubin.py::test_the_suffix_is_the_notes_or_unknown",
            "tests/workers/test_cubin.py::test_flags_of_both_layouts_give_the_targets_number",
        ),
    ),
    "F11": (
        "a regressed run replaces the baseline",
        (
            "tests/admissions/test_promote.py::"
            "test_a_loser_is_rejected_and_no_other_name_and_no_comment_makes_it_a_first_attempt",
            "tests/admissions/test_file.py::test_appending_keeps_every_byte_of_what_was_there",
        ),
    ),
    "F13": (
        "a tuning profile older than its kernel",
        (
            "tests/cases/test_keys.py::test_tuning_and_kernel_are_one_identity",
            "tests/admissions/test_check.py::test_a_reworded_comment_closes_every_cell_that_the_fragment_serves",
        ),
    ),
    "F14": (
        "an include that is no part of the key, a log that comes only once",
        ("tests/adversaries/test_cases.py::test_an_include_that_changed_is_another_module_with_other_bits",),
    ),
}
