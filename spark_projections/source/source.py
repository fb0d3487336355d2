"""
The journal as a DataFrame: ``spark.read.format("journal")``, and as a stream.

Each partition is a range of slices; all ranges are read up to one time, or in one snapshot. Options are described in
docs/guides/dataframe.md.

Spark keeps what a reader has planned first, and uses it for every later query of the same frame: a reader that took a
query's filters over would answer other queries with them. So it takes none (docs/decisions/dataframe-filters.md): what
the database is to leave out is said when the frame is made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import DataType, StructType

from journal import ALL_SLICES, EntityTypes, InvalidValue, SliceRange
from journal.database import NO_FUNCTION_OF_OTHERS, SyncConnection, connect_sync, translated
from spark_projections.reading.batches import ALL_SEQ_NRS, COLUMNS, LOCK_LOG, SCHEMA, Reading
from spark_projections.reading.horizon import settled_now
from spark_projections.reading.logs import UNREADABLE, ReadLog
from spark_projections.reading.splits import balanced
from spark_projections.source.attached import log_of
from spark_projections.source.newest import NewestVersions
from spark_projections.source.options import JournalOptions, options_of, parse_options
from spark_projections.source.payloads import NEEDED, PayloadReader

_SPARK_TYPES = {field.name: from_arrow_type(field.type).simpleString().upper() for field in SCHEMA}
_ERROR_NAME = "payload_error"
_ERROR = f"{_ERROR_NAME} STRING"
_NO_IDLE_LIMIT = """
SELECT pg_catalog.set_config(name, '0', true) FROM pg_catalog.pg_settings
WHERE name IN ('transaction_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout')
"""


class JournalDataSource(DataSource):
    """The format ``journal``; :func:`read_journal` and :func:`journal_frame` register it on a session."""

    @classmethod
    def name(cls) -> str:
        """The format to ask for."""
        return "journal"

    def schema(self) -> str:
        """The asked columns."""
        options = parse_options(self.options)
        payload = f"STRUCT<{options.payload_schema}>" if options.payload_schema else "STRING"
        types = {**_SPARK_TYPES, "payload": payload}
        columns = [f"{name} {types[name]}" for name in options.reading.columns]
        return ", ".join([*columns, _ERROR] if options.mode == "permissive" else columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Give the reader of a DataFrame."""
        options = parse_options(self.options)
        return JournalReader(options, SparkTable(schema, options.mode, options.models))

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's name
        """Give the reader of a stream."""
        from spark_projections.source.stream import JournalStreamReader  # noqa: PLC0415 - it builds on this module

        options = parse_options(self.options)
        if not options.horizon:
            raise InvalidValue("option snapshot: a stream reads up to the settled horizon, always")
        return JournalStreamReader(options, SparkTable(schema, options.mode, options.models))


