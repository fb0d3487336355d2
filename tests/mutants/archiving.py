"""Bugs of the archive: what is exported, what its manifest says, and what is read, verified and restored."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python, in_sql

_ARCHIVE = "spark_projections/archive"
_WAITING = "tests/integration/spark/test_archive_waiting.py"
_FILES = "tests/integration/spark/test_archive.py"
_RETENTION = "tests/integration/partitions/test_retention_archive.py"
_WENT_BACK = "tests/integration/going_back/test_rebuild.py"
_READING = "tests/integration/spark/test_archive_reading.py"
_RESTORE = "tests/integration/spark/test_archive_restore.py"
_MANIFEST = "tests/unit/test_archive_manifest.py"

in_python(
    "exports-wait-for-nobody",
    "a partition is exported while an append is in flight that still writes there",
    f"{_ARCHIVE}/export.py: _closed",
    "    if closed:\n",
    "    if False:\n",
    Pytest(f"{_WAITING}::test_export_waits_for_appends_that_may_still_write_there_and_names_them"),
)
in_python(
    "partitions-may-be-detached-unread",
    "a partition that a projection has not read yet is reported as detachable",
    f"{_ARCHIVE}/export.py: _BEHIND",
    "r.horizon < %(end)s",
    "FALSE",
    Pytest(f"{_WAITING}::test_partition_that_a_projection_has_not_passed_may_not_be_detached"),
)
in_python(
    "partitions-may-be-detached-during-a-rebuild",
    "a partition that an unfinished rebuild folds is reported as detachable",
    f"{_ARCHIVE}/export.py: _BEHIND",
    "b.state IN ('folding', 'verified')",
    "b.state IN ('verified')",
    Pytest(f"{_WAITING}::test_partition_may_not_be_detached_while_a_rebuild_is_unfinished"),
)
in_python(
    "partitions-leave-with-events-missing",
    "a partition is dropped of which the archive has not all events",
    f"{_ARCHIVE}/export.py: archive_partition",
    "if rows != partition.rows:",
    "if False:",
    Pytest(f"{_RETENTION}::test_archive_that_lacks_events_keeps_the_partition"),
)
in_python(
    "partitions-leave-with-damaged-files",
    "a partition is dropped without reading back what was written of it",
    f"{_ARCHIVE}/export.py: archive_partition",
    "if problem is not None:",
    "if False:",
    Pytest(f"{_RETENTION}::test_archive_whose_files_are_not_as_they_were_written_keeps_the_partition"),
)
in_python(
    "exports-mark-what-is-gone",
    "events that a fail-over has lost while they were read are marked as exported",
    f"{_ARCHIVE}/still_there.py: check_exported",
    "if not there or stored_rows(connection, entity_type, partition.bounds) < rows:",
    "if False:",
    Pytest(f"{_WENT_BACK}::test_an_export_marks_nothing_that_is_gone_when_it_is_read"),
)
in_python(
    "grown-partitions-are-exported-whole",
    "a partition that has grown is written again in addition to the files that have most of it",
    f"{_ARCHIVE}/export_task.py: _sorted_batches",
    "    if part.known:\n",
    "    if False:\n",
    Pytest(f"{_FILES}::test_partition_that_an_import_changed_grows_by_a_further_file_and_it_is_said"),
)
in_python(
    "two-exports-write-at-once",
    "two exports into one archive run at the same time",
    f"{_ARCHIVE}/locking.py: locked",
    "fcntl.LOCK_EX",
    "fcntl.LOCK_SH",
    Pytest(f"{_FILES}::test_two_exports_into_one_directory_are_refused"),
)
in_python(
    "old-manifests-are-read",
    "a manifest that was put back from a backup is taken for the newest",
    f"{_ARCHIVE}/manifest.py: Manifest.load",
    "if former and found.version < max(former):",
    "if False:",
    Pytest(f"{_MANIFEST}::test_an_older_manifest_that_was_put_back_is_refused"),
)
in_python(
    "damaged-manifests-are-read",
    "a manifest is read whose checksum is another",
    f"{_ARCHIVE}/manifest.py: Manifest.read",
    'if values["format"] == FORMAT and values.pop("sha256") != _checksum(values):',
    'if values["format"] == FORMAT and not values.pop("sha256"):',
    Pytest(f"{_MANIFEST}::test_a_manifest_whose_files_were_changed_is_refused"),
)
in_python(
    "manifests-sign-their-head",
    "the checksum of a manifest is of everything but its files",
    f"{_ARCHIVE}/manifest.py: _checksum",
    "json.dumps(values, sort_keys=True)",
    'json.dumps({**values, "files": None}, sort_keys=True)',
    Pytest(f"{_MANIFEST}::test_a_manifest_whose_files_were_changed_is_refused"),
)
in_python(
    "manifests-are-overtaken",
    "an export writes its manifest over a later one",
    f"{_ARCHIVE}/manifest.py: Manifest.save",
    "if versions and max(versions) > self.version:",
    "if False:",
    Pytest(f"{_MANIFEST}::test_a_manifest_is_not_written_over_a_later_one"),
)
in_python(
    "files-are-not-read-through",
    "a file that was changed is reported as whole where it is as long as it was",
    f"{_ARCHIVE}/check.py: check_archived_file",
    "if sha256_of(path) != file.sha256:",
    "if False:",
    Pytest(f"{_FILES}::test_changed_byte_shortened_file_and_missing_file_are_found"),
)
in_python(
    "rows-of-files-are-not-summed",
    "a file whose events are not those of the manifest's checksum is reported as whole",
    f"{_ARCHIVE}/check.py: _wrong_rows",
    "if content != file.content:",
    "if False:",
    Pytest(
        f"{_FILES}::test_rows_that_are_not_those_of_the_manifest_are_found_whatever_its_checksum_of_the_file"
    ),
)
in_python(
    "the-order-of-files-is-not-looked-at",
    "a file whose events are not in order, or twice in it, is reported as whole",
    f"{_ARCHIVE}/check.py: _wrong_rows",
    "if last is not None and",
    "if False and",
    Pytest(
        f"{_FILES}::test_rows_that_are_not_those_of_the_manifest_are_found_whatever_its_checksum_of_the_file"
    ),
)
in_python(
    "days-are-not-compared",
    "an event that was changed in the journal since it was exported is not told",
    f"{_ARCHIVE}/check.py: _against_journal",
    "if found.get(day) != kept.get(day):",
    "if (found.get(day) or (0,))[0] != (kept.get(day) or (0,))[0]:",
    Pytest(f"{_FILES}::test_event_that_is_not_as_in_the_journal_is_found"),
)
in_python(
    "newer-imports-are-known",
    "events that were imported since the export are not read",
    f"{_ARCHIVE}/journal_queries.py: newer_imports",
    "    return bool(found.fetchall()[0][0])\n",
    "    return False\n",
    Pytest(f"{_READING}::test_event_imported_after_the_export_is_read_too"),
)
in_python(
    "the-first-instant-is-read-twice",
    "an event at the first instant of an archived partition is read from the journal, too",
    f"{_ARCHIVE}/history.py: _rest",
    "until=Bounds(BEGINNING, bounds.from_timestamp).last",
    "until=bounds.from_timestamp",
    Pytest(f"{_READING}::test_history_is_read_once_and_whole_whatever_has_left_the_journal"),
)
in_python(
    "the-last-slice-is-left-out",
    "a range of slices is read without the files of its last slice",
    f"{_ARCHIVE}/files.py: ArchivedFile.count",
    "slices.max_slice - low + 1",
    "slices.max_slice - low",
    Pytest(f"{_MANIFEST}::test_events_of_slices_are_counted"),
)
in_python(
    "changed-files-are-restored",
    "a file that was changed is restored to the journal",
    f"{_ARCHIVE}/restore.py: _Restoring.run",
    "if sha256_of(check_file(self.directory, each)) != each.sha256:",
    "if False:",
    Pytest(f"{_RESTORE}::test_changed_file_is_not_restored"),
)
in_python(
    "other-journals-are-restored",
    "the archive of another journal is restored into this one",
    f"{_ARCHIVE}/restore.py: _Restoring._fill",
    "if wrong:",
    "if False:",
    Pytest(f"{_RESTORE}::test_archive_of_another_journal_is_refused"),
)
in_python(
    "restored-events-are-handled-again",
    "projections that have handled the events of an archive handle them again when they are restored",
    f"{_ARCHIVE}/restore.py: _Restoring._pass",
    "for page in _lasts(self.directory / each.path) if mine else ():",
    "for page in ():",
    Pytest(f"{_RESTORE}::test_restored_events_are_handled_by_a_projection_from_all_sources_or_from_none"),
)
in_sql(
    "restores-set-sources-back",
    "a source that stands further than the restored events is set back to them",
    "functions/archive/_pass_restored_v1.sql",
    "    WHERE o.seq_nr < excluded.seq_nr;",
    ";",
    Pytest(f"{_RESTORE}::test_live_projection_does_not_handle_restored_events_again"),
)
