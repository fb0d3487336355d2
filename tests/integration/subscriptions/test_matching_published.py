"""Published events: in the order of their publisher, to one subscription, or for later; each is matched once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from journal import Database, DatabaseError
from tests.fixtures.matching import (
    execute,
    fetchval,
    match,
    matched,
    matches,
    publish,
    subscribe,
    tend,
)

SOON = datetime(2100, 1, 1, tzinfo=UTC)
DUE = datetime(2020, 1, 1, tzinfo=UTC)
GONE = "SELECT count(*) FROM projections.directed_events"


class TestPublished:
    @pytest.mark.slow
    async def test_order_of_a_publisher_is_kept(self, database: Database) -> None:
        await subscribe(database)
        for _ in range(5):
            await publish(database, *["t"] * 20, publisher="one")
            await publish(database, *["t"] * 20, publisher="two")

        await match(database)

        found = await matched(database)
        for publisher in ("one", "two"):
            assert [n for source, n in found if source == f"publisher/{publisher}"] == list(range(1, 101))

    @pytest.mark.slow
    async def test_the_same_id_again_is_the_same_event(self, database: Database) -> None:
        await subscribe(database)
        ids = [uuid4(), uuid4()]

        assert await publish(database, "t", "t", event_ids=ids) == [1, 2]
        await match(database)
        assert await publish(database, "t", "t", event_ids=ids) == [1, 2]
        await match(database)

        assert await matched(database) == [("publisher/p", 1), ("publisher/p", 2)]

    @pytest.mark.slow
    @pytest.mark.parametrize("condition", [None, "e.seq_nr > 0"])
    async def test_one_for_later_is_for_the_subscriptions_of_that_time(
        self, database: Database, condition: str | None
    ) -> None:
        """Published two hours ago and due one hour ago: for who has subscribed between, not for who came after."""
        between, _after = [await subscribe(database, condition, topics=[topic, "t"]) for topic in ("a", "b")]
        await publish(database, "t", not_before=[SOON])
        published = datetime.now(UTC) - timedelta(hours=2)
        for table in ("events", "directed_events"):
            await execute(database, f"UPDATE projections.{table} SET db_timestamp = $1", published)
        await execute(
            database, "UPDATE projections.directed_events SET not_before = now() - interval '1 hour'"
        )
        await execute(
            database,
            "UPDATE projections.subscriptions SET since = "
            "now() - CASE subscription_id WHEN $1 THEN 90 ELSE 30 END * interval '1 minute'",
            between,
        )

        await tend(database)

        assert [ids for *_, ids in await matches(database)] == [[between]]

    @pytest.mark.slow
    async def test_the_same_directed_one_again_goes_to_nobody_again(self, database: Database) -> None:
        number, ids = await subscribe(database, "FALSE"), [uuid4()]
        for _ in range(2):
            await publish(database, "t", event_ids=ids, subscription_ids=[number])
            await match(database)

        assert [found for *_, found in await matches(database)] == [[number]]
        assert await fetchval(database, GONE) == 0

    @pytest.mark.slow
    async def test_a_directed_one_goes_to_its_subscription_alone(self, database: Database) -> None:
        one = await subscribe(database, "FALSE", topics=["other"])
        every = await subscribe(database)

        await publish(database, "t", "t", "t", subscription_ids=[one, None, every])
        await match(database)

        assert [(n, ids) for *_, n, ids in await matches(database)] == [
            (1, [one]),
            (2, [every]),
            (3, [every]),
        ]
        assert await fetchval(database, GONE) == 0

    async def test_directed_ones_that_are_due_keep_their_place(self, database: Database) -> None:
        number = await subscribe(database)
        days = [DUE + timedelta(days=n) for n in range(4)]
        await publish(database, *["t"] * 4, not_before=days, subscription_ids=[None, number, None, number])

        await tend(database)

        assert [n for _, n in await matched(database)] == [1, 2, 3, 4]

    @pytest.mark.slow
    async def test_no_condition_is_asked_about_a_directed_one(self, database: Database) -> None:
        await subscribe(database, "1 / (e.seq_nr - 1) > 0")
        number = await subscribe(database, "e.topic = 't'")
        await publish(database, "t", "t", subscription_ids=[number, None], not_before=[None, None])

        await match(database)

        assert (
            await fetchval(database, "SELECT count(*) FROM projections.conditions WHERE error IS NOT NULL")
            == 0
        )

    @pytest.mark.parametrize("values", [{"subscription_ids": [1]}, {"not_before": [DUE, DUE, DUE]}])
    async def test_arrays_of_other_lengths_are_refused(
        self, database: Database, values: dict[str, object]
    ) -> None:
        await subscribe(database)

        with pytest.raises(DatabaseError, match="there are 2 topics") as caught:
            await publish(database, "t", "t", **values)

        assert caught.value.sqlstate == "PJ081"

    async def test_one_for_a_subscription_that_is_unknown_is_refused(self, database: Database) -> None:
        with pytest.raises(DatabaseError, match="no subscription 77") as caught:
            await publish(database, "t", subscription_ids=[77])

        assert caught.value.sqlstate == "PJ081"

    async def test_one_for_a_subscription_that_is_gone_by_then_goes_to_nobody(
        self, database: Database
    ) -> None:
        number = await subscribe(database)
        await publish(database, "t", subscription_ids=[number])
        await execute(database, "SELECT projections.unsubscribe_v1($1)", number)

        await match(database)

        assert await matched(database) == []
        assert await fetchval(database, GONE) == 0

    @pytest.mark.slow
    @pytest.mark.parametrize("directed", [True, False])
    async def test_one_for_later_waits_though_the_log_is_read(
        self, database: Database, directed: bool
    ) -> None:
        number = await subscribe(database)
        await publish(database, "t", not_before=[SOON], subscription_ids=[number if directed else None])
        await publish(database, "t")

        await match(database)
        await tend(database)

        assert await matched(database) == [("publisher/p", 2)]
        await execute(database, "UPDATE projections.directed_events SET not_before = $1", DUE)
        await tend(database)
        assert await matched(database) == [("publisher/p", 2), ("publisher/p", 1)]
        assert await fetchval(database, GONE) == 0

    @pytest.mark.slow
    @pytest.mark.parametrize("directed", [True, False])
    async def test_one_that_was_due_before_the_log_is_read_is_matched_once(
        self, database: Database, directed: bool
    ) -> None:
        number = await subscribe(database)
        await publish(
            database, "t", "t", not_before=[DUE, None], subscription_ids=[number if directed else None, None]
        )

        await tend(database)
        await tend(database)
        await match(database)
        await tend(database)

        assert sorted(await matched(database)) == [("publisher/p", 1), ("publisher/p", 2)]
        assert await fetchval(database, GONE) == 0

    async def test_the_earliest_due_come_first(self, database: Database) -> None:
        await subscribe(database)
        await publish(database, "t", "t", "t", not_before=[DUE + timedelta(days=n) for n in (2, 0, 1)])

        await tend(database)

        assert [n for _, n in await matched(database)] == [2, 3, 1]

    @pytest.mark.slow
    async def test_more_due_than_one_call_takes_are_all_matched(self, database: Database) -> None:
        await subscribe(database)
        await publish(database, *["t"] * 2_500, not_before=[DUE] * 2_500)

        await tend(database)

        assert sorted(n for _, n in await matched(database)) == list(range(1, 2_501))

    @pytest.mark.slow
    async def test_the_reader_of_the_log_and_who_looks_for_what_is_due_meet(self, database: Database) -> None:
        """Each waits for, or passes over, what the other has: in both orders, with a crash of the first between."""
        await subscribe(database)
        for first_commits in (True, False):
            for log_first in (True, False):
                await publish(database, "t", not_before=[DUE])
                async with database.session() as one, database.session() as other:
                    steps = [(one, "log"), (other, "due")] if log_first else [(one, "due"), (other, "log")]
                    await one.begin()
                    await self._step(*steps[0])
                    second = asyncio.create_task(self._step(*steps[1]))
                    if log_first:
                        await second  # it passes over what is locked
                    await (one.commit() if first_commits else one.rollback())
                    await second
                    if not first_commits:
                        await self._step(*steps[0])
                await tend(database)

        assert sorted(n for _, n in await matched(database)) == [1, 2, 3, 4]
        assert await fetchval(database, GONE) == 0

    async def _step(self, session: object, what: str) -> None:
        if what == "due":
            await session.fetchval("SELECT projections._match_due_v1()")  # type: ignore[attr-defined]
        else:
            await session.fetchval(  # type: ignore[attr-defined]
                "SELECT projections._match_log_v1(array_agg('published'::text), array_agg(source_id), "
                "array_agg(seq_nr), array_agg(db_timestamp), array_agg(slice), array_agg(topic)) "
                "FROM projections.directed_events WHERE NOT passed"
            )