class SparkTable:
    """
    The columns that Spark wants, and how a partition is read into them; the payload may be a struct.

    With the mode ``permissive``, another column says what is wrong with payloads that do not fit. InvalidValue: a
    column does not exist, or has another type in the journal.
    """

    def __init__(
        self, schema: StructType, mode: str = "failfast", newest: NewestVersions | None = None
    ) -> None:
        self._names = tuple(schema.names)
        self._newest = newest if newest and newest.names and "payload" in self._names else None
        self._permissive = mode == "permissive"
        types = {**_SPARK_TYPES, **({_ERROR_NAME: "STRING"} if self._permissive else {})}
        self._payload: DataType | None = None
        for field in schema.fields:
            if field.name == "payload" and isinstance(field.dataType, StructType):
                self._payload = field.dataType
            elif types.get(field.name) != (found := _type_name(field.dataType)) or not field.nullable:
                raise InvalidValue(
                    f"schema: column {field.name} {found}{'' if field.nullable else ' NOT NULL'} is not one of the "
                    f"journal: {', '.join(f'{name} {kind}' for name, kind in types.items())}"
                )
        if self._permissive and (self._payload is None or _ERROR_NAME not in self._names):
            raise InvalidValue(
                "option mode: permissive is for payloads that are read by payloadschema, and counts those that do not "
                f"fit in a column of its own: have the columns payload and {_ERROR}"
            )
        self._payload_reader()

    def _payload_reader(self) -> PayloadReader | None:
        if self._payload is None:
            return None
        try:
            return PayloadReader(to_arrow_type(self._payload, timezone="UTC"))
        except ValueError as error:
            raise InvalidValue(f"payloadschema: {error}") from None

    def read(self, log: ReadLog, reading: Reading) -> Iterator[pa.RecordBatch]:
        """Read a partition; InvalidPayload: a payload does not fit, or cannot be decoded."""
        payloads = self._payload_reader()
        for batch in self._batches(log, reading, () if payloads is None else NEEDED):
            made: dict[str, pa.Array] = {}
            if payloads is not None and self._permissive:
                made["payload"], wrong = payloads.permissive(batch)
                made[_ERROR_NAME] = pc.coalesce(batch.column(UNREADABLE), wrong)
            elif payloads is not None:
                made["payload"] = payloads.struct(batch)
            arrays = [made[name] if name in made else batch.column(name) for name in self._names]
            yield pa.RecordBatch.from_arrays(arrays, names=list(self._names))

    def _batches(self, log: ReadLog, reading: Reading, needed: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """The batches of the log, with payloads as JSON of the newest version."""
        newest, names = self._newest, [name for name in self._names if name != _ERROR_NAME]
        columns = tuple(dict.fromkeys((*names, *needed, *(newest.NEEDED if newest else ()))))
        for batch in log.batches(replace(reading, columns=columns), permissive=self._permissive):
            yield newest.converted(batch) if newest else batch


def _type_name(kind: DataType) -> str:
    return kind.simpleString().upper()


class JournalPartition(InputPartition):
    """A range of slices, to be read by one task."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(str(reading.slices))
        self.reading = reading


class JournalReader(DataSourceReader):
    """Reads ranges of slices into Arrow batches; what it reads depends on the frame's options alone."""

    def __init__(self, options: JournalOptions, table: SparkTable) -> None:
        self._options = options
        self._table = table
        self._log = log_of(options)

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the slices by their counts; the time up to which all are read is decided here, once."""
        reading = self._options.reading
        if self._options.horizon:
            reading = up_to_horizon(self._log, reading, self._options.wait)
        ranges = balanced(self._log.counts(reading.entity_type), self._options.splits, reading.slices)
        return [JournalPartition(replace(reading, slices=slices)) for slices in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range, on a connection of its own."""
        # Spark makes up a partition where there is none.
        if isinstance(partition, JournalPartition):
            yield from self._table.read(self._log, partition.reading)


def up_to_horizon(log: ReadLog, reading: Reading, wait: timedelta) -> Reading:
    """
    Bound a reading by the settled horizon: whatever is read of it, and when, is the same.

    WritersInFlight: they took longer; NoHorizon: the database is a standby.
    """
    settled = settled_now(log, wait)
    return replace(reading, until=settled if reading.until is None else min(settled, reading.until))


def register(spark: SparkSession) -> None:
    """Make the format ``journal`` known to a session; again does nothing."""
    try:
        spark.dataSource.register(JournalDataSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        # Spark looks for the name in the active session, which is another one; making a frame makes this one active.
        spark.createDataFrame([], "slice INT")
        spark.dataSource.register(JournalDataSource)


def read_journal(
    spark: SparkSession,
    *,
    entity_type: str | Collection[str] | EntityTypes,
    slices: SliceRange = ALL_SLICES,
    dsn: str | None = None,
    journal: str | None = None,
    decode: str | None = None,
    models: Iterable[type[BaseModel]] | None = None,
    splits: int | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    event_types: Iterable[str] = (),
    source_ids: Iterable[str] = (),
    seq_nrs: tuple[int, int] = ALL_SEQ_NRS,
    columns: Iterable[str] = COLUMNS,
    payload_schema: str | None = None,
    mode: str = "failfast",
    snapshot: str = "horizon",
    wait: timedelta = timedelta(seconds=10),
) -> DataFrame:
    """
    The journal as a DataFrame; what the arguments leave out is not read, what filters leave out Spark reads and drops.

    Registers the data source on the session. All queries of a frame see the same events; a new frame sees new ones.

    Args:
        spark: The session whose executors read.
        entity_type: Whose events: one type, several, or ``ALL_TYPES``.
        slices: Events of sources in this range of slices.
        dsn: A PostgreSQL URL or a libpq keyword string without a password. Default: PROJECTIONS_DSN in the
            environment of the driver and of the executors.
        journal: The name of a journal of another system, which is attached to that database.
        decode: Where a decoder of its payloads is, ``module:name``. Default: that of its kind.
        models: Payload models: events of older versions are converted to theirs, ``version`` included. Default: those
            that the program declares with ``event_type``. ``()``: payloads are as they are stored.
        splits: Tasks that read, at most. Default: two for each core.
        since: Events with this ``db_timestamp`` or a later one.
        until: Events with this ``db_timestamp`` or an earlier one.
        event_types: Events of these types; none for all.
        source_ids: Events of these sources; none for all.
        seq_nrs: Events with these numbers, both ends included.
        columns: The columns, in order: what is left out is not read.
        payload_schema: Fields of the payload as Spark writes columns, ``carrier STRING, arr_delay INT``; the
            payload is then a struct of them, otherwise JSON text.
        mode: With ``failfast`` a payload that does not fit ends the query. With ``permissive`` it is NULL, and one more
            column, ``payload_error``, says what is wrong: those where it is not NULL can be counted and looked at.
        snapshot: ``horizon``: all that is settled when the first query of the frame is planned, the same for all.
            ``none``: each partition what it sees. Else the id of an exported snapshot that is held open.
        wait: How long to wait for the horizon.

    Raises:
        InvalidValue: A value cannot be used as it is.
    """
    options = options_of(
        entity_type=entity_type,
        slices=slices,
        dsn=dsn,
        journal=journal,
        decode=decode,
        models=NewestVersions.of(models),
        splits=splits or 2 * spark.sparkContext.defaultParallelism,
        since=since,
        until=until,
        event_types=event_types,
        source_ids=source_ids,
        seq_nrs=seq_nrs,
        columns=columns,
        payload_schema=payload_schema,
        mode=mode,
        snapshot=snapshot,
        wait=wait,
    )
    parse_options(options)
    return load_journal(spark, options)


def load_journal(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The journal as a DataFrame, by the options of the data source; registers it on the session."""
    register(spark)
    return spark.read.format(JournalDataSource.name()).options(**options).load()


@contextmanager
def journal_frame(
    spark: SparkSession,
    *,
    entity_type: str | Collection[str] | EntityTypes,
    dsn: str | None = None,
    journal: str | None = None,
    **more: Any,
) -> Iterator[DataFrame]:
    """
    The journal as a DataFrame in one exported snapshot, which is held open for the length of the block.

    Use it where several sources must be seen as of one moment; it waits for nobody, and works on a standby.
    While the block runs the database cannot remove dead rows. Actions after the block fail.

    Args:
        spark: The session whose executors read.
        entity_type: Whose events: one type, several, or ``ALL_TYPES``.
        dsn: As for :func:`read_journal`.
        journal: As for :func:`read_journal`.
        more: The other arguments of :func:`read_journal`, but ``snapshot``.

    Raises:
        InvalidValue: A value cannot be used as it is.
        DatabaseError: The database refused, or cannot be reached.
    """
    log = log_of(parse_options(options_of(entity_type=entity_type, dsn=dsn, journal=journal)))
    held = ExitStack()
    connection = held.enter_context(connect_sync(log.address()))
    # Not by with: what the block raises is the caller's, and no error of this connection.
    try:
        with translated(psycopg.Error):
            snapshot = _exported(connection, LOCK_LOG if log.queries is None else NO_FUNCTION_OF_OTHERS)
        yield read_journal(
            spark, entity_type=entity_type, dsn=dsn, journal=journal, snapshot=snapshot, **more
        )
    finally:
        held.close()


def _exported(connection: SyncConnection, first: str) -> str:
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    connection.execute(first.encode())
    connection.execute(_NO_IDLE_LIMIT)
    [(snapshot,)] = connection.execute("SELECT pg_catalog.pg_export_snapshot()").fetchall()
    return str(snapshot)
