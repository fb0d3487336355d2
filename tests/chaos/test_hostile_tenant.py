"""
One tenant at every limit at once, and what another one notices of it: its p99 from asking to receipt.

Two databases with the same processes, one with the hostile tenant and one without, run by turns: what is not measured
is stopped. So both meet the same machine, and the figure is their ratio.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import quantiles

import httpx
import pytest

from journal import connect
from journal.schema import install
from projections.webhooks.endpoints import Endpoints, EndpointSettings
from tests.chaos.chaos import ROOT
from tests.chaos.hostile import FRIENDLY, HOSTILE, LOCAL, TOKENS, make_endpoints
from tests.chaos.server import server_of_its_own
from tests.fixtures.raw_server import Exchange, RawServer

ROUNDS = 12
WINDOW = 4.0
"""Seconds."""
SETTLE = 1.0
"""Of a window, seconds in which what was stopped gets going, and nothing is measured."""
OFTEN = 0.05

_TRIED = """
SELECT DISTINCT e.url FROM projections.webhook_attempts AS a
INNER JOIN projections.webhook_endpoints AS e ON a.endpoint_id = e.endpoint_id WHERE e.tenant = $1
"""
_SET_APART = """
SELECT EXISTS (SELECT FROM projections.webhook_deliveries WHERE tenant = $1 AND last_code = 'filter_too_costly')
"""


class Receiver:
    """When each message came, by its number."""

    def __init__(self) -> None:
        self.came: dict[str, float] = {}

    async def __call__(self, exchange: Exchange) -> None:
        self.came.setdefault(str(exchange.request.header("webhook-id")), time.perf_counter())
        await exchange.send(b"HTTP/1.1 204 No Content\r\n\r\n")


class Stack:
    """A database, its processes and a friendly tenant; and maybe a hostile one."""

    def __init__(self, processes: list[Process], client: httpx.AsyncClient, receiver: Receiver) -> None:
        self.processes = processes
        self.took: list[float] = []
        self._client = client
        self._receiver = receiver

    def signal(self, which: signal.Signals) -> None:
        for process in self.processes:
            process.send_signal(which)

    async def window(self) -> None:
        """Let it go on for a while, and measure."""
        self.signal(signal.SIGCONT)
        await asyncio.sleep(SETTLE)
        sent: dict[str, float] = {}
        async with asyncio.TaskGroup() as group:
            end = time.perf_counter() + WINDOW
            while time.perf_counter() < end:
                group.create_task(self._send(sent))
                await asyncio.sleep(random.uniform(0.5, 1.5) * OFTEN)
        async with asyncio.timeout(300):
            while not sent.keys() <= self._receiver.came.keys():
                await asyncio.sleep(0.05)
        self.signal(signal.SIGSTOP)
        self.took += [self._receiver.came[event_id] - at for event_id, at in sent.items()]

    async def _send(self, sent: dict[str, float]) -> None:
        at = time.perf_counter()
        response = await self._client.post("/v1/messages", json={"topic": "flight.landed", "data": {"n": 1}})
        assert response.status_code == 202, response.text
        sent[response.json()["event_id"]] = at

    def percentile(self, which: int) -> float:
        return quantiles(self.took, n=100, method="inclusive")[which - 1]


async def _start(stack: AsyncExitStack, what: str, argument: str) -> tuple[Process, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.chaos.hostile", what, argument),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.PIPE,
    )  # fmt: skip
    stack.push_async_callback(_kill, process)
    assert process.stdout is not None
    return process, (await process.stdout.readline()).decode().strip()


async def _kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


@asynccontextmanager
async def running(dsn: str, *, hostile: bool) -> AsyncIterator[Stack]:
    """What an application has: a process that delivers, one that serves the API, and its tenants."""
    await asyncio.to_thread(install, dsn)
    async with AsyncExitStack() as stack:
        receiver = Receiver()
        server = await stack.enter_async_context(RawServer(receiver))
        serving, port = await _start(stack, "serve", dsn)
        delivering, _ = await _start(stack, "deliver", dsn)
        processes = [serving, delivering]
        async with connect(dsn) as database:
            endpoints = Endpoints(database, rules=LOCAL, allow_http=True)
            await endpoints.create(FRIENDLY, EndpointSettings(url=server.url))
            if hostile:
                attacking, at = await _start(stack, "attack", port)
                await make_endpoints(database, int(at))
                assert attacking.stdin is not None
                attacking.stdin.write(b"\n")
                processes.append(attacking)
        headers = {"authorization": f"Bearer {TOKENS[FRIENDLY]}"}
        client = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False, timeout=60
        )
        yield Stack(processes, await stack.enter_async_context(client), receiver)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_tenant_at_every_limit_delays_another_one_by_no_more_than_as_much_again() -> None:
    async with (
        server_of_its_own() as (_, alone_dsn),
        server_of_its_own() as (_, together_dsn),
        running(alone_dsn, hostile=False) as alone,
    ):
        alone.signal(signal.SIGSTOP)
        async with running(together_dsn, hostile=True) as together:
            await asyncio.sleep(5)
            together.signal(signal.SIGSTOP)
            for _ in range(ROUNDS):
                await alone.window()
                await together.window()
            report(alone, together)
            await check_hostile(together_dsn)
            assert together.percentile(99) <= 2 * alone.percentile(99)


async def check_hostile(dsn: str) -> None:
    """It did its worst: what is measured beside somebody who does nothing says nothing."""
    async with connect(dsn) as database, database.session() as session:
        tried = {row["url"].rsplit("/", 1)[1] for row in await session.fetch(_TRIED, HOSTILE)}
        assert tried >= {"fail", "flood", "drip"}
        assert await session.fetchval(_SET_APART, HOSTILE)


def report(alone: Stack, together: Stack) -> None:
    for which in (50, 90, 99):
        one, other = alone.percentile(which), together.percentile(which)
        print(
            f"asking to receipt, p{which}: alone {1000 * one:.0f} ms, beside a hostile tenant {1000 * other:.0f} ms: "
            f"{other / one:.2f} times ({len(alone.took)} and {len(together.took)} messages)",
            flush=True,
        )
