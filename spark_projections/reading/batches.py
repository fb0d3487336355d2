"""
The journal as Arrow batches: ``COPY (SELECT …) TO STDOUT (FORMAT binary)``, decoded by ADBC.

ADBC takes a statement with bound parameters off its COPY path and then keeps the whole result in memory, so
values become literals here, all of them by :func:`~spark_projections.reading.literals.literal`.

A range of slices is read by going through the table partitions that the times leave, and sorted when an order is
asked for: that beats every index down to a few slices in a thousand, and it means that each further split reads those
pages again. Some sources, and what lies behind a place near the end (``after``), come by the primary key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from journal import ALL_SLICES, JOURNAL, DatabaseUnavailable, EntityTypes, SliceRange, hide_password
from journal.database import NO_FUNCTION_OF_OTHERS, OF_A_FOREIGN_JOURNAL, refuses_parameters, translate
from spark_projections.reading.literals import literal

SCHEMA = pa.schema(
    {
        "source_id": pa.string(),
        "seq_nr": pa.int64(),
        "db_timestamp": pa.timestamp("us", tz="UTC"),
        "slice": pa.int32(),
        "event_id": pa.string(),
        "entity_type": pa.string(),
        "event_type": pa.string(),
        "version": pa.int32(),
        "payload": pa.string(),
        "metadata": pa.string(),
        "tags": pa.list_(pa.string()),
    }
)
"""All columns: ``payload`` and ``metadata`` hold the JSON text as it was written."""

COLUMNS = tuple(SCHEMA.names)
ALL_SEQ_NRS = (1, (1 << 63) - 1)

_EPOCH, _INSTANT = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_CASTS = {"slice": "int4", "version": "int4", "event_id": "text", "payload": "text", "metadata": "text"}

# In the transaction that reads, whatever the role's or the database's defaults are. A bulk read takes as long as it
# takes; transaction_timeout exists from PostgreSQL 17 on.
NO_LIMITS = """
SELECT pg_catalog.set_config(name, '0', true) FROM pg_catalog.pg_settings
WHERE name IN ('statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')
"""
LOCK_LOG = "LOCK TABLE ONLY projections.events IN ACCESS SHARE MODE"
"""
To be had before a snapshot that a later statement reads in: that one plans with the partitions that are there by then.

