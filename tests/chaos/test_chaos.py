"""
Workers are killed and stopped, ranges cut, connections ended, PostgreSQL crashes, appenders are late or roll back.

Every event has its effect exactly once, in its source's order, and no slice has two owners. A run prints its seed;
CHAOS_SEED makes the same choices again. CHAOS_SECONDS is how long the long run takes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from journal import ConnectionSettings, Database, Row, connect
from journal.schema import install
from tests.chaos.chaos import CONNECTIONS, Chaos, Side
from tests.chaos.server import server_of_its_own
from tests.chaos.worker import EFFECTS
from tests.fixtures.projections import execute

arrangements = pytest.mark.parametrize(
    "arranged", ["together", "apart", pytest.param("both", marks=pytest.mark.slow)]
)
"""Journal and effects are in one database, or in two; or there is a journal in both, and one read model of them."""
SECONDS = float(os.environ.get("CHAOS_SECONDS", "300"))


async def rows(database: Database, sql: str, *values: Any) -> list[Row]:
    async with database.session() as session:
        return list(await session.fetch(sql, *values))


async def check_effects(database: Database, journal: Database | None = None, *, of: str = "") -> int:
    """
    Everything that is in a journal was handled once, each source's in order; returns how much that is.

    Args:
        database: Of the effects.
        journal: The journal's, if that is another.
        of: Of several journals, the condition of its effects.
    """
    events = await rows(journal or database, "SELECT source_id, seq_nr FROM projections.events")
    effects = await rows(database, f"SELECT source_id, seq_nr FROM effects {of} ORDER BY n")
    seen: dict[str, list[int]] = {}
    for effect in effects:
        seen.setdefault(effect["source_id"], []).append(effect["seq_nr"])

    assert {(e["source_id"], e["seq_nr"]) for e in effects} == {(e["source_id"], e["seq_nr"]) for e in events}
    assert len(effects) == len(events)
    assert all(seq_nrs == list(range(1, len(seq_nrs) + 1)) for seq_nrs in seen.values())
    return len(events)


def check_owners(effects: Iterable[Row]) -> None:
    """
    For each slice the epochs never go down, and each of them has one worker.

    A commit of an epoch ends before the next epoch can be claimed, and everything that the next holder does comes
    after that: so it holds in the order of the commits, and also in that of the effects' numbers.
    """
    newest: dict[tuple[int, int], int] = {}
    holders: dict[tuple[tuple[int, int], int], str] = {}
    for effect in effects:
        number, epoch = (effect["journal"], effect["slice"]), effect["epoch"]
        assert epoch >= newest.get(number, 0), f"slice {number}: epoch {epoch} after {newest[number]}"
        newest[number] = epoch
        assert holders.setdefault((number, epoch), effect["worker"]) == effect["worker"]


@asynccontextmanager
async def a_side() -> AsyncIterator[Side]:
    async with server_of_its_own() as (server, dsn):
        await asyncio.to_thread(install, dsn)
        async with connect(dsn, ConnectionSettings(max_connections=CONNECTIONS)) as database:
            yield Side(server, dsn, database)


async def chaos(logs: Path, seconds: float, arranged: str) -> None:
    async with a_side() as journal, AsyncExitStack() as stack:
        other = await stack.enter_async_context(a_side()) if arranged != "together" else None
        database = (other or journal).database
        await execute(database, EFFECTS)
        running = Chaos(*journal, logs, seconds, other, both=arranged == "both")
        await running.run()
        by_workers = len(await rows(database, "SELECT FROM effects"))
        await running.catch_up()
        events = await check_effects(database, journal.database, of="WHERE journal = 0")
        if arranged == "both":
            events += await check_effects(database, of="WHERE journal = 1")
        print({"seed": running.seed, "events": events, "by workers": by_workers, **running.counts})
        effects = "SELECT journal, slice, worker, epoch FROM effects ORDER BY"
        check_owners(await rows(database, f"{effects} n"))
        check_owners(await rows(database, f"{effects} pg_xact_commit_timestamp(xid::xid), n"))
        assert not await rows(database, "SELECT FROM projections.parked_sources")
    assert by_workers > 0


@pytest.mark.timeout(300)
@arrangements
async def test_whatever_goes_wrong_every_event_has_its_effect_once(tmp_path: Path, arranged: str) -> None:
    await chaos(tmp_path, 10, arranged)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
@arrangements
async def test_whatever_goes_wrong_for_minutes_every_event_has_its_effect_once(
    tmp_path: Path, arranged: str
) -> None:
    await chaos(tmp_path, SECONDS, arranged)
