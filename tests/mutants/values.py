"""Bugs of how values are compared, sent and read."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python

_TABLES = "tests/property/test_tables.py::test_a_time_is_an_instant_in_whichever_zone_it_is_told"
_WRITER = "tests/integration/running/test_table_writer.py::test_the_hour_that_comes_twice_is_two_hours_in_any_batches"
_NAIVE = "tests/integration/running/test_naive_times.py"
_EXACT = "tests/property/test_exact_numbers.py"
_DRIVERS = "tests/integration/database/test_values_of_drivers.py::test_drivers"

in_python(
    "keys-by-the-clock-on-the-wall",
    "a key that is a time counts by what the clocks of its zone show: an hour that comes twice is one row",
    "projections/defining/tables.py: Table._comparable",
    "tuple(map(comparable, key))",
    "key",
    Pytest(_TABLES),
    Pytest(_WRITER),
)
in_python(
    "extremes-by-the-clock-on-the-wall",
    "the earlier and the later of two times are found by what the clocks of their zone show",
    "projections/defining/folding.py: _merged",
    "value = comparable(value)",
    "pass",
    Pytest(_TABLES),
    Pytest(_WRITER),
)
in_python(
    "ends-of-time-are-infinite",
    "asyncpg sends the last day of Python as infinity, and reads infinity as the last day",
    "journal/database/asyncpg_codecs.py: set_codecs",
    "_CODECS.items()",
    "()",
    Pytest(f"{_DRIVERS}_store_and_read_the_same[date]"),
    Pytest(f"{_DRIVERS}_refuse_to_read_what_python_has_no_value_for[timestamp]"),
)
in_python(
    "numbers-are-cut-to-integers",
    "asyncpg sends what is before the point of a number where an integer is needed",
    "journal/database/asyncpg_codecs.py: guarded",
    "list(map(_guard, values))",
    "values",
    Pytest(f"{_DRIVERS}_refuse_the_same[int]"),
)
in_python(
    "floats-have-fifteen-digits",
    "psycopg sends a float as PostgreSQL rounds it for a numeric",
    "journal/database/psycopg_adapters.py: _Float.dump",
    "float.__repr__(obj)",
    'format(obj, ".15g")',
    Pytest(f"{_DRIVERS}_store_and_read_the_same[numeric]"),
)
in_python(
    "what-warns-is-stored",
    "a signaling NaN is stored as one that does not warn",
    "journal/database/numeric.py: _infinite",
    "number.is_snan()",
    "False",
    Pytest(f"{_DRIVERS}_refuse_the_same[numeric]"),
)
in_python(
    "decimals-by-way-of-floats",
    "a Decimal of a model is the number that a float makes of the one in the JSON",
    "journal/envelopes.py: _reader",
    "if not has_decimals(model)",
    "if True",
    Pytest(f"{_EXACT}::test_a_decimal_is_the_number_of_the_json"),
)
in_python(
    "older-decimals-by-way-of-floats",
    "a Decimal of an older version is the number that a float makes of the one in the JSON",
    "journal/event_types.py: _upcast",
    "parsed(payload) if exact else from_json(payload)",
    "from_json(payload)",
    Pytest(f"{_EXACT}::test_the_json_of_an_older_version_has_the_number"),
)
in_python(
    "naive-times-are-appended",
    "a datetime without a time zone is appended in a field that may have one",
    "journal/appending.py: _row",
    'declared.naive_times == "refuse"',
    "False",
    Pytest(f"{_NAIVE}::test_append_refuses_what_handlers_would"),
)
in_python(
    "naive-times-are-read",
    "handlers get a datetime without a time zone, which drivers take for one of the machine's or the session's",
    "journal/naive_times.py: _aware",
    '"tz_constraint": "aware"',
    "",
    Pytest(f"{_NAIVE}::test_every_kind_of_handler_does_the_same[Seen-timestamptz-parked0]"),
)
in_python(
    "nan-is-the-least",
    "NaN is kept as the least or greatest value of a row",
    "projections/defining/comparing.py: comparable",
    "if isinstance(value, float | Decimal) and math.isnan(value):",
    "if False:",
    Pytest("tests/unit/test_tables.py::test_what_can_not_be_ordered_is_refused"),
)
