"""Bugs of read models in SQL: which statements are accepted, how they read events, and how their tables are written."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python

_ACCEPTED = "projections/defining/accepted_sql.py"
_FIELDS = "projections/defining/sql_fields.py"
_RENDERING = "projections/defining/sql_rendering.py"
_WRITER = "projections/running/read_model_writer.py"
_COLUMNS = "projections/running/event_columns.py"
_UNIT = "tests/unit/test_sql_read_models.py"
_RUNNING = "tests/integration/running/test_read_models.py"
_ELSEWHERE = "tests/integration/running/test_read_models_elsewhere.py"

in_python(
    "clauses-are-left-out",
    "HAVING is accepted, and the table has the groups that do not meet it",
    f"{_ACCEPTED}: _Reader._scope",
    "clause not in _CLAUSES",
    'clause not in {*_CLAUSES, "having"}',
    Pytest(f"{_UNIT}::test_is_refused_with_the_reason"),
)
in_python(
    "filters-may-say-anything",
    "the condition of an aggregate may call a function that differs each time that an event is handled",
    f"{_ACCEPTED}: _aggregate",
    "check_expression(found.expression.this, scope.texts)",
    "pass",
    Pytest(f"{_UNIT}::test_is_refused_with_the_reason"),
)
in_python(
    "conditions-in-parentheses-may-say-anything",
    "WHERE in parentheses may call a function that differs each time that an event is handled",
    f"{_ACCEPTED}: _Reader._derived",
    "_condition(branch, scope)",
    "pass",
    Pytest(f"{_UNIT}::test_is_refused_with_the_reason"),
)
in_python(
    "columns-in-parentheses-may-say-anything",
    "a column in parentheses may call a function that differs each time that an event is handled",
    f"{_ACCEPTED}: _Reader._derived",
    "check_expression(one.unalias(), scope.texts)",
    "pass",
    Pytest(f"{_UNIT}::test_is_refused_with_the_reason"),
)
in_python(
    "unions-may-be-cut",
    "UNION ALL in parentheses may have a LIMIT, which each batch has for itself",
    f"{_ACCEPTED}: _branches",
    '("order", "limit", "offset", "with_")',
    '("order", "offset", "with_")',
    Pytest(f"{_UNIT}::test_is_refused_with_the_reason"),
)
in_python(
    "one-select-tells-the-source",
    "a column counts as the source of the event where only one of several SELECTs reads it there",
    f"{_ACCEPTED}: _Reader._derived",
    "if len(place) == 1",
    'if place.discard("") or len(place) == 1',
    Pytest(f"{_UNIT}::test_the_source_in_the_key_makes_rows_of_one_source"),
)
in_python(
    "missing-fields-are-null",
    "a field that may be None is NULL where the payload lacks it, whatever its default is",
    f"{_FIELDS}: FieldColumn.value",
    'if self.default in {None, "NULL"}:',
    "if self.default is None or self.nullable:",
    Pytest("tests/property/test_values_in_sql.py::test_what_is_missing_has_the_default_of_the_model"),
)
in_python(
    "null-fields-have-the-default",
    "a field that is null, and may not be, has its default, and the event is handled",
    f"{_FIELDS}: FieldColumn.fits",
    'missing = "TRUE" if self.nullable else f"({self._stored}) IS NULL"',
    'missing = "TRUE"',
    Pytest("tests/property/test_values_in_sql.py::test_no_spelling_is_read_otherwise"),
)
in_python(
    "literals-keep-backslashes",
    "a backslash in a name or a default escapes what stands behind it in a statement",
    f"{_FIELDS}: quote_literal",
    'quoted.replace("\\\\", "\\\\\\\\")',
    "quoted",
    Pytest(f"{_UNIT}::test_no_text_ends_its_literal"),
)
in_python(
    "the-last-value-is-the-first",
    "last() of a batch is the value of its first event",
    f"{_RENDERING}: ReadModelQuery._output",
    "pattern.format(value, self.statement.number, collation)",
    'pattern.replace("DESC", "ASC").format(value, self.statement.number, collation)',
    Pytest(f"{_RUNNING}::test_the_table_is_what_the_query_says"),
)
in_python(
    "later-versions-are-read",
    "an event of a later version than the program knows is read as one of its own",
    f"{_RENDERING}: _relation",
    'tests, read = [f"e.version <= {declared.version}"], []',
    'tests, read = ["TRUE"], []',
    Pytest("tests/property/test_values_in_sql.py::test_what_is_of_a_later_version_is_refused"),
)
in_python(
    "read-models-go-by-the-session",
    "days and texts of times depend on the time zone and the settings of the role",
    f"{_WRITER}: ReadModelWriter.prepare",
    "await session.fetchrow(FIX_SESSION)",
    "pass",
    Pytest(f"{_RUNNING}::test_settings_of_the_role_change_nothing"),
)
in_python(
    "dropped-read-models-begin-again",
    "a table that was dropped is created again, and lacks what was handled before",
    f"{_WRITER}: _create",
    "if any(one.handled for one in (await offsets.status(session, name)).ranges):",
    "if False:",
    Pytest(f"{_RUNNING}::test_a_table_that_is_dropped_is_not_begun_again"),
)
in_python(
    "events-that-are-gone-are-handled",
    "a batch is written without an event that was read and is not in the journal any more",
    f"{_WRITER}: ReadModelWriter._bring",
    "if error.sqlstate == _GONE:",
    "if False:",
    Pytest(f"{_RUNNING}::test_an_event_that_is_gone_when_its_batch_is_written_is_not_passed_over"),
)
in_python(
    "another-statement-goes-on",
    "a table that another statement has filled is filled on by this one",
    f"{_WRITER}: _check_text",
    "stored != _MARK + read_model.text",
    "stored == _MARK",
    Pytest(f"{_RUNNING}::TestTables::test_another_statement_needs_another_table_or_a_rebuild"),
)
in_python(
    "read-models-are-rounded",
    "a table whose columns are of other types takes what is computed, rounded or cut",
    f"{_WRITER}: _check_types",
    "column.kind is not kind",
    "False",
    Pytest(f"{_RUNNING}::TestTables::test_one_of_another_type_is_refused_with_the_statement_that_creates_it"),
)
in_python(
    "sent-versions-are-the-first",
    "an event of a later version from another database is sent as one that the program knows",
    f"{_COLUMNS}: given_columns",
    "min(e.version, _HIGHEST_VERSION)",
    "event_type_of(current[e.event_type].model).version",
    Pytest(f"{_ELSEWHERE}::test_an_event_that_does_not_fit_parks_its_source_and_the_others_go_on"),
)
in_python(
    "versions-below-the-newest-are-not-lifted",
    "an event of the version before the newest is read as it is stored",
    f"{_COLUMNS}: _OLDER",
    "e.version < m.version",
    "e.version < m.version - 1",
    Pytest(f"{_RUNNING}::TestVersions"),
)
in_python(
    "whatever-looks-like-text-is-text",
    "a number, a list or an object in a field of text is the text that it is written as",
    "projections/defining/canonical.py: _of_text",
    """ OR {{kind}} = 'string')""",
    " OR TRUE)",
    Pytest("tests/property/test_values_in_sql.py::test_no_spelling_is_read_otherwise"),
)
in_python(
    "what-is-not-known-is-read",
    "SQL reads a field with a constraint that it does not know, and does not hold it",
    "projections/defining/canonical.py: _knows",
    "schema.keys() <= _OF_ALL.union(keys)",
    "True",
    Pytest("tests/property/test_values_in_sql.py::test_what_is_not_known_only_models_read"),
)
in_python(
    "what-sql-refuses-is-refused",
    "an event whose payload is written otherwise than its model would is not read by the model",
    f"{_WRITER}: ReadModelWriter._bring",
    "if fault_of(error) is Fault.EVENT and not self._reads_every(plan):",
    "if False:",
    Pytest("tests/integration/running/test_values.py::test_a_few_values_are_the_same_everywhere"),
)
in_python(
    "long-names-are-cut",
    "a field whose name in JSON PostgreSQL would cut is not found, and NULL",
    f"{_FIELDS}: FieldColumn.in_record",
    "0 < len(self.key.encode()) <= _LONGEST_NAME",
    "True",
    Pytest("tests/integration/running/test_values.py::test_a_few_values_are_the_same_everywhere"),
)
in_python(
    "statements-of-others-are-taken",
    "a statement with a function that PostgreSQL does not have is accepted",
    "projections/defining/sql_text.py: WrittenStatement.check",
    "if not fits:",
    "if False:",
    Pytest(f"{_UNIT}::test_is_refused_with_the_reason"),
)
in_python(
    "words-are-times",
    "a statement may say today, which is another day each time that an event is handled",
    "projections/defining/sql_expressions.py: check_expression",
    "_WORD.fullmatch(found.name)",
    "False",
    Pytest(f"{_UNIT}::test_is_refused_with_the_reason"),
)
in_python(
    "qualifiers-are-kept",
    "a column stands behind the name of what it was read from, which is another one where the statement runs",
    "projections/defining/sql_text.py: WrittenStatement.text",
    "if token.start not in self._dropped:",
    "if True:",
    Pytest(f"{_UNIT}::test_what_runs_is_what_is_written"),
)
