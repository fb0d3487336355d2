"""``projections webhooks events`` and ``attempts``: the delivery log, page by page."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

import click

from journal import Database, NotFound
from projections.terminal.command_group import ListGroup
from projections.terminal.commands import Arg, Opt, derived
from projections.terminal.options import Limit, Next
from projections.terminal.output import (
    Answer,
    Columns,
    at,
    facts,
    listing,
    seconds,
    short_id,
    shortened,
    values_of,
)
from projections.webhooks.commands.options import whole_endpoint_id
from projections.webhooks.log import (
    AttemptsRequest,
    EventsRequest,
    LoggedAttempt,
    LoggedEvent,
    LogPage,
    PostgresLog,
)

_SAME = {"event": "event_ids", "endpoint": "endpoint_ids", "tenant": "tenants"}
"""Columns that say the same in each line where one value of a filter is given."""


def _filter(what: str) -> Opt:
    return Opt(f"Only of this {what}; may be repeated.", f"--{what}", metavar=what.upper())


@dataclass(frozen=True, slots=True)
class _Page:
    """What both lists can be asked for."""

    tenants: Annotated[tuple[str, ...], _filter("tenant")] = ()
    event_ids: Annotated[tuple[str, ...], _filter("event")] = ()
    endpoint_ids: Annotated[tuple[str, ...], _filter("endpoint")] = ()
    topics: Annotated[tuple[str, ...], _filter("topic")] = ()
    gte: Annotated[datetime | None, Opt("Only from this time on; 2h is two hours ago.", "--since")] = None
    lt: Annotated[datetime | None, Opt("Only before this time.", "--until")] = None
    order: Annotated[
        Literal["asc"] | None, Opt("Instead of the newest.", "--oldest-first", flag_value="asc")
    ] = None
    limit: Limit = 100
    next: Next = None
    prev: Annotated[
        str | None, Opt("The previous page: the cursor that a page showed at its end.", metavar="CURSOR")
    ] = None

    async def request(self, database: Database) -> dict[str, Any]:
        """The arguments of a request for it."""
        endpoints = [await whole_endpoint_id(database, given) for given in self.endpoint_ids]
        return {**asdict(self), "endpoint_ids": endpoints, "order": self.order or "desc"}

    @property
    def same(self) -> set[str]:
        """Columns that say nothing."""
        return {name for name, given in _SAME.items() if len(getattr(self, given)) == 1}

    def cursors(self, page: LogPage[Any]) -> list[str]:
        """With the times as they were: those of a cursor may not move, as how long ago does."""
        bounds = (("--since", self.gte), ("--until", self.lt))
        times = "".join(f" {name} {time.isoformat()}" for name, time in bounds if time is not None)
        named = (("--next", page.next), ("--prev", page.prev))
        return [f"{name} {cursor}{times}" for name, cursor in named if cursor is not None]


@click.group(cls=ListGroup)
def attempts() -> None:
    """
    Page through all attempts to deliver: when, to what endpoint, with what outcome.

    \b
      projections webhooks attempts --tenant acme --status failed --since 2h
      projections webhooks attempts --endpoint ENDPOINT --limit 200 --next CURSOR
      projections webhooks attempts show ATTEMPT         by an id that --json, or `deliveries show`, has told

    Without a command, `list` is run.
    """  # noqa: D301 - click reads the escape


@attempts.command(name="list")
@derived
async def list_attempts(
    database: Database,
    /,
    *,
    wanted: _Page,
    status: Annotated[Literal["success", "failed"] | None, Opt("Only those that ended so.")] = None,
) -> Answer:
    """List attempts, the newest first."""
    request = AttemptsRequest(**await wanted.request(database), status=status)
    page = await PostgresLog(database).list_attempts(request)
    # Ids of attempts are with --json, and with the delivery: there is hardly room for two long ones.
    return listing(
        "attempts", [one.attempt for one in page.data], ATTEMPT_COLUMNS, *wanted.cursors(page),
        nothing="no attempt matches", values=attempt_values, numbers={"duration"},
        without={"id", "topic", *wanted.same}, next=page.next, prev=page.prev,
    )  # fmt: skip


@attempts.command(name="show")
@derived
async def show_attempt(database: Database, /, attempt_id: Annotated[str, Arg("ATTEMPT")]) -> Answer:
    """Show one attempt, with all that is kept of the answer."""
    found = await PostgresLog(database).retrieve_attempt(attempt_id)
    if found is None:
        raise NotFound(f"the log has no attempt {attempt_id!r:.80}, or not any more", "unknown_attempt")
    one = found.attempt
    known = {
        "attempt": f"{one.attempt_id} (number {one.attempt_number}{', by hand' if one.manual else ''})",
        "at": at(one.time),
        "event": one.event_id,
        "topic": one.topic,
        "tenant": one.tenant,
        "endpoint": one.endpoint_id,
        "ended": f"{one.status}, {one.code}",
        "duration": _took(one),
        "payload": "no longer kept" if found.event is None else payload_of(found.event),
        "response": one.response or None,
    }
    return facts({**attempt_values(one), "event": found.event}, known)


@click.group(cls=ListGroup)
def events() -> None:
    """
    Page through the events that were for at least one endpoint.

    \b
      projections webhooks events --tenant acme --topic flight.delayed --since 2h
      projections webhooks events show EVENT

    Without a command, `list` is run.
    """  # noqa: D301 - click reads the escape


@events.command(name="list")
@derived
async def list_events(database: Database, /, *, wanted: _Page) -> Answer:
    """List events, the newest first."""
    page = await PostgresLog(database).list_events(EventsRequest(**await wanted.request(database)))
    return listing(
        "events", page.data, _EVENT_COLUMNS, *wanted.cursors(page), nothing="no event matches",
        next=page.next, prev=page.prev,
    )  # fmt: skip


@events.command(name="show")
@derived
async def show_event(database: Database, /, event_id: Annotated[str, Arg("EVENT")]) -> Answer:
    """Show one event, its payload, and which endpoints it was for."""
    one = await PostgresLog(database).retrieve_event(event_id)
    if one is None:
        raise NotFound(f"the log has no event {event_id!r:.80}, or not any more", "unknown_event")
    known = {
        "event": one.event_id,
        "at": at(one.time),
        "topic": one.topic,
        "tenant": one.tenant,
        "endpoints": ", ".join(one.endpoint_ids),
        "labels": json.dumps(dict(one.metadata), ensure_ascii=False) if one.metadata else None,
        "tried again": "when it fails" if one.eligible_for_retry else "never",
        "payload": payload_of(one),
    }
    return facts(values_of(one), known)


def payload_of(one: LoggedEvent) -> str | None:
    """A payload, or since when there is none."""
    return one.data if one.erased_at is None else f"erased at {at(one.erased_at)}"


def attempt_values(one: LoggedAttempt) -> dict[str, object]:
    """An attempt as JSON has it."""
    return values_of(one, durations={"took"})


def _took(one: LoggedAttempt) -> str:
    return seconds(None if one.took is None else one.took.total_seconds())


ATTEMPT_COLUMNS: Columns = {
    "at": "time", "id": "attempt_id", "event": "event_id", "endpoint": lambda one: short_id(one.endpoint_id),
    "tenant": "tenant", "topic": "topic",
    "attempt": lambda one: f"{one.attempt_number}{' by hand' if one.manual else ''}", "code": "code",
    "duration": _took, "response": lambda one: shortened(one.response or None),
}  # fmt: skip
"""Of a table of attempts."""
_EVENT_COLUMNS: Columns = {
    "at": "time", "event": "event_id", "tenant": "tenant", "topic": "topic",
    "endpoints": lambda one: len(one.endpoint_ids), "payload": lambda one: shortened(payload_of(one)),
}  # fmt: skip
