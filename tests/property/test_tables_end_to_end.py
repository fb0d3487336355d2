"""The table that a running projection leaves is what a plain loop over the events makes, however they were cut."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from journal import Database, connect
from projections import Event, EventEnvelope, Table, append, handles, projection
from projections.defining.tables import Change
from projections.testing import run_until_caught_up
from tests.fixtures.examples import examples

SHARED = Table("shared", key=("k",), increment=("total",), minimum=("low",), maximum=("high",))
OWN = Table("own", key=("source_id", "k"), set=("last",), increment=("times",), per_source=True)

TABLES = (
    "CREATE TABLE IF NOT EXISTS shared (k int PRIMARY KEY, total bigint NOT NULL DEFAULT 0, low int, high int)",
    """
    CREATE TABLE IF NOT EXISTS own (
        source_id text, k int, last int, times int NOT NULL DEFAULT 0, PRIMARY KEY (source_id, k)
    )
    """,
)


class Changed(BaseModel):
    k: int
    n: int | None
    delete: bool


changes = st.builds(
    Changed, k=st.integers(0, 2), n=st.none() | st.integers(-(2**31), 2**31 - 1), delete=st.booleans()
)
journals = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d"]), changes), max_size=25)


def both(batch_size: int) -> type[Any]:
    @projection("both", entity_type="plane", batch_size=batch_size)
    class Both:
        @handles(Changed)
        def changed(self, event: Changed, envelope: EventEnvelope) -> Iterator[Change]:
            yield SHARED.upsert(k=event.k, total=event.n, low=event.n, high=event.n)
            if event.delete:
                yield OWN.delete(source_id=envelope.source_id, k=event.k)
            else:
                yield OWN.upsert(source_id=envelope.source_id, k=event.k, last=event.n, times=1)

    return Both


def by_hand(events: list[tuple[str, Changed]]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The same read model, an event at a time."""
    shared: dict[Any, Any] = {}
    own: dict[Any, Any] = {}
    for source_id, event in events:
        total, low, high = shared.get(event.k, (0, None, None))
        if event.n is not None:
            total += event.n
            low = event.n if low is None else min(low, event.n)
            high = event.n if high is None else max(high, event.n)
        shared[event.k] = total, low, high
        if event.delete:
            own.pop((source_id, event.k), None)
        else:
            own[source_id, event.k] = event.n, own.get((source_id, event.k), (None, 0))[1] + 1
    return shared, own


@pytest.fixture(scope="module")
def module_dsn(databases: Any, template: str) -> Iterator[str]:
    """One database for all examples: making one takes longer than an example."""
    with databases.fresh(template) as fresh:
        yield fresh


async def empty(database: Database) -> None:
    async with database.session() as session:
        for statement in TABLES:
            await session.execute(statement)
        await session.execute(
            "TRUNCATE shared, own, projections.events, projections.sources, projections.projections CASCADE"
        )


async def tables(database: Database) -> tuple[dict[Any, Any], dict[Any, Any]]:
    async with database.session() as session:
        shared = await session.fetch("SELECT k, total, low, high FROM shared")
        own = await session.fetch("SELECT source_id, k, last, times FROM own")
    return (
        {row["k"]: (row["total"], row["low"], row["high"]) for row in shared},
        {(row["source_id"], row["k"]): (row["last"], row["times"]) for row in own},
    )


async def run_once(
    dsn: str, events: list[tuple[str, Changed]], batch_size: int, ranges: int, appended: int
) -> Any:
    async with connect(dsn) as database:
        await empty(database)
        for part in (events[:appended], events[appended:]):
            for source_id, event in part:
                async with database.transaction() as session:
                    await append(session, [Event(source_id, event, "plane")])
            await run_until_caught_up(database, both(batch_size), ranges=ranges)
        return await tables(database)


@settings(max_examples=examples(12, daily=2), suppress_health_check=list(HealthCheck))
@given(
    events=journals,
    batch_size=st.sampled_from([1, 3, 1000]),
    ranges=st.sampled_from([1, 2, 5]),
    appended=st.integers(0, 25),
)
def test_the_table_is_what_a_plain_loop_makes(
    module_dsn: str, events: list[tuple[str, Changed]], batch_size: int, ranges: int, appended: int
) -> None:
    found = asyncio.run(run_once(module_dsn, events, batch_size, ranges, appended))

    assert found == by_hand(events)
