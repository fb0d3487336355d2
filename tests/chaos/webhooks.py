"""Webhooks at random moments from one seed: who sends, fans out, delivers and receives, and what happens to them."""

from __future__ import annotations

import asyncio
import gzip
import random
from asyncio.subprocess import Process
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from journal import Database, NotAllowed, ProjectionsError
from journal.embedded import EmbeddedServer
from projections.webhooks.addresses import AddressRules
from projections.webhooks.deliveries import Deliveries, DeliveryFilter
from projections.webhooks.endpoint_bounds import change_bound
from projections.webhooks.endpoints import Endpoints, EndpointSettings
from projections.webhooks.errors import VerificationFailed
from projections.webhooks.messages import send
from projections.webhooks.retry_policy import RetryPolicy
from projections.webhooks.signing import Secret, generate_secret, verify
from tests.chaos.chaos import Chaos
from tests.chaos.hostile import HOSTILE, LARGE_TEXT, MANY_VALUES, make_endpoints
from tests.fixtures.raw_server import Exchange, RawServer, Step, close, respond, then_hang

SENDERS = 3
DELIVERERS = 3
FANNERS = 2
CONNECTIONS = SENDERS + 8
KEYS = [f"key {number}" for number in range(20)]
LOCAL = AddressRules(allow=("127.0.0.0/8",))
MANY = 500
# Never dead, and never disabled: what is not there at the end was lost. Probes come soon.
POLICY = RetryPolicy.model_validate(
    {
        "schedule": [0.05, 0.1, 0.2] + [0.5] * 97, "timeout": 1, "max_retry_after": 1, "disable_after_failures": None,
        "disable_after": None, "breaker_failures": 5,
        "breaker_pause": {"first": 1, "longest": 1, "jitter": 0.2},
    }
)  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "any order": {},
    "by key": {"ordering": "key", "gzip": True},
    "one by one": {"ordering": "endpoint", "topics": ("even",)},
    "some": {"filter": {"data": {"n": {"$gte": MANY}}}, "max_in_flight": 3},
    "slowly": {"rate_limit": 100, "topics": ("odd",)},
}
"""Endpoints: what they ask for."""


class Sent(NamedTuple):
    """A message that was committed."""

    event_id: str
    topic: str
    key: str
    n: int

    def is_for(self, kind: str) -> bool:
        """Whether an endpoint asked for it."""
        topics = KINDS[kind].get("topics", (self.topic,))
        return self.topic in topics and (kind != "some" or self.n >= MANY)


class Receiver:
    """
    Receives for all endpoints; fails at random, until it is told not to.

    Args:
        choices: What it does.
    """

    def __init__(self, choices: random.Random) -> None:
        self.secrets: dict[str, list[Secret]] = {}
        self.taken: dict[str, list[str]] = defaultdict(list)
        """Of each endpoint, the messages that it said 2xx to."""
        self.came = 0
        self.forged: list[str] = []
        self.failing = True
        self._choices = choices

    async def __call__(self, exchange: Exchange) -> None:
        request, kind = exchange.request, exchange.request.target[1:].replace("%20", " ")
        self.came += 1
        message_id = str(request.header("webhook-id"))
        try:
            verify(self.secrets[kind], dict(request.headers), _plain(request.body))
        except VerificationFailed as error:
            self.forged.append(f"{kind} {message_id}: {error}")
        step = self._step()
        if step is None:
            self.taken[kind].append(message_id)
            await respond(self._choices.choice([200, 204]), b"")(exchange)
        else:
            await step(exchange)

    def _step(self) -> Step | None:
        """How it fails this time."""
        if not self.failing or self._choices.random() < 0.8:
            return None
        statuses = [respond(500), respond(500), respond(404), respond(302)]
        return self._choices.choice([*statuses, respond(503), close(), close(), then_hang(b"")])


def _plain(body: bytes) -> bytes:
    return gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body


