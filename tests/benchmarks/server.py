"""The server that is measured, with its own settings, and databases on it that are dropped afterwards."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
from psycopg import sql

from journal import schema
from journal.embedded import EmbeddedServer, database_dsn
from journal.embedded.binaries import from_system

READ_MODEL = """
CREATE TABLE delays (
    carrier text, day date, flights integer NOT NULL DEFAULT 0, delay bigint NOT NULL DEFAULT 0, worst integer,
    PRIMARY KEY (carrier, day)
)
"""


class UnsafeServer(RuntimeError):
    """The server may lose what it has committed: numbers of such a server are worth nothing."""


class Server:
    """Makes databases with the schema and the read model's table in them."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    @contextmanager
    def database(self) -> Iterator[str]:
        """A fresh database for the length of the block; gives its DSN."""
        name = f"projections_benchmark_{uuid.uuid4().hex[:10]}"
        self._run("CREATE DATABASE {}", name)
        try:
            dsn = re.sub(
                r"^(\w+://[^/?#]*)(/[^?#]*)?", lambda found: f"{found[1]}/{name}", self._dsn, count=1
            )
            schema.install(dsn)
            with psycopg.connect(dsn) as connection:
                connection.execute(READ_MODEL)
            yield dsn
        finally:
            self._run("DROP DATABASE {} WITH (FORCE)", name)

    def _run(self, statement: str, name: str) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(sql.Identifier(name)))

    def settings(self) -> dict[str, str]:
        """The server's version, and what of its settings decides the numbers."""
        names = (
            "server_version",
            "fsync",
            "synchronous_commit",
            "full_page_writes",
            "shared_buffers",
            "max_wal_size",
            "jit_above_cost",
        )
        with psycopg.connect(self._dsn) as connection:
            rows = connection.execute(
                "SELECT name, current_setting(name) FROM unnest(%s::text[]) AS name", [list(names)]
            )
            return dict(rows.fetchall())


@contextmanager
def server(dsn: str | None) -> Iterator[Server]:
    """The server of a DSN, of PROJECTIONS_DSN, or an embedded one."""
    with database_dsn(dsn) as found:
        measured = Server(found)
        if wrong := [name for name in ("fsync", "full_page_writes") if measured.settings()[name] != "on"]:
            raise UnsafeServer(f"the server runs with {', '.join(wrong)} off")
        yield measured


@contextmanager
def compiling_server() -> Iterator[Server]:
    """
    A temporary server of the system's PostgreSQL as people have it, and worse: whatever it can compile is worth it.

    Raises:
        UnsafeServer: There is none, or it was built without LLVM.
    """
    binaries = from_system()
    if binaries is None:
        raise UnsafeServer("no PostgreSQL is installed: install Debian's package postgresql")
    settings = {
        "jit": "on",
        "jit_above_cost": "0",
        "jit_inline_above_cost": "0",
        "jit_optimize_above_cost": "0",
    }
    with TemporaryDirectory(dir="/var/tmp") as place:
        Path(place).chmod(0o755)  # the server may run as somebody else
        with EmbeddedServer(Path(place) / "server", settings, binaries=binaries) as dsn:
            with psycopg.connect(dsn) as connection:
                if connection.execute("SELECT pg_jit_available()").fetchone() != (True,):
                    raise UnsafeServer("the installed PostgreSQL cannot compile: install it with LLVM")
            yield Server(dsn)


def forget_projections(connection: psycopg.Connection[Any]) -> None:
    """Drop what rebuilds have replaced, and what is known of projections: the next one begins from nothing."""
    old = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'projections\\_old%'")
    for (name,) in old.fetchall():
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))
    connection.execute("TRUNCATE projections.projections, projections.source_offsets CASCADE")


def settle(dsn: str) -> None:
    """Leave no work of one contender to the next: write out what is dirty, and let the planner know the tables."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE) projections.events, projections.sources")
        with suppress(psycopg.errors.InsufficientPrivilege):
            connection.execute("CHECKPOINT")
