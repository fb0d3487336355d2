"""The arrangement in which events are sent to endpoints: each arrives at least once, and in order where one is."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from datetime import timedelta
from typing import Any
from zlib import crc32

from journal import Database, OwnedSession, PollPacing, append
from journal import Event as NewEvent
from projections import Backoff, RunSettings, run
from projections.webhooks import Deliveries, DeliveryFilter, DeliverySettings, FanOut, RetryPolicy
from projections.webhooks.deliverer import deliver
from projections.webhooks.duties import Duties
from tests.simulation.application import ENTITY_TYPE, Happened
from tests.simulation.arrangements import Connect, Part, Together, rows
from tests.simulation.groups import Other
from tests.simulation.history import Event
from tests.simulation.loop import SimulatedLoop
from tests.simulation.plan import LARGEST_STEP, Plan
from tests.simulation.postgres.storage import Row
from tests.simulation.postgres.webhook_endpoints import CREATE, SET_LEAST
from tests.simulation.receivers import Attempt, Key, Receivers, SimulatedSender

_SECOND = timedelta(seconds=1)
_MARGIN = 0.4 * _SECOND
_TIMEOUT = 1.0 * _SECOND
_GOOD_FOR = 2 * _SECOND
"""Where events expire, those that not every endpoint wants."""
_ORDERS = (("none", "skip"), ("key", "skip"), ("key", "block"), ("endpoint", "skip"), ("endpoint", "block"))
_OTHERS = 0.3
"""The share of events that are of another topic."""


class Webhooks(Together):
    """
    Each process makes deliveries, sends them, and cleans up.

    What receivers have seen is in no database: it never goes back.
    """

    name = f"webhooks/{ENTITY_TYPE}"
    watched = "claim_deliveries"
    lease = (_TIMEOUT + _MARGIN) / _SECOND

    def __init__(
        self, loop: SimulatedLoop, plan: Plan, projection: type[Any], is_healed: Callable[[], bool]
    ) -> None:
        super().__init__(loop, plan, projection, is_healed)
        self._receivers = Receivers(loop, plan.seed, plan.trouble, is_healed)
        self._receivers.refuses = self._refuses
        self._refused: Counter[Key] = Counter()
        self._attempts: list[Attempt] = []
        self._wrong: list[str] = []
        draw = self._chance
        self._tenants = ("one", "other")[: draw.randint(1, 2)]
        self._retries = draw.randint(0, 3)
        self._breaks_after = draw.randint(1, 8)
        self._orders = [draw.choice(_ORDERS) for _ in range(draw.randint(1, 4))]
        self._expire = draw.random() < 0.3
        self._dead_are_tried_again = draw.random() < 0.5
        self._places = draw.choice([1, 3, 20])

    def follow(self, watch: Callable[..., Any], tell: Callable[[str], None]) -> None:
        self._receivers.watch, self._receivers.tell = watch, tell

    async def set_up(self) -> None:
        """The endpoints, whose pauses are short."""
        breathes, self.read_side.breathes = self.read_side.breathes, 0.0
        backend = self.read_side.connect(lambda: None)
        for limit in ("pause", "breaker_pause"):
            await backend.run(SET_LEAST, (limit, 0))
        policy = RetryPolicy(
            schedule=(0.1 * _SECOND,) * self._retries, timeout=_TIMEOUT, disable_after_failures=None,
            disable_after=None, breaker_failures=self._breaks_after, breaker_pause=Backoff(_SECOND, 2 * _SECOND),
        )  # fmt: skip
        for number, (ordering, on_dead) in enumerate(self._orders):
            settings = {
                "url": f"https://endpoint-{number}/hook", "policy": policy.model_dump(mode="json"),
                "ordering": ordering, "topics": [["**"], ["Happened"]][number % 2], "on_dead": on_dead,
                "max_in_flight": self._chance.randint(1, 5),
            }  # fmt: skip
            tenant = self._tenants[number % len(self._tenants)]
            secret = f"plain:whsec_{'A' * 32}"
            await backend.run(CREATE, (f"endpoint-{number}", tenant, json.dumps(settings), secret))
        backend.terminate()
        self.read_side.breathes = breathes
        self.first_place = self.read_side.place

    async def append(self, session: OwnedSession, sources: Sequence[str]) -> list[Event]:
        new = [
            NewEvent(
                one, Other() if self._chance.random() < _OTHERS else Happened(), ENTITY_TYPE,
                metadata={"tenant": self._tenants[crc32(one.encode()) % len(self._tenants)]},
            )
            for one in sources
        ]  # fmt: skip
        return [Event(one.source_id, one.seq_nr, one.event_id) for one in await append(session, new)]

    # Processes

    def parts(self, number: int, database: Database, connect: Connect, settings: RunSettings) -> list[Part]:
        others = connect(self.read_side, 5)
        expires_after = {"Other": _GOOD_FOR} if self._expire else None

        async def make(stop: asyncio.Event, take_over: bool) -> None:
            fan_out = FanOut(ENTITY_TYPE, expires_after=expires_after)
            ranges = self._plan.ranges
            await run(database, fan_out, ranges=ranges, settings=settings, stop=stop, take_over=take_over)

        async def send(stop: asyncio.Event, _take_over: bool) -> None:
            sender = SimulatedSender(self._receivers, self._begins)
            await deliver(others, sender, settings=self._settings(), stop=stop)

        async def clean_up(stop: asyncio.Event, _take_over: bool) -> None:
            await Duties(others, every=_SECOND, restart=Backoff(0.05 * _SECOND, 0.5 * _SECOND)).run(stop)

        return [make, send, clean_up]

    def _settings(self) -> DeliverySettings:
        return DeliverySettings(
            max_in_flight=self._places, claim_size=self._plan.batch_size, max_bytes=self._plan.page_bytes,
            margin=_MARGIN, pacing=PollPacing(0.06 * _SECOND, 0.4 * _SECOND), reap_every=0.5 * _SECOND,
            grace=0.3 * _SECOND, patience=3 * _SECOND, restart=Backoff(0.05 * _SECOND, 0.5 * _SECOND),
        )  # fmt: skip

    async def operate(self, database: Database) -> None:
        if self._dead_are_tried_again:
            async for _ in Deliveries(database).retry_many(DeliveryFilter()):
                pass

    # Receivers

    def _refuses(self, key: Key) -> bool:
        if self._is_healed():
            return False
        place = next((e[:2] for e in self.committed() if str(e.event_id) == key.event_id), ("", 0))
        self._refused[key] += 1
        return self._refused[key] <= self._plan.poison.get(place, 0)

    def _begins(self, attempt: Attempt) -> None:
        """Note an attempt, and whether it is at the same time as another one that has a lease."""
        server = self.read_side
        attempt.life = server.started_at
        deliveries = self._deliveries()
        held = deliveries.get(attempt.key)
        if held is not None and (held["state"], held["attempts"]) == ("leased", attempt.number):
            claimed_at = held["lease_until"] - _TIMEOUT - _MARGIN
            # A process that stood still meanwhile may come with a lease that the server has forgotten.
            if int(claimed_at.timestamp()) == attempt.signed_at and claimed_at > server.started_at:
                attempt.claimed_at, attempt.lease_until = claimed_at, held["lease_until"]
                self._wrong += [
                    f"attempt {attempt.number} at {attempt.key} was claimed at {claimed_at.time()}, while attempt "
                    f"{one.number} at {one.key} was on its way, whose lease was good until {one.lease_until.time()}"
                    for one in self._attempts
                    if one.lease_until is not None and self._is_same(one, attempt, deliveries)
                    and claimed_at + timedelta(seconds=LARGEST_STEP) < one.lease_until
                ]  # fmt: skip
        self._attempts.append(attempt)

    def _is_same(self, one: Attempt, other: Attempt, deliveries: dict[Key, Row]) -> bool:
        """Whether an attempt on its way keeps another one waiting: at the same delivery, or in one order."""
        if one.over or one.life != other.life or one.key not in deliveries:
            return False
        if one.key == other.key:
            return True
        if max(one.number, other.number) > self._retries + 1:  # somebody has had a dead letter tried again
            return False
        here, there = deliveries[one.key], deliveries[other.key]
        return here["order_key"] is not None and (
            (here["endpoint_id"], here["order_key"]) == (there["endpoint_id"], there["order_key"])
        )

    # What must hold

    def progress(self) -> Hashable:
        return (
            len(self._deliveries()),
            len(set(self._receivers.seen)),
            len([*rows(self.read_side, "webhook_attempts")]),
        )

    def not_due(self) -> bool:
        """A delivery is tried again later, or an endpoint is given a rest."""
        now = self.read_side.clock()
        waits = [row["next_at"] for row in self._deliveries().values() if row["state"] == "pending"]
        waits += [row["blocked_until"] for _, row in rows(self.read_side, "webhook_circuits")]
        return any(at is not None and at > now for at in waits)

    def _deliveries(self) -> dict[Key, Row]:
        found = (row for _, row in rows(self.read_side, "webhook_deliveries"))
        return {Key(row["endpoint_id"], row["event_id"]): row for row in found}

    def committed(self) -> list[Event]:
        """But for what is told of endpoints."""
        return [
            Event(row["source_id"], row["seq_nr"], row["event_id"])
            for _, row in rows(self.journal, self.table)
            if row["entity_type"] == ENTITY_TYPE
        ]

    def passed_over(self) -> list[str]:
        return self._wrong

    def problems(self, lost: Collection[Event]) -> list[str]:
        deliveries, wanted = self._deliveries(), list(self._wanted())
        found = [*self._wrong]
        found += [
            f"no delivery of {event} for {key.endpoint_id}" for key, event in wanted if key not in deliveries
        ]
        unknown = deliveries.keys() - {key for key, _ in wanted}
        found += [f"a delivery that nobody asked for: {key}" for key in sorted(unknown)]
        for key, delivery in deliveries.items():
            if (why := self._unfinished(delivery, deliveries)) is not None:
                found.append(f"{key} is {delivery['state']}: {why}")
        return [*found, *self._out_of_order(deliveries, wanted), *self._wrong_outcomes(deliveries)]

    def _wanted(self) -> Iterator[tuple[Key, Event]]:
        """Which endpoint each event is for."""
        endpoints = [row for _, row in rows(self.read_side, "webhook_endpoints")]
        for _, row in rows(self.journal, self.table):
            if row["entity_type"] != ENTITY_TYPE or row["metadata"] is None:
                continue
            tenant = json.loads(row["metadata"])["tenant"]
            for e in endpoints:
                is_meant = e["tenant"] == tenant and {"**", row["event_type"]} & {*e["topics"]}
                if is_meant and row["db_timestamp"] >= e["created_at"]:
                    event = Event(row["source_id"], row["seq_nr"], row["event_id"])
                    yield Key(e["endpoint_id"], str(row["event_id"])), event

    def _unfinished(self, delivery: Row, deliveries: dict[Key, Row]) -> str | None:
        """Why a delivery must not stay as it is, if so."""
        match delivery["state"]:
            case "done":
                key = Key(delivery["endpoint_id"], delivery["event_id"])
                arrived = any(one.key == key and one.arrived and one.code == "200" for one in self._attempts)
                passed = self._is_blocked(delivery, deliveries) and not self._dead_are_tried_again
                wrong = (
                    f"it has arrived: {arrived}, it has passed a dead letter: {passed}",
                    passed or not arrived,
                )
            case "dead":
                attempts, tried_again = delivery["attempts"], self._dead_are_tried_again
                why = f"after {attempts} attempts with {delivery['last_code']}, tried again: {tried_again}"
                wrong = why, tried_again or attempts <= self._retries or delivery["last_code"] is None
            case "expired":
                wrong = "it does not expire", delivery["expires_at"] is None
            case "waiting":
                wrong = (
                    "behind nothing",
                    self._dead_are_tried_again or not self._is_blocked(delivery, deliveries),
                )
            case _:
                wrong = "for good", True
        return wrong[0] if wrong[1] else None

    def _is_blocked(self, delivery: Row, deliveries: dict[Key, Row]) -> bool:
        """Whether there is a dead letter before it in its order, and its endpoint asks to wait behind these."""
        return self._order_of(delivery["endpoint_id"])[1] == "block" and any(
            d["state"] == "dead" and d["delivery_id"] < delivery["delivery_id"] and d["order_key"] is not None
            and (d["endpoint_id"], d["order_key"]) == (delivery["endpoint_id"], delivery["order_key"])
            for d in deliveries.values()
        )  # fmt: skip

    def _order_of(self, endpoint_id: str) -> tuple[str, str]:
        return self._orders[int(endpoint_id.removeprefix("endpoint-"))]

    def _out_of_order(self, deliveries: dict[Key, Row], wanted: Sequence[tuple[Key, Event]]) -> list[str]:
        """Of each endpoint with an order and each source, whether events arrived first in the order of the source."""
        first = {key: place for place, key in reversed([*enumerate(self._receivers.seen)])}
        by_order: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        for key, event in wanted:
            ordering, on_dead = self._order_of(key.endpoint_id)
            delivery = deliveries.get(key)
            if ordering == "none" or delivery is None or delivery["state"] != "done":
                continue
            # One that was dead meanwhile let others pass.
            if on_dead == "block" or delivery["attempts"] <= self._retries:
                by_order[key.endpoint_id, event.source_id].append((event.seq_nr, first.get(key, -1)))
        return [
            f"{source} has arrived at {endpoint_id} out of order: {[n for n, _ in sorted(seen, key=lambda s: s[1])]}"
            for (endpoint_id, source), seen in by_order.items()
            if [place for _, place in sorted(seen)] != sorted(place for _, place in seen)
        ]

    def _wrong_outcomes(self, deliveries: dict[Key, Row]) -> list[str]:
        """Outcomes that are stored, and that nobody has had who made the attempt."""
        made = {(one.key, one.number, one.code, one.took) for one in self._attempts if one.code is not None}
        stored: Counter[tuple[Key, int]] = Counter()
        found = []
        for _, row in rows(self.read_side, "webhook_attempts"):
            key = Key(row["endpoint_id"], row["event_id"])
            stored[key, row["attempt_number"]] += 1
            outcome = key, row["attempt_number"], row["code"], row["took"]
            if row["code"] != "worker_lost" and outcome not in made:
                found.append(
                    f"the outcome of attempt {row['attempt_number']} at {key} is another's: {row['code']}"
                )
        for key, delivery in deliveries.items():
            numbers = [n for (one, n), count in stored.items() for _ in range(count) if one == key]
            used_up = delivery["attempts"] - (delivery["state"] == "leased")
            if sorted(numbers) != list(range(1, used_up + 1)):
                found.append(f"{used_up} attempts at {key} are used up, and stored are {sorted(numbers)}")
            if used_up > self._retries + 1 and not self._dead_are_tried_again:
                found.append(f"{used_up} attempts at {key} were made, and not {self._retries + 1}")
        return found
