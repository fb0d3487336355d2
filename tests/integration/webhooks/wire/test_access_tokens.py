"""Access tokens of OAuth: had once, kept, renewed where they are refused; and token URLs that do their worst."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet

from journal import Database, InvalidValue
from projections.webhooks.addresses import AddressRules
from projections.webhooks.credentials import OAuthClient, OAuthFacts
from projections.webhooks.encryption import FernetCipher
from projections.webhooks.outgoing import Outgoing
from tests.fixtures.connect_proxy import ConnectProxy
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.raw_server import (
    Exchange,
    RawServer,
    drip,
    hang,
    redirect,
    reset,
    respond,
    stream,
)
from tests.fixtures.webhook_delivery import delivering, endpoints, finished, hook, rows
from tests.fixtures.webhook_delivery import sent as messages_sent
from tests.fixtures.webhooks_wire import outgoing, sending

SECRET = "cl1ent-s3cret/+"


def token(value: str = "t0ken-1", **more: Any) -> Any:
    return respond(
        200, json.dumps({"access_token": value, "token_type": "Bearer", "expires_in": 3600} | more).encode()
    )


def tokens() -> Any:
    """A new one for each request."""
    count = iter(range(1, 1000))

    async def step(exchange: Exchange) -> None:
        await token(f"t0ken-{next(count)}")(exchange)

    return step


def asking(url: str, server: RawServer, **facts: Any) -> Outgoing:
    client = OAuthClient(OAuthFacts(token_url=server.url, client_id="acme", **facts), SECRET)
    return outgoing(url)._replace(oauth=client, headers=(("Authorization", "Bearer old"), ("x-a", "b")))


async def test_a_token_is_had_once_and_sent_with_each_request() -> None:
    async with RawServer(respond(204)) as receiver, RawServer(tokens()) as server, sending() as sender:
        request = asking(receiver.url, server, scope="hooks write")
        for _ in range(3):
            assert (await sender.send(request)).code == "204"
    assert [one.header("Authorization") for one in receiver.requests] == ["Bearer t0ken-1"] * 3
    assert receiver.requests[0].header("x-a") == "b"
    (asked,) = server.requests
    assert asked.body == b"grant_type=client_credentials&scope=hooks+write"
    assert asked.header("Authorization") == "Basic YWNtZTpjbDFlbnQtczNjcmV0JTJGJTJC"
    assert asked.header("Content-Type") == "application/x-www-form-urlencoded"


async def test_the_secret_may_stand_in_the_body() -> None:
    async with RawServer(respond(204)) as receiver, RawServer(token()) as server, sending() as sender:
        await sender.send(asking(receiver.url, server, method="post"))
    (asked,) = server.requests
    assert asked.header("Authorization") is None
    assert asked.body == b"grant_type=client_credentials&client_id=acme&client_secret=cl1ent-s3cret%2F%2B"


async def test_many_that_want_one_at_a_time_ask_once() -> None:
    async with RawServer(respond(204)) as receiver, RawServer(tokens()) as server, sending() as sender:
        request = asking(receiver.url, server)
        replies = await asyncio.gather(*(sender.send(request) for _ in range(10)))
    assert {reply.code for reply in replies} == {"204"}
    assert len(server.requests) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "asked"),
    [({"expires_in": 0}, 2), ({"expires_in": -5}, 2), ({"expires_in": "3600"}, 1), ({"expires_in": "soon"}, 1),
     ({"expires_in": 1e400}, 1), ({"expires_in": None}, 1), ({"expires_in": [1]}, 1)],
)  # fmt: skip
async def test_it_is_kept_for_as_long_as_it_says(said: dict[str, Any], asked: int) -> None:
    async with RawServer(respond(204)) as receiver, RawServer(token(**said)) as server, sending() as sender:
        for _ in range(2):
            assert (await sender.send(asking(receiver.url, server))).code == "204"
    assert len(server.requests) == asked


async def test_one_that_is_refused_is_renewed_once() -> None:
    async with (
        RawServer(respond(204), respond(401), respond(204), respond(401), respond(401)) as receiver,
        RawServer(tokens()) as server,
        sending() as sender,
    ):
        request = asking(receiver.url, server)
        codes = [(await sender.send(request)).code for _ in range(3)]
    assert codes == ["204", "204", "401"]
    sent = [one.header("Authorization") for one in receiver.requests]
    assert sent == [f"Bearer t0ken-{n}" for n in (1, 1, 2, 2, 3)]


async def test_one_that_was_just_had_is_not_renewed() -> None:
    async with RawServer(respond(401)) as receiver, RawServer(tokens()) as server, sending() as sender:
        assert (await sender.send(asking(receiver.url, server))).code == "401"
    assert (len(receiver.requests), len(server.requests)) == (1, 1)


async def test_tenants_and_secrets_have_tokens_of_their_own() -> None:
    async with RawServer(respond(204)) as receiver, RawServer(tokens()) as server, sending() as sender:
        request = asking(receiver.url, server)
        assert request.oauth is not None
        for each in (
            request,
            request._replace(tenant="globex"),
            request._replace(oauth=OAuthClient(request.oauth.facts, "other")),
        ):
            await sender.send(each)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (respond(400, b'{"error": "cl1ent-s3cret/+ is wrong"}'), "answered 400"),
        (redirect("http://169.254.169.254/latest"), "answered 302"),
        (respond(201, b'{"access_token": "t"}'), "answered 201"),
        (respond(200, b"<html>"), "without an access_token"),
        (respond(200, b'["t"]'), "without an access_token"),
        (respond(200, b"[" * 50_000), "without an access_token"),
        (respond(200, b'{"access_token": "a\\r\\nb: c"}'), "without an access_token"),
        (respond(200, json.dumps({"access_token": "t" * 8001}).encode()), "without an access_token"),
        (respond(200, json.dumps({"access_token": 5}).encode()), "without an access_token"),
        (respond(200, b'{"access_token": "t", "token_type": "mac"}'), "another kind of token"),
        (stream(50_000_000), "without an access_token"),
        (reset(), "gave no answer: connection_reset"),
    ],
)
async def test_a_token_url_that_gives_none_fails_the_attempt_and_its_answer_is_not_shown(
    step: Callable[[Exchange], Any], said: str
) -> None:
    async with RawServer(respond(204)) as receiver, RawServer(step) as server, sending() as sender:
        reply = await sender.send(asking(receiver.url, server))
    assert (reply.code, reply.status, receiver.requests) == ("token_error", None, [])
    assert reply.body.startswith("no access token: the token URL ")
    assert said in reply.body
    assert SECRET not in repr(reply)


@pytest.mark.slow
@pytest.mark.parametrize("step", [hang(), drip(timedelta(milliseconds=10))], ids=["hangs", "drips"])
async def test_a_token_url_that_never_ends_costs_the_time_of_the_attempt(step: Any) -> None:
    timeout = timedelta(milliseconds=400)
    async with RawServer(respond(204)) as receiver, RawServer(step) as server, sending() as sender:
        reply = await sender.send(asking(receiver.url, server)._replace(timeout=timeout))
    assert (reply.code, receiver.requests) == ("token_error", [])
    assert timedelta(0) < reply.took <= timeout


async def test_a_token_url_is_judged_as_an_endpoint_is() -> None:
    rules = AddressRules(allow=("hooks.example",))

    async def resolve(_: str) -> list[str]:
        return ["127.0.0.1"]

    async with RawServer(respond(204)) as receiver, RawServer(token()) as server:
        async with sending(rules, resolve=resolve) as sender:
            reply = await sender.send(asking(f"http://hooks.example:{receiver.port}/", server))
        assert (reply.code, reply.body) == (
            "token_error", "no access token: the token URL gave no answer: blocked_address",
        )  # fmt: skip
        assert server.requests == []


async def test_it_is_asked_through_the_proxy() -> None:
    async with (
        RawServer(respond(204)) as receiver,
        RawServer(token()) as server,
        ConnectProxy() as proxy,
        sending(proxy=proxy.url()) as sender,
    ):
        assert (await sender.send(asking(receiver.url, server))).code == "204"
    assert proxy.targets == [f"127.0.0.1:{one.port}" for one in (server, receiver)]


async def test_a_receiver_that_shows_the_token_back_does_not_get_it_into_the_log(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async def echo(exchange: Exchange) -> None:
        await respond(200, (exchange.request.header("Authorization") or "").encode())(exchange)

    caplog.set_level(logging.DEBUG)
    cipher = FernetCipher([Fernet.generate_key().decode()])
    async with RawServer(echo) as receiver, RawServer(token("t0ken-1")) as server, sending() as sender:
        endpoint_id, _ = await hook(database, receiver.url)
        await execute(
            database, "UPDATE projections.webhook_secrets SET secret = $1",
            cipher.encrypt("whsec_" + "A" * 32),
        )  # fmt: skip
        service = endpoints(database, cipher=cipher)
        facts = OAuthFacts(token_url=server.url, client_id="acme")
        await service.set_oauth("acme", endpoint_id, facts, SECRET)
        await messages_sent(database)
        async with delivering(database, sender, cipher=cipher):
            await finished(database)
    assert receiver.requests[0].header("Authorization") == "Bearer t0ken-1"
    (found,) = await rows(database, "SELECT code, response FROM projections.webhook_attempts")
    assert (found["code"], found["response"]) == ("200", "Bearer [access token]")
    stored = await fetchval(database, "SELECT secret FROM projections.webhook_credentials")
    assert stored.startswith("fernet:")
    one = await service.get("acme", endpoint_id)
    assert one.oauth is not None
    assert (one.oauth.client_id, one.oauth.token_url) == ("acme", server.url)
    for secret in (SECRET, "t0ken-1"):
        assert secret not in caplog.text
        assert secret not in repr(one)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/token",
        "https://10.0.0.1/token",
        "https://u:p@example.com/",
        "ftp://x",
        "https://localhost/",
    ],
)
async def test_a_token_url_that_may_not_be_asked_is_refused(database: Database, url: str) -> None:
    from projections.webhooks.endpoints import Endpoints

    endpoint_id, _ = await hook(database, "http://127.0.0.1:8080/")
    with pytest.raises(InvalidValue):
        await Endpoints(database).set_oauth(
            "acme", endpoint_id, OAuthFacts(token_url=url, client_id="c"), SECRET
        )
    for secret in ("", "a\nb", "é", "x" * 4097):
        with pytest.raises(InvalidValue, match="1 to 4,096 characters") as refused:
            await Endpoints(database).set_oauth(
                "acme", endpoint_id, OAuthFacts(token_url="https://example.com/", client_id="c"), secret
            )
        assert secret == "" or secret not in str(refused.value)
