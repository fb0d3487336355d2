"""A group whose consumers have different handlers, as while an application is replaced: nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest

from journal import Database, DatabaseUnavailable, Session
from projections.subscriptions import (
    Consumer,
    MatchedEvent,
    cursors,
    give_up_handler,
    group_lag,
    groups,
    rescale_group,
    subscribe,
)
from tests.fixtures.commands import called
from tests.fixtures.http import series
from tests.fixtures.monitor import told_by_the_database
from tests.fixtures.projections import execute, fetchval, until
from tests.fixtures.subscriptions import (
    Seen,
    consuming,
    consuming_process,
    end_leases,
    landed_and_matched,
    quick,
    until_handled,
)

SOURCES = [f"source-{number}" for number in range(6)]
JOINED = "SELECT NOT EXISTS (SELECT FROM projections.group_ranges WHERE handler_id IS NOT NULL)"
APART = "SELECT EXISTS (SELECT FROM projections.group_ranges WHERE handler_id IS NOT NULL)"
REGISTERED = "SELECT EXISTS (SELECT FROM projections.group_handlers WHERE name = $1)"


def version(database: Database, **handlers: Seen) -> Consumer:
    """A process of a version that has these handlers."""
    made = Consumer(database, "g", settings=quick())
    for name, handler in handlers.items():
        made.handle(handler, name=name, params={"of": name}, topics=["Landed"])
    return made


def in_order(seen: Seen, rounds: int) -> bool:
    """Whether each source's events were seen, in order, and none twice."""
    return all(
        [number for found, number in seen.events if found == source] == list(range(1, rounds + 1))
        for source in SOURCES
    )


async def test_the_new_version_comes_first_and_the_old_one_passes_nothing_over(database: Database) -> None:
    both, only, new = Seen(), Seen(), Seen()
    async with consuming(database, version(database, h=only)):
        await landed_and_matched(database, *SOURCES)
        await until_handled(database)
        # It joins, and the only range stays with the old process.
        async with consuming(database, version(database, h=both, new=new)):
            await until(database, REGISTERED, "new")
            for _ in range(3):
                await landed_and_matched(database, *SOURCES)
            await new.until_events(3 * len(SOURCES))
            await until_handled(database)
    assert all([n for s, n in new.events if s == source] == [2, 3, 4] for source in SOURCES)
    assert (in_order(only, 4), both.events) == (True, [])


@pytest.mark.slow
async def test_what_nobody_has_a_handler_for_is_kept_and_handled_in_order(
    database: Database,
) -> None:
    both, only, new = Seen(), Seen(), Seen()
    async with consuming(database, version(database, h=both, new=new)):
        await landed_and_matched(database, *SOURCES)
        await until_handled(database)
    async with consuming(database, version(database, h=only)):  # rolled back
        for _ in range(3):
            await landed_and_matched(database, *SOURCES)
        await only.until_events(3 * len(SOURCES))
        await until(database, APART)
    async with consuming(database, version(database, h=both, new=new)):  # and again
        await landed_and_matched(database, *SOURCES)
        await new.until_events(5 * len(SOURCES))
        await until(database, JOINED)
        await landed_and_matched(database, *SOURCES)
        await until_handled(database)
    assert in_order(new, 6)
    assert len(both.events) + len(only.events) == 6 * len(SOURCES)


@pytest.mark.slow
async def test_versions_without_a_handler_of_the_other_lose_none_of_either(database: Database) -> None:
    async with database.session() as session:
        await subscribe(session, "g", topics=["Landed"], params={"of": "h"})
        await rescale_group(session, "g", 2)
    h, old, new = Seen(), Seen(), Seen()
    shared = "SELECT count(DISTINCT owner) = 2 FROM projections.group_ranges"
    async with consuming(database, version(database, h=h, old=old), version(database, h=h, new=new)):
        await until(database, shared)
        for _ in range(3):
            await landed_and_matched(database, *SOURCES)
        await old.until_events(3 * len(SOURCES))
        await new.until_events(3 * len(SOURCES))
        await until_handled(database)
    assert (in_order(old, 3), in_order(new, 3), in_order(h, 3)) == (True, True, True)


@pytest.mark.slow
async def test_a_range_of_its_own_goes_to_who_reads_its_slices_and_has_the_handler(
    database: Database,
) -> None:
    both, only, new = Seen(), Seen(), Seen()
    async with consuming(database, version(database, h=both, new=new)):
        pass
    async with consuming(database, version(database, h=only)):
        await landed_and_matched(database, *SOURCES)
        await until(database, APART)
    handlers = "SELECT array_agg(handler_id ORDER BY name) FROM projections.group_handlers"
    of_both = await fetchval(database, handlers)

    async def poll(owner: str, having: list[int]) -> list[tuple[int | None, bool]]:
        async with database.session() as session:
            rows = await session.fetch(
                "SELECT * FROM projections.poll_group_v1('g', $1, '1 hour', p_handlers => $2)", owner, having
            )
        return [(row["handler_id"], row["kept"]) for row in rows]

    assert await poll("old", of_both[:1]) == [(None, True)]
    assert await poll("new", of_both) == [(of_both[1], True)]
    assert await poll("old", of_both) == [(None, True)]  # replaced
    assert await poll("new", of_both) == [(of_both[1], False)]
    await execute(database, "UPDATE projections.group_ranges SET owner = NULL WHERE handler_id IS NOT NULL")
    assert await poll("new", of_both) == []
    assert await poll("old", of_both) == [(of_both[1], True), (None, True)]


