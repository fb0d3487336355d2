"""The model of ``_claim_deliveries_v1``: which deliveries are taken, fairly over tenants and their endpoints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import Any

from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.delivering import _expire_deliveries_v1 as expire_deliveries
from tests.simulation.postgres.errors import NotModelled
from tests.simulation.postgres.statements import function
from tests.simulation.postgres.storage import Row
from tests.simulation.postgres.webhook_endpoints import limits, policy_within_limits

_LOOKS = 1000
_LONGEST = 100
_BYTES_BESIDE_DATA = 512


@function
async def _claim_deliveries_v1(  # noqa: PLR0917 - as the function has them
    db: Backend, limit: int, begin: str, margin: timedelta, most_bytes: int, free: int, share: float,
    tenants: Sequence[str], held: Sequence[int], held_bytes: Sequence[int], verified_only: bool,
) -> list[Row]:  # fmt: skip
    if verified_only:
        raise NotModelled("claims for endpoints that are verified")
    await expire_deliveries(db)
    room = _Room(
        limit, most_bytes, free, share, dict(zip(tenants, zip(held, held_bytes, strict=True), strict=True))
    )
    looking = _Looking(db, room, begin, db.clock())
    if not await looking.begins():
        return []
    await looking.look()
    if not looking.endpoints:
        return []
    taken = await _take(db, looking, room)
    return await _lease(db, looking, taken, margin)


class _Room:
    """What a process has left, and what tenants hold of the rest."""

    def __init__(
        self, limit: int, most_bytes: int, free: int, share: float, held: dict[str, tuple[int, int]]
    ) -> None:
        self.limit = limit
        self.bytes = most_bytes
        self.free = free
        self.share = share
        self._held = held

    def places(self, tenant: str) -> int:
        """That a tenant holds."""
        return self._held.get(tenant, (0, 0))[0]

    def size(self, tenant: str) -> int:
        """In bytes, of what a tenant holds."""
        return self._held.get(tenant, (0, 0))[1]

    @property
    def full(self) -> set[str]:
        """Tenants that have their share."""
        return {
            tenant
            for tenant, (places, size) in self._held.items()
            if places >= ceil(self.share * (self.free + places)) or size >= self.share * (self.bytes + size)
        }


class _Turn:
    """A tenant of the rounds, and where the walk over its endpoints is."""

    def __init__(self, tenant: str, start: str, ahead: int = 0) -> None:
        self.tenant = tenant
        self.after = start
        self.turned = not start
        self.ahead = ahead
        """Of how many rounds more it has given its endpoint already."""


class _Looking:
    """The walk over endpoints that have what is due."""

    def __init__(self, db: Backend, room: _Room, start: str, now: datetime) -> None:
        self._db = db
        self._room = room
        self._start = start
        self.now = now
        self.endpoints: dict[str, tuple[str, int]] = {}
        """The tenant of each that was found, and how many may be taken of it."""
        self._found = 0
        self._seen: set[str] = set()
        self._rounds: list[_Turn] = []
        self._place = 0
        self._first = self._last = ""
        self._gathering = True
        self._wrapped = False

    async def begins(self) -> bool:
        """Look at those that are due for longest; whether any are."""
        db = self._db
        await db.breathe()
        due = sorted(self._pending(lambda d: d["next_at"] <= self.now), key=lambda d: d["next_at"])[:_LONGEST]
        if not due:
            return False
        first: dict[tuple[str, str], Row] = {}
        for d in sorted(due, key=lambda d: (d["next_at"], d["delivery_id"])):
            first.setdefault((d["endpoint_id"], d["tenant"]), d)
        self._longest = [one for one, d in first.items() if not self._is_expired(d)]
        self._all_seen = len(due) < _LONGEST
        await db.breathe()
        active = sorted(e["tenant"] for e in db.select("webhook_endpoints", lambda e: e["state"] == "active"))
        self.alone = bool(active) and active[0] == active[-1]
        self.share = self._room.share = 1.0 if self.alone else self._room.share
        await db.breathe()
        if self.alone:
            self._rounds, self._gathering = [_Turn(active[-1], self._start)], False
        elif self._start:
            after = [e for e in db.select("webhook_endpoints") if e["endpoint_id"] >= self._start]
            self._first = min(after, key=lambda e: e["endpoint_id"])["tenant"] if after else ""
        self._last = self._first
        return True

    def _pending(self, where: Any) -> list[Row]:
        return self._db.select("webhook_deliveries", lambda d: d["state"] == "pending" and where(d))

    def _is_expired(self, d: Row) -> bool:
        return d["expires_at"] is not None and d["expires_at"] <= self.now

    async def look(self) -> None:
        """Find endpoints until there are enough."""
        for look in range(_LOOKS):
            if self._found >= self._room.limit:
                return
            is_longest = look < len(self._longest)
            if not is_longest and (self._all_seen or not (self._gathering or self._rounds)):
                return
            await self._db.breathe()
            chosen = self._longest_at(look) if is_longest else self._next()
            if chosen is not None:
                await self._add(*chosen, is_longest=is_longest)

    def _longest_at(self, look: int) -> tuple[str, str] | None:
        endpoint, tenant = self._longest[look]
        if tenant in self._room.full:
            return None
        number, limit = self._owned(tenant), self._room.limit
        if not self.alone and number and (len(self.endpoints) >= limit or 2 * number >= limit):
            self._all_seen = False
            return None
        self._seen.add(endpoint)
        return endpoint, tenant

    def _owned(self, tenant: str) -> int:
        return sum(owner == tenant for owner, _ in self.endpoints.values())

    def _next(self) -> tuple[str, str] | None:
        """The next endpoint of the rounds, if this look finds one."""
        if not (self._gather() if self._gathering else self._go_round()):
            return None
        turn = self._rounds[self._place - 1]
        its = self._pending(lambda d: d["tenant"] == turn.tenant and d["endpoint_id"] > turn.after)
        first = min(its, key=lambda d: (d["endpoint_id"], d["next_at"], d["delivery_id"]), default=None)
        if first is None or (turn.turned and self._start and first["endpoint_id"] > self._start):
            if turn.turned:
                del self._rounds[self._place - 1]
                self._place -= 1
            else:
                turn.after, turn.turned = "", True
            return None
        turn.after = first["endpoint_id"]
        if first["next_at"] > self.now or self._is_expired(first) or turn.after in self._seen:
            return None
        return first["endpoint_id"], first["tenant"]

    def _gather(self) -> bool:
        """Add the next tenant to the rounds; whether its first endpoint is to be looked at."""
        tenant = min((d["tenant"] for d in self._pending(lambda d: d["tenant"] > self._last)), default=None)
        if tenant is None or (self._wrapped and tenant > self._first):
            self._gathering = not (self._wrapped or self._first == "")
            self._wrapped, self._last = True, ""
            return False
        self._last = tenant
        if tenant in self._room.full:
            return False
        self._rounds.append(_Turn(tenant, self._start, self._owned(tenant) - 1))
        self._place = len(self._rounds)
        return self._rounds[-1].ahead < 0

    def _go_round(self) -> bool:
        self._place = self._place % len(self._rounds) + 1
        turn = self._rounds[self._place - 1]
        if turn.ahead > 0:
            turn.ahead -= 1
            self._found += 1
            return False
        return True

    async def _add(self, endpoint_id: str, tenant: str, *, is_longest: bool) -> None:
        db = self._db
        least, most = limits(db)["max_in_flight"]
        endpoint = db.table("webhook_endpoints").get(db.snapshot(), endpoint_id)
        if endpoint is None or endpoint["state"] != "active":
            return
        circuits = await db.lock_rows(
            "webhook_circuits",
            lambda c: c["endpoint_id"] == endpoint_id and c["blocked_until"] <= self.now,
            skip_locked=True,
        )
        if not circuits:
            return
        await db.breathe()
        leased = db.select(
            "webhook_deliveries", lambda d: d["endpoint_id"] == endpoint_id and d["state"] == "leased"
        )
        most_at_a_time = min(max(endpoint["max_in_flight"], int(least or 0)), int(most or 0))
        room = (1 if circuits[0]["opened"] > 0 else most_at_a_time) - len(leased)
        if room < 1:
            return
        is_first = not self._owned(tenant)
        self._found += not is_longest or self.alone or is_first
        self.endpoints[endpoint_id] = tenant, min(room, self._room.limit)


async def _take(db: Backend, looking: _Looking, room: _Room) -> list[int]:
    """Lock the oldest of each endpoint, and choose among them, in turn over tenants and endpoints."""
    depth = 0.5
    tenants = {tenant for tenant, _ in looking.endpoints.values()}
    while True:
        depth *= 4
        found, cut_off = await _at_depth(db, looking, room, depth / len(tenants))
        if not cut_off:
            break
    sizes = [one["size"] for one in found if one["size"] is not None]
    left = min(
        (room.share * (room.bytes + room.size(d["tenant"])) - room.size(d["tenant"]) for d in found),
        default=0,
    )
    if sizes and sum(sizes) <= left:
        return [d["delivery_id"] for d in found]
    return _that_fit(found, room)


async def _at_depth(db: Backend, looking: _Looking, room: _Room, depth: float) -> tuple[list[Row], bool]:
    await db.breathe()
    snapshot = db.snapshot()
    data = {(v["event_time"], v["event_id"]): v["data"] for v in db.select("webhook_events", None, snapshot)}
    candidates, most = [], {}
    for endpoint_id, (tenant, endpoint_room) in looking.endpoints.items():
        number = sum(owner == tenant for owner, _ in looking.endpoints.values())
        most[endpoint_id] = max(2.0, float(ceil(depth * room.limit / number)))
        where = (
            lambda d, one=(tenant, endpoint_id): (d["state"], d["tenant"], d["endpoint_id"]) == ("pending", *one)
            and d["next_at"] <= looking.now
        )  # fmt: skip
        locked = await db.lock_rows(
            "webhook_deliveries", where, order=("next_at", "delivery_id"), skip_locked=True,
            limit=int(min(endpoint_room, most[endpoint_id])), snapshot=snapshot,
        )  # fmt: skip
        for turn, d in enumerate(sorted(locked, key=lambda d: (d["next_at"], d["delivery_id"])), 1):
            text = d["data"] if d["data"] is not None else data.get((d["event_time"], d["event_id"]))
            size = None if text is None else _BYTES_BESIDE_DATA + len(text.encode())
            candidates.append({**d, "turn_of_endpoint": turn, "size": size, "room": endpoint_room})
    chosen = _in_turn(candidates, room)
    return chosen, any(
        d["turn_of_endpoint"] == most[d["endpoint_id"]] and d["turn_of_endpoint"] < d["room"] for d in chosen
    )


def _in_turn(candidates: Sequence[Row], room: _Room) -> list[Row]:
    turns: dict[str, int] = {}
    in_turn = []
    for d in sorted(candidates, key=lambda d: (d["turn_of_endpoint"], d["next_at"], d["delivery_id"])):
        turns[d["tenant"]] = turns.get(d["tenant"], 0) + 1
        in_turn.append((turns[d["tenant"]], d))
    in_turn.sort(key=lambda one: (one[0], one[1]["next_at"], one[1]["delivery_id"]))
    chosen = [
        d
        for place, (turn, d) in enumerate(in_turn, 1)
        for held in [room.places(d["tenant"])]
        if held + turn <= ceil(room.share * (room.free + held - (place - turn)))
    ]
    return chosen[: room.limit]


def _that_fit(found: Sequence[Row], room: _Room) -> list[int]:
    """Those before which bytes are left, of all and of their tenant's share."""
    total, of_tenant, taken = 0, dict[str, int](), []
    for d in found:
        tenant = d["tenant"]
        its = of_tenant.get(tenant, 0)
        if total < room.bytes and its + room.size(tenant) < room.share * (room.bytes + room.size(tenant)):
            taken.append(d["delivery_id"])
        total += d["size"] or 0
        of_tenant[tenant] = its + (d["size"] or 0)
    return taken


