"""``projections webhooks send``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import click

from journal import Database, RawJson
from projections.terminal.commands import Opt, derived
from projections.terminal.options import Json, NotBefore
from projections.terminal.output import Answer, appended, at, printable
from projections.terminal.times import Time
from projections.webhooks.commands.options import OneEndpoint, left_to_deliverers, whole_endpoint_id
from projections.webhooks.endpoints import Endpoints
from projections.webhooks.messages import send as send_message


def _labels(_: click.Context, __: click.Parameter, values: Sequence[str]) -> list[tuple[str, str]]:
    labels = []
    for value in values:
        name, equals, content = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not a label: write NAME=VALUE")
        labels.append((name, content))
    return labels


_MessageId = Opt(
    "An id of yours, unique for the tenant: a message that was sent under it already is not sent again.",
    "--id",
    metavar="ID",
)
_OrderKey = Opt("Endpoints that ask for an order get the same key one after the other.", metavar="KEY")
_ExpiresAt = Opt(
    "What is not delivered by this time is not attempted any more.", type=Time(ahead=True), metavar="TIME"
)
_Label = Opt(
    "For filters and for the log; it is not sent; may be repeated.",
    "--label",
    callback=_labels,
    metavar="NAME=VALUE",
)


@click.command()
@derived
async def send(
    database: Database,
    /,
    tenant: str,
    topic: str,
    data: Json = "{}",
    *,
    message_id: Annotated[str | None, _MessageId] = None,
    order_key: Annotated[str | None, _OrderKey] = None,
    not_before: NotBefore = None,
    expires_at: Annotated[datetime | None, _ExpiresAt] = None,
    endpoint_id: OneEndpoint = None,
    once: Annotated[bool, Opt("One attempt; it is not tried again.")] = False,
    labels: Annotated[tuple[tuple[str, str], ...], _Label] = (),
) -> Answer:
    """
    Send a message to the endpoints of a tenant that want its topic.

    \b
      projections webhooks send acme flight.delayed '{"flight": "UA 1545", "minutes": 12}'
      projections webhooks send acme flight.delayed @delay.json --id UA1545-delay-3
      echo '{"minutes": 12}' | projections webhooks send acme flight.delayed -

    It is an event in the journal; `projections webhooks deliver` sends it. The JSON goes out as it is written here,
    and its id is the `webhook-id` that receivers see.
    """  # noqa: D301 - click reads the escape
    alone = None if endpoint_id is None else await whole_endpoint_id(database, endpoint_id)
    async with database.session() as session, session.transaction():
        sent = await send_message(
            session, tenant, topic, RawJson(data), message_id=message_id, order_key=order_key,
            not_before=not_before, expires_at=expires_at, endpoint_id=alone,
            eligible_for_retry=not once, metadata=dict(labels),
        )  # fmt: skip
    later = "" if not_before is None else f", to be sent from {at(not_before)} on"
    note = None
    if not await Endpoints(database).list(tenant, limit=1):
        note = f"note: tenant {printable(tenant)!r} has no endpoint, so it goes nowhere"
    answer = Answer(appended(sent), [f"message {sent.event_id} is stored{later}"], note=note)
    return await left_to_deliverers(database, answer, message=True)
