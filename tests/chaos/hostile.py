"""
A tenant that does its worst, within all that a tenant may: its endpoints, its receivers, and what it asks of the API.

Run as a program this is what it makes suffer (``deliver``, ``serve``), or its machine (``attack``). That has the lowest
priority: attackers bring processors of their own.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import httpx

from journal import Database, connect
from projections.failing.retries import Backoff
from projections.http.addresses import Address
from projections.http.serving import serving
from projections.webhooks.addresses import AddressRules
from projections.webhooks.api import TokenAuth, webhooks_app
from projections.webhooks.endpoints import Endpoints, EndpointSettings
from projections.webhooks.retry_policy import RetryPolicy
from projections.webhooks.run import run_webhooks
from projections.webhooks.sender import HttpSender
from tests.fixtures.raw_server import Exchange, RawServer, Step, drip, hang, respond

HOSTILE, FRIENDLY = "hostile", "friendly"
TOKENS = {HOSTILE: "the-token-of-the-hostile-one", FRIENDLY: "the-token-of-the-friendly-one"}
LOCAL = AddressRules(allow=("127.0.0.0/8", "*.test"))

# Each text repeats itself, which is what a search for it takes longest with.
_NEEDLE = "a" * 49 + "b" + "a" * 49
_COSTLY = {"data": {"$or": [{"$in": f"{_NEEDLE}{number}"} for number in range(3)]}}
"""All that a filter may look at, of a message of a megabyte; and it wants none."""
_BEYOND = {"data": {"$or": [{"$in": f"{_NEEDLE}{number}"} for number in range(98)]}}
LARGE_TEXT = "a" * 1_000_000
MANY_VALUES = [1.5] * 250_000
_LARGE = [
    json.dumps({"topic": "large", "data": data}).replace(" ", "").encode()
    for data in (LARGE_TEXT, MANY_VALUES)
]
_INVALID = (
    b'{"topic":"large","data":{},"metadata":{"a":[' + b",".join([b"{}"] * 330_000) + b"]}}",
    b'{"topic":[' + b",".join([b"1"] * 500_000) + b'],"data":1}',
    b"{" + b"".join(b'"%d":1,' % number for number in range(100_000)) + b'"topic":"a"}',
    b'{"topic":"large","data":' + b"[" * 500_000 + b"]" * 500_000 + b"}",
)
_POLICY = RetryPolicy(
    schedule=(timedelta(seconds=1),) * 24, jitter=0, timeout=timedelta(seconds=30), breaker_failures=100,
    breaker_pause=Backoff(timedelta(seconds=5), timedelta(seconds=5), 0), disable_after_failures=None,
    disable_after=None,
)  # fmt: skip
"""At the bounds of a fresh installation."""
_WIDE = 50


async def make_endpoints(database: Database, port: int) -> None:
    """Make as many endpoints as a tenant may, each at a limit; for large messages, or for many."""
    endpoints = Endpoints(database, rules=LOCAL, allow_http=True)
    kinds: list[tuple[int, str, dict[str, Any]]] = [
        (30, "http://127.0.0.2:{port}/fail", {"topics": ("large",), "filter": _COSTLY}),
        (10, "http://127.0.0.2:{port}/fail", {"topics": ("large",), "filter": _BEYOND}),
        (2, "http://127.0.0.2:{port}/fail", {"topics": ("large",)}),
        (15, "http://127.0.0.2:{port}/hang", {"topics": ("small",)}),
        (15, "http://slow{number}.test:{port}/fail", {"topics": ("small",)}),
        (10, "http://127.0.0.3:{port}/flood", {"topics": ("small",)}),
        (8, "http://127.0.0.3:{port}/drip", {"topics": ("small",)}),
        (10, "http://127.0.0.2:{port}/fail", {"topics": ("small",)}),
    ]
    for count, url, asked in kinds:
        for number in range(count):
            at = url.format(port=port, number=number)
            settings = EndpointSettings(url=at, policy=_POLICY, max_in_flight=_WIDE, **asked)
            await endpoints.create(HOSTILE, settings)


def _flood() -> Step:
    async def step(exchange: Exchange) -> None:
        while True:
            await exchange.send(b"HTTP/1.1 102 Processing\r\n\r\n" * 2000)

    return step


class BadReceiver:
    """Hangs, floods, drips and fails, by the path that is asked for."""

    def __init__(self) -> None:
        self._steps = {"/hang": hang(), "/flood": _flood(), "/drip": drip(timedelta(milliseconds=5), 500)}
        self._fail = respond(500)

    async def __call__(self, exchange: Exchange) -> None:
        await self._steps.get(exchange.request.target, self._fail)(exchange)


async def _again(do: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await do()
        except (OSError, EOFError, httpx.HTTPError):
            await asyncio.sleep(0.1)


async def _ask(client: httpx.AsyncClient, bodies: Sequence[bytes], pause: float) -> None:
    response = await client.post("/v1/messages", content=random.choice(bodies))
    await asyncio.sleep(pause if response.status_code != 429 else 0.05)


async def _never_finish(port: int) -> None:
    """A connection whose headers come byte by byte."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.4", 0))
    try:
        writer.write(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\n")
        with suppress(TimeoutError):
            while True:
                writer.write(b"X-A: b\r\n")
                await writer.drain()
                async with asyncio.timeout(1):
                    if not await reader.read(1):
                        break
    finally:
        writer.close()
    await asyncio.sleep(1)


async def attack(port: str) -> None:
    """Receive badly, and ask the API badly, until killed."""
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    headers = {"authorization": f"Bearer {TOKENS[HOSTILE]}", "content-type": "application/json"}
    limits = httpx.Limits(max_connections=100)
    async with (
        RawServer(BadReceiver(), host="") as server,
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False, limits=limits
        ) as client,
    ):
        print(server.port, flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        small = [b'{"topic":"small","data":{}}']
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(_again(lambda: _ask(client, small, 0)))
            for _ in range(2):
                group.create_task(_again(lambda: _ask(client, _LARGE, 0)))
                group.create_task(_again(lambda: _ask(client, _INVALID, 0)))
            for _ in range(300):
                group.create_task(_again(lambda: _never_finish(int(port))))


async def serve(dsn: str) -> None:
    """The API, as an application would have it for its tenants."""
    async with connect(dsn) as database:
        app = webhooks_app(database, TokenAuth(tenant_tokens=TOKENS), rules=LOCAL, allow_http=True)
        async with serving(Address("127.0.0.1", 0), app, None) as address:
            print(address.port, flush=True)
            await asyncio.Event().wait()


async def _resolve(host: str) -> Sequence[str]:
    if host.startswith("slow"):
        await asyncio.sleep(20)  # and then
    return ["127.0.0.2"]


async def deliver(dsn: str) -> None:
    """All of webhooks, with the settings that everybody begins with."""
    async with connect(dsn) as database, HttpSender(LOCAL, resolve=_resolve) as sender:
        print("delivering", flush=True)
        await run_webhooks(database, sender)


if __name__ == "__main__":
    asyncio.run({"deliver": deliver, "serve": serve, "attack": attack}[sys.argv[1]](sys.argv[2]))
