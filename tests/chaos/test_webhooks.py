"""
Processes that fan webhooks out and that deliver are killed and stopped, connections ended, PostgreSQL crashes,
receivers fail, a tenant does its worst, secrets are rotated, endpoints paused and disabled, deliveries tried again by
hand.

Every message arrives at every endpoint that it is for, and at no other, signed; each of these deliveries is done once,
none is dead, and an endpoint that asks for an order gets each message for the first time after those before it.
CHAOS_SEED and CHAOS_SECONDS are those of test_chaos.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from journal import ConnectionSettings, Database, connect
from journal.schema import install
from tests.chaos.hostile import BadReceiver
from tests.chaos.server import server_of_its_own
from tests.chaos.test_chaos import SECONDS, rows
from tests.chaos.webhooks import CONNECTIONS, KINDS, Sent, WebhookChaos
from tests.fixtures.raw_server import RawServer

_SENT = """
SELECT event_id::text, event_type, metadata ->> 'order_key' AS key, (payload ->> 'n')::integer AS n
FROM projections.events WHERE entity_type = 'webhook-message' AND metadata ->> 'tenant' = 'acme'
ORDER BY db_timestamp, source_id, seq_nr
"""
_SUCCEEDED = """
SELECT a.endpoint_id, a.event_id FROM projections.webhook_attempts AS a
INNER JOIN projections.webhook_endpoints AS e ON a.endpoint_id = e.endpoint_id
WHERE a.status = 'success' AND e.tenant = 'acme'
"""
_STATES = "SELECT state, count(*) FROM projections.webhook_deliveries WHERE tenant = 'acme' GROUP BY state"


def by_key(messages: Iterable[Sent]) -> dict[str, list[str]]:
    """The messages of each key, in their order."""
    found: dict[str, list[str]] = defaultdict(list)
    for message in messages:
        found[message.key].append(message.event_id)
    return found


def check_arrivals(sent: Sequence[Sent], taken: dict[str, list[str]]) -> None:
    """What came, and in which order it first did."""
    every = {message.event_id: message for message in sent}
    for kind, asked in KINDS.items():
        first = list(dict.fromkeys(taken[kind]))
        expected = [message for message in sent if message.is_for(kind)]
        assert set(first) == {message.event_id for message in expected}, kind
        if "ordering" in asked:
            assert by_key(every[event_id] for event_id in first) == by_key(expected), kind


async def check_rows(database: Database, running: WebhookChaos, number: int) -> None:
    """Every delivery is done, and what nobody tried again succeeded once."""
    assert [tuple(row.values()) for row in await rows(database, _STATES)] == [("done", number)]
    names = {endpoint_id: kind for kind, endpoint_id in running.endpoints.items()}
    succeeded = Counter(
        (names[row["endpoint_id"]], row["event_id"]) for row in await rows(database, _SUCCEEDED)
    )
    assert len(succeeded) == number
    assert [key for key, times in succeeded.items() if times > 1 and key not in running.by_hand] == []


async def chaos(logs: Path, seconds: float) -> None:
    async with server_of_its_own() as (server, dsn):
        await asyncio.to_thread(install, dsn)
        async with connect(dsn, ConnectionSettings(max_connections=CONNECTIONS)) as database:
            running = WebhookChaos(server, dsn, database, logs, seconds)
            async with RawServer(running.receiver) as receiver, RawServer(BadReceiver(), host="") as bad:
                await running.prepare(receiver)
                await running.add_hostile(bad.port)
                await running.run()
                by_workers = sum(map(len, running.receiver.taken.values()))
                await running.catch_up()
            print(
                {"seed": running.seed, "came": running.receiver.came, "before": by_workers, **running.counts}
            )
            sent = [Sent(*row.values()) for row in await rows(database, _SENT)]
            assert running.receiver.forged == []
            check_arrivals(sent, running.receiver.taken)
            await check_rows(
                database, running, sum(message.is_for(kind) for message in sent for kind in KINDS)
            )
    said = [path.read_text() for path in logs.iterdir()]
    assert [text for text in said if "deadlock detected" in text] == []
    assert by_workers > seconds
    assert all(
        running.counts[what]
        for what in ("kills", "terminations", "crashes", "rotations", "by hand", "hostile")
    )


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
async def test_whatever_goes_wrong_for_minutes_every_message_arrives(tmp_path: Path) -> None:
    await chaos(tmp_path, SECONDS)
