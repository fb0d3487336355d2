"""Operations on schedules."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from projections.webhooks.api.operations import (
    Body,
    Call,
    ListPage,
    NoBody,
    Operations,
    PageQuery,
    Query,
    Tenant,
    View,
    Word,
    without_defaults,
)
from projections.webhooks.cron import MissedTicks
from projections.webhooks.schedules import Schedule
from projections.webhooks.tenant_rows import Json

schedule_operations = Operations("schedules")
_PATH = "/v1/schedules/{schedule_id}"

Name = Annotated[str, Field(min_length=1, max_length=200)]
Cron = Annotated[str, Field(min_length=1, max_length=200)]
Zone = Annotated[str, Field(min_length=1, max_length=100)]


class SchedulePage(ListPage[Schedule]):
    """Some schedules, in the order of their ids."""


class SentNow(View):
    """A message that will be sent."""

    event_id: str


class NewSchedule(Body):
    """A new schedule."""

    name: Name
    """The tenant's own for it."""
    cron: Cron
    """When: minute, hour, day of the month, month, day of the week."""
    topic: Annotated[str, Field(min_length=1, max_length=128)]
    data: Json
    """What is sent, byte by byte as it stands here."""
    timezone: Zone = "UTC"
    """In which the line is read, such as Europe/Paris."""
    endpoint_id: Word | None = None
    """For this endpoint alone."""
    missed: MissedTicks = "one"
    """Of ticks that nobody was there for: none is sent (skip), the last (one), or all."""
    tenant: Tenant | None = None
    """Whose, for administrators."""


class ScheduleChanges(Body):
    """What to change; what is left out stays."""

    model_config = ConfigDict(json_schema_extra=without_defaults)

    name: Name = ""
    cron: Cron = ""
    timezone: Zone = ""
    topic: Annotated[str, Field(min_length=1, max_length=128)] = ""
    data: Json = None
    endpoint_id: Word | None = None
    missed: MissedTicks = "one"
    paused: bool = False


@schedule_operations.add("POST", "/v1/schedules", raw=("data",), status=201, problems=(404,), location=_PATH)
async def create_schedule(call: Call[Query, NewSchedule]) -> Schedule:
    """Make a schedule; its first message is sent at its first tick from now on."""
    body, limit = call.body, call.services.settings.schedules_per_tenant
    return await call.services.schedules.create(
        call.owner(body.tenant), body.name, body.cron, timezone=body.timezone, topic=body.topic,
        data=call.raw["data"], endpoint_id=body.endpoint_id, missed=body.missed, at_most=call.at_most(limit),
    )  # fmt: skip


@schedule_operations.add("GET", "/v1/schedules")
async def list_schedules(call: Call[PageQuery, NoBody]) -> SchedulePage:
    """List schedules."""
    limit = call.query.limit
    found = await call.services.schedules.list(call.tenant, next=call.query.next, limit=limit)
    following = found[-1].schedule_id if len(found) == limit else None
    return SchedulePage(data=tuple(found), next=following)


@schedule_operations.add("GET", _PATH, problems=(404,))
async def get_schedule(call: Call[Query, NoBody]) -> Schedule:
    """Show a schedule."""
    return await call.services.schedules.get(call.tenant, call.place["schedule_id"])


@schedule_operations.add("PATCH", _PATH, raw=("data",), problems=(404,), matches="must")
async def change_schedule(call: Call[Query, ScheduleChanges]) -> Schedule:
    """
    Change a schedule. With another line or zone, its next tick is the first one from now on.

    The header if-match says which version the new values were made from: the etag of the schedule as it was read. 412:
    somebody else has changed it since; read it again, and change that. With * it is changed whatever it is.
    """
    changes: dict[str, Any] = call.body.model_dump(include=call.body.model_fields_set) | dict(call.raw)
    schedules, schedule_id = call.services.schedules, call.place["schedule_id"]
    if not changes:
        found = await schedules.get(call.tenant, schedule_id)
        call.check_version(found.version)
        return found
    return await schedules.change(call.tenant, schedule_id, changes, version=call.version)


@schedule_operations.add("DELETE", _PATH, status=204, problems=(404,), matches="may")
async def delete_schedule(call: Call[Query, NoBody]) -> None:
    """Remove a schedule; what it has sent goes on."""
    await call.services.schedules.remove(call.tenant, call.place["schedule_id"], version=call.version)


@schedule_operations.add("POST", f"{_PATH}/pause", problems=(404,), matches="may")
async def pause_schedule(call: Call[Query, NoBody]) -> Schedule:
    """Send nothing until it is resumed."""
    schedules, schedule_id = call.services.schedules, call.place["schedule_id"]
    return await schedules.pause(call.tenant, schedule_id, version=call.version)


@schedule_operations.add("POST", f"{_PATH}/resume", problems=(404,), matches="may")
async def resume_schedule(call: Call[Query, NoBody]) -> Schedule:
    """Go on with the first tick from now on."""
    schedules, schedule_id = call.services.schedules, call.place["schedule_id"]
    return await schedules.resume(call.tenant, schedule_id, version=call.version)


@schedule_operations.add("POST", f"{_PATH}/send", status=202, problems=(404,))
async def send_schedule(call: Call[Query, NoBody]) -> SentNow:
    """Send its message now, alongside its ticks."""
    sent = await call.services.schedules.send_now(call.tenant, call.place["schedule_id"])
    return SentNow(event_id=str(sent.event_id))
