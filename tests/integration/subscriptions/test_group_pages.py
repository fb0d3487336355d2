"""Reading page by page on a fresh database: the planner knows nothing of its tables yet."""

from __future__ import annotations

from journal import ALL_SLICES, Database
from projections.subscriptions import subscribe
from projections.subscriptions.reading import settled_matches
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.subscriptions import match_all, read_next

EVENTS = 10_000
PUBLISH = """
SELECT count(*) FROM projections.publish_v1(
    'p', array_fill('t'::text, ARRAY[$1::integer]), ARRAY(SELECT n::text FROM generate_series(1, $1::integer) AS n)
)
"""


async def test_pages_leave_nothing_out_before_the_first_statistics(database: Database) -> None:
    async with database.session() as session:
        await subscribe(session, "g")
    await execute(database, "ALTER TABLE projections.matches_default SET (autovacuum_enabled = FALSE)")
    assert await fetchval(database, PUBLISH, EVENTS) == EVENTS
    await match_all(database)

    read: list[int] = []
    async with database.session() as session:
        until = await settled_matches(session)
        while page := await read_next(
            session, "g", ALL_SLICES, after=read[-1] if read else 0, until=until, limit=700
        ):
            read += [match.match_id for match in page]

    assert len(read) == EVENTS
    assert read == sorted(set(read))
