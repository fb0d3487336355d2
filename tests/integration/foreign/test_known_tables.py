"""Systems that number their events inside the INSERT, by their own tables: late commits, and the parts of an event."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest
from psycopg.conninfo import conninfo_to_dict

from journal import ALL_TYPES, connect, current_events
from journal.foreign import emmett, message_db, pekko_jdbc, pekko_payloads, table_log
from journal.foreign.checking import check
from tests.fixtures.foreign import FOREIGN, Follower, OnlyForward, stored_keys, write_late
from tests.fixtures.java import JavaProgram, ended, needs_java
from tests.fixtures.node_systems import EMMETT, MESSAGE_DB
from tests.fixtures.pekko import GOLDEN

pytest.importorskip("cbor2")


# Of pekko-persistence-jdbc 1.1.0.
PEKKO_JDBC = """
CREATE TABLE event_journal (
    ordering BIGSERIAL, persistence_id VARCHAR(255) NOT NULL, sequence_number BIGINT NOT NULL,
    deleted BOOLEAN DEFAULT FALSE NOT NULL, writer VARCHAR(255) NOT NULL, write_timestamp BIGINT,
    adapter_manifest VARCHAR(255), event_ser_id INTEGER NOT NULL, event_ser_manifest VARCHAR(255) NOT NULL,
    event_payload BYTEA NOT NULL, meta_ser_id INTEGER, meta_ser_manifest VARCHAR(255), meta_payload BYTEA,
    PRIMARY KEY(persistence_id, sequence_number)
);
CREATE UNIQUE INDEX event_journal_ordering_idx ON event_journal(ordering);
CREATE TABLE event_tag (
    event_id BIGINT, tag VARCHAR(256), PRIMARY KEY(event_id, tag),
    CONSTRAINT fk_event_journal FOREIGN KEY(event_id) REFERENCES event_journal(ordering) ON DELETE CASCADE
);
"""
_PEKKO_JDBC = """
INSERT INTO event_journal (persistence_id, sequence_number, writer, event_ser_id, event_ser_manifest, event_payload)
VALUES ($1, $2, '', 31, 'bank.Opened#2', '{"a": 1}')
"""
_MESSAGE_DB = """
WITH lock AS MATERIALIZED (SELECT pg_advisory_xact_lock(hashtext(split_part($1, '-', 1))))
INSERT INTO message_store.messages (stream_name, position, type, data, metadata)
SELECT $1, $2 - 1, 'Opened', '{"a": 1}', '{"b": 2}' FROM lock
"""
_EMMETT = """
INSERT INTO emt_messages (
    stream_id, stream_position, partition, message_data, message_metadata, message_schema_version, message_type,
    message_id, transaction_id
) VALUES (
    $1, $2, 'emt:default', '{"a": 1}', '{"b": 2}', '1', 'Opened', gen_random_uuid(), pg_current_xact_id()
)
"""
SYSTEMS = {
    "pekko-jdbc": (
        PEKKO_JDBC, pekko_jdbc(), "account|{}", "event_journal", "persistence_id", "sequence_number", _PEKKO_JDBC,
    ),
    "message-db": (
        MESSAGE_DB, message_db(), "account-{}", "message_store.messages", "stream_name", "position + 1", _MESSAGE_DB,
    ),
    "emmett": (EMMETT, emmett(), "account:{}", "emt_messages", "stream_id", "stream_position", _EMMETT),
}  # fmt: skip


async def create(dsn: str, ddl: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(ddl)
    await connection.close()


async def write(dsn: str, insert: str, name: str, seconds: float, seed: int) -> None:
    async def rows(connection: asyncpg.Connection, source: str, last: int, count: int) -> None:
        for n in range(last + 1, last + count + 1):
            await connection.execute(insert, source, n)

    await write_late(dsn, (name.format(f"{seed}-{n}") for n in range(4)), seconds, seed, rows)


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
async def test_every_late_commit_is_found(empty_dsn: str, system: str) -> None:
    ddl, mapping, name, table, source, number, insert = SYSTEMS[system]
    if system == "message-db":  # else one lock serialises all, and there is nothing to lose
        name = "{0}x-{0}"
    await create(empty_dsn, ddl)
    async with (
        connect(empty_dsn, FOREIGN["asyncpg"]) as database,
        connect(empty_dsn, FOREIGN["psycopg"]) as other,
    ):
        log, also = [
            await table_log(one, mapping, name=system, decode=pekko_payloads()) for one in (database, other)
        ]
        ended, followers = asyncio.Event(), [Follower(log), Follower(also), Follower(log, OnlyForward)]
        async with asyncio.TaskGroup() as group:
            following = [group.create_task(follower.run(ended)) for follower in followers]
            await asyncio.gather(*(write(empty_dsn, insert, name, 5, seed) for seed in range(8)))
            ended.set()
            await asyncio.gather(*following)
        stored = await stored_keys(database, table, source, number)
    lost = [len(stored - set(follower.handled)) for follower in followers]
    print(f"{system}: {len(stored)} stored, lost {lost}")
    assert lost[:2] == [0, 0]
    assert lost[2] > 0
    assert set(followers[0].handled) == set(followers[1].handled) == stored


@pytest.mark.parametrize("driver", FOREIGN)
@pytest.mark.parametrize("system", SYSTEMS)
async def test_the_parts_of_an_event(empty_dsn: str, system: str, driver: str) -> None:
    ddl, mapping, name, _, _, _, insert = SYSTEMS[system]
    await create(empty_dsn, ddl)
    connection = await asyncpg.connect(empty_dsn)
    for number in (1, 2):
        await connection.execute(insert, name.format("7"), number)
    if system == "pekko-jdbc":
        await connection.execute("INSERT INTO event_tag VALUES (1, 'b'), (1, 'a')")
        serializer, manifest, payload = GOLDEN["cbor"]
        await connection.execute(
            "UPDATE event_journal SET event_ser_id = $1, event_ser_manifest = $2, event_payload = $3 "
            "WHERE ordering = 2",
            serializer, manifest, payload,
        )  # fmt: skip
    await connection.close()
    async with connect(empty_dsn, FOREIGN[driver]) as database:
        log = await table_log(database, mapping, name=system, decode=pekko_payloads())
        first, second = [e async for e in current_events(log, "account")]
    assert [(e.source_id, e.seq_nr, e.entity_type) for e in (first, second)] == [
        (name.format("7"), 1, "account"), (name.format("7"), 2, "account"),
    ]  # fmt: skip
    assert first.payload == {"a": 1}
    if system == "pekko-jdbc":
        assert (first.event_type, first.version, first.tags, second.tags) == (
            "bank.Opened",
            2,
            ["a", "b"],
            [],
        )
        assert second.payload["amount"] == "12345678901234567890.50"
    else:
        assert (first.event_type, first.version, first.metadata) == ("Opened", 1, {"b": 2})


async def test_what_emmett_has_archived_is_passed_over(empty_dsn: str) -> None:
    await create(empty_dsn, EMMETT)
    connection = await asyncpg.connect(empty_dsn)
    for number in (1, 2):
        await connection.execute(SYSTEMS["emmett"][-1], "account:1", number)
    await connection.execute("UPDATE emt_messages SET is_archived = TRUE WHERE stream_position = 1")
    await connection.close()
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        log = await table_log(database, emmett(), name="emmett")
        assert [e.seq_nr async for e in current_events(log, ALL_TYPES)] == [2]


async def test_indexes_are_advised_for_each_partition_until_it_has_one(empty_dsn: str) -> None:
    await create(empty_dsn, EMMETT)
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database, database.session() as session:
        advice = (await check(session, emmett())).advice
        assert [a.partition(" ON ")[2].partition(" ")[0] for a in advice] == [
            '"public"."emt_messages_emt_default_active"', '"public"."emt_messages_emt_default_archived"',
        ]  # fmt: skip
        for statement in advice:
            connection = await asyncpg.connect(empty_dsn)
            await connection.execute(statement.partition(": ")[2])
            await connection.close()
        assert (await check(session, emmett())).advice == ()


@pytest.mark.slow
@pytest.mark.timeout(400)
@needs_java
async def test_a_real_application_of_pekko_persistence_jdbc(empty_dsn: str, tmp_path: Path) -> None:
    """Its entities persist one to four events at a time, with tags, as JSON and as CBOR, while the journal is read."""
    pekko = await asyncio.to_thread(JavaProgram, "pekko", tmp_path)
    await create(empty_dsn, PEKKO_JDBC)
    said = conninfo_to_dict(empty_dsn)
    socket = f"{said['host']}/.s.PGSQL.{said.get('port', 5432)}"

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(socket)  # JDBC knows no sockets of files

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                target.write(data)
            target.close()

        await asyncio.gather(copy(reader, back), copy(there, writer), return_exceptions=True)

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"jdbc:postgresql://127.0.0.1:{port}/{said['dbname']}?sslmode=disable"
    async with (
        pekko.running("Writer", url, said["user"]) as application,
        connect(empty_dsn, FOREIGN["asyncpg"]) as database,
    ):
        log = await table_log(database, pekko_jdbc(), name="pekko", decode=pekko_payloads())
        writers_ended, follower = asyncio.Event(), Follower(log)
        async with asyncio.TaskGroup() as group:
            group.create_task(follower.run(writers_ended))
            while len(follower.handled) < 1000:
                await asyncio.sleep(0.1)
            await ended(application)
            writers_ended.set()
        stored = await stored_keys(database, "event_journal", "persistence_id", "sequence_number")
        events = [e async for e in current_events(log, ("account", "cart"))]
    server.close()
    assert set(follower.handled) == stored
    assert {e.event_type for e in events} == {"interop.Events$Opened", "interop.Events$Paid"}
    for envelope in events:
        if envelope.event_type == "interop.Events$Paid":
            assert (envelope.payload["amount"], envelope.payload["number"]) == ("1.50", envelope.seq_nr)
            assert envelope.tags == ["money", "paid"]
        else:
            assert (envelope.payload["owner"], envelope.tags) == (f"owner {envelope.seq_nr}", [])
