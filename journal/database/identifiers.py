"""Names and constants in SQL text, quoted so that any is safe in it."""

from __future__ import annotations

from psycopg import sql as pgsql


def quote(*parts: str) -> str:
    """Quote a name for SQL text: ``quote("a", 'b"c')`` is ``"a"."b""c"``."""
    return pgsql.Identifier(*parts).as_string(None)


def literal(text: str) -> str:
    """Quote a constant for SQL text, where none can be bound."""
    return pgsql.Literal(text).as_string(None)
