"""The two servers that a schedule of calls is made on: the simulated one, and a real one."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any
from unittest import mock

import asyncpg

from journal import importing
from tests.simulation import seams  # noqa: F401 - it registers models
from tests.simulation.all_calls import call_of
from tests.simulation.calls import MARK, Call, Facts
from tests.simulation.loop import simulated_loop
from tests.simulation.postgres import locks
from tests.simulation.postgres.backend import Answer, Backend
from tests.simulation.postgres.importing import COPY
from tests.simulation.postgres.server import Server
from tests.simulation.postgres.storage import Row

Program = Sequence[tuple[int, int, int, int]]
"""Of each call: the connection, the code, and what chooses the arguments."""
_LIMITED = {"save horizons", "finish deliveries"}
"""Calls that wait for a lock for two seconds at most."""
Line = tuple[int, str, Any]
"""Connection, name of the call, and its answer, error code, or that it waits."""

_TABLES = (
    "events", "sources", "projections", "projection_ranges", "source_offsets", "parked_sources", "workers",
    "imports", "subscription_groups", "matches", "webhook_endpoints", "webhook_events", "webhook_attempts",
    "webhook_log_ids", "turns",
)  # fmt: skip
_OUTBOX = """
CREATE TABLE IF NOT EXISTS public.outbox (
    source_id text, seq_nr bigint, db_timestamp timestamptz NOT NULL DEFAULT now(), event_type text NOT NULL,
    event_id uuid NOT NULL DEFAULT gen_random_uuid(), payload text NOT NULL, PRIMARY KEY (source_id, seq_nr)
)
"""
"""The journal of another system."""
_IMPATIENT = "ALTER FUNCTION projections._finish_deliveries_v1 SET lock_timeout = '100ms'"
"""Not two seconds, as the simulated server does not wait in real time."""


class Side(ABC):
    """
    Makes the calls of a program, and writes down what each is answered with.

    Where several wait for one, PostgreSQL does not say who goes on first. So of more than two connections one waits at
    a time, and of two both may, for each other.

    Args:
        connections: How many there are.
    """

    def __init__(self, connections: int) -> None:
        self._number = connections
        self._facts = Facts()
        self._waiting: dict[int, tuple[Call, asyncio.Task[list[Row]]]] = {}
        self._begun: set[int] = set()
        """Connections that may be in a transaction."""

    async def play(self, program: Program) -> list[Line]:
        """Make the calls one after the other, each once all before it have been answered or wait for a lock."""
        try:
            return await self._play(program)
        finally:
            left = [task for _, task in self._waiting.values()]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _play(self, program: Program) -> list[Line]:
        lines: list[Line] = []
        for one, code, a, b in program:
            connection = one % self._number
            call = call_of(self._facts, code, a, b)
            crowded = self._number > 2 and bool(self._waiting) and call.may_wait
            crowded |= call.alone and bool(self._begun or self._waiting)
            if connection not in self._waiting and not crowded:
                task = asyncio.create_task(self._send(connection, call.sql, call.args))
                self._waiting[connection] = call, task
                await self._settle({one: (call.name, task) for one, (call, task) in self._waiting.items()})
                lines += self._answers()
                lines += [(connection, call.name, "waits")] if connection in self._waiting else []
        return lines

    def _answers(self) -> list[Line]:
        lines: list[Line] = []
        for connection, (call, task) in sorted(self._waiting.items()):
            if not task.done():
                continue
            del self._waiting[connection]
            if (error := task.exception()) is not None:
                if (code := getattr(error, "sqlstate", None)) is None:
                    raise error
                lines.append((connection, call.name, code))
                continue
            self._note(connection, call.name)
            rows = [dict(row) for row in task.result()]
            call.remember(rows)
            lines.append((connection, call.name, self._facts.plain(call.name, rows)))
        return lines

    def _note(self, connection: int, name: str) -> None:
        if name == "begin":
            self._begun.add(connection)
        elif name in {"commit", "rollback", "prepare"}:
            self._begun.discard(connection)

    @abstractmethod
    async def _send(self, connection: int, sql: str, args: Sequence[Any]) -> list[Row]:
        """Run a statement."""

    @abstractmethod
    async def _settle(self, waiting: Mapping[int, tuple[str, asyncio.Task[Any]]]) -> None:
        """Wait until each statement is answered, or waits for a lock that another connection has."""


class _Ticking(Server):
    """Whoever looks at the clock finds that time has gone by, as on a machine."""

    ticks = 0

    def clock(self) -> datetime:
        self.ticks += 1
        return super().clock() + timedelta(microseconds=50 * self.ticks)


class _Simulated(Side):
    def __init__(self, server: Server, connections: int) -> None:
        super().__init__(connections)
        self._backends = [server.connect(lambda: None) for _ in range(connections)]
        for backend in self._backends:
            backend.of_session["projections.batch"] = MARK

    async def _send(self, connection: int, sql: str, args: Sequence[Any]) -> list[Row]:
        backend: Backend = self._backends[connection]
        answer: Answer = await backend.run(sql, args)
        return answer.rows

    async def _settle(self, waiting: Mapping[int, tuple[str, asyncio.Task[Any]]]) -> None:
        limited = any(name in _LIMITED for name, _ in waiting.values())
        await asyncio.sleep(2.1 if limited else 0.02)


def on_simulated(program: Program, connections: int) -> list[Line]:
    """What the simulated server answers."""
    choices = Random(0)
    with (
        simulated_loop(choices) as loop,
        mock.patch.object(locks, "DEADLOCK_TIMEOUT", 0.01),
    ):
        return loop.run_until_complete(
            _play_simulated(_Ticking(loop, choices, breathes=0.0), program, connections)
        )


async def _play_simulated(server: Server, program: Program, connections: int) -> list[Line]:
    return await _Simulated(server, connections).play(program)


class _Real(Side):
    def __init__(self, connections: Sequence[asyncpg.Connection], watching: asyncpg.Connection) -> None:
        super().__init__(len(connections))
        self._connections = connections
        self._watching = watching

    async def _send(self, connection: int, sql: str, args: Sequence[Any]) -> Any:
        on = self._connections[connection]
        if sql == COPY:
            rows = {"records": args[0], "columns": importing._COLUMNS}
            await on.copy_records_to_table("projections_import", schema_name="pg_temp", **rows)
            return []
        if args:
            return await on.fetch(sql, *args)
        if sql.lstrip().startswith("SELECT"):
            return await on.fetch(sql)
        await on.execute(sql)
        return []

    async def _settle(self, waiting: Mapping[int, tuple[str, asyncio.Task[Any]]]) -> None:
        while left := {one: name for one, (name, task) in waiting.items() if not task.done()}:
            limited = [one for one, name in left.items() if name in _LIMITED]
            if not limited and await self._wait_for_locks(left):
                break
            if running := [task for _, task in waiting.values() if not task.done()]:
                await asyncio.wait(running, timeout=0.002)
        await self._rest(waiting)

    async def _rest(self, waiting: Mapping[int, tuple[str, asyncio.Task[Any]]]) -> None:
        """Wait until those who have their answer show that they wait for the next call."""
        resting = [
            connection.get_server_pid()
            for one, connection in enumerate(self._connections)
            if one not in waiting or waiting[one][1].done()
        ]
        while not await self._watching.fetchval(
            "SELECT coalesce(bool_and(state LIKE 'idle%' AND wait_event_type = 'Client'), TRUE) "
            "FROM pg_stat_activity WHERE pid = ANY($1)",
            resting,
        ):
            await asyncio.sleep(0.001)

    async def _wait_for_locks(self, connections: Iterable[int]) -> bool:
        """Whether all have waited for so long that they know that it is no deadlock."""
        pids = [self._connections[one].get_server_pid() for one in connections]
        found = await self._watching.fetchval(
            "SELECT count(DISTINCT pid) FROM pg_locks WHERE pid = ANY($1) AND NOT granted "
            "AND waitstart < clock_timestamp() - interval '25 ms'", pids,
        )  # fmt: skip
        return bool(found == len(pids))


async def on_real(dsn: str, program: Program, number: int) -> list[Line]:
    """What a real server answers, in a database of its own with nothing in it but the schema."""
    settings = {
        "deadlock_timeout": "10ms", "default_transaction_isolation": "read committed", "jit": "off",
        "projections.batch": MARK,
    }  # fmt: skip
    connections = [await asyncpg.connect(dsn, server_settings=settings) for _ in range(number)]
    await _run(dsn, _OUTBOX)
    await _run(dsn, _IMPATIENT)
    # Who watches is not a session of the database that is watched.
    watching = await asyncpg.connect(dsn, database="postgres")
    try:
        return await _Real(connections, watching).play(program)
    finally:
        for connection in connections:
            pid = connection.get_server_pid()
            connection.terminate()
            await watching.fetchval(
                "SELECT pg_terminate_backend($1, 10000)", pid
            )  # waits until its locks are gone
        await watching.close()
        await _empty(dsn)


async def _empty(dsn: str) -> None:
    names = ", ".join(f"projections.{name}" for name in _TABLES)
    connection = await asyncpg.connect(dsn)
    try:
        for gid in await connection.fetch(
            "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
        ):
            await connection.execute(f"ROLLBACK PREPARED '{gid[0]}'")
        await connection.execute(f"TRUNCATE public.outbox, {names} RESTART IDENTITY CASCADE")
        await connection.execute("ALTER SEQUENCE projections.match_ids RESTART")
    finally:
        await connection.close()


async def _run(dsn: str, sql: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()
