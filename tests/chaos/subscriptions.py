"""What happens to subscriptions at random moments from one seed, and what must be true of it whenever one looks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from journal import Event
from projections.auditing import Audit
from projections.subscriptions import (
    Consumer,
    Publisher,
    PublisherSettings,
    create_group,
    rescale_group,
    subscribe,
    unsubscribe,
)
from tests.chaos.chaos import ANYWHERE, APPENDERS, Chaos
from tests.chaos.matched import matched, seen
from tests.chaos.projecting import rows
from tests.chaos.subscriber import GROUP, HANDLERS, ODD, SEEN, consumer, match

PROCESSES = 3
PUBLISHERS = 2

# Logs of their own: partitions are dropped meanwhile. What moves to another partition fires no trigger.
LOGS = f"""
{SEEN};
CREATE INDEX ON seen (source_id, seq_nr);
CREATE TABLE event_log (source_id text, seq_nr bigint, entity_type text, event_type text, payload jsonb);
CREATE TABLE match_log (match_id bigint, slice integer, source_id text, seq_nr bigint, subscription_id bigint);
CREATE INDEX ON match_log (subscription_id);
CREATE TABLE asked (subscription_id bigint, predicate text);
CREATE FUNCTION log_event() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$ BEGIN
    INSERT INTO event_log VALUES (NEW.source_id, NEW.seq_nr, NEW.entity_type, NEW.event_type, NEW.payload);
    RETURN NULL;
END $$;
CREATE FUNCTION log_match() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$ BEGIN
    INSERT INTO match_log SELECT NEW.match_id, NEW.slice, NEW.source_id, NEW.seq_nr, unnest(NEW.subscription_ids);
    RETURN NULL;
