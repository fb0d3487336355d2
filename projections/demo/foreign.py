"""
The demo on a journal of another system: what a run begins with, and what it has come to.

In the database of the system nothing else is installed, so what is known of a run is alongside the read models.
"""

from __future__ import annotations

from contextlib import suppress

from journal import Session, schema
from journal.foreign import ForeignJournalError, attach, detach
from projections.demo.checking import EventCounts, count
from projections.demo.database import Start, begin_read_models, handled_events
from projections.demo.errors import DemoError
from projections.demo.read_models import PROJECTIONS, SCHEMA
from projections.demo.stores import APPLICATION, FOREIGN_JOURNAL, attached

_TYPES = sorted(set().union(*(types for _, types in PROJECTIONS.values())))
_END_WRITERS = """
SELECT count(pg_terminate_backend(a.pid, 10000)) FROM pg_stat_activity AS a
WHERE a.datname = current_database() AND a.usename = current_user AND a.application_name = $1
"""
_HAS_RUN = f"SELECT to_regclass('{SCHEMA}.foreign_run') IS NOT NULL"
_CREATE_RUN = f"""
CREATE TABLE {SCHEMA}.foreign_run AS
SELECT $1::text AS place, $2::text AS fingerprint, $3::bigint AS events, FALSE AS complete
"""


async def prepare_foreign(
    journal: Session, session: Session, kind: str, fingerprint: str, events: int, *, reset: bool
) -> Start:
    """
    Go on from what an interrupted run has left, or begin again.

    Args:
        journal: A transaction on the database of the other system, whose table is there.
        session: A transaction on the database of the read models; it is to commit first.
        kind: The system.
        fingerprint: Tells the data; what other data has left is of no use.
        events: How many are to be appended; what has more cannot be gone on with.
        reset: Begin again in any case.

    Raises:
        DemoError: The table holds what the demo did not append.
    """
    await schema.check_version(session)
    await journal.fetchval(_END_WRITERS, APPLICATION)  # of a run that was killed
    table, event_type = attached(kind).table.name, attached(kind).table.event_type
    others = f"SELECT {event_type} FROM {table} WHERE {event_type} <> ALL($1) LIMIT 1"
    if other := await journal.fetchval(others, _TYPES):
        raise DemoError(
            f"the table {table} holds events {other!r} that the demo did not append: name another database"
        )
    appended = int(await journal.fetchval(f"SELECT count(*) FROM {table}"))
    run = f"SELECT * FROM {SCHEMA}.foreign_run"
    last = await session.fetchrow(run) if await session.fetchval(_HAS_RUN) else None
    goes_on = (
        last is not None
        and (last["place"], last["fingerprint"]) == (await _place(journal, kind), fingerprint)
        and not (reset or last["complete"] or appended > events)
    )
    if not goes_on:
        await journal.execute(f"TRUNCATE {table}")
        await begin_read_models(session, again=last is not None)
        await session.execute(_CREATE_RUN, await _place(journal, kind), fingerprint, events)
        with suppress(ForeignJournalError):
            await detach(session, FOREIGN_JOURNAL)
        await attach(session, attached(kind))
        return Start("", 0, 0)
    await session.execute(f"UPDATE {SCHEMA}.foreign_run SET events = $1", events)
    return Start("", appended, await handled_events(session))


async def _place(journal: Session, kind: str) -> str:
    """What holds the rows of the table: another after each beginning."""
    file = "pg_relation_filenode($1::regclass)"
    found = f"SELECT format('%s %s', oid, {file}) FROM pg_database WHERE datname = current_database()"
    return f"{kind} {await journal.fetchval(found, attached(kind).table.name)}"


async def count_foreign(journal: Session, session: Session, kind: str) -> EventCounts:
    """Compare what the system has stored, as it stands in its table, with the marks written with each effect."""
    mapping = attached(kind).table
    events = f"SELECT {mapping.source}::text, {mapping.number}::bigint FROM {mapping.name}"
    return await count(journal, session, events)


async def complete_foreign(session: Session) -> None:
    """Remember that a run has come to its end: the next one begins again."""
    await session.execute(f"UPDATE {SCHEMA}.foreign_run SET complete = true")
