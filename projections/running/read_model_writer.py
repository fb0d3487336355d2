"""Read models in SQL: their tables created and checked, and a statement for each batch of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import offsets
from journal import (
    DatabaseError,
    DatabaseWentBack,
    EventEnvelope,
    OwnedSession,
    Session,
    event_type_of,
)
from journal.database import Fault, fault_of, quote
from projections.defining import (
    BATCH,
    GIVEN,
    UPCAST_BATCH,
    Projection,
    ReadModelQuery,
    SqlReadModel,
    Table,
    TableError,
    create_table,
    quote_literal,
)
from projections.running.event_columns import for_models, given_columns, keys_of, read_columns
from projections.running.table_catalogue import Shape, read_shape
from projections.running.table_values import ValueKind, kind_of
from projections.running.table_writer import combine_column

FIX_SESSION = """
SELECT set_config('TimeZone', 'UTC', TRUE), set_config('DateStyle', 'ISO, YMD', TRUE),
    set_config('IntervalStyle', 'postgres', TRUE), set_config('jit', 'off', TRUE)
"""
"""For the transaction: what a statement computes must not depend on the settings of a session."""

_TYPES = """
SELECT t.place, pg_catalog.format_type(t.type, NULL) AS type,
    CASE WHEN p.typnamespace = 'pg_catalog'::regnamespace THEN p.typname::text END AS built_in
FROM unnest($1::oid[]) WITH ORDINALITY AS t (type, place)
INNER JOIN pg_catalog.pg_type AS p ON t.type = p.oid ORDER BY t.place
"""
_EXISTS = "SELECT pg_catalog.to_regclass($1::text) IS NOT NULL"
# Unlike to_regclass, which answers from a cache, this sees what another transaction has just committed.
_CREATED = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_class AS c INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
    WHERE c.relname = $1 AND n.nspname = ANY (coalesce($2::text[], pg_catalog.current_schemas(TRUE)::text[]))
)
"""
_LOCK = "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended($1::text, 0))"
_COMMENT = """
SELECT pg_catalog.obj_description(c.oid, 'pg_class') AS text, pg_catalog.pg_has_role(c.relowner, 'USAGE') AS owned
FROM pg_catalog.pg_class AS c WHERE c.oid = $1::oid
"""
_GONE = "PJ013"
_MARK = "Read model in SQL: "
_PAGE = """
WITH _page AS MATERIALIZED (
    SELECT * FROM projections._events_of_page_v1($1::text[], $2, $3, $4, $5, $6, $7, $8, $9)
){writes}
SELECT
    p.events, p.timestamps[p.events], p.slices[p.events], p.source_ids[p.events], p.seq_nrs[p.events],
    p.event_types, p.is_older,
    CASE WHEN p.written >= 0 AND NOT p.is_older THEN projections._save_page_v1(
        $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, p.source_ids, p.slices, p.seq_nrs, p.timestamps, $21, $22
    ) END
FROM (
    SELECT
        count(*)::integer AS events, array_agg(e.source_id) AS source_ids, array_agg(e.slice) AS slices,
        array_agg(e.seq_nr) AS seq_nrs, array_agg(e.db_timestamp) AS timestamps,
        ARRAY(SELECT DISTINCT t.event_type FROM _page AS t) AS event_types,
        EXISTS (
            SELECT FROM _page AS o
            INNER JOIN unnest($23::text[], $24::smallint[]) AS m (event_type, version)
                ON o.event_type = m.event_type AND o.version < m.version
        ) AS is_older,
        {written} AS written
    FROM _page AS e
) AS p
WHERE p.events > 0
"""
_Types: TypeAlias = Mapping[str, tuple[str, ValueKind]]
"""By column, the type in PostgreSQL, and how its values are checked."""
_NO_EVENTS: tuple[list[Any], ...] = ([],) * 8


