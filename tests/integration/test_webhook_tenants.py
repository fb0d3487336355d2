"""One tenant does its worst, within what it may: others are sent to as if it were not there."""

from __future__ import annotations

from journal import Database
from tests.fixtures.raw_server import RawServer, hang, respond
from tests.integration.webhook_delivery_support import (
    delivering,
    finished,
    hook,
    sent,
    settings,
    until_rows,
)


async def test_endpoints_that_hang_hold_no_more_than_their_tenants_share(database: Database) -> None:
    async with RawServer(hang()) as hangs, RawServer(respond(204)) as server:
        for _ in range(3):
            await hook(database, hangs.url, tenant="hostile", max_in_flight=1000)
        await hook(database, server.url, tenant="victim")
        await sent(database, number=10, tenant="hostile")
        async with delivering(database, settings=settings(max_in_flight=8, claim_size=8)) as running:
            await hangs.received(4)
            await sent(database, number=20, tenant="victim")
            await finished(database, 20)
            await until_rows(database, "tenant = 'hostile' AND state = 'leased'", 4)
            assert len(hangs.requests) == 4
            await running.kill()  # what hangs is not waited for


async def test_a_single_tenant_may_have_all_of_them(database: Database) -> None:
    async with RawServer(hang()) as hangs:
        await hook(database, hangs.url, max_in_flight=1000)
        await sent(database, number=8)
        async with delivering(database, settings=settings(max_in_flight=8, tenant_share=1)) as running:
            await hangs.received(8)
            await running.kill()
