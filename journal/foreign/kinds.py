"""The systems whose tables are known: each is a mapping."""

from __future__ import annotations

from journal.database.identifiers import literal, quote
from journal.errors import InvalidValue
from journal.foreign.mapping import Constant, Expression, TableMapping, Value
from journal.slices import NUMBER_OF_SLICES

_AGGREGATE = Constant("aggregate")
# A manifest is the class, and #version where it was migrated; few serializers have none.
_CLASS = Expression(
    "coalesce(nullif(split_part(event_ser_manifest, '#', 1), ''), 'serializer ' || event_ser_id)"
)
_VERSION = Expression("substring(event_ser_manifest FROM '#([0-9]{1,4})$')::integer")


def eventsourcing(
    table: str, *, schema: str = "public", entity_type: Value = _AGGREGATE, first_version: int = 1
) -> TableMapping:
    """
    The events of an application of the Python package ``eventsourcing``: the table of its PostgreSQL recorder.

    Ids may be uuids or text. Event types are topics, such as ``bank.domain:Account.Opened``. Numbers are drawn inside
    the INSERT, with the application's own lock of the table before it or without (POSTGRES_ENABLE_DB_FUNCTIONS).

    Args:
        table: Usually the name of the application in lower case, and ``_events``.
        schema: The schema of PostgreSQL that it is in.
        entity_type: The kind of all aggregates, or what tells them apart.
        first_version: The version of an aggregate's first event, 0 or 1 (``INITIAL_VERSION``).
    """
    return TableMapping(
        schema=schema, table=table, source="originator_id", number="originator_version",
        first_number=first_version, position="notification_id",
        bound="sequence", entity_type=entity_type, event_type="topic", payload="state",
    )  # fmt: skip


def pekko_r2dbc(table: str = "event_journal", *, schema: str = "public", partitions: int = 1) -> TableMapping:
    """
    The journal of Pekko or Akka Persistence R2DBC in PostgreSQL.

    Event types are the classes that manifests name, versions those of Jackson migrations. Times are those of the
    database: an application with ``use-app-timestamp`` must not be read, for its late events would be lost.

    Args:
        table: The name that its settings give it.
        schema: The schema of PostgreSQL that it is in.
        partitions: How many data partitions (``number-of-partitions``) are in this database: ``event_journal_0`` and so
            on; 1 for a table without a number.

    Raises:
        InvalidValue: There are not 1 to 1024 partitions.
    """
    if not 1 <= partitions <= NUMBER_OF_SLICES:
        raise InvalidValue(f"mapping: partitions must be from 1 to {NUMBER_OF_SLICES}, not {partitions}")
    tables = [table] if partitions == 1 else [f"{table}_{number}" for number in range(partitions)]
    return TableMapping(
        schema=schema, table=tables[0], other_tables=tuple(tables[1:]), source="persistence_id", number="seq_nr",
        position="db_timestamp", bound="transaction-start", slice="slice", entity_type="entity_type", event_type=_CLASS,
        version=_VERSION, payload="event_payload", serializer_id="event_ser_id", manifest="event_ser_manifest",
        metadata="meta_payload", metadata_serializer_id="meta_ser_id", metadata_manifest="meta_ser_manifest",
        tags="tags", deleted="deleted",
    )  # fmt: skip


def pekko_jdbc(
    table: str = "event_journal", *, schema: str = "public", tags: str | None = "event_tag"
) -> TableMapping:
    """
    The journal of pekko-persistence-jdbc or akka-persistence-jdbc (from 5.0) in PostgreSQL.

    Event types and versions are as for :func:`pekko_r2dbc`; the entity type is what a persistence id has before its
    first ``|``.

    Args:
        table: The name that its settings give it.
        schema: The schema of PostgreSQL that it is in.
        tags: The table of tags, with an ``event_id``; None leaves them out.
    """
    tagged = None
    if tags is not None:
        tagged = Expression(
            f"ARRAY(SELECT g.tag::text FROM {quote(schema, tags)} AS g WHERE g.event_id = t.ordering ORDER BY g.tag)"
        )
    return TableMapping(
        schema=schema, table=table, source="persistence_id", number="sequence_number", position="ordering",
        bound="sequence", entity_type=Expression("CASE WHEN position('|' IN persistence_id) > 0 THEN "
        "split_part(persistence_id, '|', 1) ELSE '' END"), event_type=_CLASS, version=_VERSION,
        payload="event_payload", serializer_id="event_ser_id", manifest="event_ser_manifest", metadata="meta_payload",
        metadata_serializer_id="meta_ser_id", metadata_manifest="meta_ser_manifest", tags=tagged, deleted="deleted",
    )  # fmt: skip


def message_db(*, schema: str = "message_store", table: str = "messages") -> TableMapping:
    """
    The messages of message-db. The entity type is the category; numbers are positions and one more.

    Args:
        schema: The schema of PostgreSQL that it is in.
        table: The name that its settings give it.
    """
    return TableMapping(
        schema=schema, table=table, source="stream_name", number="position", first_number=0,
        position="global_position", bound="sequence", entity_type=Expression("split_part(stream_name, '-', 1)"),
        event_type="type", payload="data", metadata="metadata", event_id="id",
    )  # fmt: skip


def emmett(
    *, schema: str = "public", table: str = "emt_messages", partition: str = "emt:default"
) -> TableMapping:
    """
    The messages of Emmett's PostgreSQL event store, of one partition, without those that are archived.

    The entity type is what a stream's id has before its first ``:`` or ``-``.

    Args:
        schema: The schema of PostgreSQL that it is in.
        table: The name that its settings give it.
        partition: The partition: a module or tenant.
    """
    return TableMapping(
        schema=schema, table=table, source="stream_id", number="stream_position", position="global_position",
        bound="sequence", entity_type=Expression("substring(stream_id FROM '^[^:-]*')"), event_type="message_type",
        payload="message_data", metadata="message_metadata",
        deleted=Expression(f"is_archived OR partition <> {literal(partition)}"),
    )  # fmt: skip
