"""A table of another system as a log: what projections read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from journal.backtracking import SequenceBacktracking, WriterLockBacktracking
from journal.database import Database, Row
from journal.envelopes import EventEnvelope
from journal.events import Origin
from journal.foreign.checking import check
from journal.foreign.event_ids import event_ids
from journal.foreign.mapping import TableMapping
from journal.foreign.payloads import Decoder, Stored, json_text, readable
from journal.log import LateCommitBound, Log, Queries
from journal.standby import Primary

log = logging.getLogger("projections")

_BOUNDS: dict[str, LateCommitBound] = {
    "sequence": SequenceBacktracking,
    "transaction-start": WriterLockBacktracking,
}
_new = tuple.__new__  # without the call of a Python function


async def table_log(
    database: Database,
    mapping: TableMapping,
    *,
    name: str,
    decode: Decoder = json_text,
    primary: Primary | None = None,
) -> Log:
    """
    A log of a table that another system appends to. It is only read, and nothing is installed.

    Args:
        database: Where the table is: the primary, or a standby alongside ``primary``. The role needs SELECT on the
            table; with the bound ``sequence`` on its sequence, too; with ``transaction-start`` the role
            pg_read_all_stats.
        mapping: The meaning of its columns.
        name: The name that offsets are stored with, so it stays.
        decode: Makes JSON of payloads and metadata.
        primary: Where ``database`` is a standby, its primary.

    Raises:
        ForeignJournalError: It cannot be read so; the message says why, and what to do.
        DatabaseUnavailable: There is no connection.
    """
    async with (database if primary is None else primary.database).session() as session:
        checked = await check(session, mapping)
    for advice in checked.advice:
        log.warning("journal %r: %s", name, advice, extra={"action": "foreign_journal", "journal": name})
    stores_slices = mapping.slice is not None
    queries = Queries(**checked.queries, stores_slices=stores_slices, decode=Envelopes(name, decode))
    read = Log(database, name, queries, _BOUNDS[mapping.bound], primary, checked.passed_over)
    await read.check(alone=True)
    return read


@dataclass(frozen=True, slots=True)
class Envelopes:
    """
    Makes envelopes of the rows of a log. An event without an id gets one that is always the same.

    Picklable where its decoder is.

    Args:
        name: The name of the log.
        decoder: Makes JSON of payloads and metadata.
    """

    name: str
    decoder: Decoder = field(repr=False)

    def __call__(self, rows: Sequence[Row], origin: Origin) -> Iterable[EventEnvelope]:
        """As :data:`journal.log.Decode` says."""
        decode, id_of = self.decoder, event_ids(self.name)
        for row in rows:
            (
                source_id, seq_nr, at, slice_number, event_id, entity_type, event_type, version, payload, metadata,
                tags, serializer_id, manifest, metadata_serializer_id, metadata_manifest, *_,
            ) = row.values()  # fmt: skip
            if event_type is None:
                event_type = ""
            if payload is None:
                payload = "null"
            else:
                stored = _new(Stored, (source_id, seq_nr, event_type, serializer_id, manifest, payload))
                payload = readable(decode, stored, "the payload")
            if metadata is not None:
                stored = Stored(
                    source_id, seq_nr, event_type, metadata_serializer_id, metadata_manifest, metadata
                )
                metadata = readable(decode, stored, "the metadata")
            yield _new(EventEnvelope, (
                source_id, seq_nr, at, slice_number, event_id or id_of(source_id, seq_nr), entity_type or "",
                event_type, version, payload, metadata, tags, origin,
            ))  # fmt: skip
