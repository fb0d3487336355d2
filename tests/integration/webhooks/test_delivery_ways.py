"""Ways in which webhooks are delivered: woken or polling, by a clock that is wrong, through PgBouncer."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import pytest

from journal import ConnectionSettings, Database, PollPacing, connect
from projections.webhooks import claims, retry_policy, signed_request, signing
from projections.webhooks.signing import verify
from tests.fixtures.pgbouncer import pooler
from tests.fixtures.projections import fetchval, until
from tests.fixtures.raw_server import Exchange, RawServer, respond
from tests.fixtures.webhook_delivery import (
    attempts,
    delivering,
    due,
    finished,
    hook,
    sent,
    settings,
    states,
    until_rows,
)

SLOWLY = PollPacing(timedelta(seconds=60), timedelta(seconds=60))
LISTENERS = """
SELECT count(*) = $1 FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'LISTEN%'
"""
END_LISTENERS = """
SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
WHERE datname = current_database() AND query ILIKE 'LISTEN%'
"""
IN_TIME = """
SELECT bool_and(attempted_at BETWEEN now() - interval '2 minutes' AND now()) FROM projections.webhook_attempts
"""


class TestListening:
    @pytest.mark.slow
    async def test_notifications_wake_also_after_their_connection_was_lost(
        self, dsn: str, database: Database
    ) -> None:
        quick = ConnectionSettings(listen_retry=timedelta(milliseconds=10), max_connections=5)
        options = settings(listen=True, pacing=SLOWLY)
        async with RawServer(respond(204)) as server, connect(dsn, quick) as other:
            await hook(database, server.url)
            async with delivering(other, settings=options):
                for number in (1, 2):
                    await until(database, LISTENERS, 1)
                    await sent(database)
                    await finished(database, number)
                    await fetchval(database, END_LISTENERS)

    @pytest.mark.slow
    async def test_polling_goes_on_without_notifications(self, dsn: str, database: Database) -> None:
        never = ConnectionSettings(listen_retry=timedelta(hours=1), max_connections=5)
        async with RawServer(respond(204)) as server, connect(dsn, never) as other:
            await hook(database, server.url)
            async with delivering(other, settings=settings(listen=True)):
                await until(database, LISTENERS, 1)
                await fetchval(database, END_LISTENERS)
                await sent(database)
                await finished(database)

    @pytest.mark.slow
    async def test_an_outcome_makes_room_at_once(self, database: Database) -> None:
        async with RawServer(respond(204)) as server:
            await hook(database, server.url, max_in_flight=1)
            await sent(database, number=20)
            async with delivering(database, settings=settings(pacing=SLOWLY)):
                await finished(database, 20)


class _Skewed(datetime):
    off = timedelta(0)

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return datetime.now(tz) + cls.off


@pytest.mark.daily(1)
@pytest.mark.parametrize("off", [timedelta(minutes=10), timedelta(minutes=-10)], ids=["ahead", "behind"])
async def test_clock_skew_of_a_worker_changes_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch, off: timedelta
) -> None:
    true_time = time.time
    async with RawServer(respond(500), respond(204)) as server:
        _, secret = await hook(database, server.url)
        await sent(database)
        with monkeypatch.context() as patched:
            patched.setattr(time, "time", lambda: true_time() + off.total_seconds())
            patched.setattr(_Skewed, "off", off)
            for module in (claims, retry_policy, signed_request, signing):
                patched.setattr(module, "datetime", _Skewed)
            async with delivering(database):
                await until_rows(database, "last_code = '500'")
                wait = await fetchval(
                    database,
                    "SELECT extract(EPOCH FROM next_at - now())::float8 FROM projections.webhook_deliveries",
                )
                await due(database)
                await finished(database)
        for request in server.requests:
            verify(secret, dict(request.headers), request.body, tolerance=timedelta(minutes=2))

    assert 3500 < wait <= 3600
    assert await fetchval(database, IN_TIME)


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_pgbouncer_transaction_mode(dsn: str, database: Database, driver: Any) -> None:
    async def now_and_then(exchange: Exchange) -> None:
        await respond(500 if len(server.requests) % 3 == 0 else 204)(exchange)

    options = ConnectionSettings(driver=driver, max_connections=5)
    async with RawServer(now_and_then) as server, pooler(dsn) as address:
        await hook(database, server.url, ordering="key")
        await sent(database, number=60)
        async with (
            connect(address, options) as first, connect(address, options) as second,
            delivering(first), delivering(second),
        ):  # fmt: skip
            while (await states(database)).count("done") < 60:
                await due(database)

    found = await attempts(database)
    assert len(server.requests) == len(found) == len([one for one in found if one[1] == "failed"]) + 60
