"""Bad input is told as the table in the documentation says; a lost database loses nothing; no password is shown."""

from __future__ import annotations

import asyncio
import logging
import re
import tempfile
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest

from journal import ConnectionSettings, Database, ProjectionsError, connect, schema
from journal.embedded import EmbeddedServer
from tests.fixtures import (  # noqa: F401 - they register their cases
    bad_databases,
    bad_journals,
    bad_subscriptions,
    bad_webhooks,
)
from tests.fixtures.bad_input import CASES, Bench
from tests.fixtures.commands import ROOT, environment, projections
from tests.fixtures.postgres import Run, binaries_for
from tests.fixtures.projections import (
    EFFECTS,
    Told,
    each_once,
    effects,
    execute,
    fetchval,
    happen,
    recording,
    running,
    until_effects,
)

SECRET = "hunter2secret"
TABLE = re.compile(r"^\| (?P<what>.+?) \| (?P<ticks>`+)(?P<message>.*?) ?(?P=ticks) \| .+ \|$", re.MULTILINE)

Driver = Literal["asyncpg", "psycopg"]
# Of this database alone: other tests run on the same server.
TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'worker' AND datname = current_database()
"""
DRIVERS: tuple[Driver, ...] = ("asyncpg", "psycopg")


def rows() -> dict[str, str]:
    """The table of the documentation: what was done, and what is told; `…` stands for what differs."""
    text = (ROOT / "docs" / "operations" / "errors.md").read_text()
    found = [(row["what"].replace("`", ""), row["message"]) for row in TABLE.finditer(text)]
    assert len(dict(found)) == len(found)
    return dict(found)


ROWS = rows()


@pytest.fixture
def bench(
    dsn: str,
    empty_dsn: str,
    login: Callable[[str | None], str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> Bench:
    caplog.set_level(logging.INFO)
    return Bench(dsn, empty_dsn, login, tmp_path, caplog)


def test_every_case_is_documented() -> None:
    assert sorted(ROWS) == sorted(CASES)


@pytest.mark.parametrize("what", CASES)
async def test_bad_input_is_told_as_documented(what: str, bench: Bench) -> None:
    message = await CASES[what](bench)

    assert re.fullmatch(".+".join(map(re.escape, ROWS[what].split("…"))), message, re.DOTALL), message


# --- a database that goes away


@asynccontextmanager
async def prepared(dsn: str, driver: Driver) -> AsyncIterator[tuple[Database, Database]]:
    """A pool to run on, and one that appends and looks."""
    async with connect(dsn, ConnectionSettings(application_name="ours")) as ours:
        await execute(ours, EFFECTS)
        settings = ConnectionSettings(
            driver=driver, application_name="worker", connect_timeout=timedelta(seconds=5)
        )
        async with connect(dsn, settings) as worker:
            yield worker, ours


@pytest.mark.daily(1)
@pytest.mark.parametrize("driver", DRIVERS)
async def test_killed_connections_lose_and_repeat_nothing(dsn: str, driver: Driver) -> None:
    async with prepared(dsn, driver) as (worker, ours), running(worker, recording(batch_size=2)):
        for round_ in range(1, 6):
            await happen(ours, "a", "b", "c")
            await execute(ours, TERMINATE)
            await happen(ours, "a", "b", "c")
            await until_effects(ours, 6 * round_)

        each_once(await effects(ours), a=10, b=10, c=10)


@pytest.mark.daily(1)
@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_connection_lost_at_commit_loses_and_repeats_nothing(dsn: str, driver: Driver) -> None:
    async with prepared(dsn, driver) as (worker, ours):
        await execute(ours, "CREATE SEQUENCE commits")
        await execute(
            ours,
            "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF nextval('commits') <= 3 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; "
            "RETURN NULL; END $$",
        )
        await execute(
            ours,
            "CREATE CONSTRAINT TRIGGER lose AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION lose()",
        )

        async with running(worker, recording()) as told:
            await happen(ours, "a", "b", "a")
            await until_effects(ours, 3)
            await told.first("handled")

        each_once(await effects(ours), a=2, b=1)
        # More where the pool lends a connection on which the signal has not arrived yet.
        assert len(told.all("failed")) >= 3


@pytest.fixture
def server(postgres_run: Run) -> Iterator[EmbeddedServer]:
    """A server of the test's own, to be stopped."""
    base = Path(tempfile.mkdtemp(prefix="sp-restart-"))
    base.chmod(0o711)  # the server's user may be another one
    made = EmbeddedServer(base / "server", {"fsync": "off"}, binaries=binaries_for(postgres_run.kind))
    yield made
    made.stop()
    assert made.remove()
    base.rmdir()


