"""``projections mode``."""

from __future__ import annotations

from typing import Literal

import click

import offsets
from journal import OwnedSession
from projections.terminal.commands import derived
from projections.terminal.output import Answer, done, left_to


@click.command()
@derived(sides="read")
async def mode(session: OwnedSession, /, name: str, to: Literal["inline", "live"]) -> Answer:
    """
    Have a projection handled by those who append (inline), or by its workers alone (live), while it runs.

    Inline, an application that appends by `projections.Inline` handles the events in the same transaction. Workers
    handle what others append, what is imported, and what was not handled before: keep them running. Nothing is lost,
    and nothing is handled twice. Transactions that are handling events inline are waited for; batches in flight
    roll back, and the workers go on within about a second.

    \b
    Examples
      projections mode carrier-delays inline
      projections mode carrier-delays live
    """  # noqa: D301 - click reads the escape
    await offsets.set_mode(session, name, to)
    answer = done(f"projection {name!r} is {to}", name=name, mode=to)
    runs = await offsets.runs(session, name)
    return left_to(answer, f"worker of projection {name!r}", runs=runs, is_done=True)
