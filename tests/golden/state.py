"""A database in which every command finds something, and what commands name in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import BaseModel

from journal import ConnectionSettings, Database, Event, HistoricEvent, append, connect, import_events
from journal.partitions.making import make_partitions
from projections import Changes, EventEnvelope, Table, handles, projection
from projections.subscriptions import create_group, subscribe
from projections.subscriptions.groups import poll_group
from projections.webhooks import (
    AddressRules,
    Endpoints,
    EndpointSettings,
    FanOut,
    HttpSender,
    Receiver,
    RetryPolicy,
    send,
)
from projections.webhooks.deliverer import deliver
from tests.fixtures.certificates import Authority
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    caught_up,
    execute,
    failing,
    fetchval,
    happen,
    recording,
    running,
    until,
)
from tests.fixtures.subscriptions import landed_and_matched

LOCAL = AddressRules(allow=("127.0.0.0/8",))
_TABLES = f"""
{EFFECTS};
CREATE TABLE delays (source_id text PRIMARY KEY, n bigint NOT NULL DEFAULT 0, delay bigint NOT NULL DEFAULT 0);
CREATE TABLE seen (id bigint PRIMARY KEY, name text);
CREATE TABLE captured (id bigint PRIMARY KEY, name text);
CREATE TABLE orders (id bigserial PRIMARY KEY, order_id text, version int, kind text, body jsonb);
CREATE TABLE projections.not_ours ();
CREATE VIEW of_events AS SELECT source_id FROM projections.events;
"""
_MAPPING = """
table = "orders"
source = "order_id"
number = "version"
position = "id"
bound = "sequence"
entity_type = { constant = "order" }
event_type = "kind"
payload = "body"
"""
_FAIL = "SELECT projections.fail_batch_v1($1, 'invoice', 3, $2, $3::text::interval, $4)"
_FAILED = {
    "match_id": 1, "subscription_ids": [1], "source_id": "N1", "seq_nr": 1, "db_timestamp": "2030-01-01T00:00:00+00:00",
    "slice": 5, "event_id": "01890a5d-ac96-774b-bcce-b302099a8057", "entity_type": "plane", "event_type": "Landed",
    "version": 1, "payload_json": '{"delay": 1}', "metadata_json": '{"a": 1}', "tags": ["t"],
}  # fmt: skip
_QUARANTINE = """
SELECT projections._quarantine_condition_v1(condition_id, 'division by zero') FROM projections.conditions
WHERE sql LIKE '1 / %'
"""
_APART = """
WITH made AS (
    INSERT INTO projections.group_handlers (group_id, subscription_id, name)
    SELECT group_id, subscription_id, 'invoice' FROM projections.subscriptions ORDER BY subscription_id LIMIT 1
    RETURNING handler_id, group_id
)
INSERT INTO projections.group_ranges (group_id, min_slice, max_slice, handler_id, cursor, moved_at)
SELECT group_id, 0, 511, handler_id, 0, clock_timestamp() FROM made
"""
_RANGE_FAILED = """
UPDATE projections.projection_ranges
SET failures = 1, error = 'no such carrier', restarts_at = clock_timestamp() + interval '1 h'
WHERE min_slice = 0 AND projection_id = (SELECT projection_id FROM projections.projections WHERE name = 'parking')
"""


class Landed(BaseModel):
    delay: int = 0


_DELAYS = Table("delays", key="source_id", source="source_id", increment=("n", "delay"))


@projection("delays", entity_type="plane")
class Delays:
    """Is run, verified and rebuilt; its module is named on the command line."""

    @handles(Landed)
    def landed(self, event: Landed, envelope: EventEnvelope) -> Changes:
        return _DELAYS.upsert(source_id=envelope.source_id, n=1, delay=event.delay)


@projection("orders", entity_type="order")
class Orders:
    """Takes over offsets of a journal of another system."""

    @handles(Landed)
    async def landed(self, session: object, event: Landed, envelope: EventEnvelope) -> None: ...


@asynccontextmanager
async def filled(dsn: str, directory: Path) -> AsyncIterator[dict[str, str]]:
    """
    Fill the database, and run a worker and a receiver of webhooks for the length of the block.

    Yields what stands in command lines for a word in capital letters.
    """
    async with connect(dsn, ConnectionSettings(max_connections=20)) as database, Receiver() as receiver:
        await execute(database, _TABLES)
        await _import(database)
        async with database.transaction() as session:
            appended = await append(session, [Event(f"N{n}", Landed(delay=1), "plane") for n in range(4)])
        await _run_projections(database)
        await _match(database)
        names = await _deliver(database)
        async with running(database, recording(name="live"), ranges=2) as told:
            await told.first("handled")
            names |= {
                "TOKEN": appended.token,
                "OWNER": await fetchval(
                    database, "SELECT owner FROM projections.workers WHERE owner <> 'reader'"
                ),
                "RECEIVER": receiver.url,
                "DAY": f"{datetime.now(UTC):%Y-%m-%d}T00:00:00Z",
            }
            yield names | _files(directory)


async def _import(database: Database) -> None:
    """Two days of the past, each in its partition."""
    past = [datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2)]
    events = [HistoricEvent(f"S{day}", {}, "ship", "Left", seq_nr=1, db_timestamp=day) for day in past]
    await import_events(database, events)
    await make_partitions(database, ahead=1, interval=timedelta(days=1))


async def _run_projections(database: Database) -> None:
    """`delays` has handled all; of `parking` two sources are parked, and a range fails."""
    await happen(database, "a", "b", "c")
    await caught_up(database, Delays, ranges=2)
    await caught_up(
        database, recording(failing(("a", 1), ("b", 1)), name="parking", recovery=NO_RETRY), ranges=2
    )
    await happen(database, "a", "c", "d")
    await execute(database, _RANGE_FAILED)
    await execute(database, "UPDATE delays SET n = n + 1 WHERE source_id = 'N1'")


async def _match(database: Database) -> None:
    """`billing` has matches, dead letters and a reader; conditions have failed and are stopped."""
    async with database.transaction() as session:
        await create_group(session, "billing", ranges=2)
        await subscribe(session, "billing", topics=["Landed"])
        await subscribe(session, "billing", condition="(e.payload::text)::date < now()")
        await subscribe(session, "billing", condition="1 / (e.seq_nr - 1) > 0", params={"a": 1})
    await execute(database, _QUARANTINE)
    await landed_and_matched(database, "a", "a", "yz")
    for number, delay in enumerate((None, None, None, "1 h"), 1):
        await execute(
            database, _FAIL, "billing", "no customer", delay, json.dumps([_FAILED | {"match_id": number}])
        )
    async with database.transaction() as session:
        await poll_group(session, "billing", "reader", timedelta(hours=1))
    await execute(database, _APART)


async def _deliver(database: Database) -> dict[str, str]:
    """An endpoint of acme, with messages that arrived, that are dead, and that wait."""
    service = Endpoints(database, rules=LOCAL, allow_http=True)
    async with Receiver(script=[204, 500, 500]) as receiver:
        settings = EndpointSettings(
            url=receiver.url, topics=("a.*",), filter={"data": {"n": {"$gte": 0}}}, headers={"X-Env": "dev"},
            policy=RetryPolicy(schedule=()), ordering="endpoint",
        )  # fmt: skip
        made = await service.create("acme", settings)
        events = [await _send(database, number) for number in range(3)]
        await caught_up(database, FanOut(), ranges=1)
        stop = asyncio.Event()
        async with HttpSender(LOCAL) as sender, asyncio.TaskGroup() as group:
            group.create_task(deliver(database, sender, stop=stop))
            await until(database, "SELECT count(*) = 3 FROM projections.webhook_attempts")
            stop.set()
    attempt = await fetchval(database, "SELECT attempt_id::text FROM projections.webhook_attempts LIMIT 1")
    return {
        "ENDPOINT": made.endpoint.endpoint_id,
        "DONE": events[0],
        "DEAD": events[1],
        "OTHER": events[2],
        "ATTEMPT": str(attempt),
    }


async def _send(database: Database, number: int) -> str:
    async with database.transaction() as session:
        return str((await send(session, "acme", "a.b", {"n": number}, metadata={"kind": "test"})).event_id)


def _files(directory: Path) -> dict[str, str]:
    """Files that commands read or write."""
    flights = "source_id,event_type,payload,db_timestamp\nz,Landed,{},2020-01-01T00:00:00Z\n"
    texts = {
        "FLIGHTS": ("flights.csv", flights),
        "MAPPING": ("orders.toml", _MAPPING),
        "CLIENT": ("client.pem", Authority().client("acme")),
        "SECRET": ("secret.txt", "s3cret"),
    }
    for name, text in texts.values():
        (directory / name).write_text(text)
    paths = {word: str(directory / name) for word, (name, _) in texts.items()}
    return paths | {"ARCHIVE": str(directory / "archive"), "APP": "tests.golden.state"}
