"""``projections webhooks deliveries`` and ``dead``: the outcome of each event for each endpoint."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import click

from journal import Database, NotFound
from projections.terminal.ages import age
from projections.terminal.command_group import ListGroup
from projections.terminal.commands import Arg, Opt, derived
from projections.terminal.confirmation import confirm
from projections.terminal.options import Every, Limit, Next, Since, Tenant, Until, Yes, next_page
from projections.terminal.outcomes import Wait, settled
from projections.terminal.output import (
    Answer,
    Columns,
    at,
    decided,
    facts,
    listing,
    printable,
    short_id,
    table_of,
    values_of,
)
from projections.webhooks.commands.log import ATTEMPT_COLUMNS, attempt_values
from projections.webhooks.commands.options import EndpointId, left_to_deliverers, whole_endpoint_id
from projections.webhooks.deliveries import (
    Deliveries,
    Delivery,
    DeliveryFilter,
    DeliveryState,
    DeliveryWithPayload,
)
from projections.webhooks.log import AttemptsRequest, PostgresLog

_MOST = 1000
"""Dead letters are counted up to this number, before somebody is asked about them."""

_EventId = Annotated[str, Arg("EVENT")]
_SomeEndpoint = Annotated[str | None, Arg("[ENDPOINT]")]
_SomeEvent = Annotated[str | None, Arg("[EVENT]")]
_States = Annotated[tuple[DeliveryState, ...], Opt("Only in this state; may be repeated.", "--state")]
_Retriable = Literal["dead", "done", "dropped"]
_Again = Annotated[
    tuple[_Retriable, ...], Opt("All in this state that fit the other options; may be repeated.", "--state")
]
_Droppable = Annotated[
    tuple[Literal["dead"], ...], Opt("All in this state that fit the other options.", "--state")
]


@dataclass(frozen=True, slots=True)
class _Which:
    """Which deliveries, where more than one may be meant."""

    tenant: Tenant = None
    endpoint_id: Annotated[str | None, Opt("Only to this endpoint.", "--endpoint", metavar="ENDPOINT")] = None
    topics: Annotated[
        tuple[str, ...], Opt("Only of this topic; may be repeated.", "--topic", metavar="TOPIC")
    ] = ()
    since: Since = None
    until: Until = None

    async def filter(self, database: Database, states: Sequence[DeliveryState]) -> DeliveryFilter:
        """The deliveries in these states, or in any."""
        given = self.endpoint_id
        return DeliveryFilter(
            tenant=self.tenant, endpoint_id=None if given is None else await whole_endpoint_id(database, given),
            states=states or None, topics=self.topics or None, since=self.since, until=self.until,
        )  # fmt: skip


def _one_or_many(options: Mapping[str, Any]) -> None:
    """Refuse what names neither one delivery nor many, or both."""
    endpoint, event = options["endpoint"], options["event"]
    chosen = any(
        options.get(name) for name in ("tenant", "endpoint_id", "topics", "since", "until", "states")
    )
    if (endpoint is not None) + chosen + options.get("every", False) != 1 or (endpoint is None) != (
        event is None
    ):
        raise click.UsageError("say which: pass ENDPOINT and EVENT, or options that choose, or --all")
    if options.get("wait") is not None and endpoint is None:
        raise click.UsageError("--wait is for one delivery: pass ENDPOINT and EVENT")


def _one_or_a_state(options: Mapping[str, Any]) -> None:
    """As above, where a state is among what chooses many."""
    _one_or_many(options)
    if options["endpoint"] is None and not options["states"]:
        raise click.UsageError("say which: pass --state")


@click.group(cls=ListGroup)
def deliveries() -> None:
    """
    List, show, retry and drop deliveries: the outcome of each event for each endpoint.

    \b
      projections webhooks deliveries list --tenant acme --state pending
      projections webhooks deliveries show ENDPOINT EVENT        with its attempts and payload
      projections webhooks deliveries retry ENDPOINT EVENT       now, whatever its outcome
      projections webhooks deliveries retry --state done --endpoint ENDPOINT --since 1d
      projections webhooks deliveries drop ENDPOINT EVENT
      projections webhooks deliveries drop --state dead --topic flight.delayed

    A delivery is pending, until it is due; leased, while it is on its way; waiting, for those before it in an order;
    done; dead, when its attempts are used up; dropped, by somebody; expired, when it was not delivered in its time; or
    erased, when somebody has erased its message. Without a command, `list` is run.
    """  # noqa: D301 - click reads the escape


@deliveries.command(name="list")
@derived
async def list_(
    database: Database, /, *, which: _Which, states: _States = (), limit: Limit = 100, cursor: Next = None
) -> Answer:
    """List deliveries, the newest first."""
    return await _listed(database, "deliveries", which, states, limit, cursor)


@deliveries.command(short_help="Show one with its payload and its attempts.")
@derived
async def show(database: Database, /, endpoint: EndpointId, event: _EventId) -> Answer:
    """Show a delivery with its payload, and every attempt at it with what came back."""
    return await _shown(database, endpoint, event)


@deliveries.command(short_help="Try one again now, or all that fit.")
@derived(check=_one_or_a_state)
async def retry(
    database: Database,
    /,
    endpoint: _SomeEndpoint = None,
    event: _SomeEvent = None,
    *,
    which: _Which,
    states: _Again = (),
    wait: Wait = None,
    yes: Yes = False,
) -> Answer:
    """
    Try a delivery again now, whatever its outcome, or all that fit, such as what a receiver has lost since then.

    \b
      projections webhooks deliveries retry --endpoint ENDPOINT --state done --since 2026-01-31T12:00:00Z

    Each goes with the `webhook-id` that it had, by which a receiver can tell. One that is named is tried instead of
    when it was due, and an endpoint that is held back is asked at once. Of many, those are passed over whose endpoint
    is disabled, that have expired or were erased, or whose payload the log no longer has; ended early, the rest stays
    as it is. With --wait one that is named is waited for: the exit code is 1 unless it was delivered in time.
    """  # noqa: D301 - click reads the escape
    if endpoint is None and set(states) != {"dead"}:  # which `dead retry` does not ask about either
        confirm(f"Try all deliveries again that are {' or '.join(states)}, and fit?", yes=yes)
    return await _retried(database, endpoint, event, which, states, wait)


@deliveries.command(short_help="Drop one, or all dead ones that fit.")
@derived(check=_one_or_a_state)
async def drop(
    database: Database,
    /,
    endpoint: _SomeEndpoint = None,
    event: _SomeEvent = None,
    *,
    which: _Which,
    states: _Droppable = (),
    yes: Yes = False,
) -> Answer:
    """Drop a delivery, or all dead ones that fit: they are not tried again, and what waits in an order goes on."""
    return await _dropped(database, endpoint, event, which, (), yes=yes)


@click.group(cls=ListGroup)
def dead() -> None:
    """
    List, show, retry and drop dead letters: deliveries whose attempts are used up.

    They are kept with their payload until somebody decides, however long.

    \b
      projections webhooks dead list --tenant acme
      projections webhooks dead show ENDPOINT EVENT        one, with its attempts and payload
      projections webhooks dead retry ENDPOINT EVENT       try one again
      projections webhooks dead retry --endpoint ENDPOINT --since 2h
      projections webhooks dead drop --topic flight.delayed

    Without a command, `list` is run.
    """  # noqa: D301 - click reads the escape


@dead.command(name="list")
@derived
async def list_dead(
    database: Database, /, *, which: _Which, limit: Limit = 100, cursor: Next = None
) -> Answer:
    """List dead letters, the newest first."""
    return await _listed(database, "dead", which, ["dead"], limit, cursor)


@dead.command(name="show")
@derived
async def show_dead(database: Database, /, endpoint: EndpointId, event: _EventId) -> Answer:
    """Show a dead letter with its payload, and every attempt at it with what came back."""
    return await _shown(database, endpoint, event, ["dead"])


@dead.command(name="retry")
@derived(check=_one_or_many)
async def retry_dead(
    database: Database,
    /,
    endpoint: _SomeEndpoint = None,
    event: _SomeEvent = None,
    *,
    which: _Which,
    every: Every = False,
    wait: Wait = None,
) -> Answer:
    """
    Try a dead letter again, now, or all that fit, in their order.

    Each gets one attempt, and those that its schedule still has. Of many, those whose endpoint is disabled are passed
    over. Ended early, the rest stays dead. With --wait one that is named is waited for: the exit code is 1 unless it
    was delivered in time.
    """
    return await _retried(database, endpoint, event, which, ["dead"], wait)


@dead.command(name="drop")
@derived(check=_one_or_many)
async def drop_dead(
    database: Database,
    /,
    endpoint: _SomeEndpoint = None,
    event: _SomeEvent = None,
    *,
    which: _Which,
    every: Every = False,
    yes: Yes = False,
) -> Answer:
    """
    Drop a dead letter, or all that fit: they are not tried again, and what waits for them in an order goes on.

    They are forgotten in time; what was tried stays in the log.
    """
    return await _dropped(database, endpoint, event, which, ["dead"], yes=yes)


async def _listed(
    database: Database,
    name: str,
    which: _Which,
    states: Sequence[DeliveryState],
    limit: int,
    cursor: str | None,
) -> Answer:
    found = await Deliveries(database).list(await which.filter(database, states), next=cursor, limit=limit)
    more = found[-1].cursor if len(found) == limit else None
    # What all of them have says nothing.
    same = [name for name, given in (("endpoint", which.endpoint_id), ("tenant", which.tenant)) if given]
    pending = any(one.state == "pending" for one in found)
    return listing(
        name, found, _COLUMNS, *next_page(more),
        nothing="no delivery matches", without={*same, *(() if pending else ("next",))}, next=more,
    )  # fmt: skip


async def _shown(
    database: Database, endpoint: str, event: str, states: Sequence[DeliveryState] = ()
) -> Answer:
    one, data = await _found(database, endpoint, event, states)
    request = AttemptsRequest(
        event_ids=[one.event_id], endpoint_ids=[one.endpoint_id], order="asc", limit=1000
    )
    attempts = [found.attempt for found in (await PostgresLog(database).list_attempts(request)).data]
    values = {**values_of(one), "data": data, "attempts_made": [attempt_values(each) for each in attempts]}
    table = table_of(ATTEMPT_COLUMNS, attempts, {"duration"}, {"event", "endpoint", "tenant", "topic"})
    return facts(values, _facts(one, data), *([table] if attempts else []))


async def _found(
    database: Database, endpoint: str, event: str, states: Sequence[DeliveryState]
) -> DeliveryWithPayload:
    whole = await whole_endpoint_id(database, endpoint)
    found = await Deliveries(database).show(None, whole, event)
    if states and found.delivery.state not in states:
        what = f"event {event!r:.80} to endpoint {whole!r:.80}"
        wanted = " or ".join(states)
        raise NotFound(f"the delivery of {what} is {found.delivery.state}, not {wanted}", "unknown_delivery")
    return found


async def _retried(
    database: Database,
    endpoint: str | None,
    event: str | None,
    which: _Which,
    states: Sequence[DeliveryState],
    wait: timedelta | None,
) -> Answer:
    """Try one delivery again, or all that are in these states and fit."""
    service = Deliveries(database)
    if endpoint is None or event is None:
        retried = await _last(service.retry_many(await which.filter(database, states)))
    else:
        whole = await whole_endpoint_id(database, endpoint)
        retried = await service.retry(None, whole, event, states=states or None)
        if wait is not None:
            one = await settled(lambda: service.show(None, whole, event), _is_open, wait)
            return await left_to_deliverers(database, _outcome(one.delivery, retried))
    return await left_to_deliverers(database, decided("retried", "deliveries", retried))


def _is_open(one: DeliveryWithPayload) -> bool:
    return one.delivery.state in {"waiting", "pending", "leased"}


def _outcome(one: Delivery, retried: int) -> Answer:
    code = "" if one.last_code is None else f" ({one.last_code})"
    values = {"retried": retried, "state": one.state, "code": one.last_code}
    return Answer(values, [f"delivery {one.state}{code}"], exit_code=0 if one.state == "done" else 1)


async def _dropped(
    database: Database,
    endpoint: str | None,
    event: str | None,
    which: _Which,
    states: Sequence[DeliveryState],
    *,
    yes: bool,
) -> Answer:
    """Drop one delivery, if it is in one of these states, or all dead letters that fit."""
    service = Deliveries(database)
    if endpoint is None or event is None:
        chosen = await which.filter(database, ["dead"])
        if not (count := len(await service.list(chosen, limit=_MOST))):
            return decided("dropped", "deliveries", 0)
        confirm(f"Drop {count:,}{' or more' if count == _MOST else ''} dead letters?", yes=yes)
        return decided("dropped", "deliveries", await _last(service.drop_many(chosen)))
    one, _ = await _found(database, endpoint, event, states)
    what = f"event {one.event_id} ({printable(one.topic)}) to endpoint {one.endpoint_id}"
    confirm(f"Drop the delivery of {what}, which is {one.state}?", yes=yes)
    dropped = await service.drop(None, one.endpoint_id, one.event_id, states=states or None)
    return decided("dropped", "deliveries", dropped)


async def _last(steps: AsyncIterator[int]) -> int:
    """What all steps have come to; a terminal shows how far they are."""
    count = 0
    async for count in steps:
        _tell_progress(f"{count:,} so far")
    _tell_progress("")
    return count


def _tell_progress(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)


def _next(one: Delivery) -> str | None:
    if one.state != "pending":
        return None
    wait = (one.next_at - datetime.now(UTC)).total_seconds()
    return f"in {age(wait)}" if wait > 0 else "now"


_COLUMNS: Columns = {
    "event": "event_id", "event at": "event_time", "endpoint": lambda one: short_id(one.endpoint_id),
    "tenant": "tenant", "topic": "topic", "state": "state", "attempts": "attempts",
    "last code": "last_code", "next attempt": _next,
}  # fmt: skip


def _facts(one: Delivery, data: str | None) -> dict[str, object]:
    return {
        "event": one.event_id,
        "topic": one.topic,
        "tenant": one.tenant,
        "endpoint": one.endpoint_id,
        "order key": one.order_key,
        "state": f"{one.state}, next at {at(one.next_at)}" if one.state == "pending" else one.state,
        "attempts": one.attempts,
        "last code": one.last_code,
        "event at": at(one.event_time),
        "expires": at(one.expires_at),
        "ended": at(one.finished_at),
        "payload": "erased" if one.erased else "no longer kept" if data is None else data,
    }
