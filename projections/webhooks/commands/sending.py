"""``projections webhooks send``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

import click

from journal import Appended, Database, RawJson
from projections.terminal.options import dsn_option, echo_json, iso_time, json_option
from projections.terminal.output import printable
from projections.webhooks.commands.options import text_of
from projections.webhooks.commands.printing import at
from projections.webhooks.commands.visiting import visit_database, whole_endpoint_id
from projections.webhooks.endpoints import Endpoints
from projections.webhooks.messages import send as send_message

__all__ = ["send"]


def _data(_: click.Context, __: click.Parameter, value: str) -> str:
    text = text_of(value)
    try:
        json.loads(text, parse_int=str)  # how long an integer may be, the journal says
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{text[:80]!r} is no JSON: {error}") from None
    return text


def _labels(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    labels = {}
    for value in values:
        name, equals, content = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is no label: write NAME=VALUE")
        labels[name] = content
    return labels


@click.command()
@click.argument("tenant")
@click.argument("topic")
@click.argument("data", metavar="[JSON|-|@FILE]", default="{}", callback=_data)
@click.option(
    "--id", "message_id", metavar="ID", help="Yours, unique in the tenant: sent again, nothing happens."
)
@click.option(
    "--order-key", metavar="KEY", help="Endpoints that ask for an order get the same key one after the other."
)
@click.option(
    "--not-before", callback=iso_time, metavar="TIME", help="Sent then, such as 2026-01-31T12:00:00Z."
)
@click.option("--endpoint", "endpoint_id", metavar="ENDPOINT", help="To this one alone.")
@click.option("--once", is_flag=True, help="One attempt; it is not tried again.")
@click.option(
    "--label", "labels", multiple=True, callback=_labels, metavar="NAME=VALUE",
    help="For filters and for the log; it is not sent. May be repeated.",
)  # fmt: skip
@dsn_option
@json_option
def send(  # noqa: PLR0917 - click passes all by name
    tenant: str,
    topic: str,
    data: str,
    message_id: str | None,
    order_key: str | None,
    not_before: datetime | None,
    endpoint_id: str | None,
    once: bool,
    labels: dict[str, str],
    dsn: str | None,
    as_json: bool,
) -> None:
    """
    Send a message to the endpoints of a tenant that want its topic.

    \b
      projections webhooks send acme flight.delayed '{"flight": "UA 1545", "minutes": 12}'
      projections webhooks send acme flight.delayed @delay.json --id UA1545-delay-3
      echo '{"minutes": 12}' | projections webhooks send acme flight.delayed -

    It is an event in the journal; `projections webhooks deliver` sends it. The JSON goes out as it is written here,
    and its id is the `webhook-id` that receivers see.
    """  # noqa: D301 - click reads the escape

    async def work(database: Database) -> tuple[Appended, bool]:
        alone = None if endpoint_id is None else await whole_endpoint_id(database, endpoint_id)
        async with database.transaction() as session:
            sent = await send_message(
                session, tenant, topic, RawJson(data), message_id=message_id, order_key=order_key,
                not_before=not_before, endpoint_id=alone, eligible_for_retry=not once, metadata=labels,
            )  # fmt: skip
        return sent, bool(await Endpoints(database).list(tenant, limit=1))

    sent, anybody = visit_database(dsn, work)
    if as_json:
        echo_json(
            event_id=str(sent.event_id), source_id=sent.source_id, seq_nr=sent.seq_nr,
            db_timestamp=sent.db_timestamp.isoformat(),
        )  # fmt: skip
        return
    later = "" if not_before is None else f", to be sent from {at(not_before)} on"
    click.echo(f"message {sent.event_id} is stored{later}")
    if not anybody:
        name = printable(tenant)
        click.echo(f"note: tenant {name!r} has no endpoint, so it goes nowhere", err=True)
