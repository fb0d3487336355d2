"""
The journal as a stream: ``spark.readStream.format("journal")``.

An offset holds a time for each range of slices; a micro-batch reads what lies after one and up to the next, and the
next is never later than what is settled, so no late commit is missed. The ranges are fixed by a stream's first offset.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from journal import InvalidValue, Position, ProjectionsError, SliceRange
from journal.database import SyncConnection, fetch_on_sync
from journal.writers import Pause, WritersLook, writers_in_flight_sync
from spark_projections.reading.horizon import SettledTime, look, settled_now
from spark_projections.reading.splits import balanced
from spark_projections.source.attached import log_of
from spark_projections.source.options import JournalOptions
from spark_projections.source.source import JournalPartition, SparkTable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT = timedelta(microseconds=1)
_IMPORT = "import_id"
_MOST = 2**31 - 1

# One more than asked for tells whether a page ends between equal times; the index holds all that this reads. Pages of
# journals of other systems may end early, and say so.
_PAGE = """
WITH page AS (SELECT k.db_timestamp, {more} AS more FROM ({keys}) AS k)
SELECT
    count(*), max(p.db_timestamp), max(p.db_timestamp) FILTER (WHERE p.db_timestamp < l.last),
    coalesce(bool_or(p.more), FALSE)
