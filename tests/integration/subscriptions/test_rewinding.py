"""Groups that read again: consumers that run, what comes meanwhile, and several who rewind at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from journal import Database, Event, append
from projections.subscriptions import Consumer, create_group, rewind_group
from tests.fixtures.commands import called
from tests.fixtures.matching import fetchval, happened, match, matching, publish, subscribe
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
from tests.fixtures.projections import execute, settings, until
from tests.fixtures.subscriptions import Seen, consuming, quick, until_handled


def reading(database: Database, seen: Seen, **options: object) -> Consumer:
    made = Consumer(database, "g", settings=quick(page_size=20))
    made.handle(seen, name="h", topics=["t"], **options)  # type: ignore[arg-type]
    return made


@asynccontextmanager
async def reading_and_matching(database: Database, *consumers: Consumer) -> AsyncIterator[None]:
    await happened(database, "other", kind="plane")
    often = settings(save_horizon_every=timedelta(milliseconds=20))
    async with matching(database, 2, settings=often), consuming(database, *consumers):
        yield


async def rewind(database: Database, to: datetime | str = "beginning", group: str = "g") -> int:
    async with database.transaction() as session:
        return await rewind_group(session, group, to)


async def until_once_more(database: Database) -> None:
    """Until all have caught up, and what they got is handled."""
    await until(database, ALL_CAUGHT_UP)
    await until_handled(database)


def passes(found: Iterable[tuple[str, int]]) -> dict[str, list[list[int]]]:
    """Of each source, the numbers that came, cut where they begin again."""
    by_source: dict[str, list[list[int]]] = {}
    for source, number in found:
        runs = by_source.setdefault(source, [[]])
        if runs[-1] and number <= runs[-1][-1]:
            runs.append([])
        runs[-1].append(number)
    return by_source


class TestConsumersThatRun:
    """A consumer stays through a rewind: nothing is lost, what was read comes once more, each time in order."""

    @pytest.mark.slow
    async def test_what_was_read_comes_once_more_and_what_comes_after_it(self, database: Database) -> None:
        seen = Seen()
        async with reading_and_matching(database, reading(database, seen)):
            await append_many(database, 70)
            await seen.until_events(70)
            await rewind(database)
            for _ in range(10):
                await append_many(database, 7)
            await seen.until_events(210)
            await until_once_more(database)

        assert len(seen.events) == 210
        for runs in passes(seen.events).values():
            assert runs == [[*range(1, 11)], [*range(1, 21)]]

    @pytest.mark.slow
    async def test_what_was_not_read_yet_comes_before(self, database: Database) -> None:
        seen, release = Seen(lambda _: release.wait()), asyncio.Event()
        async with reading_and_matching(database, reading(database, seen)):
            await append_many(database, 70)
            await until(database, "SELECT count(*) = 70 FROM projections.matches")
            await rewind(database)
            await until(database, ALL_CAUGHT_UP)
            release.set()
            await seen.until_events(140)
            await until_once_more(database)

        assert seen.events[:70] == seen.events[70:]
        in_order(seen.events[:70])

    @pytest.mark.slow
    async def test_each_handler_gets_its_own_once_more(self, database: Database) -> None:
        odd, all_ = Seen(), Seen()
        made = reading(database, all_)
        made.handle(odd, name="odd", topics=["t"], condition="e.seq_nr % 2 = 1")
        async with reading_and_matching(database, made):
            await append_many(database, 70)
            await until(database, "SELECT count(*) = 70 FROM projections.matches")
            await until_handled(database)
            assert await rewind(database) == 2
            await until_once_more(database)

        assert Counter(all_.events) == dict.fromkeys(all_.events, 2)
        assert Counter(odd.events) == dict.fromkeys((event for event in all_.events if event[1] % 2), 2)

    @pytest.mark.slow
    async def test_from_a_time_on_only_what_was_later_comes_once_more(self, database: Database) -> None:
        seen = Seen()
        async with reading_and_matching(database, reading(database, seen)):
            await append_many(database, 7)
            await seen.until_events(7)
            await until(
                database,
                "SELECT min(horizon) > max(db_timestamp) FROM projections.projection_ranges, projections.events",
            )
            to = await fetchval(database, "SELECT clock_timestamp()")
            await append_many(database, 7)
            await seen.until_events(14)
            await rewind(database, to)
            await seen.until_events(21)
            await until_once_more(database)

        assert Counter(seen.events) == {(f"s{n}", number): number for n in range(7) for number in (1, 2)}

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(3))
    async def test_again_and_again_beside_appenders_and_late_commits(
        self, database: Database, seed: int
    ) -> None:
        choose, seen, appended = Random(seed), Seen(), Counter[str]()
        rewound = 0
        async with reading_and_matching(database, *(reading(database, seen) for _ in range(2))):
            for _ in range(30):
                source = f"s{choose.randrange(4)}"
                async with database.transaction() as slow:
                    await append(slow, [Event(source, {}, "plane", event_type="t")])
                    appended[source] += 1
                    if choose.random() < 0.2:
                        await happened(database, source="quick")
                        appended["quick"] += 1
                        await asyncio.sleep(choose.random() / 5)
                if choose.random() < 0.2:
                    rewound += 1
                    await rewind(database)
            await until_once_more(database)
            await until(
                database,
                f"SELECT count(DISTINCT (source_id, seq_nr)) = {appended.total()} FROM projections.matches",
            )
            await until_handled(database)

        for source, runs in passes(seen.events).items():
            assert all(run == [*range(1, len(run) + 1)] for run in runs)
            assert len(runs[-1]) == appended[source]
            assert len(runs) <= rewound + 1
        assert set(passes(seen.events)) == set(appended)

    @pytest.mark.slow
    async def test_a_person_sees_how_far_it_is(self, dsn: str, database: Database) -> None:
        await append_many(database, 70)
        await match(database)
        await from_the_past(database, topics=["t"])
        await catch_up(database)
        await until_settled(database)
        await rewind(database)
        before = called("groups", "show", "g", "--dsn", dsn).stdout
        async with database.session() as session:
            await session.fetch("SELECT * FROM projections._begin_history_v1()")
            (number,) = [
                row["subscription_id"]
                for row in await session.fetch("SELECT * FROM projections._begin_history_v1()")
            ]
            first = await session.fetchrow("SELECT * FROM projections._next_history_v1($1, 30)", number)
            page = "SELECT projections._match_history_v1($1, $2, $3, 30)"
            assert await session.fetchval(page, number, first["source_id"], first["seq_nr"]) == 30
        within = called("groups", "show", "g", "--dsn", dsn).stdout
        await catch_up(database)
        after = called("groups", "show", "g", "--dsn", dsn).stdout

        assert "catches up with the past: 0 events, up to the beginning" in before
        assert "catches up with the past: 30 events, up to 20" in within
        assert "left" in within
        assert "catches up" not in after


class TestSeveralWhoRewind:
    async def test_at_once_is_as_one_after_the_other(self, database: Database) -> None:
        await append_many(database, 14)
        await match(database)
        await from_the_past(database)
        await catch_up(database)
        middle = await fetchval(
            database, "SELECT db_timestamp FROM projections.events ORDER BY 1 OFFSET 7 LIMIT 1"
        )
        async with asyncio.TaskGroup() as group:
            for to in ["beginning", middle] * 5:
                group.create_task(rewind(database, to))
        await catch_up(database)

        found = await matched_by(database, "g")
        assert len(found) == 28
        in_order(found[14:])

    @pytest.mark.slow
    async def test_several_groups_at_once(self, database: Database) -> None:
        await append_many(database, 14)
        for name in "abc":
            await from_the_past(database, group=name)
        await catch_up(database)
        async with asyncio.TaskGroup() as group:
            for name in "abc" * 3:
                group.create_task(rewind(database, group=name))
        await catch_up(database)

        for name in "abc":
            found = await matched_by(database, name)
            assert Counter(found) == dict.fromkeys(found, 2)
            in_order(found[14:])

    async def test_a_group_that_nobody_reads(self, database: Database) -> None:
        async with database.transaction() as session:
            await create_group(session, "g")
            assert await rewind_group(session, "g", "beginning") == 0
        await append_many(database, 7)
        await from_the_past(database, topics=["t"])
        await catch_up(database)
        assert await rewind(database) == 1
        await catch_up(database)
        seen = Seen()
        async with consuming(database, reading(database, seen)):
            await seen.until_events(14)
            await until_handled(database)

        assert Counter(seen.events) == {(f"s{n}", 1): 2 for n in range(7)}


class TestWhatIsDue:
    """What was published for later, and is due, comes once: however late it is looked at."""

    @asynccontextmanager
    async def held(self, database: Database) -> AsyncIterator[None]:
        """An event that is due, which nobody can match before the block ends, and the log has passed."""
        await publish(database, "t", not_before=[datetime.now(UTC) + timedelta(hours=1)])
        await match(database)
        await execute(database, "UPDATE projections.directed_events SET not_before = clock_timestamp()")
        async with database.transaction() as other:
            await other.execute("SELECT FROM projections.directed_events FOR UPDATE")
            await happened(database)
            await match(database)
            yield

    @pytest.mark.slow
    async def test_comes_where_a_subscription_has_caught_up_meanwhile(self, database: Database) -> None:
        await happened(database)
        await match(database)
        number = await from_the_past(database)
        async with database.session() as busy:
            await busy.execute(f"SELECT pg_advisory_lock(hashtext('slice-projections past'), {number})")
            async with self.held(database):
                await busy.execute("SELECT pg_advisory_unlock_all()")
                for _ in range(3):
                    await turn(database)
        await catch_up(database)
        await turn(database)

        assert sorted(await matched_by(database, "g")) == [("a", 1), ("a", 2), ("publisher/p", 1)]

    @pytest.mark.slow
    @pytest.mark.parametrize("to", ["beginning", "now"])
    async def test_comes_where_a_group_is_rewound_meanwhile(self, database: Database, to: str) -> None:
        await subscribe(database)
        await happened(database)
        async with self.held(database):
            await rewind(
                database, await fetchval(database, "SELECT clock_timestamp()") if to == "now" else to
            )
        await catch_up(database)
        await turn(database)

        assert Counter(await matched_by(database, "g"))["publisher/p", 1] == 1
