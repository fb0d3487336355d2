"""Maintenance by workers in turns, by a role that owns nothing, and by pg_cron."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from journal import Database, MissingPrivilege, connect, import_events
from journal.partitions import maintaining, schedule
from journal.partitions.periodic import take_turn
from tests.fixtures.commands import APP, SEEN, running
from tests.fixtures.journal import count, historic
from tests.fixtures.projections import execute, fetchval, until
from tests.fixtures.retention import DAY, NAMES, NOW, PAST, filled, keep, kept_by, past, reader

SLOW = "-c statement_timeout=200"
OFTEN = timedelta(milliseconds=50)
RUNNING = """
SELECT relation::regclass::text FROM projections.partitions
WHERE table_name = 'events' AND from_timestamp < now() AND to_timestamp > now()
"""
ALL = "SELECT * FROM projections.maintain_v1()"


@pytest.fixture
async def worker(database: Database, login: Callable[[str | None], str]) -> AsyncIterator[Database]:
    """A database of a worker, who owns nothing."""
    async with connect(login("projections_worker")) as pool:
        yield pool


@pytest.mark.slow
async def test_worker_makes_and_drops_partitions_though_it_owns_no_table(
    database: Database, worker: Database
) -> None:
    await filled(database)

    done = await take_turn(worker, NOW)

    assert done is not None
    assert done > len(NAMES)
    assert await past(database) == []
    owners = "SELECT count(DISTINCT relowner) FROM pg_class WHERE relnamespace = 'projections'::regnamespace"
    assert await fetchval(database, owners) == 1


@pytest.mark.parametrize(
    "call",
    [
        "_create_partition_v1('2020-01-01Z', '2020-01-02Z')",
        "_drop_partition_v1('events_20200101t000000')",
        "_drop_partition_v1('events_20200101t000000', TRUE)",
    ],
)
async def test_worker_may_not_make_or_drop_a_partition_of_its_choice(worker: Database, call: str) -> None:
    with pytest.raises(MissingPrivilege):
        await fetchval(worker, f"SELECT projections.{call}")


@pytest.mark.parametrize("role", ["projections_reader", "projections_writer"])
async def test_other_roles_do_not_maintain(
    database: Database, login: Callable[[str | None], str], role: str
) -> None:
    async with connect(login(role)) as pool:
        with pytest.raises(MissingPrivilege):
            await take_turn(pool, NOW)


async def test_objects_of_the_callers_search_path_have_no_part_in_it(
    database: Database, worker: Database
) -> None:
    """What runs with the owner's rights runs nothing of the caller's."""
    await execute(
        database,
        "GRANT CREATE, TEMPORARY ON DATABASE {} TO PUBLIC".format(
            await fetchval(database, "SELECT quote_ident(current_database())")
        ),
    )
    async with worker.session() as session:
        await session.execute("CREATE SCHEMA mine")
        await session.execute(
            "CREATE FUNCTION mine.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'called as %', current_user; END $$"
        )
        await session.execute("SELECT set_config('search_path', 'mine, projections, pg_catalog', false)")
        rows = await session.fetch(ALL)

    assert [row["problem"] for row in rows] == [None]


@pytest.mark.slow
async def test_of_many_workers_one_does_it_each_time(database: Database) -> None:
    turns = await asyncio.gather(*(take_turn(database, DAY) for _ in range(5)))
    later = await take_turn(database, DAY)

    assert sorted(turn is not None for turn in turns) == [False] * 4 + [True]
    assert later is None


async def test_one_call_does_one_step(database: Database) -> None:
    await fetchval(database, f"SELECT count(*) FROM ({ALL}) AS m")

    assert await fetchval(database, "SELECT count(*) FROM projections.partitions WHERE NOT is_default") == 1


@pytest.mark.slow
async def test_calls_one_after_the_other_come_to_an_end_with_everything_done(database: Database) -> None:
    await import_events(database, [historic("a", n, db_timestamp=PAST + n * DAY) for n in range(1, 6)])

    calls = 0
    while await fetchval(database, f"SELECT count(*) FROM ({ALL}) AS m"):
        calls += 1

    assert calls == 5 + 4 * 8
    assert await count(database, "projections.events_default") == 0


@pytest.mark.slow
async def test_what_somebody_needs_is_no_step(database: Database) -> None:
    await filled(database)
    await reader(database, PAST + DAY)

    await take_turn(database, NOW)

    assert await past(database) == NAMES[1:]


@pytest.mark.slow
async def test_what_is_to_be_archived_first_is_no_step(database: Database) -> None:
    await filled(database)
    await keep(database, "events", archive_first=True)

    await take_turn(database, NOW)

    assert await past(database) == NAMES


async def test_unused_subscriptions_expire_when_nothing_else_is_to_be_done(database: Database) -> None:
    await fetchval(database, "SELECT projections.subscribe_v1('billing', p_expires_after => '1 minute')")
    await execute(database, "UPDATE projections.subscriptions SET active_at = active_at - interval '1 hour'")

    await take_turn(database, NOW)

    assert await count(database, "projections.subscriptions") == 0


@pytest.mark.slow
async def test_chore_of_a_worker_maintains_until_it_ends(database: Database, worker: Database) -> None:
    await filled(database)

    async with maintaining(worker, OFTEN):
        await until(
            database, "SELECT count(*) = 0 FROM projections.partitions WHERE to_timestamp < '2021-01-01Z'"
        )

    assert [task for task in asyncio.all_tasks() if task.get_name() == "Turns.run"] == []


@pytest.mark.slow
async def test_worker_process_does_the_chore(database: Database, dsn: str, tmp_path: Path) -> None:
    await filled(database)
    await execute(database, SEEN)
    (tmp_path / "app.py").write_text(APP)

    with running("app:Delays", "--dsn", dsn, "--maintain-every", "0.1s", cwd=tmp_path) as process:
        told = process.until("maintained")
        await until(database, "SELECT count(*) >= 16 FROM projections.partitions WHERE NOT is_default")
        process.signal(signal.SIGTERM)
        assert process.end() == 0

    assert told["table"] == "events"


@pytest.mark.slow
@pytest.mark.parametrize("role", ["projections_reader", "projections_worker"])
async def test_roles_that_read_see_partitions_and_what_keeps_them(
    database: Database, login: Callable[[str | None], str], role: str
) -> None:
    await filled(database)
    await reader(database, PAST)

    async with connect(login(role)) as pool:
        assert await kept_by(pool) == dict.fromkeys(
            NAMES, ("projection slow stands at 2020-01-01 00:00:00+00",)
        )


@pytest.mark.slow
async def test_statement_timeout_of_the_role_does_not_cut_maintenance_short(
    dsn: str, database: Database
) -> None:
    """The partition that runs waits for an open append, for longer than that."""
    await filled(database)
    await keep(database, "events", ahead=1)
    await execute(database, "DROP TABLE " + await fetchval(database, RUNNING))
    async with database.session() as session, connect(make_conninfo(dsn, options=SLOW)) as pool:
        await session.begin()
        await session.execute("LOCK TABLE projections.sources IN ROW EXCLUSIVE MODE")
        done = await take_turn(pool, NOW)
        await session.rollback()

    assert done == 3
    assert await past(database) == []


@pytest.mark.slow
async def test_turn_ends_after_a_few_waits_in_vain_and_the_next_goes_on(database: Database) -> None:
    for day in range(3, 8):
        start = PAST + day * DAY
        await execute(database, "SELECT projections._create_partition_v1($1, $2)", start, start + DAY)
    await filled(database)
    await keep(database, "events", ahead=1)
    await execute(database, "DROP TABLE " + await fetchval(database, RUNNING))
    async with database.session() as session:
        await session.begin()
        await session.execute("LOCK TABLE projections.sources IN ROW EXCLUSIVE MODE")
        turns = [await take_turn(database, NOW) for _ in range(3)]
        await session.rollback()

    assert turns == [3, 3, 2]
    assert await past(database) == []


async def test_worker_that_may_not_maintain_says_so_once(
    database: Database, login: Callable[[str | None], str], caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(login("projections_writer")) as pool:
        with caplog.at_level(logging.WARNING, "projections"):
            async with maintaining(pool, OFTEN):
                async with asyncio.timeout(300):
                    while any(task.get_name() == "Turns.run" for task in asyncio.all_tasks()):
                        await asyncio.sleep(0.001)

    assert [record.__dict__["action"] for record in caplog.records] == ["not_maintaining"]


async def test_worker_told_not_to_does_not(database: Database) -> None:
    async with maintaining(database, None):
        assert [task for task in asyncio.all_tasks() if task.get_name() == "Turns.run"] == []


async def test_without_pg_cron_nothing_is_scheduled_and_the_statement_is_told(database: Database) -> None:
    async with database.session() as session:
        job = await schedule(session)
        name = await session.fetchval("SELECT current_database()")

    assert not job.scheduled
    assert job.statement == (
        "SELECT cron.schedule_in_database('projections-maintain', '* * * * *', "
        f"'SELECT * FROM projections.maintain_v1()', '{name}')"
    )


async def test_what_is_scheduled_is_what_was_told(database: Database) -> None:
    """With a function in the place of pg_cron's, since the extension is on few machines."""
    await execute(database, "CREATE SCHEMA cron")
    await execute(
        database, "CREATE TABLE cron.job (name text PRIMARY KEY, schedule text, command text, database text)"
    )
    await execute(
        database,
        "CREATE FUNCTION cron.schedule_in_database(text, text, text, text) RETURNS void LANGUAGE sql "
        "AS $$ INSERT INTO cron.job VALUES ($1, $2, $3, $4) $$",
    )

    async with database.session() as session:
        job = await schedule(session)
        await session.fetchval(job.statement)
        command = await session.fetchval("SELECT command FROM cron.job WHERE database = current_database()")
        rows = await session.fetch(command)

    assert [row["problem"] for row in rows] == [None]
