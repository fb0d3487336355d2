"""
Publishing, matching and reading what matched, beside the same statements by hand, which match and remember nothing.

Payloads have 230 bytes. Of many subscriptions each asks for one of a thousand topics, so an event is for a thousandth
of them. The conditions of the last rounds are a hundred texts.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Any

import asyncpg
import psycopg

from journal import ConnectionSettings, Event, append, connect
from projections import run
from projections.subscriptions import subscribe
from projections.subscriptions.matching import Matching
from tests.benchmarks.harness import Contender, Goal, Line, Sizes, compare
from tests.benchmarks.server import Server, settle

BATCH = 500
PAGE = 5_000
_PUBLISHERS = 4
_TOPICS = 1_000
_CONDITIONS = 100
_GROUP = "consumers"
_HALVED = Goal(0.5)

_PUBLISH = "SELECT projections.publish_v1($1, $2, $3)"
_SUBSCRIBE = "SELECT projections.subscribe_v1($1, $2, $3, NULL, $4)"
_SETTLED = "SELECT projections.settled_matches_v1()"
_READ = "SELECT * FROM projections.read_next_v1($1, 0, 1023, $2, $3, $4)"
_MOVE = "SELECT projections.move_cursor_v1($1, 0, $2, $3)"
_POLL = "SELECT epoch FROM projections.poll_group_v1($1, 'benchmark')"

_LATE = "late"
_CATCHING_UP = "SELECT count(*) FROM projections.subscriptions WHERE starts_at IS NOT NULL"
_CAUGHT_UP = """
SELECT count(*) FROM projections.matches AS m INNER JOIN projections.subscription_groups AS g USING (group_id)
WHERE g.name = $1
"""
_ANEW = """
TRUNCATE projections.matches, projections.source_offsets;
DELETE FROM projections.projections;
UPDATE projections.group_ranges SET cursor = 0;
"""
_BY_HAND = """
CREATE TABLE by_hand (LIKE projections.matches_default INCLUDING ALL);
"""
_PAGE_BY_HAND = """
SELECT db_timestamp, slice, source_id, seq_nr, event_type FROM projections.events
WHERE entity_type = 'published' AND db_timestamp >= $1
AND (db_timestamp, slice, source_id, seq_nr) > ($1, $2::smallint, $3, $4)
ORDER BY entity_type, db_timestamp, slice, source_id, seq_nr LIMIT 5000
"""
_MATCH_BY_HAND = """
INSERT INTO by_hand (match_id, group_id, slice, seq_nr, db_timestamp, matched_at, source_id, subscription_ids)
SELECT nextval('projections.match_ids'), 1, slice, seq_nr, db_timestamp, clock_timestamp(), source_id, '{1}'
FROM unnest($1::timestamptz[], $2::smallint[], $3::text[], $4::bigint[]) AS e (db_timestamp, slice, source_id, seq_nr)
"""
_READ_BY_HAND = """
SELECT m.match_id, m.subscription_ids, e.* FROM (
    SELECT * FROM by_hand WHERE group_id = 1 AND match_id > $1 ORDER BY match_id LIMIT 5000
) AS m
INNER JOIN projections.events AS e
ON m.source_id = e.source_id AND m.seq_nr = e.seq_nr AND m.db_timestamp = e.db_timestamp
ORDER BY m.match_id
"""

Asked = tuple[str | None, dict[str, Any], list[str] | None]
"""A condition, its params, and topics."""


def topic(n: int) -> str:
    return f"topic-{n % _TOPICS}"


def payload(n: int) -> str:
    return json.dumps({"id": n, "text": "x" * 210})


def one(_: int) -> list[Asked]:
    return [(None, {}, None)]


def _one_on_payload(_: int) -> list[Asked]:
    return [("(e.payload ->> 'id')::bigint >= 0", {}, None)]


def _all_of_each(count: int) -> list[Asked]:
    """A tenth of them, and each is for all events: a match has an array of them all."""
    return [(None, {"number": n}, None) for n in range(count // 10)]


def _by_topic(count: int) -> list[Asked]:
    return [(None, {"number": n}, [topic(n)]) for n in range(count)]


def _by_conditions_on_topics(count: int) -> list[Asked]:
    """As PGMB's subscriptions are: the topic is in the params."""
    same = "s.params @> jsonb_build_object('topic', e.topic) AND {} >= 0"
    return [(same.format(n % _CONDITIONS), {"topic": topic(n), "number": n}, None) for n in range(count)]