@dataclass(frozen=True, slots=True)
class ReadModelPlan:
    """
    A read model whose table was checked.

    Args:
        read_model: The declaration, with its table and its statement.
        shape: The table, as the database has it.
        query: The statement over events.
    """

    read_model: SqlReadModel
    shape: Shape
    query: ReadModelQuery
    _upserts: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def columns(self) -> str:
        """The columns that are written, quoted for SQL."""
        return ", ".join(quote(output.name) for output in self.read_model.statement.outputs)

    def insert(self, table: str, events: str) -> str:
        """SQL that adds rows of events to a table, quoted for SQL, whatever is there."""
        return f"INSERT INTO {table} ({self.columns}) {self.query.over(events)}"

    def upsert(self, events: str) -> str:
        """SQL that brings events into the table; rows are written in the order of their keys, against deadlocks."""
        if events not in self._upserts:
            self._upserts[events] = self._upsert(events)
        return self._upserts[events]

    def _upsert(self, events: str) -> str:
        table = self.read_model.table
        key = ", ".join(map(quote, table.key))
        updates = ", ".join(
            f"{quote(name)} = {combine_column(table, self.shape.columns[name])}" for name in table.operations
        )
        return (
            f"INSERT INTO {self.shape.name} AS t ({self.columns}) "
            f"SELECT {self.columns} FROM ({self.query.over(events)}) AS q ORDER BY {key} "
            f"ON CONFLICT ({key}) DO {f'UPDATE SET {updates}' if updates else 'NOTHING'}"
        )


class WrittenPage(NamedTuple):
    """A page that was handled by statements alone."""

    events: int
    at: datetime
    """With the next three, the place of the last event."""
    slice: int
    source_id: str
    seq_nr: int
    event_types: Sequence[str]
    is_older: bool
    """Whether it has events of older versions: then nothing of it is stored."""
    waited: bool | None


