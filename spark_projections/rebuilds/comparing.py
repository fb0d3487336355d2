"""
Comparing rows of a read model with what the handlers make of the events that its workers have handled.

The events are handled again as live workers do it, into temporary tables of the transaction, and the database compares.
What is compared must belong together: the offsets, the events up to them, and the rows. So it is done in one snapshot,
or while nobody can write to the tables.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import offsets
from journal import EventEnvelope, OwnedSession, Session, read_source
from journal.database import Fault, fault_of, quote
from projections.defining.folding import Batch
from projections.defining.handlers import Kind, Projection
from projections.defining.tables import Table, TableError
from projections.errors import HandlerFailed, describe
from projections.running.dispatch import Dispatcher
from projections.running.loop_monitor import LoopMonitor
from projections.running.table_catalogue import Shape, read_shape
from projections.running.table_values import ValueKind
from projections.running.table_writer import TableWriter
from spark_projections.errors import NotRebuildable, RebuildFailed
from spark_projections.rebuilds.definition import rebuildable

__all__ = [
    "Difference",
    "Differences",
    "Handled",
    "Refolding",
    "Rows",
    "comparable",
    "handled_until",
    "refolding",
]

_HANDLED = """
SELECT s.source_id, p.evicted_before, j.seq_nr AS last, coalesce(
    (SELECT o.seq_nr FROM projections.source_offsets AS o WHERE o.projection_id = $1 AND o.source_id = s.source_id),
    (SELECT k.seq_nr - 1 FROM projections.parked_sources AS k WHERE k.projection_id = $1 AND k.source_id = s.source_id),
    -- As the workers decide: what is older than the offsets that are kept has been handled.
    CASE WHEN j.db_timestamp < p.evicted_before THEN j.seq_nr END
) AS seq_nr
FROM unnest($2::text[]) AS s (source_id)
INNER JOIN projections.projections AS p ON p.projection_id = $1
LEFT JOIN projections.sources AS j
    ON j.source_id = s.source_id AND coalesce(j.entity_type = ANY (p.entity_types), TRUE)
