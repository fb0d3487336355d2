"""Erasing what messages say: nothing of a payload or an answer is left, and all else stays on record."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest

from journal import Database, Event, NotAllowed, NotFound, append, find_event
from projections import run
from projections.webhooks.claims import reap
from projections.webhooks.deliveries import Deliveries, DeliveryFilter
from projections.webhooks.erasing import Erased
from projections.webhooks.fan_out import FanOut
from projections.webhooks.log import PostgresLog
from projections.webhooks.messages import message_uuid, send
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import execute, fetchval, until
from tests.fixtures.projections import settings as run_settings
from tests.fixtures.raw_server import RawServer, respond
from tests.fixtures.webhook_delivery import (
    attempts,
    delivering,
    fanned_out,
    hook,
    rows,
    sent,
)
from tests.fixtures.webhook_delivery import states as all_states
from tests.fixtures.webhooks import coded, deliver_events, end_all, endpoint, states, take

SECRET = "Ada Lovelace"
"""What is to be found nowhere."""


async def message(database: Database, number: int = 1, **options: Any) -> list[str]:
    return await sent(database, data={"who": SECRET}, number=number, **options)


async def found_anywhere(database: Database) -> list[str]:
    """Tables in which the secret still stands."""
    tables = await rows(
        database,
        "SELECT c.relname AS name FROM pg_class AS c WHERE c.relnamespace = 'projections'::regnamespace "
        "AND c.relkind = 'r' AND NOT c.relname LIKE 'sources%' ORDER BY 1",
    )
    return [
        row["name"]
        for row in tables
        if await fetchval(
            database,
            f"SELECT count(*) FROM projections.{row['name']} AS t WHERE t::text LIKE '%{SECRET}%'",
        )
    ]


class TestOne:
    @pytest.mark.slow
    async def test_payload_and_answers_go_and_the_record_stays(self, database: Database) -> None:
        async with RawServer(respond(500, f"who is {SECRET}?".encode())) as server:
            await hook(database, server.url)
            (event,) = await message(database, metadata={"n": "1"})
            async with delivering(database) as running:
                await running.watch.until(lambda: len(running.watch.attempts) == 1)
                await until(database, "SELECT count(*) = 1 FROM projections.webhook_attempts")
        assert await found_anywhere(database) != []
        before = await rows(database, "SELECT attempted_at, code, took FROM projections.webhook_attempts")

        assert await Deliveries(database).erase("acme", event) == Erased(1, 0)

        assert await found_anywhere(database) == []
        assert await all_states(database) == ["erased"]
        assert await attempts(database) == [(1, "failed", "500")]
        assert (
            await rows(database, "SELECT attempted_at, code, took FROM projections.webhook_attempts")
            == before
        )
        logged = await PostgresLog(database).retrieve_event(event)
        assert logged is not None
        assert (logged.data, logged.topic, dict(logged.metadata)) == (None, "flight.landed", {"n": "1"})
        assert logged.erased_at is not None
        async with database.session() as session:
            envelope = await find_event(session, UUID(event))
        assert envelope is not None
        assert envelope.payload_json == "null"

    async def test_by_the_id_that_it_was_sent_under_and_only_by_its_tenant(self, database: Database) -> None:
        await endpoint(database, "ep_1")
        await message(database, message_id="order-7")
        with pytest.raises(NotFound, check=coded("unknown_message")):
            await Deliveries(database).erase("globex", "order-7")
        with pytest.raises(NotFound, check=coded("unknown_message")):
            await Deliveries(database).erase("globex", str(message_uuid("acme", "order-7")))
        assert await found_anywhere(database) != []
        assert await Deliveries(database).erase("acme", "order-7") == Erased(1, 0)
        assert await found_anywhere(database) == []
        assert await Deliveries(database).erase(None, message_uuid("acme", "order-7")) == Erased(1, 0)

    @pytest.mark.parametrize(
        "unknown",
        ["nothing", "0199a2f0-5f5e-7c3b-9d0e-2b7c1f7f3a11", "'; DROP TABLE x; --", "\N{SNOWMAN}" * 300],
    )
    async def test_one_that_is_not_there_is_not_found(self, database: Database, unknown: str) -> None:
        with pytest.raises(NotFound, check=coded("unknown_message")):
            await Deliveries(database).erase("acme", unknown)

    @pytest.mark.slow
    async def test_other_messages_stay_as_they_are(self, database: Database) -> None:
        await endpoint(database, "ep_1")
        first, _ = await message(database, 2)
        await Deliveries(database).erase(None, first)
        found = await rows(
            database, "SELECT state, erased FROM projections.webhook_deliveries ORDER BY delivery_id"
        )
        assert [tuple(row.values()) for row in found] == [("erased", True), ("pending", False)]
        (left,) = await take(database)
        assert left.data is not None

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("done", "done"),
            ("dead", "erased"),
            ("dropped", "dropped"),
            ("pending", "erased"),
            ("expired", "expired"),
        ],
    )
    async def test_what_is_over_stays_so_and_nothing_is_tried_again(
        self, database: Database, before: str, after: str
    ) -> None:
        ep, deliveries = await endpoint(database, "ep_1"), Deliveries(database)
        (event,) = await message(database)
        if before in {"done", "dead"}:
            await end_all(database, await take(database), before)
        elif before != "pending":
            await execute(database, "UPDATE projections.webhook_deliveries SET state = $1", before)
        await Deliveries(database).erase("acme", event)

        (found,) = await deliveries.list()
        assert (found.state, found.erased) == (after, True)
        with pytest.raises(NotAllowed, match="was erased: nothing is left", check=coded("not_retriable")):
            await deliveries.retry("acme", ep, event)
        which = DeliveryFilter(states=["dead", "done", "dropped"])
        assert [each async for each in deliveries.retry_many(which)][-1] == 0
        assert await take(database) == []
        assert await found_anywhere(database) == []

    @pytest.mark.slow
    async def test_the_next_of_its_order_goes(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", ordering="key", on_dead="block")
        first = await message(database, order_key="a")
        last = await message(database, order_key="a")
        await end_all(database, await take(database), "dead")
        assert await states(database, ep) == ["dead", "waiting"]
        await Deliveries(database).erase("acme", first[0])
        assert [one.event_id for one in await take(database)] == last

    @pytest.mark.slow
    async def test_it_is_forgotten_with_what_is_done(self, database: Database) -> None:
        await endpoint(database, "ep_1")
        (event,) = await message(database)
        await Deliveries(database).erase("acme", event)
        await execute(
            database,
            "UPDATE projections.webhook_deliveries SET event_time = '2020-01-01Z'; "
            "UPDATE projections.webhook_forgotten SET before = '2021-01-01Z'",
        )
        assert await fetchval(database, "SELECT projections._forget_deliveries_v1()") == 1

    @pytest.mark.slow
    async def test_an_event_of_ones_own_is_erased_here_and_stays_in_the_journal(
        self, database: Database
    ) -> None:
        await endpoint(database, "ep_1")
        async with database.transaction() as session:
            (one,) = await append(
                session,
                [Event("customer-17", {"who": SECRET}, "flight", "Seen", metadata={"tenant": "acme"})],
            )
        await run(database, FanOut("flight"), settings=run_settings(), until_caught_up=True)
        assert await Deliveries(database).erase("acme", one.event_id) == Erased(1, 0)
        assert await found_anywhere(database) == ["events_default"]


class TestInFlight:
    @pytest.mark.slow
    @pytest.mark.parametrize(("status", "state"), [(200, "done"), (500, "erased"), (410, "erased")])
    async def test_an_attempt_on_its_way_ends_and_its_answer_is_not_kept(
        self, database: Database, status: int, state: str
    ) -> None:
        await endpoint(database, "ep_1")
        (event,) = await message(database)
        (claimed,) = await take(database)
        assert await Deliveries(database).erase("acme", event) == Erased(1, 1)
        assert await all_states(database) == ["leased"]
        verdict = {200: "done", 500: "retry", 410: "dead"}[status]
        assert await end_all(database, [claimed], verdict, response=SECRET) == {claimed.delivery_id}
        assert await all_states(database) == [state]
        assert await found_anywhere(database) == []
        assert await take(database) == []

    async def test_what_a_killed_process_had_is_erased_when_it_is_taken_back(
        self, database: Database
    ) -> None:
        await endpoint(database, "ep_1")
        (event,) = await message(database)
        assert await take(database)
        await Deliveries(database).erase("acme", event)
        await execute(
            database, "UPDATE projections.webhook_deliveries SET lease_until = now() - interval '1 s'"
        )
        async with database.session() as session:
            assert await reap(session) == 1
        assert await all_states(database) == ["erased"]

    @pytest.mark.slow
    async def test_what_is_given_back_is_not_sent(self, database: Database) -> None:
        await endpoint(database, "ep_1")
        (event,) = await message(database)
        claimed = await take(database)
        await Deliveries(database).erase("acme", event)
        await end_all(database, claimed, "release", code=None)
        found = await rows(database, "SELECT state, attempts FROM projections.webhook_deliveries")
        assert [tuple(row.values()) for row in found] == [("erased", 0)]


class TestFanOut:
    @pytest.mark.slow
    async def test_a_message_that_was_not_read_yet_is_never_sent(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1", ordering="endpoint")
        async with database.transaction() as session:
            first = await send(session, "acme", "t", {"who": SECRET})
            last = await send(session, "acme", "t", {})
        assert await Deliveries(database).erase("acme", str(first.event_id)) == Erased(1, 0)
        await fanned_out(database)
        assert await states(database, ep) == ["erased", "pending"]
        assert [one.event_id for one in await take(database)] == [str(last.event_id)]
        assert await found_anywhere(database) == []

    @pytest.mark.slow
    async def test_one_that_no_endpoint_wanted_is_erased_in_the_journal(self, database: Database) -> None:
        (event,) = await message(database)
        await Deliveries(database).erase("acme", event)
        assert await found_anywhere(database) == []
        assert (await PostgresLog(database).retrieve_event(event)) is not None

    @pytest.mark.slow
    @pytest.mark.parametrize("ordering", ["none", "key"])
    async def test_fan_out_that_has_read_it_and_commits_first_is_waited_for(
        self, database: Database, ordering: str
    ) -> None:
        await endpoint(database, "ep_1", ordering=ordering)
        async with database.transaction() as session:
            one = await send(session, "acme", "t", {"who": SECRET})
        async with database.transaction() as reading:
            await made(reading, str(one.event_id))
            erasing = asyncio.create_task(Deliveries(database).erase("acme", str(one.event_id)))
            await until(database, f"SELECT count(*) = 1 FROM {WAITING}")
        assert await erasing == Erased(1, 0)
        assert await all_states(database) == ["erased"]
        assert await found_anywhere(database) == []

    async def test_fan_out_that_has_read_it_and_commits_last_finds_it_erased(
        self, database: Database
    ) -> None:
        await endpoint(database, "ep_1")
        async with database.transaction() as session:
            one = await send(session, "acme", "t", {"who": SECRET})
        async with database.transaction() as erasing:
            await erasing.fetchrow(
                "SELECT * FROM projections._erase_messages_v1('acme', $1)", [str(one.event_id)]
            )

            async def fan() -> None:
                async with database.transaction() as reading:
                    await made(reading, str(one.event_id))

            reading = asyncio.create_task(fan())
            await until(database, f"SELECT count(*) = 1 FROM {WAITING}")
        await reading
        assert await all_states(database) == ["erased"]
        assert await found_anywhere(database) == []

    async def test_reading_events_again_brings_nothing_back(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        (event,) = await deliver_events(database, ep)
        await Deliveries(database).erase("acme", event)
        await deliver_events(database, ep, ids=[event])
        assert await fetchval(database, "SELECT count(data) FROM projections.webhook_events") == 0
        assert await states(database, ep) == ["erased"]


class TestMany:
    @pytest.mark.slow
    async def test_by_the_key_of_an_order(self, database: Database) -> None:
        await endpoint(database, "ep_1")
        await message(database, 3, order_key="customer-17")
        await sent(database, data={"who": "else"}, number=2, order_key="customer-18")
        which: dict[str, Any] = {"order_key": "customer-17"}
        assert [found async for found in Deliveries(database).erase_many("acme", **which, step=2)][
            -1
        ] == Erased(3, 0)
        assert await found_anywhere(database) == []
        assert sorted(await all_states(database)) == ["erased"] * 3 + ["pending"] * 2

    @pytest.mark.slow
    async def test_all_of_a_tenant_in_short_steps_and_of_no_other(self, database: Database) -> None:
        for number in range(3):
            await endpoint(database, f"ep_{number}")
        await endpoint(database, "ep_9", tenant="globex")
        await message(database, 25)
        await sent(database, data={}, tenant="globex")
        which: dict[str, Any] = {}
        seen = [found.messages async for found in Deliveries(database).erase_many("acme", **which, step=10)]
        assert seen[-1] == 25
        assert len(seen) > 7  # each of some four messages, which are for three endpoints
        assert await found_anywhere(database) == []
        found = await rows(
            database,
            "SELECT tenant, count(*) AS n FROM projections.webhook_deliveries "
            "WHERE state = 'erased' GROUP BY 1",
        )
        assert [tuple(row.values()) for row in found] == [("acme", 75)]
        again = [found.messages async for found in Deliveries(database).erase_many("acme", **which)]
        assert again[-1] == 0

    @pytest.mark.slow
    async def test_by_topic_and_time(self, database: Database) -> None:
        await endpoint(database, "ep_1")
        await message(database)
        await sent(database, "other", data={})
        since = await fetchval(database, "SELECT clock_timestamp()")
        which: dict[str, Any] = {"topics": ["flight.landed"], "since": since}
        assert [found async for found in Deliveries(database).erase_many("acme", **which)][-1].messages == 0
        which: dict[str, Any] = {"topics": ["flight.landed"], "until": since}
        assert [found async for found in Deliveries(database).erase_many("acme", **which)][-1].messages == 1
        assert await found_anywhere(database) == []


async def made(session: Any, event_id: str) -> None:
    """What fan-out does with a message that it has read."""
    row = await session.fetchrow(
        "SELECT db_timestamp, payload::text AS payload FROM projections.events WHERE event_id = $1::text::uuid",
        event_id,
    )
    payload = row["payload"] if json.loads(row["payload"]) else json.dumps({"who": SECRET})
    await session.fetchval(
        "SELECT projections._fan_out_v1($1, $2, '{acme}', '{t}', '{k}', '{NULL}', '{t}', ARRAY['{}'], $3, "
        "'{1}', '{ep_1}')",
        [event_id], [row["db_timestamp"]], [payload],
    )  # fmt: skip


async def test_no_endpoint_of_the_tenant_is_made_while_messages_are_erased(database: Database) -> None:
    """Its circuit would be locked after those of endpoints that follow it: a deadlock."""
    async with database.transaction() as session:
        await session.fetchrow("SELECT * FROM projections._erase_messages_v1('acme', '{}')")
        made = asyncio.create_task(endpoint(database, "ep_1"))
        await endpoint(database, "ep_2", tenant="other")
        await until(database, f"SELECT count(*) = 1 FROM {WAITING}")
        assert not made.done()
    assert await made == "ep_1"
