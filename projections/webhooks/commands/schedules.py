"""``projections webhooks schedules``: messages that are sent by a cron line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict
from typing import Any, TypeVar

import click

from journal import Database, RawJson
from projections.terminal.connection import confirm
from projections.terminal.group import ListGroup
from projections.terminal.options import dsn_option, echo_done, echo_json, json_option
from projections.terminal.output import printable
from projections.webhooks.commands.options import tenant_option, text_of
from projections.webhooks.commands.printing import at, echo_facts, echo_table, short_id
from projections.webhooks.commands.visiting import visit_database, whole_endpoint_id, whole_schedule_id
from projections.webhooks.cron import MissedTicks
from projections.webhooks.schedules import Schedule, Schedules

__all__ = ["schedules"]

T = TypeVar("T")

_schedule = click.argument("schedule_id", metavar="SCHEDULE")


@click.group(cls=ListGroup)
def schedules() -> None:
    """
    Have messages sent again and again, at the ticks of a cron line.

    \b
      projections webhooks schedules add acme nightly '30 2 * * *' report.due '{"kind": "daily"}' \\
          --timezone Europe/Paris --missed one
      projections webhooks schedules                     all of them, with their next ticks
      projections webhooks schedules run SCHEDULE        send one now, beside its ticks
      projections webhooks schedules pause SCHEDULE

    One of the processes that run `projections webhooks deliver` sends the ticks, each once. Without the name of a
    command it is `list`; the beginning of an id is enough.
    """  # noqa: D301 - click reads the escape


@schedules.command(name="list")
@tenant_option
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@click.option("--after", metavar="SCHEDULE", default="", help="Go on after this one.")
@dsn_option
@json_option
def list_(tenant: str | None, limit: int, after: str, dsn: str | None, as_json: bool) -> None:
    """List schedules in the order of their ids."""
    page = visit_database(dsn, lambda db: Schedules(db).list(tenant, after=after, limit=limit))
    last = page[-1].schedule_id if len(page) == limit else None
    if as_json:
        echo_json(schedules=[_values(one) for one in page], next=last)
        return
    if not page:
        click.echo("there is no schedule: `projections webhooks schedules add` makes one")
        return
    _echo_table(page)
    for one in page:
        if one.error is not None:
            click.echo(f"{one.schedule_id} did not send its last tick: {printable(one.error)}")
    if last is not None:
        click.echo(f"there may be more: --after {last}")


@schedules.command(short_help="Make one.")
@click.argument("tenant")
@click.argument("name")
@click.argument("cron")
@click.argument("topic")
@click.argument("data", metavar="[JSON|-|@FILE]", default="{}")
@click.option(
    "--timezone", default="UTC", show_default=True, metavar="ZONE", help="Of the line: Europe/Paris."
)
@click.option("--endpoint", "endpoint_id", metavar="ENDPOINT", help="For this one alone.")
@click.option(
    "--missed", type=click.Choice(["skip", "one", "all"]), default="one", show_default=True,
    help="Of ticks while nothing ran, send none, the last one, or all.",
)  # fmt: skip
@dsn_option
@json_option
def add(
    tenant: str,
    *,
    data: str,
    endpoint_id: str | None,
    missed: MissedTicks,
    dsn: str | None,
    as_json: bool,
    **values: Any,
) -> None:
    """
    Make a schedule of a tenant; NAME is the tenant's own for it.

    CRON has five fields: minute, hour, day of the month, month, day of the week; such as '*/15 * * * *', or
    '0 9 * * mon-fri'. It sends at its first tick from now on.
    """
    data = text_of(data)

    async def work(database: Database) -> Schedule:
        alone = None if endpoint_id is None else await whole_endpoint_id(database, endpoint_id)
        return await Schedules(database).create(
            tenant, data=RawJson(data), endpoint_id=alone, missed=missed, **values
        )

    made = visit_database(dsn, work)
    if as_json:
        echo_json(**_values(made))
    else:
        click.echo(
            f"schedule {made.schedule_id} of tenant {printable(tenant)!r} is made: next at {_next(made)}"
        )


@schedules.command()
@_schedule
@dsn_option
@json_option
def show(schedule_id: str, dsn: str | None, as_json: bool) -> None:
    """Show all that is known of a schedule."""
    one = _visit(dsn, schedule_id, Schedules.get)
    if as_json:
        echo_json(**_values(one))
        return
    echo_facts(
        {
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
    )


@schedules.command()
@_schedule
@dsn_option
@json_option
def pause(schedule_id: str, dsn: str | None, as_json: bool) -> None:
    """Send nothing until it is resumed."""
    one = _visit(dsn, schedule_id, Schedules.pause)
    echo_done(
        f"schedule {one.schedule_id} is paused", as_json=as_json, schedule_id=one.schedule_id, state="paused"
    )


@schedules.command(short_help="Go on with the first tick from now on.")
@_schedule
@dsn_option
@json_option
def resume(schedule_id: str, dsn: str | None, as_json: bool) -> None:
    """Go on with the first tick from now on; those in the pause are not sent."""
    one = _visit(dsn, schedule_id, Schedules.resume)
    echo_done(
        f"schedule {one.schedule_id} goes on: next at {_next(one)}",
        as_json=as_json,
        schedule_id=one.schedule_id,
        state="active",
    )


@schedules.command(short_help="Send its message now, beside its ticks.")
@_schedule
@dsn_option
@json_option
def run(schedule_id: str, dsn: str | None, as_json: bool) -> None:
    """Send its message now, beside its ticks, also while it is paused."""
    sent = _visit(dsn, schedule_id, Schedules.send_now)
    if as_json:
        echo_json(event_id=str(sent.event_id), db_timestamp=sent.db_timestamp.isoformat())
    else:
        click.echo(f"message {sent.event_id} is stored")


@schedules.command()
@_schedule
@click.option("--yes", is_flag=True, help="Do not ask.")
@dsn_option
@json_option
def remove(schedule_id: str, yes: bool, dsn: str | None, as_json: bool) -> None:
    """Remove a schedule; what it has sent goes on."""
    one = _visit(dsn, schedule_id, Schedules.get)
    confirm(
        f"Remove schedule {printable(one.name)!r} ({one.cron}) of tenant {printable(one.tenant)!r}?", yes=yes
    )
    _visit(dsn, one.schedule_id, Schedules.remove)
    echo_done(
        f"schedule {one.schedule_id} is removed", as_json=as_json, schedule_id=one.schedule_id, removed=True
    )


def _visit(dsn: str | None, given: str, method: Callable[[Schedules, None, str], Awaitable[T]]) -> T:
    async def work(database: Database) -> T:
        return await method(Schedules(database), None, await whole_schedule_id(database, given))

    return visit_database(dsn, work)


def _echo_table(found: Iterable[Schedule]) -> None:
    columns = ("schedule", "tenant", "name", "cron", "zone", "topic", "missed", "last at", "next at")
    rows = (
        (
            short_id(one.schedule_id), one.tenant, one.name, one.cron, one.timezone, one.topic, one.missed,
            at(one.last_at), _next(one),
        )
        for one in found
    )  # fmt: skip
    echo_table(columns, rows)


def _next(one: Schedule) -> str:
    return "paused" if one.paused else at(one.next_at, "never again")


def _values(one: Schedule) -> dict[str, object]:
    times = ("next_at", "last_at", "created_at")
    values = asdict(one)
    return values | {name: values[name] and values[name].isoformat() for name in times}
