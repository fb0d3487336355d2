"""Looking at a thousand projections is a few statements, whose cost follows what is behind."""

from __future__ import annotations

import json
from typing import Any

from journal import Database, OwnedSession, slice_of
from projections.monitoring import projection_lags, snapshot
from tests.fixtures.plans import RUNS, shared_blocks
from tests.fixtures.projections import execute, fetchval, happen

REGISTER = """
SELECT count(projections.register_projection_v1('p' || n, '{plane}', '{0,512}'))
FROM generate_series(1, $1::integer) AS n
"""
CAUGHT_UP = """
UPDATE projections.projection_ranges SET horizon = e.at + interval '1 second', handled_until = e.at
FROM (SELECT max(db_timestamp) AS at FROM projections.events) AS e
WHERE projection_id > 1
"""
LAG = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM projections.slice_lag_v1()"


class Counting:
    """A session that counts what is asked."""

    def __init__(self, session: OwnedSession) -> None:
        self._session = session
        self.statements = 0

    def __getattr__(self, name: str) -> Any:
        if name in {"execute", "fetch", "fetchrow", "fetchval"}:
            self.statements += 1
        return getattr(self._session, name)


async def statements(database: Database) -> int:
    async with database.session() as session:
        counting = Counting(session)
        await snapshot(counting, everything=True)  # type: ignore[arg-type]
    return counting.statements


async def test_a_look_at_many_projections_is_as_many_statements_as_at_one(database: Database) -> None:
    await happen(database, "a")
    await execute(database, REGISTER, 1)
    of_one = await statements(database)
    await execute(database, REGISTER, 50)

    assert await statements(database) == of_one


async def test_each_projection_is_told_its_own(database: Database) -> None:
    await happen(database, "a", "b", "b")
    await execute(database, REGISTER, 3)
    await execute(database, CAUGHT_UP)
    await execute(
        database,
        "INSERT INTO projections.parked_sources (projection_id, source_id, slice, seq_nr, event_type, error, attempts) "
        "VALUES (3, 'b', $1, 1, 'Landed', 'no', 1)",
        slice_of("b"),
    )

    async with database.session() as session:
        found = await projection_lags(session, ["p3", "p1", "p2"])

    assert [one.name for one in found] == ["p3", "p1", "p2"]
    assert [(one.backlog, one.parked, one.parked_since is not None) for one in found] == [
        (0, 1, True),
        (3, 0, False),
        (0, 0, False),
    ]
    assert all(len(one.slices) == 1024 for one in found)
    assert found[1].slices[slice_of("b")].backlog == 2


async def _pages(database: Database) -> int:
    async with database.session() as session:
        return min([shared_blocks(json.loads(await session.fetchval(LAG))) for _ in range(RUNS)])


async def test_a_thousand_projections_that_are_behind_nothing_cost_a_few_pages_each(
    database: Database,
) -> None:
    await happen(database, *(f"s{n}" for n in range(200)))
    await execute(database, REGISTER, 1000)
    await execute(database, CAUGHT_UP)
    await execute(database, "UPDATE projections.projection_ranges SET horizon = now(), handled_until = now()")

    assert await fetchval(database, "SELECT count(*) FROM projections.slice_lag_v1()") == 0
    assert await _pages(database) < 20_000
