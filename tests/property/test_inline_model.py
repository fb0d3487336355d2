"""Whatever the order of appends, workers and decisions: what is committed is handled once, inline or by a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import offsets
from journal import Database, append, connect
from projections import Changes, Event, EventEnvelope, Inline, Session, Table, handles, projection
from projections.testing import run_until_caught_up
from tests.fixtures.projections import Happened, execute, fetchval

COUNTS = Table("counts", key="source_id", increment="n", maximum="last", source="source_id")
NUMBERS: Iterator[int] = count()
_WRONG = """
SELECT array_agg(s.source_id) FROM projections.sources AS s FULL JOIN counts AS c USING (source_id)
WHERE (s.seq_nr, s.seq_nr) IS DISTINCT FROM (c.n, c.last)
"""

sources = st.lists(st.sampled_from("abcd"), min_size=1, max_size=3)
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["inline", "inline", "plain", "open"]), sources),
        st.tuples(
            st.sampled_from(["work", "live", "is inline", "pause", "resume", "clear", "commit", "undo"]),
            st.just([]),
        ),
    ),
    min_size=3,
    max_size=12,
)


class Play:
    """One projection, its appenders and its workers; at most one transaction is left open meanwhile."""

    def __init__(self, database: Database, name: str) -> None:
        self.database = database
        self.name = name

        @projection(name, entity_type="plane")
        class Counting:
            @handles(Happened)
            def happened(self, event: Happened, envelope: EventEnvelope) -> Changes:
                return COUNTS.upsert(source_id=envelope.source_id, n=1, last=envelope.seq_nr)

        self.definition = Counting
        self.inline = Inline(Counting)
        self._stack = AsyncExitStack()
        self._open: Any = None
        self._paused = False

    async def step(self, what: str, of: list[str]) -> None:
        events = [Event(f"{self.name} {source}", Happened(), "plane") for source in of]
        match what:
            case "inline" | "plain" if self._open is None:  # it may have locked the same sources
                async with self.database.transaction() as session:
                    await (self.inline.append if what == "inline" else append)(session, events)
            case "open" if self._open is None:
                self._open = await self._stack.enter_async_context(self.database.session())
                await self._open.begin()
                await self.inline.append(self._open, events)
            case "commit" | "undo":
                await self.close(keep=what == "commit")
            case "work" if not self._paused:  # else it would wait
                await run_until_caught_up(self.database, self.definition)
            case "live" | "is inline" | "pause" | "resume" | "clear" if self._open is None:
                async with self.database.transaction() as session:
                    await self._decide(session, what)

    async def _decide(self, session: Session, what: str) -> None:
        match what:
            case "live" | "is inline":
                await offsets.set_mode(session, self.name, "live" if what == "live" else "inline")
            case "pause" | "resume":
                self._paused = what == "pause"
                await offsets.set_paused(session, self.name, paused=self._paused)
            case "clear":
                await session.execute("TRUNCATE counts")
                await offsets.clear_offset(session, self.name)

    async def close(self, *, keep: bool) -> None:
        if self._open is not None:
            await (self._open.commit() if keep else self._open.rollback())
            await self._stack.aclose()
            self._open = None


@pytest.mark.parametrize("examples", [3, pytest.param(150, marks=pytest.mark.slow)])
def test_each_event_is_handled_once(dsn: str, examples: int) -> None:
    @settings(
        max_examples=examples,
        suppress_health_check=list(HealthCheck),
        derandomize=examples < 100,
    )
    @given(steps)
    def check(program: list[tuple[str, list[str]]]) -> None:
        asyncio.run(played(dsn, program))

    check()


async def played(dsn: str, program: list[tuple[str, list[str]]]) -> None:
    async with connect(dsn) as database:
        await execute(
            database, "CREATE TABLE IF NOT EXISTS counts (source_id text PRIMARY KEY, n bigint, last bigint)"
        )
        await execute(database, "TRUNCATE counts, projections.events, projections.sources")
        await execute(database, "DELETE FROM projections.projections")
        play = Play(database, f"p{next(NUMBERS)}")
        await run_until_caught_up(database, play.definition)
        await play.step("is inline", [])
        for what, of in program:
            await play.step(what, of)
        await play.close(keep=True)
        await play.step("resume", [])
        await play.step("work", [])

        assert await fetchval(database, _WRONG) is None
