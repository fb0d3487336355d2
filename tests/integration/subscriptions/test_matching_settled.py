"""Readers of matches go up to a number below which nothing can appear any more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples

SETTLED = "SELECT projections.settled_matches_v1()"
LOCK = "SELECT projections._lock_matching_v1()"
INSERT = """
INSERT INTO projections.matches (
    match_id, group_id, slice, seq_nr, db_timestamp, matched_at, source_id, subscription_ids
)
VALUES (nextval('projections.match_ids'), 1, 1, 1, now(), now(), 'a', '{1}') RETURNING match_id
"""
READ = "SELECT match_id FROM projections.matches WHERE match_id > %s AND match_id <= %s ORDER BY match_id"

MATCH_DUE = "SELECT projections._match_due_v1()"
MATCH_LOG = """
SELECT projections._match_log_v1(
    array_agg(entity_type), array_agg(source_id), array_agg(seq_nr), array_agg(db_timestamp), array_agg(slice),
    array_agg(event_type)
) FROM projections.events
"""

Connection = psycopg.Connection[Any]


def value(connection: Connection, sql: str) -> int:
    row = connection.execute(sql.encode()).fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
def reader(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def writers(dsn: str) -> Iterator[list[Connection]]:
    with ExitStack() as stack:
        yield [stack.enter_context(psycopg.connect(dsn)) for _ in range(3)]


def test_nothing_is_settled_before_the_first_number(reader: Connection, writers: list[Connection]) -> None:
    assert value(reader, SETTLED) == 0
    writers[0].execute(LOCK)
    assert value(writers[0], INSERT) == 1

    assert value(reader, SETTLED) == 0
    writers[0].commit()
    assert value(reader, SETTLED) == 1


# Around where the number is more than the key of a lock holds, and at the last that there is.
@pytest.mark.parametrize(
    "start", [1, 2**31 - 3, 2**31 - 2, 2**31 - 1, 2**31, 2**32 - 2, 5 * 2**31 - 1, 2**63 - 100]
)
def test_a_transaction_that_matches_holds_exactly_what_is_its_own(
    reader: Connection, writers: list[Connection], start: int
) -> None:
    reader.execute("SELECT setval('projections.match_ids', %s)", [start])
    first, second, _ = writers
    first.execute(LOCK)
    assert [value(first, INSERT) for _ in range(3)] == [start + 1, start + 2, start + 3]
    second.execute(LOCK)
    assert value(second, INSERT) == start + 4

    assert value(reader, SETTLED) == start
    first.commit()
    assert value(reader, SETTLED) == start + 3
    second.rollback()
    assert value(reader, SETTLED) == start + 4
    assert [n for (n,) in reader.execute(READ, [start, start + 9])] == [start + 1, start + 2, start + 3]


@pytest.mark.slow
@pytest.mark.parametrize("match", [MATCH_DUE, MATCH_LOG])
@pytest.mark.parametrize("due", ["NULL", "ARRAY['2020-01-01Z'::timestamptz]"])
def test_whatever_matches_holds_the_bound_until_it_commits(
    reader: Connection, writers: list[Connection], match: str, due: str
) -> None:
    reader.execute("SELECT projections.subscribe_v1('g'), projections.subscribe_v1('h', 'e.seq_nr > 0')")
    reader.execute(f"SELECT projections.publish_v1('p', '{{t}}', '{{1}}', p_not_before => {due})".encode())
    writers[0].execute(match.encode())
    found = value(writers[0], "SELECT count(*) FROM projections.matches")

    assert value(reader, SETTLED) == 0
    writers[0].commit()
    assert value(reader, SETTLED) == found == (2 if (match == MATCH_DUE) == (due != "NULL") else 0)


def test_many_numbers_are_given_out_while_one_transaction_is_open(
    reader: Connection, writers: list[Connection]
) -> None:
    """As far behind as the key of a lock can tell: 2**31 - 2**24 - 1 numbers."""
    writers[0].execute(LOCK)
    reader.execute("SELECT setval('projections.match_ids', %s)", [2**31 - 2**24 - 1])

    assert value(reader, SETTLED) == 0


def test_a_lock_that_is_taken_between_the_number_and_the_locks_holds_nothing(
    reader: Connection, writers: list[Connection]
) -> None:
    """It is what a lock looks like whose key is higher than the last number: the numbers went back meanwhile."""
    reader.execute("SELECT setval('projections.match_ids', 200)")
    writers[0].execute(LOCK)
    reader.execute("SELECT setval('projections.match_ids', 100)")

    assert value(reader, SETTLED) == 100


def test_locks_of_others_hold_nothing(reader: Connection, writers: list[Connection]) -> None:
    reader.execute("SELECT setval('projections.match_ids', 100)")
    writers[0].execute("SELECT pg_advisory_xact_lock(1, 2), pg_advisory_xact_lock(3)")
    writers[1].execute("LOCK TABLE projections.matches IN ROW EXCLUSIVE MODE")

    assert value(reader, SETTLED) == 100


def test_a_transaction_that_keeps_its_snapshot_is_refused(reader: Connection) -> None:
    with reader.transaction():
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")

        with pytest.raises(psycopg.Error, match="READ COMMITTED"):
            reader.execute(SETTLED)
        raise psycopg.Rollback


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["match", "commit", "rollback"]), st.integers(0, 2)),
        st.tuples(st.sampled_from(["ask", "read"]), st.just(0)),
    ),
    min_size=5, max_size=60,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.examples
@pytest.mark.parametrize("start", [1, 2**31 - 5])
def test_a_reader_never_passes_a_row_whatever_the_order_of_commits(
    reader: Connection, writers: list[Connection], start: int
) -> None:
    """Asking for the bound and reading are two steps, between which writers go on."""

    @settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
    @given(STEPS)
    def run(steps: list[tuple[str, int]]) -> None:
        reader.execute("TRUNCATE projections.matches")
        reader.execute("SELECT setval('projections.match_ids', %s)", [start])
        _Model(reader, writers, start).run(steps)

    run()


class _Model:
    def __init__(self, reader: Connection, writers: list[Connection], start: int) -> None:
        self.reader = reader
        self.writers = writers
        self.mine: list[list[int]] = [[] for _ in writers]
        self.committed: list[int] = []
        self.cursor = self.until = start
        self.seen: list[int] = []

    def run(self, steps: list[tuple[str, int]]) -> None:
        for what, number in steps:
            getattr(self, what)(number)
        for number in range(len(self.writers)):
            self.commit(number)
        self.ask()
        self.read()
        assert self.seen == sorted(self.committed)

    def match(self, number: int) -> None:
        writer = self.writers[number]
        writer.execute(LOCK)
        self.mine[number].append(value(writer, INSERT))

    def commit(self, number: int) -> None:
        self.writers[number].commit()
        self.committed += self.mine[number]
        self.mine[number] = []

    def rollback(self, number: int) -> None:
        self.writers[number].rollback()
        self.mine[number] = []

    def ask(self, _: int = 0) -> None:
        self.until = value(self.reader, SETTLED)

    def read(self, _: int = 0) -> None:
        self.seen += [n for (n,) in self.reader.execute(READ, [self.cursor, self.until])]
        self.cursor = max(self.cursor, self.until)