END $$;
CREATE TRIGGER log AFTER INSERT ON projections.events FOR EACH ROW EXECUTE FUNCTION log_event();
CREATE TRIGGER log AFTER INSERT ON projections.matches FOR EACH ROW EXECUTE FUNCTION log_match();
UPDATE projections.partition_settings SET partition_interval = '1 minute', ahead = 1, retention = '1 minute';
"""
PLANE = "entity_type = 'plane'"
# Those that stay throughout, and what they are for as a query over the log of events says it.
STAYING: list[tuple[dict[str, Any], str]] = [
    ({"topics": ["p.1"]}, "event_type = 'p.1'"),
    ({"topics": ["**"]}, "TRUE"),
    ({"condition": "e.topic LIKE 'p.%'"}, "event_type LIKE 'p.%'"),
    ({"contains": {"kind": 1}}, """payload @> '{"kind": 1}'"""),
]
READING = {
    "everything": PLANE,
    "odd": f"{PLANE} AND (payload ->> 'n')::integer % 2 = 1",
    "published": "event_type LIKE 'p.%'",
}
"""What handlers are for."""
FAILING = ["1 / ((e.payload ->> 'n')::integer % 50) >= 0", "(e.payload ->> 'word')::integer > 0"]

_INNOCENT = (
    "SELECT sql, error FROM projections.conditions WHERE quarantined_at IS NOT NULL AND sql <> ALL ($1)"
)
# Handlers write before a cursor passes: so at no time is there one behind a cursor that was not seen.
PASSED = """
SELECT count(*) FROM match_log AS m
INNER JOIN asked AS a ON m.subscription_id = a.subscription_id
INNER JOIN projections.subscription_groups AS g ON g.name = $1
CROSS JOIN LATERAL (
    SELECT r.cursor FROM projections.group_ranges AS r LEFT JOIN projections.group_handlers AS h USING (handler_id)
    WHERE g.group_id = r.group_id AND m.slice BETWEEN r.min_slice AND r.max_slice
    -- One of its own, if it has one.
    AND (r.handler_id IS NULL OR h.name = $3) ORDER BY r.handler_id LIMIT 1
) AS r
WHERE m.subscription_id = $2 AND m.match_id <= r.cursor AND NOT EXISTS (
    SELECT FROM seen AS s WHERE s.handler = $3 AND s.source_id = m.source_id AND s.seq_nr = m.seq_nr
)
"""


class SubscriptionChaos(Chaos):
    """Appenders, publishers, processes that match and that consume, and what happens to them."""

    module = "tests.chaos.subscriber"
    kinds = (*ANYWHERE, "rescale", "late commit")
    handlers = READING

    async def prepare(self) -> None:
        """Subscribe what stays."""
        async with self._database.session() as session:
            await session.execute(LOGS)
            await create_group(session, GROUP, ranges=8)
            self.reading: dict[str, int] = {}
            for name, predicate in self.handlers.items():
                self.reading[name] = await self._ask(session, GROUP, predicate, **HANDLERS[name])
            for asked, predicate in STAYING:
                await self._ask(session, "watching", predicate, reliable=False, **asked)
        self._next = 0

    @staticmethod
    async def _ask(session: Any, group: str, predicate: str, **asked: Any) -> int:
        number = await subscribe(session, group, **asked)
        await session.execute("INSERT INTO asked VALUES ($1, $2)", number, predicate)
        return number

    def _tasks(self) -> list[Any]:
        return [
            *(self._appender(self._choices()) for _ in range(APPENDERS)),
            *(self._publisher(f"publisher {number}", self._choices()) for number in range(PUBLISHERS)),
            *(self._workers(self._choices(), what) for what in ("match", "consume") * PROCESSES),
            *(self._now_and_then(do, seconds, self._choices()) for do, seconds in self._happening()),
        ]

    def _happening(self) -> list[tuple[Callable[[random.Random], Awaitable[str]], float]]:
        """What happens every so many seconds, and is no fault."""
        return [(self._maintain, 20), (self._churn, 0.2), (self._look, 1.0)]

    def _event(self, source_id: str, choices: random.Random, journal: int = 0) -> Event:
        payload = {"n": choices.randrange(1000), "kind": choices.randrange(3)}
        return Event(source_id, payload, "plane", event_type="Landed")

    async def _publisher(self, name: str, choices: random.Random) -> None:
        settings = PublisherSettings(batch=50, patience=timedelta(minutes=5))
        async with Publisher(self._database, name, settings=settings) as publisher:
            number = 0
            while self._going_on:
                number += 1
                options: dict[str, Any] = {}
                if choices.random() < 0.05:
                    options["not_before"] = datetime.now(UTC) + timedelta(seconds=choices.uniform(-1, 3))
                if choices.random() < 0.05:
                    options["subscription_id"] = choices.choice(list(self.reading.values()))
                payload = {"n": number, "to": options.get("subscription_id")}
                await publisher.publish(f"p.{choices.randrange(3)}", payload, **options)
                await asyncio.sleep(choices.uniform(0, 0.03))
            self.counts["published"] += number

    async def rescale(self, choices: random.Random) -> None:
        """Cut the ranges of the group anew."""
        async with self._database.session() as session:
            await rescale_group(session, GROUP, choices.choice([1, 2, 3, 5, 8, 16]))

    async def _maintain(self, choices: random.Random) -> str:
        async with self._database.session() as session:
            while rows := await session.fetch("SELECT * FROM projections.maintain_v1()"):
                for row in rows:
                    self.counts["maintenance " + ("problems" if row["problem"] else f"{row['step']}s")] += 1
                if all(row["problem"] for row in rows):
                    break
        return "maintenance runs"

    async def _churn(self, choices: random.Random) -> str:
        """Somebody subscribes, or goes."""
        async with self._database.session() as session:
            if choices.random() < 0.4:
                number = await session.fetchval(
                    "SELECT max(subscription_id) FROM projections.subscriptions AS s "
                    "INNER JOIN projections.subscription_groups AS g USING (group_id) WHERE g.name = 'churn'"
                )
                await unsubscribe(session, number or 0)
                return "unsubscribed"
            condition = choices.choice(
                [None, ODD, f"(e.payload ->> 'n')::integer > {choices.randrange(1000)}", *FAILING]
            )
            topics = choices.choice([None, ["Landed"], ["p.*", "Landed"], ["p.2"]])
            await subscribe(session, "churn", condition=condition, topics=topics, reliable=False)
            return "subscribed"

    async def _look(self, choices: random.Random) -> str:
        """No cursor is past what its handler has not seen."""
        async with self._database.session() as session:
            for handler in self.reading.keys() - {"published"}:
                passed = await session.fetchval(PASSED, GROUP, self.reading[handler], handler)
                assert passed == 0, f"{passed} events are behind a cursor, and {handler} has not seen them"
        return "looks"

    async def check(self) -> dict[str, Audit]:
        """Matches are right, handlers have seen theirs, and no condition but those that fail is set apart."""
        assert await rows(self._database, _INNOCENT, FAILING) == []
        return {"matches": await matched(self._database), **await seen(self._database, self.reading)}

    def _consumers(self) -> list[Consumer]:
        """Have all handlers, of which none fails."""
        return [consumer(self._database, failing=0)]

    async def catch_up(self) -> None:
        """Processes that nothing happens to match and handle what is left."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(match(self._database, stop))
            for made in self._consumers():
                group.create_task(made.run(stop))
            try:
                await self.until(self._caught_up, self._handled)
            finally:
                stop.set()

    async def _caught_up(self) -> bool:
        async with self._database.session() as session:
            # What a process had in hand when it was killed is due after a minute.
            await session.execute(DUE)
            return bool(await session.fetchval(CAUGHT_UP, GROUP))

    async def _handled(self) -> Any:
        async with self._database.session() as session:
            return await session.fetchval(
                "SELECT (SELECT count(*) FROM match_log) + (SELECT count(*) FROM seen)"
            )


_HANDLED = """
SELECT ARRAY[
    (SELECT count(*) FROM match_log), (SELECT count(*) FROM seen),
    (SELECT count(*) FROM projections.group_retries WHERE due_at IS NOT NULL)
]
"""
DUE = "UPDATE projections.group_retries SET due_at = now() WHERE due_at > now() + interval '1 second'"
CAUGHT_UP = """
SELECT NOT EXISTS (
    SELECT FROM event_log AS e WHERE NOT EXISTS (
        SELECT FROM match_log AS m WHERE m.source_id = e.source_id AND m.seq_nr = e.seq_nr
    )
) AND NOT EXISTS (
    SELECT FROM projections.matches AS m INNER JOIN projections.subscription_groups AS g USING (group_id)
    INNER JOIN projections.group_ranges AS r ON m.group_id = r.group_id AND m.slice BETWEEN r.min_slice AND r.max_slice
    WHERE g.name = $1 AND m.match_id > r.cursor
) AND NOT EXISTS (SELECT FROM projections.group_retries WHERE due_at IS NOT NULL)
AND NOT EXISTS (SELECT FROM projections.directed_events)
"""
