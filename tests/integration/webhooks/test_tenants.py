"""One tenant does its worst, within what it may: others are sent to as if it were not there."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import pytest

from journal import Database
from projections.webhooks.outgoing import Outgoing
from projections.webhooks.response_reading import Reply
from projections.webhooks.sender import HttpSender, NotSentError
from tests.fixtures.files import no_files
from tests.fixtures.projections import fetchval
from tests.fixtures.raw_server import RawServer, hang, respond
from tests.fixtures.webhook_delivery import (
    LOCAL,
    PATIENT,
    attempts,
    delivering,
    due,
    endpoints,
    finished,
    hook,
    sent,
    settings,
    until_rows,
)

AT_ONCE = timedelta(milliseconds=50)


@pytest.mark.slow
async def test_endpoints_that_hang_hold_no_more_than_their_tenants_share(database: Database) -> None:
    async with RawServer(hang()) as hangs, RawServer(respond(204)) as server:
        for _ in range(3):
            await hook(database, hangs.url, tenant="hostile", max_in_flight=1000)
        await hook(database, server.url, tenant="victim")
        await sent(database, number=10, tenant="hostile")
        async with delivering(database, settings=settings(max_in_flight=8, grace=AT_ONCE)):
            await hangs.received(4)
            await sent(database, number=20, tenant="victim")
            await finished(database, 20)
            await until_rows(database, "tenant = 'hostile' AND state = 'leased'", 4)
            assert len(hangs.requests) == 4


@pytest.mark.slow
async def test_a_tenant_may_have_all_of_them_while_no_other_has_an_active_endpoint(
    database: Database,
) -> None:
    steps = [hang(), hang(), *[respond(204)] * 6, hang()]
    async with RawServer(*steps) as hangs, RawServer(respond(204)) as server:
        await hook(database, hangs.url, tenant="first", max_in_flight=1000)
        gone, _ = await hook(database, server.url, tenant="gone")
        await endpoints(database).set_state("gone", gone, "disabled")
        await sent(database, number=8, tenant="first")
        async with delivering(database, settings=settings(max_in_flight=8, grace=AT_ONCE)):
            await hangs.received(8)
            await until_rows(database, "tenant = 'first' AND state = 'leased'", 2)
            await hook(database, server.url, tenant="second")
            await sent(database, number=20, tenant="second")
            await sent(database, number=10, tenant="first")
            await finished(database, 26)
            await until_rows(database, "tenant = 'first' AND state = 'leased'", 4)
            assert len(hangs.requests) == 10


class WithoutFiles(HttpSender):
    """Has no files left, until it is given back what it had."""

    def __init__(self) -> None:
        super().__init__(LOCAL)
        self.lacking = True
        self.failed = asyncio.Event()
        self._one = asyncio.Lock()

    async def send(self, outgoing: Outgoing) -> Reply:
        if not self.lacking:
            return await super().send(outgoing)
        try:
            async with self._one:
                with no_files():
                    return await super().send(outgoing)
        except NotSentError:
            self.failed.set()
            raise


async def test_what_the_process_lacks_uses_up_no_attempt_and_blames_no_endpoint(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    policy = PATIENT.model_copy(update={"schedule": (), "breaker_failures": 1})
    async with RawServer(respond(204)) as server, WithoutFiles() as sender:
        await hook(database, server.url, policy=policy)
        await sent(database, number=3)
        with caplog.at_level(logging.WARNING):
            async with delivering(database, sender):
                await sender.failed.wait()
                await until_rows(database, "state = 'pending' AND attempts = 0 AND next_at > now()", 3)
                assert await fetchval(database, "SELECT failures FROM projections.webhook_circuits") == 0
                sender.failed.clear()
                await due(database)
                await sender.failed.wait()  # again, after a pause
                sender.lacking = False
                await until_rows(database, "state = 'pending' AND attempts = 0 AND next_at > now()", 3)
                await due(database)
                await finished(database, 3)

    assert await attempts(database) == [(1, "success", "204")] * 3
    said = [one for one in caplog.records if getattr(one, "action", "") == "webhooks_short"]
    assert len(said) == 1
    assert "Too many open files" in said[0].getMessage()
