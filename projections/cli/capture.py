"""``projections capture``: tables whose changes become events."""

from __future__ import annotations

import dataclasses

import click
from rich.table import Table

from journal import CapturedTable, Session, capture_table, captured_tables, release_table
from projections.terminal.connection import visit
from projections.terminal.options import dsn_option, echo_json, json_option
from projections.terminal.output import in_table, print_table, printable

__all__ = ["capture"]

_LOCK_TIMEOUT = "SELECT set_config('lock_timeout', '10s', TRUE)"


@click.command()
@click.argument("table", required=False)
@click.option("--release", is_flag=True, help="End the capture of the table. Its events stay.")
@click.option("--list", "lists", is_flag=True, help="List the tables that are captured.")
@click.option("--no-insert", is_flag=True, help="No events for statements that insert.")
@click.option("--no-update", is_flag=True, help="No events for statements that update.")
@click.option("--no-delete", is_flag=True, help="No events for statements that delete; allows TRUNCATE.")
@click.option(
    "--serializer",
    metavar="FUNCTION",
    help="A function (operation text, old jsonb, new jsonb) RETURNS jsonb: the payload, or NULL for no event.",
)
@click.option("--entity-type", metavar="NAME", help="Default: the table's name, as SQL writes it.")
@dsn_option
@json_option
def capture(  # noqa: PLR0917 - one of each option
    table: str | None,
    release: bool,
    lists: bool,
    no_insert: bool,
    no_update: bool,
    no_delete: bool,
    serializer: str | None,
    entity_type: str | None,
    dsn: str | None,
    as_json: bool,
) -> None:
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
    settings = (no_insert, no_update, no_delete, serializer, entity_type)
    if lists:
        if table is not None or release or any(settings):
            raise click.UsageError("--list takes no table and no settings")
        _show(visit(dsn, captured_tables), as_json)
        return
    if table is None:
        raise click.UsageError("name a TABLE, or pass --list")
    if release:
        if any(settings):
            raise click.UsageError("--release takes no settings")
        _release(dsn, table, as_json)
        return
    operations = {"insert": not no_insert, "update": not no_update, "delete": not no_delete}

    async def work(session: Session) -> str:
        await session.fetchval(_LOCK_TIMEOUT)
        return await capture_table(
            session, table, **operations, serializer=serializer, entity_type=entity_type
        )

    found = visit(dsn, work)
    if as_json:
        echo_json(table=table, entity_type=found, **operations, serializer=serializer)
    else:
        kept = ", ".join(name for name, wanted in operations.items() if wanted)
        click.echo(f"{printable(table)} is captured ({kept}) as entity type {printable(found)}")


def _release(dsn: str | None, table: str, as_json: bool) -> None:
    async def work(session: Session) -> bool:
        await session.fetchval(_LOCK_TIMEOUT)
        return await release_table(session, table)

    released = visit(dsn, work)
    if as_json:
        echo_json(table=table, released=released)
    else:
        click.echo(f"{printable(table)} {'is released' if released else 'was not captured'}")


def _show(found: list[CapturedTable], as_json: bool) -> None:
    if as_json:
        echo_json(captured=[dataclasses.asdict(one) for one in found])
        return
    if not found:
        click.echo("no table is captured yet: `projections capture TABLE` does")
        return
    table = Table("schema", "table", "entity type", "events of", "serializer", "partitions missed")
    for one in found:
        operations = {"insert": one.insert, "update": one.update, "delete": one.delete}
        kept = ", ".join(name for name, wanted in operations.items() if wanted)
        cells = (
            one.schema_name,
            one.table_name,
            one.entity_type,
            kept,
            one.serializer or "-",
            one.partitions_missed,
        )
        # The names are data: what looks like markup in them stays as it is.
        table.add_row(*(in_table(str(cell)) for cell in cells))
    print_table(table)