"""
_VERSION = "SELECT version FROM projections.projections WHERE projection_id = $1"
_BATCH = 5_000
_TIMEOUT = timedelta(minutes=10)  # of a handler


class Handled(NamedTuple):
    """How far workers have handled a source."""

    source_id: str
    evicted_before: datetime
    """Up to this time, where there is no number."""
    last: int | None
    """The number of its last event; None where the journal does not have the source."""
    seq_nr: int | None


class Difference(NamedTuple):
    """A row that is not what the journal says."""

    table: str
    key: dict[str, str]
    kind: str
    """``missing``, ``surplus`` or ``different``."""
    columns: dict[str, tuple[str | None, str | None]]
    """Of those that differ, what the read model has and what the journal says, as texts."""


class Differences(NamedTuple):
    """Rows of a table that are not what the journal says."""

    rows: list[Difference]
    """The first ones, by their keys."""
    total: int


async def comparable(
    session: Session, definition: Any, *, shared: bool
) -> tuple[Projection, list[Table], int]:
    """
    What a projection declares, the tables that it writes, and its number in the database.

    Args:
        session: A session on the database, in a transaction or not.
        definition: A class (or object of a class) decorated with :func:`projections.projection`.
        shared: Whether rows that several sources share can be compared, too.

    Raises:
        NotRebuildable: Its rows cannot be made again here, or another version of its code runs.
        UnknownProjection: No worker has run it on this database yet.
    """
    projection, written = rebuildable(definition)
    name, tables = projection.name, [one.table for one in written if one.table is not None]
    if projection.kind is not Kind.TABLE or len(tables) < len(written):
        raise NotRebuildable(
            f"the handlers of projection {name!r} write by themselves, so which rows are a source's is not known: "
            f"to build the whole read model again, run `projections rebuild {name}`"
        )
    if not shared and (sharing := [str(table) for table in tables if not table.per_source]):
        raise NotRebuildable(
            f"the rows of table {', '.join(sharing)} are made of the events of several sources, so those of one source "
            f"cannot be told apart: to compare all, run `projections verify {name} --all`; to build the whole read "
            f"model again, run `projections rebuild {name}`"
        )
    found = await offsets.status(session, name)
    version = await session.fetchval(_VERSION, found.projection_id)
    if version != projection.version:
        raise NotRebuildable(
            f"projection {name!r} runs version {version}, and this is the code of version {projection.version}: use "
            "the code that the workers run, or rebuild the whole read model to change the version"
        )
    return projection, tables, found.projection_id


async def handled_until(session: Session, number: int, source_ids: Sequence[str]) -> list[Handled]:
    """How far the workers of a projection have handled sources, as the transaction sees it."""
    return [Handled(*row.values()) for row in await session.fetch(_HANDLED, number, list(source_ids))]


class Rows:
    """
    What rows of a read model should be, in temporary tables; it takes the changes that handlers return.

    Args:
        tables: Of the projection.
        whole: Whether all rows are compared, or only those of sources.
    """

    def __init__(self, tables: Sequence[Table], *, whole: bool = False) -> None:
        self._writer = TableWriter()
        self._tables = tables
        self._whole = whole
        self._shapes: dict[Table, Shape] = {}
        self._expected = {table: table.within("pg_temp") for table in tables}
        # The keys that sources have touched, also of rows that they have deleted, where no column tells the source.
        self._touched = {
            table: Table(("pg_temp", f"_touched_{place}"), key=table.key, per_source=True)
            for place, table in enumerate(tables)
            if table.source is None and not whole
        }

    @property
    def names(self) -> list[str]:
        """The tables, quoted for SQL, in the order in which batches write to them."""
        return sorted(shape.name for shape in self._shapes.values())

    async def create(self, session: Session) -> None:
        """
        Make the temporary tables, in an open transaction.

        Raises:
            TableError: A table does not fit its declaration.
            journal.DatabaseError: The role may not read one, or may not make temporary tables.
        """
        for table in self._tables:  # before one of the same name hides it
            self._shapes[table] = await read_shape(session, table)
        for table, shape in self._shapes.items():
            name = quote(table.qualified_name[-1])
            await session.execute(
                f"CREATE TEMPORARY TABLE {name} (LIKE {shape.name} INCLUDING ALL) ON COMMIT DROP"
            )
        for table, touched in self._touched.items():
            name, key = quote(touched.qualified_name[-1]), _listed(table.key)
            await session.execute(
                f"CREATE TEMPORARY TABLE {name} ON COMMIT DROP AS "
                f"SELECT {key} FROM {self._shapes[table].name} WITH NO DATA"
            )
            await session.execute(f"CREATE UNIQUE INDEX ON {name} ({key})")

    async def prepare(self, session: Session, *tables: Table) -> None:
        """Check tables before the first change comes; raises TableError."""
        for table in tables:
            if table not in self._expected:
                raise TableError(
                    f"a handler changes table {table}, which is not known to be one of the projection's: "
                    "declare all of them, @projection(..., tables=(...))"
                )
        await self._writer.prepare(session, *(self._expected[table] for table in tables))

    async def write(self, session: Session, batch: Batch) -> None:
        """Write a batch in the session's transaction; raises TableError and journal.DatabaseError."""
        await self._writer.write(session, batch.within(self._expected))
        touched = Batch()
        for table, rows in batch.within(self._touched).tables.items():
            for key, row in rows.items():
                touched.add(row.source_id, table.upsert(**dict(zip(table.key, key, strict=True))))
        await self._writer.write(session, touched)

    async def differences(self, session: Session, source_ids: Sequence[str], limit: int) -> Differences:
        """
        Compare the rows of sources, or all, with what they should be.

        Args:
            session: The transaction.
            source_ids: Of all sources that were handled again; not used where all rows are compared.
            limit: How many of the rows that differ are returned.
        """
        found, total = list[Difference](), 0
        for table in self._tables:
            args = () if self._whole or table.source is None else (list(source_ids),)
            rows = await session.fetch(self._compare(table, limit - len(found)), *args)
            found += [_difference(table, row) for row in rows[: limit - len(found)]]
            total += rows[0]["total"] if rows else 0
        return Differences(found, total)

    def _compare(self, table: Table, limit: int) -> str:
        first = quote(table.key[0])
        scope = self._shapes[table].name if self._whole else f"({self._scope(table)})"
        keys = [f"coalesce(t.{quote(c)}, x.{quote(c)})::text" for c in table.key]
        columns = [f"{side}.{quote(c)}::text" for c in table.operations for side in "tx"]
        marks = [f"t.{first} IS NULL AS missing", f"x.{first} IS NULL AS surplus"]
        # With names of its own: those of columns may be any.
        named = ", ".join(f"{one} AS c{place}" for place, one in enumerate(keys + columns))
        order = ", ".join(f"coalesce(t.{quote(c)}, x.{quote(c)})" for c in table.key)
        return (
            f"SELECT count(*) OVER () AS total, {', '.join(marks)}, {named} "
            f"FROM {scope} AS t FULL JOIN {self._name(table)} AS x ON {_same(table)} "
            f"WHERE t.{first} IS NULL OR x.{first} IS NULL OR {self._differs(table)} "
            f"ORDER BY {order} LIMIT {max(limit, 1)}"
        )

    def _scope(self, table: Table) -> str:
        """The rows of the sources."""
        name = self._shapes[table].name
        if table.source is not None:
            return f"SELECT t.* FROM {name} AS t WHERE t.{quote(table.source)}::text = ANY($1)"
        touched = quote(*self._touched[table].qualified_name)
        return f"SELECT t.* FROM {touched} AS x INNER JOIN {name} AS t ON {_same(table)}"

    def _name(self, table: Table) -> str:
        return quote(*self._expected[table].qualified_name)

    def _differs(self, table: Table) -> str:
        """By the texts, for not every type has an equality; of numbers, digits that say nothing are no difference."""
        columns = self._shapes[table].columns
        casts = {c: "" if columns[c].kind is ValueKind.NUMERIC else "::text" for c in table.operations}
        return " OR ".join(
            [f"t.{quote(c)}{cast} IS DISTINCT FROM x.{quote(c)}{cast}" for c, cast in casts.items()]
            or ["FALSE"]
        )

    async def replace(self, session: Session, source_ids: Sequence[str]) -> None:
        """
        Make the rows of sources what they should be; those that are so are not touched, nor are columns not declared.

        Raises:
            journal.DatabaseError: The database refused.
        """
        for table in self._tables:
            name, expected, same = self._shapes[table].name, self._name(table), _same(table)
            args = () if table.source is None else (list(source_ids),)
            key = _listed(table.key)
            await session.execute(
                f"DELETE FROM {name} AS t WHERE ({key}) IN (SELECT {key} FROM ({self._scope(table)}) AS s) "
                f"AND NOT EXISTS (SELECT FROM {expected} AS x WHERE {same})",
                *args,
            )
            if table.operations:
                columns = ", ".join(f"{quote(c)} = x.{quote(c)}" for c in table.operations)
                await session.execute(
                    f"UPDATE {name} AS t SET {columns} FROM {expected} AS x WHERE {same} AND ({self._differs(table)})"
                )
            names = _listed((*table.key, *table.operations))
            await session.execute(
                f"INSERT INTO {name} ({names}) SELECT {names} FROM {expected} AS x "
                f"WHERE NOT EXISTS (SELECT FROM {name} AS t WHERE {same})"
            )


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(map(quote, columns))


