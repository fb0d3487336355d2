"""``projections workers``."""

from __future__ import annotations

import click
from rich.table import Table

import offsets
from projections.terminal.connection import visit
from projections.terminal.options import dsn_option, echo_json, json_option
from projections.terminal.output import in_table, print_table

__all__ = ["workers"]


@click.command()
@dsn_option
@json_option
def workers(dsn: str | None, as_json: bool) -> None:
    """
    Show the processes that run projections, in the order in which they joined.

    A worker is alive as long as its lease runs, which every heartbeat prolongs; leaving, while it hands over its
    ranges. One whose lease has ended is gone without a word: the others take its ranges, and it is forgotten
    after an hour.
    """
    found = visit(dsn, offsets.workers)
    if as_json:
        echo_json(workers=[_values(worker) for worker in found])
        return
    table = Table("worker", "host", "pid", "state", "joined", "ranges", "slices", "projections")
    for worker in found:
        table.add_row(
            in_table(worker.owner), in_table(worker.host), str(worker.pid), _state(worker),
            f"{worker.joined_at:%Y-%m-%d %H:%M:%S}", str(worker.ranges), str(worker.slices),
            in_table(", ".join(worker.projections)),
        )  # fmt: skip
    print_table(table)


def _state(worker: offsets.WorkerStatus) -> str:
    if not worker.alive:
        return "lease ended"
    return "leaving" if worker.leaving else "alive"


def _values(worker: offsets.WorkerStatus) -> dict[str, object]:
    times = {"joined_at": worker.joined_at.isoformat(), "lease_until": worker.lease_until.isoformat()}
    return {**worker._asdict(), **times, "state": _state(worker)}
