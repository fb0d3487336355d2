"""Every query of a frame gives what the journal has, whatever was asked of it and of others before."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from journal import SliceRange, append_sync
from spark_projections.source.source import read_journal
from tests.fixtures.journal import event
from tests.fixtures.postgres import Databases

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
SOURCES = [f"N{number}" for number in range(6)]
TYPES = ["Landed", "Departed", "never"]
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Row = dict[str, Any]
Key = tuple[str, int]


class Condition(NamedTuple):
    """``column comparison value``, in SQL and in Python."""

    column: str
    comparison: str
    value: str | int

    def __str__(self) -> str:
        return f"{self.column} {self.comparison} {self.value!r}"

    def passes(self, row: Row) -> bool:
        return COMPARISONS[self.comparison](row[self.column], self.value)


Conditions = tuple[Condition, ...]


class Query(NamedTuple):
    """What is asked of one frame, or of two."""

    kind: str
    frame: str
    first: Conditions
    other: str
    second: Conditions


FRAMES: dict[str, dict[str, Any]] = {
    "all": {},
    "again": {},
    "some": {"source_ids": ["N1", "N4"], "seq_nrs": (2, 9)},
    "landed": {"event_types": ["Landed"], "slices": SliceRange(0, 800)},
    "cached": {},
}


def asked(frame: str, row: Row) -> bool:
    """What the frame itself leaves in, said once more in Python."""
    return {
        "some": row["source_id"] in {"N1", "N4"} and 2 <= row["seq_nr"] <= 9,
        "landed": row["event_type"] == "Landed" and row["slice"] <= 800,
    }.get(frame, True)


texts = st.sampled_from(["=", "=", "<>", "<"])
conditions = st.one_of(
    st.builds(Condition, st.just("source_id"), texts, st.sampled_from([*SOURCES, "none"])),
    st.builds(Condition, st.just("event_type"), texts, st.sampled_from(TYPES)),
    st.builds(Condition, st.just("seq_nr"), st.sampled_from([*COMPARISONS]), st.integers(0, 21)),
    st.builds(Condition, st.just("slice"), st.sampled_from([*COMPARISONS]), st.integers(0, 1023)),
)
filters = st.lists(conditions, max_size=2).map(tuple)
queries = st.builds(
    Query,
    st.sampled_from(["keys", "keys", "count", "sql", "union", "join", "subquery"]),
    st.sampled_from([*FRAMES]),
    filters,
    st.sampled_from([*FRAMES]),
    filters,
)


class Asked(NamedTuple):
    """A session with the settings of a test, and frames of one journal in it."""

    session: SparkSession
    frames: Mapping[str, DataFrame]

    def answer(self, query: Query) -> list[Any]:
        first = filtered(self.frames[query.frame], query.first)
        second = filtered(self.frames[query.other], query.second)
        match query.kind:
            case "count":
                return [first.count()]
            case "sql":
                return keys(self.session.sql(f"SELECT * FROM {query.frame} WHERE {spelt(query.first)}"))
            case "union":
                return keys(first.unionAll(second))
            case "join":
                return keys(first.join(second.select("source_id", "seq_nr"), ["source_id", "seq_nr"]))
            case "subquery":
                return keys(
                    self.session.sql(
                        f"SELECT * FROM {query.frame} WHERE {spelt(query.first)} AND source_id IN "
                        f"(SELECT source_id FROM {query.other} WHERE {spelt(query.second)})"
                    )
                )
            case _:
                return keys(first)


def filtered(frame: DataFrame, given: Conditions) -> DataFrame:
    return frame.filter(spelt(given)) if given else frame


def spelt(given: Conditions) -> str:
    return " AND ".join(map(str, given)) or "true"


def keys(frame: DataFrame) -> list[Key]:
    return sorted((row.source_id, row.seq_nr) for row in frame.select("source_id", "seq_nr").collect())


def expected(rows: list[Row], query: Query) -> list[Any]:
    """The same in Python."""

    def passing(frame: str, given: Conditions) -> list[Key]:
        return sorted(
            (row["source_id"], row["seq_nr"])
            for row in rows
            if asked(frame, row) and all(one.passes(row) for one in given)
        )

    first, second = passing(query.frame, query.first), passing(query.other, query.second)
    match query.kind:
        case "count":
            return [len(first)]
        case "union":
            return sorted(first + second)
        case "join":
            return sorted(set(first) & set(second))
        case "subquery":
            return [key for key in first if key[0] in {source_id for source_id, _ in second}]
        case _:
            return first


@pytest.fixture(scope="module")
def journal(databases: Databases, template: str) -> Iterator[str]:
    """120 events of six sources and two types, in many slices; nothing here writes to it."""
    with databases.fresh(template) as dsn:
        if conninfo_to_dict(dsn).get("password"):
            pytest.skip("this server wants a password, which has to be in the environment of Spark")
        with psycopg.connect(dsn) as connection:
            append_sync(connection, [event(SOURCES[n % 6], event_type=TYPES[n % 4 // 3]) for n in range(120)])
        yield dsn


@pytest.fixture(scope="module")
def rows(journal: str) -> list[Row]:
    with psycopg.connect(journal, row_factory=psycopg.rows.dict_row) as connection:
        return connection.execute(
            "SELECT source_id, seq_nr, event_type, slice FROM projections.events"
        ).fetchall()


@pytest.fixture(params=["true", pytest.param("false", marks=pytest.mark.slow)])
def ask(request: pytest.FixtureRequest, spark: SparkSession, journal: str) -> Callable[[], Asked]:
    """New frames, in a session where Spark's own push-down is on, and in one where it is off."""
    session = spark.newSession()
    session.conf.set(PUSH_DOWN, request.param)
    return partial(frames, session, journal)


