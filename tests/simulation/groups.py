"""The arrangement in which events are matched, and read by members of a group: at least once, in order, none lost."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from pydantic import BaseModel

from journal import Database, OwnedSession, PollPacing, append, slice_ranges
from journal import Event as NewEvent
from projections import Backoff, RunSettings, run
from projections.subscriptions import (
    Consumer,
    ConsumerSettings,
    DeadLetters,
    MatchedEvent,
    Matching,
    groups,
    subscribing,
)
from tests.simulation.application import ENTITY_TYPE, Happened, Poison
from tests.simulation.arrangements import LEASE, Connect, Part, Together, rows, untiled
from tests.simulation.history import Event, unread
from tests.simulation.loop import SimulatedLoop
from tests.simulation.plan import Plan
from tests.simulation.postgres.storage import Row

GROUP = "readers"
HANDLERS: dict[str, list[str] | None] = {"all": None, "some": ["Happened"]}
"""The topics that each handler is for."""
_OTHERS = 0.3
"""The share of events that one handler is not for."""
_SECOND = timedelta(seconds=1)
_PAUSES = (0.1 * _SECOND, 0.3 * _SECOND)
"""Before a batch that failed is handled again, where it is set aside."""


class Other(BaseModel):
    """An event that is not for every handler."""


class Groups(Together):
    """Each process matches, and reads for the group. What handlers have seen is in no database: it never goes back."""

    name = "matching"
    watched = "move_cursor"
    settles = 150.0

    def __init__(
        self, loop: SimulatedLoop, plan: Plan, projection: type[Any], is_healed: Callable[[], bool]
    ) -> None:
        super().__init__(loop, plan, projection, is_healed)
        self.seen: dict[str, list[Event]] = {name: [] for name in HANDLERS}
        self._failed: Counter[tuple[str, int]] = Counter()
        self._subscriptions: dict[str, int] = {}
        self._several_versions = self._chance.random() < 0.5
        self._set_aside = {name for name in HANDLERS if self._chance.random() < 0.4}
        """Handlers that go on behind a batch that has failed."""
        self._disordered: set[tuple[str, str]] = set()
        """Handlers and sources of batches that have failed: what comes behind them is seen before."""

    async def set_up(self) -> None:
        """The group, and its handlers, each with its subscription."""
        breathes, self.read_side.breathes = self.read_side.breathes, 0.0
        backend = self.read_side.connect(lambda: None)
        cut = [one.min_slice for one in slice_ranges(self._plan.ranges)]
        await backend.run(groups._CREATE, (GROUP, True, cut, None))
        for name, topics in HANDLERS.items():
            asked = (GROUP, None, "{}", None, topics, None, True, None)
            made = await backend.run(subscribing._SUBSCRIBE, asked)
            self._subscriptions[name] = made.rows[0]["subscribe_v1"]
            await backend.run(subscribing._REGISTER, (GROUP, name, self._subscriptions[name]))
        backend.terminate()
        self.read_side.breathes = breathes
        self.first_place = self.read_side.place

    async def append(self, session: OwnedSession, sources: Sequence[str]) -> list[Event]:
        new = [
            NewEvent(one, Other() if self._chance.random() < _OTHERS else Happened(), ENTITY_TYPE)
            for one in sources
        ]
        return [Event(one.source_id, one.seq_nr, one.event_id) for one in await append(session, new)]

    # Processes

    def parts(self, number: int, database: Database, connect: Connect, settings: RunSettings) -> list[Part]:
        readers = connect(self.read_side, 2)  # those of a pool that is run on are all for its ranges

        async def match(stop: asyncio.Event, take_over: bool) -> None:
            discovery = Matching(self._plan.ranges)
            await run(database, discovery=discovery, settings=settings, stop=stop, take_over=take_over)

        async def consume(stop: asyncio.Event, _take_over: bool) -> None:
            await self._consumer(number, readers).run(stop)

        return [match, consume]

    def _consumer(self, number: int, database: Database) -> Consumer:
        settings = ConsumerSettings(
            page_size=self._plan.batch_size, page_bytes=self._plan.page_bytes, handler_timeout=3 * _SECOND,
            grace=5 * _SECOND, lease=LEASE * _SECOND, heartbeat=0.4 * _SECOND, keep_every=0.9 * _SECOND,
            pacing=PollPacing(0.06 * _SECOND, 0.4 * _SECOND), restart=Backoff(0.05 * _SECOND, 0.5 * _SECOND),
            retries_every=_SECOND,
        )  # fmt: skip
        made = Consumer(database, GROUP, settings=settings)
        for name, topics in HANDLERS.items():
            if name != "some" or not self._several_versions or number % 2 == 0:
                retries = _PAUSES if name in self._set_aside else None
                made.handle(self._seeing(name), name=name, topics=topics, retries=retries)
        return made

    def _seeing(self, handler: str) -> Callable[[Sequence[MatchedEvent]], Awaitable[None]]:
        return partial(self._see, handler)

    async def _see(self, handler: str, events: Sequence[MatchedEvent]) -> None:
        for event in events:
            key = event.envelope.source_id, event.envelope.seq_nr
            if self._failed[key] < self._plan.poison.get(key, 0) and not self._is_healed():
                self._failed[key] += 1
                self._disordered |= {(handler, one.envelope.source_id) for one in events}
                raise Poison(f"event {key[1]} of {key[0]}")
            self.seen[handler].append(Event(*key, event.envelope.event_id))
            if self._chance.random() < 0.2:
                await asyncio.sleep(0.1 * self._chance.random() ** 3)

    async def operate(self, database: Database) -> None:
        async with database.session() as session:
            await DeadLetters(session).retry(GROUP)

    async def rescale(self, session: OwnedSession, amount: float) -> None:
        if amount < 0.5:
            await groups.rescale_group(session, GROUP, 1 + round(10 * amount))
        else:
            await super().rescale(session, amount)

    # What must hold

    def goes_on_without(self, places: Collection[int]) -> bool:
        return any(not self._several_versions or number % 2 == 0 for number in places)

    def progress(self) -> Hashable:
        return len([*rows(self.read_side, "matches")]), *(len(set(seen)) for seen in self.seen.values())

    def not_due(self) -> bool:
        """Whoever dies over a batch that failed keeps it for a minute."""
        now = self.read_side.clock()
        return any(
            row["due_at"] is not None and row["due_at"] > now
            for _, row in rows(self.read_side, "group_retries")
        )

    def problems(self, lost: Collection[Event]) -> list[str]:
        matched = Counter((m["source_id"], m["seq_nr"]) for _, m in rows(self.read_side, "matches"))
        found = [
            f"{source} {number} was matched {n} times" for (source, number), n in matched.items() if n > 1
        ]
        for handler in HANDLERS:
            found += [f"{handler}: {one}" for one in self._unread(handler)]
        return [*found, *self.passed_over()]

    def _unread(self, handler: str) -> list[str]:
        """Without orders that a batch which was set aside has broken."""
        aside = self._disordered if handler in self._set_aside else set()
        seen = self.seen[handler]
        first = {event: place for place, event in reversed([*enumerate(seen)])}
        in_order = sorted(first, key=lambda e: (e.seq_nr if (handler, e.source_id) in aside else 0, first[e]))
        return unread(self._wanted(handler), in_order if aside else seen)

    def _kept(self) -> set[tuple[str, str]]:
        """Handlers and the ids of events that they have failed on, and will get again."""
        return {
            (row["handler"], match["event_id"])
            for _, row in rows(self.read_side, "group_retries")
            for match in json.loads(row["matches"])
        }

    def _wanted(self, handler: str) -> Iterator[Event]:
        """What is committed, and for a handler; history that is older than its subscription is not."""
        topics = HANDLERS[handler]
        (since,) = {
            row["since"]
            for _, row in rows(self.read_side, "subscriptions")
            if row["subscription_id"] == self._subscriptions[handler]
        }
        for _, row in rows(self.journal, self.table):
            if row["db_timestamp"] >= since and (topics is None or row["event_type"] in topics):
                yield Event(row["source_id"], row["seq_nr"], row["event_id"])

    def passed_over(self) -> list[str]:
        """Events that matched before a cursor, and that its handlers have not seen."""
        events = {
            (row["source_id"], row["seq_nr"]): Event(row["source_id"], row["seq_nr"], row["event_id"])
            for _, row in rows(self.journal, self.table)
        }
        cursors, kept = self._cursors(), self._kept()
        matches = [row for _, row in rows(self.read_side, "matches")]
        found = []
        for handler in HANDLERS:
            seen = {*self.seen[handler]}
            found += [
                f"{handler}: the cursor has passed match {m['match_id']}, {m['source_id']} {m['seq_nr']}, unseen"
                for m in matches
                if self._subscriptions[handler] in m["subscription_ids"]
                and m["match_id"] <= _cursor_of(cursors[handler], m["slice"])
                and (event := events[m["source_id"], m["seq_nr"]]) not in seen
                and (handler, str(event.event_id)) not in kept
            ]
        return found

    def _cursors(self) -> dict[str, list[Row]]:
        """For each handler the ranges that say how far it is: its own, and elsewhere those of all."""
        names = {row["handler_id"]: row["name"] for _, row in rows(self.read_side, "group_handlers")}
        found: dict[str, list[Row]] = defaultdict(list)
        for _, row in rows(self.read_side, "group_ranges"):
            found[names.get(row["handler_id"], "together")].append(row)
        for name in HANDLERS:
            own = {row["min_slice"] for row in found[name]}
            found[name] += [row for row in found["together"] if row["min_slice"] not in own]
        return found

    def unheld(self, table: str = "group_ranges") -> list[int]:
        return super().unheld() + super().unheld(table)

    def untiled(self) -> list[tuple[int, int]]:
        ranges = [one for one in rows(self.read_side, "group_ranges") if one[1]["handler_id"] is None]
        return super().untiled() or untiled(ranges)


def _cursor_of(ranges: Sequence[Row], slice_number: int) -> int:
    return next(row["cursor"] for row in ranges if row["min_slice"] <= slice_number <= row["max_slice"])
