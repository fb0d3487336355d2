"""Bugs of rebuilds: the fence, parts, what is swapped in, comparing with the journal, and repairing rows."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python, in_sql

_REBUILDS = "spark_projections/rebuilds"
_SWAP = "tests/integration/spark/test_rebuild_swap.py"
_WENT_BACK = "tests/integration/going_back/test_rebuild.py"
_RUN = "tests/integration/spark/test_rebuild.py"
_REFUSED = "tests/integration/spark/test_rebuild_refused.py"
_PARTS = "tests/property/test_rebuild_model.py"
_IN_USE = "tests/integration/spark/test_rebuild_in_use.py"
_VERIFY = "tests/integration/spark/test_verify.py"
_REPAIR = "tests/integration/spark/test_repair.py"
_DAMAGE = "tests/property/test_repair_model.py"

in_python(
    "fences-wait-for-nobody",
    "an append that is in flight when the fence is taken is before it, and is neither folded nor handled afterwards",
    f"{_REBUILDS}/fence.py: take_fence",
    "waited_for = first.holders - first.starts.keys()",
    "waited_for = frozenset()",
    Pytest(f"{_SWAP}::test_an_append_from_before_the_fence_is_waited_for_and_named"),
)
in_python(
    "fences-have-all-imports",
    "an import after the fence counts as read",
    f"{_REBUILDS}/fence.py: take_fence",
    "return Fence(time if until is None else min(time, until), import_id, last.generation.life)",
    "return Fence(time if until is None else min(time, until), import_id + 1, last.generation.life)",
    Pytest(f"{_SWAP}::test_history_that_is_imported_meanwhile_is_handled_once"),
)
in_sql(
    "parts-of-other-rebuilds-are-folded",
    "a task of a lost rebuild folds into another one that has its number",
    "functions/rebuilds/_lock_rebuild_part_v1.sql",
    "AND (p_started_at IS NULL OR b.started_at = p_started_at)",
    "",
    Pytest(f"{_WENT_BACK}::test_a_task_of_a_lost_rebuild_folds_nothing_into_another_of_its_number"),
)
in_python(
    "missing-events-are-folded-over",
    "a rebuild passes over events that are not in the journal any more",
    f"{_REBUILDS}/folding.py: _Part._check_numbers",
    "if envelope.seq_nr != known + 1 and not (may_be_gone and self._job.from_first_kept):",
    "if False:",
    Pytest(f"{_REFUSED}::test_deleted_history_is_said"),
)
in_python(
    "shadows-are-named-by-the-search-path",
    "a handler with a session writes to the table that serves",
    f"{_REBUILDS}/folding.py: _Part._check_written",
    "if row is None:",
    "if True:",
    Pytest(f"{_REFUSED}::test_a_handler_that_names_the_schema_of_its_table_is_refused"),
)
in_python(
    "the-greatest-of-parts-is-the-least",
    "a maximum of a shared row is the least of its parts",
    f"{_REBUILDS}/shadow.py: _combined",
    'direction = "ASC" if operation is ColumnOperation.MINIMUM else "DESC"',
    'direction = "ASC"',
    Pytest(f"{_PARTS}::test_live_and_rebuilt_tables_are_what_a_plain_loop_makes"),
)
in_python(
    "parts-without-a-value-come-first",
    "a greatest value of a shared row is NULL where a part has none",
    f"{_REBUILDS}/shadow.py: _combined",
    "NULLS LAST",
    "NULLS FIRST",
    Pytest(f"{_PARTS}::test_live_and_rebuilt_tables_are_what_a_plain_loop_makes"),
)
in_python(
    "sums-of-parts-may-be-null",
    "a shared row has NULL in place of zero where no part adds anything",
    f"{_REBUILDS}/shadow.py: _combined",
    'f"coalesce(sum({name}), 0)" if column.has_default else f"sum({name})"',
    'f"sum({name})"',
    Pytest(f"{_PARTS}::test_live_and_rebuilt_tables_are_what_a_plain_loop_makes"),
)
in_sql(
    "changed-tables-are-swapped",
    "a table that was altered while it was rebuilt is replaced by one without the change",
    "functions/rebuilds/_swap_rebuild_v1.sql",
    "OR projections._table_shape_v1(_table.table_oid::regclass) <> _table.shape THEN",
    "THEN",
    Pytest(f"{_IN_USE}::test_after_a_refused_swap_a_rebuild_from_the_start_succeeds"),
)
in_sql(
    "swaps-overlook-offsets-that-were-set",
    "a rebuild is swapped in over an offset that somebody has set meanwhile",
    "functions/rebuilds/_swap_rebuild_v1.sql",
    "AND p.evicted_before = _rebuild.evicted_before FOR NO KEY UPDATE",
    "FOR NO KEY UPDATE",
    Pytest(f"{_SWAP}::test_an_offset_that_was_set_past_the_fence_refuses_the_swap"),
)
in_sql(
    "swaps-trust-any-database",
    "a rebuild that was verified before a restore is swapped in after it",
    "functions/rebuilds/_swap_rebuild_v1.sql",
    "coalesce(p_started_at, _rebuild.started_at), coalesce(p_beats, _rebuild.beats)",
    "_rebuild.started_at, _rebuild.beats",
    Pytest(f"{_WENT_BACK}::test_a_rebuild_is_not_swapped_in_where_a_restored_database_has_it_verified"),
)
in_python(
    "changed-code-goes-on",
    "a rebuild goes on with what other code has folded",
    f"{_REBUILDS}/interrupted.py: left_behind",
    "if found.fingerprint != mark_of(definition, options, journal):",
    "if False:",
    Pytest(f"{_RUN}::test_changed_code_begins_anew"),
)
in_python(
    "lost-events-add-up",
    "a rebuild is swapped in that has folded events which are not in the journal any more",
    f"{_REBUILDS}/verifying.py: compare_counts",
    "if not differing:",
    "if True:",
    Pytest(f"{_REFUSED}::test_events_that_vanish_while_it_runs_are_noticed"),
)
in_python(
    "samples-are-not-compared",
    "a rebuild is swapped in whose rows are not what their source makes",
    f"{_REBUILDS}/verifying.py: compare_sample",
    "if (differing := await rows.differences(session, source_ids, 1)).total:",
    "if False and (differing := await rows.differences(session, source_ids, 1)).total:",
    Pytest(f"{_REFUSED}::test_rows_that_are_not_what_the_source_makes_are_noticed"),
)
in_python(
    "surplus-rows-are-no-difference",
    "a row that no event has made is not told",
    f"{_REBUILDS}/comparing.py: Rows._compare",
    "FULL JOIN",
    "RIGHT JOIN",
    Pytest(f"{_VERIFY}::test_the_rows_that_differ_are_listed_by_table_key_and_column"),
)
in_python(
    "repairs-leave-surplus-rows",
    "a repair leaves a row that no event of the source has made",
    f"{_REBUILDS}/comparing.py: Rows.replace",
    'f"AND NOT EXISTS (SELECT FROM {expected} AS x WHERE {same})",',
    '"AND FALSE",',
    Pytest(f"{_DAMAGE}::test_what_is_damaged_is_found_and_mended"),
)
in_python(
    "repairs-overlook-what-was-handled-meanwhile",
    "a repair takes away what a worker has handled while it was waiting for the tables",
    f"{_REBUILDS}/repairing.py: repair",
    """            await comparable(session, definition, read_from, shared=False)
            sources = await _known(reading, projection, wanted)
            await again.fold(await handled_until(session, number, sources))
""",
    """            await comparable(session, definition, read_from, shared=False)
""",
    Pytest(f"{_REPAIR}::test_a_batch_that_has_written_is_waited_for_and_folded"),
)
in_python(
    "parked-events-are-folded",
    "the event that a source is parked at is in the rows of a repair",
    f"{_REBUILDS}/refolding.py: _HANDLED",
    "SELECT k.seq_nr - 1 FROM",
    "SELECT k.seq_nr FROM",
    Pytest(f"{_VERIFY}::test_sources_that_are_parked_are_named"),
)
in_python(
    "other-versions-are-compared",
    "rows of another version of the code are repaired with this one",
    f"{_REBUILDS}/refolding.py: _check_code",
    'if row["version"] != projection.version:',
    "if False:",
    Pytest(f"{_REPAIR}::test_the_code_of_another_version_is_refused"),
)
