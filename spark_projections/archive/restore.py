"""
Archived events back in the journal, exactly as they were, but for payloads of messages that were erased since.

Projections that have passed their time handle none of them, all others all: no import is noted, and offsets say so
(_pass_restored_v1), a page of sources at a time. Sources keep their numbers. A partition is one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from journal.database import SyncConnection, connect_sync
from spark_projections.archive.files import (
    ArchivedFile,
    ArchiveError,
    Bounds,
    check_file,
    open_file,
    sha256_of,
)
from spark_projections.archive.journal_queries import autocommit, stored
from spark_projections.archive.manifest import Manifest
from spark_projections.reading.batches import NO_LIMITS, SCHEMA

_ATTEMPTS = 10
_PAUSE_SECONDS = 1.0
_BATCH = 8192
_SILENCE = "10s"
"""How long the server keeps locks that others wait for when this process is frozen, or its host gone."""
_PAGE = 10_000
"""How many sources are moved behind restored events at a time: workers that have one of them wait for that."""
_LAST = ["source_id", "slice", "seq_nr_max", "db_timestamp_max"]
_TRY_AGAIN = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)

_OVERLAPPING = """
SELECT name, from_timestamp, to_timestamp FROM projections.partitions
WHERE table_name = 'events' AND from_timestamp < %s AND to_timestamp > %s ORDER BY from_timestamp
"""
_EXISTS = "SELECT to_regclass(%s) IS NOT NULL"
# The constraint spares ATTACH the reading of the new table while it keeps others out.
_CREATE = """
CREATE TABLE projections.{table} (
    LIKE projections.events INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES,
    CONSTRAINT within_bounds CHECK (db_timestamp >= {low} AND db_timestamp < {high})
)
"""
_COPY = "COPY projections.{table} ({columns}) FROM STDIN"
_UNKNOWN_SOURCE = """
SELECT e.source_id, e.seq_nr, s.seq_nr FROM projections.{table} AS e
LEFT JOIN projections.sources AS s ON e.source_id = s.source_id
WHERE s.source_id IS NULL OR s.seq_nr < e.seq_nr OR s.entity_type <> e.entity_type LIMIT 1
"""
# As _create_partition_v1 does: imports wait, and no maintenance runs; the lock_timeout is below deadlock_timeout.
_MAINTENANCE = "SELECT pg_advisory_xact_lock(hashtext('slice-projections'), hashtext('maintain'))"
_IMPORTS = "LOCK TABLE projections.imports IN ROW EXCLUSIVE MODE"
_ATTACH = (
    "ALTER TABLE projections.events ATTACH PARTITION projections.{table} FOR VALUES FROM ({low}) TO ({high})"
)
_READ = "SELECT projections._read_restored_v1(%s, %s, %s)"
_PASSED = "SELECT projection_id, entity_type, slices::text FROM projections._passed_ranges_v1(%s, %s)"
_MOVE = (
    "SELECT projections._pass_restored_v1(%s, %s::int4multirange, %s, %s, %s::smallint[], %s::bigint[], %s)"
)
_ERASE = "SELECT projections._erase_restored_v1(%s::regclass)"
_UNBOUND = "ALTER TABLE projections.{table} DROP CONSTRAINT within_bounds"


@dataclass(frozen=True, slots=True)
class Restored:
    """
    What was done about one partition of an archive.

    Args:
        partition: Its name.
        bounds: Its time.
        events: The number of events that were put back.
        present: How many of those wanted were in the journal already.
    """

    partition: str
    bounds: Bounds
    events: int
    present: int


def restore_archive(
    dsn: str,
    directory: Path,
    *,
    entity_types: Sequence[str] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[Restored]:
    """
    Put events that left the journal with their partitions back, with their times, ids and numbers.

    What is there already stays as it is. When it breaks, whole partitions are back, and the next run goes on.

    Args:
        dsn: The journal; the role must own the schema.
        directory: The archive.
        entity_types: Only these; by default all. Others of the same partition can follow later.
        since: Only partitions with a time after this one.
        until: Only partitions with a time before this one.
        progress: Told how many events are done, of how many.

    Returns:
        What was done, in the order of time.

    Raises:
        ArchiveError: A file is not what was written, the archive is another journal's, or something else has taken
            the time of a partition.
        DatabaseError: The database refused, or cannot be reached.
    """
    wanted = _wanted(Manifest.load(directory), entity_types, since, until)
    total, done = sum(each.rows for files in wanted.values() for each in files), 0
    restored = []
    for bounds, files in sorted(wanted.items()):
        with autocommit(dsn) as connection:
            missing = [each for each in files if not stored(connection, each)]
        if missing:
            _Restoring(dsn, directory, bounds, missing).run()
        rows, come = sum(each.rows for each in files), sum(each.rows for each in missing)
        restored.append(Restored(files[0].partition, bounds, come, rows - come))
        done += rows
        progress(done, total)
    return restored


def _wanted(
    manifest: Manifest, entity_types: Sequence[str], since: datetime | None, until: datetime | None
) -> dict[Bounds, list[ArchivedFile]]:
    found: dict[Bounds, list[ArchivedFile]] = {}
    for each in manifest.files:
        if (
            (not entity_types or each.entity_type in entity_types)
            and (since is None or each.bounds.to_timestamp > since)
            and (until is None or each.bounds.from_timestamp < until)
        ):
            found.setdefault(each.bounds, []).append(each)
    return found


@dataclass(frozen=True, slots=True)
class _Restoring:
    """A partition on its way back: the files whose events are not in the journal."""

    dsn: str
    directory: Path
    bounds: Bounds
    files: Sequence[ArchivedFile]

    def run(self) -> None:
        for each in self.files:
            if sha256_of(check_file(self.directory, each)) != each.sha256:
                raise ArchiveError(
                    f"{each.path} is not what was written (SHA-256): nothing of {self.bounds} was restored"
                )
        with connect_sync(self.dsn) as connection:
            connection.execute(NO_LIMITS)  # it loads as long as it takes, and waits while others are passed
            span = self.bounds.to_timestamp, self.bounds.from_timestamp
            present = connection.execute(_OVERLAPPING, span).fetchall()
            if [Bounds(*found[1:]) for found in present] == [self.bounds]:
                # Another type of this partition is back, or events of its time were imported since.
                name = str(present[0][0])
                self._fill(connection, name)
                self._show(connection, name)
            elif present:
                raise ArchiveError(
                    f"{self.bounds} cannot be restored: partition {present[0][0]}, {Bounds(*present[0][1:])}, is of "
                    "the same time with other bounds; detach that one first"
                )
            else:
                self._make(connection)

    def _make(self, connection: SyncConnection) -> None:
        """Load a new table, and make it the partition."""
        low, high = (
            sql.Literal(at.astimezone(UTC).isoformat())
            for at in (self.bounds.from_timestamp, self.bounds.to_timestamp)
        )
        name = f"events_{self.bounds.from_timestamp.astimezone(UTC):%Y%m%dt%H%M%S}"
        terms = {"table": sql.Identifier(name), "low": low, "high": high}
        if connection.execute(_EXISTS, (f"projections.{name}",)).fetchall()[0][0]:
            statement = sql.SQL(_ATTACH).format(**terms).as_string(connection)
            raise ArchiveError(
                f"the table projections.{name} is there, detached: drop it, or take it back with `{statement};`"
            )
        connection.execute("SET LOCAL datestyle = 'ISO'")
        connection.execute(sql.SQL(_CREATE).format(**terms))
        self._fill(connection, name)

        def attach() -> None:
            connection.execute(_MAINTENANCE)
            connection.execute(_IMPORTS)
            connection.execute(sql.SQL(_ATTACH).format(**terms))
            connection.execute(sql.SQL(_UNBOUND).format(**terms))

        try:
            self._show(connection, name, attach)
        except psycopg.errors.CheckViolation as error:
            raise ArchiveError(
                f"events of {self.bounds} were imported since and lie in the default partition: run `projections "
                "maintain`, which makes their partition, and then restore"
            ) from error

    def _fill(self, connection: SyncConnection, name: str) -> None:
        table = sql.Identifier(name)
        columns = sql.SQL(", ").join(map(sql.Identifier, SCHEMA.names))
        statement = sql.SQL(_COPY).format(table=table, columns=columns)
        try:
            with connection.cursor() as cursor, cursor.copy(statement) as copy:
                for each in self.files:
                    for row in _rows(self.directory / each.path):
                        copy.write_row(row)
        except psycopg.errors.UniqueViolation as error:
            raise ArchiveError(
                f"projections.{name} has some of these events already ({error.diag.message_detail}): nothing was "
                "restored"
            ) from error
        # Nothing is known of the new table, nor perhaps of the sources: not one by one.
        connection.execute("SET LOCAL enable_nestloop = off")
        wrong = connection.execute(sql.SQL(_UNKNOWN_SOURCE).format(table=table)).fetchall()
        connection.execute("SET LOCAL enable_nestloop = on")
        if wrong:
            source, seq_nr, stands = wrong[0]
            raise ArchiveError(
                f"this is not the journal that the archive was made from: source {source!r} stands at {stands or 0} "
                f"there, the archive has its event {seq_nr}. Load the files into another journal with `projections "
                "backfill`"
            )

    def _show(self, connection: SyncConnection, name: str, attach: Callable[[], None] = lambda: None) -> None:
        """Make what was loaded visible, once it is handled for all who have passed its time; for others it is not."""
        types = sorted({each.entity_type for each in self.files})
        passed = connection.execute(_PASSED, (types, self.bounds.to_timestamp)).fetchall()
        self._pass(passed)

        def show() -> None:
            nonlocal passed
            connection.execute(_ERASE, (sql.Identifier("projections", name).as_string(connection),))
            attach()
            connection.execute(_READ, (types, self.bounds.from_timestamp, self.bounds.to_timestamp))
            before, passed = passed, connection.execute(_PASSED, (types, self.bounds.to_timestamp)).fetchall()
            if passed != before:  # somebody has passed it meanwhile
                raise psycopg.Rollback

        while not _tried(connection, show):
            self._pass(passed)

    def _pass(self, passed: list[tuple[Any, ...]]) -> None:
        """
        Make the events handled for whoever has passed their time, before they come back.

        Committed page by page: where the restore fails, offsets stand behind events that nobody has.
        """
        with autocommit(self.dsn) as connection:
            for each in self.files:
                mine = [(number, slices) for number, kind, slices in passed if kind == each.entity_type]
                for page in _lasts(self.directory / each.path) if mine else ():
                    for number, slices in mine:
                        values = number, slices, self.bounds.to_timestamp, *page
                        _tried(connection, partial(connection.execute, _MOVE, values))


def _rows(path: Path) -> Iterator[tuple[Any, ...]]:
    try:
        with open_file(path) as file:
            for batch in file.iter_batches(_BATCH, columns=SCHEMA.names):
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
    except (pa.ArrowException, OSError) as error:
        raise ArchiveError(f"{path} cannot be read, {error}: restore it from a backup") from error


def _lasts(path: Path) -> Iterator[list[list[Any]]]:
    """The last event of each source in a file, by pages: its columns."""
    with open_file(path) as file:
        table = file.read(["source_id", "slice", "seq_nr", "db_timestamp"])
    found = table.group_by(["source_id", "slice"]).aggregate([("seq_nr", "max"), ("db_timestamp", "max")])
    for start in range(0, found.num_rows, _PAGE):
        yield [column.to_pylist() for column in found.select(_LAST).slice(start, _PAGE).columns]


def _tried(connection: SyncConnection, work: Callable[[], object]) -> bool:
    """
    Do something, giving up rather than keeping others waiting; what was loaded stays for the next attempt.

    Returns whether it is done, and has not rolled itself back.
    """
    attempts = 0
    while True:
        done = False
        attempts += 1
        try:
            with connection.transaction():
                connection.execute("SET LOCAL lock_timeout = '500ms'")
                connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{_SILENCE}'")
                work()
                done = True
        except _TRY_AGAIN:
            if attempts == _ATTEMPTS:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return done
