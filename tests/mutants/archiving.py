"""Bugs of the archive, and of what is dropped or erased with it."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python, in_sql

_CHANGES = "tests/integration/partitions/test_archive_changes.py"

in_sql(
    "archived-rows-are-only-counted",
    "a partition is dropped that has as many rows as were archived, and not the same",
    "functions/archive/_check_archived_v1.sql",
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
