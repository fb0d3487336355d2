"""Bugs of table handlers: changes folded into rows, tables looked at, and rows written."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python

_FOLDING = "projections/defining/folding.py"
_WRITER = "projections/running/table_writer.py"
_VALUES = "projections/running/table_values.py"
_CATALOGUE = "projections/running/table_catalogue.py"
_UNIT = "tests/unit/test_tables.py"
_WRITES = "tests/integration/running/test_table_writer.py"
_TABLES = "tests/integration/running/test_table_catalogue.py"
_ENCODES = "tests/unit/test_table_values.py"

in_python(
    "sums-are-rounded",
    "a sum of a batch keeps 28 digits",
    f"{_FOLDING}: _sum",
    "    return _EXACT.add(old, value)\n",
    "    return old + value\n",
    Pytest(f"{_UNIT}::test_sums_do_not_round_however_long"),
)
in_python(
    "two-sources-share-a-row",
    "a row of a table that is per source takes changes of two sources within a batch",
    f"{_FOLDING}: _check_source",
    "if row is not None:",
    "if False:",
    Pytest(f"{_UNIT}::test_two_sources_on_one_key_of_a_per_source_table_are_a_conflict"),
)
in_python(
    "rows-of-other-sources-are-changed",
    "a handler changes the row that the key says is another source's",
    f"{_FOLDING}: _check_source",
    "if table.source is not None and",
    "if False and",
    Pytest(f"{_UNIT}::test_a_row_whose_key_names_another_source_is_a_conflict"),
)
in_python(
    "deleted-rows-keep-their-values",
    "a row that is deleted and made again within a batch has what it had before",
    f"{_FOLDING}: Batch._fold",
    "rows[key] = Folded(delete=True, values=None, source_id=source_id)",
    "rows[key] = Folded(delete=True, values=row and row.values, source_id=source_id)",
    Pytest(f"{_UNIT}::test_delete_then_upsert_makes_a_fresh_row"),
)
in_python(
    "failed-events-leave-changes",
    "of an event that fails the changes before the failure stay in the batch",
    f"{_FOLDING}: Batch._collect_all",
    "for change, before in reversed(done):",
    "for change, before in ():",
    Pytest(f"{_UNIT}::test_an_event_that_fails_leaves_nothing_of_itself"),
)
in_python(
    "failed-events-are-undone-in-order",
    "where an event that fails has changed a row twice, the first change stays",
    f"{_FOLDING}: Batch._collect_all",
    "reversed(done)",
    "done",
    Pytest(f"{_UNIT}::test_an_event_that_fails_leaves_nothing_of_itself"),
)
in_python(
    "rows-are-written-in-any-order",
    "rows are written in the order of events, and two ranges wait for one another",
    f"{_WRITER}: _upsert_sql",
    """f"ORDER BY {', '.join(str(place) for place in range(1, len(key) + 1))} \"""",
    '""',
    Pytest(f"{_WRITES}::test_who_waits_for_a_row_has_locked_none_behind_it"),
)
in_python(
    "shared-rows-are-written-in-parts",
    "rows that sources share are written by several statements, each in its order",
    f"{_WRITER}: _Plan._groups",
    "if not self.table.per_source:",
    "if False:",
    Pytest(f"{_WRITES}::test_who_waits_for_a_row_has_locked_none_behind_it"),
)
in_python(
    "altered-tables-are-remembered",
    "a table that was altered is not looked at again after the error",
    f"{_WRITER}: TableWriter.write",
    "self._plans.pop(plan.table, None)",
    "pass",
    Pytest(f"{_WRITES}::test_a_table_that_was_altered_is_read_anew_after_the_error"),
)
in_python(
    "restored-tables-are-remembered",
    "what is known of tables stays when another database answers",
    f"{_WRITER}: TableWriter.forget",
    "self._plans.clear()",
    "pass",
    Pytest(f"{_WRITES}::test_a_table_that_was_altered_is_read_anew_after_the_error"),
)
in_python(
    "unmentioned-increments-are-null",
    "a new row has NULL where its table has zero, and the next addition fails or starts from nothing",
    f"{_WRITER}: _started",
    "if is_increment and column.has_default",
    "if False",
    Pytest(f"{_WRITES}::test_an_increment_with_a_default_of_zero_may_be_left_out_of_some_rows"),
)
in_python(
    "deletes-come-last",
    "a row that is deleted and made again within a batch is gone",
    f"{_WRITER}: _Plan.write",
    "for touched, upserts in self._groups(rows).items():",
    "for touched, upserts in () if deleted else self._groups(rows).items():",
    Pytest(f"{_WRITES}::test_delete_then_upsert_makes_a_fresh_row_and_upsert_then_delete_leaves_none"),
)
in_python(
    "additions-are-rounded",
    "what is added has more digits than the column keeps, and the sum depends on where batches end",
    f"{_VALUES}: encode",
    "if exact and column.kind is ValueKind.NUMERIC and column.scale is not None:",
    "if False:",
    Pytest(f"{_WRITES}::test_a_value_that_does_not_fit_names_table_and_column"),
)
in_python(
    "floats-are-stored-as-they-are-in-memory",
    "a float in a numeric column is stored with all the digits of its binary form",
    f"{_VALUES}: _numeric",
    "Decimal(float.__repr__(value))",
    "Decimal(value)",
    Pytest(f"{_ENCODES}::test_values_are_sent_as_what_they_print_as"),
)
in_python(
    "times-without-a-zone-are-stored",
    "a time without a zone is stored in the zone of the server's session",
    f"{_VALUES}: _timestamptz",
    "value.tzinfo is not None",
    "True",
    Pytest(f"{_WRITES}::test_a_value_that_does_not_fit_names_table_and_column"),
)
in_python(
    "days-are-cut-from-times",
    "a time is stored as its day, without a word",
    f"{_VALUES}: _date",
    "and not isinstance(value, datetime)",
    "",
    Pytest(f"{_WRITES}::test_a_value_that_does_not_fit_names_table_and_column"),
)
in_python(
    "scales-are-unsigned",
    "a column that rounds to hundreds counts as one with 2046 digits after the point",
    f"{_CATALOGUE}: _scale",
    "(((typmod - 4) & 0x7FF) ^ 1024) - 1024",
    "(typmod - 4) & 0x7FF",
    Pytest(f"{_ENCODES}::test_a_scale_may_be_below_zero"),
)
in_python(
    "partial-indexes-are-keys",
    "a table is taken whose rows have no key, only some of them",
    f"{_CATALOGUE}: _UNIQUE_KEYS",
    "AND i.indpred IS NULL AND",
    "AND",
    Pytest(f"{_TABLES}::test_a_table_that_does_not_fit_is_refused"),
)
in_python(
    "keys-may-round",
    "a key of a type that rounds is accepted: two rows of a batch are one in the table",
    f"{_CATALOGUE}: _unfit_key",
    "not kind.is_key or lossy or",
    "not kind.is_key or",
    Pytest(f"{_TABLES}::test_a_table_that_does_not_fit_is_refused"),
)
in_python(
    "one-table-has-two-declarations",
    "a table that is declared twice is written by both, each with locks in its own order",
    f"{_WRITER}: TableWriter._plan",
    "self._refuse_second(plan)",
    "pass",
    Pytest(f"{_TABLES}::test_one_table_declared_twice_is_refused"),
)
