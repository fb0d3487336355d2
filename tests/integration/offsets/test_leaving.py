"""What a worker that stops is told late by its last heartbeats."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import offsets
from journal import Database
from projections import EventEnvelope, Session, run
from projections.running.ranges import Ranges
from tests.fixtures.projections import (
    EFFECTS,
    Happened,
    Told,
    effects,
    execute,
    fetchval,
    happen,
    recording,
    settings,
)


async def test_an_answer_from_before_a_release_begins_nothing_again(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It shows a range that has ended while it was on its way."""
    await execute(database, EFFECTS)
    handling, go_on, released, stop = (asyncio.Event() for _ in range(4))
    beat, keep, shown = offsets.heartbeat, Ranges._keep, []

    async def late(*arguments: Any, leaving: bool) -> Any:
        told = await beat(*arguments, leaving=leaving)
        held = sum(len(one.held) for one in told)
        if leaving and held == 1:
            shown.append(held)
            go_on.set()
            await released.wait()
        return told

    async def keeping(self: Ranges, *arguments: Any) -> None:
        await keep(self, *arguments)
        if go_on.is_set():
            released.set()

    async def wait(session: Session, event: Happened, envelope: EventEnvelope) -> None:
        handling.set()
        await go_on.wait()

    caplog.set_level("INFO", logger="projections")
    monkeypatch.setattr(offsets, "heartbeat", late)
    monkeypatch.setattr(Ranges, "_keep", keeping)
    await happen(database, "a")
    told = Told()
    task = asyncio.create_task(
        run(database, recording(wait), settings=settings(), observer=told, ranges=2, stop=stop)
    )
    async with asyncio.timeout(300):
        await handling.wait()
        stop.set()
        await task

    assert shown  # on a slow machine more answers than one show it
    assert [record.message for record in caplog.records if "given back" in record.message] == []
    assert await effects(database) == [("a", 1)]
    assert await fetchval(database, "SELECT count(owner) FROM projections.projection_ranges") == 0
