"""
The journal that a rebuild reads: in the database of the read model, or in another one, of this library or not.

Nothing can be joined with one in another database, and it may lose commits alone. What was folded is named by numbers
and times, as offsets are: where the journal lives another life than at the fence, it is compared.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

import offsets
from journal import (
    ALL_SLICES,
    JOURNAL,
    Database,
    EntityTypes,
    Key,
    Log,
    OwnedSession,
    Queries,
    Session,
    SliceReader,
    as_log,
)
from journal import entity_types as types_of
from journal.database import quote
from journal.writers import WritersLook, look_at_writers
from spark_projections.errors import NotRebuildable, RebuildFailed
from spark_projections.rebuilds.bookkeeping import Rebuild, transaction
from spark_projections.rebuilds.pickling import cloudpickle
from spark_projections.rebuilds.shadow import schema_of

# Of a journal of another system, sessions walk indexes, unless all is read.
_PLAN = """
SELECT set_config(s.name, $1::text, TRUE)
FROM (VALUES ('enable_seqscan'), ('enable_bitmapscan'), ('enable_sort')) AS s (name)
"""
_FOLDED = """
DECLARE folded CURSOR FOR SELECT o.source_id, o.seq_nr, o.db_timestamp, o.slice FROM {schema}._offsets AS o
"""
_PAGE = 5000
_ALL = 2**31 - 1


async def plan_as_a_whole(session: Session) -> None:
    """Have statements of this transaction read tables as a whole, where that is cheaper."""
    await session.fetch(_PLAN, "on")


async def plan_by_indexes(session: Session) -> None:
    """Have statements of this transaction look rows up, whatever the statistics say."""
    await session.fetch(_PLAN, "off")


class JournalWentBack(RebuildFailed):
    """The journal has lost events that were folded."""


class JournalSession(NamedTuple):
    """A session on the journal, and what it is asked."""

    session: OwnedSession
    queries: Queries

    @property
    def has_gaps(self) -> bool:
        """Whether events between others may have been deleted: what another system keeps is its own business."""
        return self.queries is not JOURNAL

    async def look(self, after_import: int) -> WritersLook:
        """What is in flight, and imports after a number."""
        return await look_at_writers(self.session, after_import, poll=self.queries.poll)

    async def has_kept(self, source_id: str, last: int, events: int) -> bool:
        """Whether it still has so many events of a source up to a number; of ours, no single ones are deleted."""
        if not self.has_gaps:
            return True
        query = f"SELECT count(*) FROM ({self.queries.source}\n) AS e"
        found = await self.session.fetchval(query, source_id, 1, last, False, _ALL, _ALL)
        return bool(found == events)


class SliceCount(NamedTuple):
    """How much a slice has."""

    events: int
    sources: int


@dataclass(frozen=True, slots=True)
class RebuiltFrom:
    """
    Lends sessions on the journal of a rebuild.

    Args:
        database: That of the read models.
        elsewhere: The journal, where it is in another one.
    """

    database: Database
    elsewhere: Log | None = None

    @classmethod
    def named(cls, database: Database, journal: Database | Log | None) -> RebuiltFrom:
        """The journal that was named, of a standby its primary; None for the one in the database of the read models."""
        return cls(database, None if journal is None else as_log(journal).at_primary)

    @property
    def log(self) -> Log:
        """The journal, wherever it is."""
        return self.elsewhere or Log(self.database)

    @property
    def name(self) -> str | None:
        """What projections are stored with that read it; None in the database of the read models."""
        return None if self.elsewhere is None else self.elsewhere.name

    @asynccontextmanager
    async def reading(self, session: OwnedSession) -> AsyncIterator[JournalSession]:
        """A session on the journal: this one, where it is in this database."""
        if self.elsewhere is None:
            yield JournalSession(session, JOURNAL)
            return
        async with self.elsewhere.session() as other:
            yield JournalSession(other, self.elsewhere.queries)

    @asynccontextmanager
    async def reading_all(self, session: OwnedSession) -> AsyncIterator[JournalSession]:
        """As :meth:`reading`, in a transaction that takes the time that it needs; this one is in such a one."""
        async with self.reading(session) as found:
            if self.elsewhere is None:
                yield found
                return
            async with transaction(found.session):
                await plan_as_a_whole(found.session)
                yield found

    @asynccontextmanager
    async def reading_once(self, session: OwnedSession) -> AsyncIterator[JournalSession]:
        """As :meth:`reading`, and what one statement has seen another sees, too."""
        async with self.reading(session) as found:
            if self.elsewhere is None:
                yield found
                return
            async with transaction(found.session, snapshot_after="SELECT 1"):
                yield found

    def of_tasks(self) -> bytes | None:
        """
        What tasks read, pickled; None where it is in their database.

        Raises:
            NotRebuildable: Its decoder cannot be taken to other processes.
        """
        if self.elsewhere is None:
            return None
        from spark_projections.reading.logs import ReadLog  # noqa: PLC0415 - verifying and repairing need no Arrow

        try:
            pickled: bytes = cloudpickle().dumps(ReadLog.of(self.elsewhere))
        except Exception as error:
            raise NotRebuildable(
                f"the decoder of journal {self.elsewhere.name!r} cannot be taken to other processes: {error}. Make it "
                "of what can be pickled, such as functions of a module"
            ) from error
        return pickled

    async def counts(self, session: OwnedSession, entity_types: EntityTypes) -> Mapping[int, SliceCount]:
        """About what each slice has that has anything."""
        async with transaction(session), self.reading_all(session) as (reading, queries):
            rows = await reading.fetch(queries.counts, entity_types.sql)
        return {row["slice"]: SliceCount(row["events"], row["sources"]) for row in rows}

    async def entity_types(self, session: OwnedSession, wanted: EntityTypes) -> list[str] | None:
        """Those that are read; None for all of a journal of another system."""
        if wanted.sql is not None or not self.log.has_tokens:
            return wanted.sql
        async with self.reading(session) as (reading, queries):
            return await types_of(reading, queries=queries)

    async def events_by_slice(
        self, session: OwnedSession, rebuild: Rebuild, entity_types: Sequence[str] | None
    ) -> dict[int, int]:
        """How many events each slice has that a rebuild is of, up to the fence."""
        async with self.reading_all(session) as (reading, queries):
            rows = await reading.fetch(
                queries.counts_until, entity_types, *rebuild.slices, rebuild.fence.time
            )
        return {row["slice"]: row["events"] for row in rows}

    async def imported_since(self, session: OwnedSession, rebuild: Rebuild) -> bool:
        """Whether events were imported since the fence that the projection reads."""
        async with self.reading(session) as reading:
            seen = await reading.look(rebuild.fence.import_id)
        return any(kind in rebuild.entity_types for _, kind, _ in seen.imports)

    async def check(self, session: OwnedSession, rebuild: Rebuild) -> None:
        """
        Make sure that what was folded is in a journal elsewhere, if that lives another life than at the fence.

        Outside a transaction. Within a life nothing is lost; who is swapped in with the life of the fence compares
        offsets when that has ended.

        Raises:
            JournalWentBack: Events that were folded are not there any more.
        """
        if self.elsewhere is None:
            return
        reader = SliceReader(rebuild.entity_types, ALL_SLICES, queries=self.elsewhere.queries)
        async with self.reading(session) as reading:
            seen = (await reading.look(rebuild.fence.import_id)).generation
            if seen is not None and seen.life == rebuild.fence.life:
                return
            async with transaction(session):
                await session.execute(_FOLDED.format(schema=quote(schema_of(rebuild.rebuild_id))))
                while rows := await session.fetch(f"FETCH {_PAGE} FROM folded"):
                    page = [Key(*row.values()) for row in rows]
                    if lost := await offsets.ahead_in(reading.session, reader, page):
                        raise JournalWentBack(
                            f"journal {self.elsewhere.name!r} went back in time since the rebuild began, and has lost "
                            f"what it has handled, such as {lost[0]}; what was built is dropped, and what serves has "
                            "not changed"
                        )