class WebhookChaos(Chaos):
    """
    Senders, processes that fan out and that deliver, and what happens to them.

    Args:
        server: May be crashed.
        dsn: Its database.
        database: The same, for the senders.
        logs: A directory for what the processes say.
        seconds: How long.
    """

    module = "tests.chaos.webhook_sender"

    def __init__(
        self, server: EmbeddedServer, dsn: str, database: Database, logs: Path, seconds: float
    ) -> None:
        super().__init__(server, dsn, database, logs, seconds)
        self.receiver = Receiver(self._choices())
        self.by_hand: set[tuple[str, str]] = set()
        self.endpoints: dict[str, str] = {}
        self._made = Endpoints(database, rules=LOCAL, allow_http=True)

    async def prepare(self, receiver: RawServer) -> None:
        """Make the endpoints, which ask for more than they may by default."""
        async with self._database.session() as session:
            await change_bound(session, "pause", least="none")
            await change_bound(session, "attempts", most="none")
            await change_bound(session, "breaker_pause", least="none")
        for kind, asked in KINDS.items():
            url = receiver.url_at("127.0.0.1", "/" + kind.replace(" ", "%20"))
            made = await self._made.create("acme", EndpointSettings(url=url, policy=POLICY, **asked))
            self.endpoints[kind] = made.endpoint.endpoint_id
            self.receiver.secrets[kind] = [made.secret]

    async def add_hostile(self, port: int) -> None:
        """Make a tenant that does its worst; its messages come with those of the others."""
        await make_endpoints(self._database, port)

    async def run(self) -> None:
        """Let it all happen until the time is over; all processes are dead then."""
        async with asyncio.TaskGroup() as group:
            for number in range(SENDERS):
                group.create_task(self._sender(KEYS[number::SENDERS], self._choices()))
            for what in ("fan-out",) * FANNERS + ("deliver",) * DELIVERERS:
                group.create_task(self._workers(self._choices(), what))
            for do, seconds in (
                (self._terminate, 1.0), (self._crash, 10), (self._rotate, 3.0), (self._pause_one, 2.0),
                (self._again, 0.5), (self._hostile, 0.2),
            ):  # fmt: skip
                group.create_task(self._now_and_then(do, seconds, self._choices()))

    async def _sender(self, keys: list[str], choices: random.Random) -> None:
        """The messages of a key are sent by one sender, one after the other."""
        while self._going_on:
            try:
                await self._send(choices.choice(["even", "odd"]), choices.choice(keys), choices)
            except (ProjectionsError, OSError):
                await asyncio.sleep(0.05)
            await asyncio.sleep(choices.uniform(0, 0.08))

    async def _send(self, topic: str, key: str, choices: random.Random) -> None:
        """One transaction; some are rolled back."""
        async with self._database.session() as session:
            await session.begin()
            try:
                await send(session, "acme", topic, {"n": choices.randrange(1000)}, order_key=key)
                if choices.random() < 0.1:
                    self.counts["roll-backs"] += 1
                else:
                    await session.commit()
            finally:
                with suppress(ProjectionsError):
                    await session.rollback()

    async def _hostile(self, choices: random.Random) -> str:
        """What the API lets a tenant send in a second."""
        async with self._database.session() as session:
            if choices.random() < 0.1:
                await send(session, HOSTILE, "large", choices.choice([LARGE_TEXT, MANY_VALUES]))
            else:
                await send(session, HOSTILE, "small", {})
        return "hostile"

    async def _rotate(self, choices: random.Random) -> str:
        kind, new = choices.choice(list(KINDS)), generate_secret()
        self.receiver.secrets[kind].append(new)  # before it signs
        await self._made.rotate_secret("acme", self.endpoints[kind], new)
        return "rotations"

    async def _pause_one(self, choices: random.Random) -> str:
        endpoint_id = self.endpoints[choices.choice(list(KINDS))]
        await self._made.set_state("acme", endpoint_id, choices.choice(["paused", "disabled"]))
        await self._pause(choices.uniform(0, 0.5))
        await self._made.set_state("acme", endpoint_id, "active")
        return "states"

    async def _again(self, choices: random.Random) -> str:
        """Somebody tries one again that waits, or has arrived."""
        kind = choices.choice([kind for kind in KINDS if KINDS[kind].get("ordering", "none") == "none"])
        which = DeliveryFilter(endpoint_id=self.endpoints[kind])
        listed = await Deliveries(self._database).list(which, limit=20)
        if listed:
            one = choices.choice(listed)
            self.by_hand.add((kind, one.event_id))
            with suppress(NotAllowed):
                await Deliveries(self._database).retry("acme", one.endpoint_id, one.event_id)
        return "by hand"

    async def catch_up(self) -> None:
        """Processes that nothing happens to, and a receiver that takes everything, end what is left."""
        self.receiver.failing = False
        for endpoint_id in self.endpoints.values():
            await self._made.set_state("acme", endpoint_id, "active")
        processes = [await self._start("asyncpg", what) for what in ("fan-out", "deliver")]
        try:
            async with asyncio.timeout(180), self._database.session() as session:
                while not await session.fetchval(CAUGHT_UP):
                    await asyncio.sleep(0.1)
        finally:
            await asyncio.gather(*map(_end, processes))


async def _end(process: Process) -> None:
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), 60)
    finally:
        if process.returncode is None:
            process.kill()


# The ranges of the fan-out have passed all messages, and all deliveries have come to an end.
CAUGHT_UP = """
SELECT NOT EXISTS (
    SELECT FROM projections.webhook_deliveries
    WHERE state IN ('waiting', 'pending', 'leased') AND tenant <> 'hostile'
) AND (
    SELECT coalesce(sum(o.seq_nr), 0) FROM projections.source_offsets AS o
    INNER JOIN projections.projections AS p USING (projection_id) WHERE p.name = 'webhooks/webhook-message'
) = (SELECT count(*) FROM projections.events WHERE entity_type = 'webhook-message')
"""
