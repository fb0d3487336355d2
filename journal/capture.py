"""
Tables of an application whose changes become events, in the transaction that makes them.

The work is done by triggers (``sql/functions/capture``); here they are made, removed and listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from journal.database import Session, fetch_on

_CAPTURE = """
SELECT projections.capture_table_v1(
    CAST(CAST($1 AS text) AS regclass), $2, $3, $4, CAST(CAST($5 AS text) AS regproc), CAST($6 AS text))
"""
_RELEASE = "SELECT projections.release_table_v1(CAST(CAST($1 AS text) AS regclass))"
_LIST = """
SELECT schema_name, table_name, entity_type, on_insert, on_update, on_delete, serializer, partitions_missed, problems
FROM projections.captured_tables ORDER BY schema_name, table_name
"""


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """
    A table whose changes become events.

    Args:
        schema_name: Its schema, as it is.
        table_name: Its name, as it is.
        entity_type: The entity type of its events: the table's name at the capture, as SQL writes it, unless
            another was given.
        insert: Whether statements that insert have events.
        update: Whether statements that update have events.
        delete: Whether statements that delete have events.
        serializer: The function that shapes its events; None for the usual shape.
        partitions_missed: Partitions made since: statements that name one of them have no events until the table
            is captured again; those that name the table have.
        problems: Why other writes have no events, or are refused: triggers that were disabled or dropped, or a
            primary key that is of other types since.
    """

    schema_name: str
    table_name: str
    entity_type: str
    insert: bool
    update: bool
    delete: bool
    serializer: str | None
    partitions_missed: int
    problems: Sequence[str] = ()


async def capture_table(
    connection: Any,
    table: str,
    *,
    insert: bool = True,
    update: bool = True,
    delete: bool = True,
    serializer: str | None = None,
    entity_type: str | None = None,
) -> str:
    """
    Have every change of a table's rows append an event, in the transaction that makes the change.

    Called again it changes the settings, and takes in partitions that are new. Rows that are there already have no
    event until they change. It waits for the transactions that are writing the table, and they wait behind it:
    set a ``lock_timeout``. The connected role must own the table, and have the role ``projections_writer``.

    Args:
        connection: One that :func:`append` takes, in a transaction or not; the capture commits with it.
        table: A name as SQL writes it: ``orders``, ``shop.orders``, ``"Shop"."Orders"``.
        insert: Whether statements that insert have events.
        update: Whether statements that update have events. A changed primary key is a delete and an insert.
        delete: Whether statements that delete have events; then TRUNCATE is refused.
        serializer: A function ``(operation text, old jsonb, new jsonb) RETURNS jsonb`` that gives the payload, or
            NULL for no event; named as SQL writes it. It runs with the rights of whoever writes the table.
        entity_type: 1 to 180 characters; by default the table's name, which then stays through renames.

    Returns:
        The entity type of its events.

    Raises:
        DatabaseError: The table cannot be captured, a setting does not fit, or the role may not; the message says why.
    """
    arguments = (table, insert, update, delete, serializer, entity_type)
    ((found,),) = await fetch_on(connection, _CAPTURE, arguments)
    return str(found)


async def release_table(connection: Any, table: str) -> bool:
    """
    End the capture of a table; its events stay.

    Args:
        connection: One that :func:`append` takes, in a transaction or not.
        table: A name as SQL writes it.

    Returns:
        Whether it was captured.

    Raises:
        DatabaseError: There is no such table, or the connected role does not own it.
    """
    ((found,),) = await fetch_on(connection, _RELEASE, (table,))
    return bool(found)


async def captured_tables(session: Session) -> list[CapturedTable]:
    """The tables that are captured, by their names."""
    return [CapturedTable(*row.values()) for row in await session.fetch(_LIST)]
