"""``projections archive``: closed partitions as Parquet files, and back."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from journal import Session
from journal.embedded import database_dsn
from projections.extras import from_extra
from projections.terminal import (
    Answer,
    Arg,
    CommandGroup,
    Dsn,
    Opt,
    check_no_address,
    derived,
    printable,
    values_of,
    visit,
)
from spark_projections.engine.session import spark_running

if TYPE_CHECKING:
    from pyspark import SparkContext

    from spark_projections.archive.check import Checked
    from spark_projections.archive.export import Exported
    from spark_projections.archive.restore import Restored

Counted = Callable[[int, int], None]
_PARTS = 20
"""How many lines of text there are for the whole, where there is no terminal."""


def _no_address(_: click.Context, __: click.Parameter, value: Path) -> Path:
    check_no_address(str(value))
    return value


Directory = Annotated[Path, Arg(type=click.Path(path_type=Path, file_okay=False), callback=_no_address)]
_Types = Annotated[tuple[str, ...], Opt("Only this one; may be repeated.", "--entity-type", metavar="TYPE")]
Master = Annotated[str | None, Opt("Spark's master, such as local[4,4] or spark://host:7077.", metavar="URL")]
Engine = Annotated[
    Literal["local", "spark"] | None,
    Opt("Processes of this machine, or Spark. Default: spark when --master is given, else local."),
]
_Until = Annotated[datetime | None, Opt("Only partitions that end by this time.")]


@contextmanager
def context_of(engine: str | None, master: str | None) -> Iterator[SparkContext | None]:
    """Spark for the length of the block, or None for local processes."""
    if engine == "local" and master is not None:
        raise click.UsageError("--master is for --engine spark")
    if engine != "spark" and master is None:
        yield None
        return
    with spark_running(master) as session:
        yield session.sparkContext


@contextmanager
def checked_dsn(dsn: str | None) -> Iterator[str]:
    """The DSN of a database with this library's schema, for the length of the block."""

    async def nothing(_: Session) -> None:
        """Opening the session has checked the version."""

    with database_dsn(dsn) as found:
        visit(found, nothing)
        yield found


