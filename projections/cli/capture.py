"""``projections capture``: tables whose changes become events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import click

from journal import CapturedTable, Session, capture_table, captured_tables, release_table
from projections.terminal.commands import Opt, derived
from projections.terminal.output import Answer, Columns, done, listing, printable

__all__ = ["capture"]

_LOCK_TIMEOUT = "SELECT set_config('lock_timeout', '10s', TRUE)"
_SETTINGS = ("no_insert", "no_update", "no_delete", "serializer", "entity_type")


def _kept(one: CapturedTable) -> str:
    return ", ".join(name for name in ("insert", "update", "delete") if getattr(one, name))


_COLUMNS: Columns = {
    "schema": "schema_name", "table": "table_name", "entity type": "entity_type", "events of": _kept,
    "serializer": "serializer", "partitions missed": "partitions_missed",
}  # fmt: skip
_Serializer = Annotated[
    str | None,
    Opt(
        "A function (operation text, old jsonb, new jsonb) RETURNS jsonb: the payload, or NULL for no event.",
        metavar="FUNCTION",
    ),
]


def _check(options: Mapping[str, Any]) -> None:
    settings = any(options[name] for name in _SETTINGS)
    if options["lists"] and (options["table"] is not None or options["release"] or settings):
        raise click.UsageError("--list takes no table and no settings")
    if options["table"] is None and not options["lists"]:
        raise click.UsageError("name a TABLE, or pass --list")
    if options["release"] and settings:
        raise click.UsageError("--release takes no settings")


@click.command()
@derived(check=_check)
async def capture(
    session: Session,
    /,
    table: str | None = None,
    *,
    release: Annotated[bool, Opt("End the capture of the table. Its events stay.")] = False,
    lists: Annotated[bool, Opt("List the tables that are captured.", "--list")] = False,
    no_insert: Annotated[bool, Opt("No events for statements that insert.")] = False,
    no_update: Annotated[bool, Opt("No events for statements that update.")] = False,
    no_delete: Annotated[bool, Opt("No events for statements that delete; allows TRUNCATE.")] = False,
    serializer: _Serializer = None,
    entity_type: Annotated[
        str | None, Opt("Default: the table's name, as SQL writes it.", metavar="NAME")
    ] = None,
) -> Answer:
    """
    Have the changes of TABLE append events, in the transactions that make them.

    \b
      projections capture shop.orders
      projections capture shop.orders --no-insert --serializer shop.order_event
      projections capture --list
      projections capture shop.orders --release

    TABLE is a name as SQL writes it. Run it again to change the settings, which are those of the last time, and
    to take in partitions that are new. It gives up when transactions that write the table keep it waiting for 10
    seconds. Connect as the owner of the table, with the role projections_writer.
    """  # noqa: D301 - click reads the escape
    if lists:
        nothing = "no table is captured yet: `projections capture TABLE` does"
        return listing("captured", await captured_tables(session), _COLUMNS, nothing=nothing)
    assert table is not None  # noqa: S101 - the check has seen to it
    await session.fetchval(_LOCK_TIMEOUT)
    if release:
        released = await release_table(session, table)
        text = f"{printable(table)} {'is released' if released else 'was not captured'}"
        return done(text, table=table, released=released)
    operations = {"insert": not no_insert, "update": not no_update, "delete": not no_delete}
    found = await capture_table(session, table, **operations, serializer=serializer, entity_type=entity_type)
    kept = ", ".join(name for name, wanted in operations.items() if wanted)
    text = f"{printable(table)} is captured ({kept}) as entity type {printable(found)}"
    return done(text, table=table, entity_type=found, **operations, serializer=serializer)
