"""Coming again to a stream: nothing is lost and nothing comes twice; and when that cannot be, 204 says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import quote

import pytest

from journal import Database
from projections.subscriptions.listening import Interest, Listener, Listening
from projections.subscriptions.sse import StreamRequest
from projections.subscriptions.sse.stream import StreamClient
from projections.subscriptions.subscribing import subscribe
from tests.fixtures.projections import execute, fetchval, until
from tests.fixtures.sse import QUICK, Client, asked, becomes, left_after, quick, settled, streaming
from tests.fixtures.subscriptions import landed_and_matched

HOLD = "SELECT pg_advisory_xact_lock_shared(hashtext('slice-projections matches'), $1::integer)"

Meanwhile = Callable[[], Awaitable[Any]]


@pytest.fixture
async def port(database: Database) -> AsyncIterator[int]:
    async with streaming(database) as (_, port):
        yield port


async def nothing_more(client: Client, database: Database, source_id: str = "last") -> None:
    """The next event is one that is appended now."""
    await landed_and_matched(database, source_id)
    assert await client.places(1) == [(source_id, 1)]


@pytest.mark.slow
async def test_what_came_while_a_client_was_away_comes_first(database: Database, port: int) -> None:
    async with asked(port) as client:
        await landed_and_matched(database, "a", "b")
        before = await client.places(1)
    await landed_and_matched(database, "c", "d")

    async with asked(port, last_id=client.last_id) as again:
        after = await again.places(3)
        await nothing_more(again, database)

    assert before + after == [("a", 1), ("b", 1), ("c", 1), ("d", 1)]


@pytest.mark.slow
async def test_a_client_that_left_before_the_first_event_misses_none(database: Database, port: int) -> None:
    last_id = await left_after(port)
    await landed_and_matched(database, "a")

    async with asked(port, last_id=last_id) as again:
        assert await again.places(1) == [("a", 1)]
        await nothing_more(again, database)


@pytest.mark.slow
async def test_a_client_that_missed_nothing_gets_nothing_twice(database: Database, port: int) -> None:
    async with asked(port) as client:
        await landed_and_matched(database, "a")
        await client.events(1)

    async with asked(port, last_id=client.last_id) as again:
        start = await again.block()
        await nothing_more(again, database)

    assert start.id == client.last_id


@pytest.mark.slow
async def test_a_page_can_begin_at_an_id_in_the_address_and_its_browser_goes_on_from_the_header(
    database: Database, port: int
) -> None:
    last_id = await left_after(port)
    await landed_and_matched(database, "a", "b")

    async with asked(port, f"/?lastEventId={last_id}") as client:
        assert await client.places(2) == [("a", 1), ("b", 1)]
    async with asked(port, f"/?lastEventId={last_id}", last_id=client.last_id) as again:
        await nothing_more(again, database)


@pytest.mark.slow
async def test_many_pages_that_were_missed_come_in_order_once(database: Database, port: int) -> None:
    last_id = await left_after(port)
    for _ in range(5):
        await landed_and_matched(database, *"abcdefg" * 10)

    async with asked(port, last_id=last_id) as client:
        places = await client.places(350)
        await nothing_more(client, database)

    assert sorted(places) == [(source, number) for source in "abcdefg" for number in range(1, 51)]
    assert [n for source, n in places if source == "a"] == list(range(1, 51))


def interleave(
    monkeypatch: pytest.MonkeyPatch,
    kind: type,
    name: str,
    *,
    before: Meanwhile | None,
    after: Meanwhile | None,
) -> None:
    """Do something at a step of a client that comes again, once."""
    step, left = getattr(kind, name), [before, after]

    async def instead(self: Any, *args: Any, **options: Any) -> Any:
        todo, left[:] = left[:], [None, None]
        if todo[0] is not None:
            await todo[0]()
        result = await step(self, *args, **options)
        if todo[1] is not None:
            await todo[1]()
        return result

    monkeypatch.setattr(kind, name, instead)


@pytest.mark.slow
@pytest.mark.parametrize(
    "at",
    [
        (StreamClient, "_missed"),  # counts what was missed
        (StreamClient, "_replay"),  # sends it
        (StreamClient, "_join"),  # joins those who listen
        (Listening, "join"),
        (StreamClient, "_live"),  # sends what comes
    ],
)
@pytest.mark.parametrize("when", ["before", "after", "both"])
async def test_nothing_is_lost_or_repeated_whatever_step_events_come_at(
    database: Database, port: int, monkeypatch: pytest.MonkeyPatch, at: tuple[type, str], when: str
) -> None:
    kind, step = at
    last_id = await left_after(port)
    await landed_and_matched(database, "a", "b")

    async def more() -> None:
        await landed_and_matched(database, "a", "b")

    if step == "_live" and when == "after":
        when = "before"  # it ends with the stream
    interleave(
        monkeypatch,
        kind,
        step,
        before=more if when != "after" else None,
        after=more if when != "before" else None,
    )
    rounds = 3 if when == "both" and step != "_live" else 2
    async with asked(port, last_id=last_id) as client:
        places = await client.places(2 * rounds)
        await nothing_more(client, database)

    assert places == [(source, number) for number in range(1, rounds + 1) for source in "ab"]


@pytest.mark.slow
async def test_events_that_are_read_between_joining_and_replaying_come_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with streaming(database) as (stream, port):
        last_id = await left_after(port)
        await landed_and_matched(database, "a")

        async def more() -> None:
            await landed_and_matched(database, "a", "b")
            last = await settled(database)
            await becomes(lambda: stream._listener.position == last)  # they wait in the buffer

        interleave(monkeypatch, StreamClient, "_join", before=None, after=more)
        async with asked(port, last_id=last_id) as client:
            assert await client.places(3) == [("a", 1), ("a", 2), ("b", 1)]
            await nothing_more(client, database)


@pytest.mark.slow
async def test_a_client_that_was_ahead_of_this_process_gets_nothing_twice(database: Database) -> None:
    async with streaming(database) as (_, port), asked(port) as client:
        await landed_and_matched(database, "a")
        await client.events(1)
        behind = await settled(database)
        await landed_and_matched(database, "a", "a")
        await client.events(2)
    async with database.session() as matching:
        await matching.begin()
        # As one that begins to match, and has looked the number up before those events were matched.
        await matching.fetchval(HOLD, behind)
        assert await settled(database) == behind
        async with streaming(database) as (stream, port), asked(port, last_id=client.last_id) as again:
            await again.block()
            await becomes(lambda: stream._listener.position == behind)
            await matching.rollback()
            await nothing_more(again, database)


async def test_matches_that_commit_in_another_order_than_their_numbers_all_come(
    database: Database, port: int
) -> None:
    last_id = await left_after(port)
    match = (
        "SELECT projections._match_log_v1('{plane}', ARRAY[e.source_id], ARRAY[e.seq_nr], ARRAY[e.db_timestamp], "
        "ARRAY[e.slice], ARRAY[e.event_type]) FROM projections.events AS e WHERE e.source_id = $1"
    )
    async with database.transaction() as writing:
        await writing.execute(
            "SELECT projections.append_events_v1('{late,early}', '{plane,plane}', '{Landed,Landed}', '{1,2}')"
        )
    async with database.session() as late:
        await late.begin()
        await late.execute(match, "late")
        await execute(database, match, "early")
        async with asked(port, last_id=last_id) as during:
            assert (await during.block()).id == last_id
            await late.commit()
            assert await during.places(2) == [("late", 1), ("early", 1)]


@pytest.mark.slow
async def test_an_id_of_one_process_is_good_in_another(database: Database) -> None:
    async with streaming(database) as (_, port):
        last_id = await left_after(port)
    await landed_and_matched(database, "a")

    async with streaming(database) as (_, port), asked(port, last_id=last_id) as client:
        assert await client.places(1) == [("a", 1)]


async def refused(port: int, last_id: str, path: str = "/") -> None:
    async with asked(port, path, last_id=last_id) as client:
        assert (client.status, await client.body()) == (204, b"")
        assert "content-type" not in client.headers


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "x",
        "1",
        "-",
        "1-",
        "-1",
        "1-2",
        "1-2-3",
        "1-2-3-",
        "1-2-3-4-5",
        "1-2-3-" + "9" * 18,
        "1- 2",
        "+1-2",
        "1-2x",
        "9" * 30 + "-1",
        "1-" + "9" * 18,
        "0-0-0-0",
        "%00",
        "1-2;",
    ],
)
async def test_an_id_that_no_stream_has_said_can_not_be_resumed(
    database: Database, port: int, text: str
) -> None:
    await left_after(port)

    await refused(port, text)
    await refused(port, "", f"/?lastEventId={quote(text)}")


async def test_digits_of_other_scripts_are_no_id(port: int) -> None:
    await refused(port, "", f"/?lastEventId={quote('١-٢')}")  # noqa: RUF001 - that is the point


async def test_no_id_begins_anew(port: int) -> None:
    async with asked(port, last_id="") as client:
        assert client.status == 200


async def test_the_id_of_another_subscription_can_not_be_resumed(database: Database) -> None:
    def mine(request: StreamRequest) -> Interest:
        return Interest(topics=[request.path.strip("/")])

    async with streaming(database, subscription=mine) as (_, port):
        async with asked(port, "/Landed") as client:
            await client.block()

        await refused(port, client.last_id or "", "/Started")


async def test_the_id_of_another_group_can_not_be_resumed(database: Database) -> None:
    async with database.session() as session:
        other = await subscribe(session, "other", topics=["Landed"])
    async with streaming(database) as (_, port):
        await left_after(port)

        await refused(port, f"{other}-0-0-0")


async def test_a_subscription_that_has_expired_can_not_be_resumed(database: Database, port: int) -> None:
    last_id = await left_after(port)
    await execute(database, "UPDATE projections.subscriptions SET active_at = now() - interval '1 hour'")
    assert await fetchval(database, "SELECT projections._expire_subscriptions_v1()") == 1

    await refused(port, last_id)


async def test_a_client_that_missed_as_many_as_it_may_gets_them_and_one_more_can_not_be_resumed(
    database: Database,
) -> None:
    async with streaming(database, settings=quick(replay_limit=3)) as (_, port):
        last_id = await left_after(port)
        await landed_and_matched(database, "a", "b", "c")
        async with asked(port, last_id=last_id) as client:
            assert len(await client.places(3)) == 3
        await landed_and_matched(database, "d")

        await refused(port, last_id)


@pytest.mark.slow
async def test_others_matches_do_not_count_as_missed(database: Database) -> None:
    def mine(request: StreamRequest) -> Interest:
        return Interest(contains={"for": request.path.strip("/")})

    async with streaming(database, subscription=mine, settings=quick(replay_limit=3)) as (_, port):
        async with asked(port, "/me") as client, asked(port, "/you") as other:
            await client.block()
            await other.block()
        await landed_and_matched(database, *"abcdefgh", **{"for": "you"})
        await landed_and_matched(database, "mine", **{"for": "me"})

        async with asked(port, "/me", last_id=client.last_id) as again:
            assert await again.places(1) == [("mine", 1)]
        await refused(port, other.last_id or "", "/you")


@pytest.mark.slow
async def test_what_was_dropped_with_its_partition_can_not_be_resumed(database: Database, port: int) -> None:
    last_id = await left_after(port)
    await landed_and_matched(database, "a", "b")
    async with asked(port, last_id=last_id) as client:
        await client.events(2)
    last = int((client.last_id or "").split("-")[1])
    await execute(database, "DELETE FROM projections.matches")
    await execute(database, "UPDATE projections.subscription_groups SET dropped_until = $1", last)

    await refused(port, last_id)
    async with asked(port, last_id=client.last_id) as again:  # it has seen what was dropped
        await nothing_more(again, database)


@pytest.mark.slow
async def test_what_matched_but_has_left_the_journal_can_not_be_resumed(
    database: Database, port: int
) -> None:
    last_id = await left_after(port)
    await landed_and_matched(database, "a", "b")
    await execute(database, "DELETE FROM projections.events WHERE source_id = 'a'")

    await refused(port, last_id)


@pytest.mark.slow
async def test_an_event_that_is_dropped_during_the_replay_is_left_out_alone(
    database: Database, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    last_id = await left_after(port)
    await landed_and_matched(database, "a", "b", "c")

    async def drop() -> None:
        await execute(database, "DELETE FROM projections.events WHERE source_id = 'b'")

    interleave(monkeypatch, StreamClient, "_missed", before=None, after=drop)
    async with asked(port, last_id=last_id) as client:
        assert await client.places(2) == [("a", 1), ("c", 1)]


@pytest.mark.slow
async def test_a_lost_connection_during_the_replay_ends_the_stream_and_nothing_is_missed(
    database: Database, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    last_id = await left_after(port)
    await landed_and_matched(database, *"abc" * 40)

    async def cut() -> None:
        kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        await execute(database, f"{kill} AND pid <> pg_backend_pid()")
        await until(database, "SELECT TRUE")

    interleave(monkeypatch, StreamClient, "_tell", before=None, after=cut)
    places: list[tuple[str, int]] = []
    async with asyncio.timeout(300):
        while len(places) < 120:
            async with asked(port, last_id=last_id) as client:
                while (block := await client.block()).retry is None or block.id is not None:
                    places += [block.place] if block.data else []
                    if len(places) == 120:
                        break
                last_id = client.last_id or ""

    assert sorted(set(places)) == sorted(places)


@pytest.mark.slow
async def test_clients_come_and_go_while_events_come_and_each_gets_all(dsn: str, database: Database) -> None:
    """Connections that are given up after every few events, for as long as events come."""
    async with (
        Listener(database, "feed", settings=QUICK) as listener,
        streaming(database, listener=listener) as (_, port),
    ):
        last_id = await left_after(port)
        written = asyncio.create_task(write(database, 40))

        async def follow() -> list[tuple[str, int]]:
            places: list[tuple[str, int]] = []
            last = last_id
            while len(places) < 200:
                async with asked(port, last_id=last) as client:
                    places += await client.places(min(7, 200 - len(places)))
                    last = client.last_id or last
            return places

        async with asyncio.timeout(300):
            followed = await asyncio.gather(*(follow() for _ in range(4)))
            await written

    assert all(places == followed[0] for places in followed)
    for source in "abcde":
        assert [n for found, n in followed[0] if found == source] == list(range(1, 41))


async def write(database: Database, rounds: int) -> None:
    for _ in range(rounds):
        await landed_and_matched(database, *"abcde")