async def _lease(db: Backend, looking: _Looking, taken: Sequence[int], margin: timedelta) -> list[Row]:
    now, token = looking.now, db.server.choices.getrandbits(63)
    await db.breathe()
    snapshot = db.snapshot()
    endpoints = {e["endpoint_id"]: e for e in db.select("webhook_endpoints", None, snapshot)}
    policies = {one: policy_within_limits(db, endpoints[one]["policy"]) for one in looking.endpoints}
    events = {(v["event_time"], v["event_id"]): v for v in db.select("webhook_events", None, snapshot)}
    secrets = {s["endpoint_id"]: s["secret"] for s in db.select("webhook_secrets", None, snapshot)}
    leased = await db.update(
        "webhook_deliveries",
        lambda d: d["delivery_id"] in taken and (d["expires_at"] is None or d["expires_at"] > now),
        lambda d: {
            "state": "leased", "attempts": d["attempts"] + 1, "lease_token": token,
            "lease_until": now + timedelta(seconds=policies[d["endpoint_id"]]["timeout"]) + margin,
        },
    )  # fmt: skip
    rows = []
    for d in sorted(leased, key=lambda d: d["delivery_id"]):
        endpoint, event = endpoints[d["endpoint_id"]], events.get((d["event_time"], d["event_id"]), {})
        rows.append({
            **{name: d[name] for name in ("delivery_id", "lease_token", "endpoint_id", "event_id", "event_time")},
            "tenant": d["tenant"], "topic": d["topic"], "attempt": d["attempts"], "manual": d["manual"],
            "eligible_for_retry": event.get("eligible_for_retry", True), "url": endpoint["url"],
            "headers": endpoint["headers"], "policy": json.dumps(policies[d["endpoint_id"]]), "gzip": endpoint["gzip"],
            "secrets": [secrets[d["endpoint_id"]]], "metadata": event.get("metadata"),
            "data": d["data"] if d["data"] is not None else event.get("data"), "created_at": d["created_at"],
            "claimed_at": now, "tenant_share": looking.share, "credentials": None,
        })  # fmt: skip
    return rows
