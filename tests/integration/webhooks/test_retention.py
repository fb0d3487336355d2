"""What the log of webhooks keeps and for whom, and that what is forgotten is never delivered once more."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from journal import Database, NotAllowed
from journal.partitions import partitions
from projections.webhooks.claims import Claimed
from projections.webhooks.deliveries import Deliveries
from projections.webhooks.fan_out import FanOut
from projections.webhooks.messages import send
from tests.fixtures.projections import caught_up, execute, fetchval
from tests.fixtures.retention import DAY, HOUR, PAST, keep, kept_by, past, retained
from tests.fixtures.webhooks import coded, end_all, endpoint, states, take

NAME = "webhook_events_20200101t000000"
EVENTS = "SELECT count(*) FROM projections.webhook_events"
DELIVERIES = "SELECT count(*) FROM projections.webhook_deliveries"


async def old_endpoint(database: Database, name: str = "ep_1", **settings: Any) -> str:
    """An endpoint from before everything."""
    made = await endpoint(database, name, **settings)
    await execute(
        database,
        "UPDATE projections.webhook_endpoints SET created_at = '2019-01-01Z' WHERE endpoint_id = $1",
        made,
    )
    return made


async def old_delivery(database: Database, event_id: str = "e1", at: datetime = PAST) -> None:
    """A delivery to ``ep_1`` of an event of long ago."""
    await execute(
        database,
        "SELECT projections._fan_out_v1("
        "ARRAY[$1], ARRAY[$2::timestamptz], '{acme}', '{t}', '{k}', '{NULL}', '{t}', '{\"{}\"}', '{7}', "
        "'{1}', '{ep_1}')",
        event_id,
        at,
    )


async def end(database: Database, verdict: str) -> list[Claimed]:
    """Claim all, and finish them with a verdict."""
    claimed = await take(database)
    await end_all(database, claimed, verdict)
    return claimed


async def closed(database: Database) -> None:
    """Give the closed days of the log partitions of their own, and let retention drop what nobody needs."""
    await retained(database)
    await keep(database, "webhook_events", retention=DAY)


async def forget(database: Database) -> int:
    return int(await fetchval(database, "SELECT projections._forget_deliveries_v1()"))


async def sent(database: Database, number: int = 1) -> None:
    for n in range(number):
        async with database.transaction() as session:
            await send(session, "acme", "t", {"n": n})


async def age(database: Database) -> None:
    """Let time pass: all that is there is a year old."""
    year = "interval '1 year'"
    for statement in (
        f"UPDATE projections.webhook_endpoints SET created_at = created_at - {year}",
        f"UPDATE projections.webhook_events SET event_time = event_time - {year}",
        f"UPDATE projections.webhook_log_ids SET row_time = row_time - {year}",
        f"UPDATE projections.webhook_deliveries SET event_time = event_time - {year}",
        f"UPDATE projections.events SET db_timestamp = db_timestamp - {year}",
        f"UPDATE projections.sources SET db_timestamp = db_timestamp - {year}",
    ):
        await execute(database, statement)


async def replay(database: Database) -> None:
    """Set the offsets of all projections back, and read everything again."""
    await execute(
        database,
        "SELECT projections._set_offset_v1(p.projection_id, '1970-01-02Z') FROM projections.projections AS p",
    )
    await caught_up(database, FanOut())


class TestHolders:
    @pytest.mark.slow
    @pytest.mark.parametrize("state", ["pending", "leased", "waiting"])
    async def test_what_is_not_delivered_keeps_its_events(self, database: Database, state: str) -> None:
        await old_endpoint(database)
        await old_delivery(database)
        await execute(database, "UPDATE projections.webhook_deliveries SET state = $1", state)
        await closed(database)

        kept = await retained(database)

        assert [each.name for each in kept.kept] == [NAME]
        assert await kept_by(database) == {NAME: ("1 deliveries are not finished",)}
        assert await past(database, "webhook_events") == [NAME]

    @pytest.mark.slow
    @pytest.mark.parametrize("verdict", ["done", "dead"])
    async def test_what_is_finished_keeps_nothing(self, database: Database, verdict: str) -> None:
        await old_endpoint(database)
        await old_delivery(database)
        await end(database, verdict)
        await closed(database)

        await retained(database)

        assert await past(database, "webhook_events") == []

    @pytest.mark.slow
    async def test_it_keeps_its_own_days_alone(self, database: Database) -> None:
        await old_endpoint(database)
        await old_delivery(database, "e1", PAST)
        await end(database, "done")
        await old_delivery(database, "e2", PAST + DAY)
        await old_delivery(database, "e3", PAST + DAY + HOUR)
        await closed(database)

        await retained(database)

        assert await kept_by(database) == {
            "webhook_events_20200102t000000": ("2 deliveries are not finished",)
        }

    async def test_what_is_not_delivered_keeps_nothing_of_other_tables(self, database: Database) -> None:
        await old_endpoint(database)
        await old_delivery(database)

        await keep(database, "webhook_events", retention=DAY)

        assert await fetchval(
            database, "SELECT array_agg(h.table_name) FROM projections._retention_holders_v1() AS h"
        ) == ["webhook_events"]


class TestPartitions:
    @pytest.mark.slow
    async def test_what_has_no_partition_is_stored_and_maintenance_moves_it(self, database: Database) -> None:
        await old_endpoint(database)
        await old_delivery(database)
        await end(database, "done")
        await keep(database, "webhook_events", retention="forever")
        unmoved = await fetchval(database, "SELECT count(*) FROM projections.webhook_events_default")

        made = await retained(database)

        moved = {each.name: each.rows for each in await listed(database)}
        assert unmoved == 1
        assert made.problems == ()
        assert moved[NAME] == 1
        assert await fetchval(database, "SELECT count(*) FROM projections.webhook_events_default") == 0
        assert await fetchval(database, EVENTS) == 1

    @pytest.mark.slow
    async def test_a_delivery_whose_event_has_gone_can_not_be_tried_again(self, database: Database) -> None:
        await old_endpoint(database)
        await old_delivery(database)
        await end(database, "done")
        await closed(database)
        await retained(database)

        with pytest.raises(
            NotAllowed,
            check=coded("not_retriable"),
            match="the payload of event 'e1' is no longer kept",
        ):
            await Deliveries(database).retry("acme", "ep_1", "e1")

        assert await states(database, "ep_1") == ["done"]
        assert (await Deliveries(database).show("acme", "ep_1", "e1"))[1] is None

    @pytest.mark.slow
    async def test_a_dead_letter_keeps_its_payload_and_is_tried_again_with_it(
        self, database: Database
    ) -> None:
        await old_endpoint(database)
        await old_delivery(database)
        await end(database, "dead")
        await closed(database)
        await retained(database)

        _, data = await Deliveries(database).show("acme", "ep_1", "e1")
        await Deliveries(database).retry("acme", "ep_1", "e1")
        (claimed,) = await take(database)

        assert await fetchval(database, EVENTS) == 0
        assert (data, claimed.data, claimed.manual) == ("7", "7", True)

    @pytest.mark.slow
    async def test_one_that_lost_its_event_by_force_is_claimed_without_a_payload(
        self, database: Database
    ) -> None:
        await old_endpoint(database)
        await old_delivery(database)
        await closed(database)
        await retained(database, force=True)

        (claimed,) = await take(database)

        assert claimed.data is None


class TestForgetting:
    async def test_what_is_finished_is_forgotten_once_it_was_announced(self, database: Database) -> None:
        await old_endpoint(database)
        for event_id, verdict in (("e1", "done"), ("e2", "dead"), ("e3", "done")):
            await old_delivery(database, event_id)
            await end(database, verdict)
        await old_delivery(database, "e4")
        await keep(database, "webhook_events", retention=DAY)

        forgotten = [await forget(database) for _ in range(3)]

        assert forgotten == [0, 2, 0]
        assert await states(database, "ep_1") == ["dead", "pending"]

    async def test_what_was_given_up_is_forgotten(self, database: Database) -> None:
        await old_endpoint(database)
        await old_delivery(database)
        await Deliveries(database).drop("acme", "ep_1", "e1")
        await keep(database, "webhook_events", retention=DAY)

        assert [await forget(database) for _ in range(2)] == [0, 1]

    async def test_what_is_kept_for_ever_is_not_forgotten(self, database: Database) -> None:
        await old_endpoint(database)
        await old_delivery(database)
        await end(database, "done")
        await keep(database, "webhook_events", retention="forever")

        assert [await forget(database) for _ in range(2)] == [0, 0]

    async def test_what_a_fan_out_has_not_read_is_not_forgotten(self, database: Database) -> None:
        await old_endpoint(database)
        await old_delivery(database)
        await end(database, "done")
        await keep(database, "webhook_events", retention=DAY)
        number = await fetchval(
            database, "SELECT projections.register_projection_v1('webhooks/plane', '{plane}')"
        )
        behind = [await forget(database) for _ in range(2)]
        await execute(
            database,
            "UPDATE projections.projection_ranges SET horizon = now() WHERE projection_id = $1",
            number,
        )

        assert behind == [0, 0]
        assert [await forget(database) for _ in range(2)] == [0, 1]

    async def test_a_few_are_forgotten_at_a_time(self, database: Database) -> None:
        await old_endpoint(database)
        for n in range(5):
            await old_delivery(database, f"e{n}")
        await end(database, "done")
        await keep(database, "webhook_events", retention=DAY)
        await forget(database)

        pieces = [await fetchval(database, "SELECT projections._forget_deliveries_v1(2)") for _ in range(4)]

        assert pieces == [2, 2, 1, 0]

    async def test_what_others_have_locked_is_forgotten_later(self, database: Database) -> None:
        await old_endpoint(database)
        await old_delivery(database)
        await end(database, "done")
        await keep(database, "webhook_events", retention=DAY)
        await forget(database)
        async with database.session() as session:
            await session.begin()
            await session.fetch("SELECT FROM projections.webhook_deliveries FOR UPDATE")
            locked = await forget(database)
            await session.commit()

        assert (locked, await forget(database)) == (0, 1)


class TestReplays:
    @pytest.mark.slow
    async def test_events_that_are_read_again_are_not_delivered_again(self, database: Database) -> None:
        await endpoint(database, "ep_1")
        await sent(database, 3)
        await caught_up(database, FanOut())
        claimed = await end(database, "done")

        await replay(database)

        assert len(claimed) == 3
        assert await states(database, "ep_1") == ["done"] * 3
        assert await fetchval(database, EVENTS) == 3
        assert await take(database) == []

    @pytest.mark.slow
    async def test_what_was_forgotten_is_not_delivered_again_when_it_is_read_again(
        self, database: Database
    ) -> None:
        await endpoint(database, "ep_1")
        await sent(database, 3)
        await caught_up(database, FanOut())
        await end(database, "done")
        await age(database)
        await closed(database)
        await retained(database)
        forgotten = [await forget(database) for _ in range(2)]

        await replay(database)

        assert forgotten == [0, 3]
        assert (await fetchval(database, EVENTS), await fetchval(database, DELIVERIES)) == (0, 0)
        assert await take(database) == []

    @pytest.mark.slow
    async def test_forgetting_stops_while_events_are_read_again(self, database: Database) -> None:
        await endpoint(database, "ep_1")
        await sent(database)
        await caught_up(database, FanOut())
        await end(database, "done")
        await age(database)
        await keep(database, "webhook_events", retention=DAY)
        await execute(
            database,
            "SELECT projections._set_offset_v1(p.projection_id, '1970-01-02Z') FROM projections.projections AS p",
        )

        forgotten = [await forget(database) for _ in range(2)]
        await caught_up(database, FanOut())

        assert forgotten == [0, 0]
        assert await states(database, "ep_1") == ["done"]

    @pytest.mark.slow
    async def test_an_endpoint_gets_no_events_from_before_it(self, database: Database) -> None:
        await endpoint(database, "ep_1")
        await sent(database)
        await caught_up(database, FanOut())
        await endpoint(database, "ep_2")
        await sent(database)

        await replay(database)

        assert await states(database, "ep_1") == ["pending", "pending"]
        assert await states(database, "ep_2") == ["pending"]
        (newest,) = [one for one in await take(database) if one.endpoint_id == "ep_2"]
        assert json.loads(newest.data or "") == {"n": 0}


async def listed(database: Database) -> list[Any]:
    async with database.session() as session:
        return list(await partitions(session, exact=True))
