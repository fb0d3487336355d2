"""``projections subscribe``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import click

from projections.subscriptions import subscribe as make_subscription
from projections.terminal.connection import visit
from projections.terminal.durations import Duration
from projections.terminal.options import dsn_option, echo_json, json_option
from projections.terminal.output import printable

__all__ = ["subscribe"]


def _json_object(_: click.Context, __: click.Parameter, value: str | None) -> Mapping[str, Any] | None:
    if value is None:
        return None
    try:
        found = json.loads(value)
    except ValueError as error:
        raise click.BadParameter(f"{value[:80]!r} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise click.BadParameter(f'{value[:80]!r} is no JSON object: write {{"name": "value"}}')
    return found


@click.command()
@click.argument("group")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    help="Events of this type; * for one segment, ** for more. Repeatable.",
)
@click.option(
    "--entity-type", "entity_types", multiple=True, help="Events of this kind of source. Again for more."
)
@click.option(
    "--contains", callback=_json_object, metavar="JSON",
    help="Events whose payload contains these keys and values, nested ones too.",
)  # fmt: skip
@click.option("--condition", metavar="SQL", help="Events of which this is true: see above.")
@click.option("--params", callback=_json_object, metavar="JSON", help="Values for the condition.")
@click.option(
    "--expires-after", type=Duration(), metavar="15m|2h|7d",
    help="Remove the subscription when no consumer has used it for so long. Default: it stays.",
)  # fmt: skip
@click.option(
    "--listen-only", is_flag=True,
    help="Make a new group one of listeners: it has no cursor, and nothing is kept for it.",
)  # fmt: skip
@dsn_option
@json_option
def subscribe(  # noqa: PLR0917 - one of each option
    group: str,
    topics: tuple[str, ...],
    entity_types: tuple[str, ...],
    contains: Mapping[str, Any] | None,
    condition: str | None,
    params: Mapping[str, Any] | None,
    expires_after: timedelta | None,
    listen_only: bool,
    dsn: str | None,
    as_json: bool,
) -> None:
    """
    Subscribe a group of consumers to the events that all of the options ask for; without any, to all events.

    \b
      projections subscribe billing --topic 'order.*'
      projections subscribe billing --entity-type order --contains '{"currency": "EUR"}'
      projections subscribe alarms --condition "(e.payload ->> 'delay')::int > (s.params ->> 'minutes')::int" \\
          --params '{"minutes": 30}'

    A group that is not known is made. It gets events that are committed from now on. Asking for the same again is
    the same subscription, kept for the longer of both times.

    A condition is a boolean SQL expression over the event `e` (topic, entity_type, source_id, seq_nr, payload,
    metadata, tags …) and the subscription `s` (params). Subscriptions that share its text are asked together: give
    values that differ in params. Until they expire, matches are kept for a group that is not --listen-only: remove
    with `projections subscriptions remove` what nobody reads.
    """  # noqa: D301 - click reads the escape
    found = visit(
        dsn,
        lambda session: make_subscription(
            session, group, topics=topics or None, entity_types=entity_types or None, contains=contains,
            condition=condition, params=params, expires_after=expires_after, reliable=not listen_only,
        ),
    )  # fmt: skip
    if as_json:
        echo_json(subscription_id=found, group=group)
    else:
        click.echo(f"subscription {found} of group {printable(group)!r}")
