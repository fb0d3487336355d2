"""The receiver that tests and users try webhooks out with: what it verifies, counts and fails."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from projections.http.connection_limits import ConnectionLimits
from projections.http.serving import AddressInUse
from projections.webhooks.addresses import AddressRules
from projections.webhooks.outgoing import Outgoing
from projections.webhooks.receiver import Received, Receiver
from projections.webhooks.response_reading import Reply
from projections.webhooks.sender import HttpSender
from projections.webhooks.signed_request import gzip_body
from projections.webhooks.signing import generate_secret, sign
from tests.fixtures.commands import called

SECRET = generate_secret()
BODY = b'{"type":"flight.delayed","data":{"minutes":12}}'


class Posting:
    """Sends signed requests to a receiver."""

    def __init__(self, sender: HttpSender) -> None:
        self._sender = sender

    async def __call__(
        self, receiver: Receiver, message_id: str = "m1", *, signed: bytes = BODY, body: bytes = BODY,
        encoding: str = "identity",
    ) -> Reply:  # fmt: skip
        now = int(time.time())
        headers = {
            "webhook-id": message_id, "webhook-timestamp": str(now), "content-encoding": encoding,
            "webhook-signature": sign([SECRET], message_id, now, signed),
        }  # fmt: skip
        return await self._sender.send(Outgoing(receiver.url, tuple(headers.items()), body))


@pytest.fixture
async def post() -> AsyncIterator[Posting]:
    async with HttpSender(AddressRules(allow=("127.0.0.0/8",))) as sender:
        yield Posting(sender)


async def test_it_keeps_what_it_got_verified(post: Posting) -> None:
    async with Receiver(SECRET) as receiver:
        reply = await post(receiver)

    (one,) = receiver.received
    assert (reply.code, one.status, one.accepted, one.verification) == ("204", 204, True, "verified")
    assert (one.message_id, one.topic, one.data(), one.body) == (
        "m1",
        "flight.delayed",
        {"minutes": 12},
        BODY,
    )


async def test_a_changed_body_is_refused_with_the_reason_and_does_not_count(post: Posting) -> None:
    async with Receiver(SECRET) as receiver:
        reply = await post(receiver, body=BODY.replace(b"12", b"13"))

    (one,) = receiver.received
    assert (reply.code, one.verification, one.accepted) == ("401", "refused", False)
    assert "no signature of this webhook is by a known secret" in reply.body == one.reason
    assert (receiver.totals.refused, receiver.totals.messages) == (1, 0)


async def test_without_secrets_nothing_is_checked(post: Posting) -> None:
    async with Receiver() as receiver:
        await post(receiver, signed=b"another")

    assert (receiver.received[0].verification, receiver.totals.messages) == ("unchecked", 1)


async def test_any_of_several_secrets_verifies(post: Posting) -> None:
    async with Receiver([generate_secret(), SECRET.reveal()]) as receiver:
        assert (await post(receiver)).code == "204"


async def test_a_compressed_body_is_verified_as_it_was_before(post: Posting) -> None:
    async with Receiver(SECRET) as receiver:
        await post(receiver, body=gzip_body(BODY), encoding="gzip")

    assert (receiver.received[0].verification, receiver.received[0].body) == ("verified", BODY)
    assert gzip.decompress(gzip_body(BODY)) == BODY


async def test_a_message_that_comes_again_is_accepted_and_is_a_duplicate(post: Posting) -> None:
    async with Receiver(SECRET) as receiver:
        replies = [await post(receiver), await post(receiver), await post(receiver, "m2")]

    assert [reply.code for reply in replies] == ["204", "204", "204"]
    assert [(one.sending, one.duplicate) for one in receiver.received] == [(1, False), (2, True), (1, False)]
    assert (receiver.totals.messages, receiver.totals.duplicates) == (2, 1)


async def test_a_script_fails_the_first_requests_and_a_retry_is_no_duplicate(post: Posting) -> None:
    async with Receiver(SECRET, script=[503, 429]) as receiver:
        replies = [await post(receiver) for _ in range(3)]

    assert [reply.code for reply in replies] == ["503", "429", "204"]
    assert [(one.sending, one.duplicate) for one in receiver.received] == [(1, False), (2, False), (3, False)]
    assert (receiver.totals.failed, receiver.totals.messages, receiver.totals.duplicates) == (2, 1, 0)


async def test_it_can_be_told_to_fail_while_it_runs(post: Posting) -> None:
    async with Receiver() as receiver:
        before = await post(receiver)
        receiver.fail(410)
        after = await post(receiver)

    assert (before.code, after.code) == ("204", "410")


@pytest.mark.slow
async def test_chance_fails_the_same_requests_with_the_same_seed(post: Posting) -> None:
    async def codes(seed: int) -> list[str]:
        async with Receiver(fail_rate=0.5, status=500, seed=seed) as receiver:
            return [(await post(receiver, f"m{number}")).code for number in range(16)]

    first = await codes(7)
    assert (await codes(7), set(first)) == (first, {"204", "500"})
    assert await codes(8) != first


async def test_waiting_ends_when_so_many_messages_were_accepted(post: Posting) -> None:
    async with Receiver(script=[500]) as receiver:
        waiting = asyncio.create_task(receiver.wait_for(1))
        await post(receiver)
        await receiver.wait_for_requests(1)
        failed_only = waiting.done()
        await post(receiver)
        async with asyncio.timeout(300):
            await waiting

    assert not failed_only


async def test_answers_are_delayed(post: Posting) -> None:
    async with Receiver(delay=timedelta(milliseconds=50)) as receiver:
        reply = await post(receiver)

    assert reply.took >= timedelta(milliseconds=50)


async def test_it_keeps_the_newest_and_counts_all(post: Posting) -> None:
    async with Receiver(keep=2) as receiver:
        for number in range(4):
            await post(receiver, f"m{number}")

    assert [one.message_id for one in receiver.received] == ["m2", "m3"]
    assert receiver.totals.requests == 4


async def test_each_request_is_told_when_it_was_answered(post: Posting) -> None:
    told: list[Any] = []
    async with Receiver(on_received=told.append) as receiver:
        await post(receiver)

    assert told == receiver.received


async def test_a_body_that_is_no_json_has_no_topic(post: Posting) -> None:
    async with Receiver(SECRET) as receiver:
        await post(receiver, signed=b"\xff", body=b"\xff")

    assert (receiver.received[0].topic, receiver.received[0].data()) == (None, None)


async def test_a_port_that_is_taken_is_named() -> None:
    async with Receiver() as receiver:
        port = int(receiver.url.rstrip("/").rpartition(":")[2])
        with pytest.raises(AddressInUse, match=f"127.0.0.1:{port}"):
            async with Receiver(port=port):
                pass


def test_a_share_of_failures_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"0 to 1, not 1\.5"):
        Receiver(fail_rate=1.5)


HEAD = b"POST / HTTP/1.1\r\nhost: localhost\r\n"
WHOLE = HEAD + b"content-length: 2\r\n\r\n{}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "sent", "answer"),
    [
        ("head", b"", b""),
        ("head", HEAD, b""),
        ("body", HEAD + b"content-length: 1000\r\n\r\n{", b""),
        ("idle", WHOLE, b"HTTP/1.1 204"),
    ],
    ids=["nothing", "half a head", "half a body", "no other request"],
)
async def test_a_client_that_leaves_something_undone_is_cut_off(
    limit: str, sent: bytes, answer: bytes
) -> None:
    hour = timedelta(hours=1)
    limits = replace(ConnectionLimits(head=hour, body=hour, idle=hour), **{limit: timedelta(milliseconds=50)})
    async with Receiver(limits=limits) as receiver:
        reader, writer = await connected(receiver)
        writer.write(sent)
        assert (await ended(reader))[:12] == answer
        writer.close()


async def test_a_connection_beyond_the_limit_takes_the_place_of_the_one_that_waits_longest() -> None:
    hour = timedelta(hours=1)
    limits = ConnectionLimits(per_peer=2, head=hour, body=hour)
    async with asyncio.timeout(300), Receiver(limits=limits) as receiver:
        (oldest, first), (_, second) = await connected(receiver), await connected(receiver)
        for writer in (first, second):
            writer.write(HEAD)
        reader, writer = await connected(receiver)
        writer.write(WHOLE)
        assert await ended(oldest) == b""
        assert (await reader.readline()).startswith(b"HTTP/1.1 204")
        for each in (first, second, writer):
            each.close()


async def test_where_an_answer_is_made_for_all_a_new_one_is_told_to_come_again() -> None:
    begun, finish = asyncio.Event(), asyncio.Event()

    class Slow(Receiver):
        async def _keep_one(self, one: Received) -> None:
            begun.set()
            await finish.wait()
            await super()._keep_one(one)

    async with asyncio.timeout(300), Slow(limits=ConnectionLimits(per_peer=1)) as receiver:
        reader, working = await connected(receiver)
        working.write(WHOLE)
        await begun.wait()
        refused, writer = await connected(receiver)
        assert (await ended(refused)).startswith(b"HTTP/1.1 503")
        finish.set()
        assert (await reader.readline()).startswith(b"HTTP/1.1 204")
        for each in (working, writer):
            each.close()


def test_the_command_listens_within_the_limits_of_all_that_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def none(*_: Any, **facts: Any) -> Any:
        given.update(facts)
        raise AddressInUse("not here")

    monkeypatch.setattr("projections.webhooks.commands.listening.Receiver", none)
    assert called("webhooks", "listen", "--http", "127.0.0.1:0").returncode == 1
    assert given["limits"] == ConnectionLimits()


async def connected(receiver: Receiver) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = receiver.url.removeprefix("http://").rstrip("/").partition(":")
    return await asyncio.open_connection(host, int(port))


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What came until the other side has ended it."""
    found = b""
    with suppress(ConnectionError):
        while part := await reader.read(1000):
            found += part
    return found
