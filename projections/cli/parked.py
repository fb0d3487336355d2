"""``projections parked``: sources that wait because one of their events could not be handled."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

import click

from journal import Database, Log, OwnedSession, Session, Unreadable, read_source_page
from offsets import ParkedSource, ParkedSources, runs
from projections.terminal.command_group import ListGroup
from projections.terminal.commands import Opt, derived
from projections.terminal.confirmation import confirm
from projections.terminal.options import Every, Limit, Yes, one_or_all, tell_more
from projections.terminal.outcomes import Wait, settled
from projections.terminal.output import Answer, decided, left_to, listing, printable, values_of

_COLUMNS = {
    "projection": "projection", "source": "source_id", "seq_nr": "seq_nr", "event type": "event_type",
    "attempts": "attempts", "parked at": "parked_at", "decision": "decision", "error": "error",
}  # fmt: skip
_LONGEST_PAYLOAD = 4000
"""Characters of a payload that people are shown."""


@click.group(cls=ListGroup)
def parked() -> None:
    """
    List, show, retry and drop events that could not be handled.

    The source of such an event waits, so that its order is kept; all other sources go on.

    \b
      projections parked list                       of all projections
      projections parked list orders                of one
      projections parked show orders SOURCE         one, with its payload and the traceback of its handler
      projections parked retry orders SOURCE        handle its event again; --all for all sources
      projections parked drop orders SOURCE         pass over its event; --all for all sources

    Without a command, `list` is run.
    """  # noqa: D301 - click reads the escape


@parked.command(name="list")
@derived(sides="read")
async def list_(
    session: Session,
    /,
    name: str | None = None,
    *,
    source: Annotated[str | None, Opt("Only this source.", metavar="SOURCE")] = None,
    limit: Limit = 100,
) -> Answer:
    """List the sources that wait, of one projection or of all: the event each waits at, and why."""
    found = await ParkedSources(session).list(name, source_id=source, limit=limit)
    return listing(
        "parked", found, _COLUMNS, *tell_more(found, limit), nothing="no source is parked", values=_values,
        more=len(found) == limit,
    )  # fmt: skip


@parked.command(short_help="Show a source that waits, with its event.")
@derived(sides="all")
async def show(session: OwnedSession, journals: list[Log], /, name: str, source: str) -> Answer:
    """
    Show a source that waits: its event and payload, why it could not be handled, and where in the handler that was.

    A long payload is cut; --json has all of it, as text.
    """
    found = await ParkedSources(session).show(name, source)
    payload = await _payload(session, found, journals)
    known = (f"{name.replace('_', ' ')}: {printable(str(value))}" for name, value in _values(found).items())
    traceback = (f"  {printable(line)}" for line in (found.traceback or "none was kept").splitlines())
    return Answer(
        values_of(found) | {"payload": None if isinstance(payload, Unreadable) else payload},
        [*known, f"payload: {_cut(payload)}", "traceback:", *traceback],
    )


@parked.command()
@derived(sides="read", check=one_or_all("source", "SOURCE"))
async def retry(
    database: Database,
    /,
    name: str,
    source: str | None = None,
    *,
    every: Every = False,
    wait: Wait = None,
) -> Answer:
    """
    Have the event handled again, and let the source go on. Running workers do it within about a second.

    With --wait it ends when they have done so: the exit code is 1 where an event failed again, or the time is over.
    """
    async with database.session() as session:  # each statement commits: workers are to see the decision
        service = ParkedSources(session)
        since: datetime = await session.fetchval("SELECT clock_timestamp()")
        count = await service.retry(name, source)
        if wait is None or not count:
            answer = decided("retried", "parked events", count)
        else:
            answer = await _outcome(service, name, source, since, count, wait)
        return left_to(answer, f"worker of projection {name!r}", runs=await runs(session, name))


async def _outcome(
    service: ParkedSources, name: str, source: str | None, since: datetime, count: int, patience: timedelta
) -> Answer:
    """Wait until sources have gone on, or are parked again."""
    outcome = await settled(
        lambda: service.outcome(name, source, since), lambda outcome: outcome.undone, patience
    )
    undone, failed = outcome
    handled = max(0, count - undone - failed)
    text = f"parked events handled: {handled:,}, failed again: {failed:,}, not handled yet: {undone:,}"
    values = {"retried": count, "handled": handled, "failed": failed, "undone": undone}
    return Answer(values, [text], exit_code=1 if undone or failed else 0)


@parked.command()
@derived(sides="read", check=one_or_all("source", "SOURCE"))
async def drop(
    database: Database, /, name: str, source: str | None = None, *, every: Every = False, yes: Yes = False
) -> Answer:
    """Pass over the event, and let the source go on. The journal keeps it; this projection never handles it."""
    what = f"the parked event of source {source!r}" if source is not None else "every parked event"
    async with database.session() as session:
        await ParkedSources(session).list(name, limit=1)  # asks only about a projection that there is
    confirm(f"Have projection {name!r} pass over {what}?", yes=yes)
    async with database.session() as session, session.transaction():
        return decided("dropped", "parked events", await ParkedSources(session).drop(name, source))


async def _payload(session: OwnedSession, one: ParkedSource, journals: Sequence[Log]) -> str:
    """What the journal has as the payload of the event that a source waits at, or why there is nothing to show."""
    log = next((each for each in journals if each.name == one.journal), None)
    if one.journal is None:
        page = await read_source_page(session, one.source_id, one.seq_nr, one.seq_nr)
    elif log is None:
        return Unreadable(f"it is in journal {one.journal!r}, which --journal names")
    else:
        async with log.session() as reading:
            page = await read_source_page(reading, one.source_id, one.seq_nr, one.seq_nr, queries=log.queries)
    return page[0].payload_json if page else Unreadable("the journal no longer has this event")


def _cut(payload: str) -> str:
    if len(payload) <= _LONGEST_PAYLOAD:
        return printable(payload)
    return f"{printable(payload[:_LONGEST_PAYLOAD])}… ({len(payload):,} characters: --json has all of them)"


def _values(one: ParkedSource) -> dict[str, object]:
    """What a list shows; tracebacks are long."""
    return values_of(one, {"traceback"})