def frames(session: SparkSession, dsn: str) -> Asked:
    made = {
        name: read_journal(session, entity_type="plane", dsn=dsn, splits=2, **options)
        for name, options in FRAMES.items()
    }
    made["cached"] = made["cached"].cache()
    for name, frame in made.items():
        frame.createOrReplaceTempView(name)
    return Asked(session, made)


@pytest.mark.slow
def test_a_frame_counts_all_before_and_after_a_filter(ask: Callable[[], Asked]) -> None:
    frame = ask().frames["all"]

    counts = [
        frame.count(),
        frame.filter("source_id = 'N1' AND seq_nr = 3").count(),
        frame.count(),
        frame.filter("slice = 1 AND slice = 2").count(),
        frame.filter("seq_nr = 7").count(),
        frame.filter("source_id = 'N1'").unionAll(frame.filter("source_id = 'N2'")).count(),
    ]

    assert counts == [120, 1, 120, 0, 6, 40]


@pytest.mark.slow
def test_two_threads_ask_one_frame(ask: Callable[[], Asked]) -> None:
    frame = ask().frames["all"]
    with ThreadPoolExecutor(4) as threads:
        counts = list(threads.map(lambda n: frame.filter(f"seq_nr <= {n}").count(), range(1, 9)))

    assert counts == [6 * n for n in range(1, 9)]


def compare(ask: Callable[[], Asked], rows: list[Row], sequence: list[Query]) -> None:
    asked_now = ask()
    try:
        for number, query in zip(count(1), sequence, strict=False):
            assert asked_now.answer(query) == expected(rows, query), f"query {number}: {query}"
    finally:
        asked_now.frames["cached"].unpersist()


_UNCHECKED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.mark.slow
@settings(max_examples=2, suppress_health_check=_UNCHECKED, derandomize=True)
@given(sequence=st.lists(queries, min_size=3, max_size=6))
def test_any_few_queries_give_what_python_gives(
    ask: Callable[[], Asked], rows: list[Row], sequence: list[Query]
) -> None:
    compare(ask, rows, sequence)


@pytest.mark.slow
@pytest.mark.timeout(540)
@settings(max_examples=12, suppress_health_check=_UNCHECKED)
@given(sequence=st.lists(queries, min_size=4, max_size=10))
def test_any_queries_give_what_python_gives(
    ask: Callable[[], Asked], rows: list[Row], sequence: list[Query]
) -> None:
    compare(ask, rows, sequence)