def _same(table: Table) -> str:
    return " AND ".join(f"t.{quote(c)} = x.{quote(c)}" for c in table.key)


def _difference(table: Table, row: Mapping[str, Any]) -> Difference:
    _, missing, surplus, *values = row.values()
    texts = values[len(table.key) :]
    pairs = zip(table.operations, texts[::2], texts[1::2], strict=True)
    return Difference(
        str(table),
        dict(zip(table.key, values, strict=False)),
        "missing" if missing else "surplus" if surplus else "different",
        {name: (here, there) for name, here, there in pairs if here != there},
    )


class Refolding:
    """
    Handles events of sources again, as workers have; what they write goes to temporary tables.

    Args:
        session: A session in a transaction, which has the tables.
        dispatcher: Calls the handlers.
        skip: Go on after events that the handlers cannot handle; they are counted.
        from_first_kept: Sources may begin after 1, because their first events have been deleted.
    """

    def __init__(
        self, session: OwnedSession, dispatcher: Dispatcher, *, skip: bool, from_first_kept: bool
    ) -> None:
        self._session = session
        self._dispatcher = dispatcher
        self._skip = skip
        self._from_first_kept = from_first_kept
        self._waiting: list[EventEnvelope] = []
        self._folded: dict[str, int] = {}
        self.events = 0
        self.skipped = 0

    async def fold(self, handled: Sequence[Handled]) -> None:
        """
        Fold what workers have handled of sources, and what was not folded before.

        Raises:
            RebuildFailed: The journal does not have all of it any more, or an offset was set back since the last call.
            HandlerFailed: An event cannot be handled.
        """
        for source in handled:
            await self._fold_source(source)
        await self._handle_all()

    async def _fold_source(self, source: Handled) -> None:
        known = self._folded.get(source.source_id, 0)
        if source.seq_nr is not None and source.seq_nr < known:
            raise RebuildFailed(
                f"the offset of source {source.source_id!r} was set back meanwhile: run it again"
            )
        async for envelope in read_source(
            self._session, source.source_id, first=known + 1, last=source.seq_nr
        ):
            if source.seq_nr is None and envelope.db_timestamp >= source.evicted_before:
                break
            if envelope.seq_nr != known + 1 and (known or not self._from_first_kept):
                raise self._gone(describe(envelope) + f" follows seq_nr {known}", kept=known == 0)
            known = envelope.seq_nr
            self._waiting.append(envelope)
            if len(self._waiting) >= _BATCH:
                await self._handle_all()
        if source.seq_nr is not None and known < source.seq_nr:
            raise self._gone(
                f"source {source.source_id!r} ends at seq_nr {known}, and {source.seq_nr} are handled"
            )
        self._folded[source.source_id] = known

    @staticmethod
    def _gone(what: str, *, kept: bool = False) -> RebuildFailed:
        hint = ", or go by those that are left: --from-first-kept" if kept else ""
        return RebuildFailed(f"{what}: events are no longer in the journal; restore them{hint}")

    async def _handle_all(self) -> None:
        page, self._waiting = self._waiting, []
        self.events += len(page)
        if page:
            await self._handle(page)

    async def _handle(self, page: Sequence[EventEnvelope]) -> None:
        """Handle events, by halves where one fails that may be skipped."""
        try:
            async with self._session.savepoint():
                await self._dispatcher.handle(self._session, page)
        except Exception as error:
            if not self._skip or not (isinstance(error, HandlerFailed) or fault_of(error) is Fault.EVENT):
                raise
            if len(page) == 1:
                self.skipped += 1
                return
            middle = len(page) // 2
            await self._handle(page[:middle])
            await self._handle(page[middle:])


@asynccontextmanager
async def refolding(
    session: OwnedSession, projection: Projection, rows: Rows, *, skip: bool, from_first_kept: bool
) -> AsyncIterator[Refolding]:
    """Handle events again, with an object of the projection that is started and stopped as a range does it."""
    target = projection.make()
    monitor = LoopMonitor(timedelta(seconds=1), _TIMEOUT)
    dispatcher = Dispatcher(projection, target, rows, monitor, _TIMEOUT, reacts=False)
    if (start := getattr(target, "start", None)) is not None:
        await start()
    try:
        yield Refolding(session, dispatcher, skip=skip, from_first_kept=from_first_kept)
    finally:
        if (stop := getattr(target, "stop", None)) is not None:
            await stop()
