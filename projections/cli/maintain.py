"""``projections maintain``: partitions made ahead, put in slice order, and dropped when nobody needs them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import click

from journal import ProjectionsError
from journal.database import connect, hide_password
from journal.embedded import database_dsn
from journal.partitions import (
    Archive,
    ClusteredPartition,
    DroppedPartition,
    Maintained,
    MaintainedPartition,
    cluster,
)
from journal.partitions import maintain as maintain_database
from journal.service import Service
from projections.cli.partitions import partition_values, span
from projections.extras import from_extra, registered
from projections.terminal.commands import AsJson, Dsn, Opt, derived
from projections.terminal.options import check_no_address
from projections.terminal.output import Answer, picked, printable
from projections.terminal.signals import stopped_by_signals
from projections.terminal.targets import load_callable

_WHAT_TO_DO = {
    "rebuild": "; it cannot be completed. Begin it again: projections rebuild NAME --restart --from-first-kept"
}


_Every = Opt("Repeat it after each such time, until stopped.")
_ClosedFor = Opt("With --cluster: leave partitions alone whose time ended more recently.")
_Patience = Opt(
    "With --cluster: how long to wait for transactions that began before a partition was copied.",
)
_Archive = Opt(
    "Before dropping a partition of the journal, export it to this archive (`projections archive`), or call this.",
    "--archive", metavar="DIR|MODULE:CALLABLE",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Run:
    """What one run does; the clustering, only with ``clusters``."""

    interval: Annotated[
        timedelta | None,
        Opt(
            "Time that one partition of the journal holds, in this run. Default: its setting.",
        ),
    ] = None
    ahead: Annotated[
        int | None,
        Opt(
            "Coming intervals that have a partition, in this run. Default: the setting.",
            type=click.IntRange(1, 1000),
        ),
    ] = None
    target: Annotated[str | None, _Archive] = None
    force: Annotated[
        bool, Opt("Drop partitions whose retention is over also where they have not been read.")
    ] = False
    clusters: Annotated[bool, Opt("Put closed partitions in slice order.", "--cluster")] = False
    closed_for: Annotated[timedelta, _ClosedFor] = timedelta(hours=1)
    patience: Annotated[timedelta, _Patience] = timedelta(minutes=5)


def _check(options: Mapping[str, Any]) -> None:
    every = options["every"]
    if every is not None and not every:
        raise click.UsageError("--every is longer than 0")
    if every is not None and options["clusters"]:
        raise click.UsageError("--cluster is done once: pass it without --every")


@click.command()
@derived(check=_check)
def maintain(
    *,
    run: _Run,
    every: Annotated[timedelta | None, _Every] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> Answer:
    """
    Make the partitions that are missing, and drop those whose time is over; run it every day.

    Makes those of the coming intervals, and moves rows of past intervals out of the default partition. Partitions
    whose retention is over are dropped when every projection and every group has read them. Writers and readers go
    on meanwhile. `projections partitions` shows and changes the settings. Connect as the role that owns the schema.

    `projections worker` does this by itself, and so does pg_cron after `projections partitions schedule`; it may run in
    several places at once.

    With --force, what has not been read is dropped too; the output says how much was lost, and for which readers.

    With --cluster, partitions whose time is over are then rewritten in slice order, each once, so that a rebuild
    that reads a range of slices reads only pages of its own. It needs the disk for a second copy of the largest.

    Exit code 1 when something could not be done: run it again later; nothing is lost until then. With --every it is 0
    after SIGTERM, and 130 after SIGINT (Ctrl-C).
    """
    with database_dsn(dsn) as database:
        archive = None if run.target is None else _archive(database, run.target)
        if every is None:
            return asyncio.run(_once(database, run, archive))
        code = asyncio.run(_again(database, run, archive, every, as_json=as_json))
    raise click.exceptions.Exit(code)


def _archive(dsn: str, target: str) -> Archive:
    """An archive of Parquet files, or a callable of the user's."""
    check_no_address(target)
    if ":" in target and not Path(target).exists():
        hook: Archive = load_callable(target)
        return hook
    with from_extra("arrow"):
        (keeper,) = registered("projections.archives", "parquet")
    return partial(keeper, dsn, Path(target).absolute())


async def _once(dsn: str, run: _Run, archive: Archive | None) -> Answer:
    """Run once; its exit code says whether everything was done."""
    async with connect(dsn) as database:
        done = await maintain_database(
            database, interval=run.interval, ahead=run.ahead, force=run.force, archive=archive
        )
    clustered = await _cluster(dsn, run.closed_for, run.patience) if run.clusters else []
    more = {"clustered": [_clustered_values(each) for each in clustered]} if run.clusters else {}
    lines = [*_lines(done), *map(_clustered_line, clustered)] or ["nothing to do"]
    complete = not done.problems and not any(each.problem for each in clustered)
    return Answer({**_run_values(done), **more}, lines, exit_code=0 if complete else 1)


