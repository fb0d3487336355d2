"""A standby is read beside its primary by every bound: our journal, and tables of other systems."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import asyncpg
import pytest

from journal import ConnectionSettings, Event, Log, Primary, Session, append, connect
from journal.errors import ForeignJournalError
from journal.foreign import Constant, TableMapping, table_log
from journal.standby import PrimaryPoll
from tests.fixtures.failover import Server
from tests.fixtures.foreign import Follower, OnlyForward, stored_keys, write_late
from tests.fixtures.hot_standby import Servers, hot_standby, step_by_step
from tests.fixtures.postgres import Databases
from tests.fixtures.projections import execute

_TABLE = """
CREATE TABLE orders (
    id bigserial PRIMARY KEY, source text, version int, at timestamptz DEFAULT now(), body jsonb DEFAULT '{}',
    UNIQUE (source, version)
)
"""
_INSERT = "INSERT INTO orders (source, version) VALUES ($1, $2)"
_BY_NUMBER = TableMapping(
    table="orders", source="source", number="version", position="id", bound="sequence",
    entity_type=Constant("order"), event_type=Constant("placed"), payload="body",
)  # fmt: skip
_MAPPINGS = {
    "sequence": _BY_NUMBER,
    "transaction-start": replace(_BY_NUMBER, position="at", bound="transaction-start"),
}


@pytest.fixture
async def servers(base_cluster: Server, databases: Databases, template: str) -> AsyncIterator[Servers]:
    async with hot_standby(base_cluster, databases, template) as both:
        await execute(both.primary, _TABLE)
        await both.replayed()
        yield both


async def log_of(servers: Servers, bound: str) -> Log:
    if bound == "writer-lock":
        return servers.log
    return await table_log(servers.standby, _MAPPINGS[bound], name="orders", primary=Primary(servers.primary))


async def add(session: Session, bound: str, source_id: str) -> None:
    if bound == "writer-lock":
        await append(session, [Event(source_id, {}, entity_type="plane", event_type="Happened")])
    else:
        await session.execute(_INSERT, source_id, 1)


@pytest.mark.slow
@pytest.mark.parametrize("waits", [True, False], ids=["right", "wrong"])
@pytest.mark.parametrize("bound", ["writer-lock", *_MAPPINGS])
async def test_replay_paused_at_each_point(
    servers: Servers, bound: str, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await log_of(servers, bound)
    if not waits:
        monkeypatch.setattr(PrimaryPoll, "why_not", lambda _, __: None)

    found = await step_by_step(servers, log, lambda session, source_id: add(session, bound, source_id))

    assert ("late" in found) is waits
    assert set(found) | {"after"} == {"after", "early", "last"} | ({"late"} if waits else set())
    assert "after" in found or not waits


async def write(dsn: str, seconds: float, seed: int) -> None:
    async def rows(connection: asyncpg.Connection, source: str, last: int, count: int) -> None:
        for n in range(last + 1, last + count + 1):
            await connection.execute(_INSERT, source, n)

    await write_late(dsn, (f"{seed}-{n}" for n in range(5)), seconds, seed, rows)


async def stutter(servers: Servers, writers_end: asyncio.Event) -> None:
    """Pause and resume replay until the writers end."""
    chance = random.Random(1)
    while not writers_end.is_set():
        await servers.pause()
        await asyncio.sleep(chance.random() * 0.4)
        servers.resume()
        await asyncio.sleep(chance.random() * 0.2)


@pytest.mark.slow
@pytest.mark.parametrize("bound", list(_MAPPINGS))
async def test_what_is_written_late_while_replay_stutters(servers: Servers, bound: str) -> None:
    dsn, ended = servers.both.primary.dsn("one"), asyncio.Event()
    settings = ConnectionSettings(foreign_journal=True)
    async with connect(servers.both.standby.dsn("one"), settings) as standby:
        log = await table_log(standby, _MAPPINGS[bound], name="orders", primary=Primary(servers.primary))
        followers = [Follower(log), Follower(log, OnlyForward)]
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(follower.run(ended, quiet=50)) for follower in followers]
            stuttering = group.create_task(stutter(servers, ended))
            await asyncio.gather(*(write(dsn, 8, seed) for seed in range(10)))
            ended.set()
            await stuttering
            await servers.replayed()
            await asyncio.gather(*running)
    stored = await stored_keys(servers.primary, "orders", "source", "version")
    lost = [len(stored - set(follower.handled)) for follower in followers]
    print(f"{bound}: {len(stored)} stored, lost {lost}")
    assert lost[0] == 0
    assert lost[1]
    assert len(followers[0].handled) == len(set(followers[0].handled))


async def test_a_standby_alone_is_refused(servers: Servers) -> None:
    with pytest.raises(
        ForeignJournalError, match=r"standby, .* Connect to the primary, or name it alongside"
    ):
        await table_log(servers.standby, _BY_NUMBER, name="orders")
