"""``projections workers``."""

from __future__ import annotations

import click

import offsets
from journal import Session
from projections.terminal.command_group import ListGroup
from projections.terminal.commands import derived
from projections.terminal.output import Answer, Columns, listing, values_of

__all__ = ["workers"]


@click.group(cls=ListGroup)
def workers() -> None:
    """Show the processes that run projections. Without the name of a command it is `list`."""


@workers.command(name="list")
@derived(sides="read")
async def list_(session: Session, /) -> Answer:
    """
    Show the processes that run projections, in the order in which they joined.

    A worker is alive as long as its lease runs, which every heartbeat prolongs; leaving, while it hands over its
    ranges. One whose lease has ended is gone without a word: the others take its ranges, and it is forgotten
    after an hour.
    """
    found = await offsets.workers(session)
    return listing("workers", found, _COLUMNS, nothing="no worker runs", values=_values)


def _values(one: offsets.WorkerStatus) -> dict[str, object]:
    return values_of(one) | {"state": _state(one)}


def _state(worker: offsets.WorkerStatus) -> str:
    if not worker.alive:
        return "lease ended"
    return "leaving" if worker.leaving else "alive"


_COLUMNS: Columns = {
    "worker": "owner", "host": "host", "pid": lambda one: str(one.pid), "state": _state, "joined": "joined_at",
    "ranges": "ranges", "slices": lambda one: str(one.slices), "projections": "projections",
}  # fmt: skip
