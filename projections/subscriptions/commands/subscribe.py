"""``projections subscribe``."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

import click

from journal import Session
from projections.subscriptions import subscribe as make_subscription
from projections.terminal.commands import Opt, derived
from projections.terminal.options import json_object_of
from projections.terminal.output import Answer, done, printable
from projections.terminal.times import Time

_Contains = Opt(
    "Events whose payload contains these keys and values, nested ones too.",
    callback=json_object_of, metavar="JSON|-|@FILE",
)  # fmt: skip
_From = Opt(
    "Events from this time on. Default: as the group was made with, else now.", "--from",
    type=Time(words=("beginning", "now")), metavar="beginning|now|2h|TIME",
)  # fmt: skip
_ExpiresAfter = Opt(
    "Remove the subscription when no consumer has used it for this long. Default: it stays.",
)


@click.command()
@derived
async def subscribe(
    session: Session,
    /,
    group: str,
    *,
    topics: Annotated[
        tuple[str, ...],
        Opt("Events of this type; * for one segment, ** for more; may be repeated.", "--topic"),
    ] = (),
    entity_types: Annotated[
        tuple[str, ...], Opt("Events of this kind of source; may be repeated.", "--entity-type")
    ] = (),
    contains: Annotated[Any, _Contains] = None,
    condition: Annotated[str | None, Opt("Events of which this is true: see above.", metavar="SQL")] = None,
    params: Annotated[
        Any, Opt("Values for the condition.", callback=json_object_of, metavar="JSON|-|@FILE")
    ] = None,
    expires_after: Annotated[timedelta | None, _ExpiresAfter] = None,
    start: Annotated[datetime | str | None, _From] = None,
    listen_only: Annotated[
        bool, Opt("Make a new group one of listeners: it has no cursor, and nothing is kept for it.")
    ] = False,
) -> Answer:
    """
    Subscribe a group of consumers to the events that all of the options ask for; without any, to all events.

    \b
      projections subscribe billing --topic 'order.*'
      projections subscribe billing --entity-type order --contains '{"currency": "EUR"}'
      projections subscribe alarms --condition "(e.payload ->> 'delay')::int > (s.params ->> 'minutes')::int" \\
          --params '{"minutes": 30}'

    A group that is not known is made. It gets events that are committed from now on; with --from, all from that time
    on: first those of before, and what comes waits for them. `projections subscriptions` shows how far it is. Asking
    for the same again is the same subscription, which starts where it did, kept for the longer of both times.

    A condition is a boolean SQL expression over the event `e` (topic, entity_type, source_id, seq_nr, payload,
    metadata, tags …) and the subscription `s` (params). Subscriptions that share its text are asked together: give
    values that differ in params. Until they expire, matches are kept for a group that is not --listen-only: remove
    with `projections subscriptions remove` what nobody reads.
    """  # noqa: D301 - click reads the escape
    found = await make_subscription(
        session, group, topics=topics or None, entity_types=entity_types or None, contains=contains,
        condition=condition, params=params, expires_after=expires_after, reliable=not listen_only,
        start=start,
    )  # fmt: skip
    return done(f"subscription {found} of group {printable(group)!r}", subscription_id=found, group=group)
