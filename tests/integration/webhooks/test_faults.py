"""What breaks while webhooks are delivered: processes, connections, the database, clocks. Nothing is lost."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from journal import ConnectionSettings, Database, SchemaError, connect
from journal.schema import install
from projections.webhooks.sender import HttpSender
from tests.chaos.server import server_of_its_own, stop_at_once
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import execute, fetchval, until
from tests.fixtures.proxy import proxy_to
from tests.fixtures.raw_server import RawServer, hang, respond
from tests.fixtures.webhook_delivery import (
    LATER,
    LOCAL,
    TENANT,
    Gate,
    Watch,
    attempts,
    delivering,
    expire,
    finished,
    hook,
    sent,
    settings,
    states,
)

ROOT = Path(__file__).parents[3]
END_ALL = """
SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON projections.webhook_log_ids FOR EACH ROW WHEN (NEW.kind = 'attempt')
EXECUTE FUNCTION refuse()
"""
COUNTED = "CREATE SEQUENCE tries;" + REFUSE.replace(
    "BEGIN RAISE", "BEGIN PERFORM nextval('public.tries'); RAISE"
)
QUICK = timedelta(seconds=2)
USED_UP = "SELECT sum(attempts) FROM projections.webhook_deliveries"
ACCEPT = "DROP TRIGGER refuse ON projections.webhook_log_ids"


def arrivals(server: RawServer) -> Counter[str]:
    """How often each message came."""
    return Counter(str(request.header("webhook-id")) for request in server.requests)


@asynccontextmanager
async def process(dsn: str, step: str) -> AsyncIterator[Process]:
    """A process that delivers, and stays at a step."""
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.chaos.webhook_sender", dsn, "asyncpg", step), cwd=ROOT, stdout=PIPE
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


async def said(started: Process, line: str) -> None:
    assert started.stdout is not None
    async with asyncio.timeout(300):
        while (await started.stdout.readline()).decode().strip() != line:
            assert started.returncode is None


class TestProcesses:
    @pytest.mark.slow
    @pytest.mark.parametrize(("step", "times"), [("before", 1), ("after", 2)])
    async def test_a_process_that_is_killed_around_its_request_loses_nothing(
        self, dsn: str, database: Database, step: str, times: int
    ) -> None:
        async with RawServer(respond(204)) as server:
            await hook(database, server.url)
            (event_id,) = await sent(database)
            async with process(dsn, step) as killed:
                await said(killed, step)
                killed.kill()
                await killed.wait()
            assert await states(database) == ["leased"]
            await expire(database)
            async with delivering(database):
                await finished(database)

        assert arrivals(server) == {event_id: times}
        assert len({request.body for request in server.requests}) == 1
        assert await attempts(database) == [(1, "failed", "worker_lost"), (2, "success", "204")]

    @pytest.mark.slow
    async def test_two_workers_race(self, dsn: str, database: Database) -> None:
        async with (
            RawServer(respond(204)) as server,
            connect(dsn, ConnectionSettings(max_connections=5)) as second,
        ):
            for _ in range(3):
                await hook(database, server.url, max_in_flight=100)
            await sent(database, number=250)
            first_watch, second_watch = Watch(), Watch()
            async with delivering(database, observer=first_watch), delivering(second, observer=second_watch):
                await finished(database, 750)

        assert set(arrivals(server).values()) == {3}
        assert len(server.requests) == 750
        assert len(first_watch.attempts) + len(second_watch.attempts) == 750
        assert first_watch.attempts
        assert second_watch.attempts

    async def test_zombie_worker_late_finish(self, dsn: str, database: Database) -> None:
        async with (
            RawServer(respond(204)) as server, HttpSender(LOCAL) as sender,
            connect(dsn, ConnectionSettings(max_connections=5)) as second,
        ):  # fmt: skip
            gate = Gate(sender, after=True)
            await hook(database, server.url)
            (event_id,) = await sent(database)
            # With no room for more, it does not claim itself what it lost.
            async with delivering(database, gate, settings=settings(max_in_flight=1)) as zombie:
                await gate.reached.get()
                await expire(database)
                async with delivering(second):
                    await finished(database)
                    gate.after.set()
                    await zombie.watch.until(lambda: zombie.watch.gone == [event_id])

        logged = [(1, "failed", "worker_lost"), (2, "success", "204")]
        assert await attempts(database) == logged
        assert arrivals(server) == {event_id: 2}
        assert await states(database) == ["done"]

    async def test_graceful_shutdown_drains_then_releases(self, database: Database) -> None:
        async with RawServer(respond(204)) as server, RawServer(hang()) as slow, HttpSender(LOCAL) as sender:
            gate = Gate(sender, after=True)
            await hook(database, slow.url)
            await hook(database, server.url)
            (event_id,) = await sent(database)
            async with delivering(database, gate, settings=settings(grace=timedelta(seconds=1))) as running:
                await slow.received(1)
                await gate.reached.get()
                stopping = running.stop()
                gate.after.set()
                await stopping

        assert sorted(await states(database)) == ["done", "pending"]
        assert await attempts(database) == [(1, "success", "204")]
        assert await fetchval(database, f"{USED_UP} WHERE state = 'pending'") == 0
        assert arrivals(server) == arrivals(slow) == {event_id: 1}

    async def test_what_is_being_claimed_at_a_stop_is_given_back(self, database: Database) -> None:
        async with RawServer(respond(204)) as server:
            await hook(database, server.url)
            await sent(database, number=3)
            async with database.transaction() as holding:
                await holding.execute("LOCK TABLE projections.webhook_circuits IN ACCESS EXCLUSIVE MODE")
                async with delivering(database) as running:
                    await until(database, f"SELECT EXISTS (SELECT FROM {WAITING})")
                    stopping = running.stop()
                    await asyncio.sleep(0)
                    await holding.commit()
                    await stopping

        assert await states(database) == ["pending"] * 3
        assert await fetchval(database, USED_UP) == 0
        assert server.requests == []


class TestDatabase:
    async def test_finish_update_fails_then_recovers(self, database: Database) -> None:
        async with RawServer(respond(204)) as server, HttpSender(LOCAL) as sender:
            gate = Gate(sender, after=True)
            await hook(database, server.url)
            (event_id,) = await sent(database)
            async with delivering(database, gate):
                await gate.reached.get()
                await execute(database, COUNTED)
                gate.after.set()
                await until(database, "SELECT last_value >= 3 FROM tries")
                await execute(database, ACCEPT)
                await finished(database)

        assert arrivals(server) == {event_id: 1}
        assert await attempts(database) == [(1, "success", "204")]

    @pytest.mark.slow
    async def test_an_outcome_that_is_never_stored_comes_back_by_its_lease(self, database: Database) -> None:
        async with RawServer(respond(204)) as server:
            await hook(database, server.url)
            (event_id,) = await sent(database)
            await execute(database, REFUSE)
            async with delivering(database, settings=settings(margin=timedelta(milliseconds=300))) as running:
                await running.watch.until(lambda: running.watch.gone == [event_id])
                await execute(database, ACCEPT)
                await expire(database)
                await finished(database)

        assert arrivals(server) == {event_id: 2}
        assert await attempts(database) == [(1, "failed", "worker_lost"), (2, "success", "204")]

    async def test_an_error_that_is_no_fault_of_the_database_ends_the_process_with_it(
        self, database: Database
    ) -> None:
        async with RawServer(respond(204)) as server:
            await hook(database, server.url)
            await execute(database, "ALTER FUNCTION projections._finish_deliveries_v1 RENAME TO another")
            await sent(database)
            with pytest.raises(SchemaError, match="_finish_deliveries_v1"):
                # Without waiting for what nobody stores.
                async with delivering(database, settings=settings(grace=timedelta(hours=1))) as running:
                    await asyncio.wait([running.task])

    @pytest.mark.slow
    async def test_connections_that_are_ended_are_made_anew(self, dsn: str, database: Database) -> None:
        async with (
            RawServer(respond(204)) as server, HttpSender(LOCAL) as sender,
            connect(dsn, ConnectionSettings(max_connections=5)) as other,
        ):  # fmt: skip
            gate = Gate(sender, after=True)
            await hook(database, server.url)
            await sent(database, number=5)
            async with delivering(other, gate):
                for _ in range(5):
                    await gate.reached.get()
                await fetchval(database, END_ALL)
                gate.after.set()
                await finished(database, 5)

        assert set(arrivals(server).values()) == {1}

    @pytest.mark.slow
    async def test_a_network_that_is_cut_without_a_word_holds_nothing_up_for_good(
        self, dsn: str, database: Database
    ) -> None:
        # Reaping later, so that outcomes have the connection that they had before.
        options = settings(reap_every=LATER, patience=QUICK)
        async with RawServer(respond(204)) as server, HttpSender(LOCAL) as sender, proxy_to(dsn) as proxy:
            gate = Gate(sender)
            await hook(database, server.url)
            await sent(database)
            async with (
                connect(proxy.dsn, ConnectionSettings(max_connections=5)) as other,
                delivering(other, gate, settings=options),
            ):
                await finished(database)
                gate.after.clear()
                await sent(database, number=3)
                for _ in range(3):
                    await gate.reached.get()
                proxy.forget_connections()
                gate.after.set()
                await finished(database, 4)
                await sent(database)
                await finished(database, 5)

        assert set(arrivals(server).values()) == {1}

    @pytest.mark.slow
    async def test_db_restart_mid_flight_and_db_down_at_start(self) -> None:
        async with RawServer(respond(204)) as receiver, server_of_its_own() as (server, dsn):
            await asyncio.to_thread(install, dsn)
            async with connect(dsn) as database, HttpSender(LOCAL) as sender:
                gate = Gate(sender, after=True)
                await hook(database, receiver.url, max_in_flight=5)
                await sent(database, number=10)
                watch = Watch()
                async with delivering(database, gate, observer=watch, settings=settings(listen=True)):
                    for _ in range(5):
                        await gate.reached.get()
                    await asyncio.to_thread(stop_at_once, server)
                    gate.after.set()
                    await watch.until(lambda: watch.answers[-1] is False)
                    await asyncio.to_thread(server.start)
                    await finished(database, 10)
                    assert watch.answers == [True, False, True]
                assert set(arrivals(receiver).values()) == {1}

                await sent(database)
                await asyncio.to_thread(stop_at_once, server)
                watch = Watch()
                async with delivering(database, observer=watch):
                    await watch.until(lambda: watch.answers == [False])
                    await asyncio.to_thread(server.start)
                    await watch.until(lambda: watch.answers == [False, True])
                    await finished(database, 11)

    @pytest.mark.slow
    async def test_a_stop_while_the_database_is_away_ends(self, dsn: str, database: Database) -> None:
        async with RawServer(respond(204)) as server, HttpSender(LOCAL) as sender, proxy_to(dsn) as proxy:
            gate = Gate(sender, after=True)
            await hook(database, server.url)
            await sent(database)
            options = settings(
                patience=QUICK, grace=timedelta(milliseconds=300), margin=timedelta(milliseconds=100)
            )
            async with connect(proxy.dsn, ConnectionSettings(max_connections=5)) as other:
                async with delivering(other, gate, settings=options) as running:
                    await gate.reached.get()
                    proxy.stop_forwarding()
                    gate.after.set()
                    await running.stop()
                proxy.go_on()

        assert await states(database) == ["leased"]

    @pytest.mark.slow
    async def test_a_stop_waits_for_outcomes_no_longer_than_its_grace(
        self, database: Database, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with RawServer(respond(204)) as server, HttpSender(LOCAL) as sender:
            gate = Gate(sender, after=True)
            await hook(database, server.url)
            await sent(database)
            await execute(database, COUNTED)
            options = settings(grace=timedelta(milliseconds=300))
            async with delivering(database, gate, settings=options) as running:
                await gate.reached.get()
                gate.after.set()
                await until(database, "SELECT is_called FROM tries")
                await running.stop()

        assert await states(database) == ["leased"]
        assert "1 outcomes of webhooks were not stored: their deliveries come back" in caplog.text


@pytest.mark.slow
async def test_a_second_tenant_sees_nothing_of_the_first_one_s_faults(database: Database) -> None:
    async with RawServer(hang()) as slow, RawServer(respond(204)) as server:
        await hook(database, slow.url, tenant="other")
        await hook(database, server.url)
        await sent(database, number=20, tenant="other")
        await sent(database, number=20, tenant=TENANT)
        async with delivering(database, settings=settings(grace=timedelta(milliseconds=10))):
            await finished(database, 20)

    assert set(arrivals(server).values()) == {1}
