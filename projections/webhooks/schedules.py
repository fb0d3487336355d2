"""Schedules: messages that are sent again and again, at the ticks of a cron line (projections.webhooks.ticks)."""

from __future__ import annotations

import json
import secrets as random_source
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, get_args

from journal import Appended, DatabaseError, InvalidEvent, RawJson, Row, append, check_text, encode
from projections.webhooks.checks import check_tenant
from projections.webhooks.cron import CronLine, MissedTicks
from projections.webhooks.errors import InvalidMessage, InvalidSchedule
from projections.webhooks.messages import message_event
from projections.webhooks.tenant_rows import DESCRIBED, Json, TenantRows
from projections.webhooks.topics import check_topic

_LONGEST_NAME = 200

_COLUMNS = """
schedule_id, tenant, name, cron, timezone, topic, data, endpoint_id, missed, paused, next_at, last_at, error,
created_at, version
"""
_NOW = "SELECT clock_timestamp()"
_CREATE = (
    f"SELECT {_COLUMNS} FROM projections._create_schedule_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
)
_LOCK = f"SELECT {_COLUMNS} FROM projections._lock_schedule_v1($1, $2, $3)"
_CHANGE = f"SELECT {_COLUMNS} FROM projections._change_schedule_v1($1, $2, $3, $4)"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A message that is sent at each tick of a cron line, and how far it has come."""

    __pydantic_config__ = DESCRIBED

    schedule_id: str
    tenant: str
    name: str
    """The tenant's own, unique for it."""
    cron: str
    timezone: str
    topic: str
    data: Json
    """JSON text, byte by byte as it is sent."""
    endpoint_id: str | None
    """For this endpoint alone; else for all of the tenant that want the topic."""
    missed: MissedTicks
    """Of ticks that nobody was there for: none is sent (skip), the last (one), or all."""
    paused: bool
    next_at: datetime | None
    """The tick to come, if there is one."""
    last_at: datetime | None
    """The last tick that was sent."""
    error: str | None
    """Why the last tick was not sent."""
    created_at: datetime
    version: int
    """Counts its changes."""


_CHANGEABLE = ("name", "cron", "timezone", "topic", "data", "endpoint_id", "missed", "paused")


