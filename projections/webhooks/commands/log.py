"""``projections webhooks events`` and ``attempts``: the delivery log, page by page."""

from __future__ import annotations

import json
from typing import Any

import click

from journal import Database
from projections.terminal.group import ListGroup
from projections.terminal.options import dsn_option, echo_json, json_option, together
from projections.webhooks.commands.log_view import attempt_values, echo_attempts, echo_events, event_values
from projections.webhooks.commands.options import past
from projections.webhooks.commands.printing import at, echo_facts, seconds
from projections.webhooks.commands.visiting import visit_database, whole_endpoint_id
from projections.webhooks.errors import InvalidQuery
from projections.webhooks.log import (
    AttemptsRequest,
    AttemptWithEvent,
    EventsRequest,
    LoggedEvent,
    LogPage,
    PostgresLog,
)

__all__ = ["attempts", "events"]

_filters = together(
    click.option("--tenant", "tenants", multiple=True, metavar="TENANT", help="Only of this; may be repeated."),
    click.option("--event", "event_ids", multiple=True, metavar="EVENT", help="Likewise."),
    click.option("--endpoint", "endpoint_ids", multiple=True, metavar="ENDPOINT", help="Likewise."),
    click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Likewise."),
    click.option("--since", "gte", callback=past, metavar="2h|TIME", help="From then on: 2h ago, or that moment."),
    click.option("--until", "lt", callback=past, metavar="2h|TIME", help="Before then."),
)  # fmt: skip
_paging = together(
    click.option("--oldest-first", "order", flag_value="asc", help="Instead of the newest."),
    click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True),
    click.option(
        "--next", "next", metavar="CURSOR",
        help="The page after another, with the same filters: what that one said at its end.",
    ),
    click.option("--prev", "prev", metavar="CURSOR", help="Likewise, the page before another."),
)  # fmt: skip


@click.group(cls=ListGroup)
def attempts() -> None:
    """
    Page through all attempts to deliver: when, to what endpoint, with what outcome.

    \b
      projections webhooks attempts --tenant acme --status failed --since 2h
      projections webhooks attempts --endpoint ENDPOINT --limit 200 --next CURSOR
      projections webhooks attempts show ATTEMPT         by an id that --json, or `deliveries show`, has told

    Without the name of a command it is `list`.
    """  # noqa: D301 - click reads the escape


@attempts.command(name="list")
@_filters
@click.option("--status", type=click.Choice(["success", "failed"]), help="Only those that ended so.")
@_paging
@dsn_option
@json_option
def list_attempts(dsn: str | None, as_json: bool, **options: Any) -> None:
    """List attempts, the newest first."""

    async def work(database: Database) -> LogPage[AttemptWithEvent]:
        request = AttemptsRequest(**await _chosen(database, options))
        return await PostgresLog(database).list_attempts(request)

    page = visit_database(dsn, work)
    if as_json:
        echo_json(attempts=[attempt_values(one.attempt) for one in page.data], next=page.next, prev=page.prev)
    elif page.data:
        # Ids of attempts are with --json, and with the delivery: there is hardly room for two long ones.
        echo_attempts((one.attempt for one in page.data), {"id", "topic", *_same(options)})
    else:
        click.echo("there are no such attempts")
    if not as_json:
        _echo_cursors(page, options)


@attempts.command(name="show")
@click.argument("attempt_id", metavar="ATTEMPT")
@dsn_option
@json_option
def show_attempt(attempt_id: str, dsn: str | None, as_json: bool) -> None:
    """Show one attempt, with all that is kept of the answer."""
    found = visit_database(dsn, lambda db: PostgresLog(db).retrieve_attempt(attempt_id))
    if found is None:
        raise InvalidQuery(f"the log has no attempt {attempt_id!r:.80}, or not any more")
    one = found.attempt
    if as_json:
        event = None if found.event is None else event_values(found.event)
        echo_json(**attempt_values(one), event=event)
        return
    echo_facts(
        {
            "attempt": f"{one.attempt_id} (number {one.attempt_number}{', by hand' if one.manual else ''})",
            "at": at(one.time),
            "event": one.event_id,
            "topic": one.topic,
            "tenant": one.tenant,
            "endpoint": one.endpoint_id,
            "ended": f"{one.status}, {one.code}",
            "took": seconds(None if one.took is None else one.took.total_seconds()),
            "payload": "no longer kept" if found.event is None else found.event.data,
            "answer": one.response or None,
        }
    )


@click.group(cls=ListGroup)
def events() -> None:
    """
    Page through the events that were for at least one endpoint.

    \b
      projections webhooks events --tenant acme --topic flight.delayed --since 2h
      projections webhooks events show EVENT

    Without the name of a command it is `list`.
    """  # noqa: D301 - click reads the escape


@events.command(name="list")
@_filters
@_paging
@dsn_option
@json_option
def list_events(dsn: str | None, as_json: bool, **options: Any) -> None:
    """List events, the newest first."""

    async def work(database: Database) -> LogPage[LoggedEvent]:
        request = EventsRequest(**await _chosen(database, options))
        return await PostgresLog(database).list_events(request)

    page = visit_database(dsn, work)
    if as_json:
        echo_json(events=[event_values(one) for one in page.data], next=page.next, prev=page.prev)
    elif page.data:
        echo_events(page.data)
    else:
        click.echo("there are no such events")
    if not as_json:
        _echo_cursors(page, options)


@events.command(name="show")
@click.argument("event_id", metavar="EVENT")
@dsn_option
@json_option
def show_event(event_id: str, dsn: str | None, as_json: bool) -> None:
    """Show one event, its payload, and which endpoints it was for."""
    one = visit_database(dsn, lambda db: PostgresLog(db).retrieve_event(event_id))
    if one is None:
        raise InvalidQuery(f"the log has no event {event_id!r:.80}, or not any more")
    if as_json:
        echo_json(**event_values(one))
        return
    echo_facts(
        {
            "event": one.event_id,
            "at": at(one.time),
            "topic": one.topic,
            "tenant": one.tenant,
            "endpoints": ", ".join(one.endpoint_ids),
            "labels": json.dumps(dict(one.metadata), ensure_ascii=False) if one.metadata else None,
            "tried again": "when it fails" if one.eligible_for_retry else "never",
            "payload": one.data,
        }
    )


async def _chosen(database: Database, options: dict[str, Any]) -> dict[str, Any]:
    endpoints = [await whole_endpoint_id(database, given) for given in options["endpoint_ids"]]
    return {**options, "endpoint_ids": endpoints, "order": options["order"] or "desc"}


def _same(options: dict[str, Any]) -> list[str]:
    """Columns that say the same in each line."""
    filters = (("event", "event_ids"), ("endpoint", "endpoint_ids"), ("tenant", "tenants"))
    return [name for name, given in filters if len(options[given]) == 1]


def _echo_cursors(page: LogPage[Any], options: dict[str, Any]) -> None:
    """With the times as they were: those of a cursor may not move, as how long ago does."""
    bounds = (("--since", options["gte"]), ("--until", options["lt"]))
    times = "".join(f" {name} {time.isoformat()}" for name, time in bounds if time is not None)
    for name, cursor in (("--next", page.next), ("--prev", page.prev)):
        if cursor is not None:
            click.echo(f"{name} {cursor}{times}")
