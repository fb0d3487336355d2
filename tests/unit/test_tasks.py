"""Tasks that lose a cancellation end all the same."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from journal.tasks import end


async def test_a_task_that_loses_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("journal.tasks._AGAIN", 0.01)
    begun = asyncio.Event()

    async def lose_one() -> None:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    task = asyncio.create_task(lose_one())
    await begun.wait()

    await end(task)

    assert task.cancelled()


async def test_a_task_that_ends_with_an_error_has_ended() -> None:
    async def fail() -> None:
        raise ValueError

    task = asyncio.create_task(fail())
    await asyncio.wait([task])

    await end(task)

    assert isinstance(task.exception(), ValueError)
