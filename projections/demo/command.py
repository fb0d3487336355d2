"""``projections demo``: real flights, exactly once, and the proof."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import click

from journal import NUMBER_OF_SLICES
from projections.demo.database import DemoDatabases, demo_databases
from projections.demo.demo import DEFAULT_EVENTS, Demo, Latency, Options, Result
from projections.demo.errors import DemoError, DemoInterrupted
from projections.demo.flights import data_file
from projections.demo.progress import Reporter, reporting
from projections.demo.rebuilding import RebuildComparison, Rebuilder
from projections.demo.stores import SYSTEMS
from projections.extras import from_extra, registered
from projections.running import loop_runner
from projections.terminal.command_group import INTERRUPTED
from projections.terminal.commands import Dsn, Opt, derived
from projections.terminal.logs import configure_logs
from projections.terminal.output import Answer, picked, table_of_values
from projections.terminal.signals import stopped_by_signals

if TYPE_CHECKING:  # of an extra
    from projections.demo.webhooks import Arrivals

_SIGNAL_BASE = 128
_MOST_SHOWN = 5  # rows that differ
_MOST_WORKERS = 8  # each takes connections, of which a server has 100
_RANGES = Opt(
    "Cut the slices of each projection into this many ranges, which run side by side.",
    type=click.IntRange(1, NUMBER_OF_SLICES), show_default="2, or one for each worker",
)  # fmt: skip
_WORKERS = Opt(
    "Run the projections in this many processes, cut their ranges again while they run, and kill one. "
    "0: in one, to which nothing happens.",
    type=click.IntRange(0, _MOST_WORKERS), show_default=True,
)  # fmt: skip


_READ_SIDE = Opt(
    "Write the read models into another database: its DSN, or `beside` for one that the demo makes on the same server.",
    metavar="DSN|beside",
)
_FROM = Opt(
    "Append by another system: the package eventsourcing, or plain rows in a table of their own.",
    "--from", type=click.Choice(sorted(SYSTEMS)),
)  # fmt: skip


@click.command()
@click.pass_context
@derived
def demo(
    context: click.Context,
    /,
    *,
    events: Annotated[
        int, Opt("Append this many events, the first of the year.", type=click.IntRange(1))
    ] = DEFAULT_EVENTS,
    everything: Annotated[bool, Opt("Append all of them, about 660,000.", "--all")] = False,
    ranges: Annotated[int | None, _RANGES] = None,
    workers: Annotated[int, _WORKERS] = 0,
    spark: Annotated[
        bool, Opt("Rebuild the read models half way, on Spark, while all the rest goes on.")
    ] = False,
    webhooks: Annotated[
        bool,
        Opt("Send delayed departures to receivers that fail at random, and see that every one arrives."),
    ] = False,
    inline: Annotated[bool, Opt("Handle the events in the transactions that append them.")] = False,
    sql: Annotated[bool, Opt("Declare both read models in SQL, in place of handlers.")] = False,
    reset: Annotated[bool, Opt("Begin again, even where an interrupted run could be continued.")] = False,
    read_side: Annotated[str | None, _READ_SIDE] = None,
    system: Annotated[str | None, _FROM] = None,
    dsn: Dsn = None,
) -> Answer:
    """
    Run real flights through a journal and two projections, and prove that each event counted once.

    The flights that left New York in 2013 become events of their planes: Departed, Landed or Cancelled, in the
    order in which they happened. One process appends them to the journal while another already reads, and
    writes two read models: delays by carrier and day, and departures by airport and hour. The last 300 events
    are appended one at a time, to measure how soon an event is handled. At the end both read models are computed
    again from the CSV file in plain Python, and every row is compared.

    Kill it at any time, by kill -9 if you like, and run it again: it goes on where it was, and ends the same.
    After a run that has come to its end, the next one begins again.

    With --workers 4, four worker processes share the ranges. While the events are appended, the slices are cut
    into twice as many ranges, and one worker is killed by SIGKILL: the others take over its ranges when its lease
    has ended, which is 2 s here.

    With --spark, appending stops half way until Spark has started. While it goes on, and the live projections with
    it, Spark builds both read models again from the journal, alongside those that serve, and each is swapped in: the
    live projections go on from its fence. What Spark built is compared with the CSV file up to the fence, and at
    the end everything as ever. It needs pip install 'slice-projections[demo,spark]'; Java comes with that.

    With --webhooks, each departure that was two hours late or more is sent, signed, to a receiver for its airport.
    The receivers fail one request in five at random; each is tried again until it arrives. At the end what has
    arrived is compared with the CSV file. It needs pip install 'slice-projections[demo,webhooks]'.

    With --read-side, the journal is in one database and the read models are in another, where effects and offsets
    commit together; the journal is only read.

    With --from eventsourcing, several applications of that package save the flights as aggregates, by its own API, in
    a database where nothing else is installed. The workers read its table, and write the read models into another
    database. It needs pip install 'slice-projections[demo,eventsourcing]'. With --from table, several writers insert
    plain rows. Large transactions commit after small ones that have higher numbers: who only reads forward loses
    them. No lag in seconds is shown, and no wait_ms.

    With --inline, the process that appends handles the events in the same transactions; the workers stand by.

    With --sql, both read models are declared by a SELECT, which PostgreSQL runs for each batch of events; with
    --spark, too, tasks of Spark rebuild them by the same SELECT. It needs pip install 'slice-projections[demo,sql]'.

    Without a DSN it makes a database `projections_demo` on a PostgreSQL of your own, which starts and stops with
    it. With one, it uses that database if the journal in it is empty or the demo's. To look at what it wrote:
    the tables are in the schema `projections_demo`.

    \b
    What --json prints
      appended            events in the journal
      handled             effects of events on the read models
      lost, duplicated    events without an effect; effects beyond an event's first
      read_models_match   whether every row is what the CSV file says
      append_per_s        batches of 500, while the projections read; null for less than 1,000 events
      handle_per_s        from the first append to the last effect, by both projections together; or null
      latency_ms          from the start of an event's commit to the end of its handling
      wait_ms             from there until the process that appended it knows that both have handled it
      workers             processes that ran the projections; 0 for one to which nothing happens
      takeovers           ranges that were taken over from a worker that had died
      rescales            how often the slices were cut into another number of ranges
      seconds             all in all, set-up and comparison included
    With --spark, also:
      rebuilt_matches     whether every row that Spark built is what the CSV file says up to the fence
      rebuild_seconds     of both read models, from the request to the swap; Spark runs already
      rebuild_rows_per_s  events that were read for it, in these seconds
      append_per_s and handle_per_s leave out the wait for Spark
    With --inline, handle_per_s and latency_ms are null, and also:
      handled_by_workers  events that were left to the workers, of both projections
    With --webhooks, also:
      webhooks_delivered  delayed departures that arrived, each counted once
      webhooks_lost       delayed departures that did not
      signatures_bad      requests with a wrong signature, or about what is not in the CSV file
      webhook_attempts    requests, with those that the receivers failed

    \b
    Exit codes
      0    every event counted once, and every row is right
      1    something differs, or the demo could not run; the reason is on stderr
      2    the command line itself is wrong
      130  stopped by Ctrl-C; 143 by SIGTERM
    """  # noqa: D301 - click reads the escape
    if everything and context.get_parameter_source("events") is not click.core.ParameterSource.DEFAULT:
        raise click.UsageError("--events and --all contradict each other: give one of them")
    _check_workers(workers, ranges)
    if (read_side is not None or system is not None) and (spark or webhooks or inline or sql):
        raise click.UsageError(
            "--read-side and --from go without --spark, --webhooks, --inline and --sql: those need a journal of this "
            "library and read models in one place"
        )
    if sql and inline:
        raise click.UsageError(
            "--sql goes without --inline: read models in SQL are kept in batches, by workers"
        )
    configure_logs("text", "error")  # that the journal is empty at first is not news here
    began_at = time.monotonic()
    options = Options(
        events=None if everything else events, ranges=ranges, workers=workers, webhooks=webhooks, inline=inline,
        sql=sql, reset=reset, system=system,
    )  # fmt: skip
    try:
        outcome = _run(dsn, read_side, options, spark=spark)
    except KeyboardInterrupt:  # before the projections have started
        outcome = INTERRUPTED
    if isinstance(outcome, int):
        click.echo("stopped; run it again to go on", err=True)
        context.exit(outcome)
    values = _values(outcome, time.monotonic() - began_at)
    if system is not None:
        del values["wait_ms"]  # what other systems append has no token to wait for
    table = table_of_values("Flights from New York in 2013", values, none="too few to measure")
    _tell_differences([*outcome.differences, *(outcome.rebuild.differences if outcome.rebuild else ())])
    return Answer(values, [table], exit_code=0 if outcome.good else 1)


def _check_workers(workers: int, ranges: int | None) -> None:
    if workers == 1:
        raise click.UsageError(
            "--workers 1: one is killed, and there would be none to take over; give 2 or more"
        )
    if ranges is not None and ranges < workers:
        raise click.UsageError(f"--ranges {ranges} are too few for --workers {workers}: each needs one")


def _run(dsn: str | None, read_side: str | None, options: Options, *, spark: bool) -> Result | int:
    """The result, or the exit code of a run that was stopped."""
    data_file()  # what is missing is said before a database is made
    if options.system == "eventsourcing":
        with from_extra("demo,eventsourcing"):
            import eventsourcing  # noqa: F401, PLC0415 - of an extra
    if options.sql:
        with from_extra("demo,sql"):
            import sqlglot  # noqa: F401, PLC0415 - of an extra
    batching = _batching() if spark else nullcontext()
    with reporting() as report:
        report.step("starting the database and Spark" if spark else "starting the database")
        with (
            demo_databases(dsn, read_side, options.system) as databases,
            batching as batch,
            loop_runner() as runner,
        ):
            return runner.run(_until_stopped(databases, options, report, batch))


def _batching() -> AbstractContextManager[Rebuilder]:
    """What rebuilds on Spark, for the length of a block."""
    try:
        (spark_batch,) = registered("projections.demos", "spark")
    except ImportError as error:
        raise DemoError(
            f"--spark needs packages that are not installed ({error}): pip install 'slice-projections[demo,spark]'"
        ) from error
    batching: AbstractContextManager[Rebuilder] = spark_batch()
    return batching


async def _until_stopped(
    databases: DemoDatabases, options: Options, report: Reporter, batch: Rebuilder | None
) -> Result | int:
    stop = asyncio.Event()
    with stopped_by_signals(stop) as received:
        try:
            return await Demo(databases, options, report, stop, batch).run()
        except DemoInterrupted:
            return _SIGNAL_BASE + received.number if received.number else INTERRUPTED


def _tell_differences(differences: Sequence[str]) -> None:
    for line in differences[:_MOST_SHOWN]:
        click.echo(line, err=True)
    if len(differences) > _MOST_SHOWN:
        click.echo(f"... {len(differences):,} rows differ", err=True)


def _values(result: Result, seconds: float) -> dict[str, Any]:
    return {
        **result.counts._asdict(),
        "read_models_match": result.read_models_match,
        "append_per_s": result.append_per_s and round(result.append_per_s),
        "handle_per_s": result.handle_per_s and round(result.handle_per_s),
        "latency_ms": _milliseconds(result.latency),
        "wait_ms": _milliseconds(result.wait),
        "workers": result.workers,
        **result.moves._asdict(),
        **_rebuilt(result.rebuild),
        **_arrived(result.arrivals),
        **({} if result.handled_by_workers is None else {"handled_by_workers": result.handled_by_workers}),
        "seconds": round(seconds, 1),
    }


def _milliseconds(latency: Latency | None) -> dict[str, float | None]:
    if latency is None:
        return {"p50": None, "p99": None}
    return {"p50": round(latency.p50, 2), "p99": round(latency.p99, 2)}


def _rebuilt(rebuild: RebuildComparison | None) -> dict[str, Any]:
    if rebuild is None:
        return {}
    return {
        "rebuilt_matches": not rebuild.differences,
        "rebuild_seconds": round(rebuild.seconds, 1),
        "rebuild_rows_per_s": round(rebuild.rows_per_s),
    }


def _arrived(arrivals: Arrivals | None) -> dict[str, Any]:
    if arrivals is None:
        return {}
    renamed = {"webhooks_delivered": "delivered", "webhooks_lost": "lost", "signatures_bad": "bad"}
    return picked(arrivals, **renamed, webhook_attempts="attempts")
