"""``projections rescale``."""

from __future__ import annotations

import click

import offsets
from journal import OwnedSession
from projections.terminal.commands import derived
from projections.terminal.options import NewRanges
from projections.terminal.output import Answer, left_to, rescaled


@click.command()
@derived(sides="read")
async def rescale(session: OwnedSession, /, name: str, *, ranges: NewRanges) -> Answer:
    """
    Cut the slices of a projection into another number of ranges, while it runs.

    Progress is kept: nothing is lost, and nothing is handled twice. Batches in flight roll back, and the workers
    share the new ranges within about a second. Workers share ranges: make at least as many as
    you will run workers, and no more than about four for each. A projection that reads several journals has so many of
    each, or of the one that is named, as NAME@JOURNAL.
    """
    before = await offsets.statuses(session, [name])
    await offsets.rescale(session, name, ranges)
    each = [rescaled("projection", one.name, len(one.ranges), ranges) for one in before]
    lines = [line for one in each for line in one.shown]
    answer = each[0] if len(each) == 1 else Answer({"projections": [one.values for one in each]}, lines)
    runs = await offsets.runs(session, name)
    return left_to(answer, f"worker of projection {name!r}", runs=runs, is_done=True)
