"""Settings of a connection: every field with its unit, its default, and what it trades."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ConnectionSettings(BaseModel):
    """How to reach the database."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    driver: Literal["asyncpg", "psycopg"] = "asyncpg"
    """asyncpg reads rows fastest; psycopg follows libpq in everything (service files, GSSAPI, .pgpass rules)."""

    max_connections: int = Field(default=10, ge=1)
    """Upper size of the pool. A running range holds one; an append holds one while its transaction is open."""

    connect_timeout: timedelta = timedelta(seconds=10)
    """How long to wait for a new connection."""

    pool_timeout: timedelta = timedelta(seconds=30)
    """How long to wait for a connection of a pool whose connections are all in use."""

    listen_retry: timedelta = timedelta(seconds=5)
    """Pause before a lost notification connection is opened again; polling does the work meanwhile."""

    pgbouncer: bool | None = None
    """Whether a pooler such as PgBouncer in transaction mode lends a session for each transaction: then nothing is
    prepared, which costs parsing, and notifications are not waited for. By default, connecting finds out."""

    application_name: str = "slice-projections"
    """Shown in pg_stat_activity."""

    foreign_journal: bool = False
    """For the database of another system's journal, and nothing else: sessions write nothing and walk indexes."""
