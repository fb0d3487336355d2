"""Bugs of how values are compared, sent and read."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python

_TABLES = "tests/property/test_tables.py::test_a_time_is_an_instant_in_whichever_zone_it_is_told"
_WRITER = "tests/integration/running/test_table_writer.py::test_the_hour_that_comes_twice_is_two_hours_in_any_batches"

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
    "the earlier and the later of two times are told by what the clocks of their zone show",
    "projections/defining/folding.py: _merged",
    "value = comparable(value)",
    "pass",
    Pytest(_TABLES),
    Pytest(_WRITER),
)
