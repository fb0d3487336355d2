"""Two versions of an application in one group, whose processes are replaced by those of the other, back and forth."""

from __future__ import annotations

import asyncio
import random
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Awaitable, Callable

from journal import Event, append
from projections.auditing import Audit
from projections.subscriptions import Consumer
from tests.chaos.chaos import SOURCES
from tests.chaos.matched import keys
from tests.chaos.projecting import rows
from tests.chaos.subscriber import ODD, VERSIONS, consumer, match
from tests.chaos.subscriptions import CAUGHT_UP, GROUP, PLANE, READING, SubscriptionChaos

POISONED = "payload ->> 'n' = 'poison'"
"""What the condition of several subscriptions fails on."""
_ODD = f"{PLANE} AND CASE WHEN {POISONED} THEN FALSE ELSE (payload ->> 'n')::integer % 2 = 1 END"


_CALM = """
SELECT s.handler, s.source_id, s.seq_nr FROM seen AS s INNER JOIN event_log AS e USING (source_id, seq_nr)
WHERE e.payload @> '{"calm": true}'
"""
_POISONED = f"SELECT source_id, seq_nr FROM event_log WHERE {POISONED}"
_SET_APART = """
SELECT source_id, seq_nr FROM projections.unanswered AS u INNER JOIN projections.conditions AS c USING (condition_id)
WHERE c.sql = $1 AND u.error IS NOT NULL AND NOT u.due
"""


class RollingChaos(SubscriptionChaos):
    """As that of subscriptions, but a consumer is of the version that is rolled out when it starts."""

    handlers = READING | {
        "odd": _ODD,
        "old": f"""{PLANE} AND payload @> '{{"kind": 0}}'""",
        "new": _ODD,
        "twin": PLANE,
    }
    calm_rounds = 6

    async def prepare(self) -> None:
        """Have both versions known."""
        self._version = "1"
        await super().prepare()
        for made in self._consumers():
            stop = asyncio.Event()
            stop.set()
            await made.run(stop)

    def _consumers(self) -> list[Consumer]:
        return [consumer(self._database, failing=0, version=version) for version in VERSIONS if version]

    def _happening(self) -> list[tuple[Callable[[random.Random], Awaitable[str]], float]]:
        return [*super()._happening(), (self._roll, 7.0)]

    async def _start(self, *options: str) -> Process:
        if "consume" not in options:
            return await super()._start(*options)
        self.counts[f"consumers of version {self._version}"] += 1
        return await super()._start(*options, self._version)

    async def _roll(self, choices: random.Random) -> str:
        """From now on, a process that goes is followed by one of the other version."""
        self._version = "1" if self._version == "2" else "2"
        return "rolls"

    def _event(self, source_id: str, choices: random.Random, journal: int = 0) -> Event:
        if choices.random() >= 0.02:
            return super()._event(source_id, choices, journal)
        self.counts["poisoned"] += 1
        payload = {"n": "poison", "kind": choices.randrange(3)}
        return Event(source_id, payload, "plane", event_type="Landed")

    async def check(self) -> dict[str, Audit]:
        """What a condition failed on is set apart; and when nothing goes wrong, each handler sees each event once."""
        found = await super().check()
        set_apart = {(*row.values(),) for row in await rows(self._database, _SET_APART, ODD)}
        assert await keys(self._database, _POISONED) == set_apart
        await self.calm()
        times = Counter(tuple(row.values()) for row in await rows(self._database, _CALM))
        assert len(times) == 5 * len(SOURCES) * self.calm_rounds
        assert {*times.values()} == {1}
        self.counts["calm"] = len(times)
        return found

    async def calm(self) -> None:
        """Events come while the versions take turns, each told to stop once the other has come: nothing goes wrong."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            matching = group.create_task(match(self._database, stop))
            last = asyncio.Event()
            for number in range(self.calm_rounds):
                following = asyncio.Event()
                made = self._consumers()[number % 2]
                group.create_task(made.run(following))
                await self._land()
                await asyncio.sleep(0.5)
                last.set()
                last = following
            for made in self._consumers():
                group.create_task(made.run(last))
            async with asyncio.timeout(300), self._database.session() as session:
                while not await session.fetchval(CAUGHT_UP, GROUP):
                    await asyncio.sleep(0.1)
            last.set()
            stop.set()
            await matching

    async def _land(self) -> None:
        payload = {"n": 1, "kind": 0, "calm": True}
        async with self._database.transaction() as session:
            await append(session, [Event(one, payload, "plane", event_type="Landed") for one in SOURCES])
