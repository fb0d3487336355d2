"""``projections verify``: whether a read model is what the journal says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import click

from journal import Database, Log
from journal.suggestions import did_you_mean
from projections.defining import projection_of
from projections.terminal import (
    Answer,
    Columns,
    ComparingCommand,
    Opt,
    counted,
    derived,
    load_projections,
    picked,
    printable,
    shortened,
    table_of,
)
from spark_projections.rebuilds import repairing
from spark_projections.rebuilds.comparing import Difference
from spark_projections.rebuilds.definition import rebuildable
from spark_projections.rebuilds.refolding import EventOf
from spark_projections.rebuilds.repairing import Comparison

APP = Opt(
    "Where the projection is defined; may be repeated. Not needed where NAME is MODULE:OBJECT.",
    "--app", "-a", metavar="MODULE[:OBJECT]",
)  # fmt: skip
_SAMPLE = 100
_NAMED = 10
_TELL = 5.0  # seconds
_SOURCES = Opt(
    f"Handle the events of this many sources again, others each time. Default: {_SAMPLE}.",
    type=click.IntRange(1), metavar="N",
)  # fmt: skip
_ALL = Opt("Compare the whole read model, rows that sources share included.", "--all")
_KEPT = Opt("Go by the events that are left where old ones are deleted.")


class _Line(NamedTuple):
    """A line of what differs."""

    row: Difference
    column: str
    here: str | None
    there: str | None


_COLUMNS: Columns = {
    "table": "row.table",
    "key": lambda one: ", ".join(f"{name}={value}" for name, value in one.row.key.items()),
    "row is": "row.kind", "column": "column",
    "read model": lambda one: shortened(one.here), "journal": lambda one: shortened(one.there),
}  # fmt: skip


@click.command(cls=ComparingCommand)
@derived(sides="both")
async def verify(
    database: Database,
    journal: Log | None,
    /,
    name: str,
    *,
    targets: Annotated[tuple[str, ...], APP] = (),
    sources: Annotated[int | None, _SOURCES] = None,
    everything: Annotated[bool, _ALL] = False,
    from_first_kept: Annotated[bool, _KEPT] = False,
) -> Answer:
    """
    Compare the read model of a projection with the journal, and list the rows that differ. Changes nothing.

    NAME is the projection's, with --app telling the module that defines it, or it is MODULE:OBJECT as for
    `projections worker`. The handlers run over the events that workers have handled, and what they make is compared
    with the rows, all as of one moment: workers run on, and events that they have not handled yet do not count.

    It looks at a sample of the sources, at others each time. --all compares every row: it also finds rows that
    nothing in the journal has made, and it is the only way for tables whose rows several sources share. It takes as
    long as one process needs to handle all events, and holds back vacuum meanwhile.

    Sources that are parked, and events that the handlers cannot handle, are named: what they would change is not
    compared, and no difference.

    Connect as a role that may read the tables and the journal. A journal in another database is named by --journal.
    What differs is fixed by `projections rebuild NAME --source ID`, or `projections rebuild NAME` for the whole.

    \b
    Examples
      projections verify plane-delays --app my_module
      projections verify plane-delays --app my_module --sources 1000
      projections verify my_module:CarrierDelays --all --json

    \b
    Exit codes
      0    no row differs
      1    rows differ
      2    nothing was compared: refused or failed, or the command line itself is wrong; the reason is on stderr
      130  stopped by Ctrl-C
    """  # noqa: D301 - click reads the escape
    if everything and sources is not None:
        raise click.UsageError("--all looks at every source: pass it without --sources")
    definition = definition_of(name, targets)
    found = await repairing.verify(
        database,
        definition,
        sources=None if everything else sources or _SAMPLE,
        from_first_kept=from_first_kept,
        tell=_teller(),
        journal=journal,
    )
    looked = f"{counted(found.sources, 'source')} of {found.of_sources:,}"
    if not found.differing:
        return compared(found, f"no row differs: looked at {looked}, {counted(found.events, 'event')}")
    differ = "is" if found.differing == 1 else "are"
    return compared(
        found,
        f"looked at {looked}, {counted(found.events, 'event')}",
        complaint=f"{counted(found.differing, 'row')} of projection {name!r} {differ} not what the journal says: "
        f"to build the read model again, run `projections rebuild {name}{_app(targets)}`{_of_a_source(definition)}",
    )


def _app(targets: tuple[str, ...]) -> str:
    """The options that name the modules again."""
    return "".join(f" --app {target}" for target in targets)


def _of_a_source(definition: Any) -> str:
    """How to fix less than all, where rows can be told apart by their source."""
    _, written = rebuildable(definition)
    return "" if any(one.shared for one in written) else ", or of one source with --source ID"


def _teller() -> Callable[[int, int], None]:
    """Says on stderr how far it is, every few seconds."""
    last = time.monotonic()

    def tell(done: int, of_sources: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _TELL:
            last = time.monotonic()
            click.echo(f"verify: {done:,} of {of_sources:,} sources", err=True)

    return tell


def compared(found: Comparison, text: str, complaint: str | None = None) -> Answer:
    """The answer of a command that has compared rows with the journal: those that differ, and a line."""
    values = picked(
        found, "projection", "sources", "of_sources", "events", "skipped", "skipped_events", "parked", "parked_events",
        "differing", "repaired", "differences",
    )  # fmt: skip
    lines = [*_lines(found)]
    shown = [table_of(_COLUMNS, lines)] if lines else []
    notes = [text]
    if len(found.differences) < found.differing:
        notes.append(f"the first {len(found.differences):,} of {found.differing:,} rows are shown")
    if found.parked:
        what = f"{counted(found.parked, 'source')} parked, not compared from the event on that parks it"
        notes.append(f"{what}: {_named(found.parked_events, found.parked)}")
    if found.skipped:
        what = f"{counted(found.skipped, 'event')} left out, which the handlers cannot handle"
        notes.append(f"{what}: {_named(found.skipped_events, found.skipped)}")
    return Answer(values, [*shown, *notes], exit_code=int(complaint is not None), complaint=complaint)


def _named(events: Sequence[EventOf], total: int) -> str:
    """The first of them."""
    named = [f"{printable(one.source_id)} (seq_nr {one.seq_nr})" for one in events[:_NAMED]]
    more = [f"and {total - len(named):,} more"] if total > len(named) else []
    return ", ".join(named + more)


def _lines(found: Comparison) -> Iterator[_Line]:
    for row in found.differences:
        columns = row.columns or {"": (None, None)}
        yield from (_Line(row, column, here, there) for column, (here, there) in columns.items())


def definition_of(name: str, targets: tuple[str, ...]) -> Any:
    """The projection that a command names; click.UsageError: where it is defined is not said, or it is not there."""
    if not targets:
        if ":" not in name:
            raise click.UsageError(f"where is {name!r} defined? Add --app MODULE, or write MODULE:OBJECT")
        return load_projections([name])[0]
    found = {projection_of(definition).name: definition for definition in load_projections(targets)}
    if name not in found:
        raise click.BadParameter(
            f"no projection {name!r} in {', '.join(targets)}; there are {', '.join(found)}{did_you_mean(name, found)}"
        )
    return found[name]
