"""``projections lag``: how far projections are behind; by range, slice or worker where that is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Literal, TypeAlias

import click
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from journal import OwnedSession
from projections.monitoring import ProjectionLag, RangeLag, SliceLag, Snapshot, snapshot
from projections.terminal.ages import age, exit_above
from projections.terminal.connection import visit_session
from projections.terminal.durations import Duration
from projections.terminal.options import dsn_option, echo_json, json_option
from projections.terminal.output import in_table, print_table
from projections.terminal.watching import watch

__all__ = ["lag", "owner_of", "states_of"]

By: TypeAlias = Literal["projection", "range", "slice", "worker"]


@click.command()
@click.argument("name", required=False)
@click.option("--ranges", "by", flag_value="range", help="One line for each range of slices.")
@click.option("--slices", "by", flag_value="slice", help="One line for each slice that is behind.")
@click.option("--workers", "by", flag_value="worker", help="One line for each worker, and what it holds.")
@click.option("--watch", is_flag=True, help="Look again about every second, until Ctrl-C.")
@click.option(
    "--fail-above", type=Duration(), metavar="500ms|30s|5m|2h",
    help="Exit with code 3 when the lag of a projection is above this.",
)  # fmt: skip
@dsn_option
@json_option
@click.pass_context
def lag(  # noqa: PLR0917 - click passes all by name
    context: click.Context,
    /,
    name: str | None,
    by: By | None,
    watch: bool,
    fail_above: timedelta | None,
    dsn: str | None,
    as_json: bool,
) -> None:
    """
    Show how far projections are behind: lag, the age of the oldest event that is not handled, and backlog,
    the number of such events.

    Both come from the database alone, exact whether or not a worker runs. Events of parked sources are not among
    them: the number of such sources stands beside. With --json, ranges are always told, and with
    --slices all 1,024 slices.

    \b
    Exit codes
      0  done, also when --watch was ended by Ctrl-C
      1  refused or failed; the reason is on stderr
      2  the command line itself is wrong
      3  the lag of a projection is above --fail-above
    """  # noqa: D301, D205 - click reads the escape, and a first sentence may be longer than a line
    if watch and fail_above is not None:
        raise click.UsageError("--watch looks until it is ended: pass it without --fail-above")
    names, by = None if name is None else [name], by or "projection"
    if watch:
        with suppress(KeyboardInterrupt):
            visit_session(dsn, lambda session: _watch(session, names, by, as_json=as_json))
        return
    found = visit_session(dsn, lambda session: snapshot(session, names, by_slice=by == "slice"))
    _print(found, by, as_json=as_json)
    if fail_above is not None:
        exit_above(context, fail_above, [(p.name, p.lag) for p in found.projections])


def states_of(projection: ProjectionLag) -> str:
    """The state of all ranges, or how many are in each, the most frequent first: ``6 running, 2 parked``."""
    counts = Counter(part.state for part in projection.ranges).most_common()
    return counts[0][0] if len(counts) == 1 else ", ".join(f"{count} {state}" for state, count in counts)


def owner_of(part: RangeLag) -> Text:
    """Who holds a range."""
    if part.owner is None:
        return Text("nobody")
    return in_table(part.owner) + ("" if part.alive else " (lease ended)")


async def _watch(session: OwnedSession, names: list[str] | None, by: By, *, as_json: bool) -> None:
    await watch(
        lambda: snapshot(session, names, by_slice=by == "slice"),
        lambda found: _print(found, by, as_json=as_json),
        None if as_json else lambda found: _shown(found, by),
    )


def _print(found: Snapshot, by: By, *, as_json: bool) -> None:
    if as_json:
        echo_json(**_values(found, by))
    else:
        print_table(_table(found, by))
        for line in _notes(found, by):
            click.echo(line)


def _shown(found: Snapshot, by: By) -> RenderableType:
    return Group(_table(found, by), *(Text(line) for line in _notes(found, by)), Text(f"{found.at:%H:%M:%S}"))


def _table(found: Snapshot, by: By) -> Table:
    return {"projection": _by_projection, "range": _by_range, "slice": _by_slice, "worker": _by_worker}[by](
        found
    )


def _notes(found: Snapshot, by: By) -> Iterator[str]:
    if by == "slice":
        for projection in found.projections:
            idle = len(projection.slices) - len(_behind(projection))
            yield f"projection {projection.name!r}: {idle:,} slices with nothing to handle"


def _by_projection(found: Snapshot) -> Table:
    table = Table("projection", Column("ranges", justify="right"), "state", *_numbers())
    for projection in found.projections:
        table.add_row(
            in_table(projection.name), str(len(projection.ranges)), states_of(projection), *_cells(projection)
        )
    return table


def _by_range(found: Snapshot) -> Table:
    table = Table("projection", "slices", "owner", "state", *_numbers(), "last handled")
    for projection in found.projections:
        for part in projection.ranges:
            handled = "never" if part.handled_at is None else f"{part.handled_at:%Y-%m-%d %H:%M:%S}"
            table.add_row(
                in_table(projection.name),
                str(part.slices),
                owner_of(part),
                part.state,
                *_cells(part),
                handled,
            )
    return table


def _by_slice(found: Snapshot) -> Table:
    table = Table("projection", "slice", "owner", "state", *_numbers())
    for projection in found.projections:
        for one in sorted(_behind(projection), key=lambda one: (-one.lag, one.slice)):
            owner = in_table(one.owner or "nobody")
            table.add_row(in_table(projection.name), str(one.slice), owner, one.state, *_cells(one))
    return table


def _by_worker(found: Snapshot) -> Table:
    table = Table("worker", "ranges", "slices", *_numbers())
    for owner, parts in _held(found).items():
        cells = (str(len(parts)), str(sum(_size(part) for part in parts)))
        name = "nobody" if owner is None else in_table(owner)
        table.add_row(name, *cells, age(_lag(parts)), f"{_backlog(parts):,}", str(_parked(parts)))
    return table


def _numbers() -> Iterator[Column]:
    return (Column(name, justify="right", no_wrap=True) for name in ("lag", "backlog", "parked"))


def _cells(one: ProjectionLag | RangeLag | SliceLag) -> tuple[str, str, str]:
    return age(one.lag), f"{one.backlog:,}", str(one.parked)


def _behind(projection: ProjectionLag) -> list[SliceLag]:
    return [one for one in projection.slices if one.backlog or one.parked]


def _held(found: Snapshot) -> dict[str | None, list[RangeLag]]:
    """What each worker that is alive holds, and what nobody does."""
    held: dict[str | None, list[RangeLag]] = {w.owner: [] for w in found.workers if w.alive}
    for projection in found.projections:
        for part in projection.ranges:
            held.setdefault(part.owner if part.alive else None, []).append(part)
    return held


def _size(part: RangeLag) -> int:
    return part.slices.max_slice - part.slices.min_slice + 1


def _lag(parts: list[RangeLag]) -> float:
    return max((part.lag for part in parts), default=0.0)


def _backlog(parts: list[RangeLag]) -> int:
    return sum(part.backlog for part in parts)


def _parked(parts: list[RangeLag]) -> int:
    return sum(part.parked for part in parts)


def _values(found: Snapshot, by: By) -> dict[str, object]:
    values: dict[str, object] = {"at": found.at.isoformat()}
    values["projections"] = [_projection_values(projection, by) for projection in found.projections]
    if by == "worker":
        values["workers"] = [_worker_values(owner, parts) for owner, parts in _held(found).items()]
    return values


def _projection_values(projection: ProjectionLag, by: By) -> dict[str, object]:
    values: dict[str, object] = {
        "name": projection.name,
        "entity_type": projection.entity_type,
        "paused": projection.paused,
        "lag_seconds": projection.lag,
        "backlog": projection.backlog,
        "parked": projection.parked,
        "handled": projection.handled,
    }
    if by == "slice":
        values["slices"] = [{"slice": one.slice, **_part_values(one)} for one in projection.slices]
    elif by != "worker":
        values["ranges"] = [{**part.slices._asdict(), **_part_values(part)} for part in projection.ranges]
    return values


def _part_values(one: RangeLag | SliceLag) -> dict[str, object]:
    return {
        "lag_seconds": one.lag,
        "backlog": one.backlog,
        "parked": one.parked,
        "handled_at": None if one.handled_at is None else one.handled_at.isoformat(),
        "owner": one.owner,
        "epoch": one.epoch,
        "state": one.state,
    }


def _worker_values(owner: str | None, parts: list[RangeLag]) -> dict[str, object]:
    return {
        "owner": owner,
        "ranges": len(parts),
        "slices": sum(_size(part) for part in parts),
        "lag_seconds": _lag(parts),
        "backlog": _backlog(parts),
        "parked": _parked(parts),
    }
