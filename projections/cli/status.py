"""``projections status``, ``pause`` and ``resume``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import click
from rich.table import Column, Table

import offsets
from journal import Session, entity_types
from projections.cli.lag import owner_of, states_of
from projections.monitoring import OpenWriter, ProjectionLag, RangeLag, Snapshot, snapshot
from projections.terminal.ages import age
from projections.terminal.connection import visit
from projections.terminal.options import dsn_option, echo_done, echo_json, json_option
from projections.terminal.output import in_table, print_table, printable

__all__ = ["pause", "resume", "status"]

_REBUILDS = """
SELECT p.name, p.version, b.started_at FROM projections.projections AS p
LEFT JOIN projections.rebuilds AS b ON p.projection_id = b.projection_id AND b.state IN ('folding', 'verified')
"""
_LONG = 1.0  # seconds after which an open transaction is worth a line


class _Report(NamedTuple):
    snapshot: Snapshot
    entity_types: set[str]
    """Those that the journal has events of."""
    versions: dict[str, int]
    """By projection."""
    rebuilds: dict[str, datetime]
    """By projection, since when a rebuild of it is unfinished."""


@click.command()
@click.argument("name", required=False)
@click.option(
    "--ranges", "by_range", is_flag=True, help="One line for each range of slices, and who runs it."
)
@dsn_option
@json_option
def status(name: str | None, by_range: bool, dsn: str | None, as_json: bool) -> None:
    """
    Show whether each projection runs, how far it is, and what is wrong.

    A range is running, paused, restarting (it has failed, and waits before it starts again), parked (it runs, and
    sources of it wait for a decision: see `projections parked`), or unclaimed: no worker that is alive holds it.

    Lag is the age of the oldest event that is not handled, backlog the number of such events. A transaction that has
    appended and stays open holds back the horizon, up to which a restart need not look again.
    """
    report = visit(dsn, lambda session: _report(session, name))
    if as_json:
        echo_json(**_values(report))
        return
    print_table((_by_range if by_range else _by_projection)(report.snapshot.projections))
    for line in _notes(report):
        click.echo(printable(line))


@click.command()
@click.argument("name")
@dsn_option
@json_option
def pause(name: str, dsn: str | None, as_json: bool) -> None:
    """Pause a projection after the batches at hand. It stays paused over restarts, until it is resumed."""
    visit(dsn, lambda session: offsets.set_paused(session, name, paused=True))
    echo_done(f"projection {name!r} is paused", as_json=as_json, name=name, paused=True)


@click.command()
@click.argument("name")
@dsn_option
@json_option
def resume(name: str, dsn: str | None, as_json: bool) -> None:
    """Let a paused projection go on."""
    visit(dsn, lambda session: offsets.set_paused(session, name, paused=False))
    echo_done(f"projection {name!r} goes on", as_json=as_json, name=name, paused=False)


def _by_projection(projections: Sequence[ProjectionLag]) -> Table:
    table = Table("projection", "owners", "state", *_numbers("ranges", "lag", "backlog", "parked"))
    for found in projections:
        owners = {part.owner for part in found.ranges if part.alive}
        table.add_row(
            in_table(found.name), in_table(", ".join(sorted(filter(None, owners))) or "nobody"), states_of(found),
            str(len(found.ranges)), age(found.lag), f"{found.backlog:,}", str(found.parked),
        )  # fmt: skip
    return table


def _by_range(projections: Sequence[ProjectionLag]) -> Table:
    table = Table("projection", "slices", "owner", "epoch", "state", *_numbers("lag", "backlog", "parked"))
    for found in projections:
        for part in found.ranges:
            table.add_row(
                in_table(found.name), str(part.slices), owner_of(part), str(part.epoch), part.state,
                age(part.lag), f"{part.backlog:,}", str(part.parked),
            )  # fmt: skip
    return table


def _numbers(*names: str) -> Iterator[Column]:
    return (Column(name, justify="right", no_wrap=True) for name in names)


async def _report(session: Session, name: str | None) -> _Report:
    found = await snapshot(session, None if name is None else [name])
    rows = await session.fetch(_REBUILDS)
    return _Report(
        found,
        set(await entity_types(session)),
        {row["name"]: row["version"] for row in rows},
        {row["name"]: row["started_at"] for row in rows if row["started_at"] is not None},
    )


def _notes(report: _Report) -> Iterator[str]:
    for found in report.snapshot.projections:
        if found.entity_type not in report.entity_types:
            yield f"projection {found.name!r}: there are no events of type {found.entity_type!r}"
        if (since := report.rebuilds.get(found.name)) is not None:
            yield (
                f"projection {found.name!r}: a rebuild is unfinished since {since:%Y-%m-%d %H:%M:%S %Z}; if "
                "nobody runs it, run it again to go on, or end it: projections rebuild NAME --cancel"
            )
        for part in found.ranges:
            if part.failures:
                yield _failure(found, part, report.snapshot)
    for writer in report.snapshot.writers:
        if writer.age > _LONG:
            who = "prepared" if writer.pid is None else f"pid {writer.pid} ({writer.application_name})"
            yield f"held back for {age(writer.age)} by an open transaction that has appended: {who}"


def _failure(found: ProjectionLag, part: RangeLag, at: Snapshot) -> str:
    times = "once" if part.failures == 1 else f"{part.failures} times in a row"
    left = 0.0 if part.restarts_at is None else (part.restarts_at - at.at).total_seconds()
    when = f"starts again in {age(left)}" if left > 0 else "is to start again"
    return f"projection {found.name!r}, slices {part.slices}: failed {times}, {when}: {part.error}"


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _values(report: _Report) -> dict[str, object]:
    return {
        "at": report.snapshot.at.isoformat(),
        "projections": [
            {
                "name": found.name,
                "entity_type": found.entity_type,
                "version": report.versions[found.name],
                "rebuilding_since": _iso(report.rebuilds.get(found.name)),
                "has_events": found.entity_type in report.entity_types,
                "paused": found.paused,
                "lag_seconds": found.lag,
                "backlog": found.backlog,
                "handled": found.handled,
                "parked": found.parked,
                "ranges": [_range_values(part) for part in found.ranges],
            }
            for found in report.snapshot.projections
        ],
        "writers": [_writer_values(writer) for writer in report.snapshot.writers],
    }


def _range_values(part: RangeLag) -> dict[str, object]:
    return {
        **part.slices._asdict(),
        "owner": part.owner,
        "alive": part.alive,
        "assigned_to": part.assigned_to,
        "epoch": part.epoch,
        "state": part.state,
        "lag_seconds": part.lag,
        "backlog": part.backlog,
        "parked": part.parked,
        "handled": part.handled,
        "handled_at": None if part.handled_at is None else part.handled_at.isoformat(),
        "horizon": part.horizon.isoformat(),
        "failures": part.failures,
        "error": part.error,
        "restarts_at": None if part.restarts_at is None else part.restarts_at.isoformat(),
    }


def _writer_values(writer: OpenWriter) -> dict[str, object]:
    return {
        "pid": writer.pid,
        "application_name": writer.application_name,
        "started_at": None if writer.started_at is None else writer.started_at.isoformat(),
        "age_seconds": writer.age,
    }
