"""Declared in SQL, here or elsewhere, or written as a table handler: the same table, and the same parked sources."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from journal import BEGINNING, Database, EventEnvelope, connect
from projections import Changes, Event, RawJson, Table, append, events, handles, projection, read_model, run
from tests.fixtures.examples import examples
from tests.fixtures.projections import NO_RETRY
from tests.fixtures.projections import settings as run_settings
from tests.fixtures.read_models import Landed, as_the_journal_says, rows

HANDLED = Table(
    "handled", key=("carrier", "seat"), increment=("n", "minutes"), minimum=("best",), maximum=("worst",)
)
_DDL = """
CREATE TABLE IF NOT EXISTS handled (
    carrier text, seat text, n bigint NOT NULL DEFAULT 0, minutes numeric, best bigint, worst bigint,
    PRIMARY KEY (carrier, seat)
)
"""
_SQL = """
SELECT carrier, seat, count(*) AS n, sum(delay) AS minutes, min(delay) AS best, max(delay) AS worst
FROM landed WHERE delay > 0 AND day > '2000-01-01' GROUP BY carrier, seat
"""
_GOOD = '{"carrier": "UA", "day": "2013-01-01", "delay": 7}'
# What both refuse: of each field that is read, and of the payload.
_BAD = [
    '{"carrier": "UA", "day": "2013-01-01", "delay": "late"}',
    '{"carrier": null, "day": "2013-01-01", "delay": 1}',
    '{"day": "2013-01-01", "delay": 1}',
    '{"carrier": "UA", "day": "never", "delay": 1}',
    '{"carrier": 5, "day": "2013-01-01", "delay": 1}',
    '{"carrier": "UA", "day": "today", "delay": 1}',
    '{"carrier": "UA", "day": "2013-01-01", "delay": 1, "seat": "roof"}',
    "[1, 2]",
]
# What the model reads, and PostgreSQL would refuse, or read otherwise.
_ODD = [
    '{"carrier": "UA", "day": 1356998400, "delay": 1e1}',
    '{"carrier": "9", "day": "2013-01-01T00:00:00Z", "delay": true}',
    '{"carrier": "UA", "day": "2013-01-01", "delay": " 3 "}',
]
payloads = st.one_of(
    st.builds(
        lambda carrier, delay, seat: Landed(
            carrier=carrier, day="2013-01-01", delay=delay, seat=seat
        ).model_dump_json(),
        st.sampled_from(["UA", "é", ""]),
        st.none() | st.integers(-5, 2**31),
        st.sampled_from(["window", "aisle"]),
    ),
    st.just(_GOOD),
)
histories = st.lists(
    st.tuples(
        st.sampled_from("abcdefgh"),
        st.one_of(payloads, payloads, payloads, st.sampled_from(_BAD), st.sampled_from(_ODD)),
    ),
    max_size=30,
)


@pytest.fixture(scope="module")
def module_dsn(databases: Any, template: str) -> Iterator[str]:
    """One database for all examples: making one takes longer than an example."""
    with databases.fresh(template) as fresh:
        yield fresh


async def parked(database: Database) -> dict[str, set[tuple[Any, ...]]]:
    found: dict[str, set[tuple[Any, ...]]] = {}
    query = """
    SELECT p.name, k.source_id, k.seq_nr FROM projections.projections AS p
    LEFT JOIN projections.parked_sources AS k ON p.projection_id = k.projection_id
    """
    for name, *source in await rows(database, query):
        found.setdefault(name, set()).add(tuple(source))
    return found


async def compare(
    dsn: str, history: list[tuple[str, str]], *, batch_size: int, ranges: int, cut: int, again: bool
) -> None:
    options: dict[str, Any] = {"entity_type": "plane", "batch_size": batch_size, "recovery": NO_RETRY}

    @projection("declared", **options)
    class Declared:
        landed = events(Landed)
        declared = read_model(_SQL)

    @projection("elsewhere", **options)
    class Elsewhere:
        landed = events(Landed)
        elsewhere = read_model(_SQL)

    @projection("handled", **options)
    class Handled:
        @handles(Landed)
        def landed(self, event: Landed, envelope: EventEnvelope) -> Changes:
            if not event.delay or event.delay < 0:
                return None
            late = event.delay
            return HANDLED.upsert(
                carrier=event.carrier, seat=event.seat, n=1, minutes=late, best=late, worst=late
            )

    async with connect(dsn) as database, connect(dsn) as other:
        async with database.session() as session:
            await session.execute("DROP TABLE IF EXISTS declared, elsewhere, handled")
            await session.execute(_DDL)
            await session.execute(
                "TRUNCATE projections.events, projections.sources, projections.projections CASCADE"
            )
        # The first one makes the tables, also where no event is of interest.
        history = [("a", _GOOD), *history]
        for part in (history[: cut + 1], history[cut + 1 :]):
            for source_id, payload in part:
                async with database.transaction() as writing:
                    await append(writing, [Event(source_id, RawJson(payload), "plane", event_type="Landed")])
            chosen: dict[str, Any] = {"ranges": ranges, "until_caught_up": True, "settings": run_settings()}
            await run(database, Declared, Handled, **chosen)
            await run(other, Elsewhere, journal=database, **chosen)
            if again:  # as after a restart that remembers no horizon
                async with database.session() as session:
                    await session.execute(f"UPDATE projections.projection_ranges SET horizon = '{BEGINNING}'")
        tables = [
            sorted(await rows(database, f"SELECT * FROM {t}")) for t in ("declared", "elsewhere", "handled")
        ]
        assert tables[0] == tables[1] == tables[2]
        found = await parked(database)
        assert found["declared"] == found["elsewhere"] == found["handled"]
        odd = any(payload in _ODD for _, payload in history)
        if (
            found["declared"] == {(None, None)} and not odd
        ):  # the plain query cannot leave out what does not fit
            await as_the_journal_says(database, Declared, "declared")


@settings(max_examples=examples(25, daily=3), suppress_health_check=list(HealthCheck), deadline=None)
@given(
    history=histories, batch_size=st.sampled_from([1, 3, 1000]), ranges=st.sampled_from([1, 3]), cut=st.integers(0, 30),
    again=st.booleans(),
)  # fmt: skip
@pytest.mark.examples
def test_all_ways_give_one_table_and_park_the_same(
    module_dsn: str, history: list[tuple[str, str]], batch_size: int, ranges: int, cut: int, *, again: bool
) -> None:
    asyncio.run(compare(module_dsn, history, batch_size=batch_size, ranges=ranges, cut=cut, again=again))
