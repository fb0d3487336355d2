"""Schedules: what may be one, whose it is, and that each of its ticks is sent once, whatever goes wrong."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from journal import Database, DatabaseError, NotFound, RawJson
from projections.webhooks.errors import InvalidSchedule
from projections.webhooks.schedules import Schedule, Schedules
from projections.webhooks.ticks import send_claimed
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.schedules import DATA, due, made, messages, set_back
from tests.fixtures.webhooks import coded, endpoint, send_ticks

MINUTE = timedelta(minutes=1)


async def ticks(database: Database, schedule: Schedule) -> list[datetime]:
    found = [json.loads(row["metadata"])["labels"]["tick"] for row in await messages(database, schedule)]
    return [datetime.fromisoformat(tick) for tick in found]


class TestSchedules:
    async def test_a_new_one_begins_at_its_first_tick_and_sends_nothing_before(
        self, database: Database
    ) -> None:
        before = await fetchval(database, "SELECT now()")
        schedule = await made(database)

        sent, next_in = await send_ticks(database)

        assert schedule.next_at is not None
        assert schedule.next_at == datetime(before.year + 1, 1, 1, tzinfo=before.tzinfo)
        assert next_in is not None
        assert next_in > MINUTE
        assert (sent, schedule.last_at, await messages(database)) == (0, None, [])

    async def test_one_that_was_made_is_got_and_listed_as_it_is(self, database: Database) -> None:
        ep = await endpoint(database, "ep_1")
        schedule = await made(database, endpoint_id=ep, missed="all", timezone="Europe/Paris")

        schedules = Schedules(database)

        assert schedule.schedule_id.startswith("sch_")
        assert (schedule.endpoint_id, schedule.missed, schedule.timezone) == (ep, "all", "Europe/Paris")
        assert (schedule.data, schedule.paused, schedule.error) == (DATA, False, None)
        assert await schedules.get("acme", schedule.schedule_id) == schedule
        assert await schedules.list("acme") == [schedule]
        assert await schedules.list("acme", next=schedule.schedule_id) == []

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("values", "said"),
        [
            ({"cron": "* * * *"}, r"the cron line '\* \* \* \*' cannot be"),
            ({"cron": "61 * * * *"}, "'61"),
            ({"cron": "0 0 30 2 *"}, "no tick|cannot be"),
            ({"cron": None}, "cron is text, not None"),
            ({"timezone": "Mars/Olympus"}, "no time zone 'Mars/Olympus'"),
            ({"topic": "not a topic"}, "'not a topic'"),
            ({"topic": ""}, "a topic"),
            ({"data": RawJson("{")}, "data is not JSON"),
            ({"data": object()}, "data is not JSON"),
            ({"data": float("nan")}, "data is not JSON"),
            ({"missed": "some"}, "skip, one, all, not 'some'"),
            ({"name": ""}, "a name has 1 to 200 characters"),
            ({"name": "n" * 201}, "a name has 1 to 200"),
            ({"name": "a\0"}, "NUL"),
            ({"tenant": ""}, "a tenant has 1 to 200"),
            ({"endpoint_id": 7}, "endpoint_id is text, not 7"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    async def test_what_can_not_be_is_refused_when_it_is_made(
        self, database: Database, values: dict[str, Any], said: str
    ) -> None:
        with pytest.raises(InvalidSchedule, match=said):
            await made(database, **values)

        assert await Schedules(database).list(None) == []

    async def test_a_tenant_uses_a_name_once(self, database: Database) -> None:
        first = await made(database)
        other = await made(database, "other")
        await made(database, tenant="globex")

        with pytest.raises(InvalidSchedule, match="has a schedule 'report' already"):
            await made(database)
        with pytest.raises(InvalidSchedule, match="has a schedule 'report' already"):
            await Schedules(database).change("acme", other.schedule_id, {"name": first.name})

    async def test_it_is_for_no_endpoint_of_another_tenant(self, database: Database) -> None:
        theirs = await endpoint(database, "ep_1", tenant="globex")
        schedule = await made(database)

        with pytest.raises(NotFound, check=coded("unknown_endpoint")):
            await made(database, "other", endpoint_id=theirs)
        with pytest.raises(NotFound, check=coded("unknown_endpoint")):
            await Schedules(database).change("acme", schedule.schedule_id, {"endpoint_id": theirs})

    async def test_another_tenant_has_none_of_it_and_administrators_all(self, database: Database) -> None:
        schedule = await made(database)
        schedules, its = Schedules(database), schedule.schedule_id

        assert await schedules.list("globex") == []
        for call in (
            schedules.get("globex", its),
            schedules.change("globex", its, {"missed": "all"}),
            schedules.pause("globex", its),
            schedules.resume("globex", its),
            schedules.send_now("globex", its),
            schedules.remove("globex", its),
        ):
            with pytest.raises(NotFound, check=coded("unknown_schedule"), match=its):
                await call
        assert await schedules.get(None, its) == schedule
        assert await schedules.list(None) == [schedule]
        await schedules.remove(None, its)
        with pytest.raises(NotFound, check=coded("unknown_schedule")):
            await schedules.get("acme", its)

    async def test_another_line_begins_anew_and_another_text_does_not(self, database: Database) -> None:
        schedule = await made(database, cron="0 0 * * *")
        schedules, its = Schedules(database), schedule.schedule_id

        changed = await schedules.change("acme", its, {"data": RawJson('"b"  '), "name": "daily"})
        moved = await schedules.change("acme", its, {"timezone": "Asia/Kathmandu"})
        now = await fetchval(database, "SELECT now()")

        assert (changed.data, changed.name, changed.next_at) == ('"b"  ', "daily", schedule.next_at)
        assert moved.next_at is not None
        assert (moved.next_at.hour, moved.next_at.minute) == (18, 15)
        assert now < moved.next_at <= now + timedelta(days=1)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"tenant": "globex"}, "has no tenant to change"),
            ({"next_at": "now"}, "no next_at"),
            ({"cron": "never"}, "'never'"),
            ({"paused": "no"}, "paused is true or false"),
        ],
    )
    async def test_a_change_to_what_can_not_be_is_refused(
        self, database: Database, changes: dict[str, Any], said: str
    ) -> None:
        schedule = await made(database)

        with pytest.raises(InvalidSchedule, match=said):
            await Schedules(database).change("acme", schedule.schedule_id, changes)

        assert await Schedules(database).get("acme", schedule.schedule_id) == schedule

    @pytest.mark.slow
    async def test_one_that_is_paused_sends_nothing_and_resumed_none_of_the_past(
        self, database: Database
    ) -> None:
        schedule = await made(database, missed="all")
        schedules, its = Schedules(database), schedule.schedule_id
        paused = await schedules.pause("acme", its)
        await due(database, schedule, 3)

        in_pause = await send_ticks(database)
        resumed = await schedules.resume("acme", its)

        assert paused.paused
        assert in_pause.sent == 0
        assert not resumed.paused
        assert resumed.next_at == schedule.next_at
        assert await messages(database) == []

    @pytest.mark.slow
    async def test_it_is_sent_now_beside_its_ticks_also_in_a_pause(self, database: Database) -> None:
        schedule = await made(database, endpoint_id=await endpoint(database, "ep_1"))
        paused = await Schedules(database).pause("acme", schedule.schedule_id)

        sent = await Schedules(database).send_now("acme", schedule.schedule_id)

        (message,) = await messages(database)
        facts = json.loads(message["metadata"])
        assert (message["event_id"], message["event_type"], message["data"]) == (
            sent.event_id,
            "report.due",
            DATA,
        )
        assert (facts["tenant"], facts["endpoint_id"]) == ("acme", "ep_1")
        assert facts["labels"] == {"schedule": "report", "schedule_id": schedule.schedule_id}
        assert await Schedules(database).get("acme", schedule.schedule_id) == paused

    async def test_it_goes_with_its_endpoint(self, database: Database) -> None:
        await made(database, endpoint_id=await endpoint(database, "ep_1"))
        other = await made(database, "other")

        await execute(database, "SELECT projections._remove_endpoint_v1('acme', 'ep_1')")

        assert await Schedules(database).list("acme") == [other]


class TestTicks:
    @pytest.mark.slow
    async def test_a_tick_is_sent_as_it_was_written_and_says_whose_it_is(self, database: Database) -> None:
        schedule = await made(database)
        tick = await due(database, schedule)

        sent, _ = await send_ticks(database)

        (message,) = await messages(database)
        after = await Schedules(database).get("acme", schedule.schedule_id)
        assert sent == 1
        assert (message["event_type"], message["data"]) == ("report.due", DATA)
        assert json.loads(message["metadata"])["labels"] == {
            "schedule": "report",
            "schedule_id": schedule.schedule_id,
            "tick": tick.isoformat(),
        }
        assert after.last_at == tick
        assert after.next_at == schedule.next_at

    @pytest.mark.slow
    async def test_two_schedulers_send_one_tick(self, database: Database) -> None:
        schedule = await made(database)
        await due(database, schedule)
        await send_ticks(database, 0)  # somebody is seen: the second need not wait for the first to say so

        async with database.session() as first, database.session() as second:
            await first.begin()
            sent = await send_claimed(first)
            await second.begin()
            passed_over = await send_claimed(second)
            await first.commit()
            after = await send_claimed(second)
            await second.commit()

        assert (sent, passed_over, after) == ((1, 1), (0, 0), (0, 0))
        assert len(await messages(database)) == 1

    @pytest.mark.slow
    async def test_one_that_dies_with_a_tick_at_hand_leaves_it_to_the_next(self, database: Database) -> None:
        schedule = await made(database)
        await due(database, schedule)

        async with database.session() as session:
            await session.begin()
            await send_claimed(session)
            await session.rollback()
        sent, _ = await send_ticks(database)

        assert sent == 1
        assert len(await messages(database)) == 1

    @pytest.mark.slow
    async def test_who_found_it_at_an_older_tick_does_not_move_it(self, database: Database) -> None:
        schedule = await made(database)
        tick = await due(database, schedule)
        await send_ticks(database)
        moved = await Schedules(database).get("acme", schedule.schedule_id)

        with pytest.raises(DatabaseError, match="the database went back in time") as refused:
            await fetchval(
                database,
                "SELECT projections._advance_schedules_v1($1, $2, ARRAY[now()], '{NULL}', '{NULL}', '{0}')",
                [schedule.schedule_id],
                [tick],
            )

        assert refused.value.sqlstate == "PJ013"
        assert await Schedules(database).get("acme", schedule.schedule_id) == moved

    @pytest.mark.slow
    async def test_a_tick_that_comes_again_is_not_sent_again(self, database: Database) -> None:
        schedule = await made(database, missed="all")
        tick = await due(database, schedule)
        await send_ticks(database)
        await set_back(database, schedule, tick)

        await send_ticks(database)

        assert await ticks(database, schedule) == [tick]

    @pytest.mark.slow
    @pytest.mark.parametrize(("missed", "number"), [("skip", 0), ("one", 1), ("all", 3)])
    async def test_missed_ticks_are_sent_as_the_schedule_says(
        self, database: Database, missed: Any, number: int
    ) -> None:
        now = await fetchval(database, "SELECT now()")
        schedule = await made(database, cron=f"30 {(now.hour + 12) % 24} * * *", missed=missed)
        assert schedule.next_at is not None
        day = timedelta(days=1)
        missed_ticks = [schedule.next_at - n * day for n in (3, 2, 1)]
        await set_back(database, schedule, missed_ticks[0])

        sent, _ = await send_ticks(database)

        after = await Schedules(database).get("acme", schedule.schedule_id)
        assert sent == number
        assert await ticks(database, schedule) == missed_ticks[len(missed_ticks) - number :]
        assert (after.next_at, after.error) == (schedule.next_at, None)

    @pytest.mark.slow
    async def test_many_missed_ticks_are_sent_in_several_looks(self, database: Database) -> None:
        schedule = await made(database, cron="* * * * *", missed="all")
        assert schedule.next_at is not None
        first = schedule.next_at - 150 * MINUTE
        await set_back(database, schedule, first)

        looks = [(await send_ticks(database)).sent for _ in range(3)]

        assert looks[0] == 100
        assert (await ticks(database, schedule))[:150] == [first + n * MINUTE for n in range(150)]
        assert sum(looks) in {150, 151}

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("wrong", "said"),
        [("data = '{'", "not JSON"), ("topic = 'no topic'", "topic"), ("""data = '"\\u0000"'""", "not JSON")],
        ids=["data", "topic", "nul"],
    )
    async def test_a_failed_run_is_told_and_ends_neither_it_nor_others(
        self, database: Database, wrong: str, said: str
    ) -> None:
        bad, good = await made(database, "bad"), await made(database, "good")
        await execute(
            database,
            f"UPDATE projections.webhook_schedules SET {wrong} WHERE schedule_id = $1",
            bad.schedule_id,
        )
        await due(database, bad, 3)
        await due(database, good)

        sent, _ = await send_ticks(database)
        failed = await Schedules(database).get("acme", bad.schedule_id)
        await Schedules(database).change("acme", bad.schedule_id, {"data": DATA, "topic": "report.due"})
        await due(database, bad)
        await send_ticks(database)

        assert sent == 1
        assert len(await messages(database, good)) == 1
        assert failed.error is not None
        assert said in failed.error
        assert failed.next_at == bad.next_at
        assert failed.last_at is None
        assert (await Schedules(database).get("acme", bad.schedule_id)).error is None
        assert len(await messages(database, bad)) == 1

    @pytest.mark.slow
    async def test_a_tick_whose_id_has_other_content_is_told_and_passed_over(
        self, database: Database
    ) -> None:
        schedule = await made(database)
        tick = await due(database, schedule)
        await send_ticks(database)
        await Schedules(database).change("acme", schedule.schedule_id, {"data": 2})
        await set_back(database, schedule, tick)

        await send_ticks(database)

        after = await Schedules(database).get("acme", schedule.schedule_id)
        assert after.error is not None
        assert "other content" in after.error
        assert after.next_at == schedule.next_at
        assert [row["data"] for row in await messages(database)] == [DATA]

    @pytest.mark.slow
    async def test_what_can_not_be_read_here_waits_and_goes_on_with_its_ticks_when_it_can(
        self, database: Database
    ) -> None:
        schedule = await made(database, missed="all")
        tick = await due(database, schedule)
        await execute(database, "UPDATE projections.webhook_schedules SET timezone = 'Mars/Olympus'")

        sent = [(await send_ticks(database)).sent for _ in range(2)]
        told = await Schedules(database).get("acme", schedule.schedule_id)
        await execute(
            database, "UPDATE projections.webhook_schedules SET timezone = 'UTC', held_until = now()"
        )
        await send_ticks(database)

        assert sent == [0, 0]
        assert told.error is not None
        assert "Mars/Olympus" in told.error
        assert told.next_at == tick
        assert await ticks(database, schedule) == [tick]

    async def test_what_is_about_to_be_due_is_known_before(self, database: Database) -> None:
        schedule = await made(database)
        soon = await fetchval(database, "SELECT now() + interval '30 minutes'")
        await set_back(database, schedule, soon)

        sent, next_in = await send_ticks(database)

        assert sent == 0
        assert next_in is not None
        assert timedelta(0) < next_in <= timedelta(minutes=30)
