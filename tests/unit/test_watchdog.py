from __future__ import annotations

import asyncio
from contextlib import closing, suppress
from datetime import timedelta

import pytest

from projections.running.watchdog import Watchdog
from tests.fixtures.loop_clock import pass_time

LIMIT = 0.05


async def hang() -> None:
    await asyncio.Event().wait()


def cancelling() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def test_a_block_that_takes_too_long_is_cancelled_and_the_next_one_is_not() -> None:
    with closing(Watchdog(LIMIT)) as watchdog:
        for _ in range(2):
            with pytest.raises(TimeoutError), watchdog:
                await hang()
            assert watchdog.expired()
            with watchdog:
                await asyncio.sleep(0)
            assert not watchdog.expired()
    assert cancelling() == 0


async def test_blocks_have_the_limit_each_and_one_timer_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    timers: list[float] = []
    call_at = loop.call_at
    monkeypatch.setattr(loop, "call_at", lambda at, *args: (timers.append(at), call_at(at, *args))[1])
    with closing(Watchdog(60)) as watchdog:
        for _ in range(30):  # three times as long as one of them may take
            with watchdog:
                await asyncio.sleep(0)
            pass_time(timedelta(seconds=6))
    assert 1 < len(timers) <= 4


async def test_who_is_cancelled_from_outside_is_cancelled() -> None:
    began = asyncio.Event()

    async def watched() -> None:
        with closing(Watchdog(60)) as watchdog, watchdog:
            began.set()
            await hang()

    task = asyncio.create_task(watched())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_one_that_swallows_its_cancellation_is_no_time_out_and_is_known() -> None:
    with closing(Watchdog(LIMIT)) as watchdog:
        with watchdog, suppress(asyncio.CancelledError):
            await hang()
        assert watchdog.expired()
    assert cancelling() == 0


async def test_a_time_out_of_the_block_itself_is_its_own() -> None:
    with closing(Watchdog(60)) as watchdog:
        with pytest.raises(TimeoutError), watchdog:
            async with asyncio.timeout(0):
                await hang()
        assert not watchdog.expired()
