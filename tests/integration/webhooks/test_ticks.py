"""Ticks of many schedules, sent by any number of processes: each once, none lost for being late, the missed counted."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from journal import Database
from projections.webhooks.messages import MESSAGE, send
from projections.webhooks.schedules import Schedules
from projections.webhooks.stats import webhook_totals
from projections.webhooks.ticks import Ticks, send_claimed
from tests.fixtures.going_back import go_back, remember
from tests.fixtures.projections import QUICK, execute, fetchval, until
from tests.fixtures.webhooks import send_ticks

SENT = f"SELECT count(*) = $1 FROM projections.events WHERE entity_type = '{MESSAGE}'"
LABELS = f"""
SELECT metadata->'labels'->>'schedule_id' AS schedule_id, metadata->'labels'->>'tick' AS tick, count(*) AS times
FROM projections.events WHERE entity_type = '{MESSAGE}' GROUP BY 1, 2
"""
MANY = """
INSERT INTO projections.webhook_schedules (schedule_id, tenant, name, cron, topic, data, next_at, missed)
SELECT 'sch_' || n, 'tenant-' || n % 7, n, '* * * * *', 'report.due', '{}',
    date_trunc('minute', now()) - $2::interval, $3
FROM generate_series(1, $1) AS n
"""
SEEN = """
INSERT INTO projections.webhook_standstills (began_at) VALUES (clock_timestamp() - $1::interval)
ON CONFLICT (ended_at) DO UPDATE SET began_at = excluded.began_at
"""
MINUTE = timedelta(minutes=1)


async def many(database: Database, number: int, ago: timedelta = MINUTE, missed: str = "one") -> None:
    """Schedules of every minute, all due at one minute, while somebody is there to send."""
    await execute(database, SEEN, timedelta(0))
    await execute(database, MANY, number, ago, missed)


async def sent_ticks(database: Database) -> dict[tuple[str, str], int]:
    async with database.session() as session:
        rows = await session.fetch(LABELS)
    return {(row["schedule_id"], row["tick"]): row["times"] for row in rows}


async def send_all(database: Database) -> int:
    """Look until nothing is due; the number of looks that found something."""
    looks = 0
    while (await send_ticks(database)).next_in == timedelta(0):
        looks += 1
    return looks


def each_once(ticks: dict[tuple[str, str], int], schedules: int) -> set[str]:
    """Each schedule has sent the same ticks, once; which."""
    assert set(ticks.values()) == {1}
    found: dict[str, set[str]] = {}
    for schedule_id, tick in ticks:
        found.setdefault(schedule_id, set()).add(tick)
    assert len(found) == schedules
    (first, *_) = sorted(found.values(), key=len)
    assert all(first <= some for some in found.values())  # a minute may have begun meanwhile
    return first


@asynccontextmanager
async def ticking(database: Database, number: int = 1) -> AsyncIterator[list[Ticks]]:
    """Send ticks for the length of the block, as so many processes would."""
    stop = asyncio.Event()
    all_of_them = [Ticks(database, restart=QUICK) for _ in range(number)]
    tasks = [asyncio.create_task(one.run(stop)) for one in all_of_them]
    try:
        yield all_of_them
    finally:
        stop.set()
        async with asyncio.timeout(300):
            await asyncio.gather(*tasks)


PROGRAM = """
import asyncio, sys
from journal import ConnectionSettings
from journal.database import connect
from projections.webhooks.ticks import send_claimed

async def main():
    async with connect(sys.argv[1], ConnectionSettings(max_connections=1)) as database:
        async with database.transaction() as session:
            print(await send_claimed(session), flush=True)
            sys.stdin.readline()

