"""Calls of code that is not ours, besides handlers of projections: they end no process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from projections.errors import HandlerFailed, ProjectionFailed, representation
from projections.running.blame import comes_from_outside


async def call_hook(projection: str, target: object, name: str, limit: timedelta) -> None:
    """
    Call what a projection wants to do at the start or the end of a range, if anything.

    Args:
        projection: Its name, for messages.
        target: The object.
        name: ``start`` or ``stop``.
        limit: How long it may take.

    Raises:
        ProjectionFailed: It took longer, or raised what would end the process.
        Exception: Whatever else it raises.
    """
    if (hook := getattr(target, name, None)) is None:
        return
    try:
        async with asyncio.timeout(limit.total_seconds()) as watchdog:
            await hook()
    except BaseException as error:
        ended = isinstance(error, TimeoutError) and watchdog.expired()
        if comes_from_outside(error) or (isinstance(error, Exception) and not ended):
            raise
        late = f"was cancelled after {limit.total_seconds():g} s (handler_timeout)"
        why = late if ended else f"raised {representation(error)}"
        raise ProjectionFailed(f"projection {projection!r}: {name}() {why}") from error


@contextmanager
def surviving() -> Iterator[None]:
    """Raise HandlerFailed for what a handler raises as if it, or the process, were to end."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or comes_from_outside(error):
            raise
        cancelled = isinstance(error, asyncio.CancelledError)
        what = "something that it waited for was cancelled" if cancelled else representation(error)
        raise HandlerFailed(what) from error
