"""Bad input, continued from bad_input.py: endpoints, messages, deliveries and schedules of webhooks; receiving."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography.fernet import Fernet

from journal import Database
from projections.webhooks import (
    AddressRules,
    Deliveries,
    DeliveryFilter,
    Endpoints,
    EndpointSettings,
    Schedules,
    generate_secret,
    send,
    sign,
    verify,
)
from projections.webhooks.api import TokenAuth
from projections.webhooks.claims import claim
from projections.webhooks.encryption import FernetCipher
from projections.webhooks.log import EventsRequest, PostgresLog
from tests.fixtures.webhooks import MARGIN, deliver_events, endpoint
from tests.integration.database.bad_input import Bench, case, told

_URL = "https://example.com/hooks"
_EP = "ep_" + "0" * 32
_STORED = (
    "SELECT (SELECT count(*) FROM projections.webhook_endpoints) + (SELECT count(*) FROM projections.webhook_schedules)"
    " + (SELECT count(*) FROM projections.events)"
)


def refused(what: str, work: Callable[[Database], Awaitable[Any]], stored: int = 0) -> None:
    """A case that is refused: no endpoint, schedule or message comes of it."""

    @case(what)
    async def attempt(bench: Bench) -> str:
        async with bench.connect() as database:
            message = await told(work(database))
            async with database.session() as session:
                assert await session.fetchval(_STORED) == stored
        return message


def refused_endpoint(what: str, **values: Any) -> None:
    options = {name: values.pop(name) for name in ("secret",) if name in values}
    settings = EndpointSettings(**{"url": _URL} | values)
    refused(what, lambda database: Endpoints(database).create("acme", settings, **options))


def refused_message(what: str, tenant: str = "acme", topic: str = "a", **options: Any) -> None:
    async def work(database: Database) -> None:
        async with database.transaction() as session:
            await send(session, tenant, topic, {}, **options)

    refused(what, work)


def refused_schedule(what: str, cron: str = "@daily", zone: str = "UTC") -> None:
    refused(
        what,
        lambda database: Schedules(database).create("acme", "n", cron, timezone=zone, topic="a", data={}),
    )


refused_endpoint("a URL without TLS", url="http://example.com/hooks")
refused_endpoint("a URL with a private address", url="https://10.0.0.1/hooks")
refused_endpoint("a URL with an address in disguise", url="https://2130706433/hooks")
refused_endpoint("a URL of this machine", url="https://localhost/hooks")
refused_endpoint("a URL with a password", url="https://user:password@example.com/hooks")
refused_endpoint("a URL with the port of a database", url="https://example.com:5432/hooks")
refused_endpoint("a header that is the sender's", headers={"Webhook-Id": "x"})
refused_endpoint("a header on two lines", headers={"X-A": "a\r\nX-B: b"})
refused_endpoint("a topic of an endpoint with two stars within a segment", topics=("flight.de**",))
refused_endpoint("a filter with an unknown operator", filter={"data": {"n": {"$regex": "a+"}}})
refused_endpoint("a filter on an unknown field", filter={"payload": {"n": 1}})
refused_endpoint("a secret of three bytes", secret="whsec_YWJj")
refused("an endpoint that is not there", lambda database: Endpoints(database).get("acme", _EP))
refused("a schedule that is not there", lambda database: Schedules(database).pause("acme", "sch_1"))
refused("a delivery that is not there", lambda database: Deliveries(database).retry("acme", _EP, "e1"))
refused_message("a message of no tenant", tenant="")
refused_message("a message whose topic has a blank", topic="flight delayed")
refused_message("a message for a time without a zone", not_before=datetime(2026, 1, 31))  # noqa: DTZ001
refused_schedule("a cron line of four fields", cron="30 2 * *")
refused_schedule("a cron line without a tick", cron="0 0 30 2 *")
refused_schedule("a time zone that there is not", zone="Mars/Olympus")
refused(
    "a cursor of the log that is none",
    lambda database: PostgresLog(database).list_events(EventsRequest(next="!!!")),
)
refused(
    "a page of 5,000 deliveries", lambda database: Deliveries(database).list(DeliveryFilter(), limit=5000)
)


async def _replay(database: Database) -> None:
    async for _ in Deliveries(database).retry_many(DeliveryFilter(states=["pending"])):
        pass


refused("sending again what is still to be sent", _replay)


@case("a setting of an endpoint that there is not")
async def _(bench: Bench) -> str:
    async with bench.connect() as database:
        await endpoint(database, _EP)
        return await told(Endpoints(database).change("acme", _EP, {"colour": "red"}))


@case("a message_id used again for other content")
async def _(bench: Bench) -> str:
    async def again(database: Database, topic: str) -> None:
        async with database.transaction() as session:
            await send(session, "acme", topic, {}, message_id="m1")

    async with bench.connect() as database:
        await again(database, "a")
        return await told(again(database, "b"))


@case("a retry of what is on its way")
async def _(bench: Bench) -> str:
    async with bench.connect() as database:
        await endpoint(database, _EP)
        await deliver_events(database, _EP, ids=["e1"])
        async with database.session() as session:
            assert len(await claim(session, 1, MARGIN)) == 1
        return await told(Deliveries(database).retry("acme", _EP, "e1"))


@case("a retry for an endpoint that is disabled")
async def _(bench: Bench) -> str:
    async with bench.connect() as database:
        await endpoint(database, _EP)
        await deliver_events(database, _EP, ids=["e1"])
        await Endpoints(database).set_state("acme", _EP, "disabled")
        return await told(Deliveries(database).retry("acme", _EP, "e1"))


@case("secrets that were encrypted, and no key")
async def _(bench: Bench) -> str:
    cipher = FernetCipher([Fernet.generate_key().decode()])
    async with bench.connect() as database:
        made = await Endpoints(database, cipher).create("acme", EndpointSettings(url=_URL))
        return await told(Endpoints(database).secrets("acme", made.endpoint.endpoint_id))


def refused_here(what: str, work: Callable[[], object]) -> None:
    """A case without a database."""

    @case(what)
    async def attempt(_: Bench) -> str:
        return await told(asyncio.to_thread(work))


def _received(*, body: bytes = b"{}", age: timedelta = timedelta(0)) -> object:
    secret, at = generate_secret(), int((datetime.now(UTC) - age).timestamp())
    signature = sign([secret], "m1", at, b"{}")
    headers = {"webhook-id": "m1", "webhook-timestamp": str(at), "webhook-signature": signature}
    return verify(secret, headers, body)


refused_here("a key of the cipher that is none", lambda: FernetCipher(["secret"]))
refused_here("a network to allow that is none", lambda: AddressRules(allow=("10.0.0.0/33",)))
refused_here("a token of four characters", lambda: TokenAuth(admin_token="1234"))
refused_here("a webhook whose body was changed", lambda: _received(body=b"{ }"))
refused_here("a webhook that was signed an hour ago", lambda: _received(age=timedelta(hours=1)))
refused_here("a webhook without its headers", lambda: verify(generate_secret(), {}, b"{}"))
