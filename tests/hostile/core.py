"""One entry per mechanism: the part of the hostile class that `make test` grades. SECURITY.md lists the promises."""

CORE = {
    # No undeserved points from attacks on the checks, on returned values, on the wire or on the notebook file.
    "all_right", "two_right", "forgot_the_base", "syntax_error_in_one_answer", "odd_but_right",
    "import_reference", "search_the_disk", "search_the_stack", "patch_builtins", "patch_torch_compare", "replays_the_seed",
    "in_place_seen", "tensor_subclass", "equal_to_anything", "returns_nan", "returns_itself_nested", "only_the_visible_values",
    "redefined_after_the_fact", "attention_spoils_the_weights", "an_error_called_broken_check",
    "frames_forged_reply", "frames_not_json", "frames_huge_sizes", "frames_deep_value", "frames_forged_verdict", "frames_shutdown",
    "forged_outputs", "forged_verdict_in_metadata", "edited_test_cells", "deleted_test_cells", "duplicated_test_cells",
    "changed_points", "swapped_grade_ids", "invented_graded_cell", "edited_setup_cell", "skip_execution_tags",
    "stray_modules_beside_the_notebook",
    # Nothing of the instructor's can be read or changed.
    "looks_around", "prints_the_environment", "prints_paths",
    "lists_processes", "network", "reads_other_students", "reads_the_gradebook_and_the_canary", "prints_the_seed",
    "prints_the_hidden_inputs", "raises_the_hidden_inputs", "writes_the_gradebook", "writes_other_submissions",
    "mounts_and_chroots", "writes_to_its_descriptors",
    # Nobody else is affected, nothing is left behind.
    "endless_loop", "sleeping_rotation", "forgets_the_increment", "everything_waits", "segfault", "memory_touched", "fork_bomb",
    "prints_a_flood", "tmpfs_full", "kills_everything", "closes_all_descriptors", "huge_return_values", "exits_for_one_base", "waits_for_input",
    "daemon", "daemon_without_death_signal", "ptrace_and_kill_the_server", "pipes_full", "lowers_its_own_limits", "files_in_tmp",
    # No silent 0 for what honest people hand in by mistake.
    "empty_file", "truncated", "merge_conflict", "zip_instead", "latin_1", "utf_16", "byte_order_mark", "gzip_of_it",
    "metadata_and_ids_stripped", "fifo_instead_of_the_file", "symlink_to_the_source", "symlinked_folder", "renamed",
    "no_notebook_at_all", "two_notebooks_of_other_names", "sixty_megabytes_of_output", "answers_retyped", "reordered_cells",
    "copied_with_its_grade_id", "answer_cell_deleted", "deep_json", "timestamp_garbage", "name_with_html", "star_in_a_name",
    # Pages are inert, and rendering ends.
    "script_in_markdown_answers", "script_in_markdown_attachments", "script_in_code_and_comments", "script_in_rich_outputs",
    "script_in_errors", "script_in_saved_outputs", "pictures_that_tell_who_reads_them", "picture_that_is_a_bomb",
    "picture_from_the_web_by_reference", "code_slow_to_colour", "brackets_storm", "formula_over_the_page", "prints_escapes",
    "heading_as_score_box",
}  # fmt: skip
