"""Any statement that is accepted, over any history in any batches: the table is what the plain query says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from journal import BEGINNING, Database, connect
from projections import Event, Inline, events, projection, read_model, run
from projections.testing import run_until_caught_up
from tests.fixtures.examples import examples
from tests.fixtures.projections import settings as run_settings
from tests.fixtures.read_models import Departed, Landed, as_the_journal_says

KEYS = {
    "carrier": "carrier",
    "day": "day",
    "seat": "seat",
    "hour": "date_trunc('hour', at)",
    "late": "coalesce(delay, 0) > 15",
    "first": "upper(left(carrier, 1))",
    "source_id": "source_id",
    "year": "extract(year FROM day)",
}
VALUES = [
    "delay",
    "delay + 1",
    "fare",
    "abs(delay)",
    "delay * delay",
    "CASE WHEN on_time THEN delay ELSE 0 END",
    "fare * 2",
]
ORDERED = [*VALUES, "carrier", "day", "at", "db_timestamp", "lower(seat)"]
CONDITIONS = [
    "delay > 0",
    "delay IS NULL",
    "carrier IN ('UA', 'é')",
    "NOT on_time",
    "at IS NOT NULL",
    "seat LIKE 'w%'",
]

condition = st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=2).map(" OR ".join)
aggregate = st.one_of(
    st.just("count(*)"),
    st.sampled_from(ORDERED).map("count({})".format),
    st.sampled_from(VALUES).map("sum({})".format),
    st.sampled_from(VALUES).map("avg({})".format),
    st.sampled_from(ORDERED).map("min({})".format),
    st.sampled_from(ORDERED).map("max({})".format),
    st.sampled_from(["on_time", "delay > 0"]).map("bool_and({})".format),
    st.sampled_from(["on_time", "delay > 0"]).map("bool_or({})".format),
)
filtered = st.tuples(aggregate, st.none() | condition).map(
    lambda found: found[0] if found[1] is None else f"{found[0]} FILTER (WHERE {found[1]})"
)


@st.composite
def grouped(draw: st.DrawFn) -> str:
    keys = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=3, unique=True))
    values = draw(st.lists(filtered, min_size=1, max_size=4))
    if "source_id" in keys and draw(st.booleans()):
        values.append(f"last({draw(st.sampled_from(ORDERED))})")
    selected = [f"{KEYS[key]} AS {key}" for key in keys] + [f"{one} AS v{n}" for n, one in enumerate(values)]
    never_null = " AND at IS NOT NULL" if "hour" in keys else ""
    where = draw(condition)
    groups = ", ".join(map(str, range(1, len(keys) + 1)))
    return f"SELECT {', '.join(selected)} FROM landed WHERE ({where}){never_null} GROUP BY {groups}"


@st.composite
def by_event(draw: st.DrawFn) -> str:
    values = draw(st.lists(st.sampled_from(ORDERED), max_size=3))
    selected = ["source_id", "seq_nr", *(f"{one} AS v{n}" for n, one in enumerate(values))]
    return f"SELECT {', '.join(selected)} FROM landed WHERE {draw(condition)}"


@st.composite
def of_several_types(draw: st.DrawFn) -> str:
    value = draw(st.sampled_from(["delay", "1", "-delay"]))
    other = draw(st.sampled_from(["delay", "-1"]))
    total = draw(st.sampled_from(["sum(n)", "count(n)", "max(n)", "min(n)"]))
    return (
        f"SELECT c, {total} AS v FROM (SELECT carrier AS c, {value} AS n FROM landed WHERE {draw(condition)} "
        f"UNION ALL SELECT carrier, {other} FROM departed) AS u GROUP BY c"
    )


statements = st.one_of(grouped(), grouped(), by_event(), of_several_types())
carriers = st.sampled_from(["UA", "AA", "é", "", "aa", "'"])
NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
happened = st.one_of(
    st.builds(
        Landed,
        carrier=carriers,
        day=st.dates(date(2012, 12, 30), date(2013, 1, 3)),
        delay=st.none() | st.integers(-(2**31), 2**31),
        fare=st.decimals(-1000, 1000, places=3, allow_nan=False),
        on_time=st.booleans(),
        at=st.none() | st.integers(0, 10**9).map(lambda n: NOON + timedelta(seconds=n)),
        seat=st.sampled_from(["window", "aisle"]),
    ),
    st.builds(Departed, carrier=carriers, delay=st.integers(-100, 100)),
)
histories = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d"]), happened), max_size=20)


@pytest.fixture(scope="module")
def module_dsn(databases: Any, template: str) -> Iterator[str]:
    """One database for all examples: making one takes longer than an example."""
    with databases.fresh(template) as fresh:
        yield fresh


async def empty(database: Database) -> None:
    async with database.session() as session:
        await session.execute("DROP TABLE IF EXISTS t")
        await session.execute(
            "TRUNCATE projections.events, projections.sources, projections.projections CASCADE"
        )


async def run_once(
    dsn: str,
    sql: str,
    history: list[tuple[str, Any]],
    *,
    batch_size: int,
    ranges: int,
    appended: int,
    again: bool,
    inline: bool,
    apart: bool,
) -> None:
    @projection("p", entity_type="plane", batch_size=batch_size)
    class P:
        landed = events(Landed)
        departed = events(Departed)
        t = read_model(sql)

    async with connect(dsn) as database, connect(dsn) as elsewhere:

        async def handle() -> None:
            if apart:
                quick = run_settings()
                await run(elsewhere, P, journal=database, ranges=ranges, settings=quick, until_caught_up=True)
            else:
                await run_until_caught_up(database, P, ranges=ranges)

        await empty(database)
        # The first one makes the table, also where no event is of interest.
        history = [("a", Landed(carrier="UA", day=NOON.date(), fare=Decimal(1))), *history]
        for part in (history[: appended + 1], history[appended + 1 :]):
            for source_id, event in part:
                async with database.transaction() as session:
                    await Inline(P).append(session, [Event(source_id, event, "plane")])
            await handle()
            # Sometimes as after a restart that remembers no horizon: what was handled is read again.
            async with database.session() as session:
                if inline and not apart:  # and then all that is appended is handled by its append
                    await Inline(P).set_mode(session, "inline")
                if again:
                    await session.execute(f"UPDATE projections.projection_ranges SET horizon = '{BEGINNING}'")
            await handle()
        await as_the_journal_says(database, P, "t")


@settings(max_examples=examples(40, daily=5), suppress_health_check=list(HealthCheck), deadline=None)
@given(
    sql=statements,
    history=histories,
    batch_size=st.sampled_from([1, 3, 1000]),
    ranges=st.sampled_from([1, 2, 5]),
    appended=st.integers(0, 20),
    again=st.booleans(),
    inline=st.booleans(),
    apart=st.booleans(),
)
@pytest.mark.examples
def test_the_table_is_what_the_query_says(  # noqa: PLR0917 - pytest and hypothesis pass them by name
    module_dsn: str,
    sql: str,
    history: list[tuple[str, Any]],
    batch_size: int,
    ranges: int,
    appended: int,
    *,
    again: bool,
    inline: bool,
    apart: bool,
) -> None:
    work = run_once(
        module_dsn,
        sql,
        history,
        batch_size=batch_size,
        ranges=ranges,
        appended=appended,
        again=again,
        inline=inline,
        apart=apart,
    )
    asyncio.run(work)
