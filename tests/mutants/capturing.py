"""Bugs of capturing tables."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_sql

_TABLES = "tests/integration/journal/test_capture.py"
_CHANGES = "tests/integration/journal/test_capture_changes.py"
_PARTITIONS = "tests/integration/journal/test_capture_partitions.py"
_CHECK = "functions/capture/_check_capturable_v1.sql"

in_sql(
    "captured-batches-end-with-a-portion",
    "of a statement that changes many rows, what is handed over in a second portion has no events",
    "functions/capture/_append_changes_v1.sql",
    "coalesce(nullif(current_setting(_place, TRUE), ''), '0')::integer LOOP",
    "least(1, coalesce(nullif(current_setting(_place, TRUE), ''), '0')::integer) LOOP",
    Pytest(f"{_TABLES}::test_a_batch_beyond_one_portion_is_captured_whole"),
)
in_sql(
    "partitions-are-captured-by-themselves",
    "a partition is captured as if it were the table",
    _CHECK,
    "WHEN _class.relispartition THEN",
    "WHEN FALSE THEN",
    Pytest(f"{_PARTITIONS}::test_a_partition_by_itself_is_refused"),
)
in_sql(
    "partitions-elsewhere-are-captured",
    "a table is captured although a partition is on another server, where no trigger tells of it",
    _CHECK,
    "WHERE c.relkind = 'f'\n",
    "WHERE c.relkind = 'f' AND FALSE\n",
    Pytest(f"{_PARTITIONS}::test_a_partition_in_another_server_is_refused"),
)
in_sql(
    "captured-values-depend-on-the-session",
    "the text of a time, and with it a source, depends on the session that writes",
    "functions/capture/_describe_changes_v1.sql",
    "SET timezone = 'UTC'\n",
    "",
    Pytest(f"{_TABLES}::test_settings_of_a_session_change_neither_sources_nor_payloads"),
)