@contextmanager
def counting(what: str) -> Iterator[Counted]:
    """Show on stderr how much is done: a bar on a terminal, else a line now and then."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(what).counted
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, refresh_per_second=5) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


class _Lines:
    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = 0

    def counted(self, done: int, total: int) -> None:
        part = done * _PARTS // total if total else 0
        if part > self._shown:
            self._shown = part
            say(f"{self._what}: {done:,} of {total:,} events")


def say(text: str) -> None:
    """Tell the user on stderr, alongside the result."""
    click.echo(printable(text), err=True)


@click.group(cls=CommandGroup)
def archive() -> None:
    """
    Keep closed partitions of the journal as Parquet files, and put them back.

    \b
    To make room in the database
      projections archive export DIR                      write what is closed and not there yet
      projections archive verify DIR --against-journal    compare it, event by event
      SELECT projections.detach_partition_v1(…)           as the export prints it
    and to have it back
      projections archive restore DIR --since TIME --until TIME
    and when its manifest is lost, damaged or an old one
      projections archive repair DIR
    and when messages of webhooks were erased
      projections archive erase DIR

    Nothing here deletes an event of an archive. The directory is read by Spark, pyarrow, DuckDB and others as it is;
    in Python, spark_projections.read_history reads archive and journal as one.
    """  # noqa: D301 - click reads the escape


@archive.command()
@derived
def export(
    directory: Directory,
    *,
    entity_types: _Types = (),
    until: _Until = None,
    engine: Engine = None,
    master: Master = None,
    dsn: Dsn = None,
) -> Answer:
    """
    Write closed time partitions that the archive does not hold yet, and what others have got since by an import.

    A partition is closed when its time is past; appends that may still write there are waited for, and named. The
    journal is only read: the role needs projections_reader. At the end it prints which partitions may be detached,
    and by which command, once `projections archive verify DIR --against-journal` finds no difference.

    With Spark every executor must see DIR under the same name.

    Exit code 1 when a partition cannot be exported as it is; the others are.
    """
    with from_extra("arrow"):
        from spark_projections.archive.export import export_archive  # noqa: PLC0415 - not for the help
    with checked_dsn(dsn) as database, context_of(engine, master) as spark, counting("exported") as progress:
        done = export_archive(
            database,
            directory.absolute(),
            entity_types=entity_types,
            until=until,
            spark=spark,
            say=say,
            progress=progress,
        )
    return Answer(values_of(done), [*_lines(done, directory)], exit_code=1 if done.stuck else 0)


def _lines(done: Exported, directory: Path) -> Iterator[str]:
    yield f"exported {done.rows:,} events of {len(done.partitions)} partitions into {done.files} files"
    if done.unchanged:
        yield f"in the archive already: {len(done.unchanged)} partitions"
    for name, problem in done.stuck.items():
        yield f"not exported: {name}: {printable(problem)}"
    for name, projections in done.behind.items():
        yield f"keep {name}: not handled yet, or being rebuilt, by {printable(', '.join(projections))}"
    if done.detachable:
        yield f"when `projections archive verify {shlex.quote(str(directory))} --against-journal` finds no difference:"
        yield "SET lock_timeout = '500ms';"
        yield from (f"{statement};" for statement in done.detach)


@archive.command()
@derived
def verify(
    directory: Directory,
    *,
    against_journal: Annotated[bool, Opt("Compare the events with those in the journal as well.")] = False,
    dsn: Dsn = None,
) -> Answer:
    """
    Find what is missing, damaged, doubled, or not named by the manifest: reads every file.

    With --against-journal the database computes the checksum of its events as well, by entity type and day;
    partitions that have left the journal are passed over, and counted.

    Exit code 1 when something differs.
    """
    with from_extra("arrow"):
        from spark_projections.archive.check import verify_archive  # noqa: PLC0415 - not for the help
    with counting("verified") as progress, checked_dsn(dsn) if against_journal else nullcontext() as database:
        found = verify_archive(directory, journal=database, progress=progress)
    lines = (*found.differences, _summary(found, against_journal=against_journal))
    return Answer(values_of(found), [*map(printable, lines)], exit_code=1 if found.differences else 0)


def _summary(found: Checked, *, against_journal: bool) -> str:
    count = len(found.differences)
    text = (
        f"{found.files} files, {found.rows:,} events: {count or 'no'} difference{'' if count == 1 else 's'}"
    )
    if not against_journal:
        return text
    gone = f"; {found.gone} no longer in the journal" if found.gone else ""
    return f"{text}; compared with the journal by partition and entity type: {found.compared}{gone}"


@archive.command()
@derived
def repair(
    directory: Directory,
    *,
    forget_missing: Annotated[
        bool, Opt("Take files that are not there out of the manifest: their events are given up.")
    ] = False,
) -> Answer:
    """
    Make the manifest again, from the newest one that is kept and from what the files say of themselves.

    For a manifest that is lost, damaged or an old one, and for files that it does not name. Every file is read through
    before it is taken in; none is changed or deleted. Needs no database.

    A file that is gone for good, or was moved out, is named until --forget-missing gives its events up.

    Exit code 1 when a file is missing, or could not be taken in.
    """
    with from_extra("arrow"):
        from spark_projections.archive.repair import repair_archive  # noqa: PLC0415 - not for the help
    with counting("read") as progress:
        done = repair_archive(directory, forget_missing=forget_missing, progress=progress)
    missing = "it is not there: restore it from a backup, or give it up: --forget-missing"
    lines = [
        *(f"{path}: {missing}" for path in done.missing),
        *(f"{path}: it is not there, and not named any more" for path in done.forgotten),
        *(f"not taken in: {line}" for line in done.problems),
        f"the manifest names {done.files} files, {len(done.taken_in)} of them taken in now",
    ]
    exit_code = 1 if done.missing or done.problems else 0
    return Answer(values_of(done), [*map(printable, lines)], exit_code=exit_code)


@archive.command()
@derived
def erase(directory: Directory, *, dsn: Dsn = None) -> Answer:
    """
    Take the payloads of messages out of the files that `projections webhooks erase` has erased.

    A file that has one is replaced by another one with the same events, and deleted; whoever is just reading it fails,
    and reads again. An export does the same with files whose partition is in the journal. The role needs
    projections_reader.

    Copies and backups of the archive are not reached: run it for each.
    """
    with from_extra("arrow"):
        from spark_projections.archive.erasing import erase_archive  # noqa: PLC0415 - not for the help
    with checked_dsn(dsn) as database:
        done = erase_archive(database, directory.absolute())
    return Answer(
        values_of(done), [f"payloads erased: {done.messages:,}; files rewritten: {len(done.files)}"]
    )


@archive.command()
@derived
def restore(
    directory: Directory,
    *,
    entity_types: _Types = (),
    since: Annotated[datetime | None, Opt("Only partitions that end after this time.")] = None,
    until: Annotated[datetime | None, Opt("Only partitions that begin before this time.")] = None,
    dsn: Dsn = None,
) -> Answer:
    """
    Put archived events that have left the journal back, exactly as they were, but for payloads that were erased.

    Each partition is one transaction; events that are in the journal already are left alone. Projections that have
    passed their time handle none of them, others all. Connect as the role that owns the schema.
    """
    with from_extra("arrow"):
        from spark_projections.archive.restore import restore_archive  # noqa: PLC0415 - not for the help
    with checked_dsn(dsn) as database, counting("restored") as progress:
        done = restore_archive(
            database, directory, entity_types=entity_types, since=since, until=until, progress=progress
        )
    lines = [*map(_restored_line, done)] or ["the archive has nothing of that"]
    restored = [
        {
            "partition": each.partition,
            "from": each.bounds.from_timestamp,
            "to": each.bounds.to_timestamp,
            "restored": each.events,
            "present": each.present,
        }
        for each in done
    ]
    return Answer({"partitions": restored}, lines)


def _restored_line(done: Restored) -> str:
    present = f", {done.present:,} were there already" if done.present else ""
    return f"{done.bounds}: {done.events:,} events restored{present}"
