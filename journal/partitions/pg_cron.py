"""Maintenance by pg_cron, inside the database: nothing else needs to run for it."""

from __future__ import annotations

from dataclasses import dataclass

from journal.database import Session

_JOB = "projections-maintain"
_EVERY_MINUTE = "* * * * *"
_COMMAND = "SELECT * FROM projections.maintain_v1()"

_INSTALLED = "SELECT count(*) FROM pg_catalog.pg_extension AS e WHERE e.extname = 'pg_cron'"
_NAME = "SELECT quote_literal(current_database())"
_HERE = f"SELECT cron.schedule('{_JOB}', '{_EVERY_MINUTE}', '{_COMMAND}')"
_ELSEWHERE = f"SELECT cron.schedule_in_database('{_JOB}', '{_EVERY_MINUTE}', '{_COMMAND}', {{}})"


@dataclass(frozen=True, slots=True)
class CronJob:
    """
    A job of pg_cron.

    Args:
        statement: The SQL statement that schedules the job.
        scheduled: Whether that was run; else pg_cron is not in this database: run it in the one it is in.
    """

    statement: str
    scheduled: bool


async def schedule(session: Session) -> CronJob:
    """
    Have pg_cron do one step of maintenance a minute; running it again changes nothing.

    The role must own the schema, and may use pg_cron.

    Raises:
        DatabaseError: pg_cron refused.
    """
    if not await session.fetchval(_INSTALLED):
        return CronJob(_ELSEWHERE.format(await session.fetchval(_NAME)), scheduled=False)
    await session.fetchval(_HERE)
    return CronJob(_HERE, scheduled=True)
