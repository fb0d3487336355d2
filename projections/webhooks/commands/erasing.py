"""``projections webhooks erase``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import click

from journal import Database
from projections.terminal.commands import Arg, Opt, derived
from projections.terminal.confirmation import confirm
from projections.terminal.options import Since, Until, Yes
from projections.terminal.output import Answer, done, printable
from projections.webhooks.deliveries import Deliveries
from projections.webhooks.erasing import Erased


def _one_or_many(options: Mapping[str, Any]) -> None:
    chosen = any(options[name] for name in ("order_key", "topics", "since", "until"))
    if (options["message"] is not None) + chosen + options["every"] != 1:
        raise click.UsageError("say which: pass MESSAGE, or options that choose, or --all")


@click.command()
@derived(check=_one_or_many)
async def erase(
    database: Database,
    /,
    tenant: str,
    message: Annotated[str | None, Arg("[MESSAGE]")] = None,
    *,
    order_key: Annotated[
        str | None, Opt("Only with this order key; of events of your own, of this source.", metavar="KEY")
    ] = None,
    topics: Annotated[
        tuple[str, ...], Opt("Only of this topic; may be repeated.", "--topic", metavar="TOPIC")
    ] = (),
    since: Since = None,
    until: Until = None,
    every: Annotated[bool, Opt("All of the tenant.", "--all")] = False,
    yes: Yes = False,
) -> Answer:
    """
    Erase what messages of a tenant say, and what endpoints answered to them. That they were sent stays on record.

    \b
      projections webhooks erase acme 0199a2f0-5f5e-7c3b-9d0e-2b7c1f7f3a11    by its webhook-id
      projections webhooks erase acme UA1545-delay-3                         by the id that it was sent under
      projections webhooks erase acme --order-key customer-17

    Payloads are erased in the log, in dead letters, and of messages of `send` in the journal; answers in the log of
    attempts. What is not delivered yet is not delivered any more: its state is erased. A request that is on its way
    cannot be called back. Of many, those are erased that fan-out has read. It cannot be undone.

    A message that has left the journal does not come back from an archive with its payload, whether it is found here or
    not; `projections archive erase` takes it out of the files.
    """  # noqa: D301 - click reads the escape
    deliveries = Deliveries(database)
    if message is not None:
        confirm(f"Erase message {printable(message)!r} of {printable(tenant)!r}?", yes=yes)
        return _told(await deliveries.erase(tenant, message))
    confirm(f"Erase all messages of {printable(tenant)!r} that fit?", yes=yes)
    steps = deliveries.erase_many(
        tenant, order_key=order_key, topics=topics or None, since=since, until=until
    )
    return _told([erased async for erased in steps][-1])


def _told(erased: Erased) -> Answer:
    late = f"; requests on their way with them: {erased.in_flight:,}" if erased.in_flight else ""
    gone = (
        f"; no longer in the journal: {erased.gone:,}; if they are archived, run `projections archive erase DIR`"
        if erased.gone
        else ""
    )
    return done(
        f"messages erased: {erased.messages:,}{late}{gone}",
        erased=erased.messages,
        in_flight=erased.in_flight,
        gone=erased.gone,
    )
