"""What a comparison with the journal finds, and what it does not take for a difference."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from journal import (
    ALL_TYPES,
    Database,
    DatabaseError,
    Event,
    EventEnvelope,
    append,
    connect,
)
from projections import Recovery, Table, handles, projection
from projections.defining.tables import Change
from projections.testing import run_until_caught_up
from spark_projections.errors import NotRebuildable, RebuildFailed
from spark_projections.rebuilds.repairing import repair, verify
from tests.fixtures.projections import Failure, Happened, execute, fetchval, happen, running
from tests.fixtures.rebuilds import COUNTS, AllKinds, Changed, Counts, Effects


async def changed(database: Database, *events: tuple[str, int]) -> None:
    async with database.transaction() as session:
        await append(session, [Event(source_id, Changed(n=n), "plane") for source_id, n in events])


@pytest.mark.slow
async def test_a_read_model_that_is_right_has_no_differences(journal: Database) -> None:
    await happen(journal, "a", "b", "a")
    await run_until_caught_up(journal, Counts)
    await happen(journal, "a", "new")  # not handled yet

    sample, whole = await verify(journal, Counts), await verify(journal, Counts, sources=None)

    assert sample.differing == whole.differing == 0
    assert (sample.sources, sample.of_sources, sample.events) == (3, 3, 3)


async def test_the_rows_that_differ_are_listed_by_table_key_and_column(journal: Database) -> None:
    await changed(journal, ("a", 1), ("b", 2), ("a", 3))
    await run_until_caught_up(journal, AllKinds)
    await execute(journal, "UPDATE totals SET n = n + 1, low = NULL")
    await execute(journal, "DELETE FROM own WHERE source_id = 'a'")
    await execute(journal, "INSERT INTO own (source_id, key) VALUES ('nobody', 'k')")

    found = await verify(journal, AllKinds, sources=None)

    rows = [(row.table, tuple(row.key.values()), row.kind) for row in found.differences]
    assert rows == [
        ("own", ("a", "k"), "missing"),
        ("own", ("nobody", "k"), "surplus"),
        ("totals", ("k",), "different"),
    ]
    assert found.differences[2].columns == {"n": ("7", "6"), "low": (None, "1")}
    assert found.differing == 3


@pytest.mark.slow
async def test_a_sample_has_as_many_sources_as_are_asked_for(journal: Database) -> None:
    await happen(journal, *(f"s{n}" for n in range(30)))
    await run_until_caught_up(journal, Counts)
    await execute(journal, "UPDATE counts SET n = 99")

    found = await verify(journal, Counts, sources=7)

    assert (found.sources, found.of_sources, found.differing) == (7, 30, 7)


@pytest.mark.slow
async def test_few_rows_are_listed_and_all_are_counted(journal: Database) -> None:
    await happen(journal, *(f"s{n}" for n in range(150)))
    await run_until_caught_up(journal, Counts)
    await execute(journal, "UPDATE counts SET n = 99")

    found = await verify(journal, Counts, sources=None)

    assert (len(found.differences), found.differing) == (100, 150)


@pytest.mark.slow
async def test_nothing_differs_while_events_are_appended_and_handled(journal: Database) -> None:
    stop = asyncio.Event()

    async def append_on() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            await happen(journal, f"s{turn % 7}", "s0", f"new{turn}")

    async with running(journal, Counts, ranges=3) as told:
        task = asyncio.create_task(append_on())
        for _ in range(5):
            await told.first("handled", len(told.names("handled")) + 2)
            for sources in (5, None):
                assert (await verify(journal, Counts, sources=sources)).differences == []
        stop.set()
        await task


@pytest.mark.slow
async def test_a_sample_is_refused_where_sources_share_rows(journal: Database) -> None:
    await changed(journal, ("a", 1))
    await run_until_caught_up(journal, AllKinds, Effects)

    with pytest.raises(NotRebuildable, match=r"table totals .*--all"):
        await verify(journal, AllKinds)
    with pytest.raises(NotRebuildable, match="write by themselves"):
        await verify(journal, Effects, sources=None)


@pytest.mark.slow
async def test_events_that_are_gone_are_said_and_no_difference(journal: Database) -> None:
    await happen(journal, "a", "a")
    await run_until_caught_up(journal, Counts)
    await execute(journal, "DELETE FROM projections.events WHERE seq_nr = 1")

    with pytest.raises(RebuildFailed, match="--from-first-kept"):
        await verify(journal, Counts)

    assert (await verify(journal, Counts, from_first_kept=True)).differences[0].columns == {"n": ("2", "1")}


def failing(recovery: Recovery) -> Any:
    @projection("counts", entity_type="plane", recovery=recovery)
    class Fails:
        @handles(Happened)
        def happened(self, event: Happened, envelope: EventEnvelope) -> Change:
            if event.n == 13:
                raise Failure("13")
            return COUNTS.upsert(source_id=envelope.source_id, n=1, last=envelope.seq_nr)

    return Fails


async def test_sources_that_are_parked_are_named(journal: Database) -> None:
    definition = failing(Recovery.retry_and_park(0))
    await happen(journal, "a", "b")
    await happen(journal, "a", "c", n=13)
    await run_until_caught_up(journal, definition)

    for sources in (10, None):
        found = await verify(journal, definition, sources=sources)
        assert (found.differing, found.events, found.parked) == (0, 2, 2)
        assert found.parked_events == [("a", 2), ("c", 1)]
    assert (await verify(journal, definition, sources=["b"])).parked == 0


@pytest.mark.slow
async def test_events_that_are_skipped_are_named(journal: Database) -> None:
    definition = failing(Recovery.skip())
    for n in (0, 13, 0):
        await happen(journal, "a", n=n)
    await run_until_caught_up(journal, definition)

    found = await verify(journal, definition)

    assert (found.differing, found.skipped, found.skipped_events) == (0, 1, [("a", 2)])


@asynccontextmanager
async def reading(journal: Database, dsn: str, table: str = "counts") -> AsyncIterator[Database]:
    """As a role that may only read."""
    role = await fetchval(journal, "SELECT 'looks_' || md5(current_database())")
    await execute(journal, f"CREATE ROLE {role} LOGIN IN ROLE projections_reader")
    try:
        await execute(journal, f"GRANT SELECT ON {table} TO {role}")
        async with connect(make_conninfo(dsn, user=role)) as reader:
            yield reader
    finally:
        await execute(journal, f"DROP OWNED BY {role}")
        await execute(journal, f"DROP ROLE {role}")


@pytest.mark.slow
async def test_a_role_that_may_only_read_verifies(journal: Database, dsn: str) -> None:
    await happen(journal, "a")
    await run_until_caught_up(journal, Counts)
    async with reading(journal, dsn) as reader:
        for sources in (10, None):
            assert (await verify(reader, Counts, sources=sources)).differing == 0


@pytest.mark.slow
@pytest.mark.parametrize("types", [("plane", "airport"), ALL_TYPES])
async def test_sources_of_several_types_are_compared(journal: Database, types: Any) -> None:
    @projection("counts", entity_type=types)
    class OfTypes:
        @handles(Happened)
        def happened(self, event: Happened, envelope: EventEnvelope) -> Change:
            return COUNTS.upsert(source_id=envelope.source_id, n=1, last=envelope.seq_nr)

    async with journal.transaction() as session:
        await append(session, [Event(name, Happened(), name) for name in ("plane", "airport")])
    await run_until_caught_up(journal, OfTypes)
    await execute(journal, "UPDATE counts SET n = 99")

    for sources in (10, None):
        assert (await verify(journal, OfTypes, sources=sources)).differing == 2
    await repair(journal, OfTypes, ["plane", "airport"])
    assert (await verify(journal, OfTypes, sources=None)).differing == 0


NUMBERED = Table("numbered", key="id", source="id", increment="n", set=("stamp", "token"))
NUMBERED_TABLE = """
CREATE SEQUENCE called;
CREATE FUNCTION next_called() RETURNS bigint LANGUAGE sql AS $$ SELECT nextval('called') $$;
CREATE DOMAIN numbered_by_domain AS bigint DEFAULT nextval('called');
CREATE TABLE numbered (
    nr serial PRIMARY KEY, id text NOT NULL UNIQUE, n bigint NOT NULL DEFAULT 0,
    always int GENERATED ALWAYS AS IDENTITY, by_default int NOT NULL GENERATED BY DEFAULT AS IDENTITY,
    random float NOT NULL DEFAULT random(), by_function bigint NOT NULL DEFAULT next_called() + 1,
    of_domain numbered_by_domain NOT NULL, doubled int GENERATED ALWAYS AS (nr * 2) STORED,
    stamp bigint NOT NULL DEFAULT nextval('called'), token text NOT NULL DEFAULT 'none', at timestamptz DEFAULT now(),
    CHECK (nr > 0 AND n < 1000)
)
"""
SEQUENCES = (
    "SELECT array_agg((sequencename, last_value) ORDER BY sequencename)::text FROM pg_sequences "
    "WHERE schemaname = 'public'"
)


@projection("numbered", entity_type="plane")
class Numbered:
    """Its rows have columns that the database fills; an event with the number 13 leaves all of them to it."""

    @handles(Happened)
    def happened(self, event: Happened, envelope: EventEnvelope) -> Change:
        key = {"id": envelope.source_id}
        return NUMBERED.upsert(**key, n=1) if event.n == 13 else NUMBERED.upsert(**key, n=1, stamp=event.n)


async def make_numbered(journal: Database) -> None:
    for statement in NUMBERED_TABLE.split(";\n"):
        await execute(journal, statement)


@pytest.mark.slow
async def test_looking_draws_no_number_from_a_sequence(journal: Database, dsn: str) -> None:
    await make_numbered(journal)
    await happen(journal, "a", "b", "a")
    await run_until_caught_up(journal, Numbered)
    before = await fetchval(journal, SEQUENCES)

    async with reading(journal, dsn, "numbered") as reader:
        for sources in (10, None):
            assert (await verify(reader, Numbered, sources=sources)).differing == 0

    assert await fetchval(journal, SEQUENCES) == before


@pytest.mark.slow
async def test_a_declared_column_that_was_left_to_a_sequence_differs(journal: Database) -> None:
    await make_numbered(journal)
    await happen(journal, "a", n=13)
    await run_until_caught_up(journal, Numbered)
    before = await fetchval(journal, SEQUENCES)

    found = await verify(journal, Numbered)

    (row,) = found.differences
    assert (row.kind, list(row.columns), row.columns["stamp"][1]) == ("different", ["stamp"], None)
    assert (found.skipped, await fetchval(journal, SEQUENCES)) == (0, before)


@pytest.mark.slow
async def test_a_row_that_stays_keeps_what_the_database_has_filled_in(journal: Database) -> None:
    await make_numbered(journal)
    await happen(journal, "a", "b", "a")
    await run_until_caught_up(journal, Numbered)
    rows = "SELECT array_agg(t ORDER BY nr)::text FROM numbered AS t"
    right, drawn = await fetchval(journal, rows), await fetchval(journal, SEQUENCES)
    await execute(journal, "UPDATE numbered SET n = 99, token = 'wrong'")

    assert (await repair(journal, Numbered, ["a", "b"])).differing == 2

    assert (await fetchval(journal, rows), await fetchval(journal, SEQUENCES)) == (right, drawn)
    await execute(journal, "DELETE FROM numbered WHERE id = 'a'")
    await repair(journal, Numbered, ["a", "b"])
    assert await fetchval(journal, "SELECT nr > 2 AND always > 2 FROM numbered WHERE id = 'a'")


@pytest.mark.slow
@pytest.mark.parametrize("types", ["airport", ("plane", "airport"), ALL_TYPES])
async def test_code_that_reads_other_types_than_the_workers_is_refused(journal: Database, types: Any) -> None:
    await happen(journal, "a")
    await run_until_caught_up(journal, Counts)

    @projection("counts", entity_type=types)
    class Other:
        @handles(Happened)
        def happened(self, event: Happened, envelope: EventEnvelope) -> Change:
            return COUNTS.upsert(source_id=envelope.source_id, n=1)

    said = r"counts: version 1 reads events of type 'plane', and this code of .*: use the code that the workers run"
    for sources in (10, None, ["a"]):
        with pytest.raises(NotRebuildable, match=said):
            await verify(journal, Other, sources=sources)
    with pytest.raises(NotRebuildable, match=said):
        await repair(journal, Other, ["a"])


@pytest.mark.slow
async def test_rows_that_row_security_hides_are_no_difference_but_an_error(
    journal: Database, dsn: str
) -> None:
    await happen(journal, "a")
    await run_until_caught_up(journal, Counts)
    await execute(journal, "ALTER TABLE counts ENABLE ROW LEVEL SECURITY")
    async with reading(journal, dsn) as reader:
        with pytest.raises(DatabaseError, match="row-level security"):
            await verify(reader, Counts)
