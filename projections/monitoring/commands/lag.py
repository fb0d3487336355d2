"""``projections lag``: how far projections are behind; by range, slice or worker where that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import click
from rich.table import Table

from journal import Log, OwnedSession
from projections.monitoring import ProjectionLag, RangeLag, SliceLag, Snapshot, snapshot
from projections.monitoring.lag import LagOfRanges
from projections.terminal.ages import age, failing_above
from projections.terminal.commands import Opt, derived
from projections.terminal.options import FailAbove
from projections.terminal.output import (
    NO_PROJECTION,
    Answer,
    Columns,
    PartOf,
    at,
    owner_of,
    picked,
    printable,
    table_or,
    type_keys,
)

By = Literal["projection", "range", "slice", "worker"]
_By = Annotated[
    By | None,
    Opt("One line for each range of slices.", "--ranges", flag_value="range"),
    Opt("One line for each slice that is behind.", "--slices", flag_value="slice"),
    Opt("One line for each worker, and what it holds.", "--workers", flag_value="worker"),
]


@dataclass(frozen=True, slots=True)
class _Held(LagOfRanges):
    """What a worker that is alive holds, or what nobody does."""

    owner: str | None
    ranges: list[RangeLag]

    @property
    def slices(self) -> int:
        return sum(part.slices.max_slice - part.slices.min_slice + 1 for part in self.ranges)


@click.command()
@derived(watched=True, sides="all")
async def lag(
    session: OwnedSession,
    journals: Sequence[Log],
    /,
    name: str | None = None,
    *,
    by: _By = None,
    fail_above: FailAbove = None,
) -> Answer:
    """
    Show how far projections are behind: lag, the age of the oldest event that is not handled, and backlog,
    the number of such events.

    Both come from the database alone, exact whether or not a worker runs. Events of parked sources are not among
    them: the number of such sources has a column of its own. With --json, ranges are always told, and with
    --slices all 1,024 slices.

    \b
    Exit codes
      0    done; or --watch was stopped by SIGTERM
      1    refused or failed; the reason is on stderr
      2    the command line itself is wrong
      3    the lag of a projection is above --fail-above
      130  --watch was stopped by SIGINT (Ctrl-C)
    """  # noqa: D301, D205 - click reads the escape, and a first sentence may be longer than a line
    names, by = None if name is None else [name], by or "projection"
    found = await snapshot(session, names, by_slice=by == "slice", journal=journals)
    answer = Answer(_values(found, by), [*_shown(found, by)])
    return failing_above(answer, fail_above, "projections")


_LAG: Columns = {"lag": lambda one: age(one.lag), "backlog": "backlog", "parked": "parked"}
_PART_LAG: Columns = {
    "lag": lambda one: age(one.part.lag), "backlog": "part.backlog", "parked": "part.parked",
}  # fmt: skip
_COLUMNS: dict[By, Columns] = {
    "projection": {
        "projection": "name", "ranges": lambda one: len(one.ranges), "state": "states", **_LAG,
    },
    "range": {
        "projection": "whole.name", "slices": "part.slices", "owner": lambda one: owner_of(one.part),
        "state": "part.state", **_PART_LAG, "last handled": lambda one: at(one.part.handled_at, "never"),
    },
    "slice": {
        "projection": "whole.name", "slice": lambda one: str(one.part.slice),
        "owner": lambda one: one.part.owner or "nobody", "state": "part.state", **_PART_LAG,
    },
    "worker": {
        "worker": lambda one: one.owner or "nobody", "ranges": lambda one: len(one.ranges),
        "slices": lambda one: str(one.slices), **_LAG,
    },
}  # fmt: skip


def _shown(found: Snapshot, by: By) -> Iterator[str | Table]:
    rows: dict[By, Callable[[], Sequence[object]]] = {
        "projection": lambda: found.projections,
        "range": lambda: [PartOf(each, part) for each in found.projections for part in each.ranges],
        "slice": lambda: [PartOf(each, one) for each in found.projections for one in _behind(each)],
        "worker": lambda: _held(found),
    }
    nothing = "no slice has anything to handle" if found.projections else NO_PROJECTION
    yield table_or(nothing, _COLUMNS[by], rows[by](), {"lag"})
    for each in found.projections if by == "slice" else ():
        idle = len(each.slices) - len(_behind(each))
        yield printable(f"projection {each.name!r}: {idle:,} slices with nothing to handle")
    yield from (printable(each.note) for each in found.projections if each.note)


def _behind(projection: ProjectionLag) -> list[SliceLag]:
    behind = (one for one in projection.slices if one.backlog or one.parked)
    return sorted(behind, key=lambda one: (-one.lag, one.slice))


def _held(found: Snapshot) -> list[_Held]:
    """What each worker that is alive holds, and what nobody does."""
    held: dict[str | None, list[RangeLag]] = {w.owner: [] for w in found.workers if w.alive}
    for projection in found.projections:
        for part in projection.ranges:
            held.setdefault(part.owner if part.alive else None, []).append(part)
    return [_Held(*each) for each in held.items()]


def _values(found: Snapshot, by: By) -> dict[str, object]:
    values = {"at": found.at, "projections": [_projection_values(each, by) for each in found.projections]}
    if by == "worker":
        values["workers"] = [
            picked(one, "owner", "slices", "backlog", "parked", lag_seconds="lag")
            | {"ranges": len(one.ranges)}
            for one in _held(found)
        ]
    return values


def _projection_values(one: ProjectionLag, by: By) -> dict[str, object]:
    values = picked(one, "name", "journal", "state", "paused", "backlog", "parked", "handled")
    values |= picked(one, "passed_over", lag_seconds="lag") | type_keys(one.entity_types)
    if by == "slice":
        values["slices"] = [_part_values(part) | {"slice": part.slice} for part in one.slices]
    elif by != "worker":
        values["ranges"] = [part.slices._asdict() | _part_values(part) for part in one.ranges]
    return values


def _part_values(one: RangeLag | SliceLag) -> dict[str, object]:
    names = ("backlog", "parked", "handled_at", "owner", "epoch", "state")
    return picked(one, *names, lag_seconds="lag")
