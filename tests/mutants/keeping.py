"""Bugs of the archive, of what is dropped or erased with it, and of what a rebuild keeps of a row."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python, in_sql

_ERASED = "tests/integration/webhooks/test_erasing_archived.py"
_CHANGES = "tests/integration/partitions/test_archive_changes.py"

in_sql(
    "archived-rows-are-only-counted",
    "a partition is dropped that has as many rows as were archived, and not the same",
    "functions/maintenance/_check_archived_v1.sql",
    "ELSIF _content IS DISTINCT FROM p_content THEN",
    "ELSIF FALSE THEN",
    Pytest(f"{_CHANGES}::test_row_that_changes_between_the_export_and_the_drop_keeps_the_partition"),
)
in_python(
    "changed-rows-are-offered-for-detaching",
    "an export takes a partition for exported whose rows have changed since",
    "spark_projections/archive/planning.py: _Planning._changed_days",
    "for day in found.keys() | kept.keys()",
    "for day in found.keys() - kept.keys()",
    Pytest(f"{_CHANGES}::test_nothing_is_lost_that_was_changed_after_an_export"),
)
in_sql(
    "restore-brings-erased-payloads-back",
    "a payload that was erased is in the journal again after its partition is restored",
    "functions/webhooks/_erase_restored_v1.sql",
    "AND e.payload::text <> ''null''",
    "AND FALSE",
    Pytest(f"{_ERASED}::test_payload_whose_partition_has_left_does_not_come_back"),
)
in_sql(
    "restore-does-not-wait-for-who-erases",
    "a payload comes back that is being erased while its partition is restored",
    "functions/webhooks/_erase_restored_v1.sql",
    "LOCK TABLE projections.erased_messages IN SHARE MODE;",
    "NULL;",
    Pytest(f"{_ERASED}::test_payload_that_is_being_erased_does_not_come_back_either"),
)
in_sql(
    "messages-that-have-left-are-not-noted",
    "a message whose partition has left the journal cannot be erased",
    "functions/webhooks/_erase_sent_v1.sql",
    "IF NOT _found THEN",
    "IF FALSE THEN",
    Pytest(f"{_ERASED}::test_payload_whose_partition_has_left_does_not_come_back"),
)
in_python(
    "erased-payloads-stay-in-files",
    "an archive keeps the payloads of messages that were erased",
    "spark_projections/archive/erasing.py: erase_files",
    "if not messages:",
    "if messages or not messages:",
    Pytest(f"{_ERASED}::test_payload_whose_partition_has_left_is_taken_out_of_the_files"),
)
in_python(
    "erased-payloads-are-read-from-files",
    "reading an archive brings payloads that were erased",
    "spark_projections/archive/history.py: _archived",
    "without_payloads(found, erased)[0] if erased else found",
    "found",
    Pytest(f"{_ERASED}::test_payload_whose_partition_has_left_does_not_come_back"),
)
in_python(
    "tenants-erase-archived-messages-of-others",
    "a tenant erases a message of another one whose partition has left the journal",
    "spark_projections/archive/erasing.py: without_payloads",
    'if _owners(row["metadata"]) & erased[row["event_id"]]',
    'if _owners(row["metadata"]) or erased[row["event_id"]]',
    Pytest(f"{_ERASED}::test_payload_whose_partition_has_left_is_taken_out_of_the_files"),
)
in_sql(
    "replaced-rows-lose-what-is-not-declared",
    "a rebuild in place sets columns that the Table does not declare, and gives numbers twice",
    "functions/rebuilds/_replace_rows_v1.sql",
    "ELSE a.attname <> ALL (_declared) END",
    "ELSE FALSE END",
    Pytest(
        "tests/integration/spark/test_rebuild_undeclared.py"
        "::test_rows_keep_them_where_they_are_replaced_and_new_ones_go_on"
    ),
)
