"""Deliveries that this process works on: taken from the database with a lease, and given back with their outcome."""

from __future__ import annotations

import json
import logging
import secrets as random_source
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from pydantic import ValidationError

from journal import PAGE_BYTES, Database, OwnedSession, Row, Session
from journal.turns import is_done, take
from projections.webhooks.retry_policy import RetryPolicy

log = logging.getLogger("projections")

_CLAIM = "SELECT * FROM projections._claim_deliveries_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
_FINISH = "SELECT projections._finish_deliveries_v1($1, $2, $3, $4, $5, $6, $7, $8, $9) AS delivery_id"
_EXPIRE = "SELECT projections._expire_deliveries_v1()"
_EXPIRED_AT_ONCE = 1000
_REAP = "SELECT projections._reap_deliveries_v1()"
_CHORE = "webhook deliveries"
_SEEN_WITHIN = timedelta(seconds=30)


class Claimed(NamedTuple):
    """An attempt that is to be made now, with all that its request needs."""

    delivery_id: int
    lease_token: int
    endpoint_id: str
    event_id: str
    event_time: datetime
    tenant: str
    topic: str
    attempt: int
    """1 for the first."""
    manual: bool
    eligible_for_retry: bool
    url: str
    headers: dict[str, str]
    policy: RetryPolicy
    gzip: bool
    secrets: list[str]
    """As they are stored, the newest first."""
    metadata: str | None
    data: str | None
    """JSON text; None when the log no longer keeps it."""
    created_at: datetime
    claimed_at: datetime
    """The database's time, for the signature: clocks of processes may be wrong."""
    tenant_share: float
    """What its tenant may have of what others leave: all while no other has an active endpoint."""
    credentials: str | None = None
    """As they are stored, by kind."""

    @property
    def size(self) -> int:
        """Characters that it carries: about what it takes in memory."""
        return len(self.data or "")

    def __repr__(self) -> str:
        return f"<attempt {self.attempt} at event {self.event_id} for endpoint {self.endpoint_id}>"  # and no secret


class Outcome(NamedTuple):
    """The outcome of an attempt."""

    delivery_id: int
    lease_token: int
    verdict: str
    """``done``, ``retry``, ``dead``, or ``release``: it was not made, and does not count."""
    delay: timedelta | None = None
    """Until the next one."""
    pause: timedelta | None = None
    disable: bool = False
    code: str | None = None
    response: str | None = None
    took: timedelta | None = None


class Room(NamedTuple):
    """What a process has left for attempts, and who holds the rest."""

    free: int
    """Places."""
    bytes: int = PAGE_BYTES
    """What attempts may carry together: the one that passes it is the last."""
    share: float = 1
    """What a tenant may have of the places and bytes that others leave; all while there is no other."""
    held: Mapping[str, tuple[int, int]] = MappingProxyType({})
    """Places and bytes that tenants hold."""
    verified_only: bool = False
    """Only for endpoints whose URL has shown that it wants webhooks."""


async def claim(
    session: OwnedSession, limit: int, margin: timedelta, room: Room | None = None
) -> list[Claimed]:
    """
    Take deliveries that are due, up to a number, fairly over tenants and the endpoints of each.

    The session is outside a transaction: the claim is good at once. After an endpoint's deadline and the margin, an
    attempt counts as lost. By default there is as much room as the limit, for whoever comes.
    """
    somewhere = f"ep_{random_source.token_hex(4)}"
    left = room or Room(limit)
    places, sizes = zip(*left.held.values(), strict=True) if left.held else ((), ())
    rows = await session.fetch(
        _CLAIM, limit, somewhere, margin, left.bytes, left.free, left.share, list(left.held), list(places), list(sizes),
        left.verified_only,
    )  # fmt: skip
    return [_claimed(row) for row in rows]


async def finish(database: Database, outcomes: Sequence[Outcome]) -> set[int]:
    """
    Store the outcome of attempts, in one transaction; returns the deliveries whose lease still held.

    Nothing was stored of the others.
    """
    columns = map(list, zip(*outcomes, strict=True))
    async with database.session() as session:
        return {row["delivery_id"] for row in await session.fetch(_FINISH, *columns)}


async def reap(session: OwnedSession) -> int:
    """Take back attempts whose lease is over; returns how many."""
    lost: int = await session.fetchval(_REAP)
    return lost


async def show_alive(session: OwnedSession, every: timedelta) -> None:
    """Say that a process delivers, if none has said so for this long."""
    await take(session, _CHORE, every)


async def delivers(session: Session) -> bool:
    """Whether a process delivers, or did until some seconds ago."""
    return await is_done(session, _CHORE, _SEEN_WITHIN)


async def expire(session: OwnedSession) -> bool:
    """End deliveries whose expiry has passed; returns whether there may be more."""
    return bool(await session.fetchval(_EXPIRE) == _EXPIRED_AT_ONCE)


@lru_cache(maxsize=1000)
def _policy(text: str) -> RetryPolicy:
    """An endpoint's policy; what a newer version of this library knows of is passed over, what is wrong is as usual."""
    known = {name: value for name, value in json.loads(text).items() if name in RetryPolicy.model_fields}
    try:
        return RetryPolicy.model_validate_json(json.dumps(known))
    except ValidationError as error:
        wrong = sorted({str(each["loc"][0]) for each in error.errors()})
        log.warning("the retry policy of an endpoint has an odd %s", ", ".join(wrong))
        return RetryPolicy.model_validate_json(
            json.dumps({name: value for name, value in known.items() if name not in wrong})
        )


def _claimed(row: Row) -> Claimed:
    values = dict(zip(Claimed._fields, row.values(), strict=True))
    values["headers"] = json.loads(values["headers"])
    values["policy"] = _policy(values["policy"])
    return Claimed(**values)
