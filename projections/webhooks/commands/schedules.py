"""``projections webhooks schedules``: messages that are sent by a cron line."""

from __future__ import annotations

from typing import Annotated

import click

from journal import Database, RawJson
from projections.terminal.command_group import ListGroup
from projections.terminal.commands import Arg, Opt, derived
from projections.terminal.confirmation import confirm
from projections.terminal.options import Json, Limit, Next, Tenant, Yes, next_page
from projections.terminal.output import (
    Answer,
    Columns,
    at,
    done,
    facts,
    listing,
    picked,
    printable,
    short_id,
    values_of,
)
from projections.webhooks.commands.options import OneEndpoint, left_to_deliverers, whole_endpoint_id, whole_id
from projections.webhooks.cron import MissedTicks
from projections.webhooks.schedules import Schedule, Schedules

_ScheduleId = Annotated[str, Arg("SCHEDULE")]


@click.group(cls=ListGroup)
def schedules() -> None:
    """
    Have messages sent again and again, at the ticks of a cron line.

    \b
      projections webhooks schedules add acme nightly '30 2 * * *' report.due '{"kind": "daily"}' \\
          --timezone Europe/Paris --missed one
      projections webhooks schedules                     all of them, with their next ticks
      projections webhooks schedules run SCHEDULE        send one now, in addition to its ticks
      projections webhooks schedules pause SCHEDULE

    One of the processes that run `projections webhooks deliver` sends the ticks, each once. Without the name of a
    command it is `list`; the beginning of an id is enough.
    """  # noqa: D301 - click reads the escape


@schedules.command(name="list")
@derived
async def list_(
    database: Database, /, *, tenant: Tenant = None, limit: Limit = 100, cursor: Next = None
) -> Answer:
    """List schedules in the order of their ids."""
    page = await Schedules(database).list(tenant, next=cursor, limit=limit)
    last = page[-1].schedule_id if len(page) == limit else None
    failed = (one for one in page if one.error is not None)
    notes = [f"{one.schedule_id} did not send its last tick: {printable(one.error or '')}" for one in failed]
    return listing(
        "schedules", page, _COLUMNS, *notes, *next_page(last),
        nothing="there is no schedule: `projections webhooks schedules add` makes one", next=last,
    )  # fmt: skip


@schedules.command(short_help="Make one.")
@derived
async def add(
    database: Database,
    /,
    tenant: str,
    name: str,
    cron: str,
    topic: str,
    data: Json = "{}",
    *,
    timezone: Annotated[
        str, Opt("The time zone of the cron line, such as Europe/Paris.", metavar="ZONE")
    ] = "UTC",
    endpoint_id: OneEndpoint = None,
    missed: Annotated[
        MissedTicks, Opt("Of ticks while nothing ran, send none, the last one, or all.")
    ] = "one",
) -> Answer:
    """
    Make a schedule of a tenant; NAME is the tenant's own for it.

    CRON has 5 fields: minute, hour, day of the month, month, day of the week, such as '*/15 * * * *' or
    '0 9 * * mon-fri'; or 6, with the seconds first; or it is an alias such as @hourly. It sends
    at its first tick from now on.
    """
    alone = None if endpoint_id is None else await whole_endpoint_id(database, endpoint_id)
    made = await Schedules(database).create(
        tenant,
        name,
        cron,
        timezone=timezone,
        topic=topic,
        data=RawJson(data),
        endpoint_id=alone,
        missed=missed,
    )
    text = f"schedule {made.schedule_id} of tenant {printable(tenant)!r} is made: next at {_next(made)}"
    return done(text, **values_of(made))


@schedules.command()
@derived
async def show(database: Database, /, schedule_id: _ScheduleId) -> Answer:
    """Show all that is known of a schedule."""
    service, whole = await _found(database, schedule_id)
    one = await service.get(None, whole)
    known = {
        "schedule": one.schedule_id,
        "tenant": one.tenant,
        "name": one.name,
        "cron": f"{one.cron} ({one.timezone})",
        "topic": one.topic,
        "endpoint": one.endpoint_id or "all that want the topic",
        "missed ticks": one.missed,
        "next at": _next(one),
        "last at": at(one.last_at),
        "error": one.error,
        "created": f"{at(one.created_at)} (version {one.version})",
        "payload": one.data,
    }
    return facts(values_of(one), known)


@schedules.command()
@derived
async def pause(database: Database, /, schedule_id: _ScheduleId) -> Answer:
    """Send nothing until it is resumed."""
    service, whole = await _found(database, schedule_id)
    await service.pause(None, whole)
    return done(f"schedule {whole} is paused", schedule_id=whole, state="paused")


@schedules.command(short_help="Go on with the first tick from now on.")
@derived
async def resume(database: Database, /, schedule_id: _ScheduleId) -> Answer:
    """Go on with the first tick from now on; those in the pause are not sent."""
    service, whole = await _found(database, schedule_id)
    one = await service.resume(None, whole)
    answer = done(f"schedule {whole} goes on: next at {_next(one)}", schedule_id=whole, state="active")
    return await left_to_deliverers(database, answer, message=True)


@schedules.command(short_help="Send its message now, in addition to its ticks.")
@derived
async def run(database: Database, /, schedule_id: _ScheduleId) -> Answer:
    """Send its message now, in addition to its ticks, also while it is paused."""
    service, whole = await _found(database, schedule_id)
    sent = await service.send_now(None, whole)
    answer = done(f"message {sent.event_id} is stored", **picked(sent, "event_id", "db_timestamp"))
    return await left_to_deliverers(database, answer, message=True)


@schedules.command()
@derived
async def remove(database: Database, /, schedule_id: _ScheduleId, *, yes: Yes = False) -> Answer:
    """Remove a schedule; what it has sent goes on."""
    service, whole = await _found(database, schedule_id)
    one = await service.get(None, whole)
    confirm(
        f"Remove schedule {printable(one.name)!r} ({one.cron}) of tenant {printable(one.tenant)!r}?", yes=yes
    )
    await service.remove(None, whole)
    return done(f"schedule {whole} is removed", schedule_id=whole, removed=True)


async def _found(database: Database, given: str) -> tuple[Schedules, str]:
    service = Schedules(database)
    return service, await whole_id(service, "schedule", given)


def _next(one: Schedule) -> str:
    return "paused" if one.paused else at(one.next_at, "never again")


_COLUMNS: Columns = {
    "schedule": lambda one: short_id(one.schedule_id), "tenant": "tenant", "name": "name", "cron": "cron",
    "zone": "timezone", "topic": "topic", "missed": "missed", "last at": "last_at", "next at": _next,
}  # fmt: skip