class Schedules(TenantRows[Schedule]):
    """The schedules of all tenants. Where a tenant is given, those of others are not there; None is for all."""

    _kind = "schedule"
    _remove = "SELECT projections._remove_schedule_v1($1, $2, $3)"
    _columns = _COLUMNS

    @staticmethod
    def _read(row: Row) -> Schedule:
        return Schedule(**{**row, "data": RawJson(row["data"])})

    async def create(
        self,
        tenant: str,
        name: str,
        cron: str,
        *,
        timezone: str,
        topic: str,
        data: Any,
        endpoint_id: str | None = None,
        missed: MissedTicks = "one",
        at_most: int | None = None,
    ) -> Schedule:
        """
        Make a schedule. It sends at its first tick from now on, by the database's clock, and never at once.

        Args:
            tenant: The tenant whose endpoints get the messages, 1 to 200 characters.
            name: The name of the schedule, unique for its tenant.
            cron: 5 fields of cron, such as ``0 9 * * 1-5``; 6 with the seconds first; or an alias such as ``@hourly``.
            timezone: The time zone that the fields are in, such as ``Europe/Paris``.
            topic: The topic of the messages.
            data: The payload of the messages, as :func:`projections.webhooks.send` takes it.
            endpoint_id: Send to this endpoint alone.
            missed: What to send after ticks that nobody could send: ``skip`` none, ``one`` or ``all``.
            at_most: Refuse a tenant that has as many schedules already.

        Raises:
            NotAllowed: The tenant has as many as it may make.
            InvalidValue: A value is invalid, or the tenant has a schedule of this name.
            NotFound: The tenant has no such endpoint.
        """
        schedule_id = f"sch_{random_source.token_hex(16)}"
        values = (name, cron, timezone, topic, _encoded(data), endpoint_id, missed)
        line = _checked(tenant, dict(zip(_CHANGEABLE, (*values, False), strict=True)))
        async with self._database.session() as session:
            first = line.next_tick(await session.fetchval(_NOW))
            with _named_once(name):
                return await self._written(session, _CREATE, schedule_id, tenant, *values, first, at_most)

    async def change(
        self, tenant: str | None, schedule_id: str, changes: Mapping[str, Any], *, version: int | None = None
    ) -> Schedule:
        """
        Change some of what :meth:`create` takes, or ``paused``; what is left out stays as it is.

        With another line or zone, and when it is no longer paused, the next tick is the first one from now on. With a
        version it is changed only if it still has that one, which the changes were made from.

        Args:
            tenant: The tenant of the schedule; None is for administrators.
            schedule_id: The schedule's id.
            changes: New values by the names of the arguments of :meth:`create`, and ``paused``.
            version: Only if the schedule has this version, which the changes were made from; None: whatever it has.

        Returns:
            The schedule as this change has written it.

        Raises:
            InvalidValue: A value is invalid, there is none of that name to change, or the tenant has another
                schedule of this name.
            NotFound: The tenant has none of this id, or no such endpoint.
            NotAllowed: It has another version: somebody has changed it meanwhile.
        """
        if unknown := sorted(set(changes) - set(_CHANGEABLE)):
            raise InvalidSchedule(
                f"a schedule has no {', '.join(unknown)} to change; it has {', '.join(_CHANGEABLE)}"
            )
        values: dict[str, Any] = {
            key: _encoded(value) if key == "data" else value for key, value in changes.items()
        }
        async with self._database.session() as session, session.transaction():
            old = await self._written(session, _LOCK, tenant, schedule_id, version)
            new = replace(old, **values)
            line = _checked(old.tenant, asdict(new))
            begins_anew = (new.cron, new.timezone) != (old.cron, old.timezone) or new.paused < old.paused
            next_at = line.next_tick(await session.fetchval(_NOW)) if begins_anew else None
            with _named_once(new.name):
                return await self._written(session, _CHANGE, tenant, schedule_id, json.dumps(values), next_at)

    async def pause(self, tenant: str | None, schedule_id: str, *, version: int | None = None) -> Schedule:
        """
        Send nothing until it is resumed.

        Args:
            tenant: The tenant of the schedule; None is for administrators.
            schedule_id: The schedule's id.
            version: Only if the schedule has this version; None: whatever it has.

        Raises:
            NotFound: The tenant has none of this id.
            NotAllowed: It has another version than the one that is named.
        """
        return await self.change(tenant, schedule_id, {"paused": True}, version=version)

    async def resume(self, tenant: str | None, schedule_id: str, *, version: int | None = None) -> Schedule:
        """
        Go on with the first tick from now on: those in the pause are not missed, but were not wanted.

        Args:
            tenant: The tenant of the schedule; None is for administrators.
            schedule_id: The schedule's id.
            version: Only if the schedule has this version; None: whatever it has.

        Raises:
            NotFound: The tenant has none of this id.
            NotAllowed: It has another version than the one that is named.
        """
        return await self.change(tenant, schedule_id, {"paused": False}, version=version)

    async def send_now(self, tenant: str | None, schedule_id: str) -> Appended:
        """
        Send its message now, alongside its ticks, also while it is paused.

        Args:
            tenant: The tenant of the schedule; None is for administrators.
            schedule_id: The schedule's id.

        Raises:
            NotFound: The tenant has none of this id.
        """
        async with self._database.session() as session, session.transaction():
            schedule = await self._get(session, tenant, schedule_id)
            event = message_event(
                schedule.tenant, schedule.topic, RawJson(schedule.data),
                order_key=schedule_id, endpoint_id=schedule.endpoint_id, of_schedule=True,
                metadata={"schedule": schedule.name, "schedule_id": schedule_id},
            )  # fmt: skip
            return (await append(session, [event]))[0]


@contextmanager
def _named_once(name: str) -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:
        if error.sqlstate != "23505":  # unique_violation
            raise
        raise InvalidSchedule(
            f"the tenant has a schedule {name!r:.80} already: change that one, or choose another name"
        ) from None


def _checked(tenant: str, values: Mapping[str, Any]) -> CronLine:
    """The line of a schedule that can be as it is."""
    check_tenant(tenant, InvalidSchedule)
    name = values["name"]
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME:
        raise InvalidSchedule(f"a name has 1 to {_LONGEST_NAME} characters, not {name!r:.80}")
    for what in ("cron", "timezone", "topic"):
        if not isinstance(values[what], str):
            raise InvalidSchedule(f"{what} is text, not {values[what]!r:.80}")
    if values["missed"] not in get_args(MissedTicks):
        raise InvalidSchedule(f"missed is {', '.join(get_args(MissedTicks))}, not {values['missed']!r:.80}")
    if not isinstance(values["paused"], bool):
        raise InvalidSchedule(f"paused is true or false, not {values['paused']!r:.80}")
    if not isinstance(values["endpoint_id"], str | None):
        raise InvalidSchedule(f"endpoint_id is text, not {values['endpoint_id']!r:.80}")
    try:
        check_text(tenant, "tenant")
        check_text(values["name"], "name")
        check_topic(values["topic"])
    except (InvalidMessage, InvalidEvent) as error:
        raise InvalidSchedule(str(error)) from None
    return CronLine(values["cron"], values["timezone"])


def _encoded(data: Any) -> RawJson:
    try:
        return RawJson(encode(data, "data"))
    except InvalidEvent as error:
        raise InvalidSchedule(str(error)) from None
