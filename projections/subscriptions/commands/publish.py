"""``projections publish``."""

from __future__ import annotations

from typing import Annotated

import click

from journal import RawJson, Session
from projections.subscriptions.commands.left_to import left_to_matching
from projections.subscriptions.publishing import DEFAULT_PUBLISHER
from projections.subscriptions.publishing import publish as publish_event
from projections.terminal.commands import Opt, derived
from projections.terminal.options import Json, NotBefore
from projections.terminal.output import Answer, appended, done, printable

_Publisher = Annotated[
    str,
    Opt(
        "What one publisher has published stays in order; publishers of other names do not wait for it.",
        metavar="NAME",
    ),
]


@click.command()
@derived
async def publish(
    session: Session,
    /,
    topic: str,
    payload: Json = "{}",
    *,
    publisher: _Publisher = DEFAULT_PUBLISHER,
    subscription_id: Annotated[int | None, Opt("For this subscription alone.", "--to", metavar="ID")] = None,
    not_before: NotBefore = None,
) -> Answer:
    """
    Publish a payload under a topic, for the groups that have subscribed to it.

    \b
      projections publish order.paid '{"order": 4711, "currency": "EUR"}'
      echo '{"order": 4711}' | projections publish order.paid -

    It is an event of the publisher's own source (publisher/NAME, entity type published), kept in the journal as
    every other. The JSON is stored as written; without any it is {}.
    """  # noqa: D301 - click reads the escape
    found = await publish_event(
        session, topic, RawJson(payload), publisher=publisher, subscription_id=subscription_id,
        not_before=not_before,
    )  # fmt: skip
    answer = done(f"{printable(found.source_id)} {found.seq_nr}: {found.event_id}", **appended(found))
    return await left_to_matching(session, answer)
