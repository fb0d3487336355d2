"""What is not the fault of who asks: a database that is slow or gone, and an application that fails."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from journal import ConnectionSettings, Database, connect
from projections.webhooks.api import ApiSettings, Caller
from projections.webhooks.api.idempotency import LimitedDatabase
from tests.fixtures.webhooks_api import TOKENS, Api, Rows, application


def code_of(response: Any) -> str:
    return str(response.json()["code"])


@pytest.mark.slow
async def test_a_database_that_takes_too_long_is_not_waited_for(database: Database, acmes: Rows) -> None:
    # It is also how long this process may stand still in a transaction before it loses its connection.
    settings = ApiSettings(statement_timeout=timedelta(seconds=3))
    api = Api(application(database, settings=settings), TOKENS["acme"])
    span = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"}
    asked = (("/v1/attempts", {}), ("/v1/endpoints", {}), ("/v1/metrics/attempts", span))
    async with api.client, database.transaction() as session:
        await session.execute("LOCK TABLE projections.webhook_attempts, projections.webhook_endpoints")
        answers = await asyncio.gather(
            *(api("GET", path, status=503, params=params) for path, params in asked)
        )
    for answer in answers:
        assert (code_of(answer), answer.headers["retry-after"]) == ("too_slow", "5")


async def test_the_time_limit_is_gone_when_the_connection_is_given_back(dsn: str) -> None:
    async with connect(dsn, ConnectionSettings(max_connections=1)) as database:
        before = await _limit(database)
        api = Api(application(database), TOKENS["acme"])
        async with api.client:
            await api("GET", "/v1/endpoints", status=200)
        assert await _limit(database) == before


async def _limit(database: Database) -> str:
    async with database.session() as session:
        return str(await session.fetchval("SHOW statement_timeout"))


async def test_a_request_that_stands_still_holds_its_locks_no_longer_than_a_statement_may_take(
    database: Database,
) -> None:
    limits = ("statement_timeout", "idle_in_transaction_session_timeout")
    async with LimitedDatabase(database, timedelta(seconds=7)).session() as session:
        assert [await session.fetchval(f"SHOW {limit}") for limit in limits] == ["7s", "7s"]


async def test_a_database_that_is_gone_is_said_without_where_it_was(dsn: str) -> None:
    async with connect(dsn) as database:
        await database.close()
        api = Api(application(database), TOKENS["acme"])
        async with api.client:
            response = await api("GET", "/v1/endpoints", status=503)
    assert code_of(response) == "database_unavailable"
    assert "postgres" not in response.text


async def test_an_error_of_the_applications_own_function_is_logged_and_not_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(request: Any) -> Caller | None:
        raise RuntimeError("the directory of users is at 10.0.0.7")

    api = Api(application(cast("Database", None), auth=broken), None)
    async with api.client:
        response = await api("GET", "/v1/endpoints", status=500)
    assert code_of(response) == "internal_error"
    assert "10.0.0.7" not in response.text
    assert "10.0.0.7" in caplog.text
    assert f"request {response.json()['request_id']} failed" in caplog.text


async def test_what_takes_long_is_done_in_parts(database: Database, acmes: Rows) -> None:
    settings = ApiSettings(bulk_time=timedelta(microseconds=1))
    api = Api(application(database, settings=settings), TOKENS["acme"])
    async with api.client:
        answers = [(await api("POST", "/v1/dead-letters/retry", status=202)).json() for _ in range(2)]
    assert answers == [{"retried": 1, "complete": False}, {"retried": 0, "complete": True}]


async def test_what_is_done_once_is_one_short_step(acme: Api, acmes: Rows) -> None:
    answer = await acme("POST", "/v1/dead-letters/retry", status=202, headers={"idempotency-key": "k-1"})
    assert answer.json() == {"retried": 1, "complete": False}


async def test_a_pool_that_is_in_use_is_said_to_be_tried_later(dsn: str) -> None:
    settings = ConnectionSettings(max_connections=1, pool_timeout=timedelta(milliseconds=20))
    async with connect(dsn, settings) as database, database.session():
        api = Api(application(database), TOKENS["acme"])
        async with api.client:
            response = await api("GET", "/v1/endpoints", status=503)
    assert (code_of(response), response.headers["retry-after"]) == ("database_unavailable", "5")
