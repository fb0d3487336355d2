"""Rows that tenants have, each by its id: endpoints and schedules are got, listed and removed in the same way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import ConfigDict, Field, PlainSerializer

from journal import Database, NotFound, Row, Session
from journal.limits import check_limit
from projections.webhooks.errors import InvalidQuery, own_errors

T = TypeVar("T")

DESCRIBED = ConfigDict(use_attribute_docstrings=True, json_schema_serialization_defaults_required=True)
"""Of rows that the API shows as they are: its document says of a field what stands below it."""

HIDDEN = Field(exclude=True)
"""Of a field of such a row: the API does not show it."""

Json = Annotated[Any, PlainSerializer(lambda value: value, return_type=Any)]
"""Any JSON, byte by byte as it was written."""


class TenantRows(ABC, Generic[T]):
    """Those of all tenants. Where a tenant is given, those of others are not there; None is for administrators."""

    _kind: ClassVar[str]
    """What they are called in the names of tables and ids."""
    _remove: ClassVar[str]
    """Takes the tenant, the id and the version."""
    _columns: ClassVar[str]

    def __init__(self, database: Database) -> None:
        self._database = database

    @staticmethod
    @abstractmethod
    def _read(row: Row) -> T:
        """What a row with the columns says."""

    async def get(self, tenant: str | None, row_id: str) -> T:
        """
        The one with this id.

        Raises:
            NotFound: The tenant has none of this id.
        """
        async with self._database.session() as session:
            return await self._get(session, tenant, row_id)

    async def list(
        self,
        tenant: str | None,
        *,
        next: str | None = None,  # noqa: A002 - its name in the HTTP API
        limit: int = 100,
    ) -> Sequence[T]:
        """
        Those of a tenant, or of all, in the order of their ids.

        Args:
            tenant: The tenant; None is for administrators.
            next: The id of the last one on a page, to get the page after it.
            limit: The largest number of rows to return, 1 to 1,000.

        Raises:
            InvalidValue: The limit is out of range.
        """
        check_limit(limit, InvalidQuery)
        sql = f"""
        SELECT {self._columns} FROM projections.webhook_{self._kind}s
        WHERE ($1::text IS NULL OR tenant = $1) AND {self._kind}_id > $2 ORDER BY {self._kind}_id LIMIT $3
        """
        async with self._database.session() as session:
            return [self._read(row) for row in await session.fetch(sql, tenant, next or "", limit)]

    async def remove(self, tenant: str | None, row_id: str, *, version: int | None = None) -> None:
        """
        Remove one: an endpoint with its deliveries, but not what is logged; a schedule, but not what it has sent.

        Raises:
            NotFound: The tenant has none of this id.
            NotAllowed: It has another version than the one that is named.
        """
        async with self._database.session() as session:
            await call(session, self._remove, tenant, row_id, version)

    async def _get(self, session: Session, tenant: str | None, row_id: str) -> T:
        sql = f"""
        SELECT {self._columns} FROM projections.webhook_{self._kind}s
        WHERE {self._kind}_id = $1 AND ($2::text IS NULL OR tenant = $2)
        """
        row = await session.fetchrow(sql, row_id, tenant)
        if row is None:
            raise NotFound(f"there is no {self._kind} {row_id!r:.80}", f"unknown_{self._kind}")
        return self._read(row)

    async def _written(self, session: Session, sql: str, *arguments: Any) -> T:
        """One as a statement has locked or written it, whatever others write after it."""
        return self._read(await call(session, sql, *arguments))


async def call(session: Session, sql: str, *arguments: Any) -> Row:
    """
    The row of a function of webhooks.

    Raises:
        ProjectionsError: What the function has raised, as :func:`own_errors` tells it.
    """
    with own_errors():
        row = await session.fetchrow(sql, *arguments)
    assert row is not None  # noqa: S101 - the functions return one row
    return row
