"""A role that is needed and that nobody has is named first, wherever somebody looks; one that somebody has is not."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence

import pytest

import offsets
from journal import Database, slice_ranges
from journal.partitions.making import make_partitions
from projections.monitoring import vacancies
from projections.subscriptions import create_group, subscribe
from projections.webhooks import send
from tests.fixtures.commands import called
from tests.fixtures.http import asking, series
from tests.fixtures.monitor import first, monitor, monitoring, told_by_the_database
from tests.fixtures.projections import execute, happen
from tests.fixtures.schedules import made
from tests.fixtures.states import in_every_state
from tests.fixtures.subscriptions import landed, landed_and_matched
from tests.fixtures.webhooks import deliver_events, endpoint, take

ROLES = ("worker", "maintenance", "matching", "consumer", "delivery", "schedules")
DUE = "UPDATE projections.webhook_deliveries SET next_at = next_at - interval '18 min'"
LONG_ACTIVE = "UPDATE projections.webhook_endpoints SET updated_at = updated_at - interval '1 day'"


async def register(database: Database, name: str) -> None:
    async with database.session() as session:
        await offsets.register(session, name, "plane", slice_ranges(2))


async def _without_worker(database: Database) -> None:
    await register(database, "delays")


async def _without_matching(database: Database) -> None:
    await register(database, "matching")


async def _never_matched(database: Database) -> None:
    async with database.transaction() as session:
        await create_group(session, "g")
        await subscribe(session, "g", topics=["Landed"])
    await landed(database, "a")


async def _without_consumer(database: Database) -> None:
    await _never_matched(database)
    await landed_and_matched(database, "b")


async def _without_fan_out(database: Database) -> None:
    await register(database, "webhooks/plane")


async def _never_delivered(database: Database) -> None:
    await endpoint(database, "a")
    async with database.transaction() as session:
        await send(session, "acme", "t", 1)


async def _due(database: Database) -> None:
    await endpoint(database, "a")
    await deliver_events(database, "a", 54)
    await execute(database, DUE)
    await execute(database, LONG_ACTIVE)


async def _tick(database: Database) -> None:
    await made(database)
    await execute(
        database, "UPDATE projections.webhook_schedules SET next_at = clock_timestamp() - interval '5 min'"
    )


async def _partitions_run_out(database: Database) -> None:
    await make_partitions(database)
    await execute(
        database, "UPDATE projections.partition_settings SET ahead = ahead + 2 WHERE table_name = 'events'"
    )


NEEDED: dict[str, tuple[Callable[[Database], Awaitable[None]], str, str]] = {
    "projection": (_without_worker, "worker", "no worker runs projection 'delays'; start projections worker"),
    "due deliveries": (
        _due,
        "delivery",
        "nobody delivers webhooks: 54 pending, the first one due for 18 min",
    ),
    "never delivered": (_never_delivered, "delivery", "nobody has ever made deliveries of messages"),
    "tick": (_tick, "schedules", "a tick has been due for 5 min"),
    "never matched": (_never_matched, "matching", "nobody has ever matched events of 'plane'"),
    "partitions": (_partitions_run_out, "maintenance", "nobody maintains the partitions of events"),
    "matching": (_without_matching, "matching", "nobody matches events for subscriptions"),
    "fan-out": (_without_fan_out, "delivery", "nobody makes deliveries of events of 'plane'"),
    "consumer": (_without_consumer, "consumer", "nobody reads for group 'g'"),
}


async def told(database: Database) -> list[tuple[str, str]]:
    async with database.session() as session:
        return [(one.role, str(one)) for one in await vacancies(session)]


@pytest.mark.parametrize("needed", NEEDED)
async def test_a_role_that_is_needed_and_that_nobody_has_is_told(database: Database, needed: str) -> None:
    arrange, role, said = NEEDED[needed]
    await arrange(database)

    found = await told(database)

    assert [one for one, _ in found if one == role] == [role]
    assert said in dict(found)[role]


async def test_nobody_is_missed_where_nothing_is_to_be_done(database: Database) -> None:
    await happen(database, "a")
    await endpoint(database, "a")
    await make_partitions(database)
    samples = await told_by_the_database(database)

    assert await told(database) == []
    assert [samples[series("projections_vacant_roles", role=role)] for role in ROLES] == [0] * len(ROLES)


async def test_who_is_alive_or_paused_or_has_deliveries_in_flight_has_the_role(database: Database) -> None:
    await in_every_state(database)
    await _due(database)
    await take(database, 1)

    assert [said.split("'")[1] for _, said in await told(database)] == ["left", "unclaimed"]


async def test_what_nobody_does_comes_first_wherever_somebody_looks(database: Database, dsn: str) -> None:
    await _without_worker(database)
    await _due(database)
    wanted = [text for _, text in await told(database)]
    async with monitoring(database) as client:
        page = (await first(client))["vacancies"]
    async with asking(monitor(database)) as client:
        samples = (await client.get("/metrics")).text
        ready = await client.get("/readyz")
    names = ("status", "webhooks stats", "doctor")
    plain = [await asyncio.to_thread(called, *name.split(), "--dsn", dsn) for name in names]
    as_json = [await asyncio.to_thread(called, *name.split(), "--dsn", dsn, "--json") for name in names[:2]]
    lines = [[line.removeprefix("PROBLEM ") for line in done.stdout.splitlines()] for done in plain]

    assert len(wanted) == 2
    assert [alike(one[:2]) for one in lines[:2]] == [alike(wanted)] * 2
    assert [line for line in alike(lines[2]) if line in alike(wanted)] == alike(wanted)
    assert [done.returncode for done in plain] == [0, 0, 1]
    assert [one["role"] for one in page] == ["worker", "delivery"]
    for done in as_json:
        assert [one["role"] for one in json.loads(done.stdout)["vacancies"]] == ["worker", "delivery"]
    assert 'role="delivery"} 1.0' in samples
    # A monitor that says what is missing is ready.
    assert (ready.status_code, ready.json()) == (
        200,
        {"status": "ok", "vacant_roles": ["delivery", "worker"]},
    )


async def test_who_has_no_token_is_not_told_which_roles_have_nobody(database: Database) -> None:
    await _without_worker(database)
    async with asking(monitor(database), "secret") as client:
        without = await client.get("/readyz")
        with_it = await client.get("/readyz", headers={"authorization": "Bearer secret"})

    assert (without.status_code, without.json()) == (200, {"status": "ok"})
    assert with_it.json() == {"status": "ok", "vacant_roles": ["worker"]}


def alike(lines: Sequence[str]) -> list[str]:
    """Without ages, which go on meanwhile."""
    return [re.sub(r"\d+ (s|min)\b", "", line) for line in lines]
