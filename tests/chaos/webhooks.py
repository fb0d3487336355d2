"""Webhooks at random moments from one seed: who sends, fans out, delivers and receives, and what happens to them."""

from __future__ import annotations

import asyncio
import gzip
import random
from asyncio.subprocess import Process
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from journal import NotAllowed, ProjectionsError
from projections.auditing import Audit, History
from projections.webhooks.addresses import AddressRules
from projections.webhooks.deliveries import Deliveries, DeliveryFilter
from projections.webhooks.endpoint_bounds import change_bound
from projections.webhooks.endpoints import Endpoints, EndpointSettings
from projections.webhooks.errors import VerificationFailed
from projections.webhooks.messages import send
from projections.webhooks.retry_policy import RetryPolicy
from projections.webhooks.signing import Secret, generate_secret, verify
from tests.chaos.chaos import ANYWHERE, Chaos
from tests.chaos.cluster import Cluster
from tests.chaos.faults import Plan
from tests.chaos.hostile import HOSTILE, LARGE_TEXT, MANY_VALUES, BadReceiver, make_endpoints
from tests.chaos.projecting import rows
from tests.fixtures.raw_server import Exchange, RawServer, Step, close, respond, then_hang

SENDERS = 3
DELIVERERS = 3
FANNERS = 2
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
    """Senders, processes that fan out and that deliver, a tenant that does its worst, and what happens to them."""

    module = "tests.chaos.webhook_sender"
    kinds = (*ANYWHERE, "late commit")

    def __init__(self, clusters: Sequence[Cluster], logs: Path, plan: Plan, seed: int) -> None:
        super().__init__(clusters, logs, plan, seed)
        self.receiver = Receiver(self._choices())
        self.by_hand: set[tuple[str, str]] = set()
        self.endpoints: dict[str, str] = {}
        self._made = Endpoints(self._database, rules=LOCAL, allow_http=True)

    @asynccontextmanager
    async def around(self) -> AsyncIterator[None]:
        """The receivers."""
        async with (
            RawServer(self.receiver) as self._receiving,
            RawServer(BadReceiver(), host="") as self._bad,
        ):
            yield

    async def prepare(self) -> None:
        """Make endpoints, which ask for more than they may by default, and those of a tenant that does its worst."""
        async with self._database.session() as session:
            await change_bound(session, "pause", least="none")
            await change_bound(session, "attempts", most="none")
            await change_bound(session, "breaker_pause", least="none")
        for kind, asked in KINDS.items():
            url = self._receiving.url_at("127.0.0.1", "/" + kind.replace(" ", "%20"))
            made = await self._made.create("acme", EndpointSettings(url=url, policy=POLICY, **asked))
            self.endpoints[kind] = made.endpoint.endpoint_id
            self.receiver.secrets[kind] = [made.secret]
        await make_endpoints(self._database, self._bad.port)

    def _tasks(self) -> list[Any]:
        """The messages of a key are sent by one sender, one after the other."""
        happening = (
            (self._rotate, 3.0), (self._pause_one, 2.0), (self._again, 0.5), (self._hostile, 0.2),
        )  # fmt: skip
        return [
            *(self._sender(KEYS[number::SENDERS], self._choices()) for number in range(SENDERS)),
            *(
                self._workers(self._choices(), what)
                for what in ("fan-out",) * FANNERS + ("deliver",) * DELIVERERS
            ),
            *(self._now_and_then(do, seconds, self._choices()) for do, seconds in happening),
        ]

    async def append_to(self, connection: Any, choices: random.Random, journal: int = 0) -> None:
        """A message with a key of its own."""
        key = f"late {choices.getrandbits(64)}"
        await send(
            connection, "acme", choices.choice(["even", "odd"]), {"n": choices.randrange(1000)}, order_key=key
        )

    async def _sender(self, keys: list[str], choices: random.Random) -> None:
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
            await self.until(self._caught_up, self._handled)
        finally:
            await asyncio.gather(*map(_end, processes))

    async def _caught_up(self) -> bool:
        async with self._database.session() as session:
            return bool(await session.fetchval(CAUGHT_UP))

    async def _handled(self) -> Any:
        """Arrivals, and how far the fan-out is: a tenant that does its worst may have left it seconds for a message."""
        async with self._database.session() as session:
            fanned_out = await session.fetchval(f"SELECT {_FANNED_OUT}")
        return sum(map(len, self.receiver.taken.values())), fanned_out

    async def check(self) -> dict[str, Audit]:
        """Every delivery is done, what nobody tried again succeeded once, and arrivals are in the order asked for."""
        sent = [Sent(*row.values()) for row in await rows(self._database, _SENT)]
        assert self.receiver.forged == []
        deadlocks = [path.name for path in self._logs.iterdir() if "deadlock detected" in path.read_text()]
        assert deadlocks == []
        await self._check_rows(sum(message.is_for(kind) for message in sent for kind in KINDS))
        return self._arrivals(sent)

    def _arrivals(self, sent: Sequence[Sent]) -> dict[str, Audit]:
        """A source is an order key, where an endpoint asked for the order of keys; else every message is one."""
        with History() as history:
            for kind, asked in KINDS.items():
                places: dict[str, tuple[str, int]] = {}
                numbers: Counter[str] = Counter()
                for message in sent:
                    if message.is_for(kind):
                        source = message.key if "ordering" in asked else message.event_id
                        numbers[source] += 1
                        places[message.event_id] = f"{kind}/{source}", numbers[source]
                        history.committed(*places[message.event_id])
                for event_id in self.receiver.taken[kind]:
                    history.handled(*places.get(event_id, (f"{kind}/{event_id}", 0)), projection="arrivals")
            history.expect("arrivals")
            return dict(history.audit())

    async def _check_rows(self, number: int) -> None:
        states = [(*row.values(),) for row in await rows(self._database, _STATES)]
        assert states == [("done", number)]
        names = {endpoint_id: kind for kind, endpoint_id in self.endpoints.items()}
        succeeded = Counter(
            (names[row["endpoint_id"]], row["event_id"]) for row in await rows(self._database, _SUCCEEDED)
        )
        assert len(succeeded) == number
        assert [key for key, times in succeeded.items() if times > 1 and key not in self.by_hand] == []


