"""Calling a handler, within its time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from projections.errors import HandlerFailed
from projections.subscriptions.errors import HandlerTimedOut
from projections.subscriptions.matched import MatchedEvent
from projections.subscriptions.registration import RegisteredHandler


async def call(handler: RegisteredHandler, batch: Sequence[MatchedEvent]) -> None:
    """
    Have a handler handle a batch.

    Raises:
        HandlerTimedOut: It took too long.
        HandlerFailed: It ended as if it had been cancelled, and nobody had.
        Exception: Whatever it raised.
    """
    limit = asyncio.timeout(handler.timeout.total_seconds())
    try:
        async with limit:
            await handler.call(batch)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise HandlerTimedOut(f"no end after {handler.timeout.total_seconds():g} s") from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise HandlerFailed("something that it waited for was cancelled") from error


def describe(batch: Sequence[MatchedEvent]) -> str:
    """A batch, for messages."""
    return f"matches {batch[0].match_id} to {batch[-1].match_id}"
