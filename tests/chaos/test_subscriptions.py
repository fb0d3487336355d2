"""
Processes that match and that consume are killed and stopped, ranges of both cut again, connections ended, PostgreSQL
crashes, writers are late or roll back, others subscribe and go, partitions come and leave.

Every event is matched once with every subscription that was there throughout, every handler sees each of its events,
in its source's order, no cursor passes one, and what a handler did not bear is kept. No condition but those that fail
is set apart. CHAOS_SEED and CHAOS_SECONDS are those of test_chaos.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from journal import ConnectionSettings, Database, connect
from journal.schema import install
from tests.chaos.chaos import SOURCES
from tests.chaos.rolling import POISONED, RollingChaos
from tests.chaos.server import server_of_its_own
from tests.chaos.subscriber import ODD, POISON
from tests.chaos.subscriptions import CONNECTIONS, FAILING, SubscriptionChaos
from tests.chaos.test_chaos import SECONDS, rows

_MATCHED = "SELECT source_id, seq_nr FROM match_log WHERE subscription_id = {number}"
_WRONG = f"""
(SELECT 'missing', * FROM ({{expected}} EXCEPT ALL {_MATCHED}) AS m)
UNION ALL
(SELECT 'too much', * FROM ({_MATCHED} EXCEPT ALL {{expected}}) AS t)
"""
_TWICE = "SELECT source_id, seq_nr, subscription_id FROM match_log GROUP BY 1, 2, 3 HAVING count(*) > 1"
_UNSEEN = """
SELECT m.source_id, m.seq_nr FROM match_log AS m WHERE m.subscription_id = {number} AND NOT EXISTS (
    SELECT FROM seen AS s WHERE s.handler = '{handler}' AND s.source_id = m.source_id AND s.seq_nr = m.seq_nr
)
"""
# Publishers have events that are for later.
_SEEN = """
SELECT source_id, seq_nr FROM seen WHERE handler = '{handler}' AND NOT starts_with(source_id, 'publisher/') ORDER BY n
"""
_DEAD = """
SELECT j.match ->> 'source_id' AS source_id, (j.match ->> 'seq_nr')::bigint AS seq_nr
FROM projections.group_retries AS r CROSS JOIN LATERAL json_array_elements(r.matches) AS j (match)
WHERE r.due_at IS NULL
"""
_POISON = f"""
SELECT m.source_id, m.seq_nr FROM match_log AS m INNER JOIN event_log AS e USING (source_id, seq_nr)
WHERE m.subscription_id = {{number}}
AND CASE jsonb_typeof(e.payload -> 'n') WHEN 'number' THEN (e.payload ->> 'n')::integer % {POISON} = 0 END
"""
_INNOCENT = (
    "SELECT sql, error FROM projections.conditions WHERE quarantined_at IS NOT NULL AND sql <> ALL ($1)"
)


async def keys(database: Database, sql: str) -> set[tuple[str, int]]:
    return {(row["source_id"], row["seq_nr"]) for row in await rows(database, sql)}


async def check_matches(database: Database) -> int:
    """Each event was matched once, with the subscriptions that it is for; returns how many matches that were."""
    for row in await rows(database, "SELECT * FROM asked"):
        number, predicate = row["subscription_id"], row["predicate"]
        expected = f"""
        SELECT source_id, seq_nr FROM event_log
        WHERE CASE WHEN payload ->> 'to' IS NULL THEN {predicate} ELSE (payload ->> 'to')::bigint = {number} END
        """
        assert await rows(database, _WRONG.format(expected=expected, number=number)) == [], predicate
    assert await rows(database, _TWICE) == []
    return len(await rows(database, "SELECT FROM match_log"))


async def check_seen(database: Database, reading: dict[str, int]) -> None:
    """Handlers have seen what matched, first in its order; what one did not bear is among the dead letters."""
    for handler in reading.keys() - {"published"}:
        assert await keys(database, _UNSEEN.format(number=reading[handler], handler=handler)) == set()
        seen = await rows(database, _SEEN.format(handler=handler))
        first: dict[str, list[int]] = {}
        for source_id, seq_nr in dict.fromkeys((row["source_id"], row["seq_nr"]) for row in seen):
            first.setdefault(source_id, []).append(seq_nr)
        assert [source_id for source_id, seq_nrs in first.items() if seq_nrs != sorted(seq_nrs)] == []
    number = reading["published"]
    dead = await keys(database, _DEAD)
    assert await keys(database, _POISON.format(number=number)) <= dead
    assert await keys(database, _UNSEEN.format(number=number, handler="published")) <= dead


@asynccontextmanager
async def chaos(
    kind: type[SubscriptionChaos], logs: Path, seconds: float
) -> AsyncIterator[tuple[Database, SubscriptionChaos]]:
    """Let it all happen, and catch up; the block looks at what is special, and all else is looked at after it."""
    async with server_of_its_own() as (server, dsn):
        await asyncio.to_thread(install, dsn)
        async with connect(dsn, ConnectionSettings(max_connections=CONNECTIONS)) as database:
            running = kind(server, dsn, database, logs, seconds)
            await running.prepare()
            await running.run()
            await running.catch_up()
            print({"seed": running.seed, **running.counts})
            yield database, running
            matches = await check_matches(database)
            await check_seen(database, running.reading)
            async with database.session() as session:
                assert list(await session.fetch(_INNOCENT, FAILING)) == []
    assert matches > seconds
    assert all(
        running.counts[what] for what in ("kills", "group rescales", "terminations", "crashes", "looks")
    )


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
async def test_whatever_goes_wrong_for_minutes_every_event_is_matched_once_and_handled(
    tmp_path: Path,
) -> None:
    async with chaos(SubscriptionChaos, tmp_path, SECONDS):
        pass


_CALM = """
SELECT s.handler, s.source_id, s.seq_nr FROM seen AS s INNER JOIN event_log AS e USING (source_id, seq_nr)
WHERE e.payload @> '{"calm": true}'
"""
_POISONED = f"SELECT source_id, seq_nr FROM event_log WHERE {POISONED}"
_SET_APART = """
SELECT source_id, seq_nr FROM projections.unanswered AS u INNER JOIN projections.conditions AS c USING (condition_id)
WHERE c.sql = $1 AND u.error IS NOT NULL AND NOT u.due
"""


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
async def test_versions_of_an_application_are_rolled_forward_and_back_and_no_handler_loses_anything(
    tmp_path: Path,
) -> None:
    async with chaos(RollingChaos, tmp_path, SECONDS) as (database, running):
        assert isinstance(running, RollingChaos)
        assert await keys(database, _POISONED) == {
            (row["source_id"], row["seq_nr"]) for row in await rows(database, _SET_APART, ODD)
        }
        assert all(
            running.counts[what] for what in ("rolls", "consumers of version 1", "consumers of version 2")
        )
        await running.calm()
        seen = Counter(tuple(row.values()) for row in await rows(database, _CALM))
    assert len(seen) == 5 * len(SOURCES) * running.calm_rounds
    assert set(seen.values()) == {1}
