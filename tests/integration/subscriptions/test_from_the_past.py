"""Subscriptions that start in the past: what was committed before comes first, each event once, beside what comes."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from journal import Database, Event, HistoricEvent, OwnedSession, append
from journal.importing import import_events
from projections.subscriptions import InvalidSubscription, rewind_group, unsubscribe
from projections.subscriptions import subscribe as make_subscription
from projections.subscriptions.catching_up import CatchingUp
from tests.fixtures.commands import COMMAND, environment
from tests.fixtures.journal import PAST
from tests.fixtures.matching import (
    HELD,
    WAITS,
    execute,
    fetchval,
    happened,
    match,
    matched,
    matching,
    publish,
    subscribe,
)
from tests.fixtures.past import (
    ALL_CAUGHT_UP,
    append_many,
    catch_up,
    from_the_past,
    in_order,
    matched_by,
    turn,
    until_settled,
)
from tests.fixtures.projections import until

READ = """
SELECT coalesce(sum(pg_stat_get_xact_tuples_returned(i.indexrelid) + pg_stat_get_xact_tuples_returned(i.indrelid)), 0)
FROM pg_catalog.pg_index AS i WHERE i.indrelid IN (
    SELECT p.relid FROM pg_catalog.pg_partition_tree('projections.events') AS p
)
"""


@pytest.mark.slow
async def test_what_was_before_comes_and_then_what_comes(database: Database) -> None:
    for place in range(10):
        await happened(database, source=f"s{place % 3}")
    async with matching(database):
        await from_the_past(database)
        await until(database, ALL_CAUGHT_UP)
        for place in range(10):
            await happened(database, source=f"s{place % 3}")
        await until(database, "SELECT count(*) >= 20 FROM projections.matches")

    found = await matched(database)
    assert len(found) == 20
    in_order(found)


async def test_only_what_is_asked_for_from_the_time_on(database: Database) -> None:
    await happened(database, source="early")
    newest = "SELECT max(db_timestamp) + interval '1 microsecond' FROM projections.events"
    start = await fetchval(database, newest)
    await happened(database, source="late")
    await happened(database, "other", source="other")
    await happened(database, source="ship", kind="ship")
    await from_the_past(database, start, topics=["t"], entity_types=["plane"])
    exact = await fetchval(database, "SELECT db_timestamp FROM projections.events WHERE source_id = 'other'")
    await from_the_past(database, exact, topics=["oth*"], group="h")
    await catch_up(database)

    assert await matched_by(database, "g") == [("late", 1)]
    assert await matched_by(database, "h") == [("other", 1)]


@pytest.mark.slow
async def test_a_page_has_many_topics_and_keeps_its_order(database: Database) -> None:
    async with database.transaction() as session:
        events = [Event(f"s{n % 7}", {}, "plane", event_type=f"t{n % 10}") for n in range(5000)]
        await append(session, events)
    await match(database)
    await until_settled(database)
    await from_the_past(database)
    await from_the_past(database, group="h", topics=["t3"])
    await catch_up(database)

    found = await matched_by(database, "g")
    assert len(found) == 5000
    in_order(found)
    assert sorted(await matched_by(database, "h")) == sorted(
        (event.source_id, n // 7 + 1) for n, event in enumerate(events) if event.event_type == "t3"
    )


async def test_conditions_see_the_past(database: Database) -> None:
    for number in range(3):
        await happened(database, payload={"n": number})
    ask = "(e.payload ->> 'n')::int >= (s.params ->> 'least')::int"
    await from_the_past(database, condition=ask, params={"least": 1})
    async with database.transaction() as session:
        await make_subscription(session, "h", condition=ask, params={"least": 0})
    await catch_up(database)

    assert await matched_by(database, "g") == [("a", 2), ("a", 3)]


@pytest.mark.slow
async def test_an_event_that_a_condition_fails_on_waits_for_that_subscription(database: Database) -> None:
    for number in (1, "x", 3):
        await happened(database, payload={"n": number})
    await match(database)
    ask = "(e.payload ->> 'n')::int > 0"
    number = await from_the_past(database, condition=ask, topics=["t"])
    await subscribe(database, ask, group="h", topics=["t"])
    await catch_up(database)
    before = await matched_by(database, "h")
    assert await matched_by(database, "g") == [("a", 1), ("a", 3)]
    waiting = "SELECT subscription_id FROM projections.unanswered WHERE NOT due"
    assert await fetchval(database, f"{waiting} ORDER BY subscription_id LIMIT 1") == number

    await execute(database, "UPDATE projections.events SET payload = '{\"n\": 2}' WHERE seq_nr = 2")
    retry = "SELECT projections._retry_unanswered_v1(unanswered_id) FROM projections.unanswered"
    await execute(database, f"{retry} WHERE subscription_id = $1", number)
    await turn(database)
    assert await matched_by(database, "g") == [("a", 1), ("a", 3), ("a", 2)]
    assert await matched_by(database, "h") == before


@pytest.mark.slow
async def test_what_was_published_for_others_is_no_history(database: Database) -> None:
    alone = await subscribe(database, group="alone", topics=["t"])
    await publish(database, "t")
    await publish(database, "t", subscription_ids=[alone])
    await publish(database, "t", not_before=[datetime.now(UTC) - timedelta(hours=1)])
    await match(database)
    await turn(database)
    await from_the_past(database)
    await catch_up(database)

    assert await matched_by(database, "g") == [("publisher/p", 1)]


async def test_what_is_due_or_directed_does_not_wait_for_the_end(database: Database) -> None:
    await happened(database)
    await match(database)
    number = await from_the_past(database)
    await publish(database, "t", not_before=[await fetchval(database, "SELECT clock_timestamp()")])
    await publish(database, "t", subscription_ids=[number])
    await fetchval(database, "SELECT projections._match_due_v1()")
    assert await matched_by(database, "g") == [("publisher/p", 1)]

    await catch_up(database)
    found = await matched_by(database, "g")
    assert sorted(found) == [("a", 1), ("publisher/p", 1), ("publisher/p", 2)]


@pytest.mark.slow
async def test_a_late_commit_comes_once_and_in_order(database: Database) -> None:
    await happened(database, source="first")
    async with matching(database):
        async with database.transaction() as late:
            await append(late, [Event("late", {}, "plane", event_type="t")])
            for _ in range(3):
                await happened(database, source="quick")
            await from_the_past(database)
            await until(database, ALL_CAUGHT_UP)
            await happened(database, source="quick")
            await until(database, "SELECT count(*) = 5 FROM projections.matches")
        await happened(database, source="late")
        await until(database, "SELECT count(*) = 7 FROM projections.matches")

    in_order(await matched(database))


@pytest.mark.slow
async def test_a_batch_that_is_being_matched_is_waited_for(database: Database) -> None:
    await happened(database)
    await match(database)
    await from_the_past(database)
    await happened(database)
    async with database.transaction() as live:
        # As the matching of the log, in the middle of a batch.
        await live.fetchval("SELECT pg_advisory_xact_lock_shared(hashtext('slice-projections history'), 0)")
        await turn(database)
        assert not await fetchval(database, ALL_CAUGHT_UP)
    await catch_up(database)

    assert await matched_by(database, "g") == [("a", 1), ("a", 2)]


@pytest.mark.slow
async def test_two_workers_and_many_events(database: Database) -> None:
    await append_many(database, 6000)
    async with matching(database, 4), matching(database, 4):
        await from_the_past(database)
        await from_the_past(database, group="h", topics=["t"])
        for number in range(100):
            await happened(database, source=f"s{number % 7}")
        await until(database, ALL_CAUGHT_UP)
        await until(database, "SELECT count(*) >= 12200 FROM projections.matches")

    for group in "gh":
        found = await matched_by(database, group)
        assert len(found) == 6100
        in_order(found)


@pytest.mark.slow
async def test_it_ends_though_something_is_new_at_each_visit(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = CatchingUp.go_on

    async def nothing(history: CatchingUp, session: OwnedSession) -> None:
        pass

    monkeypatch.setattr(CatchingUp, "go_on", nothing)  # of the workers that match
    visits = CatchingUp(timedelta(milliseconds=1))  # one page each, as where many catch up
    await append_many(database, 10)
    await from_the_past(database, topics=["t"])
    for _ in range(4):
        await happened(database, source="steady")
        await match(database)
        await until_settled(database)
        async with database.session() as session:
            await go_on(visits, session)
    await match(database)

    assert await fetchval(database, ALL_CAUGHT_UP)
    found = await matched_by(database, "g")
    assert len(found) == 14
    in_order(found)


@pytest.mark.slow
async def test_a_page_is_matched_once_and_nothing_after_the_subscription_is_gone(database: Database) -> None:
    await append_many(database, 3000)
    await match(database)
    number = await from_the_past(database)
    await until_settled(database)
    async with database.session() as session:
        await session.fetch("SELECT * FROM projections._begin_history_v1()")
        first = (await session.fetch("SELECT * FROM projections._next_history_v1($1, 10)", number))[0]
        again = "SELECT projections._match_history_v1($1, $2, $3, 10)"
        page = number, first["source_id"], first["seq_nr"]
        assert await session.fetchval(again, *page) == 10
        assert await session.fetchval(again, *page) == 0
        await unsubscribe(session, number)
        assert await session.fetchval(again, *page) == 0
        assert not await session.fetchval("SELECT projections._finish_history_v1($1, 10)", number)
    await turn(database)

    assert len(await matched(database)) == 10
    assert await fetchval(database, "SELECT count(*) FROM projections.subscription_history") == 0


@pytest.mark.slow
async def test_a_worker_that_is_killed_in_a_page_matches_once(
    dsn: str, database: Database, tmp_path: Path
) -> None:
    await append_many(database, 3000)
    await match(database)
    await execute(database, HELD)
    await from_the_past(database)
    async with database.session() as holder:
        await holder.execute("SELECT pg_advisory_lock(7)")
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "worker", "--subscriptions", "--lease", "1s", "--dsn", dsn,
            cwd=tmp_path, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, env=environment(),
        )  # fmt: skip
        try:
            await until(database, WAITS)
        finally:
            process.kill()
            await process.wait()
        await holder.execute("SELECT pg_advisory_unlock(7)")
    await catch_up(database)

    found = await matched(database)
    assert len(found) == 3000
    in_order(found)


@pytest.mark.slow
async def test_a_page_of_history_reads_no_more_than_a_page(database: Database) -> None:
    await append_many(database, 5000)
    await match(database)
    number = await from_the_past(database)
    await until_settled(database)
    async with database.session() as session:
        await session.fetch("SELECT * FROM projections._begin_history_v1()")
        await session.execute("SELECT pg_stat_reset()")
        await session.begin()
        rows = await session.fetch("SELECT * FROM projections._next_history_v1($1, 100)", number)
        read = await session.fetchval(READ)
        await session.rollback()
    assert len(rows) == 100
    assert read <= 2 * 100


async def test_partitions_that_a_subscription_still_looks_at_are_kept(database: Database) -> None:
    await happened(database)
    await from_the_past(database)
    kept = (
        "SELECT count(*) FROM projections._retention_holders_v1() WHERE reason LIKE '%catch up with the past'"
    )
    assert await fetchval(database, kept) == 1
    await catch_up(database)
    assert await fetchval(database, kept) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_each_event_comes_once_in_the_order_of_its_source(
    database: Database, seed: int
) -> None:
    choose = Random(seed)
    appended: Counter[str] = Counter()
    groups = 0
    await happened(database, source="quick")
    appended["quick"] += 1
    async with matching(database, 4):
        for _ in range(40):
            source = f"s{choose.randrange(4)}"
            async with database.transaction() as slow:
                await append(slow, [Event(source, {}, "plane", event_type="t")])
                appended[source] += 1
                if choose.random() < 0.2:
                    await happened(database, source="quick", kind="plane")
                    appended["quick"] += 1
                    await asyncio.sleep(choose.random() / 5)
            if choose.random() < 0.15:
                groups += 1
                await from_the_past(database, group=f"g{groups}")
        await until(database, ALL_CAUGHT_UP)
        total = groups * appended.total()
        await until(database, f"SELECT count(*) >= {total} FROM projections.matches")

    for number in range(1, groups + 1):
        found = await matched_by(database, f"g{number}")
        in_order(found)
        assert Counter(source for source, _ in found) == appended


@pytest.mark.slow
async def test_the_end_waits_for_imports_that_the_log_has_not_passed(database: Database) -> None:
    await happened(database)
    await match(database)
    await from_the_past(database)
    imported = "INSERT INTO projections.imports (entity_type, from_timestamp, events) VALUES ('plane', '2000-01-01', 1)"
    await execute(database, imported)
    await turn(database)
    assert not await fetchval(database, ALL_CAUGHT_UP)
    await catch_up(database)

    assert await matched(database) == [("a", 1)]


@pytest.mark.slow
async def test_a_group_reads_again(database: Database) -> None:
    for place in range(6):
        await happened(database, source=f"s{place % 2}")
    await from_the_past(database)
    await catch_up(database)
    third = await fetchval(
        database, "SELECT db_timestamp FROM projections.events ORDER BY 1 OFFSET 2 LIMIT 1"
    )
    async with database.transaction() as session:
        assert await rewind_group(session, "g", third) == 1
    await happened(database, source="s0")
    await catch_up(database)

    found = await matched_by(database, "g")
    in_order(found[:6])
    in_order(found[6:])
    assert sorted(found[6:]) == [("s0", 2), ("s0", 3), ("s0", 4), ("s1", 2), ("s1", 3)]


class TestRewindingBeforeAllWasHad:
    """What a subscription has not had yet, it gets, however late the time is that its group is rewound to."""

    async def rewind(self, database: Database) -> None:
        async with database.transaction() as session:
            await rewind_group(session, "g", await session.fetchval("SELECT clock_timestamp()"))

    @pytest.mark.slow
    async def test_events_that_the_log_has_not_been_matched_to(self, database: Database) -> None:
        await subscribe(database)
        await happened(database, source="early")
        await match(database)
        await happened(database, source="unmatched")
        await self.rewind(database)
        await happened(database, source="late")
        await catch_up(database)

        assert sorted(set(await matched_by(database, "g"))) == [("early", 1), ("late", 1), ("unmatched", 1)]

    @pytest.mark.slow
    async def test_history_that_it_is_just_catching_up_with(self, database: Database) -> None:
        await append_many(database, 14)
        await match(database)
        await from_the_past(database)
        await self.rewind(database)
        await turn(database)
        await self.rewind(database)
        await catch_up(database)

        assert len(set(await matched_by(database, "g"))) == 14

    @pytest.mark.slow
    async def test_history_that_is_imported(self, database: Database) -> None:
        await subscribe(database)
        await execute(database, "UPDATE projections.subscriptions SET since = '1970-01-01'")
        await happened(database, source="early")
        await match(database)
        await import_events(
            database, [HistoricEvent("old", {}, "plane", event_type="t", seq_nr=1, db_timestamp=PAST)]
        )
        await self.rewind(database)
        await catch_up(database)

        assert ("old", 1) in await matched_by(database, "g")

    async def test_events_that_wait_for_its_condition(self, database: Database) -> None:
        await subscribe(database, "(e.payload ->> 'n')::int > 0", topics=["t"])
        await happened(database, payload={"n": "x"})
        await match(database)

        with pytest.raises(InvalidSubscription, match="wait for a condition of group 'g'"):
            await self.rewind(database)
        async with database.transaction() as session:
            await rewind_group(session, "g", "beginning")


async def test_what_cannot_be_is_refused(database: Database) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    for start in (later, "yesterday", later.replace(tzinfo=None), 7):
        with pytest.raises(InvalidSubscription, match="start"):
            await from_the_past(database, start)  # type: ignore[arg-type]
    await subscribe(database, group="listens", reliable=False)
    await subscribe(database)
    async with database.session() as session:
        with pytest.raises(InvalidSubscription, match="only listens"):
            await rewind_group(session, "listens", "beginning")
        with pytest.raises(InvalidSubscription, match="in the past"):
            await rewind_group(session, "g", later)
