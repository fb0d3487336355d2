"""``projections schema``: the tables and functions in the database."""

from __future__ import annotations

import sys

import click

from journal import schema as journal_schema
from journal.embedded import database_dsn
from projections.terminal.options import dsn_option, echo_json, json_option

__all__ = ["schema"]


@click.group()
def schema() -> None:
    """
    Install, upgrade and check the schema `projections` in a database.

    All objects of the library live in this one schema. Its owner is the role that installs it; applications
    need only the grant of projections_writer, projections_worker or projections_reader.

    \b
    Without Python on the database's side
      projections schema print > install.sql
      psql -1 -f install.sql
    """  # noqa: D301 - click reads the escape


@schema.command()
@dsn_option
@json_option
def install(dsn: str | None, as_json: bool) -> None:
    """
    Make the schema.

    Where this version exists already, its functions, views and grants are made anew; the data stays.
    """
    with database_dsn(dsn) as database:
        remarks = journal_schema.install(database)
    if as_json:
        echo_json(version=journal_schema.SCHEMA_VERSION, remarks=remarks)
        return
    click.echo(f"schema version {journal_schema.SCHEMA_VERSION} is installed")
    _echo_remarks(remarks)


@schema.command()
@dsn_option
@json_option
def upgrade(dsn: str | None, as_json: bool) -> None:
    """
    Bring an installed schema to this version, in one transaction.

    Waits up to 10 seconds for a table that is in use, then gives up with nothing changed.
    """
    with database_dsn(dsn) as database:
        before = journal_schema.installed_version(database)
        remarks = journal_schema.upgrade(database)
    if as_json:
        echo_json(before=before, version=journal_schema.SCHEMA_VERSION, remarks=remarks)
        return
    click.echo(f"schema version {journal_schema.SCHEMA_VERSION} is installed, it was {before}")
    _echo_remarks(remarks)


@schema.command()
@dsn_option
@json_option
@click.pass_context
def verify(context: click.Context, dsn: str | None, as_json: bool) -> None:
    """
    Compare the schema with what this version installs.

    Exit code 1 when they differ.

    Builds the schema a second time under another name and rolls it back: nothing changes and no writer waits.
    On a standby, or as another role than the owner, it builds it on an embedded server, which it starts and removes.
    """
    with database_dsn(dsn) as database:
        differences = journal_schema.verify(database)
        found = journal_schema.installed_version(database)
    if as_json:
        echo_json(version=found, library_version=journal_schema.SCHEMA_VERSION, differences=differences)
    elif differences:
        click.echo("\n".join(differences))
    else:
        click.echo(f"schema version {found}: no differences")
    if differences:
        context.exit(1)


@schema.command(name="print")
def print_script() -> None:
    """Print the installation as one script for psql -1 -f."""
    click.echo(journal_schema.script(), nl=False)


@schema.command()
@dsn_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def uninstall(context: click.Context, dsn: str | None, yes: bool) -> None:
    """Drop the schema with all events and offsets. Says what it will drop, and asks."""
    with database_dsn(dsn) as database:
        _echo_contents(journal_schema.contents(database))
        if not yes:
            if not sys.stdin.isatty():
                click.echo("error: nobody is here to ask: pass --yes", err=True)
                context.exit(1)
            click.confirm("Drop it?", abort=True)
        journal_schema.uninstall(database)
    click.echo("schema projections was dropped; its roles were left, they are the server's")


def _echo_remarks(remarks: list[str]) -> None:
    for remark in remarks:
        click.echo(f"note: {remark}")


def _echo_contents(contents: journal_schema.Contents) -> None:
    click.echo("This drops, for ever:")
    for name, rows in contents.rows.items():
        click.echo(f"  table projections.{name}: {rows:,} rows")
    for dependent in contents.dependents:
        click.echo(f"  {dependent}, which depends on it")
