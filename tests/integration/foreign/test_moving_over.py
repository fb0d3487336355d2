"""Projections of other frameworks go on as ours: what these have handled is not handled again, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest
from pydantic import BaseModel

import offsets
from journal import (
    ConnectionSettings,
    Database,
    EventEnvelope,
    Log,
    Session,
    connect,
    event_type,
    slice_of,
)
from journal.foreign import Constant, TableMapping, pekko_r2dbc, table_log
from offsets import Elsewhere, MoveRefused, ProjectionRuns, Standing
from projections import handles, projection
from tests.fixtures.akka import TIMESTAMPS
from tests.fixtures.moving import take_over
from tests.fixtures.pekko import R2dbcJournal
from tests.fixtures.projections import (
    EFFECTS,
    caught_up,
    effects,
    execute,
    fetchval,
    record,
    running,
    until_effects,
)

FOREIGN = ConnectionSettings(foreign_journal=True)
OPENED = (31, "interop.Events$Opened", '{"owner": "x"}')


@event_type("interop.Events$Opened")
class Opened(BaseModel):
    owner: str


@projection("accounts", entity_type="account")
class Accounts:
    @handles(Opened)
    async def opened(self, session: Session, event: Opened, envelope: EventEnvelope) -> None:
        await record(session, envelope)


class Akka:
    """A journal of Akka, with the offsets of a projection that has handled some of it."""

    def __init__(self, journal: R2dbcJournal, connection: asyncpg.Connection) -> None:
        self._journal = journal
        self.connection = connection
        self._last: dict[str, int] = {}

    async def persist(self, persistence_id: str, at: datetime, count: int = 1) -> None:
        """Events of a source that were stamped at a time."""
        last = self._last.get(persistence_id, 0)
        self._last[persistence_id] = last + count
        await self._journal.persist(self.connection, persistence_id, last, *[OPENED] * count)
        await self.connection.execute(
            "UPDATE event_journal SET db_timestamp = $3 WHERE persistence_id = $1 AND seq_nr > $2",
            persistence_id, last, at,
        )  # fmt: skip

    async def handled(
        self, persistence_id: str, seq_nr: int, at: datetime, key: str = "0-1023", name: str = "accounts"
    ) -> None:
        await self.connection.execute(
            "INSERT INTO akka_projection_timestamp_offset_store VALUES ($1, $2, $3, $4, $5, $6, now())",
            name, key, slice_of(persistence_id), persistence_id, seq_nr, at,
        )  # fmt: skip


GOLDEN = Path(__file__).parents[2] / "fixtures/recorded/akka_offsets.jsonl"
"""Of a real projection of Akka over four ranges that was killed while the application went on: the events, its offsets,
and how far its effects were."""
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
AKKA = Elsewhere(framework="akka", name="accounts")


@asynccontextmanager
async def akka(empty_dsn: str, dsn: str) -> AsyncIterator[tuple[Akka, Log, Database]]:
    journal = R2dbcJournal(empty_dsn, payload="JSONB")
    await journal.create()
    connection = await asyncpg.connect(empty_dsn)
    await connection.execute(TIMESTAMPS)
    try:
        async with connect(empty_dsn, FOREIGN) as database, connect(dsn) as read_side:
            await execute(read_side, EFFECTS)
            log = await table_log(database, pekko_r2dbc(), name="bank")
            yield Akka(journal, connection), log, read_side
    finally:
        await connection.close()


def at(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


@pytest.mark.slow
async def test_a_timestamp_store_says_of_each_source_where_it_stands(empty_dsn: str, dsn: str) -> None:
    async with akka(empty_dsn, dsn) as (there, log, read_side):
        await there.persist("account|old", at(-60), 3)  # handled, and its offset deleted
        await there.persist("account|a", at(-2), 4)
        await there.handled("account|a", 2, at(-2))
        await there.handled("account|a", 4, at(-2))
        await there.persist("account|b", at(-1), 2)
        await there.handled("account|b", 1, at(-1))  # its second is not handled
        await there.persist("account|late", at(-3), 2)  # passed over, within the time that offsets are kept
        await there.persist("account|old", at(1))
        await there.persist("account|new", at(1), 2)
        await there.handled("mgmt|9a1f", 1, at(-10))
        moved = await take_over(read_side, log, Accounts, AKKA)
        assert (moved.start, moved.sources, moved.deleted) == (at(-6), 2, 0)
        await caught_up(read_side, Accounts, journal=log)
        for name in ("account|old", "account|a"):
            await there.persist(name, datetime.now(UTC))
        await caught_up(read_side, Accounts, journal=log)
        assert sorted(await effects(read_side)) == [
            ("account|a", 5), ("account|b", 2), ("account|late", 1), ("account|late", 2), ("account|new", 1),
            ("account|new", 2), ("account|old", 4), ("account|old", 5),
        ]  # fmt: skip


def _in_slices(first: int, last: int, count: int) -> list[str]:
    names = (f"account|{n}" for n in range(100_000))
    return [
        name
        for _, name in zip(range(count), (n for n in names if first <= slice_of(n) <= last), strict=False)
    ]


@pytest.mark.slow
async def test_instances_that_are_not_equally_far_go_on_where_each_stands(empty_dsn: str, dsn: str) -> None:
    low, high = _in_slices(0, 511, 4), _in_slices(512, 1023, 4)
    async with akka(empty_dsn, dsn) as (there, log, read_side):
        for one in (*low, *high):
            for minute in (-120, -60, -30):
                await there.persist(one, at(minute))
        for one in low:  # far behind
            await there.handled(one, 1, at(-120), "0-511")
        # Of the others the last one alone still has an offset.
        await there.handled(high[-1], 3, at(-30), "512-1023")
        await there.persist(high[0], at(-29))
        await there.handled(high[0], 4, at(-29), "512-1023")
        await take_over(read_side, log, Accounts, AKKA)
        await caught_up(read_side, Accounts, journal=log)
        # What was handled less than KEPT before the newest has an offset, or was passed over.
        assert sorted(await effects(read_side)) == sorted(
            [(one, n) for one in low for n in (2, 3)] + [(one, 3) for one in high[1:-1]]
        )


@pytest.mark.slow
async def test_a_source_stands_at_its_last_number_and_not_at_its_last_time(empty_dsn: str, dsn: str) -> None:
    """The transaction of event 2 began before that of event 1."""
    (low,) = _in_slices(0, 511, 1)
    first, high, last = sorted(_in_slices(512, 1023, 3), key=slice_of)
    async with akka(empty_dsn, dsn) as (there, log, read_side):
        await there.persist(low, at(-120))
        await there.handled(low, 1, at(-120), "0-511")
        await there.persist(high, at(-59))
        await there.persist(high, at(-60))
        for one in (first, last):
            await there.persist(one, at(-30))
            await there.handled(one, 1, at(-30), "512-1023")
        await take_over(read_side, log, Accounts, AKKA)
        await there.persist(high, datetime.now(UTC))
        await caught_up(read_side, Accounts, journal=log)
        assert await effects(read_side) == [(high, 3)]


@pytest.mark.slow
async def test_what_a_real_projection_of_akka_has_stored_is_taken_over(empty_dsn: str, dsn: str) -> None:
    lines = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    events = [line["event"] for line in lines if "event" in line]
    done = dict(line["effects"] for line in lines if "effects" in line)
    async with akka(empty_dsn, dsn) as (there, log, read_side):
        for name, seq_nr, stamp in events:
            await there.connection.execute(
                "INSERT INTO event_journal "
                "VALUES ($1, 'account', $2, $3, $4::text::timestamptz, 31, $5, $6, FALSE, '')",
                slice_of(name), name, seq_nr, stamp, OPENED[1], OPENED[2],
            )  # fmt: skip
        await there.connection.executemany(
            "INSERT INTO akka_projection_timestamp_offset_store "
            "VALUES ($1, $2, $3, $4, $5, $6::text::timestamptz, $7::text::timestamptz)",
            [line["offset"] for line in lines if "offset" in line],
        )
        moved = await take_over(read_side, log, Accounts, AKKA)
        assert (moved.sources, moved.deleted) == (len(done), 0)
        await caught_up(read_side, Accounts, journal=log)
        found = await effects(read_side)
    left = [(name, seq_nr) for name, seq_nr, _ in events if seq_nr > done.get(name, 0)]
    assert sorted(found) == sorted(left)
    assert all(
        found.index((name, n)) < found.index((name, n + 1)) for name, n in left if (name, n + 1) in left
    )


@pytest.mark.slow
@pytest.mark.parametrize("indexed", [False, True])
async def test_what_commits_late_after_the_move_is_handled(empty_dsn: str, dsn: str, indexed: bool) -> None:
    async with akka(empty_dsn, dsn) as (there, log, read_side):
        if indexed:
            await there.connection.execute(
                "CREATE INDEX ON event_journal (db_timestamp, slice, entity_type, persistence_id, seq_nr)"
            )
        now = await there.connection.fetchval("SELECT now()")
        await there.persist("account|a", now - timedelta(minutes=1), 2)
        await there.handled("account|a", 2, now - timedelta(minutes=1))
        open_for_long = await asyncpg.connect(empty_dsn)
        transaction = open_for_long.transaction()
        await transaction.start()
        await open_for_long.execute("SELECT 1")
        journal = R2dbcJournal(empty_dsn, payload="JSONB")
        await journal.persist(open_for_long, "account|late", 0, OPENED, OPENED)
        await take_over(read_side, log, Accounts, AKKA)
        async with running(read_side, Accounts, journal=log):
            await there.persist("account|b", now)
            await transaction.commit()
        await caught_up(read_side, Accounts, journal=log)
        await open_for_long.close()
        assert sorted(await effects(read_side)) == [
            ("account|b", 1),
            ("account|late", 1),
            ("account|late", 2),
        ]


async def test_what_cannot_be_taken_over_is_refused_and_changes_nothing(empty_dsn: str, dsn: str) -> None:
    async with akka(empty_dsn, dsn) as (there, log, read_side):

        async def refused(match: str, stands: Elsewhere | Standing = AKKA) -> None:
            with pytest.raises(MoveRefused, match=match):
                await take_over(read_side, log, Accounts, stands)
            assert not await fetchval(read_side, "SELECT count(*) FROM projections.source_offsets")

        await refused("nothing is stored of 'accounts' by akka: nothing is stored there")
        await there.handled("account|a", 2, at(0), name="carts")
        await refused("nothing is stored of 'accounts' by akka: it has 'carts'")
        await refused("nothing is stored there", Elsewhere(framework="pekko", name="accounts"))
        await refused("does not read a log that is ordered by times", Elsewhere(framework="emmett", name="x"))
        await there.handled("account|a", 2, at(0))
        await refused("has no event of any of 1 sources: it is another journal")
        await there.persist("account|a", at(-1))
        await refused(r"ahead of journal 'bank'.*'account\|a' \(event 2\)")
        await there.persist("account|a", at(0))
        transaction = there.connection.transaction()
        await transaction.start()
        await there.handled("account|a", 1, at(0))
        await refused(
            "is writing to public.akka_projection_timestamp_offset_store: stop the projection 'accounts'"
        )
        await transaction.rollback()
        await there.connection.execute(
            "BEGIN; LOCK TABLE akka_projection_timestamp_offset_store IN ROW EXCLUSIVE MODE; "
            "PREPARE TRANSACTION 'theirs'"
        )
        await refused("a prepared transaction of the database is writing to public.akka_projection")
        await there.connection.execute("ROLLBACK PREPARED 'theirs'")
        names = _in_slices(0, 1023, 3)
        names.sort(key=slice_of)
        for name, key in zip(names, ("0-511", "0-1023", "0-511"), strict=True):
            await there.persist(name, at(0))
            await there.handled(name, 1, at(0), key)
        await refused(r"keys '0-.*' and '0-.*' of projection 'accounts' both have slices from")
        await there.connection.execute(
            "UPDATE akka_projection_timestamp_offset_store SET projection_key = 'one'"
        )
        assert (await take_over(read_side, log, Accounts, AKKA, dry_run=True)).sources == 4
        assert not await fetchval(read_side, "SELECT count(*) FROM projections.projections")
        await there.connection.execute(
            "ALTER TABLE akka_projection_timestamp_offset_store DROP projection_key"
        )
        await refused("is not of a version that is known")


@pytest.mark.slow
async def test_a_projection_that_runs_or_has_begun_takes_nothing_over(empty_dsn: str, dsn: str) -> None:
    async with akka(empty_dsn, dsn) as (there, log, read_side):
        await there.persist("account|a", at(0), 2)
        await there.handled("account|a", 1, at(0))
        async with running(read_side, Accounts, journal=log):
            with pytest.raises(ProjectionRuns, match="projection 'accounts' is run by"):
                await take_over(read_side, log, Accounts, AKKA)
        await caught_up(read_side, Accounts, journal=log)
        with pytest.raises(MoveRefused, match=r"has begun already.*projections offsets clear accounts"):
            await take_over(read_side, log, Accounts, AKKA)
        await execute(read_side, "TRUNCATE effects")
        async with read_side.transaction() as session:
            await offsets.clear_offset(session, "accounts")
        await take_over(read_side, log, Accounts, AKKA)
        await caught_up(read_side, Accounts, journal=log)
        assert await effects(read_side) == [("account|a", 2)]


SEQUENCES = """
CREATE TABLE pekko_projection_offset_store (
    projection_name VARCHAR(255) NOT NULL, projection_key VARCHAR(255) NOT NULL, current_offset VARCHAR(255) NOT NULL,
    manifest VARCHAR(4) NOT NULL, mergeable BOOLEAN NOT NULL, last_updated BIGINT NOT NULL,
    PRIMARY KEY(projection_name, projection_key)
)
"""
EVENTS = """
CREATE TABLE events (
    ordering bigserial PRIMARY KEY, stream text, number bigint, tags text[], UNIQUE (stream, number)
)
"""
PROCESSORS = """
CREATE TABLE emt_processors (
    last_processed_transaction_id XID8 NOT NULL, version INT NOT NULL DEFAULT 1, processor_id TEXT NOT NULL,
    partition TEXT NOT NULL DEFAULT 'emt:default', status TEXT NOT NULL DEFAULT 'stopped',
    last_processed_checkpoint TEXT NOT NULL, processor_instance_id TEXT DEFAULT 'emt:unknown',
    PRIMARY KEY (processor_id, partition, version)
) PARTITION BY LIST (partition);
CREATE TABLE emt_processors_default PARTITION OF emt_processors FOR VALUES IN ('emt:default');
"""
SUBSCRIPTIONS = """
CREATE TABLE emt_subscriptions (
    subscription_id TEXT NOT NULL, version INT NOT NULL DEFAULT 1, partition TEXT NOT NULL DEFAULT 'global',
    last_processed_position BIGINT NOT NULL, last_processed_transaction_id XID8 NOT NULL,
    PRIMARY KEY (subscription_id, partition, version)
)
"""
MESSAGES = """
CREATE SCHEMA message_store;
CREATE TABLE message_store.messages (
    global_position bigserial, position bigint, stream_name text, type text, data jsonb
);
INSERT INTO message_store.messages (position, stream_name, type, data) VALUES
(0, 'account:position-owners', 'Recorded', '{"position": 2}'),
(1, 'account:position-owners', 'Recorded', '{"position": 5}')
"""


@asynccontextmanager
async def numbered(
    empty_dsn: str, dsn: str, *sql: str
) -> AsyncIterator[tuple[asyncpg.Connection, Log, Database]]:
    """A log of nine events that is ordered by numbers, and what else is in its database."""
    connection = await asyncpg.connect(empty_dsn)
    try:
        for statement in (EVENTS, *sql):
            await connection.execute(statement)
        for n in range(9):
            await connection.execute(
                "INSERT INTO events (stream, number, tags) VALUES ($1, $2, $3)",
                "abc"[n % 3],
                n // 3 + 1,
                ["xyz"[n % 3]],
            )
        async with connect(empty_dsn, FOREIGN) as database, connect(dsn) as read_side:
            await execute(read_side, EFFECTS)
            yield connection, await table_log(database, NUMBERED, name="log"), read_side
    finally:
        await connection.close()


NUMBERED = TableMapping(
    table="events", source="stream", number="number", position="ordering", bound="sequence",
    entity_type=Constant("account"), event_type=Constant("interop.Events$Opened"),
    payload=Constant('{"owner": "x"}'), tags="tags",
)  # fmt: skip


async def left(read_side: Database, log: Log, stands: Standing | Elsewhere) -> list[tuple[str, int]]:
    await take_over(read_side, log, Accounts, stands)
    await caught_up(read_side, Accounts, journal=log)
    return await effects(read_side)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stands", "sql"),
    [
        (offsets.at_position(5), "SELECT 1"),
        (
            Elsewhere(framework="pekko", name="p"),
            f"{SEQUENCES}; INSERT INTO pekko_projection_offset_store VALUES ('p', 'any', '5', 'SEQ', FALSE, 0)",
        ),
        (Elsewhere(framework="message-db", name="account:position-owners"), MESSAGES),
        (
            Elsewhere(framework="emmett", name="p"),
            PROCESSORS
            + "INSERT INTO emt_processors VALUES ('9', 1, 'p', 'emt:default', '', '0000000000000000005')",
        ),
        (
            Elsewhere(framework="emmett", name="p"),
            f"{SUBSCRIPTIONS}; INSERT INTO emt_subscriptions VALUES ('p', 1, 'global', 5, '9')",
        ),
    ],
)
async def test_a_position_says_that_all_up_to_it_is_handled(
    empty_dsn: str, dsn: str, stands: Standing | Elsewhere, sql: str
) -> None:
    async with numbered(empty_dsn, dsn, sql) as (connection, log, read_side):
        assert await left(read_side, log, stands) == [("c", 2), ("a", 3), ("b", 3), ("c", 3)]
        await connection.execute("INSERT INTO events (stream, number) VALUES ('a', 4), ('new', 1)")
        await caught_up(read_side, Accounts, journal=log)
        assert sorted((await effects(read_side))[4:]) == [("a", 4), ("new", 1)]


async def test_what_is_open_when_a_position_is_taken_over_is_handled_later(empty_dsn: str, dsn: str) -> None:
    async with numbered(empty_dsn, dsn) as (connection, log, read_side):
        slow = await asyncpg.connect(empty_dsn)
        transaction = slow.transaction()
        await transaction.start()
        await slow.execute("INSERT INTO events (stream, number) VALUES ('late', 1), ('late', 2)")
        await connection.execute("INSERT INTO events (stream, number) VALUES ('a', 4), ('b', 4)")
        await take_over(read_side, log, Accounts, offsets.at_position(12))
        async with running(read_side, Accounts, journal=log):
            await until_effects(read_side, 1)
            await transaction.commit()
            await until_effects(read_side, 3)
        await slow.close()
        assert await effects(read_side) == [("b", 4), ("late", 1), ("late", 2)]


async def test_keys_that_are_tags_each_have_a_position(empty_dsn: str, dsn: str) -> None:
    insert = "INSERT INTO pekko_projection_offset_store VALUES ('p', '{}', '{}', '{}', FALSE, 0)"
    rows = [insert.format(*row, "SEQ") for row in (("x", 4), ("y", 8), ("z", 6))]
    pekko = Elsewhere(framework="pekko", name="p")
    async with numbered(empty_dsn, dsn, SEQUENCES, *rows) as (connection, log, read_side):
        await connection.execute(insert.format("other", 5, "SEQ"))
        with pytest.raises(
            MoveRefused, match="stand at several positions, and 'other' is not the tag of an event"
        ):
            await take_over(read_side, log, Accounts, pekko)
        await connection.execute(
            "UPDATE pekko_projection_offset_store SET manifest = 'TBU' WHERE projection_key = 'other'"
        )
        with pytest.raises(MoveRefused, match="is not a number of a log"):
            await take_over(read_side, log, Accounts, pekko)
        await connection.execute("DELETE FROM pekko_projection_offset_store WHERE projection_key = 'other'")
        assert await left(read_side, log, pekko) == [("a", 3), ("c", 3)]


async def test_a_source_whose_events_have_tags_at_several_positions_is_refused(
    empty_dsn: str, dsn: str
) -> None:
    insert = "INSERT INTO pekko_projection_offset_store VALUES ('p', '{}', '{}', 'SEQ', FALSE, 0)"
    async with numbered(empty_dsn, dsn, SEQUENCES, insert.format("x", 12), insert.format("y", 8)) as (
        connection, log, read_side,
    ):  # fmt: skip
        await connection.execute(
            "INSERT INTO events (stream, number, tags) VALUES ('m', 1, '{x}'), ('m', 2, '{y}'), ('m', 3, '{x}')"
        )
        with pytest.raises(MoveRefused, match="of source 'm', projection 'p' has handled event 3, but not 2"):
            await take_over(read_side, log, Accounts, Elsewhere(framework="pekko", name="p"))
        await connection.execute("UPDATE events SET tags = '{y}' WHERE stream = 'm' AND number = 3")
        assert [
            effect
            for effect in await left(read_side, log, Elsewhere(framework="pekko", name="p"))
            if effect[0] == "m"
        ] == [("m", 2), ("m", 3)]
