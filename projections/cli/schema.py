"""``projections schema``: the tables and functions in the database."""

from __future__ import annotations

import click

from journal import schema as journal_schema
from journal.embedded import database_dsn
from projections.terminal.commands import AsJson, Dsn, derived
from projections.terminal.confirmation import confirm
from projections.terminal.options import Yes
from projections.terminal.output import Answer, done


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
@derived
def install(*, dsn: Dsn = None) -> Answer:
    """
    Make the schema.

    Where this version exists already, its functions, views and grants are made again; the data stays.
    """
    with database_dsn(dsn) as database:
        remarks = journal_schema.install(database)
    version = journal_schema.SCHEMA_VERSION
    lines = [f"schema version {version} is installed", *(f"note: {remark}" for remark in remarks)]
    return Answer({"version": version, "remarks": remarks}, lines)


@schema.command()
@derived
def upgrade(*, dsn: Dsn = None) -> Answer:
    """
    Bring an installed schema to this version, in one transaction.

    Waits up to 10 seconds for a table that is in use, then gives up with nothing changed.
    """
    with database_dsn(dsn) as database:
        before = journal_schema.installed_version(database)
        remarks = journal_schema.upgrade(database)
    version = journal_schema.SCHEMA_VERSION
    lines = [
        f"schema version {version} is installed, it was {before}",
        *(f"note: {remark}" for remark in remarks),
    ]
    return Answer({"before": before, "version": version, "remarks": remarks}, lines)


@schema.command()
@derived
def verify(*, dsn: Dsn = None) -> Answer:
    """
    Compare the schema with what this version installs.

    Exit code 1 when they differ.

    Builds the schema a second time under another name and rolls it back: nothing changes and no writer waits.
    On a standby, or as another role than the owner, it builds it on an embedded server, which it starts and removes.
    """
    with database_dsn(dsn) as database:
        differences = journal_schema.verify(database)
        found = journal_schema.installed_version(database)
    values = {"version": found, "library_version": journal_schema.SCHEMA_VERSION, "differences": differences}
    lines = differences or [f"schema version {found}: no differences"]
    return Answer(values, lines, exit_code=1 if differences else 0)


@schema.command(name="print")
def print_script() -> None:
    """Print the installation as one script for psql -1 -f."""
    click.echo(journal_schema.script(), nl=False)


@schema.command()
@derived
def uninstall(*, yes: Yes = False, dsn: Dsn = None, as_json: AsJson = False) -> Answer:
    """Drop the schema with all events and offsets. Says what it will drop, and asks."""
    with database_dsn(dsn) as database:
        contents = journal_schema.contents(database)
        if not as_json:
            _echo_contents(contents)
        confirm(f"Drop it, with {sum(contents.rows.values()):,} rows?", yes=yes)
        journal_schema.uninstall(database)
    text = "schema projections was dropped; its roles were left, they are the server's"
    return done(text, dropped=True, rows=contents.rows, dependents=contents.dependents)


def _echo_contents(contents: journal_schema.Contents) -> None:
    click.echo("This drops, and nothing brings it back:")
    for name, rows in contents.rows.items():
        click.echo(f"  table projections.{name}: {rows:,} rows")
    for dependent in contents.dependents:
        click.echo(f"  {dependent}, which depends on it")
