"""Processes of subscriptions that a test is rude to: one that matches, and one that consumes for a group."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from journal import ConnectionSettings, Database, PollPacing, connect
from projections import Backoff, RunSettings, run
from projections.subscriptions import Consumer, ConsumerSettings, MatchedEvent, Matching
from projections.subscriptions.group_handler import Handler
from tests.chaos.worker import LEASE

GROUP = "chaos"
SEEN = "CREATE TABLE seen (n bigserial PRIMARY KEY, handler text, source_id text, seq_nr bigint)"
POISON = 40
"""Every so many publications there is one that a handler never bears."""

ODD = "(e.payload ->> 'n')::integer % 2 = 1"
HANDLERS: dict[str, dict[str, Any]] = {
    "everything": {"entity_types": ["plane"]},
    "odd": {"entity_types": ["plane"], "condition": ODD},
    "published": {"topics": ["p.*"]},
    "old": {"entity_types": ["plane"], "contains": {"kind": 0}},
    "new": {"entity_types": ["plane"], "condition": ODD, "params": {"new": True}},
    # It shares the subscription of another handler.
    "twin": {"entity_types": ["plane"]},
}
"""What each handler asks for."""
_FIRST = ["everything", "odd", "published"]
VERSIONS = {"": _FIRST, "1": [*_FIRST, "old"], "2": [*_FIRST, "new", "twin"]}
"""The handlers of a version of the application."""

_SEE = "INSERT INTO seen (handler, source_id, seq_nr) SELECT $1, s, n FROM unnest($2::text[], $3::bigint[]) AS u (s, n)"
_RESTART = Backoff(timedelta(milliseconds=20), timedelta(milliseconds=200))


class Failure(Exception):
    """What a handler raises now and then."""


class Handlers:
    """
    Handlers that write what they see before they are done with it.

    Args:
        database: Where.
        failing: How often one fails without a reason.
    """

    def __init__(self, database: Database, failing: float) -> None:
        self._database = database
        self._failing = failing

    def seeing(self, handler: str) -> Handler:
        """One that sees all, under this name."""
        return partial(self._see, handler)

    async def published(self, events: Sequence[MatchedEvent]) -> None:
        if any(event.payload["n"] % POISON == 0 for event in events):
            raise Failure("poison")
        await self._see("published", events)

    async def _see(self, handler: str, events: Sequence[MatchedEvent]) -> None:
        if random.random() < self._failing:
            raise Failure("by chance")
        keys = [(event.envelope.source_id, event.envelope.seq_nr) for event in events]
        async with self._database.session() as session:
            await session.execute(_SEE, handler, [key[0] for key in keys], [key[1] for key in keys])


def consumer(database: Database, failing: float = 0.02, version: str = "") -> Consumer:
    """The consumer of the group; every process of a version has the same handlers."""
    handlers = Handlers(database, failing)
    settings = ConsumerSettings(
        page_size=20,
        handler_timeout=timedelta(seconds=5),
        grace=timedelta(seconds=10),
        lease=LEASE,
        heartbeat=timedelta(milliseconds=100),
        pacing=PollPacing(timedelta(milliseconds=5), timedelta(milliseconds=50)),
        restart=_RESTART,
        retries_every=timedelta(milliseconds=100),
        keep_every=timedelta(seconds=1),
    )
    made = Consumer(database, GROUP, settings=settings)
    for name in VERSIONS[version]:
        if name == "published":
            made.handle(handlers.published, name=name, retries=[0.1, 0.2], batch=5, **HANDLERS[name])
        else:
            made.handle(handlers.seeing(name), name=name, **HANDLERS[name])
    return made


async def match(database: Database, stop: asyncio.Event) -> None:
    """Match as a worker does."""
    settings = RunSettings(
        lease=LEASE,
        heartbeat=timedelta(milliseconds=100),
        save_horizon_every=timedelta(milliseconds=200),
        restart=_RESTART,
    )
    await run(database, discovery=Matching(4), settings=settings, stop=stop)


async def main(dsn: str, driver: Any, what: str, version: str = "") -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with connect(dsn, ConnectionSettings(driver=driver, max_connections=8)) as database:
        print("running", flush=True)
        await (match(database, stop) if what == "match" else consumer(database, version=version).run(stop))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(main(*sys.argv[1:]))
