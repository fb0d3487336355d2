"""One short visit to the webhooks of a database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from journal import ConnectionSettings, Database
from journal.database import connect
from journal.embedded import database_dsn
from journal.schema import check_version
from projections.webhooks.endpoints import Endpoints
from projections.webhooks.errors import InvalidQuery
from projections.webhooks.schedules import Schedules

__all__ = ["visit_database", "visit_endpoint", "whole_endpoint_id", "whole_schedule_id"]

T = TypeVar("T")

_CONNECTIONS = ConnectionSettings(max_connections=2, application_name="slice-projections webhooks")


def visit_database(dsn: str | None, work: Callable[[Database], Awaitable[T]]) -> T:
    """
    Do something with services that take sessions of their own, on a database with this library's schema.

    Args:
        dsn: The database that was named, or None.
        work: What to do there.

    Raises:
        ProjectionsError: The database can not be reached, is of another version, or refuses.
    """
    with database_dsn(dsn) as found:
        return asyncio.run(_visit(found, work))


def visit_endpoint(dsn: str | None, given: str, work: Callable[[Database, str], Awaitable[T]]) -> T:
    """
    Do something with an endpoint; see :func:`visit_database`.

    Args:
        dsn: The database that was named, or None.
        given: Its id, or the beginning of it.
        work: What to do, with the id.
    """

    async def found(database: Database) -> T:
        return await work(database, await whole_endpoint_id(database, given))

    return visit_database(dsn, found)


async def whole_endpoint_id(database: Database, given: str) -> str:
    """
    The id of an endpoint, of which the beginning is enough; what no id begins with, as it is.

    Raises:
        InvalidQuery: Several begin so.
    """
    # Ids that it begins come next after it in the order of lists.
    found = await Endpoints(database).list(None, after=given, limit=2)
    return _only(given, [one.endpoint_id for one in found])


async def whole_schedule_id(database: Database, given: str) -> str:
    """The id of a schedule, likewise."""
    found = await Schedules(database).list(None, after=given, limit=2)
    return _only(given, [one.schedule_id for one in found])


def _only(given: str, following: list[str]) -> str:
    found = [one for one in following if one.startswith(given)]
    if len(found) > 1:
        raise InvalidQuery(f"{given!r} begins several ids: write more of it")
    return found[0] if found else given


async def _visit(dsn: str, work: Callable[[Database], Awaitable[T]]) -> T:
    async with connect(dsn, _CONNECTIONS) as database:
        async with database.session() as session:
            await check_version(session)
        return await work(database)
