"""Where sources stand while rows of files go by: which rows are new, and which number each gets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from journal import Database, Row
from journal.database import PLAN_ANEW
from spark_projections.backfill.formats import BadRow, HistoricRow

_STANDS = """
SELECT s.source_id, s.entity_type, s.seq_nr, s.db_timestamp FROM projections.sources AS s
WHERE s.source_id = ANY ($1::text[])
"""
_STORED = """
SELECT e.source_id, e.seq_nr, e.db_timestamp, e.event_id, e.event_type, e.version, e.payload::text AS payload,
    e.metadata::text AS metadata, e.tags
FROM unnest($1::text[], $2::timestamptz[]) AS k (source_id, db_timestamp)
INNER JOIN projections.events AS e ON k.source_id = e.source_id AND k.db_timestamp = e.db_timestamp
WHERE e.db_timestamp BETWEEN $3 AND $4
"""
_NOW = "SELECT clock_timestamp()"


class Numbering:
    """Where each source stands while its rows go by, in their order: which are new, and which number they get."""

    def __init__(self, entity_type: str) -> None:
        self._entity_type = entity_type
        self._stands: dict[str, tuple[int, datetime | None]] = {}
        self._stored: dict[tuple[str, datetime], Row] = {}
        self._last: HistoricRow | None = None
        self._now: datetime | None = None
        self.numbers: dict[tuple[str, datetime], int] = {}
        self.sources = 0

    async def look(self, database: Database, page: Sequence[HistoricRow]) -> None:
        """Ask the journal about the rows of a page."""
        ids = list({row.source_id for row in page})
        # A source that goes on from the page before stands where that one left it, also where nothing is imported.
        kept = None if self._last is None else self._stands.get(self._last.source_id)
        async with database.session() as session, session.transaction():
            await session.execute(PLAN_ANEW)
            self._now = await session.fetchval(_NOW)
            found = await session.fetch(_STANDS, ids)
            for row in found:
                if row["entity_type"] != self._entity_type:
                    raise BadRow(
                        f"source {row['source_id']!r} is of entity type {row['entity_type']!r} in the journal, "
                        f"not {self._entity_type!r}: see --entity-type"
                    )
            self._stands = {row["source_id"]: (row["seq_nr"], row["db_timestamp"]) for row in found}
            if kept is not None and self._last is not None and self._last.source_id in ids:
                self._stands[self._last.source_id] = max(kept, self._stands.get(self._last.source_id, kept))
            old = [(row.source_id, row.db_timestamp) for row in page if self._is_old(row)]
            self._stored = {}
            if old:
                sources, times = (list(each) for each in zip(*old, strict=True))
                stored = await session.fetch(_STORED, sources, times, min(times), max(times))
                self._stored = {(row["source_id"], row["db_timestamp"]): row for row in stored}
        self.numbers = {}

    def _is_old(self, row: HistoricRow) -> bool:
        number, at = self._stands.get(row.source_id, (0, None))
        return at is not None and (row.db_timestamp <= at if row.seq_nr is None else row.seq_nr <= number)

    def is_new(self, row: HistoricRow) -> bool:
        """
        Whether a row is to be imported; the rows come in their order.

        BadRow: it differs from what is stored, or does not follow the event before it.
        """
        if self._last is None or row.source_id != self._last.source_id:
            self.sources += 1
        elif (row.seq_nr is None) != (self._last.seq_nr is None):
            raise BadRow(
                f"{row.place}: source {row.source_id!r} has rows with and without a seq_nr: number all of a source, "
                "or none"
            )
        self._check_order(row)
        old = self._is_old(row)
        if old:
            self._check_equal(row)
        else:
            self._take(row)
        self._last = row
        return not old

    def _check_order(self, row: HistoricRow) -> None:
        last = self._last
        if last is None or last.source_id != row.source_id:
            return
        if row.seq_nr is not None and row.seq_nr == last.seq_nr:
            raise BadRow(
                f"{row.place}: source {row.source_id!r}, seq_nr {row.seq_nr} is in {last.place} as well: "
                "leave one of them out"
            )
        if row.db_timestamp <= last.db_timestamp:
            raise BadRow(
                f"{row.place}: source {row.source_id!r}, {_named(row)}: db_timestamp {row.db_timestamp.isoformat()} "
                f"is not after {last.db_timestamp.isoformat()} in {last.place}: times of a source must increase"
            )

    def _take(self, row: HistoricRow) -> None:
        stands, at = self._stands.get(row.source_id, (0, None))
        number = stands + 1 if row.seq_nr is None else row.seq_nr
        if number != stands + 1:
            raise BadRow(
                f"{row.place}: source {row.source_id!r} has seq_nr {number} where {stands + 1} is due: "
                "the rows between are missing"
            )
        if at is not None and row.db_timestamp <= at:
            raise BadRow(
                f"{row.place}: source {row.source_id!r}, seq_nr {number}: db_timestamp {row.db_timestamp.isoformat()} "
                f"is not after that of the event before it in the journal, {at.isoformat()}"
            )
        if self._now is not None and row.db_timestamp > self._now:
            raise BadRow(
                f"{row.place}: source {row.source_id!r}, seq_nr {number}: db_timestamp {row.db_timestamp.isoformat()} "
                "is in the future"
            )
        self._stands[row.source_id] = number, row.db_timestamp
        self.numbers[row.source_id, row.db_timestamp] = number

    def _check_equal(self, row: HistoricRow) -> None:
        found = self._stored.get((row.source_id, row.db_timestamp))
        number, at = self._stands[row.source_id]
        if found is None:
            raise BadRow(
                f"{row.place}: source {row.source_id!r}, {_named(row)}: the journal has this source up to "
                f"seq_nr {number} at {at}, but no event at {row.db_timestamp.isoformat()}: "
                "history can only go on behind what is stored"
            )
        differing = [
            name
            for name, value in {
                "seq_nr": found["seq_nr"] if row.seq_nr is None else row.seq_nr,
                "event_id": row.event_id or found["event_id"],
                "event_type": row.event_type,
                "version": row.version,
                "payload": row.payload,
                "metadata": row.metadata,
                "tags": list(row.tags),
            }.items()
            if value != (list(found["tags"] or ()) if name == "tags" else found[name])
        ]
        if differing:
            raise BadRow(
                f"{row.place}: source {row.source_id!r}, seq_nr {found['seq_nr']} is stored with other content "
                f"({', '.join(differing)}): what is in the journal is not changed; leave the row out"
            )


def _named(row: HistoricRow) -> str:
    return "its next event" if row.seq_nr is None else f"seq_nr {row.seq_nr}"