asyncio.run(main())
"""


@contextmanager
def claiming(dsn: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has claimed schedules, and sent their ticks, and has not committed."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, dsn], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("(200, ")
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


class TestMany:
    @pytest.mark.slow
    async def test_of_twenty_thousand_at_one_minute_each_is_sent_and_none_counts_as_missed(
        self, database: Database
    ) -> None:
        await many(database, 20_000)

        async with ticking(database, 2):
            await until(database, "SELECT min(next_at) > now() FROM projections.webhook_schedules")

        ticks = each_once(await sent_ticks(database), 20_000)
        assert len(ticks) >= 2
        assert (await totals(database)).ticks_skipped == 0

    @pytest.mark.slow
    async def test_hundreds_are_taken_in_one_transaction_and_late_ticks_are_not_missed(
        self, database: Database
    ) -> None:
        await many(database, 600, ago=2 * MINUTE)

        looks = await send_all(database)

        assert len(each_once(await sent_ticks(database), 600)) >= 3
        assert 3 <= looks <= 6
        assert (await totals(database)).ticks_skipped == 0

    @pytest.mark.slow
    async def test_two_processes_share_them(self, database: Database) -> None:
        await many(database, 600)
        async with database.session() as first, database.session() as second:
            await first.begin()
            await second.begin()
            shares = [
                {
                    row["schedule_id"]
                    for row in await session.fetch("SELECT * FROM projections._claim_schedules_v1()")
                }
                for session in (first, second)
            ]
            await second.rollback()
            await first.rollback()
        async with ticking(database, 2):
            await until(database, "SELECT min(next_at) > now() FROM projections.webhook_schedules")

        assert [len(share) for share in shares] == [200, 200]
        assert not shares[0] & shares[1]
        each_once(await sent_ticks(database), 600)

    @pytest.mark.slow
    async def test_one_bad_schedule_among_hundreds_is_told_alone(self, database: Database) -> None:
        await many(database, 150)
        await execute(
            database, "UPDATE projections.webhook_schedules SET data = '{' WHERE schedule_id = 'sch_77'"
        )

        await send_all(database)

        ticks = await sent_ticks(database)
        assert "sch_77" not in {schedule_id for schedule_id, _ in ticks}
        each_once(ticks, 149)
        errors = "SELECT array_agg(schedule_id) FROM projections.webhook_schedules WHERE error IS NOT NULL"
        assert await fetchval(database, errors) == ["sch_77"]

    @pytest.mark.slow
    async def test_what_is_claimed_together_has_a_bound(self, database: Database) -> None:
        await many(database, 12)
        await execute(
            database, "UPDATE projections.webhook_schedules SET data = to_json(repeat('x', 1000000))::text"
        )

        async with database.transaction() as session:
            claimed, _ = await send_claimed(session)

        assert claimed == 5  # the one with which they are 4 MiB is the last


class TestOtherTenants:
    @pytest.mark.slow
    async def test_a_tenant_with_more_that_is_due_than_can_be_sent_does_not_keep_another_waiting(
        self, database: Database
    ) -> None:
        await many(database, 300, ago=20 * MINUTE)
        each_second = "UPDATE projections.webhook_schedules SET cron = '* * * * * *', tenant = 'busy'"
        await execute(database, each_second)
        await Schedules(database).create("small", "one", "* * * * *", timezone="UTC", topic="a", data=1)
        await execute(
            database,
            "UPDATE projections.webhook_schedules SET next_at = date_trunc('minute', now()) WHERE tenant = 'small'",
        )

        async with database.transaction() as session:
            claimed, _ = await send_claimed(session)

        assert claimed == 200
        assert await fetchval(
            database, "SELECT last_at FROM projections.webhook_schedules WHERE tenant = 'small'"
        )

    @pytest.mark.slow
    @pytest.mark.parametrize("limit", [3, 1])
    async def test_of_few_that_are_taken_each_tenant_has_its_turn(
        self, database: Database, limit: int
    ) -> None:
        await many(database, 70, ago=20 * MINUTE)
        waiting = "SELECT count(*) FROM projections.webhook_schedules WHERE last_at IS NULL AND tenant <> 'tenant-1'"
        await execute(
            database,
            "UPDATE projections.webhook_schedules SET tenant = 'tenant-1', cron = '* * * * * *', "
            "next_at = next_at - interval '1 hour' WHERE name::int > 7",
        )
        async with asyncio.timeout(300):
            while await fetchval(database, waiting):
                async with database.transaction() as session:
                    claimed, _ = await send_claimed(session, limit)
                assert claimed == limit

    @pytest.mark.slow
    async def test_a_transaction_that_has_sent_for_a_tenant_and_stays_open_holds_up_no_ticks(
        self, database: Database
    ) -> None:
        await many(database, 100)
        async with database.transaction() as session:
            for key in range(300):  # all sources of the tenant's messages
                await send(session, "tenant-1", "a", key, order_key=f"{key}")
            async with ticking(database):
                await until(database, "SELECT min(next_at) > now() FROM projections.webhook_schedules")
            each_once(await sent_ticks(database), 100)


class TestProcesses:
    @pytest.mark.slow
    async def test_what_a_frozen_process_has_claimed_is_sent_by_others_once(
        self, dsn: str, database: Database
    ) -> None:
        await many(database, 300)
        with claiming(dsn) as frozen:
            frozen.send_signal(signal.SIGSTOP)
            async with ticking(database):
                await until(database, "SELECT min(next_at) > now() FROM projections.webhook_schedules")
            frozen.send_signal(signal.SIGCONT)
            frozen.communicate("go on\n", timeout=300)

            assert frozen.returncode != 0  # its commit is refused
        each_once(await sent_ticks(database), 300)
        assert (await totals(database)).ticks_skipped == 0

    @pytest.mark.slow
    async def test_what_a_process_has_claimed_that_is_killed_before_it_commits_is_sent_once(
        self, dsn: str, database: Database
    ) -> None:
        await many(database, 300)
        with claiming(dsn) as process:
            process.kill()
            process.wait()
            async with ticking(database):
                await until(database, "SELECT min(next_at) > now() FROM projections.webhook_schedules")

        each_once(await sent_ticks(database), 300)

    @pytest.mark.slow
    async def test_a_schedule_that_others_have_locked_holds_none_up(self, database: Database) -> None:
        await many(database, 2)
        async with database.session() as session:
            await session.begin()
            await session.fetchval(
                "SELECT name FROM projections.webhook_schedules WHERE schedule_id = 'sch_1' FOR UPDATE"
            )
            async with ticking(database):
                await until(database, SENT.replace("=", ">=").replace(">='", "='"), 1)
                free = {schedule_id for schedule_id, _ in await sent_ticks(database)}
                await session.commit()
                await until(database, "SELECT min(next_at) > now() FROM projections.webhook_schedules")

        assert free == {"sch_2"}
        each_once(await sent_ticks(database), 2)

    async def test_a_database_that_goes_away_is_waited_for(
        self, database: Database, caplog: pytest.LogCaptureFixture
    ) -> None:
        claim = "ALTER FUNCTION projections.{} RENAME TO {}"
        async with ticking(database) as (one,):
            await execute(database, claim.format("_claim_schedules_v1", "gone"))
            await many(database, 3)
            async with asyncio.timeout(300):
                while not one._service.failures:
                    await asyncio.sleep(0.001)
            await execute(database, claim.format("gone", "_claim_schedules_v1"))
            await until(database, "SELECT min(next_at) > now() FROM projections.webhook_schedules")

        assert "webhooks wait, with their schedules" in caplog.text
        each_once(await sent_ticks(database), 3)

    @pytest.mark.slow
    async def test_where_many_take_too_long_together_fewer_are_tried(self, database: Database) -> None:
        await execute(
            database,
            "CREATE FUNCTION too_many() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF (SELECT count(*) FROM moved) > 60 THEN "
            "RAISE EXCEPTION 'too many' USING ERRCODE = '57014'; END IF; RETURN NULL; END $$",
        )
        await execute(
            database,
            "CREATE TRIGGER too_many AFTER UPDATE ON projections.webhook_schedules REFERENCING NEW TABLE AS moved "
            "FOR EACH STATEMENT EXECUTE FUNCTION too_many()",
        )
        await many(database, 100)

        async with ticking(database):
            await until(database, "SELECT min(next_at) > now() FROM projections.webhook_schedules")

        each_once(await sent_ticks(database), 100)


class TestStandstills:
    @pytest.mark.slow
    @pytest.mark.parametrize(("missed", "number"), [("skip", 1), ("one", 1), ("all", 31)])
    async def test_what_was_due_while_nobody_could_send_is_missed(
        self, database: Database, missed: str, number: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        await many(database, 2, ago=30 * MINUTE, missed=missed)
        await execute(database, SEEN, 31 * MINUTE)

        await send_all(database)

        found = [len([s for s, _ in await sent_ticks(database) if s == name]) for name in ("sch_1", "sch_2")]
        assert all(number <= of_one <= number + 1 for of_one in found)  # a minute may have begun meanwhile
        skipped = {0} if missed == "all" else {60, 62}  # likewise
        assert (await totals(database)).ticks_skipped in skipped
        assert ("passed over" in caplog.text) == (missed != "all")

    async def test_somebody_who_cannot_send_is_nobody(self, database: Database) -> None:
        await many(database, 2, ago=30 * MINUTE)
        await execute(database, SEEN, 31 * MINUTE)
        async with database.session() as session:
            await session.begin()
            await send_claimed(session)
            await session.rollback()

        since = await fetchval(
            database,
            "SELECT now() - began_at FROM projections.webhook_standstills WHERE ended_at = 'infinity'",
        )

        assert since > 30 * MINUTE

    async def test_a_short_pause_is_no_standstill(self, database: Database) -> None:
        await many(database, 1, ago=2 * MINUTE)
        await execute(database, SEEN, timedelta(seconds=50))

        await send_all(database)

        assert len(await sent_ticks(database)) >= 3
        assert await fetchval(database, "SELECT count(*) FROM projections.webhook_standstills") == 1

    async def test_standstills_of_which_nothing_is_due_any_more_are_forgotten_and_their_ticks_are_not(
        self, database: Database
    ) -> None:
        await many(database, 1, ago=30 * MINUTE)
        await execute(database, SEEN, 31 * MINUTE)
        await send_all(database)
        await execute(database, "UPDATE projections.webhook_schedules SET next_at = now() + interval '1 day'")
        await execute(database, SEEN, 5 * MINUTE)

        await send_ticks(database)

        assert await fetchval(database, "SELECT count(*) FROM projections.webhook_standstills") == 2
        assert (await totals(database)).ticks_skipped in {30, 31}  # a minute may have begun meanwhile

    async def test_a_clock_that_was_ahead_has_nothing_missed_once_it_is_set_back(
        self, database: Database
    ) -> None:
        await many(database, 2, ago=5 * MINUTE)
        await execute(
            database,
            "INSERT INTO projections.webhook_standstills (began_at, ended_at, skipped) "
            "VALUES (now() - interval '10 minutes', now() + interval '1 hour', 7)",
        )
        await execute(database, SEEN, timedelta(hours=-1))

        await send_all(database)

        assert len(each_once(await sent_ticks(database), 2)) >= 6
        assert (await totals(database)).ticks_skipped == 7

    async def test_who_comes_while_a_standstill_is_noted_waits_for_it(self, database: Database) -> None:
        await many(database, 2, ago=30 * MINUTE)
        await execute(database, SEEN, 31 * MINUTE)
        async with database.session() as first, database.session() as second:
            await first.begin()
            await first.fetchval("SELECT projections._watch_schedules_v1()")
            await second.begin()
            sending = asyncio.create_task(send_claimed(second))
            await until(
                database,
                "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() "
                "AND wait_event_type = 'Lock')",
            )
            await first.commit()
            claimed, _ = await sending
            await second.commit()

        assert claimed == 2
        assert await fetchval(database, "SELECT count(*) FROM projections.webhook_standstills") == 2
        assert (await totals(database)).ticks_skipped in {60, 62}  # a minute may have begun meanwhile

    @pytest.mark.slow
    async def test_a_database_that_goes_back_sends_what_it_has_forgotten_under_the_same_ids(
        self, database: Database
    ) -> None:
        await many(database, 3)
        await remember(database)
        ids = []
        for _ in range(2):
            await send_all(database)
            ids.append(
                await fetchval(
                    database, "SELECT array_agg(event_id ORDER BY event_id) FROM projections.events"
                )
            )
            await go_back(database)

        assert ids[0][:3] == ids[1][:3]


async def test_the_lag_of_ticks_is_told(database: Database) -> None:
    none = (await totals(database)).ticks_lag
    await many(database, 1, ago=30 * MINUTE)

    late = (await totals(database)).ticks_lag
    await send_all(database)

    assert none == 0
    assert 1800 <= late < 1920
    assert (await totals(database)).ticks_lag == 0


async def test_a_paused_schedule_is_not_late(database: Database) -> None:
    made = await Schedules(database).create("acme", "n", "@hourly", timezone="UTC", topic="a", data=1)
    await Schedules(database).pause("acme", made.schedule_id)
    await execute(database, "UPDATE projections.webhook_schedules SET next_at = '2026-01-01'")

    assert (await totals(database)).ticks_lag == 0


async def totals(database: Database) -> Any:
    async with database.session() as session:
        return await webhook_totals(session)