def _by_conditions_on_payload(count: int) -> list[Asked]:
    return [
        (f"(e.payload ->> 'id')::bigint >= {n % _CONDITIONS} - 100", {"number": n}, [topic(n)])
        for n in range(count)
    ]


def _one_on_both(_: int) -> list[Asked]:
    return [("(e.payload ->> 'id')::bigint >= (s.params ->> 'number')::bigint", {"number": 0}, None)]


def _by_conditions_on_both(count: int) -> list[Asked]:
    """What the payload is compared with is in the params: asked for each event and subscription."""
    both = "(e.payload ->> 'id')::bigint >= (s.params ->> 'number')::bigint - {}"
    return [(both.format(count + n % _CONDITIONS), {"number": n}, [topic(n)]) for n in range(count)]


class Journal:
    """A database in which a number of events was published after somebody had subscribed."""

    def __init__(self, dsn: str, events: int) -> None:
        self._dsn = dsn
        self._events = events
        self.published = 0.0

    async def fill(self, asked: Sequence[Asked]) -> None:
        """Subscribe and publish."""
        connection = await asyncpg.connect(self._dsn)
        try:
            async with connection.transaction():
                for condition, params, topics in asked:
                    await connection.execute(_SUBSCRIBE, _GROUP, condition, json.dumps(params), topics)
            await connection.execute(_BY_HAND)
            begun = time.perf_counter()
            for first in range(0, self._events, BATCH):
                numbers = range(first, first + BATCH)
                await connection.execute(
                    _PUBLISH,
                    f"publisher-{first // BATCH % _PUBLISHERS}",
                    [topic(n) for n in numbers],
                    [payload(n) for n in numbers],
                )
            self.published = self._events / (time.perf_counter() - begun)
        finally:
            await connection.close()
        with psycopg.connect(self._dsn, autocommit=True) as server:
            server.execute("ANALYZE projections.subscriptions, projections.subscription_topics")
        settle(self._dsn)

    async def match(self) -> float:
        """Match all events; returns how many that are in a second."""
        await self._run(_ANEW)
        begun = time.perf_counter()
        async with connect(self._dsn, ConnectionSettings(max_connections=5)) as database:
            await run(database, discovery=Matching(), until_caught_up=True)
        return self._events / (time.perf_counter() - begun)

    async def catch_up(self) -> float:
        """Subscribe another group from the beginning; returns how many events it catches up with in a second."""
        stop = asyncio.Event()
        async with connect(self._dsn, ConnectionSettings(max_connections=5)) as database:
            async with database.session() as session:
                await session.execute("DELETE FROM projections.subscription_groups WHERE name = $1", _LATE)
                begun = time.perf_counter()
                await subscribe(session, _LATE, start="beginning")
            running = asyncio.create_task(run(database, discovery=Matching(), stop=stop))
            async with database.session() as session:
                while await session.fetchval(_CATCHING_UP):
                    await asyncio.sleep(0.01)
                took = time.perf_counter() - begun
                caught_up = await session.fetchval(_CAUGHT_UP, _LATE)
            stop.set()
            await running
        if caught_up != self._events:
            raise AssertionError(f"{caught_up} of {self._events} events were caught up with")
        return self._events / took

    async def match_and_read(self) -> float:
        """Match all events, then read them as a consumer does."""
        matching = self._events / await self.match()
        return self._events / (matching + await self._timed(self._read))

    async def by_hand(self) -> float:
        """The same reading and writing without anything that makes it safe."""
        await self._run("TRUNCATE by_hand")
        return self._events / await self._timed(self._read_and_write)

    async def _run(self, sql: str) -> None:
        connection = await asyncpg.connect(self._dsn)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()

    async def _timed(self, work: Callable[[asyncpg.Connection], Awaitable[int]]) -> float:
        connection = await asyncpg.connect(self._dsn)
        try:
            begun = time.perf_counter()
            read = await work(connection)
            took = time.perf_counter() - begun
        finally:
            await connection.close()
        if read != self._events:
            raise AssertionError(f"{read} of {self._events} events were read")
        return took

    async def _read(self, connection: asyncpg.Connection) -> int:
        epoch = await connection.fetchval(_POLL, _GROUP)
        cursor = read = 0
        until = await connection.fetchval(_SETTLED)
        while page := await connection.fetch(_READ, _GROUP, cursor, until, PAGE):
            read += len(page)
            cursor = page[-1]["match_id"]
            await connection.execute(_MOVE, _GROUP, epoch, cursor)
            until = await connection.fetchval(_SETTLED)
        return read

    async def _read_and_write(self, connection: asyncpg.Connection) -> int:
        place = await connection.fetchval("SELECT '1970-01-01Z'::timestamptz"), -1, "", 0
        while page := await connection.fetch(_PAGE_BY_HAND, *place):
            await connection.execute(
                _MATCH_BY_HAND, *[list(column) for column in zip(*page, strict=True)][:4]
            )
            place = tuple(page[-1])[:4]
        read = cursor = 0
        while rows := await connection.fetch(_READ_BY_HAND, cursor):
            read += len(rows)
            cursor = rows[-1]["match_id"]
        return read


