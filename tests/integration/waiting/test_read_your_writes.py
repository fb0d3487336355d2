"""Requests that carry a token wait until what it names can be read; all others pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from journal import Appended
from projections import Database, Event, EventEnvelope, ReadYourWrites, Session, append, handles, projection
from projections.waiting import middleware
from tests.fixtures.projections import EFFECTS, Happened, caught_up, effects, execute, recording, running

HEADER = "projections-token"


def application(database: Database, **options: Any) -> ReadYourWrites:
    """Writes an event by POST, and reads what was handled by GET."""

    async def write(request: Request) -> Response:
        async with database.transaction() as session:
            appended = await append(session, [Event("a", Happened(), "plane")])
        return Response(status_code=202, headers={HEADER: appended.token})

    async def read(request: Request) -> Response:
        stale = request.scope.get("state", {}).get("stale", False)
        return JSONResponse({"effects": await effects(database), "stale": stale})

    routes = [Route("/", write, methods=["POST"]), Route("/", read)]
    options = {"database": database, "projections": "p", "timeout": timedelta(milliseconds=100)} | options
    return ReadYourWrites(Starlette(routes=routes), **options)


@asynccontextmanager
async def browser(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app.test") as client:
        yield client


@pytest.fixture(autouse=True)
async def known(database: Database) -> None:
    await execute(database, EFFECTS)
    await caught_up(database, recording())


@pytest.mark.slow
async def test_what_was_written_is_read_in_two_tabs(database: Database) -> None:
    app = application(database, timeout=timedelta(minutes=2))
    async with running(database, recording()), browser(app) as one, browser(app) as other:
        for number in range(1, 21):
            tab, rest = (one, other) if number % 2 else (other, one)
            token = (await tab.post("/")).headers[HEADER]

            found = await tab.get("/", headers={HEADER: token})
            too = await rest.get("/", headers={HEADER: token})

            assert len(found.json()["effects"]) == len(too.json()["effects"]) == number


async def test_a_request_without_a_token_and_one_that_writes_do_not_wait(database: Database) -> None:
    async with browser(application(database)) as client:
        token = (await client.post("/")).headers[HEADER]

        assert (await client.get("/")).json() == {"effects": [], "stale": False}
        assert (await client.post("/", headers={HEADER: token})).status_code == 202


@pytest.mark.slow
async def test_a_late_projection_is_answered_with_503(database: Database) -> None:
    async with browser(application(database)) as client:
        token = (await client.post("/")).headers[HEADER]

        answer = await client.get("/", headers={HEADER: token})
        head = await client.head("/", headers={HEADER: token})

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {"status": 503, "detail": "what was written cannot be read yet: ask again"}
    assert (head.status_code, head.content) == (503, b"")


@pytest.mark.slow
async def test_or_goes_on_and_says_that_it_is_stale(database: Database) -> None:
    async with browser(application(database, stale=True)) as client:
        token = (await client.post("/")).headers[HEADER]

        answer = await client.get("/", headers={HEADER: token})

    assert answer.json() == {"effects": [], "stale": True}


@pytest.mark.slow
async def test_a_projection_that_does_not_read_the_type_is_not_waited_for(database: Database) -> None:
    @projection("other", entity_type="airport")
    class Other:
        @handles(Happened)
        async def happened(self, session: Session, event: Happened, envelope: EventEnvelope) -> None:
            pass

    await caught_up(database, Other)
    async with database.transaction() as session:
        appended = await append(session, [Event("a", Happened(), "plane")])

    async with browser(application(database, projections="other")) as client:
        answer = await client.get("/", headers={HEADER: appended.token})
    async with browser(application(database, projections=["other", "p"])) as client:
        late = await client.get("/", headers={HEADER: appended.token})

    assert (answer.status_code, late.status_code) == (200, 503)


async def test_a_projection_that_has_never_run_is_late(database: Database) -> None:
    async with browser(application(database, projections="new")) as client:
        token = (await client.post("/")).headers[HEADER]
        late = await client.get("/", headers={HEADER: token})
    async with browser(application(database, projections="new", stale=True)) as client:
        stale = await client.get("/", headers={HEADER: token})

    assert (late.status_code, late.json()["detail"]) == (
        503,
        "what was written cannot be read yet: a projection has never run",
    )
    assert stale.json()["stale"]


@pytest.mark.slow
@pytest.mark.parametrize("token", ["nothing", "", "x" * 9000, "MS4x.MS4x"])
async def test_what_is_no_token_is_answered_with_400(database: Database, token: str) -> None:
    async with browser(application(database)) as client:
        answer = await client.get("/", headers={HEADER: token})

    assert answer.status_code == 400
    assert "token" in answer.json()["detail"]


async def test_a_lost_write_is_answered_with_409(database: Database) -> None:
    async with database.transaction() as session:
        (appended,) = await append(session, [Event("a", Happened(), "plane")])
    lost: Appended = appended._replace(seq_nr=2, timeline=99)
    async with browser(application(database)) as client:
        answer = await client.get("/", headers={HEADER: lost.token})

    assert answer.status_code == 409
    assert "timeline" not in answer.text


@pytest.mark.slow
async def test_more_than_may_wait_are_turned_away(database: Database) -> None:
    app = application(database, timeout=timedelta(minutes=2), max_waiting=1)
    async with browser(app) as client:
        token = (await client.post("/")).headers[HEADER]
        first = asyncio.create_task(client.get("/", headers={HEADER: token}))
        async with asyncio.timeout(300):
            while app._places:
                await asyncio.sleep(0.001)

        turned_away = await client.get("/", headers={HEADER: token})
        await caught_up(database, recording())

        assert turned_away.json()["detail"] == "too many requests wait already"
        assert (await first).json()["effects"] == [["a", 1]]
        assert (await client.get("/", headers={HEADER: token})).status_code == 200


@pytest.mark.slow
async def test_the_database_may_be_one_that_is_opened_later(database: Database) -> None:
    opened: list[Database] = []
    inner = application(database)._app
    app = middleware.ReadYourWrites(inner, database=lambda: opened[0], projections=["p"])
    opened.append(database)
    async with browser(app) as client:
        token = (await client.post("/")).headers[HEADER]
        await caught_up(database, recording())

        assert (await client.get("/", headers={HEADER: token})).json()["effects"] == [["a", 1]]