@pytest.mark.slow
async def test_when_all_processes_are_of_the_new_version_nothing_is_read_apart(database: Database) -> None:
    both, only, new = Seen(), Seen(), Seen()
    async with consuming(database, version(database, h=both, new=new)):
        pass
    async with AsyncExitStack() as all_of_them:
        async with consuming(database, version(database, h=only)):
            await landed_and_matched(database, *SOURCES)
            await until(database, APART)
            versions = [version(database, h=both, new=new) for _ in range(3)]
            await all_of_them.enter_async_context(consuming(database, *versions))
            await new.until_events(len(SOURCES))
        await until(database, JOINED)
    assert in_order(new, 1)


@pytest.mark.slow
async def test_a_process_that_is_killed_in_what_was_kept_loses_nothing(database: Database, dsn: str) -> None:
    only, both, new = Seen(), Seen(), Seen()
    async with consuming(database, version(database, h=both, new=new)):
        await landed_and_matched(database, *SOURCES)
        await until_handled(database)
    async with consuming(database, version(database, h=only)):
        await landed_and_matched(database, *SOURCES)
        await until(database, APART)
        async with consuming_process(dsn, "new", topics=["Landed"], params={"of": "new"}) as killed:
            assert killed.stdout is not None
            await killed.stdout.readline()
        await end_leases(database)
        async with consuming(database, version(database, h=both, new=new)):
            await new.until_events(2 * len(SOURCES))
            await until_handled(database)
    assert in_order(new, 2)


@pytest.mark.slow
async def test_a_handler_of_its_own_range_that_fails_is_tried_again_there_and_its_retries_are_kept(
    database: Database,
) -> None:
    failures = [RuntimeError("no such mail"), RuntimeError("no such mail")]

    async def fail_twice(_: Sequence[MatchedEvent]) -> None:
        if failures:
            raise failures.pop()

    strict, only = Seen(fail_twice), Seen()
    async with consuming(database, version(database, h=only, new=strict)):
        failures.clear()
    async with consuming(database, version(database, h=only)):
        await landed_and_matched(database, *SOURCES)
        await until(database, APART)
        failures += [RuntimeError("no such mail")]
        async with consuming(database, version(database, new=strict)):
            await strict.until_events(2 * len(SOURCES))
    assert (in_order(only, 1), strict.events[: len(SOURCES)]) == (True, strict.events[len(SOURCES) :])


@pytest.mark.slow
async def test_a_rescale_keeps_what_is_for_a_handler_that_nobody_has(database: Database) -> None:
    both, only, new = Seen(), Seen(), Seen()
    async with consuming(database, version(database, h=both, new=new)):
        pass
    async with consuming(database, version(database, h=only)):
        await landed_and_matched(database, *SOURCES)
        await until(database, APART)
    async with database.session() as session:
        for ranges in (4, 3, 1):
            await rescale_group(session, "g", ranges)
            assert len(await cursors(session, "g")) == ranges
    async with consuming(database, version(database, h=both, new=new)):
        await new.until_events(len(SOURCES))
        await until(database, JOINED)
    assert (in_order(new, 1), both.events) == (True, [])


@pytest.mark.slow
async def test_a_handler_that_is_given_up_is_kept_nothing_for(database: Database) -> None:
    only, new = Seen(), Seen()
    async with consuming(database, version(database, h=only, new=new)):
        pass
    async with consuming(database, version(database, h=only)):
        await landed_and_matched(database, *SOURCES)
        await until(database, APART)
        async with database.session() as session:
            assert await give_up_handler(session, "g", "h") == 0  # which somebody has
            assert await give_up_handler(session, "g", "new") == 1
            assert await session.fetchval(JOINED)
            assert await session.fetchval("SELECT count(*) FROM projections.subscriptions") == 1
        await landed_and_matched(database, *SOURCES)
        await until_handled(database)
        assert await fetchval(database, JOINED)


@pytest.mark.slow
async def test_an_event_that_a_handler_got_by_another_subscription_is_not_kept_for_it(
    database: Database,
) -> None:
    """A handler asks for more than before: what it asked for before is not there twice."""
    before, after = Seen(), Seen()
    first, second = Consumer(database, "g", settings=quick()), Consumer(database, "g", settings=quick())
    first.handle(before, name="h", topics=["Landed"])
    second.handle(after, name="h", topics=["Landed", "Departed"])
    async with consuming(database, first):
        await landed_and_matched(database, *SOURCES)
        await until_handled(database)
    async with consuming(database, second):
        await landed_and_matched(database, *SOURCES)
        await after.until_events(len(SOURCES))
        await until_handled(database)
        assert await fetchval(database, JOINED)


