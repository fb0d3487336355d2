"""
Payloads of messages that were erased, taken out of the files of an archive, and out of what is read from them.

A file is replaced by one with the same events, named after it: the new one is in the manifest before the old one is
deleted. What an erasure that was killed has left of either is removed by the next change of the archive.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from journal.database import SyncConnection
from spark_projections.archive.check import check_archived_file
from spark_projections.archive.export_task import ATTEMPTS, write_file
from spark_projections.archive.files import ArchivedFile, ArchiveError, check_file, open_file
from spark_projections.archive.journal_queries import autocommit
from spark_projections.archive.locking import locked, sync_directory
from spark_projections.archive.manifest import Manifest
from spark_projections.reading.batches import SCHEMA

MESSAGE = "webhook-message"
"""The entity type of messages; nobody erases an event of another one."""

NEEDED = ("event_id", "entity_type", "payload", "metadata")
"""The columns that :func:`without_payloads` looks at."""

_ERASED = "SELECT x.event_id::text, x.tenant FROM projections.erased_messages AS x"
_BATCH = 32_768
_NOTHING = "null"

Erased = Mapping[str, frozenset[str]]
"""For each id of an erased message the tenants whose it is; '' is any."""


@dataclass(frozen=True, slots=True)
class ErasedPayloads:
    """
    What was taken out of an archive.

    Args:
        messages: The number of payloads.
        files: The files that are in the place of those that had them.
    """

    messages: int
    files: tuple[str, ...]


def erased_messages(connection: SyncConnection) -> Erased:
    """The messages that were erased in a journal."""
    found: dict[str, frozenset[str]] = {}
    for event_id, tenant in connection.execute(_ERASED):
        found[event_id] = found.get(event_id, frozenset()) | {tenant}
    return found


def without_payloads(batch: pa.RecordBatch, erased: Erased) -> tuple[pa.RecordBatch, int]:
    """A batch with the payloads of erased messages replaced by null, and how many those are."""
    named = pc.is_in(batch.column("event_id"), value_set=pa.array(list(erased), pa.string()))
    wanted = pc.and_(named, pc.equal(batch.column("entity_type"), MESSAGE))
    wanted = pc.and_(wanted, pc.not_equal(batch.column("payload"), _NOTHING))
    if not pc.any(wanted).as_py():
        return batch, 0
    looked_at = batch.select(NEEDED).filter(wanted).to_pylist()
    ids = [row["event_id"] for row in looked_at if _owners(row["metadata"]) & erased[row["event_id"]]]
    gone = pc.and_(wanted, pc.is_in(batch.column("event_id"), value_set=pa.array(ids, pa.string())))
    payloads = pc.if_else(gone, pa.scalar(_NOTHING), batch.column("payload"))
    return batch.set_column(batch.schema.names.index("payload"), "payload", payloads), len(ids)


def _owners(metadata: str | None) -> set[str]:
    found = json.loads(metadata) if metadata is not None else None
    return {"", str(found["tenant"])} if isinstance(found, dict) and "tenant" in found else set()


def erase_archive(dsn: str, directory: Path) -> ErasedPayloads:
    """
    Take the payloads of all messages that were erased in a journal out of an archive.

    Args:
        dsn: The journal; the role needs projections_reader.
        directory: The archive.

    Raises:
        ArchiveError: There is no archive, somebody is changing it, or one of its files is not what was written.
        DatabaseError: The database refused, or cannot be reached.
    """
    Manifest.load(directory)  # a directory that is no archive gets no lock
    with locked(directory), autocommit(dsn) as connection:
        manifest = Manifest.load(directory)
        remove_leftovers(directory, manifest)
        return erase_files(connection, directory, manifest, manifest.files)[1]


def erase_files(
    connection: SyncConnection, directory: Path, manifest: Manifest, files: Sequence[ArchivedFile]
) -> tuple[Manifest, ErasedPayloads]:
    """Replace those files of an archive that have payloads of erased messages; its lock is held."""
    candidates = [each for each in files if each.entity_type == MESSAGE]
    erased = erased_messages(connection) if candidates else {}
    count, paths = 0, []
    for file in candidates if erased else []:
        messages = sum(number for _, number in _batches(directory, file, erased, ("slice", *NEEDED)))
        if not messages:
            continue
        if problem := check_archived_file(directory, file)[1]:
            raise ArchiveError(
                f"{file.path} has payloads of erased messages, and is not rewritten: {problem}"
            )
        new = _rewritten(directory, file, erased)
        others = [each for each in manifest.of(file.bounds, file.entity_type) if each.path != file.path]
        manifest = manifest.replaced(file.bounds, file.entity_type, [*others, new]).save(directory)
        (directory / file.path).unlink()
        sync_directory((directory / file.path).parent)
        count += messages
        paths.append(new.path)
    return manifest, ErasedPayloads(count, tuple(paths))


def _batches(
    directory: Path, file: ArchivedFile, erased: Erased, columns: Sequence[str]
) -> Iterator[tuple[pa.RecordBatch, int]]:
    path = check_file(directory, file)
    try:
        with open_file(path) as opened:
            for batch in opened.iter_batches(_BATCH, columns=list(columns)):
                yield without_payloads(batch, erased)
    except (pa.ArrowException, OSError) as error:
        raise ArchiveError(f"{path} cannot be read, {error}: restore it from a backup") from error


def _rewritten(directory: Path, file: ArchivedFile, erased: Erased) -> ArchivedFile:
    attempt = directory / ATTEMPTS / f"{uuid4().hex}.parquet"
    path = f"{_origin(file.path)}~{uuid4().hex[:12]}.parquet"
    batches = (batch for batch, _ in _batches(directory, file, erased, SCHEMA.names))
    written = write_file(
        attempt, batches, file.slices, lambda tally: replace(file, path=path, content=tally.content)
    )
    assert written is not None  # noqa: S101 - it has the rows of the other
    attempt.replace(directory / path)
    sync_directory((directory / path).parent)
    return written


def _origin(path: str) -> str:
    """What a file has in common with those that take its place."""
    return str(Path(path).with_name(Path(path).stem.partition("~")[0]))  # of types, too, names may have one


def remove_leftovers(directory: Path, manifest: Manifest) -> None:
    """Delete files that an erasure which was killed has left next to those that have all their events."""
    named = {_origin(each.path): each for each in manifest.files}
    for path in manifest.unnamed(directory):
        kept = named.get(_origin(path))
        if kept is not None and check_archived_file(directory, kept)[1] is None:
            (directory / path).unlink()
            sync_directory((directory / path).parent)
