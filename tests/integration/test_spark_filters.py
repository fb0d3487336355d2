"""Filters that the database checks let pass what Spark would, and no less."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from journal import append_sync
from spark_projections.reading.batches import Reading, read_batches
from spark_projections.source.filters import narrowed
from tests.fixtures.journal import event

Row = dict[str, Any]
CHECKS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda found, wanted: found == wanted,
    EqualNullSafe: lambda found, wanted: found == wanted,
    GreaterThan: lambda found, wanted: found > wanted,
    GreaterThanOrEqual: lambda found, wanted: found >= wanted,
    LessThan: lambda found, wanted: found < wanted,
    LessThanOrEqual: lambda found, wanted: found <= wanted,
    In: lambda found, wanted: found in wanted,
    StringStartsWith: lambda found, wanted: found.startswith(wanted),
}
ORDER = [EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, EqualNullSafe]
TEXTS = [EqualTo, GreaterThan, StringStartsWith]
EXACT = {EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual}


@pytest.fixture
def everything(dsn: str) -> list[Row]:
    with psycopg.connect(dsn) as connection:
        for kind in ("Landed", "Dep'arted"):
            append_sync(connection, [event(f"N{n % 7}'\\é", event_type=kind) for n in range(30)])
    return rows(dsn, Reading("plane"))


def rows(dsn: str, reading: Reading | None) -> list[Row]:
    batches = [] if reading is None else list(read_batches(dsn, reading))
    found = [row for batch in batches for row in batch.to_pylist()]
    return sorted(found, key=lambda row: (row["source_id"], row["seq_nr"]))


def passes(row: Row, one: Any) -> bool:
    return CHECKS[type(one)](row[one.attribute[0]], one.value)


def middle(everything: list[Row], column: str) -> list[Any]:
    """Values that divide what is there, and one that is not there."""
    values = sorted({row[column] for row in everything})
    return [values[0], values[len(values) // 2], values[-1]]


def filters(everything: list[Row], column: str, kinds: list[type[Any]]) -> list[Filter]:
    values = middle(everything, column)
    return [kind((column,), value) for kind in kinds for value in values] + [
        In((column,), tuple(values[:2])),
        In((column,), (values[1],)),
    ]


@pytest.mark.parametrize(
    ("column", "kinds"),
    [
        ("slice", ORDER),
        ("seq_nr", ORDER),
        ("db_timestamp", ORDER),
        ("source_id", TEXTS),
        ("event_type", TEXTS),
    ],
)
def test_what_is_read_has_all_that_passes_and_nothing_else_where_it_says_so(
    dsn: str, everything: list[Row], column: str, kinds: list[type[Any]]
) -> None:
    for one in filters(everything, column, kinds):
        reading, exact = narrowed(Reading("plane"), one)
        expected = [row for row in everything if passes(row, one)]

        found = rows(dsn, reading)

        assert [row for row in found if passes(row, one)] == expected, one
        assert not exact or found == expected, one


@pytest.mark.parametrize("column", ["slice", "seq_nr", "db_timestamp"])
def test_comparisons_are_left_to_the_database(everything: list[Row], column: str) -> None:
    taken = {type(one) for one in filters(everything, column, ORDER) if narrowed(Reading("plane"), one)[1]}

    assert taken >= EXACT


def test_filters_on_one_column_narrow_one_another(dsn: str, everything: list[Row]) -> None:
    reading: Reading | None = Reading("plane", source_ids=("N1'\\é", "N2'\\é"))
    wanted = [In(("source_id",), ("N2'\\é", "N3'\\é")), GreaterThan(("seq_nr",), 1), LessThan(("seq_nr",), 4)]

    for one in wanted:
        reading, exact = narrowed(reading, one)
        assert exact

    assert [(row["source_id"], row["seq_nr"]) for row in rows(dsn, reading)] == [("N2'\\é", 2), ("N2'\\é", 3)]


@pytest.mark.parametrize(
    "wanted",
    [
        [EqualTo(("source_id",), "a"), EqualTo(("source_id",), "b")],
        [EqualTo(("event_type",), "a"), EqualTo(("event_type",), "b")],
        [GreaterThan(("slice",), 1023)],
        [LessThan(("seq_nr",), 1)],
        [
            GreaterThan(("db_timestamp",), datetime(2026, 1, 1, tzinfo=UTC)),
            LessThan(("db_timestamp",), datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=1)),
        ],
    ],
)
def test_filters_that_contradict_one_another_read_nothing(wanted: list[Filter]) -> None:
    reading: Reading | None = Reading("plane")

    for one in wanted:
        reading, _ = narrowed(reading, one)

    assert reading is None


@pytest.mark.parametrize(
    "wanted",
    [
        EqualTo(("payload", "n"), 1),
        EqualTo(("version",), 1),
        EqualTo(("source_id",), "a\0"),
        EqualTo(("slice",), None),
        In(("source_id",), ("a", None)),
        Not(EqualTo(("source_id",), "a")),
        GreaterThan(("db_timestamp",), datetime.max.replace(tzinfo=UTC)),
        GreaterThan(("db_timestamp",), datetime(2026, 1, 1)),  # noqa: DTZ001 - a comparison with a time of no zone
        IsNotNull(("tags",)),
    ],
)
def test_what_the_database_does_not_check_is_left_to_spark(wanted: Filter) -> None:
    assert narrowed(Reading("plane"), wanted) == (Reading("plane"), False)


def test_what_is_never_null_needs_no_check() -> None:
    assert narrowed(Reading("plane"), IsNotNull(("slice",))) == (Reading("plane"), True)