async def _end(process: Process) -> None:
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), 60)
    finally:
        if process.returncode is None:
            process.kill()


_SENT = """
SELECT event_id::text, event_type, metadata ->> 'order_key' AS key, (payload ->> 'n')::integer AS n
FROM projections.events WHERE entity_type = 'webhook-message' AND metadata ->> 'tenant' = 'acme'
ORDER BY db_timestamp, source_id, seq_nr
"""
_SUCCEEDED = """
SELECT a.endpoint_id, a.event_id FROM projections.webhook_attempts AS a
INNER JOIN projections.webhook_endpoints AS e ON a.endpoint_id = e.endpoint_id
WHERE a.status = 'success' AND e.tenant = 'acme'
"""
_STATES = "SELECT state, count(*) FROM projections.webhook_deliveries WHERE tenant = 'acme' GROUP BY state"
_FANNED_OUT = """(
    SELECT coalesce(sum(o.seq_nr), 0)::bigint FROM projections.source_offsets AS o
    INNER JOIN projections.projections AS p USING (projection_id) WHERE p.name = 'webhooks/webhook-message'
)"""
# The ranges of the fan-out have passed all messages, and all deliveries have come to an end.
CAUGHT_UP = f"""
SELECT NOT EXISTS (
    SELECT FROM projections.webhook_deliveries
    WHERE state IN ('waiting', 'pending', 'leased') AND tenant <> 'hostile'
) AND {_FANNED_OUT} = (SELECT count(*) FROM projections.events WHERE entity_type = 'webhook-message')
"""
