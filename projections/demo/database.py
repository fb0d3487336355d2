"""
The demo's database: one of its own on the embedded server, or the user's, if nothing else is in its journal.

What a run that was killed has left is gone on with: the journal tells how far it was, for a run appends the
timeline in its order and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

from journal import Database, Session, schema
from journal.database import connect_sync
from journal.embedded import DSN_VARIABLE, check_dsn, database_dsn
from projections.demo.errors import DemoError
from projections.demo.events import ENTITY_TYPE
from projections.demo.read_models import CREATE, PROJECTIONS, SCHEMA
from projections.demo.stores import FOREIGN_JOURNAL, FOREIGN_VARIABLE
from projections.terminal.connection import Sides

DATABASE = "projections_demo"
BESIDE = "beside"
"""For the DSN of the read models: a database of their own on the server of the journal."""
_LOCK_ATTEMPTS = 50
_LOCK_PAUSE = 0.2  # seconds; a server may need a moment to see that the process of a connection is gone

_LOCK = "SELECT pg_try_advisory_lock(hashtext('slice-projections'), hashtext('demo'))"
_OTHERS = "SELECT source_id FROM projections.sources WHERE entity_type <> $1 LIMIT 1"
_HAS_RUN = f"SELECT to_regclass('{SCHEMA}.run') IS NOT NULL"
_LAST_RUN = (
    f"SELECT fingerprint, events, complete FROM {SCHEMA}.run FOR UPDATE"  # waits for what the fence let in
)
_APPENDED = "SELECT coalesce(sum(seq_nr), 0)::bigint FROM projections.sources"
_HANDLED = f"""
SELECT (
    (SELECT coalesce(sum(times), 0) FROM {SCHEMA}.carrier_effects)
    + (SELECT coalesce(sum(times), 0) FROM {SCHEMA}.airport_effects)
)::bigint
"""
_REBUILDS = """
SELECT b.rebuild_id FROM projections.rebuilds AS b
INNER JOIN projections.projections AS p ON b.projection_id = p.projection_id WHERE p.name = ANY($1)
"""
_CANCEL = "SELECT projections._cancel_rebuild_v1($1)"  # does nothing to one that has ended
_FORGET = "DELETE FROM projections.projections WHERE name = ANY($1)"
_FORGET_ENDPOINTS = "DELETE FROM projections.webhook_endpoints WHERE tenant LIKE 'demo-%'"
_CREATE_RUN = f"""
CREATE TABLE {SCHEMA}.run (
    token text NOT NULL, fingerprint text NOT NULL, events bigint NOT NULL, complete boolean NOT NULL
)
"""


_PLACE = f"SELECT '{SCHEMA}.run'::regclass::oid::bigint"  # another after each beginning
_IS_READ_SIDE = f"SELECT to_regclass('{SCHEMA}.journal_run') IS NOT NULL"
_PLACE_HERE = f"SELECT place FROM {SCHEMA}.journal_run"


class Start(NamedTuple):
    """Where a run begins."""

    token: str
    """Lets this run's appender append, and no other's: see :func:`fence`."""

    appended: int
    """Events that an earlier run has left in the journal."""
    handled: int
    """Of them, those that had their effect."""


class DemoDatabases(NamedTuple):
    """The databases of a run."""

    events: str
    """The DSN of the database that events are appended to."""
    where: Sides
    """Where projections find them, and where the read models are."""


@contextmanager
def demo_databases(
    dsn: str | None, read_side: str | None = None, system: str | None = None
) -> Iterator[DemoDatabases]:
    """
    The databases to use.

    Args:
        dsn: The one that events are appended to; None for one that the demo makes.
        read_side: The one of the read models, if that is another; :data:`BESIDE` for one that the demo makes.
        system: What events are appended by, if not by this library: then nothing is installed in their database.
    """
    own = dsn is None and not os.environ.get(DSN_VARIABLE)
    name = DATABASE if system is None else f"{DATABASE}_{system}"
    with database_dsn(dsn) as found:
        events = own_database(found, name, with_schema=system is None) if own else found
        if read_side == BESIDE or (read_side is None and system is not None):
            read_side = own_database(found, f"{name}_read_side")
        installed = [read_side or events] if system is not None else [events, read_side or events]
        for one in dict.fromkeys(installed):
            if schema.installed_version(check_dsn(one)) is None:
                schema.install(one)
        if system is not None:
            os.environ[FOREIGN_VARIABLE] = events  # for this process and those that it starts
            yield DemoDatabases(events, Sides(read_side or events, (FOREIGN_JOURNAL,)))
        else:
            yield DemoDatabases(events, Sides(events) if read_side is None else Sides(read_side, (events,)))


def own_database(server: str, name: str, *, with_schema: bool = True) -> str:
    """
    The DSN of a database alongside the one of the server's users.

    What another version, or a start that was killed, has left there is dropped, where it is to have the schema.
    """
    parts = urlsplit(server)
    dsn = urlunsplit(parts._replace(path="/" + quote(name)))
    with connect_sync(server) as connection:
        connection.autocommit = True
        exists = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
        if exists and with_schema and schema.verify(dsn):
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
            exists = None
        if not exists:
            connection.execute(f"CREATE DATABASE {name}".encode())
    return dsn


@asynccontextmanager
async def alone(database: Database) -> AsyncIterator[None]:
    """Be the only demo on this database while the block runs, else DemoError; the lock goes with the connection."""
    async with database.session() as session:
        for _ in range(_LOCK_ATTEMPTS):
            if await session.fetchval(_LOCK):
                break
            await asyncio.sleep(_LOCK_PAUSE)
        else:
            raise DemoError("another `projections demo` is running on this database: let it end first")
        yield


async def prepare(session: Session, fingerprint: str, events: int, *, reset: bool) -> Start:
    """
    Go on from what an interrupted run has left, or begin again. Call it in a transaction.

    What other data (by its fingerprint) has left is of no use, and what has more events cannot be gone on with.
    Raises DemoError where the journal holds what is not the demo's.
    """
    await schema.check_version(session)
    last = await session.fetchrow(_LAST_RUN) if await session.fetchval(_HAS_RUN) else None
    appended = int(await session.fetchval(_APPENDED))
    other = await session.fetchval(_OTHERS, ENTITY_TYPE)
    if other or appended > (last["events"] if last else 0):
        what = f"events of {other!r}" if other else f"{appended:,} events"
        raise DemoError(
            f"the journal of this database holds {what} that the demo did not append: "
            "name an empty database, or none at all for one that the demo makes itself"
        )
    if last is None or reset or last["complete"] or last["fingerprint"] != fingerprint or appended > events:
        if last is not None:  # a schema of this name that has no run in it is not ours to drop
            await session.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
        await _begin_anew(session, fingerprint)
        appended = 0
    else:
        for number in await _rebuilds(session):
            await session.execute(_CANCEL, number)
    token = secrets.token_hex(8)
    await session.execute(f"UPDATE {SCHEMA}.run SET token = $1, events = $2", token, events)
    return Start(token, appended, await handled_events(session))


async def prepare_read_side(journal: Session, session: Session) -> int:
    """
    Have the tables of the read models elsewhere, empty if what they hold is not of the run in the journal.

    Args:
        journal: The transaction in which :func:`prepare` has been called.
        session: A transaction on the database of the read models.

    Returns:
        The number of events that have had their effect.
    """
    await schema.check_version(session)
    place = await journal.fetchval(_PLACE)
    was = await session.fetchval(_PLACE_HERE) if await session.fetchval(_IS_READ_SIDE) else None
    if was != place:
        await begin_read_models(session, again=was is not None)
        await session.execute(f"CREATE TABLE {SCHEMA}.journal_run AS SELECT $1::bigint AS place", place)
    return await handled_events(session)


async def begin_read_models(session: Session, *, again: bool) -> None:
    """Make the tables of the read models, empty; ``again`` drops those of an earlier run."""
    if again:
        await session.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
    await session.execute(_FORGET, [*PROJECTIONS])
    await session.execute(f"CREATE SCHEMA {SCHEMA}")
    await _create_tables(session)


async def handled_events(session: Session) -> int:
    """How many events have had their effect."""
    return int(await session.fetchval(_HANDLED))


async def _create_tables(session: Session) -> None:
    for statement in filter(str.strip, CREATE.split(";")):
        await session.execute(statement)


async def _rebuilds(session: Session) -> list[int]:
    return [row["rebuild_id"] for row in await session.fetch(_REBUILDS, list(PROJECTIONS))]


async def _begin_anew(session: Session, fingerprint: str) -> None:
    await session.execute("TRUNCATE projections.events, projections.sources")
    for number in await _rebuilds(session):  # what they have built, and what that has replaced
        await session.execute(_CANCEL, number)
        await session.execute(f"DROP SCHEMA IF EXISTS projections_old_{number} CASCADE")
    await session.execute(_FORGET, [*PROJECTIONS, f"webhooks/{ENTITY_TYPE}"])
    await session.execute(_FORGET_ENDPOINTS)
    await session.execute(f"CREATE SCHEMA {SCHEMA}")
    await session.execute(_CREATE_RUN)
    await session.execute(f"INSERT INTO {SCHEMA}.run VALUES ('', $1, 0, false)", fingerprint)
    await _create_tables(session)


async def fence(session: Session, token: str) -> None:
    """Let a transaction append only while no later run has begun (DemoError): that waits for it, or shuts it out."""
    if await session.fetchval(f"SELECT token FROM {SCHEMA}.run FOR SHARE") != token:
        raise DemoError("another run of the demo has taken over")


async def complete(session: Session) -> None:
    """Remember that a run has come to its end: the next one begins again."""
    await session.execute(f"UPDATE {SCHEMA}.run SET complete = true")
