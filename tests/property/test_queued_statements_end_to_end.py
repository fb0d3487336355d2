"""Queued statements, among others and savepoints, leave what the statements of each event leave one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from journal import ConnectionSettings, Database, DatabaseError, Session, connect
from journal.database import base
from projections import Event, EventEnvelope, append, handles, projection
from projections.testing import run_until_caught_up
from tests.fixtures.examples import examples
from tests.fixtures.projections import NO_RETRY

WRITTEN = "CREATE TABLE IF NOT EXISTS written (all_of_it text NOT NULL CHECK (all_of_it NOT LIKE '%!%'))"
READ = "SELECT all_of_it FROM written"
WRITE = {
    "a": "UPDATE written SET all_of_it = all_of_it || $1",
    "b": "UPDATE written SET all_of_it = all_of_it || upper($1)",
}
REFUSED = "!"


class Did(BaseModel):
    steps: list[tuple[str, str, str]]
    """What is done (queue, execute, undo, guard or read), by which statement, with which word."""


steps = st.lists(
    st.tuples(
        st.sampled_from(["queue", "queue", "queue", "execute", "undo", "guard", "read"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["x", "y", "z", "x", "y", "z", REFUSED]),
    ),
    max_size=4,
)
journals = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.builds(Did, steps=steps)), max_size=15
)


@projection("did", entity_type="plane", recovery=NO_RETRY)
class Doing:
    @handles(Did)
    async def did(self, session: Session, event: Did, envelope: EventEnvelope) -> None:
        for kind, statement, word in event.steps:
            await do(session, kind, WRITE[statement], word)


async def do(session: Session, kind: str, sql: str, word: str) -> None:
    match kind:
        case "queue":
            await session.queue(sql, word)
        case "execute":
            await session.execute(sql, word)
        case "undo":
            with suppress(KeyError):
                async with session.savepoint():
                    await session.queue(sql, word)
                    raise KeyError
        case "guard":
            with suppress(DatabaseError):
                async with session.savepoint():
                    await session.queue(sql, word)
        case _:
            await session.queue(sql, str(len(await session.fetchval(READ))))


def one_by_one(events: list[tuple[str, Did]]) -> tuple[str, list[str]]:
    """What is written, and which sources are parked."""
    written, parked = "", set[str]()
    for source_id, event in events:
        if source_id in parked:
            continue
        after = written
        for kind, statement, word in event.steps:
            if kind == "undo" or (kind == "guard" and word == REFUSED):
                continue
            said = str(len(after)) if kind == "read" else word
            after += said if statement == "a" else said.upper()
        if REFUSED in after:
            parked.add(source_id)
        else:
            written = after
    return written, sorted(parked)


@pytest.fixture(scope="module")
def module_dsn(databases: Any, template: str) -> Iterator[str]:
    """One database for all examples: making one takes longer than an example."""
    with databases.fresh(template) as fresh:
        yield fresh


async def empty(database: Database) -> None:
    async with database.session() as session:
        await session.execute(WRITTEN)
        await session.execute(
            "TRUNCATE written, projections.events, projections.sources, projections.projections CASCADE"
        )
        await session.execute("INSERT INTO written VALUES ('')")


async def run_once(dsn: str, driver: Any, events: list[tuple[str, Did]]) -> tuple[str, list[str]]:
    async with connect(dsn, ConnectionSettings(driver=driver)) as database:
        await empty(database)
        for source_id, event in events:
            async with database.transaction() as session:
                await append(session, [Event(source_id, event, "plane")])
        await run_until_caught_up(database, Doing)
        async with database.session() as session:
            parked = await session.fetch("SELECT source_id FROM projections.parked_sources ORDER BY 1")
            return await session.fetchval(READ), [row["source_id"] for row in parked]


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(events=journals, driver=st.sampled_from(["asyncpg", "psycopg"]), most=st.sampled_from([2, 3, 500]))
def test_what_is_queued_is_as_if_each_statement_had_run_alone(
    module_dsn: str, events: list[tuple[str, Did]], driver: str, most: int
) -> None:
    with patch.object(base, "_MOST_QUEUED", most):
        found = asyncio.run(run_once(module_dsn, driver, events))

    assert found == one_by_one(events)
