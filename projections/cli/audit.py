"""``projections audit``: whether everything that was committed was handled, once and in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, NamedTuple

import click

from journal import ConnectionSettings, Database, Log, OwnedSession
from offsets import entity_types_of
from projections.auditing import (
    KINDS,
    Audit,
    History,
    Waiting,
    committed_in,
    handled_in,
    lines_of,
    parked_at,
    query,
    tell_journal,
)
from projections.durations import Duration
from projections.terminal.commands import Dsn, Journal, JournalPrimary, Opt, ReadSide, derived
from projections.terminal.connection import Sides, connected, sides
from projections.terminal.output import Answer, Columns, counted, printable, table_of

_QUERIES = ("select", "with", "table", "values")


@dataclass(frozen=True, slots=True)
class _Options:
    """What is compared, and how."""

    handled: Annotated[
        str,
        Opt(
            "What was handled, in that order: a query on the read side with the columns source_id and seq_nr, or a "
            "file of JSON lines, - for standard input.",
            metavar="SQL|FILE",
        ),
    ]
    committed: Annotated[
        str | None,
        Opt(
            "What was committed: a query on the journal, which names tables with their schemas, or a file. Default: "
            "the events of this library's journal that NAME reads.",
            metavar="SQL|FILE",
        ),
    ] = None
    event_types: Annotated[
        tuple[str, ...],
        Opt("Only events of this type; may be repeated.", "--event-type", metavar="TYPE"),
    ] = ()
    at_least_once: Annotated[bool, Opt("Let events be handled again.")] = False
    grace: Annotated[
        timedelta,
        Opt("What was committed in this time may still be on its way.", type=Duration(least="0s")),
    ] = timedelta(minutes=1)
    examples: Annotated[
        int, Opt("How many events of each kind are named.", type=click.IntRange(0, 10_000))
    ] = 10


class _Sessions(NamedTuple):
    """Sessions on the databases that are asked; None where all is in files."""

    read_side: OwnedSession | None
    journal: OwnedSession | None
    stored_name: str | None = None
    """What the journal is called there, where it is in another database."""


@click.command()
@derived
def audit(
    name: str | None = None,
    *,
    options: _Options,
    dsn: Dsn = None,
    read_side: ReadSide = None,
    journal: Journal = None,
    journal_primary: JournalPrimary = None,
) -> Answer:
    """
    Compare what was committed with what a projection has handled, event by event.

    Found are events that are lost: committed and not handled; doubled: handled again; out of order: handled after a
    later event of their source; invented: handled and never committed. The exit code is 1 if there are any.

    It takes nobody's word but that of your handler, which records (source_id, seq_nr) in the transaction of its
    effects. The time grows with the events, the memory does not.

    \b
    Examples
      projections audit orders --handled 'SELECT source_id, seq_nr FROM orders_handled ORDER BY n'
      projections audit orders --event-type Placed --event-type Paid --handled 'SELECT …'
      projections audit orders --committed 'SELECT source_id, seq_nr FROM public.log' --handled 'SELECT …'
      projections audit --committed committed.jsonl --handled handled.jsonl
    """  # noqa: D301 - click reads the escape
    _check(name, options)
    if _is_query(options.handled) or not options.committed or _is_query(options.committed):
        with sides(dsn, journal, read_side, journal_primary) as where:
            return asyncio.run(_on_databases(where, name, options))
    return asyncio.run(_compare(_Sessions(None, None), name, options))


def _check(name: str | None, options: _Options) -> None:
    if name is None and not options.committed:
        raise click.UsageError("name the projection whose events are meant, or pass --committed")
    if options.committed and options.event_types:
        raise click.UsageError("--event-type chooses from the journal: say so in --committed instead")
    if options.committed == options.handled == "-":
        raise click.UsageError("standard input cannot be both --committed and --handled")


def _is_query(text: str) -> bool:
    return text.lstrip(" \n(").lower().startswith(_QUERIES) and len(text.split()) > 1


async def _on_databases(where: Sides, name: str | None, options: _Options) -> Answer:
    async with (
        connected(where, ConnectionSettings(max_connections=2)) as (database, log),
        database.session() as read_side,
        _journal(database, log) as journal,
    ):
        stored_name = None if log is None else log.stored_name(database)
        return await _compare(_Sessions(read_side, journal, stored_name), name, options)


@asynccontextmanager
async def _journal(database: Database, log: Log | None) -> AsyncIterator[OwnedSession]:
    async with database.session() if log is None else log.session() as session:
        yield session


async def _compare(where: _Sessions, name: str | None, options: _Options) -> Answer:
    with History(examples=options.examples) as history:
        if name is not None:
            history.expect(name)
        settled = await _now(where) - options.grace
        # First what was handled: what is, was committed before.
        async for row in _rows(options.handled, where.read_side):
            handled_in(history, row, name or "")
        waiting = Waiting(settled, await _parked(where, name))
        if options.committed:
            async for row in _rows(options.committed, where.journal):
                committed_in(history, row, waiting)
        elif where.read_side is not None and where.journal is not None and name is not None:
            entity_types = (await entity_types_of(where.read_side, [name], where.stored_name))[name]
            await tell_journal(history, where.journal, entity_types, options.event_types, waiting)
        found = await asyncio.to_thread(history.audit)
    return _answer({p: one for p, one in found.items() if name in {None, p}}, options)


async def _now(where: _Sessions) -> datetime:
    if where.journal is None:
        return datetime.now(UTC)
    now: datetime = await where.journal.fetchval("SELECT clock_timestamp()")
    return now


async def _parked(where: _Sessions, name: str | None) -> dict[str, int]:
    return (
        {}
        if where.read_side is None or name is None
        else await parked_at(where.read_side, name, where.stored_name)
    )


async def _rows(given: str, session: OwnedSession | None) -> AsyncIterator[Mapping[str, object]]:
    if session is not None and _is_query(given):
        async for row in query(session, given):
            yield row
    else:
        for row in lines_of(Path(given)):
            yield row


def _answer(found: Mapping[str, Audit], options: _Options) -> Answer:
    clean = all(one.clean(at_least_once=options.at_least_once) for one in found.values())
    lines = [table_of(_COLUMNS, found.items(), set(_COLUMNS) - {"projection"})]
    named = [
        f"{kind.replace('_', ' ')}: {printable(example.source_id)} {example.seq_nr}"
        + (f", of {printable(name)}" if len(found) > 1 else "")
        for kind in KINDS
        for name, one in found.items()
        for example in one.examples
        if example.kind == kind
    ]
    wrong = sum(sum(one.counts.values()) for one in found.values())
    complaint = None if clean else f"{counted(wrong, 'event')} not handled as committed"
    values = {
        "clean": clean,
        "projections": [{"projection": name, **one.values} for name, one in found.items()],
    }
    return Answer(values, [*lines, *named], exit_code=0 if clean else 1, complaint=complaint)


def _number(name: str) -> Callable[[tuple[str, Audit]], object]:
    return lambda item: item[1].values[name]


_COLUMNS: Columns = {
    "projection": lambda item: item[0],
    **{
        name.replace("_", " "): _number(name)
        for name in ("committed", "handled", "waiting", "dropped", *KINDS)
    },
}
