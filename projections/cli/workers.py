"""``projections workers``."""

from __future__ import annotations

from typing import Annotated

import click

import offsets
from journal import NotFound, Session
from projections.terminal.command_group import ListGroup
from projections.terminal.commands import Arg, derived
from projections.terminal.output import (
    Answer,
    Columns,
    PartOf,
    at,
    counted,
    facts,
    listing,
    row_of,
    table_or,
    values_of,
)


@click.group(cls=ListGroup)
def workers() -> None:
    """
    List and show the processes that run projections.

    \b
      projections workers                   all of them
      projections workers show WORKER       one, with the ranges that it holds

    Without a command, `list` is run.
    """  # noqa: D301 - click reads the escape


@workers.command(name="list")
@derived(sides="read")
async def list_(session: Session, /) -> Answer:
    """
    List the processes that run projections, in the order in which they joined.

    A worker is alive as long as its lease runs, which every heartbeat prolongs, and leaving while it hands over its
    ranges. When the lease of one has ended, the others take its ranges; it is listed for another hour.
    """
    found = await offsets.workers(session)
    return listing("workers", found, _COLUMNS, nothing="no worker runs", values=_values)


@workers.command()
@derived(sides="read")
async def show(session: Session, /, owner: Annotated[str, Arg("WORKER")]) -> Answer:
    """Show a worker and each range that it holds: since when, how far it is, and its error where it fails."""
    one = next((each for each in await offsets.workers(session) if each.owner == owner), None)
    if one is None:
        raise NotFound(f"there is no worker {owner!r}: `projections workers` lists them", "unknown_worker")
    statuses = await offsets.statuses(session, [*one.slices])
    held = [PartOf(each.name, part) for each in statuses for part in each.ranges if part.owner == owner]
    return facts(
        _values(one) | {"held": [_held_values(part) for part in held]},
        row_of(_COLUMNS, one) | {"lease until": one.lease_until},
        table_or("it holds no range", _HELD, held),
    )


def _values(one: offsets.WorkerStatus) -> dict[str, object]:
    return values_of(one) | {"state": _state(one)}


def _held_values(held: PartOf) -> dict[str, object]:
    names = ("claimed_at", "horizon", "handled", "handled_at", "failures", "error")
    part = held.part
    return {
        "projection": held.whole,
        **part.slices._asdict(),
        **{name: getattr(part, name) for name in names},
    }


def _state(worker: offsets.WorkerStatus) -> str:
    if not worker.alive:
        return "lease ended"
    return "leaving" if worker.leaving else "alive"


_COLUMNS: Columns = {
    "worker": "owner", "host": "host", "pid": lambda one: str(one.pid), "state": _state, "joined": "joined_at",
    "ranges": "ranges", "holds": lambda one: [f"{name} ({counted(n, 'slice')})" for name, n in one.slices.items()],
}  # fmt: skip
_HELD: Columns = {
    "projection": "whole", "slices": "part.slices", "claimed": "part.claimed_at",
    "last handled": lambda one: at(one.part.handled_at, "never"), "events handled": "part.handled",
    "error": lambda one: one.part.error or "-",
}  # fmt: skip
