"""A stream of events over a real connection: what is on the wire, who gets in, and how it ends."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, NoReturn

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from journal import Database, Event, RawJson, append
from projections.http.server_sent_events import let_go
from projections.subscriptions.listening import Interest, Listener, Listening
from projections.subscriptions.matched_event import MatchedEvent
from projections.subscriptions.sse import (
    EventStream,
    Refused,
    ServerSentEvent,
    StreamRequest,
    by_topic,
)
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.sse import ALL, QUICK, asked, becomes, quick, served, settled, streaming
from tests.fixtures.subscriptions import landed_and_matched, match_all


async def append_raw(database: Database, payload: str, topic: str = "Landed", **values: Any) -> None:
    async with database.transaction() as session:
        await append(session, [Event("a", RawJson(payload), "plane", event_type=topic, **values)])
    await match_all(database)


def without_times(raw: bytes) -> bytes:
    """A block with an id of numbers alone: the times of its match and of its subscription are left out."""
    return re.sub(rb"(?m)^(id: \d+-\d+)-\d+-\d+$", rb"\1", raw)


async def test_the_wire_carries_exactly_these_bytes(database: Database) -> None:
    async with streaming(database) as (_, port), asked(port) as client:
        start = await client.block()
        await append_raw(database, '{"b": 1.50, "a": "é"}', metadata={"by": "test"})
        event = (await client.events(1))[0]
        number = await settled(database)

    row = json.loads(event.data or "")
    assert client.status == 200
    assert client.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert client.headers["cache-control"] == "no-store"
    assert client.headers["x-accel-buffering"] == "no"
    assert without_times(start.raw) == f"id: 1-{number - 1}\nretry: 2000".encode()
    head = f'{{"event_id":"{row["event_id"]}","topic":"Landed","source_id":"a","seq_nr":1,'
    head += f'"timestamp":"{row["timestamp"]}"'
    assert (
        without_times(event.raw)
        == f'id: 1-{number}\ndata: {head},"payload":{{"b": 1.50, "a": "é"}},"metadata":{{"by":"test"}}}}'.encode()
    )


async def test_a_payload_of_several_lines_arrives_as_the_same_json(database: Database) -> None:
    written = '{\n  "a": 1,\r\n  "b":\r 2, "c": "x\u2028y\u0085z"\n}'
    async with streaming(database) as (_, port), asked(port) as client:
        await append_raw(database, written)
        event = (await client.events(1))[0]

    assert event.raw.count(b"\ndata: ") == 5
    assert json.loads(event.data or "")["payload"] == json.loads(written)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rendered", "raw"),
    [
        ("", b"data: "),
        ("a\nb", b"data: a\ndata: b"),
        ("a\r\nb\rc\n", b"data: a\ndata: b\ndata: c\ndata: "),
        (" x\u2028y", b"data:  x\xe2\x80\xa8y"),
        ("id: 9\n\ndata: forged", b"data: id: 9\ndata: \ndata: data: forged"),
        (ServerSentEvent("x", "a\nid: 9\r\ndata: y"), b"event: a id: 9 data: y\nid: 1-1\ndata: x"),
        (ServerSentEvent("x", ""), b"event: \nid: 1-1\ndata: x"),
    ],
)
async def test_no_text_breaks_out_of_its_field(database: Database, rendered: Any, raw: bytes) -> None:
    async with streaming(database, render=lambda _: rendered) as (_, port), asked(port) as client:
        await append_raw(database, "1")
        event = (await client.events(1))[0]

    assert without_times(event.raw).removeprefix(b"id: 1-1\n") == raw


async def test_events_can_be_of_the_type_of_their_topic(database: Database) -> None:
    async with streaming(database, render=by_topic) as (_, port), asked(port) as client:
        await append_raw(database, "1")
        event = (await client.events(1))[0]

    assert (event.event, json.loads(event.data or "")["payload"]) == ("Landed", 1)


def leaves() -> NoReturn:
    raise GeneratorExit


@pytest.mark.parametrize("wrong", [leaves, sys.exit, object], ids=["generator exit", "exit", "no string"])
async def test_what_can_not_be_rendered_is_left_out_alone(
    database: Database, caplog: pytest.LogCaptureFixture, wrong: Callable[[], Any]
) -> None:
    def render(event: MatchedEvent) -> Any:
        if event.envelope.source_id == "private":
            return None
        return str(1 / event.payload["n"]) if event.payload["n"] else wrong()

    async with streaming(database, render=render) as (_, port), asked(port) as client:
        await landed_and_matched(database, "a", n=0)
        await landed_and_matched(database, "private", n=1)
        await landed_and_matched(database, "a", n=4)
        events = await client.events(1)

    assert [event.data for event in events] == ["0.25"]
    assert "rendering match 1" in caplog.text


@pytest.mark.slow
async def test_each_request_has_its_own_subscription(database: Database) -> None:
    async def mine(request: StreamRequest) -> Interest | None:
        if request.path != "/planes":
            return None
        return Interest(topics=["Landed"], contains={"carrier": request.query["carrier"][0]})

    async with (
        streaming(database, subscription=mine) as (_, port),
        asked(port, "/planes?carrier=AA") as one,
        asked(port, "/planes?carrier=%27%3B--") as other,
        asked(port, "/trains") as none,
        asked(port, "/planes?carrier=%ff") as unreadable,
    ):
        await landed_and_matched(database, "a", carrier="AA")
        await landed_and_matched(database, "b", carrier="';--")

        assert (await one.places(1), await other.places(1)) == ([("a", 1)], [("b", 1)])
        assert (none.status, await none.body()) == (404, b"there is no such stream\n")
        assert unreadable.status == 200  # as any text: with a character in place of what is none


async def test_a_query_without_end_is_refused(database: Database) -> None:
    def mine(request: StreamRequest) -> Interest | None:
        return Interest(topics=request.query["topic"])

    async with (
        streaming(database, subscription=mine) as (_, port),
        asked(port, "/?" + "topic=x&" * 200) as client,
    ):
        assert client.status == 400


async def test_what_can_not_be_subscribed_to_is_a_bad_request_that_tells_nothing(database: Database) -> None:
    async with (
        streaming(database, subscription=lambda _: Interest(condition="secret(e)")) as (_, port),
        asked(port) as client,
    ):
        assert (client.status, await client.body()) == (400, b"this cannot be subscribed to\n")


async def test_authorization_decides_before_anything_is_subscribed(database: Database) -> None:
    async def authorize(request: StreamRequest) -> int | None:
        if (token := request.headers.get("authorization")) is None:
            return 401
        return None if token == "Bearer right" else 403

    async with (
        streaming(database, authorize=authorize) as (_, port),
        asked(port) as nobody,
        asked(port, authorization="Bearer wrong") as wrong,
    ):
        assert (nobody.status, nobody.headers["www-authenticate"]) == (401, "bearer")
        assert wrong.status == 403
        assert await fetchval(database, "SELECT count(*) FROM projections.subscriptions") == 0
        async with asked(port, authorization="Bearer right") as right:
            assert right.status == 200


async def test_a_hook_can_refuse_in_its_own_words(database: Database) -> None:
    def authorize(_: StreamRequest) -> int | None:
        raise Refused(402, "not without a ticket", x_price="3")

    async with streaming(database, authorize=authorize) as (_, port), asked(port) as client:
        assert (client.status, client.headers["x-price"], await client.body()) == (
            402,
            "3",
            b"not without a ticket\n",
        )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "OPTIONS"])
async def test_other_methods_are_not_allowed(database: Database, method: str) -> None:
    async with streaming(database) as (_, port), asked(port, method=method) as client:
        assert (client.status, client.headers["allow"]) == (405, "get")


@pytest.mark.slow
async def test_one_client_too_many_is_told_when_to_come_again(database: Database) -> None:
    settings = quick(max_clients=3, max_clients_per=2)
    async with (
        streaming(database, settings=settings, client=lambda request: request.headers.get("x-user", "")) as (
            stream,
            port,
        ),
        asked(port, x_user="u") as one,
        asked(port, x_user="u") as two,
    ):
        async with asked(port, x_user="u") as three:
            assert (three.status, three.headers["retry-after"]) == (429, "2")
        async with asked(port, x_user="v"), asked(port, x_user="w") as four:
            assert (four.status, four.headers["retry-after"]) == (503, "2")
        assert (one.status, two.status) == (200, 200)

        one.close()
        await becomes(lambda: stream.clients == 1)
        async with asked(port, x_user="u") as again:
            assert again.status == 200


async def test_a_client_that_goes_frees_everything_at_once(database: Database) -> None:
    async with streaming(database) as (stream, port):
        listener = stream._listener
        async with asked(port) as client:
            await client.block()
            assert (stream.clients, len(stream._open), len(listener._reader._known)) == (1, 1, 1)

        await becomes(lambda: not stream._answering)
        assert (stream.clients, len(stream._open), len(listener._reader._known)) == (0, 0, 0)
        await becomes(lambda: listener._reader._task is None)


@pytest.mark.slow
async def test_a_quiet_stream_beats_and_tells_how_far_it_is(database: Database) -> None:
    settings = quick(keep_alive=timedelta(milliseconds=20))
    async with (
        streaming(database, subscription=lambda _: Interest(topics=["Never"]), settings=settings) as (
            stream,
            port,
        ),
        stream._listener.listen(topics=["Landed"]),
        asked(port) as client,
    ):
        await client.block()
        quiet = await client.block()
        await landed_and_matched(database, "a", "b")
        number = await settled(database)
        while int((client.last_id or "").split("-")[1]) != number:
            block = await client.block()

    assert quiet.raw == b": "
    assert block.raw.startswith(b": \nid: ")


@pytest.mark.slow
async def test_a_client_that_does_not_read_is_ended_and_holds_up_nobody(database: Database) -> None:
    settings = quick(buffer=20, grace=timedelta(milliseconds=50))
    async with streaming(database, settings=settings) as (stream, port), asked(port) as slow:
        await slow.block()
        async with asked(port) as other:
            for _ in range(6):
                await landed_and_matched(database, *"abcde" * 4, text="x" * 50_000)
                assert len(await other.events(20)) == 20
            await becomes(lambda: stream.clients == 1)
        assert len(await slow.events_until_broken()) < 120


@pytest.mark.slow
async def test_a_client_that_takes_nothing_though_little_comes_is_ended(database: Database) -> None:
    settings = quick(keep_alive=timedelta(milliseconds=1), patience=timedelta(milliseconds=300))
    async with streaming(database, settings=settings) as (stream, port), asked(port) as slow:
        await slow.block()
        await append_raw(database, json.dumps("x" * 8_000_000))
        await becomes(lambda: stream.clients == 0)


async def test_a_client_that_never_reads_is_cut_off_and_counts_until_then(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = asyncio.Event()

    async def once_seen(*given: Any) -> bool:
        await seen.wait()
        return await let_go(*given)

    monkeypatch.setattr("projections.subscriptions.sse.server.let_go", once_seen)
    settings = quick(buffer=1, grace=timedelta(0), max_clients=1)
    async with streaming(database, settings=settings) as (stream, port), asked(port) as slow:
        await slow.block()
        await append_raw(database, json.dumps("x" * 8_000_000))
        for _ in range(4):
            await append_raw(database, "1")
        await becomes(lambda: not stream._answering)
        assert (stream.clients, stream.ending) == (1, 1)
        async with asked(port) as other:
            assert other.status == 503
        seen.set()
        await becomes(lambda: (stream.clients, stream.ending) == (0, 0))
        assert await slow.events_until_broken() == []


async def test_a_stream_whose_subscription_is_removed_ends(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.subscriptions.live_reader._LOOK_EVERY", 0.01)
    settings = QUICK.model_copy(
        update={"keep_every": timedelta(hours=1), "expires_after": timedelta(hours=2)}
    )
    listener = Listener(database, "feed", settings=settings)
    async with streaming(database, listener=listener) as (_, port), asked(port) as client:
        await execute(
            database, "SELECT projections.unsubscribe_v1(subscription_id) FROM projections.subscriptions"
        )
        told = await client.rest()

    assert told[-1].retry is not None


@pytest.mark.slow
async def test_a_client_that_was_ended_goes_on_where_it_was(database: Database) -> None:
    settings = quick(buffer=10, grace=timedelta(milliseconds=50))
    async with streaming(database, settings=settings) as (stream, port):
        async with asked(port) as slow:
            await slow.block()
            for _ in range(5):
                await landed_and_matched(database, *"abcde" * 4, text="x" * 50_000)
            await becomes(lambda: stream.clients == 0)
            seen = [event.place for event in await slow.events_until_broken()]
        async with asked(port, last_id=slow.last_id) as again:
            seen += await again.places(100 - len(seen))

    assert sorted(seen) == [(source, number) for source in "abcde" for number in range(1, 21)]
    assert 0 < len(seen) == len(set(seen))


@pytest.mark.slow
async def test_shutting_down_ends_streams_in_order_and_tells_clients_to_come_spread(
    database: Database,
) -> None:
    listener = Listener(database, "feed", settings=QUICK)
    stream = EventStream(listener, lambda _: ALL, settings=quick(retry=timedelta(seconds=1)))
    async with AsyncExitStack() as clients, listener, served(stream, lifespan="on") as port:
        connected = [await clients.enter_async_context(asked(port)) for _ in range(20)]
        for client in connected:
            await client.block()
        stream.close()
        ends = [await client.rest() for client in connected]
        async with asked(port, last_id=connected[0].last_id) as late:
            told = await late.rest()

    assert {len(end) for end in ends} == {1}
    waits = {end[0].retry or 0 for end in ends}
    assert len(waits) > 1
    assert all(1000 <= wait <= 3000 for wait in waits)
    # Any other status would end a browser's attempts.
    assert (late.status, [block.data for block in told], told[0].retry is not None) == (200, [None], True)


async def test_a_client_that_comes_while_streams_are_ended_is_to_come_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with streaming(database) as (stream, port):
        join = Listening.join

        async def closed_meanwhile(listening: Listening) -> None:
            stream.close()
            await join(listening)

        monkeypatch.setattr(Listening, "join", closed_meanwhile)
        async with asked(port) as client:
            told = await client.rest()

    assert (client.status, [block.id for block in told], told[0].retry is not None) == (200, [None], True)


async def test_the_lifespan_of_the_server_ends_what_it_serves_alone(database: Database) -> None:
    listener = Listener(database, "feed", settings=QUICK)
    stream = EventStream(listener, lambda _: ALL, settings=quick())
    async with listener, served(stream, lifespan="on"):
        pass

    assert stream._closed


@pytest.mark.slow
async def test_it_is_mounted_in_an_application_with_routes(database: Database) -> None:
    seen: list[str] = []

    def mine(request: StreamRequest) -> Interest:
        seen.append(request.path)
        return ALL

    listener = Listener(database, "feed", settings=QUICK)
    stream = EventStream(listener, mine, settings=quick())
    app = Starlette(routes=[Mount("/live", stream)], lifespan=lambda _: stream.running())
    async with listener, served(app, lifespan="on") as port, asked(port, "/live/planes") as client:
        await landed_and_matched(database, "a")
        places = await client.places(1)
        stream.close()

    assert (places, seen) == ([("a", 1)], ["/planes"])


@pytest.mark.slow
async def test_a_database_that_does_not_answer_has_clients_come_again(
    dsn: str, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    from journal import connect
    from tests.fixtures.proxy import proxy_to

    settings = quick(patience=timedelta(milliseconds=200))
    async with (
        proxy_to(dsn) as proxy,
        connect(proxy.dsn) as behind,
        streaming(behind, settings=settings) as (_, port),
    ):
        async with asked(port) as client:
            await client.block()
        proxy.stop_forwarding()
        async with asked(port, last_id=client.last_id) as during:
            told = await during.rest()
        proxy.go_on()

    assert (during.status, told[0].data, told[0].retry is not None) == (200, None, True)
    assert "is to come again" in caplog.text


async def test_a_schema_that_is_being_changed_has_clients_come_again(database: Database) -> None:
    async with streaming(database) as (_, port):
        async with asked(port) as before:
            await before.block()
        await execute(database, "ALTER FUNCTION projections.settled_matches_v1 RENAME TO settled_matches_v0")
        async with asked(port, last_id=before.last_id) as client:
            told = await client.rest()

    assert (client.status, told[0].data, told[0].retry is not None) == (200, None, True)


@pytest.mark.slow
async def test_a_failing_hook_fails_its_request_alone(database: Database) -> None:
    def mine(request: StreamRequest) -> Interest:
        return Interest(topics=[request.query["topic"][0]])

    async with (
        streaming(database, subscription=mine) as (stream, port),
        asked(port, "/?topic=Landed") as fine,
        asked(port, "/") as failed,
    ):
        assert failed.status == 500
        await landed_and_matched(database, "a")
        assert await fine.places(1) == [("a", 1)]
        assert stream.clients == 1


@pytest.mark.slow
async def test_many_clients_share_one_reader(database: Database) -> None:
    async with streaming(database) as (stream, port), AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(asked(port)) for _ in range(60)]
        await landed_and_matched(database, *"abc")

        assert {str(await client.places(3)) for client in clients} == {str([("a", 1), ("b", 1), ("c", 1)])}
        assert len(stream._listener._reader._live) == 1


@pytest.mark.slow
async def test_a_stream_uses_few_connections_of_the_pool(database: Database) -> None:
    async with streaming(database) as (_, port), AsyncExitStack() as stack:
        for _ in range(60):
            await stack.enter_async_context(asked(port))
        used = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"

        assert await fetchval(database, used) <= 6
    await execute(database, "SELECT 1")
