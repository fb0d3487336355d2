"""Reading one's own writes: waiting until projections have handled what was appended, or saying why they have not."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from journal import (
    Appended,
    AppendedEvents,
    ConnectionSettings,
    DatabaseUnavailable,
    DatabaseWentBack,
    InvalidToken,
    InvalidValue,
    connect,
)
from offsets import HANDLED, set_paused
from projections import (
    Database,
    Event,
    EventEnvelope,
    NotFound,
    Session,
    WaitTimeout,
    append,
    handles,
    projection,
    wait_for,
)
from projections.waiting import waiter
from tests.fixtures.projections import (
    EFFECTS,
    NO_RETRY,
    Happened,
    caught_up,
    effects,
    execute,
    failing,
    fetchval,
    recording,
    running,
    settings,
)
from tests.fixtures.retention import filled, retained

SOON, LONG = timedelta(milliseconds=100), timedelta(minutes=2)


@pytest.fixture(autouse=True)
async def table(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await execute(database, EFFECTS)
    monkeypatch.setattr(waiter, "_PATIENCE", LONG.total_seconds())


async def write(database: Database, *source_ids: str) -> AppendedEvents:
    async with database.transaction() as session:
        return await append(session, [Event(source_id, Happened(), "plane") for source_id in source_ids])


async def late(database: Database, names: Any, appended: Any) -> str:
    """Wait for what does not come; returns why."""
    with pytest.raises(WaitTimeout) as caught:
        await wait_for(database, names, appended, SOON)
    return str(caught.value)


async def waiting(database: Database) -> None:
    """Until somebody has said that it waits."""
    async with asyncio.timeout(300):
        while not await fetchval(
            database, "SELECT bool_or(waited_until > now()) FROM projections.projections"
        ):
            await asyncio.sleep(0.001)


class Gate:
    """Holds back a handler."""

    def __init__(self) -> None:
        self.open, self.reached = asyncio.Event(), asyncio.Event()

    async def __call__(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
        self.reached.set()
        await self.open.wait()


async def test_what_is_handled_already_is_not_waited_for(database: Database) -> None:
    appended = await write(database, "a", "b", "a")
    await caught_up(database, recording())

    await wait_for(database, "p", appended, LONG)
    await wait_for(database, ["p"], appended.token, LONG)
    await wait_for(database, "p", appended[0], LONG)
    await wait_for(database, "p", list(appended), LONG)


async def test_what_is_handled_is_found_however_short_the_time(database: Database) -> None:
    appended = await write(database, "a")
    await caught_up(database, recording())

    await wait_for(database, "p", appended, timedelta(0))
    await wait_for(database, "p", appended, timedelta(milliseconds=1))


@pytest.mark.slow
async def test_without_a_free_connection_it_says_so(
    dsn: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiter, "_PATIENCE", 0.1)
    appended = await write(database, "a")
    await caught_up(database, recording())
    async with connect(dsn, ConnectionSettings(max_connections=1)) as small, small.session():
        assert "projection 'p': no connection was free to ask the database" in await late(
            small, "p", appended
        )


@pytest.mark.slow
async def test_what_has_left_the_journal_with_its_partition_is_not_waited_for(database: Database) -> None:
    await filled(database)
    async with database.session() as session:
        row = await session.fetchrow(
            "SELECT source_id, seq_nr, db_timestamp, event_id FROM projections.events WHERE seq_nr = 2 LIMIT 1"
        )
        assert row is not None
        timeline = await session.fetchval("SELECT projections.timeline_v1()")
    appended = Appended(*row.values(), timeline=timeline)
    await caught_up(database, recording())
    await execute(database, "SELECT projections.register_projection_v1('q', ARRAY['plane'])")
    await wait_for(database, "p", appended, timedelta(0))
    assert "no worker" in await late(database, "q", appended.token)
    await execute(database, "DELETE FROM projections.projections WHERE name = 'q'")
    assert (await retained(database)).dropped

    await caught_up(database, recording(name="q"))

    await wait_for(database, ["p", "q"], appended.token, timedelta(0))


@pytest.mark.parametrize(
    ("appended", "timeout", "error", "says"),
    [
        (None, SOON, TypeError, "takes what append() returned, or the token of it, not None"),
        (b"token", SOON, TypeError, "not b'token'"),
        ([1], SOON, TypeError, "not [1]"),
        ("a", 5, TypeError, "timeout must be a timedelta, such as timedelta(seconds=5), not 5"),
        ("a", timedelta(seconds=-1), InvalidValue, "timeout must not be negative, but is -1 s"),
    ],
)
async def test_wrong_arguments_are_named(
    database: Database, appended: Any, timeout: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=re.escape(says)):
        await wait_for(database, "p", appended, timeout)


@pytest.mark.slow
async def test_nothing_is_over_before_the_handler_has_committed(database: Database) -> None:
    await caught_up(database, recording())
    gate = Gate()
    appended = await write(database, "a")
    wait = asyncio.create_task(wait_for(database, "p", appended, LONG))
    await waiting(database)
    async with running(database, recording(gate)):
        await gate.reached.wait()
        assert not wait.done()

        gate.open.set()
        await wait

        assert await effects(database) == [("a", 1)]


@pytest.mark.slow
async def test_all_of_several_projections_are_waited_for(database: Database) -> None:
    await caught_up(database, recording(name="fast"), recording(name="slow"))
    appended = await write(database, "a")
    await caught_up(database, recording(name="fast"))

    await wait_for(database, "fast", appended, LONG)
    assert "projection 'slow': no worker has slices 0 to 1023" in await late(
        database, ["fast", "slow"], appended
    )
    await caught_up(database, recording(name="slow"))

    await wait_for(database, ["fast", "slow"], appended, LONG)


class TestReasons:
    async def test_no_worker(self, database: Database) -> None:
        await caught_up(database, recording())

        said = await late(database, "p", await write(database, "a"))

        assert said == "not handled within 0.1 s: projection 'p': no worker has slices 0 to 1023"

    @pytest.mark.slow
    async def test_paused(self, database: Database) -> None:
        await caught_up(database, recording())
        async with database.session() as session:
            await set_paused(session, "p", paused=True)

        said = await late(database, "p", await write(database, "a"))

        assert "projection 'p': it is paused (projections resume p)" in said

    @pytest.mark.slow
    async def test_parked(self, database: Database) -> None:
        appended = await write(database, "a", "a")
        await caught_up(database, recording(failing(("a", 1)), recovery=NO_RETRY))

        said = await late(database, "p", appended)

        assert (
            "source 'a' is parked at event 1 (event 'Happened' of source 'a', seq_nr 1: Failure: a 1)" in said
        )
        assert "projections parked retry" in said

    @pytest.mark.slow
    async def test_failing(self, database: Database) -> None:
        await caught_up(database, recording())
        await execute(
            database,
            "UPDATE projections.projection_ranges SET error = 'no disk', restarts_at = now() + interval '1 hour'",
        )

        said = await late(database, "p", await write(database, "a"))

        assert "slices 0 to 1023 failed (no disk) and start again at" in said

    @pytest.mark.slow
    async def test_behind(self, database: Database) -> None:
        gate = Gate()
        first = await write(database, "a")
        async with running(database, recording(gate)) as told:
            await gate.reached.wait()
            second = await write(database, "a")
            said = await late(database, "p", second)
            assert "is behind: its last event is " in said
            assert "s older than event 2 of source 'a'" in said
            gate.open.set()
            await told.first("handled")
            await wait_for(database, "p", first, LONG)

    @pytest.mark.slow
    async def test_not_committed(self, database: Database) -> None:
        await caught_up(database, recording())
        async with database.transaction() as session:
            appended = await append(session, [Event("a", Happened(), "plane")])

            said = await late(database, "p", appended)

        assert "event 1 of source 'a' is not in the journal: its transaction has not been committed" in said

    @pytest.mark.slow
    async def test_each_projection_has_its_own(self, database: Database) -> None:
        await caught_up(database, recording(name="one"), recording(name="two"))
        async with database.session() as session:
            await set_paused(session, "one", paused=True)

        with pytest.raises(WaitTimeout) as caught:
            await wait_for(database, ["one", "two"], await write(database, "a"), SOON)

        assert set(caught.value.reasons) == {"one", "two"}
        assert "paused" in caught.value.reasons["one"]
        assert "no worker" in caught.value.reasons["two"]


class TestRefused:
    async def test_a_projection_that_never_ran(self, database: Database) -> None:
        await caught_up(database, recording())

        with pytest.raises(NotFound, match="known: p"):
            await wait_for(database, "q", await write(database, "a"))

    @pytest.mark.slow
    async def test_a_projection_of_another_type(self, database: Database) -> None:
        @projection("airports", entity_type="airport")
        class Airports:
            @handles(Happened)
            async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None: ...

        await caught_up(database, Airports)

        with pytest.raises(
            ValueError, match="'airports' reads events of type 'airport', and source 'a' is of type 'plane'"
        ):
            await wait_for(database, "airports", await write(database, "a"))

    async def test_a_text_that_is_no_token(self, database: Database) -> None:
        with pytest.raises(InvalidToken, match="'token' is not a token"):
            await wait_for(database, "p", "token")

    @pytest.mark.slow
    async def test_a_token_of_a_lost_timeline(self, database: Database) -> None:
        await caught_up(database, recording())
        (appended,) = await write(database, "a")
        lost = appended._replace(seq_nr=2, timeline=7)

        with pytest.raises(
            DatabaseWentBack, match="appended on timeline 7 of the database, which is on timeline 1 now"
        ):
            await wait_for(database, "p", lost.token)


@pytest.mark.slow
async def test_an_event_that_got_the_number_of_one_that_was_rolled_back_is_not_taken_for_it(
    database: Database,
) -> None:
    async with database.session() as session:
        await session.begin()
        rolled_back = await append(session, [Event("a", Happened(), "plane")])
        await session.rollback()
    appended = await write(database, "a")
    await caught_up(database, recording())

    await wait_for(database, "p", appended, LONG)
    assert "is not in the journal" in await late(database, "p", rolled_back)


@pytest.mark.slow
async def test_an_event_that_is_replaced_while_it_is_waited_for_is_not_taken_for_handled(
    database: Database,
) -> None:
    await caught_up(database, recording())
    appended = await write(database, "a")
    wait = asyncio.create_task(wait_for(database, "p", appended, timedelta(seconds=1)))
    await waiting(database)
    # As after a restore of a state from before, and an append since.
    await execute(database, "UPDATE projections.events SET db_timestamp = db_timestamp + interval '1 ms'")

    await caught_up(database, recording())

    with pytest.raises(WaitTimeout, match="is not in the journal"):
        await wait


@pytest.mark.slow
async def test_an_offset_that_was_evicted_counts_as_handled(database: Database) -> None:
    appended = await write(database, "a")
    await caught_up(database, recording())
    await execute(database, "DELETE FROM projections.source_offsets")
    assert "no worker" in await late(database, "p", appended)

    await execute(database, "UPDATE projections.projections SET evicted_before = now()")

    await wait_for(database, "p", appended, LONG)


@asynccontextmanager
async def counting(dsn: str) -> AsyncIterator[Callable[[], Awaitable[int]]]:
    """Counts the notifications of workers: of all that has committed, as one that is sent now comes after those."""
    heard: list[str] = []
    connection = await asyncpg.connect(dsn)
    await connection.add_listener(HANDLED, lambda _connection, _pid, _channel, payload: heard.append(payload))

    async def count() -> int:
        own = uuid.uuid4().hex
        await connection.execute("SELECT pg_notify($1, $2)", HANDLED, own)
        async with asyncio.timeout(300):
            while own not in heard:
                await asyncio.sleep(0.001)
        heard.remove(own)
        return len(heard)

    yield count
    await connection.close()


async def test_workers_notify_only_while_somebody_waits(dsn: str, database: Database) -> None:
    gate = Gate()
    gate.open.set()
    async with counting(dsn) as notified, running(database, recording(gate)) as told:
        await write(database, "a")
        await told.first("handled")
        assert await notified() == 0

        gate.open.clear()  # until somebody has said that it waits
        wait = asyncio.create_task(wait_for(database, "p", await write(database, "a"), LONG))
        await waiting(database)
        gate.open.set()
        await wait
        await told.first("handled", 2)
        assert await notified() == 1

        await execute(database, "UPDATE projections.projections SET waited_until = now()")
        await write(database, "a")
        await told.first("handled", 3)
        assert await notified() == 1


@pytest.mark.slow
async def test_a_thousand_who_wait_share_one_poll(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await caught_up(database, recording())
    appended = await write(database, *(f"s{number}" for number in range(1000)))
    polls: list[int] = []
    look = waiter._Waiter._look

    async def counted(self: Any, session: Session, waits: Any) -> None:
        polls.append(len(waits))
        await look(self, session, waits)

    monkeypatch.setattr(waiter._Waiter, "_look", counted)

    waits = [asyncio.create_task(wait_for(database, "p", each, LONG)) for each in appended]
    await waiting(database)
    async with running(database, recording(), settings=settings()):
        await asyncio.gather(*waits)

    assert max(polls) == 1000
    assert len(polls) < 1000


async def test_who_gives_up_holds_nothing(database: Database) -> None:
    await caught_up(database, recording())
    wait = asyncio.create_task(wait_for(database, "p", await write(database, "a"), LONG))
    await waiting(database)

    wait.cancel()

    with pytest.raises(asyncio.CancelledError):
        await wait
    (service,) = waiter._waiters.values()
    assert not service._waits


async def test_a_database_that_is_gone_is_said(
    dsn: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await caught_up(database, recording())
    appended = await write(database, "a")

    async def gone(*_: Any) -> None:
        raise DatabaseUnavailable("the server is gone")

    async with connect(dsn) as other:
        monkeypatch.setattr(waiter._Waiter, "_look", gone)
        monkeypatch.setattr(waiter, "reason", gone)
        with pytest.raises(WaitTimeout, match=r"the database does not answer \(the server is gone\)"):
            await wait_for(other, "p", appended, SOON)


@pytest.mark.slow
@pytest.mark.parametrize("group", ["projections_reader", "projections_writer", "projections_worker"])
async def test_each_role_may_wait(database: Database, login: Callable[[str | None], str], group: str) -> None:
    appended = await write(database, "a", "b")
    await caught_up(database, recording())
    later = await write(database, "a")

    async with connect(login(group)) as limited:
        await wait_for(limited, "p", appended, LONG)
        assert "no worker" in await late(limited, "p", later)


@pytest.mark.slow
async def test_psycopg_waits_too(dsn: str, database: Database) -> None:
    from journal import ConnectionSettings

    await caught_up(database, recording())
    appended = await write(database, "a")
    async with connect(dsn, ConnectionSettings(driver="psycopg")) as other:
        wait = asyncio.create_task(wait_for(other, "p", appended.token, LONG))
        await waiting(database)
        await caught_up(database, recording())

        await wait
