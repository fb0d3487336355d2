"""``projections journals``: journals of other systems that are read by a name."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated, NamedTuple

import click

import offsets
from journal import ConnectionSettings, Database, DatabaseUnavailable, JournalUnavailable, Primary, Session
from journal.database import connect
from journal.foreign import (
    KINDS,
    PAGE_LIMIT,
    AttachedJournal,
    ForeignJournalError,
    ReadableTable,
    attach,
    attached_journals,
    check,
    decoder_of,
    detach,
    page_time,
)
from projections.terminal.command_group import ListGroup
from projections.terminal.commands import Arg, JournalPrimary, Opt, derived
from projections.terminal.connection import JOURNAL_PRIMARY_VARIABLE
from projections.terminal.options import text_of
from projections.terminal.output import Answer, Columns, done, listing, printable

__all__ = ["journals"]


class _Listed(NamedTuple):
    name: str
    kind: str
    dsn: str | None
    dsn_variable: str | None
    mapping: str
    read_by: list[str]
    """The names of projections."""


_COLUMNS: Columns = {
    "journal": "name", "kind": "kind", "where": lambda one: one.dsn or f"${one.dsn_variable}", "read by": "read_by",
}  # fmt: skip
_MILLISECOND = timedelta(milliseconds=1)
_Kind = Annotated[str, Arg("KIND", type=click.Choice(KINDS))]
_Dsn = Opt("Its database, without a password.", "--journal", metavar="DSN")
_Variable = Opt("The environment variable that has its DSN, in each process.", metavar="NAME")
_Table = Opt("The table of its events, where it has no usual name.", metavar="[SCHEMA.]TABLE")
_Mapping = Opt("What its columns mean, or what else is said of its kind, as TOML.", metavar="FILE")


@click.group(cls=ListGroup)
def journals() -> None:
    """
    List, attach and detach journals of other systems, which are read in place.

    \b
      projections journals                         all of them
      projections journals attach eventsourcing bank --journal postgresql://reader@db/bank --table bank_events
      projections journals attach table orders --journal-variable ORDERS_DSN --mapping orders.toml --dry-run
      projections worker my_module --journal bank
      projections journals detach bank

    They are known to the database of the read models, by names. Nothing is installed where they are.

    Without a command, `list` is run.
    """  # noqa: D301 - click reads the escape


@journals.command(name="list")
@derived(sides="read")
async def list_(session: Session, /) -> Answer:
    """List the journals that are attached."""
    nothing = "no journal is attached yet: `projections journals attach KIND NAME` attaches one"
    found = [
        _Listed(one.name, one.kind, one.dsn, one.dsn_variable, one.mapping, await _readers(session, one.name))
        for one in await attached_journals(session)
    ]
    return listing("journals", found, _COLUMNS, nothing=nothing)


@journals.command(name="attach")
@derived(sides="read")
async def attach_(
    database: Database,
    /,
    kind: _Kind,
    name: str,
    *,
    where: Annotated[str | None, _Dsn] = None,
    journal_variable: Annotated[str | None, _Variable] = None,
    journal_primary: JournalPrimary = None,
    table: Annotated[str | None, _Table] = None,
    mapping: Annotated[Path | None, _Mapping] = None,
    dry_run: Annotated[bool, Opt("Check, and store nothing.")] = False,
) -> Answer:
    """
    Check a journal of another system, and let it be read by NAME.

    KIND is the system that writes it, such as eventsourcing or message-db; or `table`, for any other that --mapping
    describes.

    It says how long a page of events takes, and which index would make that cheaper. What could lose events is refused:
    a privilege that is missing, a column, a setting.

    A password is not stored: leave it to ~/.pgpass or to a service (--journal service=NAME), or name
    a variable. Nor is the primary of a standby: each command names it again, or PROJECTIONS_JOURNAL_PRIMARY does.

    To attach and detach, connect as the owner of the schema.
    """
    found = AttachedJournal(name, kind, _written(table, mapping), where, journal_variable)
    found.check()
    checked, took = await _checked(found, journal_primary or os.environ.get(JOURNAL_PRIMARY_VARIABLE) or None)
    if not dry_run:
        async with database.transaction() as session:
            await attach(session, found)
    read = found.table
    lines = [
        f"journal {name!r} can be read: {printable(read.name)}, late commits by {read.bound}",
        "the first page of 1,000 events takes "
        + (f"more than {PAGE_LIMIT.seconds} s" if took is None else f"{took / _MILLISECOND:,.1f} ms"),
        *map(printable, checked.advice),
    ]
    end = "nothing is stored" if dry_run else f"it is attached: projections worker MODULE --journal {name}"
    values = {
        "name": name, "kind": kind, "table": read.name, "bound": read.bound,
        "page_ms": None if took is None else round(took / _MILLISECOND, 2),
        "advice": list(checked.advice), "attached": not dry_run,
    }  # fmt: skip
    return Answer(values, [*lines, end])


@journals.command(name="detach")
@derived(sides="read")
async def detach_(
    session: Session,
    /,
    name: str,
    *,
    force: Annotated[
        bool, Opt("Also while projections read it: their workers cannot start again by its name.")
    ] = False,
) -> Answer:
    """
    Forget the journal NAME. Nothing is changed where it is.

    It is refused while projections read it: remove them first. Their offsets stay, so that they go on when it is
    attached again by this name.
    """
    await detach(session, name)  # commits only if nobody reads it
    readers = await _readers(session, name)
    if readers and not force:
        named = ", ".join(map(repr, readers))
        raise ForeignJournalError(f"journal {name!r} is read by {named}: remove them first, or pass --force")
    return done(f"journal {name!r} is detached", name=name, detached=True)


async def _readers(session: Session, name: str) -> list[str]:
    return [one.name for one in await offsets.statuses(session) if one.journal == name]


def _written(table: str | None, mapping: Path | None) -> str:
    """What is said about the kind, as TOML."""
    lines = [] if mapping is None else [text_of(f"@{mapping}")]
    if table is not None:
        schema, _, last = table.rpartition(".")
        named = {"table": last, **({"schema": schema} if schema else {})}
        lines[:0] = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in named.items()]
    return "\n".join(lines)


async def _checked(journal: AttachedJournal, primary: str | None) -> tuple[ReadableTable, timedelta | None]:
    """What is found out about it, at its primary if it is a standby, and how long a page takes there."""
    decoder_of(journal.kind)
    settings = ConnectionSettings(max_connections=1, foreign_journal=True)
    try:
        async with connect(primary or journal.place, settings) as database:
            if primary is not None:
                async with connect(journal.place, settings) as standby, standby.session() as session:
                    await Primary(database).check(session)
            async with database.session() as session:
                checked = await check(session, journal.table)
            return checked, await page_time(database, checked)
    except DatabaseUnavailable as error:
        raise JournalUnavailable(f"journal {journal.name!r}: {error}") from error