What was moved from the default partition to a new one in between, it would find in neither.
"""
_AS_OF_ONE_MOMENT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "application_name": "slice-projections",
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


@dataclass(frozen=True, slots=True)
class Reading:
    """
    What to read. Picklable, and holds no DSN: it may travel in a plan.

    Args:
        entity_type: The types of the events.
        slices: The range of slices whose events are read.
        since: Events with this ``db_timestamp`` or a later one.
        until: Events with this ``db_timestamp`` or an earlier one.
        is_fence: Of each source, all up to its last event of this time or an earlier one: also those before it that
            another system has stamped later.
        after: With ``order="source"``: events behind this (source_id, seq_nr), to resume there.
        event_types: Events of these types; empty for all.
        source_ids: Events of these sources; empty for all.
        columns: Which columns, in which order.
        order: ``"source"`` for (source_id, seq_nr), the ids compared by their bytes; ``"none"`` for any.
        snapshot: An exported snapshot to read in.
        seq_nrs: Events with these numbers, both ends included.
        batch_bytes: About how many bytes a batch has; one event more may exceed it.

    Raises:
        ValueError: A column does not exist, a time has no time zone, or ``after`` has no order to go by.
    """

    entity_type: EntityTypes
    slices: SliceRange = ALL_SLICES
    since: datetime | None = None
    until: datetime | None = None
    is_fence: bool = False
    after: tuple[str, int] | None = None
    event_types: tuple[str, ...] = ()
    source_ids: tuple[str, ...] = ()
    columns: tuple[str, ...] = COLUMNS
    order: Literal["source", "none"] = "none"
    snapshot: str | None = None
    batch_bytes: int = 1 << 22
    seq_nrs: tuple[int, int] = ALL_SEQ_NRS

    def __post_init__(self) -> None:
        """Refuse what would read something else than was meant."""
        if unknown := [name for name in self.columns if name not in COLUMNS]:
            raise ValueError(f"unknown column {unknown[0]!r}: the journal has {', '.join(COLUMNS)}")
        if not self.columns:
            raise ValueError("no columns to read")
        if self.after is not None and self.order != "source":
            raise ValueError('after needs order="source"')
        for time in (self.since, self.until):
            if time is not None and time.utcoffset() is None:
                raise ValueError(f"the time {time} is naive: give it a time zone, such as datetime.UTC")


def schema_of(columns: Iterable[str]) -> pa.Schema:
    """Some columns of :data:`SCHEMA`."""
    return pa.schema([SCHEMA.field(name) for name in columns])


@dataclass(frozen=True, slots=True)
class Relations:
    """
    What stands after FROM to read a journal of another system.

    Args:
        events: Has the columns of the journal, with payloads as they are, ``place`` and ``source`` as they are stored.
        sources: Each source with its slice, where that is computed: so it is computed once for each source.
        by_number: Whether a place is a number.
    """

    events: str
    sources: str | None = None
    by_number: bool = False

    def in_slices(self, slices: SliceRange) -> str:
        """The condition of events in a range of slices."""
        between = f"BETWEEN {literal(slices.min_slice)} AND {literal(slices.max_slice)}"
        if self.sources is None:
            return f"e.slice {between}"
        return f"e.source IN (SELECT s.source FROM {self.sources} AS s WHERE s.slice {between})"

    def at(self, comparison: str, time: datetime) -> str:
        """The condition of events at a time, or before or after it."""
        if self.by_number:
            return f"e.place {comparison} {literal((time - _EPOCH) // _INSTANT)}"
        return f"e.db_timestamp {comparison} {literal(time)}"

    def before_fence(self, fence: datetime) -> str:
        """
        The condition of events up to the last one of their source that is at a time, or before it.

        Which sources have such an event after a later one is found out once, from what is behind the time; nearly
        always there is none.
        """
        before = self.at("<=", fence)
        if self.by_number:
            return before

        def is_followed(event: str) -> str:
            return (
                f"EXISTS (SELECT FROM {self.events} AS n WHERE n.source = {event}.source "
                f"AND n.seq_nr > {event}.seq_nr AND n.db_timestamp <= {literal(fence)})"
            )

        cut = (
            f"SELECT c.source FROM (SELECT e.source, min(e.seq_nr) AS seq_nr FROM {self.events} AS e "
            f"WHERE NOT {before} GROUP BY e.source) AS c WHERE {is_followed('c')}"
        )
        return f"({before} OR (e.source = ANY (ARRAY({cut})) AND {is_followed('e')}))"

    def of_sources(self, source_ids: tuple[str, ...]) -> str:
        """The condition of events of sources; the ids are of the type that they are stored as."""
        return f"e.source IN ({', '.join(map(literal, source_ids))})"


class _Ours(Relations):
    def before_fence(self, fence: datetime) -> str:
        return self.at("<=", fence)  # the times of a source rise

    def of_sources(self, source_ids: tuple[str, ...]) -> str:
        return f"e.source_id = ANY ({literal(source_ids)})"


_OURS = _Ours(JOURNAL.relation)


def statement(
    reading: Reading, relations: Relations | None = None, columns: Iterable[str] | None = None
) -> str:
    """
    The SELECT that reads: for a look at its plan, or another way to run it.

    Args:
        reading: The events.
        relations: What stands after FROM; None for the journal of this library.
        columns: Each as SQL, such as ``e.manifest``; None for those of the reading as the journal of this library has
            them.
    """
    names = (
        f"e.{name}::{_CASTS[name]} AS {name}" if name in _CASTS else f"e.{name}" for name in reading.columns
    )
    found = relations or _OURS
    where = " AND ".join(_conditions(reading, found)) or "TRUE"
    order = " ORDER BY e.source_id, e.seq_nr" if reading.order == "source" else ""
    return f"SELECT {', '.join(columns or names)} FROM {found.events} AS e WHERE {where}{order}"


def _conditions(reading: Reading, relations: Relations) -> Iterator[str]:
    if (types := reading.entity_type.names) is not None:
        is_one = f"= {literal(types[0])}" if len(types) == 1 else f"= ANY ({literal(types)})"
        yield f"e.entity_type {is_one}"
    if reading.slices != ALL_SLICES:
        yield relations.in_slices(reading.slices)
    if reading.since is not None:
        yield relations.at(">=", reading.since)
    if reading.until is not None:
        yield relations.before_fence(reading.until) if reading.is_fence else relations.at("<=", reading.until)
    if reading.after is not None:
        yield f"(e.source_id, e.seq_nr) > ({literal(reading.after[0])}, {literal(reading.after[1])})"
    if reading.seq_nrs != ALL_SEQ_NRS:
        yield f"e.seq_nr BETWEEN {literal(reading.seq_nrs[0])} AND {literal(reading.seq_nrs[1])}"
    if reading.event_types:
        yield f"e.event_type = ANY ({literal(reading.event_types)})"
    if reading.source_ids:
        yield relations.of_sources(reading.source_ids)


def read_batches(dsn: str, reading: Reading) -> Iterator[pa.RecordBatch]:
    """
    Read on one connection, in one snapshot; the connection is closed when the iterator is.

    Memory holds a few batches, however much there is to read.

    Yields:
        Batches with the asked columns in the asked order, typed as in :data:`SCHEMA`.

    Raises:
        DatabaseError: The database refused, or cannot be reached (DatabaseUnavailable); the password is hidden.
    """
    schema = schema_of(reading.columns)
    # A lock comes too late for a snapshot that is there already: whoever exports one has it.
    first = LOCK_LOG if reading.snapshot is None else f"SET TRANSACTION SNAPSHOT {literal(reading.snapshot)}"
    for batch in select_batches(dsn, statement(reading), first, reading.batch_bytes):
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def select_batches(
    dsn: str, sql: str, first: str | None, batch_bytes: int, *, foreign: bool = False
) -> Iterator[pa.RecordBatch]:
    """
    What a SELECT reads, as ADBC types it; see :func:`read_batches`.

    Args:
        dsn: The database.
        sql: The statement.
        first: A statement before it, in its transaction.
        batch_bytes: About how many bytes a batch has.
        foreign: Whether the database is another system's, of whose owner nothing is to run.
    """
    before = [*([] if first is None else [first]), *([NO_FUNCTION_OF_OTHERS] if foreign else [])]
    with (
        _translated(dsn),
        closing(_connect(dsn, foreign=foreign)) as connection,
        closing(connection.cursor()) as cursor,
    ):
        for preparation in (_AS_OF_ONE_MOMENT, *before, "SET LOCAL client_encoding = 'UTF8'", NO_LIMITS):
            cursor.execute(preparation)
        cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(batch_bytes)})
        cursor.execute(sql)
        yield from cursor.fetch_record_batch()


def _connect(dsn: str, *, foreign: bool) -> Any:
    try:
        said = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # The parser's message may quote the password, so it is not kept as the cause either.
        raise DatabaseUnavailable("no connection to the database: the DSN cannot be read") from None
    conninfo = make_conninfo(dsn, **{k: v for k, v in _DEFAULTS.items() if k not in said})
    if foreign:  # ADBC looks at the types of a database as soon as it is connected
        path = OF_A_FOREIGN_JOURNAL["search_path"].replace(" ", "")
        try:
            return adbc.connect(
                make_conninfo(conninfo, options=f"{said.get('options', '')} -c search_path={path}")
            )
        except adbc.Error as error:
            if not refuses_parameters(error):
                raise
    return adbc.connect(conninfo)


class _Failure(Exception):
    """What the server said, without the statement, and its code."""

    def __init__(self, error: BaseException) -> None:
        text = str(error).split("\n\nQuery was:", 1)[0]
        super().__init__(text.rpartition("ERROR:  ")[2].rpartition("[libpq] Failed to connect: ")[2].strip())
        self.sqlstate: str | None = getattr(error, "sqlstate", None)


@contextmanager
def _translated(dsn: str) -> Iterator[None]:
    """Raise what ADBC raises as errors of this library, and let no message hold the password."""
    try:
        yield
    except (adbc.Error, pa.ArrowException, OSError) as error:
        failure = translate(_Failure(error))
        password = conninfo_to_dict(dsn).get("password")
        message = hide_password(str(failure))
        failure.args = (message.replace(str(password), "***") if password else message,)
        raise failure from None