FROM (SELECT max(q.db_timestamp) AS last FROM page AS q) AS l, page AS p
"""

Offset: TypeAlias = dict[str, int]


class HistoryBehindStream(ProjectionsError):
    """History was imported into times that the stream has passed."""


class ClockWentBack(ProjectionsError):
    """The database's clock shows an earlier time than the stream has read up to."""


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """Where a stream stands: up to which time each range of slices was read, and the last import accounted for."""

    times: Mapping[SliceRange, datetime]
    import_id: int = 0

    @classmethod
    def of(cls, offset: Mapping[str, int]) -> StreamPlace:
        """Read an offset of a checkpoint; InvalidValue: it was not written by this source."""
        times: dict[SliceRange, datetime] = {}
        for name, value in offset.items():
            if found := re.fullmatch(r"(\d+)-(\d+)", name):
                times[SliceRange(int(found[1]), int(found[2]))] = _EPOCH + value * _INSTANT
            elif name != _IMPORT:
                raise InvalidValue(f"the checkpoint has an offset {name!r}, which is not one of the journal")
        return cls(times, offset.get(_IMPORT, 0))

    def offset(self) -> Offset:
        """As Spark keeps it: microseconds since 1970 by range."""
        times = {str(slices): (at - _EPOCH) // _INSTANT for slices, at in self.times.items()}
        return {**times, _IMPORT: self.import_id}

    def going_back_to(self, at: datetime) -> StreamPlace:
        """The same ranges, none later than a time."""
        return replace(self, times={slices: min(at, time) for slices, time in self.times.items()})


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """
    Plans micro-batches, and reads their partitions.

    Args:
        options: The options of the data source.
        table: The columns.
        pause: Waits for a number of seconds.
    """

    def __init__(self, options: JournalOptions, table: SparkTable, pause: Pause = time.sleep) -> None:
        self._options = options
        self._table = table
        self._pause = pause
        self._log = log_of(options)
        self._settled: SettledTime | None = None
        self._target: datetime | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Before the first event, or before ``since``; the ranges are balanced by what is there now."""
        reading = self._options.reading
        counts = self._log.counts(reading.entity_type)
        ranges = balanced(counts, self._options.splits, reading.slices)
        return StreamPlace(dict.fromkeys(ranges, self._start())).offset()

    def _start(self) -> datetime:
        since = self._options.reading.since
        return _EPOCH if since is None else since - _INSTANT

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The option ``maxrows``."""
        rows = self._options.max_rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Settle what is there now: the stream ends behind it."""
        self._target = settled_now(self._log, self._options.wait, self._pause)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """
        Where the next micro-batch ends: behind what is settled and within the limit.

        HistoryBehindStream: history was imported behind the offset, and the option says to fail; ClockWentBack: the
        database's clock is behind the offset.
        """
        place = self._checked(StreamPlace.of(start))
        with self._log.connected() as connection:
            seen = look(connection, place.import_id, poll=self._log.asked.poll)
            settled = self._settle(connection, place, seen)
            back, place = self._with_imports(place, seen)
            further = place if back else self._forward(connection, place, settled, limit)
        # The same offset again: Spark runs no micro-batch for it.
        return start if further is None else further.offset()

    def _checked(self, place: StreamPlace) -> StreamPlace:
        slices, at = self._options.reading.slices, self._options.reading.slices.min_slice
        for found in sorted(place.times):
            if found.min_slice != at:
                break
            at = found.max_slice + 1
        if at != slices.max_slice + 1:
            raise InvalidValue(
                f"option slices {str(slices)!r}: the checkpoint is of slices "
                f"{', '.join(str(found) for found in sorted(place.times))}; use those, or a new checkpoint"
            )
        return place

    def _settle(self, connection: SyncConnection, place: StreamPlace, seen: WritersLook) -> datetime:
        latest = max(place.times.values())
        if seen.at < latest != self._start():
            raise ClockWentBack(self._went_back(seen.at, latest))
        if self._target is not None:
            # All of it is settled already; a later look would only hold this back.
            return self._target
        if self._settled is None:
            self._settled = SettledTime(min(place.times.values()), self._log.margin)
            return self._settled.after(seen, self._started(connection))
        return self._settled.after(seen)

    def _started(self, connection: SyncConnection) -> list[datetime | None]:
        """When those began that do not show it in a look, if that bounds their stamps."""
        if self._log.queries is not None:
            return [None]  # a number is not a time, and a prepared transaction began before it was prepared
        return [writer.started_at for writer in writers_in_flight_sync(connection)]

    def _went_back(self, at: datetime, latest: datetime) -> str:
        if self._log.by_number:
            now, then = ((one - _EPOCH) // _INSTANT for one in (at, latest))
            return (
                f"the sequence of journal {self._options.journal!r} stands at {now}, and the stream has read up to "
                f"{then}: it was set back, or the journal has lost events. Begin with a new checkpoint"
            )
        return (
            f"the database's clock shows {at}, and the stream has read up to {latest}: events may have been "
            "stamped behind it. Go on when the clock has passed that time, and read what was stamped between "
            "the two with a DataFrame"
        )

    def _with_imports(self, place: StreamPlace, seen: WritersLook) -> tuple[bool, StreamPlace]:
        """Whether the stream goes back, and its place with the imports in it that matter."""
        ours = [
            (number, at) for number, kind, at in seen.imports if kind in self._options.reading.entity_type
        ]
        if not ours:
            return False, place
        oldest = min(at for _, at in ours)
        place = replace(place, import_id=max(number for number, _ in ours))
        latest = max(place.times.values())
        if oldest > latest or latest == self._start() or self._options.on_import == "skip":
            return False, place
        if self._options.on_import == "fail":
            raise HistoryBehindStream(
                f"history of {self._options.reading.entity_type.said} from {oldest} on was imported, and the stream "
                f"has read up to {latest}: start a new checkpoint, or set the option onimport to "
                "reread (events since then come again) or skip (the imported ones do not come)"
            )
        return True, place.going_back_to(max(oldest - _INSTANT, self._start()))

    def _forward(
        self, connection: SyncConnection, start: StreamPlace, settled: datetime, limit: ReadLimit
    ) -> StreamPlace | None:
        until = self._options.reading.until
        end = settled if until is None else min(settled, until)
        rows = max(1, limit.max_rows // len(start.times)) if isinstance(limit, ReadMaxRows) else None
        found = {slices: self._end(connection, slices, at, end, rows) for slices, at in start.times.items()}
        if all(at is None for at in found.values()):
            return None
        return replace(
            start, times={slices: at or max(end, start.times[slices]) for slices, at in found.items()}
        )

    def _end(
        self, connection: SyncConnection, slices: SliceRange, start: datetime, end: datetime, rows: int | None
    ) -> datetime | None:
        """Up to where a range is read; None where there is nothing to read."""
        page = 1 if rows is None else min(rows + 1, _MOST)
        after = Position.before(start + _INSTANT)
        values = (self._options.reading.entity_type.sql, *slices, *after, end, page)
        more = "FALSE" if self._log.queries is None else "k.more"
        ((count, last, before, ends_early),) = fetch_on_sync(
            connection, _PAGE.format(more=more, keys=self._log.asked.keys), values
        )
        if count == 0:
            return None
        if rows is None or (count <= rows and not ends_early):
            return end
        # A page never ends between equal times; when more are equal than fit, all of them come.
        found: datetime = before or last
        return found

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One for each range that has gone forward."""
        before, after = StreamPlace.of(start), StreamPlace.of(end)
        return [
            JournalPartition(
                replace(self._options.reading, slices=slices, since=before.times[slices] + _INSTANT, until=at)
            )
            for slices, at in after.times.items()
            if at > before.times[slices]
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range, on a connection of its own."""
        if isinstance(partition, JournalPartition):
            yield from self._table.read(self._log, partition.reading)

    def commit(self, end: Offset) -> None:
        """Nothing to do: Spark keeps the offsets."""
