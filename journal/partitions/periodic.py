"""
Maintenance as a chore of workers: of all that run, one does it each time that it is due.

It calls SQL functions that do what the settings in the database say and nothing else, with the rights of the schema's
owner: a worker needs no right of its own to make or drop a table.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

from journal import turns
from journal.database import Database, Row
from journal.errors import MissingPrivilege, SchemaError
from journal.service import Service, log_failure
from journal.tasks import running
from journal.turns import Turns

log = logging.getLogger("projections")

_CHORE = "maintenance"
_STEP = (
    "SELECT m.step, m.table_name, m.from_timestamp, m.to_timestamp, m.amount, m.problem, m.waited "
    "FROM projections.maintain_v1() AS m"
)
# As long as moving rows takes, whatever the role's default is: nobody waits for it.
_NO_TIMEOUT = "SELECT set_config('statement_timeout', '0', TRUE)"
_MOST_STEPS = 2000
_MOST_WAITS = 3
"""The most steps of a turn, and the most locks that it did not get while others waited: the next goes on."""


@asynccontextmanager
async def maintaining(database: Database, every: timedelta | None) -> AsyncIterator[None]:
    """
    Take turns with all other workers in maintaining the database, for the length of the block.

    Args:
        database: The database that has the schema, as :func:`journal.connect` opens it.
        every: How often one of them does; None: this one never.
    """
    if every is None:
        yield
        return

    async def work() -> bool:
        await _maintain(database)
        return False

    def failed(error: Exception) -> None:
        if isinstance(error, MissingPrivilege | SchemaError):
            log.warning(
                "this worker does not maintain the database: %s", error, extra={"action": "not_maintaining"}
            )
            chore.stop()
        else:
            log_failure(_CHORE, error, action="maintenance_failed")

    service = partial(Service, restart=lambda _: every / 10, failed=failed)
    chore = Turns(database, _CHORE, every, {"partitions": work}, service)
    async with running(chore.run()):
        yield


async def take_turn(database: Database, every: timedelta) -> int | None:
    """
    Maintain, if nobody has for this long; the role needs projections_worker.

    Returns:
        How many steps were done; None when it was not due.

    Raises:
        DatabaseError: The database refused, or cannot be reached.
    """
    return await _maintain(database) if await turns.take_turn(database, _CHORE, every) else None


async def _maintain(database: Database) -> int:
    done = waits = 0
    while done < _MOST_STEPS and waits < _MOST_WAITS:
        async with database.session() as session, session.transaction():
            await session.execute(_NO_TIMEOUT)
            rows = await session.fetch(_STEP)
        succeeded = sum([_told(row) for row in rows])
        if not succeeded:
            break
        done += succeeded
        waits += sum(row["waited"] for row in rows)
    return done


def _told(row: Row) -> bool:
    """Log a step; whether it was done."""
    step, table, start, stop, amount, problem, _ = row.values()
    if problem is not None:
        log.warning(
            "maintenance: to %s the partition of %s from %s to %s: %s", step, table, start, stop, problem,
            extra={"action": "maintenance_failed", "step": step, "table": table},
        )  # fmt: skip
        return False
    what = "rows moved into it" if step == "create" else "bytes freed"
    log.info(
        "maintenance: %s the partition of %s from %s to %s, %d %s", step, table, start, stop, amount, what,
        extra={"action": "maintained", "step": step, "table": table},
    )  # fmt: skip
    return True
