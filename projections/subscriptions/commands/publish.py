"""``projections publish``."""

from __future__ import annotations

import json
import sys
from datetime import datetime

import click

from journal import Appended, RawJson, Session
from projections.subscriptions.publishing import DEFAULT_PUBLISHER
from projections.subscriptions.publishing import publish as publish_event
from projections.terminal.connection import visit
from projections.terminal.options import dsn_option, echo_json, iso_time, json_option
from projections.terminal.output import printable

__all__ = ["publish"]


def _payload(_: click.Context, __: click.Parameter, value: str) -> str:
    try:
        if value == "-":
            value = sys.stdin.buffer.read().decode().strip()
        json.loads(value, parse_int=str)  # how long an integer may be, the journal says
    except ValueError as error:
        raise click.BadParameter(f"{value[:80]!r} is no JSON: {error}") from None
    return value


@click.command()
@click.argument("topic")
@click.argument("payload", metavar="[JSON|-]", default="{}", callback=_payload)
@click.option(
    "--publisher", metavar="NAME", default=DEFAULT_PUBLISHER, show_default=True,
    help="What one publisher has published stays in order; several at a time do not wait for each other.",
)  # fmt: skip
@click.option("--to", "subscription_id", type=int, metavar="ID", help="For this subscription alone.")
@click.option(
    "--not-before", callback=iso_time, metavar="TIME", help="Matched then, such as 2026-01-31T12:00:00Z."
)
@dsn_option
@json_option
def publish(  # noqa: PLR0917 - one of each option
    topic: str,
    payload: str,
    publisher: str,
    subscription_id: int | None,
    not_before: datetime | None,
    dsn: str | None,
    as_json: bool,
) -> None:
    """
    Publish a payload under a topic, for the groups that have subscribed to it.

    \b
      projections publish order.paid '{"order": 4711, "currency": "EUR"}'
      echo '{"order": 4711}' | projections publish order.paid -

    It is an event of the publisher's own source (publisher/NAME, entity type published), kept in the journal as
    every other. The JSON is stored as written; without any it is {}.
    """  # noqa: D301 - click reads the escape

    async def work(session: Session) -> Appended:
        return await publish_event(
            session, topic, RawJson(payload), publisher=publisher, subscription_id=subscription_id,
            not_before=not_before,
        )  # fmt: skip

    found = visit(dsn, work)
    if as_json:
        echo_json(
            event_id=str(found.event_id), source_id=found.source_id, seq_nr=found.seq_nr,
            db_timestamp=found.db_timestamp.isoformat(),
        )  # fmt: skip
    else:
        click.echo(f"{printable(found.source_id)} {found.seq_nr}: {found.event_id}")
