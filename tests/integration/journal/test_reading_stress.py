"""A live reader beside writers that do all that writers may do."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import asyncpg
import pytest

from journal import (
    Database,
    DatabaseError,
    append,
)
from tests.fixtures.reading import WAIT, event, live


class Writers:
    """Connections that append at random: long and short, over many sources, some undone."""

    def __init__(self, dsn: str, seed: int) -> None:
        self.dsn = dsn
        self.chance = random.Random(seed)
        self.committed: list[tuple[str, int]] = []
        self.rolled_back = 0

    async def run(self, until: float) -> None:
        connection = await asyncpg.connect(self.dsn)
        try:
            while asyncio.get_running_loop().time() < until:
                await self._transaction(connection)
        finally:
            await connection.close()

    async def _transaction(self, connection: Any) -> None:
        chance = self.chance
        transaction = connection.transaction()
        await transaction.start()
        appended: list[tuple[str, int]] = []
        try:
            if chance.random() < 0.3:  # an id that is older than the append
                await connection.fetchval("SELECT pg_current_xact_id()")
                await asyncio.sleep(chance.random() * 0.02)
            for _ in range(chance.choice([1, 1, 1, 2])):
                appended += await self._append(connection)
                await asyncio.sleep(chance.choice([0, 0, 0, 0.005, 0.05, 0.3]) * chance.random())
            if chance.random() < 0.1:
                raise ZeroDivisionError  # noqa: TRY301 - an application that changes its mind
        except (ZeroDivisionError, DatabaseError):  # its own will, or a deadlock
            await transaction.rollback()
            self.rolled_back += 1
        else:
            await transaction.commit()
            self.committed += appended

    async def _append(self, connection: Any) -> list[tuple[str, int]]:
        chance = self.chance
        undone = chance.random() < 0.05
        savepoint = connection.transaction()
        await savepoint.start()
        events = [event(f"s{chance.randrange(400)}") for _ in range(chance.randint(1, 4))]
        found = [(a.source_id, a.seq_nr) for a in await append(connection, events)]
        if undone:
            await savepoint.rollback()
            return []
        await savepoint.commit()
        return found


@pytest.mark.slow
async def test_under_stress_nothing_is_lost_or_comes_twice_or_out_of_order(
    database: Database, dsn: str
) -> None:
    writers = Writers(dsn, seed=1)
    delivered: Counter[tuple[str, int]] = Counter()
    last: Counter[str] = Counter()
    async with live(database) as reader:
        until = asyncio.get_running_loop().time() + 5
        async with asyncio.TaskGroup() as tasks, asyncio.timeout(300):
            running = [tasks.create_task(writers.run(until)) for _ in range(8)]
            while not all(task.done() for task in running) or len(delivered) < len(writers.committed):
                try:
                    async with asyncio.timeout(WAIT):
                        source_id, seq_nr = (await reader.keys())[0]
                except TimeoutError:
                    break
                delivered[source_id, seq_nr] += 1
                assert seq_nr == last[source_id] + 1
                last[source_id] = seq_nr

    assert writers.committed
    assert writers.rolled_back
    assert set(delivered) == set(writers.committed)
    assert max(delivered.values()) == 1