async def _again(dsn: str, run: _Run, archive: Archive | None, every: timedelta, *, as_json: bool) -> int:
    """Run again and again until a signal comes; a database that is away is waited for. Returns the exit code."""

    async def step() -> float:
        (await _once(dsn, run, archive)).echo(as_json=as_json)
        return every.total_seconds()

    def failed(error: Exception) -> None:
        if not isinstance(error, ProjectionsError):
            raise error
        click.echo(f"error: {hide_password(' '.join(str(error).split()))}", err=True)

    stop = asyncio.Event()
    with stopped_by_signals(stop, doing="stopping after the current run") as received:
        await Service("maintenance", step, restart=lambda _: every, failed=failed).run(stop)
    return received.exit_code


def _run_values(done: Maintained) -> dict[str, object]:
    return {
        "partitions": [_values(each) for each in done.made],
        "dropped": [_dropped_values(each) for each in done.dropped],
        "kept": [partition_values(each) for each in done.kept],
        "removed": done.removed,
    }


def _lines(done: Maintained) -> Iterator[str]:
    yield from map(_line, done.made)
    for each in done.dropped:
        yield from _dropped_lines(each)
    for partition in done.kept:
        holders = ", ".join(printable(str(holder)) for holder in partition.holders)
        yield f"kept: {printable(partition.name)}, {span(partition)}: {holders}"
    for part, removed in done.removed.items():
        if removed:
            yield f"{part}: {removed:,} removed that nobody used"


def _dropped_lines(dropped: DroppedPartition) -> Iterator[str]:
    name = f"{printable(dropped.partition.name)}, {span(dropped.partition)}"
    if dropped.problem:
        yield f"not dropped: {name}: {printable(dropped.problem)}"
        return
    yield f"dropped: {name}, {dropped.partition.bytes / 1e6:,.1f} MB{', archived' if dropped.archived else ''}"
    for lost in dropped.unread:
        yield f"  unread by {lost.kind} {printable(lost.name)}: {lost.rows:,} rows{_WHAT_TO_DO.get(lost.kind, '')}"


def _dropped_values(dropped: DroppedPartition) -> dict[str, object]:
    return {
        **{name: value for name, value in partition_values(dropped.partition).items() if name != "default"},
        "archived": dropped.archived,
        "unread": [picked(lost, "kind", "name", "rows") for lost in dropped.unread],
        "problem": dropped.problem,
    }


async def _cluster(dsn: str, closed_for: timedelta, patience: timedelta) -> list[ClusteredPartition]:
    progress = _tell if sys.stderr.isatty() else None
    async with connect(dsn) as database:
        return await cluster(database, closed_for=closed_for, patience=patience, progress=progress)


def _tell(partition: ClusteredPartition, stage: str) -> None:
    click.echo(f"{partition.name}, {partition.bytes_before / 1e6:,.0f} MB: {stage} ...", err=True)


def _clustered_values(partition: ClusteredPartition) -> dict[str, object]:
    names = ("name", "events", "bytes_before", "bytes_after", "problem")
    times = {"from": "from_timestamp", "to": "to_timestamp"}
    return picked(partition, *names, **times) | {"seconds": round(partition.seconds, 3)}


def _clustered_line(partition: ClusteredPartition) -> str:
    if partition.problem or partition.bytes_after is None:
        return f"not in slice order: {partition.name}: {partition.problem}"
    sizes = f"{partition.bytes_before / 1e6:,.1f} to {partition.bytes_after / 1e6:,.1f} MB"
    return (
        f"in slice order: {partition.name}: {partition.events:,} events, {sizes}, {partition.seconds:.1f} s"
    )


def _values(partition: MaintainedPartition) -> dict[str, object]:
    return picked(partition, "table", "moved", "problem", **{"from": "from_timestamp", "to": "to_timestamp"})


def _line(partition: MaintainedPartition) -> str:
    span_of = f"{partition.from_timestamp:%Y-%m-%d %H:%M} to {partition.to_timestamp:%Y-%m-%d %H:%M} UTC"
    bounds = f"{partition.table}: {span_of}"
    return (
        f"not made: {bounds}: {partition.problem}"
        if partition.problem
        else f"{bounds}: {partition.moved:,} rows moved"
    )