async def test_the_process_that_passes_over_says_so_once(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    only, new = Seen(), Seen()
    async with consuming(database, version(database, h=only, new=new)):
        pass
    async with consuming(database, version(database, h=only)):
        for rounds in (1, 2, 3):
            await landed_and_matched(database, *SOURCES)
            await only.until_events(rounds * len(SOURCES))
        await until(database, "SELECT min(cursor) < max(cursor) FROM projections.group_ranges")
    told = [one.getMessage() for one in caplog.records if getattr(one, "action", "") == "handler_apart"]
    assert len(told) == 1
    assert "this process has no handler 'new'" in told[0]


@pytest.mark.slow
async def test_what_is_kept_for_a_handler_that_nobody_has_is_shown_and_holds_retention(
    database: Database, dsn: str
) -> None:
    only, new = Seen(), Seen()
    async with consuming(database, version(database, h=only, new=new)):
        pass
    async with consuming(database, version(database, h=only)):
        await landed_and_matched(database, *SOURCES)
        await until(database, APART)
        async with database.session() as session:
            (found,) = await group_lag(session, "g")
            held = await session.fetch("SELECT * FROM projections._group_holders_v1()")
        assert (found.missing, len(found.ranges), found.without_reader) == ({"new": len(SOURCES)}, 1, 1)
        assert found.lag > 0
        assert {row["table_name"] for row in held if "'new'" in row["reason"]} == {"events", "matches"}
        page = await asyncio.to_thread(called, "groups", "--dsn", dsn)
        assert f"no consumer has handler 'new', and {len(SOURCES)} matches are kept for it" in page.stdout
        assert (
            "0-1023 new"
            in (await asyncio.to_thread(called, "groups", "show", "g", "--ranges", "--dsn", dsn)).stdout
        )
        samples = await told_by_the_database(database)
        assert samples[series("projections_group_handlers_missing", group="g")] == 1
        done = await asyncio.to_thread(called, "groups", "give-up", "g", "new", "--yes", "--dsn", dsn)
        assert (done.returncode, done.stdout) == (0, "handler 'new' of group 'g' is given up\n")
        again = await asyncio.to_thread(called, "groups", "give-up", "g", "new", "--yes", "--dsn", dsn)
        assert again.returncode == 1
        assert "keeps nothing for handler 'new'" in again.stderr
        async with database.session() as session:
            (found,) = await group_lag(session, "g")
        assert (found.missing, found.apart) == ({}, [])


def alike(database: Database, **handlers: Seen) -> Consumer:
    """A process whose handlers all ask for the same, so that they share a subscription."""
    made = Consumer(database, "g", settings=quick())
    for name, handler in handlers.items():
        made.handle(handler, name=name, topics=["Landed"])
    return made


@pytest.mark.slow
async def test_a_new_handler_that_asks_for_what_another_asks_for_gets_all_of_it(database: Database) -> None:
    only, both, new = Seen(), Seen(), Seen()
    async with consuming(database, alike(database, h=both, new=new)):
        await landed_and_matched(database, *SOURCES)
        await until_handled(database)
    async with consuming(database, alike(database, h=only)):  # rolled back
        await landed_and_matched(database, *SOURCES)
        await only.until_events(len(SOURCES))
        await until(database, APART)
    async with consuming(database, alike(database, h=both, new=new)):
        await new.until_events(2 * len(SOURCES))
        await until(database, JOINED)
    assert (in_order(new, 2), len(both.events) + len(only.events)) == (True, 2 * len(SOURCES))


async def test_a_handler_whose_range_has_joined_without_an_answer_is_read_for_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks after the commit: what the process remembers is not what the database has."""
    both, only, new = Seen(), Seen(), Seen()
    async with consuming(database, version(database, h=both, new=new)):
        pass
    async with consuming(database, version(database, h=only)):
        await landed_and_matched(database, *SOURCES)
        await until(database, APART)
    unanswered: list[bool] = []

    async def join(session: Session, name: str, held: groups.GroupRange) -> bool:
        joined = await join_handler(session, name, held)
        if joined and not unanswered:
            unanswered.append(joined)
            raise DatabaseUnavailable("the connection broke")
        return joined

    join_handler = groups.join_handler
    monkeypatch.setattr(groups, "join_handler", join)
    async with consuming(database, version(database, h=both, new=new)):
        await new.until_events(len(SOURCES))
        await until(database, JOINED)
        await landed_and_matched(database, *SOURCES)
        await until_handled(database)
        await new.until_events(2 * len(SOURCES))
    assert (unanswered, in_order(new, 2)) == ([True], True)
