"""``projections wait``."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Annotated

import click

from journal import Database, Log
from projections.durations import Duration
from projections.terminal.commands import Arg, Opt, derived
from projections.terminal.output import Answer, done
from projections.waiting import wait_for

_Token = Opt("What to wait for: the token of an append, as the application gives it out.", metavar="TEXT")
_Timeout = Opt("How long to wait at most.", type=Duration(least="1ms"))


@click.command()
@derived(sides="both")
async def wait(
    database: Database,
    journal: Log | None,
    /,
    names: Annotated[tuple[str, ...], Arg("NAME...", required=True)],
    *,
    token: Annotated[str, _Token],
    timeout: Annotated[timedelta, _Timeout] = timedelta(seconds=30),  # noqa: ASYNC109 - an option of the command
) -> Answer:
    """
    Wait until projections have handled what was appended.

    The token is that of `appended.token` in Python, or of a header of your application. When the time is over, the exit
    code is 1, and the message says for each projection what holds it back: paused, parked, failing, no worker, behind.

    \b
    Example
      projections wait delays routes --token MS4xLjYzZjUuTjE --timeout 10s
    """  # noqa: D301 - click reads the escape
    began = time.perf_counter()
    await wait_for(database, names, token, timeout, journal=journal)
    seconds = round(time.perf_counter() - began, 3)
    text = f"handled by {' and '.join(map(repr, names))}"
    return done(text, projections=names, handled=True, seconds=seconds)