@pytest.mark.slow
@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_server_that_restarts_is_waited_for(server: EmbeddedServer, driver: Driver) -> None:
    dsn = await asyncio.to_thread(server.start)
    await asyncio.to_thread(schema.install, dsn)
    await _over_a_restart(server, dsn, driver)


async def _over_a_restart(server: EmbeddedServer, dsn: str, driver: Driver) -> None:
    async with prepared(dsn, driver) as (worker, ours), running(worker, recording()) as told:
        await happen(ours, "a", "b")
        await until_effects(ours, 2)

        await asyncio.to_thread(server.stop)
        await told.first("failed")
        await asyncio.to_thread(server.start)
        async with connect(dsn) as again:
            await happen(again, "a", "b")
            await until_effects(again, 4)

            each_once(await effects(again), a=2, b=2)


# --- DSNs

WRONG_DSNS = [
    f"postgresql://u:{SECRET}@localhost:1/db",
    f"postgresql://u:{SECRET}@localhost:http/db",
    f"postgresql://u:{SECRET}@localhost:99999/db",
    f"mysql://u:{SECRET}@localhost/db",
    f"postgresql://u:{SECRET}@[::1/db",
    f"postgresql://u:{SECRET} x@localhost/db",
    f"postgresql://u:{SECRET}/x@localhost/db",
    f"postgresql://u:{SECRET}@x@localhost/db",
    f"postgresql://u:{SECRET}%zz@localhost:1/db",
    f"postgresql://u:{SECRET}\0@localhost/db",
    f"postgresql://u@localhost:1/db?password={SECRET}&nope=1",
    f"postgresql://u:{SECRET}@localhost:1/db?sslmode=nope",
    f"u:{SECRET}@localhost",
    f"host=localhost port=1 password={SECRET}",
    f"host=localhost port=1 password='{SECRET}",
    f"password={SECRET} host",
]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("dsn", WRONG_DSNS)
async def test_no_error_of_connecting_shows_the_password(dsn: str, driver: Driver) -> None:
    with pytest.raises(ProjectionsError) as caught:
        async with connect(dsn, ConnectionSettings(driver=driver)):
            pass

    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("dsn", WRONG_DSNS)
def test_no_error_of_the_schema_shows_the_password(dsn: str) -> None:
    with pytest.raises((ProjectionsError, ValueError)) as caught:
        schema.install(dsn)

    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["worker", "json.decoder"], ["status"], ["doctor"], ["schema", "install"]]
)
@pytest.mark.parametrize("dsn", [WRONG_DSNS[0], WRONG_DSNS[6], WRONG_DSNS[13]])
def test_no_command_shows_the_password(command: list[str], dsn: str) -> None:
    result = projections(*command, env=environment(PROJECTIONS_DSN=dsn))

    assert result.returncode in {1, 2}
    assert SECRET not in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


class Heard(logging.Handler):
    """Waits for a line of the log."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self.heard = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self.heard.set()

    async def wait(self) -> None:
        logger = logging.getLogger("projections")
        logger.addHandler(self)
        async with asyncio.timeout(300):
            await self.heard.wait()
        logger.removeHandler(self)


async def test_a_database_that_becomes_read_only_is_waited_for_and_parks_nothing(dsn: str) -> None:
    name = dsn.split("/")[3].split("?", maxsplit=1)[0]
    setting = f"ALTER DATABASE {name} SET default_transaction_read_only = "
    async with prepared(dsn, "asyncpg") as (worker, ours), running(worker, recording(batch_size=2)):
        await happen(ours, "a", "b")
        await until_effects(ours, 2)

        await execute(ours, setting + "on")
        await execute(ours, TERMINATE)
        await happen(ours, "a", "b")
        await Heard("the database takes no writes").wait()
        await execute(ours, setting + "off")
        await execute(ours, TERMINATE)
        await until_effects(ours, 4)

        each_once(await effects(ours), a=2, b=2)
        assert await fetchval(ours, "SELECT count(*) FROM projections.parked_sources") == 0


async def test_a_projection_that_failed_for_the_lack_of_a_database_tells_its_observer(dsn: str) -> None:
    async with prepared(dsn, "asyncpg") as (worker, ours):
        told = Told()
        async with running(worker, recording(), observer=told):
            await happen(ours, "a")
            await told.first("handled")
            await execute(ours, TERMINATE)

            name, _, error = await told.first("failed")

    assert (name, type(error).__name__) == ("p", "DatabaseUnavailable")
