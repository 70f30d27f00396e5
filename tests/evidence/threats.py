"""Every threat to evidence that this version answers, by the code of its class, and the fixtures that plant it.

A fixture is an attack of `attacks`, `forgeries` or `disguises` by its name, or a test by file and function. Classes:
C content, S set of files, P paths and file types, N names, M manifest text, J parsers, V verdicts, L history, F
storage.
"""

from __future__ import annotations

_HOSTILE, _MANIFEST, _STORE = "test_hostile_files.py", "test_manifest.py", "test_store.py"
_TRICK = f"{_MANIFEST}::test_a_trick_has_its_code"
_ANSWERED = "test_audit.py::test_an_attack_is_answered"

THREATS: dict[str, tuple[str, ...]] = {
    # A byte changed; cut or emptied; zeroed; appended; two exchanged; hidden behind times and mode bits; repaired by
    # the verifier; a digest of another length; a quick look called verification; one kind of record for another.
    "C01": ("byte_changed", "test_damage.py::test_no_flipped_byte_verifies"),
    "C02": ("truncated", "emptied", "test_damage.py::test_no_cut_of_any_file_verifies"),
    "C03": ("zeroed",),
    "C04": ("appended",),
    "C05": ("exchanged",),
    "C06": ("changed_behind_its_times",),
    "C07": ("test_audit.py::test_an_untouched_store_verifies_and_says_what_that_is_worth", _ANSWERED),
    "C08": (f"{_HOSTILE}::test_a_file_that_is_written_while_it_is_read_is_unknown",),
    "C09": (_TRICK,),
    "C10": ("test_threats.py::test_verification_has_no_quicker_word",),
    "C11": ("measurement_of_another_gate", "record_of_another_run"),
    # A file too many; an editor's; one missing; file and line; renamed; an empty folder; a mark deleted; a required
    # file; no manifest or two.
    "S01": ("extra_file", "extra_file_rehashed", "file_of_no_run", "file_of_no_store"),
    "S02": ("editor_backup", "hidden"),
    "S03": ("file_missing",),
    "S04": ("object_and_line_missing", "file_and_line_missing"),
    "S05": ("file_renamed",),
    "S06": ("empty_folder", "empty_folders"),
    "S07": ("mark_deleted_under_a_later_plan",),
    "S08": ("subject_and_line_missing", "verdict_and_line_missing", "plan_and_line_missing"),
    "S09": ("manifest_missing", "second_manifest"),
    # Links, folders behind links, dangling links, hard links; FIFO, socket, mount; paths that climb, start at the root,
    # alias, are options or hold backslashes; swapped or written while read, or after; sparse; modes; depth.
    "P01": ("link_to_equal_bytes", "opened_plan_is_a_link"),
    "P02": ("run_is_a_link", "runs_is_a_link", f"{_STORE}::test_a_store_behind_a_link_is_not_written"),
    "P03": ("dangling_link",),
    "P04": ("hard_link",),
    "P05": ("listed_fifo", "extra_fifo", "opened_plan_is_a_fifo"),
    "P06": ("unix_socket", f"{_HOSTILE}::test_a_fifo_a_socket_and_a_device_are_refused_without_waiting"),
    "P07": (f"{_HOSTILE}::test_a_mount_point_is_refused",),
    "P08": ("climbs_out",),
    "P09": ("absolute",),
    "P10": ("dotted",),
    "P11": ("option",),
    "P12": ("backslash",),
    "P13": (f"{_HOSTILE}::test_links_are_not_followed",),
    "P14": (f"{_HOSTILE}::test_a_file_that_is_written_while_it_is_read_is_unknown",),
    "P15": ("../admissions/test_promote.py::test_evidence_that_does_not_verify_is_refused",),
    "P16": ("test_threats.py::test_no_file_is_mapped_into_memory",),
    "P17": ("endless", f"{_HOSTILE}::test_a_sparse_file_is_refused_by_its_size"),
    "P19": ("deep",),
    # Names that differ by case, by composition, in look-alikes; with line ends, backslashes, blanks; no UTF-8; encoded;
    # of other systems; with control characters.
    "N01": ("case_twin",),
    "N02": ("composed_and_decomposed_twins",),
    "N03": ("beyond_ascii", "text_that_runs_backwards"),
    "N04": ("line_end_in_a_name",),
    "N05": ("backslash_in_a_name",),
    "N06": ("blank_at_the_end",),
    "N07": ("not_utf8",),
    "N08": ("percent_in_a_name",),
    "N09": ("hidden", "editor_backup"),
    "N10": ("control_characters_in_a_name", "test_audit.py::test_names_and_messages_cannot_steer_a_terminal"),
    "M01": ("line_twice",),
    "M02": ("name_twice",),
    "M03": ("out_of_order",),
    "M04": ("carriage_returns",),
    "M05": ("upper_case", "comment"),
    "M06": ("empty",),
    "M07": ("nul",),
    "M08": ("lists_itself",),
    "M09": ("long_line", f"{_MANIFEST}::test_a_manifest_past_its_cap_is_not_parsed"),
    "M10": ("lists_a_folder",),
    "M11": ("other_spelling",),
    # What parsers accept: NaN, overflow, duplicate keys, many digits, depth, size, encodings, surrogates, a second
    # document, unknown keys, pickles; and any bytes at all.
    "J01": ("not_a_number",),
    "J02": ("number_that_overflows",),
    "J03": ("duplicate_key",),
    "J04": ("integer_of_many_digits",),
    "J06": ("nested",),
    "J07": ("huge",),
    "J08": ("../test_documents.py::test_what_yaml_can_do_and_a_contract_needs_not_is_refused_by_line",),
    "J09": ("utf16", "byte_order_mark", "bytes_that_are_no_text"),
    "J10": ("lone_surrogate",),
    "J11": ("two_documents",),
    "J12": ("unknown_key",),
    "J14": ("../house/test_sources.py::test_nothing_is_unpickled",),
    "J15": (
        "test_damage.py::test_any_bytes_in_a_judged_file_are_bad_and_never_an_exception",
        "test_damage.py::test_any_value_in_any_field_of_a_document_is_never_an_exception",
    ),
    # Verdicts edited; measurements dropped; limits moved; rules of another version; sources and domains exchanged.
    "V01": ("verdict_edited",),
    "V02": ("verdict_edited_and_rehashed", "fact_edited_and_rehashed"),
    "V03": ("test_audit.py::test_facts_and_verdict_rewritten_together_show_only_through_a_successor",),
    "V05": ("series_edited_and_rejudged", "failure_turned_to_not_run", "last_gate_turned_to_not_run"),
    "V06": ("limit_raised_after_the_fact",),
    "V07": ("rule_of_the_future", "judgement_of_the_future", "plan_of_the_future", "format_of_the_future"),
    "V08": ("input_edited_and_rehashed", "object_under_another_name", "module_of_other_sources"),
    "V09": ("subject_edited_and_rehashed", "cell_without_plain", "gate_called_conclusive_in_the_plan"),
    "L01": ("older_run_deleted",),
    "L03": ("older_run_rewritten",),
    "L05": ("plan_never_opened",),
    "L06": ("test_audit.py::test_the_newest_run_vanishes_only_as_opened",),
    "L07": ("run_under_another_name", "run_copied_under_another_id"),
    "L16": (f"{_STORE}::test_a_run_name_is_used_once", f"{_STORE}::test_a_sealed_place_is_never_replaced"),
    # Killed at any operation; an operation that fails; no space; unreadable; two writers; a rename that replaces.
    "F01": ("test_crash.py::test_a_kill_before_or_after_any_operation_leaves_the_old_state_or_the_new",),
    "F03": ("../cli/test_bad_input.py::test_no_space_while_sealing_keeps_the_plan_and_no_run",),
    "F04": ("test_crash.py::test_an_operation_that_fails_ends_the_run_and_is_not_tried_again",),
    "F05": ("test_audit.py::test_what_cannot_be_read_is_unknown",),
    "F07": (f"{_STORE}::test_of_two_writers_with_one_name_one_wins",),
    "F08": (f"{_STORE}::test_two_writers_share_a_store",),
    "F10": (f"{_STORE}::test_a_sealed_place_is_never_replaced",),
    "F11": (f"{_STORE}::test_a_file_system_without_an_exclusive_rename_is_refused_before_anything_is_on_record",),
    "F14": ("test_audit.py::test_staging_and_the_heads_cache_are_never_looked_at",),
}
