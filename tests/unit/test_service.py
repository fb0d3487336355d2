"""The shape of what a process does until it is stopped: steps, pauses, failures, and an end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from journal import ProjectionsError
from journal.service import AT_ONCE, WHEN_WOKEN, Pace, Service
from journal.tasks import running, together

SHORT = timedelta(milliseconds=1)
LONG = timedelta(hours=1)


def service(step: Callable[[], Awaitable[float]], **options: Any) -> Service:
    return Service("tea", step, **{"restart": lambda _: SHORT} | options)


async def done(made: Service, *args: Any, **options: Any) -> bool:
    async with asyncio.timeout(300):
        return await made.run(*args, **options)


async def test_steps_follow_one_another_until_it_is_stopped() -> None:
    steps = []

    async def step() -> float:
        steps.append(len(steps))
        if len(steps) == 3:
            made.stop()
        return AT_ONCE

    made = service(step)

    assert await done(made)
    assert steps == [0, 1, 2]


async def test_one_that_was_stopped_before_does_nothing() -> None:
    async def step() -> float:
        raise AssertionError

    stop = asyncio.Event()
    stop.set()
    made = service(step)
    made.wake()

    assert await done(made, stop)


async def test_who_wakes_it_during_a_step_has_another_one_follow() -> None:
    steps = []

    async def step() -> float:
        steps.append(len(steps))
        (made.wake if len(steps) == 1 else made.stop)()
        return WHEN_WOKEN

    made = service(step)
    await done(made)

    assert len(steps) == 2


async def test_a_stop_ends_a_pause_also_the_first_and_that_after_a_failure() -> None:
    async def fail() -> float:
        raise ProjectionsError

    for options in ({"first": WHEN_WOKEN}, {}):
        stop = asyncio.Event()
        made = service(fail, restart=lambda _: LONG)
        async with running(done(made, stop, **options)) as (task,):
            while not (made.failures or options):
                await asyncio.sleep(0)
            stop.set()
            assert await task


async def test_a_failure_is_logged_and_the_step_done_again_after_a_pause_that_nothing_wakes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures: list[int] = []
    errors: list[Exception] = [ProjectionsError("away"), TimeoutError(), KeyError("unforeseen")]

    async def step() -> float:
        made.wake()
        if errors:
            raise errors.pop(0)
        made.stop()
        return WHEN_WOKEN

    def restart(failed: int) -> timedelta:
        failures.append(failed)
        return SHORT

    made = service(step, restart=restart)
    with caplog.at_level(logging.WARNING, "projections"):
        await done(made)

    assert (failures, made.failures) == ([1, 2, 3], 0)
    assert [record.getMessage() for record in caplog.records] == [
        "tea: away", "tea: no answer", "tea: 'unforeseen'",
    ]  # fmt: skip
    assert [record.__dict__["action"] for record in caplog.records] == ["tea_failed"] * 3
    assert [record.exc_info is not None for record in caplog.records] == [False, False, True]


async def test_a_step_that_takes_too_long_has_failed() -> None:
    async def step() -> float:
        await asyncio.Event().wait()
        return AT_ONCE

    def failed(error: Exception) -> None:
        raise error

    with pytest.raises(TimeoutError):
        await done(service(step, patience=0.001, failed=failed))


async def test_what_goes_on_after_a_stop_gets_more_steps_until_the_grace_is_over() -> None:
    left = [1, 2]

    async def step() -> float:
        if made.stopping.is_set() and left:
            left.pop()
        return WHEN_WOKEN if not made.stopping.is_set() else AT_ONCE

    made = service(step, goes_on=lambda: bool(left), grace=60)
    async with running(done(made)) as (task,):
        await asyncio.sleep(0)
        made.stop()
        assert await task
    assert not left

    made = service(step, goes_on=lambda: True, grace=0.01)
    made.stop()
    assert not await done(made)


async def test_a_step_that_swallows_the_end_of_the_grace_is_the_last() -> None:
    async def step() -> float:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ProjectionsError("a driver's") from None
        return AT_ONCE

    made = service(step, goes_on=lambda: True, grace=0.01)
    async with running(done(made)) as (task,):
        await asyncio.sleep(0)
        made.stop()
        assert not await task


async def test_what_does_not_answer_is_not_asked_all_the_time_while_it_stops() -> None:
    asked = []

    async def step() -> float:
        asked.append(len(asked))
        raise ProjectionsError

    made = service(step, restart=lambda _: LONG, goes_on=lambda: True, grace=0.02)
    made.stop()

    assert not await done(made)
    assert len(asked) == 1


async def test_of_a_group_the_first_error_ends_all_and_is_raised_alone() -> None:
    async def fail() -> None:
        raise KeyError

    async def both() -> None:
        async with together() as group:
            group.create_task(asyncio.Event().wait())
            group.create_task(fail())

    with pytest.raises(KeyError):
        await both()


def test_pauses_double_while_there_is_no_news() -> None:
    pace = Pace(timedelta(seconds=1), timedelta(seconds=3))

    quiet = [pace.slow_down() for _ in range(3)]
    pace.quicken()

    assert (quiet, pace.pause) == ([1, 2, 3], 1)


def test_pauses_grow_with_the_time_for_which_there_is_no_news() -> None:
    pace = Pace(timedelta(milliseconds=5), timedelta(milliseconds=120), growth=1 / 32)

    quiet, polls = 0.0, 0
    while pace.pause < pace.longest:
        assert pace.pause == pytest.approx(0.005 + quiet / 32)
        quiet, polls = quiet + pace.slow_down(), polls + 1

    assert polls < 110
    assert 3.6 < quiet < 4.0