class ReadModelWriter:
    """
    Runs the statements of read models; a table is created or checked before the first batch, once in a process.

    Args:
        schema: Where the tables are that are filled, if not where they are declared; there they must exist.
    """

    def __init__(self, schema: str | None = None) -> None:
        self._schema = schema
        self._plans: dict[SqlReadModel, ReadModelPlan] = {}
        self._by_model: set[SqlReadModel] = set()
        """Models read their events, since the database has refused one."""

    def forget(self) -> None:
        """Check all tables again: the database is not the one that they were read from."""
        self._plans.clear()

    async def prepare(self, session: Session, projection: Projection) -> list[ReadModelPlan]:
        """
        Create or check the tables of a projection, in the session's transaction.

        A table is created only while the projection has handled nothing: later it would lack what was handled.

        Raises:
            TableError: A table does not fit, or cannot be created; the message has the statement.
        """
        await session.fetchrow(FIX_SESSION)
        return await self.plans(session, projection)

    async def begin(self, session: OwnedSession, projection: Projection) -> None:
        """As :meth:`prepare`, before the first event comes, which an append may handle that creates no tables."""
        if any(one not in self._plans for one in projection.read_models):
            async with session.transaction():
                await self.prepare(session, projection)

    async def plans(
        self, session: Session, projection: Projection, *, creates: bool = True
    ) -> list[ReadModelPlan]:
        """As :meth:`prepare`, and settings stay as they are; with ``creates`` it creates tables that are not there."""
        return [
            self._plans.get(one) or await self._plan(session, projection, one, creates=creates)
            for one in projection.read_models
        ]

    async def _plan(
        self, session: Session, projection: Projection, read_model: SqlReadModel, *, creates: bool
    ) -> ReadModelPlan:
        types = await _types(session, read_model)
        table, created = read_model.table, False
        if self._schema is not None:
            table = table.within(self._schema)
        elif creates:
            created = await _create(session, projection.name, read_model, types)
        plan = await _checked(session, read_model, table, types)
        if self._schema is None:
            await _check_text(session, read_model, plan.shape)
        if not created:  # what this transaction has created may yet be rolled back
            self._plans[read_model] = plan
        return plan

    async def write(
        self, session: Session, plans: Sequence[ReadModelPlan], envelopes: Sequence[EventEnvelope]
    ) -> None:
        """
        Bring events into tables, in the transaction of :meth:`prepare`.

        Raises:
            journal.DatabaseError: The database refused, an event's data among the reasons.
            journal.DatabaseWentBack: An event that was read is not in the journal any more.
            journal.InvalidPayload: A payload does not fit its model, or cannot be lifted to its version.
        """
        for plan in plans:
            types = {event_type_of(model).name for model in plan.read_model.models.values()}
            found = [envelope for envelope in envelopes if envelope.event_type in types]
            if not found:
                continue
            read = await read_columns(session, plan.read_model, found, every=self._reads_every(plan))
            events = BATCH if read is None else UPCAST_BATCH
            await self._bring(session, plan, events, *keys_of(found), *read or ())

    async def write_given(
        self, session: Session, plans: Sequence[ReadModelPlan], envelopes: Sequence[EventEnvelope]
    ) -> None:
        """As :meth:`write`, of events that are not in a journal of this database: their payloads are sent."""
        for plan in plans:
            if columns := given_columns(plan.read_model, envelopes, every=self._reads_every(plan)):
                await self._bring(session, plan, GIVEN, *columns)

    async def _bring(self, session: Session, plan: ReadModelPlan, events: str, *args: Any) -> None:
        try:
            await session.execute(self.sql(plan, events), *args)
        except DatabaseError as error:
            self._plans.pop(plan.read_model, None)  # somebody may have altered the table
            if error.sqlstate == _GONE:
                raise DatabaseWentBack(str(error)) from error
            if fault_of(error) is Fault.EVENT and not self._reads_every(plan):
                self._by_model.add(plan.read_model)
                raise for_models(error) from error
            error.add_note(f"while writing table {plan.read_model.table}")
            raise

    async def write_page(
        self, session: Session, plans: Sequence[ReadModelPlan], page: Sequence[Any], fence: Sequence[Any]
    ) -> WrittenPage | None:
        """
        Bring a whole page into tables, and store that it is handled, in the transaction of :meth:`prepare`.

        Args:
            session: The transaction of the batch.
            plans: Those of the projection.
            page: The arguments of ``_events_of_page_v1``.
            fence: :meth:`offsets.OffsetStore.fence`, and the last two arguments of ``_save_page_v1``.

        Returns:
            What was written; None where the page is empty.

        Raises:
            journal.DatabaseError: The database refused, an event's data among the reasons.
            ProjectionsError: As :meth:`offsets.OffsetStore.save_in_tx`.
        """
        models = [model for plan in plans for model in plan.read_model.models.values()]
        current = {kind.name: kind.version for kind in map(event_type_of, models) if kind.version > 1}
        try:
            with offsets.own_errors():
                row = await session.fetchrow(
                    _page_sql(plans), *page, *fence, list(current), list(current.values())
                )
        except DatabaseError as error:
            for plan in plans:
                self._plans.pop(plan.read_model, None)
            if fault_of(error) is Fault.EVENT:
                self._by_model.update(plan.read_model for plan in plans)
            raise
        self._by_model.difference_update(plan.read_model for plan in plans)
        return None if row is None else WrittenPage(*row.values())

    def sql(self, plan: ReadModelPlan, events: str) -> str:
        """The statement that brings events into a table."""
        return plan.upsert(events)

    def _reads_every(self, plan: ReadModelPlan) -> bool:
        return plan.read_model.by_model or plan.read_model in self._by_model


def _page_sql(plans: Sequence[ReadModelPlan]) -> str:
    """All statements over one page, and what it was; the rows are locked before the offsets, as everywhere."""
    writes = "".join(
        f", _written_{n} AS ({plan.upsert('SELECT * FROM _page')} RETURNING 1)"
        for n, plan in enumerate(plans)
    )
    written = " + ".join(f"(SELECT count(*) FROM _written_{n})" for n in range(len(plans)))
    return _PAGE.replace("{written}", written).replace("{writes}", writes)  # whose texts may be anything


