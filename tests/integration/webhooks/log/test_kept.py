"""The delivery log in PostgreSQL: kept and dropped, written by several, read by roles, given up in time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from journal import ConnectionSettings, Database, MissingPrivilege
from journal.database import connect
from projections.webhooks.errors import InvalidQuery
from projections.webhooks.log import (
    AttemptsRequest,
    AttemptWithEvent,
    EventsRequest,
    MetricsRequest,
    paging,
)
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import execute, fetchval, until
from tests.fixtures.retention import keep, past, retained
from tests.fixtures.writable_log import WritableLog
from tests.integration.webhooks.log.log_support import DAY, HOUR, attempt, entry, event, names

PAST = datetime(2020, 1, 1, tzinfo=UTC)
IDS = "SELECT count(*) FROM projections.webhook_log_ids"
SPAN: dict[str, Any] = {"start": PAST, "end": PAST + DAY}


async def _three_days(database: Database) -> WritableLog:
    """Four entries a day, on three days of long ago, in partitions that retention does not let go yet."""
    log = WritableLog(database)
    await log.insert_many([entry(f"e{number:02}", time=PAST + number * 6 * HOUR) for number in range(12)])
    for table in ("webhook_events", "webhook_attempts"):
        await keep(database, table, retention="forever")
    await retained(database)
    return log


async def _let_go(database: Database, days: int) -> None:
    """Have maintenance drop the first days."""
    kept = datetime.now(UTC) - (PAST + days * DAY) - HOUR
    for table in ("webhook_events", "webhook_attempts"):
        await keep(database, table, retention=kept)
    done = await retained(database)
    assert done.problems == ()


@pytest.mark.slow
async def test_rows_of_the_default_partition_move_to_one_of_their_time(database: Database) -> None:
    log = await _three_days(database)

    assert await fetchval(database, "SELECT count(*) FROM projections.webhook_events_default") == 0
    assert len(await past(database, "webhook_events")) == len(await past(database, "webhook_attempts")) == 3
    assert await log.retrieve_event("e05") == event("e05", time=PAST + 30 * HOUR)


@pytest.mark.slow
async def test_what_retention_drops_is_not_found_and_its_ids_are_forgotten(database: Database) -> None:
    log = await _three_days(database)

    await _let_go(database, 2)

    assert await log.retrieve_event("e07") is None
    assert await log.retrieve_attempt("attempt of e07") is None
    assert names(await log.list_events(EventsRequest(order="asc"))) == ["e08", "e09", "e10", "e11"]
    assert await fetchval(database, IDS) == 8


@pytest.mark.slow
async def test_workers_forget_ids_too(database: Database) -> None:
    await _three_days(database)
    for table in ("webhook_events", "webhook_attempts"):
        await keep(database, table, retention=DAY)

    while await fetchval(database, "SELECT count(*) FROM projections.maintain_v1()"):
        pass

    assert await fetchval(database, IDS) == 0


async def test_ids_of_rows_that_are_there_are_kept_however_old(database: Database) -> None:
    log = WritableLog(database)
    await log.insert_many([entry("old", time=PAST), entry("new", time=datetime.now(UTC))])

    forgotten = await fetchval(database, "SELECT projections._forget_logged_ids_v1()")

    assert (forgotten, await fetchval(database, IDS)) == (0, 4)


@pytest.mark.slow
async def test_ids_are_forgotten_in_pieces(database: Database) -> None:
    await _three_days(database)
    await execute(database, "TRUNCATE projections.webhook_events, projections.webhook_attempts")
    for table in ("webhook_events", "webhook_attempts"):
        await keep(database, table, retention=DAY)

    pieces = [await fetchval(database, "SELECT projections._forget_logged_ids_v1(5)") for _ in range(4)]

    assert pieces == [10, 10, 4, 0]


@pytest.mark.slow
async def test_an_attempt_outlives_its_event(database: Database) -> None:
    log = WritableLog(database)
    old = event("old", time=PAST)
    await log.insert_many([AttemptWithEvent(attempt(old, time=PAST + 60 * DAY), old)])
    await keep(database, "webhook_events", retention=DAY)
    await keep(database, "webhook_attempts", retention="forever")

    await retained(database)

    found = await log.list_attempts(AttemptsRequest())
    assert found.data == (AttemptWithEvent(attempt(old, time=PAST + 60 * DAY), None),)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_retention_drop_during_listing_ends_the_list_cleanly(database: Database, order: str) -> None:
    log = await _three_days(database)
    asked: dict[str, Any] = {"order": order, "limit": 4}
    first = await log.list_attempts(AttemptsRequest(**asked))

    await _let_go(database, 2)

    second = await log.list_attempts(AttemptsRequest(**asked, next=first.next))
    assert second.next is None
    assert second.prev is not None
    # From old to new, what is left comes yet; the other way around, it has been.
    assert names(second) == (["e08", "e09", "e10", "e11"] if order == "asc" else [])
    back = await log.list_attempts(AttemptsRequest(**asked, prev=second.prev))
    assert names(back) == ([] if order == "asc" else ["e11", "e10", "e09", "e08"])


async def test_an_attempt_that_another_writes_at_the_same_time_has_the_later_outcome(
    database: Database,
) -> None:
    log = WritableLog(database)
    failed = entry("e", outcome={"status": "failed"})
    later = replace(failed, attempt=replace(failed.attempt, status="success"))
    async with database.session() as first:
        await first.begin()
        await first.execute(
            "SELECT projections._log_attempts_v1('{attempt of e}', '{tenant}', '{e}', ARRAY[$1::timestamptz], '{t}', "
            "'{endpoint}', '{webhook}', '{1}', '{false}', '{failed}', ARRAY[$1::timestamptz], '{500}', '{NULL}', "
            "'{1 s}')",
            PAST,
        )
        second = asyncio.create_task(log.insert_many([later]))
        await until(database, f"SELECT EXISTS (SELECT FROM {WAITING})")
        await first.commit()
    await second

    found = await log.retrieve_attempt("attempt of e")
    assert found is not None
    assert (found.attempt.status, found.attempt.time) == ("success", PAST)


async def test_what_is_rolled_back_was_never_logged(database: Database) -> None:
    log = WritableLog(database)
    async with database.session() as session:
        await session.begin()
        await session.execute(
            "SELECT projections._log_events_v1("
            "'{e}', '{tenant}', '{t}', ARRAY[now()], '{true}', '{[]}', '{NULL}', '{7}')"
        )
        await session.rollback()
    await log.insert_many([entry("e")])

    assert await log.retrieve_event("e") == event("e")


@pytest.mark.parametrize("measure", ["event_metrics", "attempt_metrics"])
async def test_metrics_that_take_too_long_are_given_up(database: Database, dsn: str, measure: str) -> None:
    log = WritableLog(database, metrics_timeout=timedelta(milliseconds=100))
    with psycopg.connect(dsn) as other:
        other.execute("LOCK TABLE projections.webhook_events, projections.webhook_attempts")

        with pytest.raises(InvalidQuery, match="took too long"):
            await getattr(log, measure)(MetricsRequest(**SPAN))

    assert (await getattr(log, measure)(MetricsRequest(**SPAN))).data == ()


async def test_a_limit_of_the_database_itself_holds_for_metrics(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(f"ALTER DATABASE {owner.info.dbname} SET statement_timeout = '100ms'".encode())
    async with connect(dsn) as limited:
        with psycopg.connect(dsn, options="-c statement_timeout=0") as other:
            other.execute("LOCK TABLE projections.webhook_events")

            with pytest.raises(InvalidQuery, match="took too long"):
                await WritableLog(limited).event_metrics(MetricsRequest(**SPAN))


async def test_months_begin_in_utc_whatever_the_zone_of_the_session(database: Database) -> None:
    february = datetime(2000, 2, 1, tzinfo=UTC)
    await WritableLog(database).insert_many([entry("e", time=february)])

    async with database.session() as session, session.transaction():
        await session.execute("SET LOCAL timezone = 'America/New_York'")
        counted = await session.fetch(
            "SELECT bucket FROM projections._log_metrics_v1('event', $1, $2, '1 month')",
            february,
            february + DAY,
        )

    assert [row["bucket"] for row in counted] == [february]


async def test_an_unknown_dimension_is_refused_by_the_database_too(database: Database) -> None:
    for call in (
        "_log_metrics_v1('event', now(), now(), p_dimensions => '{status}')",
        "_log_metrics_v1('attempt', now(), now(), p_dimensions => ARRAY['x; --'])",
        "_log_metrics_v1('event', now(), now(), p_filters => '{\"code\": [\"1\"]}')",
    ):
        with pytest.raises(Exception, match="there is no dimension") as refused:
            await fetchval(database, f"SELECT * FROM projections.{call}")

        assert getattr(refused.value, "sqlstate", None) == "PJ096"


@pytest.mark.slow
async def test_a_reader_lists_and_measures_and_a_worker_writes(
    database: Database, login: Callable[[str | None], str]
) -> None:
    async with connect(login("projections_worker")) as worker, connect(login("projections_reader")) as reader:
        await WritableLog(worker).insert_many([entry("e", time=PAST)])
        log = WritableLog(reader)

        assert names(await log.list_attempts(AttemptsRequest())) == ["e"]
        assert (await log.event_metrics(MetricsRequest(**SPAN))).data[0].measures == {"count": 1}
        assert (await log.attempt_metrics(MetricsRequest(**SPAN))).data[0].measures == {"count": 1}
        with pytest.raises(MissingPrivilege):
            await log.insert_many([entry("f")])


async def test_a_writer_of_the_journal_sees_nothing_of_the_log(login: Callable[[str | None], str]) -> None:
    async with connect(login("projections_writer")) as writer:
        with pytest.raises(MissingPrivilege):
            await WritableLog(writer).list_events(EventsRequest())


async def test_the_other_driver_does_the_same(dsn: str) -> None:
    async with connect(dsn, ConnectionSettings(driver="psycopg")) as other:
        log = WritableLog(other)
        given = [entry(f"e{number}", time=PAST + number * HOUR) for number in range(3)]
        await log.insert_many(given)
        first = await log.list_attempts(AttemptsRequest(limit=2, order="asc", status="success"))
        second = await log.list_attempts(
            AttemptsRequest(limit=2, order="asc", status="success", next=first.next)
        )
        found = await log.attempt_metrics(
            MetricsRequest(**SPAN, granularity="12h", dimensions=["code"], filters={"code": ["200"]})
        )

        assert [*first.data, *second.data] == given
        assert [point.measures["count"] for point in found.data] == [3, 0]


async def _long(database: Database, monkeypatch: pytest.MonkeyPatch) -> WritableLog:
    """Nine entries with a payload of 400 and an answer of 300 bytes, where a page may have 1,000."""
    monkeypatch.setattr(paging, "PAGE_BYTES", 1000)
    log = WritableLog(database)
    one = {"data": json.dumps("d" * 398)}
    await log.insert_many(
        [entry(f"e{n}", time=PAST + n * HOUR, outcome={"response": "r" * 300}, **one) for n in range(9)]
    )
    return log


async def _walked(listing: Callable[..., Any], request: Any) -> list[Any]:
    pages = [await listing(request)]
    while pages[-1].next:
        pages.append(await listing(replace(request, next=pages[-1].next)))
    return pages


@pytest.mark.parametrize(
    ("asked", "rows"),
    [
        ({"response": True, "event_data": True}, 1),
        ({"response": False, "event_data": True}, 2),
        ({"response": True, "event_data": False}, 3),
        ({"response": False, "event_data": False}, 9),
    ],
)
async def test_a_page_of_attempts_has_as_many_as_its_bytes_allow(
    database: Database, monkeypatch: pytest.MonkeyPatch, asked: dict[str, bool], rows: int
) -> None:
    log = await _long(database, monkeypatch)

    pages = await _walked(log.list_attempts, AttemptsRequest(**asked))

    assert [name for page in pages for name in names(page)] == [f"e{n}" for n in reversed(range(9))]
    assert max(len(page.data) for page in pages) == rows
    assert {one.attempt.response for page in pages for one in page.data} == {
        "r" * 300 if asked["response"] else None
    }
    assert {one.event.data is None for page in pages for one in page.data} == {not asked["event_data"]}


@pytest.mark.parametrize(("data", "rows"), [(True, 2), (False, 9)])
async def test_a_page_of_events_has_as_many_as_its_bytes_allow(
    database: Database, monkeypatch: pytest.MonkeyPatch, data: bool, rows: int
) -> None:
    log = await _long(database, monkeypatch)

    pages = await _walked(log.list_events, EventsRequest(data=data, order="asc"))

    assert [name for page in pages for name in names(page)] == [f"e{n}" for n in range(9)]
    assert max(len(page.data) for page in pages) == rows
    assert {one.data is None for page in pages for one in page.data} == {not data}


async def test_a_row_that_is_longer_than_a_page_may_be_is_a_page(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await _long(database, monkeypatch)
    monkeypatch.setattr(paging, "PAGE_BYTES", 10)

    pages = await _walked(log.list_events, EventsRequest(order="asc"))

    assert [names(page) for page in pages] == [[f"e{n}"] for n in range(9)]
