"""``projections captures``: tables whose changes become events."""

from __future__ import annotations

from typing import Annotated

import click

from journal import CapturedTable, Session, capture_table, captured_tables, release_table
from projections.terminal.command_group import ListGroup
from projections.terminal.commands import Opt, derived
from projections.terminal.output import Answer, Columns, done, listing, printable

_LOCK_TIMEOUT = "SELECT set_config('lock_timeout', '10s', TRUE)"


def _kept(one: CapturedTable) -> str:
    return ", ".join(name for name in ("insert", "update", "delete") if getattr(one, name))


_COLUMNS: Columns = {
    "schema": "schema_name", "table": "table_name", "entity type": "entity_type", "events of": _kept,
    "serializer": "serializer", "partitions missed": "partitions_missed",
    "problems": lambda one: "; ".join(one.problems),
}  # fmt: skip
_Serializer = Annotated[
    str | None,
    Opt(
        "A function (operation text, old jsonb, new jsonb) RETURNS jsonb: the payload, or NULL for no event.",
        metavar="FUNCTION",
    ),
]


@click.group(cls=ListGroup)
def captures() -> None:
    """
    List, add and release tables whose changes append events.

    \b
      projections captures                         all of them
      projections captures add shop.orders
      projections captures add shop.orders --no-insert --serializer shop.order_event
      projections captures release shop.orders

    TABLE is a name as SQL writes it. To capture or release a table, connect as its owner, with the role
    projections_writer. Both give up when transactions that write the table keep them waiting for 10 seconds.

    Without a command, `list` is run.
    """  # noqa: D301 - click reads the escape


@captures.command(name="list")
@derived
async def list_(session: Session, /) -> Answer:
    """List the tables that are captured."""
    nothing = "no table is captured yet: `projections captures add TABLE` captures one"
    return listing("captured", await captured_tables(session), _COLUMNS, nothing=nothing)


@captures.command()
@derived
async def add(
    session: Session,
    /,
    table: str,
    *,
    no_insert: Annotated[bool, Opt("No events for statements that insert.")] = False,
    no_update: Annotated[bool, Opt("No events for statements that update.")] = False,
    no_delete: Annotated[bool, Opt("No events for statements that delete; allows TRUNCATE.")] = False,
    serializer: _Serializer = None,
    entity_type: Annotated[
        str | None,
        Opt("The entity type of its events. Default: the table's name, as SQL writes it.", metavar="NAME"),
    ] = None,
) -> Answer:
    """
    Have the changes of TABLE append events, in the transactions that make them.

    Run it again to change the settings, which are those of the last time, and to include partitions that are new.
    """
    await session.fetchval(_LOCK_TIMEOUT)
    operations = {"insert": not no_insert, "update": not no_update, "delete": not no_delete}
    found = await capture_table(session, table, **operations, serializer=serializer, entity_type=entity_type)
    kept = ", ".join(name for name, wanted in operations.items() if wanted)
    text = f"{printable(table)} is captured ({kept}) as entity type {printable(found)}"
    return done(text, table=table, entity_type=found, **operations, serializer=serializer)


@captures.command()
@derived
async def release(session: Session, /, table: str) -> Answer:
    """End the capture of TABLE. Its events stay."""
    await session.fetchval(_LOCK_TIMEOUT)
    released = await release_table(session, table)
    text = f"{printable(table)} {'is released' if released else 'was not captured'}"
    return done(text, table=table, released=released)