async def _appending(dsn: str, count: int) -> float:
    """Append as many events of four sources, in batches of the same size."""
    async with connect(dsn) as database:
        begun = time.perf_counter()
        for first in range(0, count, BATCH):
            source = f"source-{first // BATCH % _PUBLISHERS}"
            events = [
                Event(source, {"id": n, "text": "x" * 210}, "plane", topic(n))
                for n in range(first, first + BATCH)
            ]
            async with database.transaction() as session:
                await append(session, events)
        return count / (time.perf_counter() - begun)


async def measure_subscriptions(server: Server, sizes: Sizes) -> list[Line]:
    """Publishing, matching and reading; then matching with many subscriptions."""
    kinds: dict[str, Callable[[int], list[Asked]]] = {
        "one subscription": one,
        "one on the payload": _one_on_payload,
        "all of each": _all_of_each,
        "by topic": _by_topic,
        "on types": _by_conditions_on_topics,
        "on the payload": _by_conditions_on_payload,
        "one on both": _one_on_both,
        "on both": _by_conditions_on_both,
    }
    with ExitStack() as stack:
        journals = {kind: Journal(stack.enter_context(server.database()), sizes.matched) for kind in kinds}
        for kind, journal in journals.items():
            await journal.fill(kinds[kind](sizes.subscriptions))
        appended = await _appending(stack.enter_context(server.database()), sizes.matched)
        single = journals["one subscription"]
        reading = await compare(
            {"matched and read": single.match_and_read, "the same by hand": single.by_hand}, sizes.rounds
        )
        matching: dict[str, Contender] = {kind: journal.match for kind, journal in journals.items()}
        matched = await compare(matching, sizes.rounds)
        past = await compare({"matched": single.match, "caught up with": single.catch_up}, sizes.rounds)
    many = f"{sizes.subscriptions:,} subscriptions"
    return [
        Line("publish, batches of 500", single.published, "events/s", "append", appended, single.published / appended),
        reading.line("matched and read by a group", "events/s", "matched and read", "the same by hand"),
        past.line("catch up from the beginning, one subscription", "events/s", "caught up with", "matched"),
        matched.line(
            f"match, {sizes.subscriptions // 10:,} subscriptions that want each event", "events/s", "all of each",
            "one subscription",
        ),
        matched.line(f"match, {many} by topic", "events/s", "by topic", "one subscription", _HALVED),
        matched.line(f"match, {many}, 100 conditions on types", "events/s", "on types", "one subscription", _HALVED),
        matched.line(
            f"match, {many}, 100 conditions on payloads", "events/s", "on the payload", "one on the payload", _HALVED
        ),
        matched.line(
            f"match, {many}, 100 conditions on payloads and params", "events/s", "on both", "one on both", _HALVED
        ),
    ]  # fmt: skip
