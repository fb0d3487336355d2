"""`projections schema ...` as a user runs it: a process, its output, its exit code."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from journal import schema
from journal.database.sync import connect_sync
from projections.terminal.command_group import CommandGroup, LazyCommand
from tests.fixtures.commands import COMMAND, called, environment, projections

NOT_INSTALLED = (
    "error: the schema projections is not installed in this database: run `projections schema install`\n"
)


def run(dsn: str, statement: str) -> None:
    with connect_sync(dsn) as connection:
        connection.execute(statement.encode())


def answer(dsn: str, text: str) -> tuple[int, str]:
    """Run uninstall on a terminal and type an answer."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "schema", "uninstall", "--dsn", dsn], stdin=theirs, stdout=subprocess.PIPE, text=True
    ) as process:
        os.write(ours, text.encode())
        output, _ = process.communicate()
    os.close(ours)
    os.close(theirs)
    return process.returncode, output


@pytest.mark.slow
def test_install_then_verify(empty_dsn: str) -> None:
    installed = projections("schema", "install", "--dsn", empty_dsn)
    verified = projections("schema", "verify", "--dsn", empty_dsn)

    assert (installed.returncode, installed.stdout, installed.stderr) == (
        0,
        f"schema version {schema.SCHEMA_VERSION} is installed\n",
        "",
    )
    assert (verified.returncode, verified.stdout) == (
        0,
        f"schema version {schema.SCHEMA_VERSION}: no differences\n",
    )


@pytest.mark.slow
def test_the_database_is_taken_from_the_environment(empty_dsn: str) -> None:
    result = projections("schema", "install", "--json", env=environment(PROJECTIONS_DSN=empty_dsn))

    assert json.loads(result.stdout) == {"version": schema.SCHEMA_VERSION, "remarks": []}


def test_upgrade_says_what_was_there(dsn: str) -> None:
    result = called("schema", "upgrade", "--dsn", dsn, "--json")

    assert json.loads(result.stdout) == {
        "before": schema.SCHEMA_VERSION,
        "version": schema.SCHEMA_VERSION,
        "remarks": [],
    }


def test_verify_lists_differences_and_fails(dsn: str) -> None:
    run(dsn, "DROP INDEX projections.events_event_id_idx")

    text = called("schema", "verify", "--dsn", dsn)
    report = called("schema", "verify", "--dsn", dsn, "--json")

    assert text.returncode == report.returncode == 1
    assert "missing: index projections.events_event_id_idx" in text.stdout.splitlines()
    assert json.loads(report.stdout) == {
        "version": schema.SCHEMA_VERSION,
        "library_version": schema.SCHEMA_VERSION,
        "differences": text.stdout.splitlines(),
    }


@pytest.mark.slow
def test_print_needs_no_database() -> None:
    result = projections("schema", "print", env=environment(PROJECTIONS_DSN="nonsense"))

    assert (result.returncode, result.stdout) == (0, schema.script())


def test_uninstall_lists_and_refuses_without_a_terminal(dsn: str) -> None:
    result = called("schema", "uninstall", "--dsn", dsn)

    assert result.returncode == 1
    assert "  table projections.events: 0 rows\n" in result.stdout
    assert result.stderr == "error: cannot ask for confirmation without a terminal: pass --yes\n"
    assert schema.installed_version(dsn) is not None


def test_uninstall_drops_when_told_to(dsn: str) -> None:
    result = called("schema", "uninstall", "--dsn", dsn, "--yes")

    assert result.returncode == 0
    assert schema.installed_version(dsn) is None


def test_uninstall_tells_as_json_what_it_dropped(dsn: str) -> None:
    result = called("schema", "uninstall", "--dsn", dsn, "--yes", "--json")

    values = json.loads(result.stdout)
    assert (result.returncode, values["dropped"], values["rows"]["events"]) == (0, True, 0)
    assert schema.installed_version(dsn) is None


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "code", "left"), [("n\n", 1, True), ("\n", 1, True), ("y\n", 0, False)])
def test_uninstall_asks_on_a_terminal(dsn: str, typed: str, code: int, left: bool) -> None:
    assert answer(dsn, typed)[0] == code
    assert (schema.installed_version(dsn) is not None) is left


@pytest.mark.parametrize("command", [["upgrade"], ["uninstall", "--yes"]])
def test_what_needs_a_schema_is_one_clear_line(empty_dsn: str, command: list[str]) -> None:
    result = called("schema", *command, "--dsn", empty_dsn)

    assert (result.returncode, result.stdout, result.stderr) == (1, "", NOT_INSTALLED)


def test_a_newer_schema_is_one_clear_line(dsn: str) -> None:
    run(dsn, "INSERT INTO projections.schema_versions (version) VALUES (999)")

    result = called("schema", "install", "--dsn", dsn)

    assert result.returncode == 1
    assert result.stderr == (
        "error: this database has schema version 999, newer than this library's "
        f"{schema.SCHEMA_VERSION}: upgrade the library\n"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        "postgresql://u:s3cret@/x?host={}",
        "host=/nowhere password='s3cret' user=u",
        "u:s3cret",
        "postgres://u:s3cret@h:p/x",
    ],
)
def test_no_connection_is_one_line_without_the_password(tmp_path: Path, wrong: str) -> None:
    result = called("schema", "verify", "--dsn", wrong.format(tmp_path))

    assert result.returncode == (1 if "nowhere" in wrong or "{}" in wrong else 2)
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert "s3cret" not in result.stderr


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["schema", "nonsense"], ["schema", "verify", "--nonsense"]]
)
def test_a_wrong_command_line_exits_with_2(arguments: list[str]) -> None:
    assert called(*arguments).returncode == 2


def test_help_imports_no_command() -> None:
    group = CommandGroup(name="x", lazy={"later": LazyCommand("not.there:command", "Comes later.")})

    assert "later  Comes later." in CliRunner().invoke(group, ["--help"]).output