async def _checked(session: Session, read_model: SqlReadModel, table: Table, types: _Types) -> ReadModelPlan:
    """Check that a table can hold what a statement computes."""
    try:
        shape = await read_shape(session, table)
        _check_types(read_model, shape, types)
    except TableError as error:
        raise TableError(f"{error}. Its read model needs: {_create_sql(read_model, types)}") from error
    texts = frozenset(name for name, (_, kind) in types.items() if kind is ValueKind.TEXT)
    return ReadModelPlan(read_model, shape, ReadModelQuery(read_model.statement, read_model.models, texts))


def _create_sql(read_model: SqlReadModel, types: _Types) -> str:
    name = quote(*read_model.table.qualified_name)
    return create_table(name, read_model.statement, {column: said for column, (said, _) in types.items()})


async def _types(session: Session, read_model: SqlReadModel) -> _Types:
    """The types of the statement's columns, as PostgreSQL finds them."""
    query = ReadModelQuery(read_model.statement, read_model.models).over(GIVEN)
    names = [output.name for output in read_model.statement.outputs]
    columns = ", ".join(f"pg_catalog.pg_typeof(q.{quote(name)})::oid" for name in names)
    row = await session.fetchrow(
        f"SELECT ARRAY[{columns}] AS types FROM (VALUES (1)) AS one LEFT JOIN ({query}) AS q ON TRUE",
        *_NO_EVENTS,
    )
    assert row is not None  # noqa: S101 - of the one row
    found = await session.fetch(_TYPES, row["types"])
    return {
        name: (one["type"], kind_of(one["built_in"], is_enum=False))
        for name, one in zip(names, found, strict=True)
    }


async def _create(session: Session, name: str, read_model: SqlReadModel, types: _Types) -> bool:
    """Create the table, unless it is there; whether this has."""
    table = quote(*read_model.table.qualified_name)
    if await session.fetchval(_EXISTS, table):
        return False
    await session.fetchrow(_LOCK, table)
    *schema, relation = read_model.table.qualified_name
    if await session.fetchval(_CREATED, relation, schema or None):
        return False
    create = _create_sql(read_model, types)
    if any(one.handled for one in (await offsets.status(session, name)).ranges):
        raise TableError(
            f"table {read_model.table} is not in the database, and projection {name!r} has handled events, which a new "
            f"one would lack: restore it; or create it, raise the version of the projection, and run `projections "
            f"rebuild`: {create}"
        )
    try:
        async with session.savepoint():
            await session.execute(create)
            await session.execute(mark_table(read_model))
    except DatabaseError as error:
        raise TableError(
            f"table {read_model.table} is not in the database and could not be created ({error}): create it: {create}"
        ) from error
    return True


def mark_table(read_model: SqlReadModel, table: str | None = None) -> str:
    """SQL that notes at a table which statement fills it; by default where it is declared, else a name in quotes."""
    name = table or quote(*read_model.table.qualified_name)
    return f"COMMENT ON TABLE {name} IS {quote_literal(_MARK + read_model.text)}"


def _check_types(read_model: SqlReadModel, shape: Shape, types: Mapping[str, tuple[str, ValueKind]]) -> None:
    """An INSERT would round and cut what does not fit."""
    for name, (said, kind) in types.items():
        column = shape.columns[name]
        if column.kind is not kind or (kind is ValueKind.OTHER and column.shown != said):
            raise TableError(
                f"table {read_model.table}: column {name!r} is {column.shown}, and its read model computes {said}"
            )


async def _check_text(session: Session, read_model: SqlReadModel, shape: Shape) -> None:
    """A table that an earlier text of the read model filled is to be built again."""
    row = await session.fetchrow(_COMMENT, shape.oid)
    assert row is not None  # noqa: S101 - the table was found
    stored = row["text"] or ""
    if stored.startswith(_MARK) and stored != _MARK + read_model.text:
        raise TableError(
            f"table {read_model.table} was filled by another statement: {stored.removeprefix(_MARK)}. To have the new "
            "one fill it, raise the version of the projection and run `projections rebuild`; if both mean the same: "
            f"{mark_table(read_model, shape.name)}"
        )
