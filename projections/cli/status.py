"""``projections status``, ``pause`` and ``resume``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, NamedTuple

import click

import offsets
from journal import Log, Session, entity_types
from projections.monitoring import (
    ProjectionLag,
    RangeLag,
    Snapshot,
    Vacancy,
    rebuilds_under_way,
    snapshot,
    vacancies,
)
from projections.terminal.ages import age
from projections.terminal.commands import Opt, derived
from projections.terminal.output import (
    NO_PROJECTION,
    Answer,
    Columns,
    PartOf,
    done,
    left_to,
    owner_of,
    picked,
    printable,
    table_or,
    type_keys,
    values_of,
)

_LONG = 1.0  # seconds after which an open transaction is worth a line


class _Report(NamedTuple):
    snapshot: Snapshot
    entity_types: Mapping[str | None, set[str]]
    """By journal, those that it has events of; None is the one in the database of the read models."""
    rebuilds: dict[str, datetime]
    """By projection, since when a rebuild of it is unfinished."""
    vacancies: Sequence[Vacancy]
    """Roles that nobody has; none where one projection was asked for."""


_NUMBERS = ("lag",)
_COLUMNS: Columns = {
    "projection": "name",
    "owners": lambda one: sorted({part.owner for part in one.ranges if part.alive and part.owner}) or "nobody",
    "state": "states", "ranges": lambda one: len(one.ranges), "lag": lambda one: age(one.lag),
    "backlog": "backlog", "parked": "parked",
}  # fmt: skip
_RANGE_COLUMNS: Columns = {
    "projection": "whole.name", "slices": "part.slices", "owner": lambda one: owner_of(one.part),
    "epoch": lambda one: str(one.part.epoch), "state": "part.state", "lag": lambda one: age(one.part.lag),
    "backlog": "part.backlog", "parked": "part.parked",
}  # fmt: skip


@click.command()
@derived(sides="all")
async def status(
    session: Session,
    journals: Sequence[Log],
    /,
    name: str | None = None,
    *,
    by_range: Annotated[bool, Opt("One line for each range of slices, and who runs it.", "--ranges")] = False,
) -> Answer:
    """
    Show what nobody does, whether each projection runs, how far it is, and what is wrong.

    A range is running, paused, restarting (it has failed, and waits before it starts again), parked (it runs, and
    sources of it wait for a decision: see `projections parked`), or unclaimed: no worker that is alive holds it.

    Lag is the age of the oldest event that is not handled, backlog the number of such events. A transaction that has
    appended and stays open holds back the horizon, up to which a restart need not look again.
    """
    report = await _report(session, name, journals)
    found = report.snapshot.projections
    parts = [PartOf(one, part) for one in found for part in one.ranges]
    columns, rows = (_RANGE_COLUMNS, parts) if by_range else (_COLUMNS, found)
    table = table_or(NO_PROJECTION, columns, rows, _NUMBERS)
    first = [printable(str(one)) for one in report.vacancies]
    return Answer(_values(report), [*first, table, *map(printable, _notes(report))])


@click.command()
@derived(sides="read")
async def pause(session: Session, /, name: str) -> Answer:
    """Pause a projection after the current batches. It stays paused until it is resumed, whatever is restarted."""
    await offsets.set_paused(session, name, paused=True)
    return done(f"projection {name!r} is paused", name=name, paused=True)


@click.command()
@derived(sides="read")
async def resume(session: Session, /, name: str) -> Answer:
    """Let a paused projection go on: its running workers take that in with their next heartbeat."""
    await offsets.set_paused(session, name, paused=False)
    answer = done(f"projection {name!r} is not paused", name=name, paused=False)
    return left_to(answer, f"worker of projection {name!r}", runs=await offsets.runs(session, name))


async def _report(session: Session, name: str | None, journals: Sequence[Log]) -> _Report:
    found = await snapshot(session, None if name is None else [name], journal=journals)
    return _Report(
        found,
        {
            one: set(await _entity_types(session, one, journals))
            for one in {each.journal for each in found.projections}
        },
        {one.name: one.started_at for one in await rebuilds_under_way(session)},
        await vacancies(session) if name is None else [],
    )


async def _entity_types(session: Session, name: str | None, journals: Sequence[Log]) -> list[str]:
    if name is None:
        return await entity_types(session)
    (journal,) = (one for one in journals if one.name == name)
    async with journal.session() as reading:
        return await entity_types(reading, queries=journal.queries)


def _notes(report: _Report) -> Iterator[str]:
    for found in report.snapshot.projections:
        for missing in sorted(set(found.entity_types.names or ()) - report.entity_types[found.journal]):
            yield f"projection {found.name!r}: there are no events of type {missing!r}"
        if found.mode == "inline":
            yield f"projection {found.name!r} is inline: who appends by projections.Inline handles what it appends"
        if (since := report.rebuilds.get(found.name)) is not None:
            yield (
                f"projection {found.name!r}: a rebuild is unfinished since {since:%Y-%m-%d %H:%M:%S %Z}; if "
                "nobody runs it, run it again to go on, or end it: projections rebuilds cancel NAME"
            )
        if found.note is not None:
            yield found.note
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


def _values(report: _Report) -> dict[str, object]:
    projections = [
        picked(found, "name", "journal", "version", "mode", "state", "paused", lag_seconds="lag")
        | picked(found, "backlog", "handled", "parked", "passed_over")
        | type_keys(found.entity_types)
        | {
            "rebuilding_since": report.rebuilds.get(found.name),
            "has_events": any(name in found.entity_types for name in report.entity_types[found.journal]),
            "ranges": [_range_values(part) for part in found.ranges],
        }
        for found in report.snapshot.projections
    ]
    writers = [
        picked(writer, "pid", "application_name", "started_at", age_seconds="age")
        for writer in report.snapshot.writers
    ]
    nobody = [values_of(one) for one in report.vacancies]
    return {"at": report.snapshot.at, "vacancies": nobody, "projections": projections, "writers": writers}


def _range_values(part: RangeLag) -> dict[str, object]:
    names = (
        "owner", "alive", "assigned_to", "epoch", "state", "backlog", "parked", "handled", "handled_at", "horizon",
        "failures", "error", "restarts_at",
    )  # fmt: skip
    return part.slices._asdict() | picked(part, *names, lag_seconds="lag")
