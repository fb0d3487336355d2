"""What roles may do with subscriptions, and what is left where the schema's owner may create no roles."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from journal import Database, MissingPrivilege, schema
from journal.database import connect
from journal.embedded import EmbeddedServer
from tests.fixtures.matching import happened, match, matched, publish, refused, subscribe
from tests.fixtures.postgres import Run, binaries_for
from tests.fixtures.schema import catalogue, run

Login = Callable[[str | None], str]


async def test_a_worker_subscribes_and_matches_and_a_writer_publishes(
    database: Database, login: Login
) -> None:
    async with connect(login("projections_worker")) as worker, connect(login("projections_writer")) as writer:
        number = await subscribe(worker, "e.payload = s.params", topics=["t", "u"])
        await subscribe(worker, "e.seq_nr = 1", topics=["**"], expires_after=None)
        await publish(writer, "t", "u", "v")
        await publish(writer, "v", subscription_ids=[number])
        await happened(writer, "t")
        await match(worker)

    assert sorted(await matched(database)) == [
        ("a", 1), ("publisher/p", 1), ("publisher/p", 2), ("publisher/p", 4),
    ]  # fmt: skip


BEYOND_OTHERS = [
    "SELECT projections.subscribe_v1('g')",
    "SELECT projections.unsubscribe_v1(1)",
    "SELECT projections._quarantine_condition_v1(1, 'x')",
    "SELECT projections._match_due_v1()",
    "SELECT projections._compile_condition_v1(1, 'TRUE')",
    "DELETE FROM projections.subscriptions",
    "DELETE FROM projections.directed_events",
    "UPDATE projections.directed_events SET matched = TRUE",
    "INSERT INTO projections.matches SELECT * FROM projections.matches",
    "SELECT * FROM projections_conditions.condition_1(NULL, NULL, NULL, NULL)",
    "CREATE FUNCTION projections_conditions.condition_9() RETURNS int LANGUAGE sql RETURN 1",
]

BEYOND_WORKERS = [
    "SET ROLE projections_matcher",
    "CREATE OR REPLACE FUNCTION projections_conditions.condition_1() RETURNS int LANGUAGE sql RETURN 1",
    "DROP FUNCTION projections_conditions.condition_1",
    "CREATE TABLE projections_conditions.x (n integer)",
    "DELETE FROM projections.matches",
    "UPDATE projections.matches SET slice = 1",
    "SELECT projections._check_condition_v1(9, 'TRUE')",
    "SELECT projections._make_condition_v1(9, 'TRUE')",
    "SELECT projections.publish_v1('p', '{t}', '{1}')",
]


@pytest.mark.slow
@pytest.mark.parametrize("role", ["projections_writer", "projections_reader", None])
def test_who_does_not_run_workers_neither_subscribes_nor_matches(
    dsn: str, login: Login, role: str | None
) -> None:
    run(dsn, "SELECT projections.subscribe_v1('g', 'e.seq_nr > 0')")
    other = login(role)

    for statement in BEYOND_OTHERS:
        with pytest.raises(MissingPrivilege):
            run(other, statement)


def test_a_worker_makes_no_function_and_changes_no_match(dsn: str, login: Login) -> None:
    run(dsn, "SELECT projections.subscribe_v1('g', 'e.seq_nr > 0')")
    worker = login("projections_worker")

    for statement in BEYOND_WORKERS:
        with pytest.raises(MissingPrivilege):
            run(worker, statement)


@pytest.fixture
def own_server(postgres_run: Run) -> Iterator[str]:
    """One on which no role of the schema exists yet."""
    with tempfile.TemporaryDirectory(prefix="sp-roles-") as directory:
        Path(directory).chmod(0o755)  # the server may run as another user
        binaries = binaries_for(postgres_run.kind)
        server = EmbeddedServer(Path(directory) / "server", {"fsync": "off"}, binaries=binaries)
        with server as dsn:
            yield dsn
        server.remove()


def owner(own_server: str, attributes: str) -> str:
    """A database, and the DSN of its owner, who is not a superuser."""
    with psycopg.connect(own_server, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE app LOGIN NOSUPERUSER {attributes}".encode())
        connection.execute("CREATE DATABASE app OWNER app")
    return make_conninfo(own_server, user="app", dbname="app")


@pytest.mark.slow
async def test_an_owner_who_creates_roles_has_all_of_it(own_server: str) -> None:
    dsn = owner(own_server, "CREATEROLE")
    schema.install(dsn)
    async with connect(dsn) as database:
        await subscribe(database, "e.seq_nr > 0")
        await happened(database)
        await match(database)

        assert await matched(database) == [("a", 1)]
        assert (await refused(database, "EXISTS (SELECT FROM pg_class)")).sqlstate == "PJ080"
    schema.install(dsn)
    async with connect(dsn) as database:
        await subscribe(database, "e.seq_nr > 1")


@pytest.mark.slow
async def test_where_roles_can_not_be_created_conditions_are_refused_and_the_rest_works(
    own_server: str,
) -> None:
    dsn = owner(own_server, "NOCREATEROLE")
    schema.install(dsn)
    async with connect(dsn) as database:
        await subscribe(database, topics=["t*"])
        await subscribe(database, topics=["t"], group="h")
        await happened(database)
        await match(database)

        assert await matched(database) == [("a", 1), ("a", 1)]
        error = await refused(database, "e.seq_nr > 0")
        assert error.sqlstate == "PJ080"
        assert "projections_matcher" in str(error)


def test_conditions_are_left_when_the_schema_is_installed_again(dsn: str) -> None:
    run(dsn, "SELECT projections.subscribe_v1('g', 'e.seq_nr > 0')")
    before = catalogue(dsn)

    schema.install(dsn)

    assert catalogue(dsn) == before
    assert run(dsn, "SELECT projections.subscribe_v1('g', 'e.seq_nr > 0')") == [(1,)]
    assert run(dsn, "SELECT count(*) FROM projections_conditions.condition_1('{}', '{t}', '{1}', TRUE)") == [
        (0,)
    ]


@pytest.mark.slow
def test_conditions_are_left_by_an_upgrade(dsn: str, next_root: Path) -> None:
    run(dsn, "SELECT projections.subscribe_v1('g', 'e.seq_nr > 0')")

    schema.upgrade(dsn, root=next_root)

    assert not schema.verify(dsn, root=next_root)
    assert run(dsn, "SELECT projections.subscribe_v1('g', 'e.seq_nr > 0')") == [(1,)]
    assert run(dsn, "SELECT count(*) FROM projections_conditions.condition_1('{}', '{t}', '{1}', TRUE)") == [
        (0,)
    ]


@pytest.mark.slow
def test_a_schema_with_conditions_verifies_and_is_uninstalled(dsn: str) -> None:
    run(dsn, "SELECT projections.subscribe_v1('g', 'e.seq_nr > 0')")

    assert not schema.verify(dsn)
    schema.uninstall(dsn)
    assert run(dsn, "SELECT to_regnamespace('projections'), to_regnamespace('projections_conditions')") == [
        (None, None)
    ]
    schema.install(dsn)
    assert run(dsn, "SELECT projections.subscribe_v1('g', 'e.seq_nr > 0')") == [(1,)]
