"""Commands that decide what others do say whether anybody runs who does it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import offsets
from journal import Database, slice_ranges
from projections.subscriptions import create_group, subscribe
from projections.webhooks import FanOut
from tests.fixtures.commands import called
from tests.fixtures.projections import recording, running, until
from tests.fixtures.schedules import made
from tests.fixtures.webhook_delivery import delivering, hook

SEEN = "SELECT EXISTS (SELECT FROM projections.turns WHERE chore = 'webhook deliveries')"
WORKER, DELIVERS, MATCHES = (
    "worker of projection 'delays'",
    "process that delivers webhooks",
    "worker that matches",
)
LEFT_TO = {
    "rescale delays --ranges 3": WORKER,
    "mode delays inline": WORKER,
    "resume delays": WORKER,
    "groups rescale billing --ranges 3": "consumer of group 'billing'",
    "groups rewind billing --from beginning --yes": MATCHES,
    "publish order.paid": MATCHES,
    "webhooks send acme order.paid": DELIVERS,
    "webhooks schedules run SCHEDULE": DELIVERS,
    "webhooks schedules resume SCHEDULE": DELIVERS,
    "webhooks endpoints enable ENDPOINT": DELIVERS,
    "webhooks deliveries retry --endpoint ENDPOINT --state dead": DELIVERS,
}


@pytest.fixture
async def said(database: Database, dsn: str) -> Callable[..., Awaitable[dict[str, tuple[bool, str]]]]:
    """Runs commands on things that there are; returns whether each says that somebody runs, and its note."""
    async with database.transaction() as session:
        await create_group(session, "billing")
        await subscribe(session, "billing", topics=["Landed"])
    async with database.session() as session:
        await offsets.register(session, "delays", "plane", slice_ranges(2))
    endpoint_id, _ = await hook(database, "http://127.0.0.1/")
    schedule_id = (await made(database)).schedule_id

    async def one(command: str) -> tuple[bool, str]:
        words = command.replace("ENDPOINT", endpoint_id).replace("SCHEDULE", schedule_id).split()
        told = await asyncio.to_thread(called, *words, "--dsn", dsn)
        values = await asyncio.to_thread(called, *words, "--dsn", dsn, "--json")
        assert told.returncode == 0, told.stderr
        return json.loads(values.stdout)["running"], told.stderr

    async def all_of(*commands: str) -> dict[str, tuple[bool, str]]:
        return {command: await one(command) for command in commands}

    return all_of


async def test_a_command_says_that_nobody_does_what_it_has_decided(said: Any) -> None:
    found = await said(*LEFT_TO)

    for command, who in LEFT_TO.items():
        is_done = "rescale" in command or "mode" in command
        then = "nothing is handled until one does" if is_done else "it is done when one does"
        assert found[command] == (False, f"no {who} runs: {then}\n")


async def test_nothing_is_said_while_somebody_does_it(database: Database, said: Any) -> None:
    theirs = [command for command, who in LEFT_TO.items() if who in {WORKER, DELIVERS}]
    async with delivering(database), running(database, FanOut(), recording(name="delays")):
        await until(database, SEEN)
        assert await said(*theirs) == dict.fromkeys(theirs, (True, ""))


async def test_who_only_sends_makes_no_deliveries_of_messages(database: Database, said: Any) -> None:
    both = ("webhooks schedules run SCHEDULE", "webhooks endpoints enable ENDPOINT")
    async with delivering(database):
        await until(database, SEEN)
        found = await said(*both)

    assert [runs for runs, _ in found.values()] == [False, True]
