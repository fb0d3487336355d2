"""``projections backfill``: history from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from projections.extras import from_extra
from projections.terminal import Answer, Arg, Dsn, Opt, derived
from spark_projections.backfill.mapping import CHUNK, FIELDS, Format, Mapped
from spark_projections.cli.archive import Engine, Master, checked_dsn, context_of, counting

if TYPE_CHECKING:
    from spark_projections.backfill.backfill import Backfilled

_FORMATS: dict[str, Format] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}


_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
_FORMAT = Opt(
    "The format of all files; json has one object on each line. Default: what the names end in.", "--format"
)
_MAP = Opt("Which field of an event a column is; may be repeated.", "--map", metavar="COLUMN=FIELD")


@click.command()
@derived
def backfill(
    files: Annotated[tuple[Path, ...], Arg(required=True, type=_FILE)],
    *,
    entity_type: Annotated[str, Opt("The entity type of all events in the files.", metavar="TYPE")],
    format_: Annotated[Format | None, _FORMAT] = None,
    maps: Annotated[tuple[str, ...], _MAP] = (),
    chunk: Annotated[int, Opt("Events in a transaction.", type=click.IntRange(1, 1_000_000))] = CHUNK,
    dry_run: Annotated[bool, Opt("Check all rows, also against the journal; import none.")] = False,
    engine: Engine = None,
    master: Master = None,
    dsn: Dsn = None,
) -> Answer:
    """
    Load history from files into the journal, with its times.

    \b
    Columns
      source_id, event_type, payload, db_timestamp   required; times with their zone, JSON as text
      seq_nr                                         else numbered by time, after what the source has
      version, metadata, tags, event_id              optional; tags as a list, in CSV as a JSON list

    Each source goes on where it stands in the journal, in strictly increasing time, and never in the future. Readers go
    back to what was imported. After an interruption run it again with the same files: what is stored is skipped.

    The role needs projections_writer and TEMPORARY on the database. With Spark every executor must see the files.
    """  # noqa: D301 - click reads the escape
    with from_extra("arrow"):
        from spark_projections.backfill.backfill import backfill as backfill_files  # noqa: PLC0415 - not for the help
    columns = _columns(maps)
    mapped = Mapped(entity_type, format_ or _format(files), columns)
    paths = [path.absolute() for path in files]
    with checked_dsn(dsn) as database, context_of(engine, master) as spark, counting("checked") as progress:
        done = backfill_files(
            database, paths, mapped, spark=spark, chunk=chunk, dry_run=dry_run, progress=progress
        )
    return Answer({**done._asdict(), "dry_run": dry_run}, [_line(done, dry_run=dry_run)])


def _format(files: tuple[Path, ...]) -> Format:
    found = {_FORMATS.get(path.suffix.lower()) for path in files}
    if len(found) == 1 and (one := found.pop()) is not None:
        return one
    raise click.UsageError("the names of the files do not tell one format: pass --format")


def _columns(maps: tuple[str, ...]) -> dict[str, str]:
    columns: dict[str, str] = {}
    for each in maps:
        column, _, name = each.rpartition("=")
        if not column or name not in FIELDS:
            raise click.BadParameter(
                f"{each!r}: write COLUMN=FIELD, where FIELD is one of {', '.join(FIELDS)}", param_hint="--map"
            )
        if name in columns:
            raise click.BadParameter(f"{name} is given twice", param_hint="--map")
        columns[name] = column
    return columns


def _line(done: Backfilled, *, dry_run: bool) -> str:
    verb = "would be imported" if dry_run else "imported"
    skipped = f"; {done.skipped:,} were stored already" if done.skipped else ""
    return f"{done.events:,} events of {done.sources:,} sources {verb}{skipped}"
