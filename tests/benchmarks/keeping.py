"""
What a read model costs those who append: kept by a projection off their path, by a trigger, or by pg_ivm.

Four connections append at once, all into the rows of one day. pg_ivm takes no partitioned table, so a trigger copies
the events into a plain one for it, which is measured alone, too. Without that extension its lines are left out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import asyncpg
import psycopg

from journal import Database, Event, append, connect
from tests.benchmarks import workload
from tests.benchmarks.harness import Contender, Goal, Line, Sizes, compare
from tests.benchmarks.server import Server, settle
from tests.benchmarks.worker_process import until, worker

_WRITERS = 4
_SELECTED = """
SELECT e.payload ->> 'carrier' AS carrier, (e.payload ->> 'day')::date AS day, (e.payload ->> 'delay')::integer AS delay
FROM added AS e WHERE e.event_type = 'Landed'
"""
_TRIGGER = """
CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    {statement};
    RETURN NULL;
END;
$$;
CREATE TRIGGER {name} AFTER INSERT ON projections.events REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION {name}()
"""
_KEPT = workload.UPSERT.format(
    rows=f"SELECT carrier, day, count(*), sum(delay), max(delay) FROM ({_SELECTED}) AS l GROUP BY 1, 2 ORDER BY 1, 2"
)
_COPIED = f"INSERT INTO landed (carrier, day, delay) {_SELECTED}"
_BY_PG_IVM = """
SELECT {schema}.create_immv('delays_by_pg_ivm', 'SELECT carrier, day, count(*) AS flights, sum(delay) AS delay,
    max(delay) AS worst FROM landed GROUP BY carrier, day')
"""
_PG_IVM = """
SELECT n.nspname FROM pg_proc AS p INNER JOIN pg_namespace AS n ON p.pronamespace = n.oid
WHERE p.proname = 'create_immv'
"""
_HANDLED = "SELECT coalesce(sum(handled), 0) = $1 FROM projections.projection_ranges"


class _Way(NamedTuple):
    """Tables to empty before a turn, what is made then, and the table whose sums must be right; and a worker."""

    tables: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    kept: str = ""
    runs: bool = False


_NONE, _PROJECTION, _BY_TRIGGER, _COPY, _IVM = (
    "append alone",
    "projection",
    "trigger",
    "a copy of events",
    "pg_ivm",
)
_WAYS = {
    _NONE: _Way(),
    _PROJECTION: _Way(kept="delays_in_sql", runs=True),
    _BY_TRIGGER: _Way(("delays",), (_TRIGGER.format(name="kept", statement=_KEPT),), "delays"),
}
_LANDED = "CREATE TABLE landed (carrier text, day date, delay integer)"
_COPY_EVENTS = _TRIGGER.format(name="copied", statement=_COPIED)


def _ways(dsn: str) -> dict[str, _Way]:
    """Those that this server can do."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        if connection.execute("SELECT FROM pg_available_extensions WHERE name = 'pg_ivm'").fetchone() is None:
            return _WAYS
        connection.execute("CREATE EXTENSION pg_ivm")
        found = connection.execute(_PG_IVM).fetchone()
        assert found is not None
    return _WAYS | {
        _COPY: _Way((), (_LANDED, _COPY_EVENTS)),
        _IVM: _Way((), (_LANDED, _BY_PG_IVM.format(schema=found[0]), _COPY_EVENTS), "delays_by_pg_ivm"),
    }


def _begin(dsn: str, way: _Way) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS delays_by_pg_ivm, landed, delays_in_sql CASCADE")
        connection.execute("DROP FUNCTION IF EXISTS kept, copied CASCADE")
        connection.execute(
            "TRUNCATE projections.events, projections.sources, projections.projections, projections.source_offsets, "
            "delays CASCADE"
        )
        for statement in way.made:
            connection.execute(statement.encode())
    settle(dsn)


@asynccontextmanager
async def _running(dsn: str, way: _Way) -> AsyncIterator[None]:
    if not way.runs:
        yield
        return
    watching = await asyncpg.connect(dsn)
    async with worker(dsn, "tests.benchmarks.workload:BySql", 1):
        await until(watching, "SELECT count(owner) = 1 FROM projections.projection_ranges")
        yield
    await watching.close()


async def _append_all(database: Database, batches: Sequence[Sequence[Event]]) -> None:
    async with database.session() as session:
        for batch in batches:
            await append(session, batch)


async def _rate(
    database: Database, dsn: str, way: _Way, shares: Sequence[Sequence[Sequence[Event]]]
) -> float:
    """Events per second of the writers; what is kept must be right afterwards."""
    await asyncio.to_thread(_begin, dsn, way)
    count = sum(len(batch) for share in shares for batch in share)
    watching: Any = await asyncpg.connect(dsn)
    async with _running(dsn, way):
        begun = time.perf_counter()
        await asyncio.gather(*(_append_all(database, share) for share in shares))
        took = time.perf_counter() - begun
        if way.runs:
            await until(watching, _HANDLED, count)
    await watching.close()
    if way.kept:
        wanted = count, sum(event.payload.delay for share in shares for batch in share for event in batch)
        await asyncio.to_thread(workload.check, dsn, wanted, way.kept)
    return count / took


async def measure_keeping(server: Server, sizes: Sizes) -> list[Line]:
    """Transactions of one event, and of 50."""
    lines: list[Line] = []
    with server.database() as dsn:
        ways = _ways(dsn)
        async with connect(dsn) as database:
            for size, count in ((1, sizes.append_single), (50, sizes.append_small)):
                each = count // _WRITERS // size * size
                shares = [
                    [workload.events(n * each + start, size, sizes.sources) for start in range(0, each, size)]
                    for n in range(_WRITERS)
                ]
                turns: dict[str, Contender] = {
                    name: partial(_rate, database, dsn, way, shares) for name, way in ways.items()
                }
                rounds = await compare(turns, sizes.rounds)
                lines += [
                    rounds.line(
                        f"{_WRITERS} writers, transactions of {size}, {name}", "events/s", name, _NONE,
                        Goal(0.6) if name == _PROJECTION else None,
                    )
                    for name in ways
                    if name != _NONE
                ]  # fmt: skip
    return lines
