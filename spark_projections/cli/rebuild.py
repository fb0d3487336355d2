"""``projections rebuild``: a read model built again alongside the one that serves, and put in its place."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from journal import ALL_SLICES, ConnectionSettings, Database, Session, SliceRange
from projections.defining import Projection
from projections.durations import Duration
from projections.extras import from_extra
from projections.terminal import (
    INTERRUPTED,
    Answer,
    Dsn,
    Journal,
    JournalPrimary,
    Opt,
    ReadSide,
    Sides,
    connected,
    connected_journal,
    counted,
    derived,
    picked,
    printable,
    sides,
    table_of_values,
    visit_database,
)
from spark_projections.cli.archive import Master, context_of
from spark_projections.cli.verify import APP, compared, definition_of
from spark_projections.engine.jvm import JavaNotFound, UnsupportedJava, find_java
from spark_projections.rebuilds import bookkeeping
from spark_projections.rebuilds.bookkeeping import FoldedParts, Rebuild
from spark_projections.rebuilds.definition import WrittenTable, rebuildable
from spark_projections.rebuilds.fitting import unfit_for_rename
from spark_projections.rebuilds.interrupted import refuse_a_second
from spark_projections.rebuilds.journal import RebuiltFrom, SliceCount
from spark_projections.rebuilds.options import RebuildOptions, RebuildProgress, RebuildResult
from spark_projections.rebuilds.repairing import Comparison, repair, verify

if TYPE_CHECKING:
    from pyspark import SparkContext

_KNOWN = "SELECT projection_id, version FROM projections.projections WHERE name = $1"


def _slices(_: click.Context, __: click.Parameter, value: str | None) -> SliceRange:
    """Read ``0-255`` or ``7``."""
    if value is None:
        return ALL_SLICES
    first, dash, last = value.partition("-")
    try:
        return SliceRange.of(int(first), int(last if dash else first))
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not a range of slices: write 0-255; there are 0 to 1023"
        ) from None


_SOURCE = Opt(
    "Only the rows of this source, in place and at once, without Spark; may be repeated.",
    "--source", metavar="ID",
)  # fmt: skip
_SLICES = Opt("Only these, such as 0-255. Default: all.", callback=_slices, metavar="FROM-TO")
_SPLITS = Opt("Tasks to cut the work into. Default: 4 per core.", type=click.IntRange(1, 1024))
_ENGINE = Opt("Spark, or processes of this machine; auto is Spark where there is a Java for it.")
_UNTIL = Opt("Build it as of this time; workers handle what is later.")
_IN_PLACE = Opt("Replace rows instead of tables: keeps views, foreign keys, triggers.")
_KEPT = Opt("Build from the events that are left where old ones are deleted.")
_WITHIN = Opt("How long to try while others use the tables.", type=Duration())
_TIMEOUT = Opt(
    "How long the swap itself may take, for which readers and workers wait.",
    type=Duration(least="1ms"),
)


@click.command()
@click.pass_context
@derived
def rebuild(
    context: click.Context,
    /,
    name: str,
    *,
    targets: Annotated[tuple[str, ...], APP] = (),
    sources: Annotated[tuple[str, ...], _SOURCE] = (),
    slices: Annotated[Any, _SLICES] = None,
    splits: Annotated[int | None, _SPLITS] = None,
    master: Master = None,
    engine: Annotated[Literal["auto", "spark", "local"], _ENGINE] = "auto",
    until: Annotated[datetime | None, _UNTIL] = None,
    in_place: Annotated[bool, _IN_PLACE] = False,
    skip_failed: Annotated[bool, Opt("Go on after events that the handlers cannot handle.")] = False,
    from_first_kept: Annotated[bool, _KEPT] = False,
    restart: Annotated[bool, Opt("Begin again, whatever an interrupted rebuild has left.")] = False,
    swap_within: Annotated[timedelta, _WITHIN] = timedelta(minutes=5),
    swap_timeout: Annotated[timedelta, _TIMEOUT] = timedelta(seconds=60),
    dry_run: Annotated[bool, Opt("Say what would be done; change nothing.")] = False,
    dsn: Dsn = None,
    read_side: ReadSide = None,
    journal: Journal = None,
    journal_primary: JournalPrimary = None,
) -> Answer:
    """
    Build the read model of a projection again from the journal, and put it in the place of the one that serves.

    NAME is the projection's, with --app telling the module that defines it, or it is MODULE:OBJECT as for
    `projections worker`. The handlers run unchanged, in parallel over ranges of slices, and write to new tables
    alongside the old ones, which live workers keep fresh meanwhile. What was built is verified; then one short
    transaction swaps the tables and moves the offsets, and the workers go on from there: no event is missed, none
    counts twice. The old tables are kept in the schema projections_old_<id> until `projections rebuilds drop-old NAME`.

    With --source, the rows of single sources are repaired: compared with what the handlers make of the events that
    workers have handled of them, and replaced where they differ, in one transaction and alongside the live workers.
    Their tables are declared with Table(source=...) or per_source=True. Which rows differ: `projections verify NAME`.

    Appends that are in flight at the beginning are waited for. Ctrl-C removes what was built. When the process or the
    machine dies instead, run the same command again: it goes on where it was, unless the code has changed. Or end it
    by `projections rebuilds cancel NAME`.

    Connect as the role that owns the tables; it makes schemas, so it needs CREATE on the database. A journal in another
    database (--journal) is only read.

    \b
    Examples
      projections rebuild carrier-delays --app my_module
      projections rebuild my_module:CarrierDelays --dry-run
      projections rebuild carrier-delays --app my_module --slices 0-255
      projections rebuild plane-delays --app my_module --source N101 --source N102

    \b
    Exit codes
      0    done
      1    refused or failed; what serves is untouched, and the reason is on stderr
      2    the command line itself is wrong
      130  stopped by Ctrl-C, and cleaned up
    """  # noqa: D301 - click reads the escape
    definition = definition_of(name, targets)
    chosen = RebuildOptions(
        until=until,
        skip=skip_failed,
        swap_within=swap_within,
        swap_timeout=swap_timeout,
        slices=slices,
        splits=splits,
        in_place=in_place,
        from_first_kept=from_first_kept,
        restart=restart,
    )
    with sides(dsn, journal, read_side, journal_primary) as where:
        if sources:
            return _repaired(context, where, definition, sources, chosen, dry_run=dry_run)
        if dry_run:
            return visit_database(
                where.read_side, lambda database: _plan(database, where, definition, chosen)
            )
        rebuildable(definition, chosen.slices)  # what cannot be done is said before Java starts
        run_rebuild = _rebuilding()
        visit_database(
            where.read_side, lambda database: _refuse_a_second(database, where, definition, chosen)
        )
        with _engine(engine, master) as spark:
            result = asyncio.run(_run(run_rebuild, where, definition, chosen, spark))
    if result is None:
        click.echo("stopped; what was built is removed, and what serves is as it was", err=True)
        context.exit(INTERRUPTED)
    return _answer(result)


async def _refuse_a_second(
    database: Database, where: Sides, definition: Any, options: RebuildOptions
) -> None:
    """Before Java starts, too."""
    async with connected_journal(where) as journal, database.session() as session:
        await refuse_a_second(session, definition, options, journal)


async def _plan(database: Database, where: Sides, definition: Any, options: RebuildOptions) -> Answer:
    """What a rebuild would do; changes nothing."""
    projection, written = rebuildable(definition, options.slices)
    async with connected_journal(where) as elsewhere, database.session() as session:
        counts = await RebuiltFrom(database, elsewhere).counts(session, projection.entity_types)
        return await _planned(session, projection, written, options, counts)


async def _planned(
    session: Session,
    projection: Projection,
    written: Sequence[WrittenTable],
    options: RebuildOptions,
    counts: Mapping[int, SliceCount],
) -> Answer:
    known = await session.fetchrow(_KNOWN, projection.name)
    begun = await bookkeeping.unfinished(session, known["projection_id"]) if known else None
    unfit = await unfit_for_rename(session, written)
    in_the_way = unfit if options.method == "rename" else []
    values = {
        "projection": projection.name,
        "version": f"{known['version'] if known else 'none'} -> {projection.version}",
        "slices": str(options.slices),
        "events": sum(count.events for number, count in counts.items() if number in options.slices),
        "sources": sum(count.sources for number, count in counts.items() if number in options.slices),
        "method": options.method,
        "tables": {
            str(one): "combined of what sources share" if one.shared else "a source's own rows"
            for one in written
        },
        "in_the_way": in_the_way,
        "unfinished": f"{begun.state} since {begun.started_at:%Y-%m-%d %H:%M:%S %Z}" if begun else None,
    }
    note = "with --in-place, rows are replaced instead of tables" if in_the_way else None
    return Answer(values, [table_of_values("Would rebuild", values)], note=note)


_NOT_OF_A_SOURCE = ("slices", "splits", "master", "engine", "until", "in_place", "restart", "swap_timeout")


def _repaired(
    context: click.Context, where: Sides, definition: Any, sources: tuple[str, ...],
    options: RebuildOptions, *, dry_run: bool,
) -> Answer:  # fmt: skip
    for option in _NOT_OF_A_SOURCE:
        if context.get_parameter_source(option) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"--source goes without --{option.replace('_', '-')}: it repairs rows where they are"
            )

    async def work(database: Database) -> Comparison:
        async with connected_journal(where) as journal:
            if dry_run:
                kept = options.from_first_kept
                return await verify(
                    database, definition, sources=sources, from_first_kept=kept, journal=journal
                )
            with _showing() as progress:
                return await repair(
                    database, definition, sources, options, progress=progress, journal=journal
                )

    found = visit_database(where.read_side, work)
    said = "would be replaced" if dry_run else "replaced"
    return compared(found, f"{counted(found.differing, 'row')} of {counted(found.sources, 'source')} {said}")


def _without_spark() -> str | None:
    """Why Spark cannot run here; None where it can."""
    if find_spec("pyspark") is None:
        return "PySpark is not installed (pip install 'slice-projections[spark]')"
    try:
        find_java()
    except (JavaNotFound, UnsupportedJava) as error:
        return str(error)
    return None


@contextmanager
def _engine(engine: str, master: str | None) -> Iterator[SparkContext | None]:
    """Spark for the length of the block, or None for local processes."""
    if engine == "auto" and master is None:
        reason = _without_spark()
        if reason is not None:
            click.echo(f"runs in processes of this machine: {reason}", err=True)
        engine = "spark" if reason is None else "local"
    if engine != "local":
        click.echo("runs on Spark, which takes some seconds to start", err=True)
    with context_of(None if engine == "auto" else engine, master) as spark:
        yield spark


def _rebuilding() -> Callable[..., Awaitable[RebuildResult]]:
    """What rebuilds: imported when it is to run, so that the help and what only looks need no package of an extra."""
    with from_extra("arrow"):
        from spark_projections.rebuilds.rebuilding import rebuild as run  # noqa: PLC0415 - see above
    return run


async def _run(
    run_rebuild: Callable[..., Awaitable[RebuildResult]],
    where: Sides,
    definition: Any,
    options: RebuildOptions,
    spark: SparkContext | None,
) -> RebuildResult | None:
    """The result, or None when Ctrl-C has ended it."""
    with _showing() as progress:
        async with connected(where, ConnectionSettings(max_connections=2)) as (database, journal):
            work = asyncio.ensure_future(
                run_rebuild(
                    database,
                    where.read_side,
                    definition,
                    options,
                    spark=spark,
                    progress=progress,
                    journal=journal,
                )
            )
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, work.cancel)
            try:
                return await work
            except asyncio.CancelledError:
                return None
            finally:
                asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)


class _Shown(RebuildProgress):
    """Lines on stderr; on a terminal, a bar for the events."""

    def __init__(self, bar: Bar | None, console: Console) -> None:
        self._bar, self._console = bar, console
        self._task = None if bar is None else bar.add_task("fold", total=None, rate="", visible=False)
        self._began_at = time.monotonic()
        self._first: int | None = None
        self._shown = -1
        self._said = ""

    def stage(self, name: str) -> None:
        self._say({
            "fence": "fence: takes the time, and waits for appends in flight",
            "fold": "fold: runs the handlers over the journal",
            "combine": "combine: puts the parts of shared rows together",
            "verify": "verify: compares with the journal",
            "swap": "swap: puts the new tables in the place of the old",
        }[name])  # fmt: skip
        self._began_at = time.monotonic()

    def resumed(self, rebuild: Rebuild) -> None:
        self._say(f"goes on with the rebuild that was begun at {rebuild.started_at:%Y-%m-%d %H:%M:%S %Z}")

    def waiting(self, reason: str) -> None:
        if reason != self._said:
            self._said = reason
            self._say(reason)

    def folded(self, now: FoldedParts, total: int) -> None:
        if self._first is None:
            self._first = now.events
        rate = (now.events - self._first) / max(time.monotonic() - self._began_at, 0.001)
        text = f"{rate:,.0f} events/s, {now.done} of {now.parts} parts"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=now.events, total=total, rate=text, visible=True)
        elif total and (part := now.events * 20 // total) > self._shown:
            self._shown = part
            left = f", {(total - now.events) / rate:,.0f} s left" if rate and now.events < total else ""
            self._say(f"fold: {now.events:,} of {total:,} events, {text}{left}")

    def _say(self, text: str) -> None:
        self._console.print(printable(text), highlight=False, markup=False, soft_wrap=True)


@contextmanager
def _showing() -> Iterator[RebuildProgress]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Shown(None, console)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
    )
    with Bar(*columns, TimeRemainingColumn(), console=console, refresh_per_second=5) as bar:
        yield _Shown(bar, console)


def _answer(result: RebuildResult) -> Answer:
    fold = result.seconds.get("fold", 0.0)
    names = (
        "projection", "rebuild_id", "events", "skipped", "sources", "rows", "rows_before", "sampled", "resumed",
        "seconds", "swap_seconds", "old_schema",
    )  # fmt: skip
    values = picked(result, *names) | {
        "slices": str(result.slices),
        "fence": result.fence.isoformat(),
        "events_per_s": round(result.events / fold) if fold and not result.resumed else None,
    }
    old = f"the old tables are in {result.old_schema}: projections rebuilds drop-old {result.projection}"
    return Answer(values, [table_of_values(f"Rebuilt {printable(result.projection)}", values), old])
