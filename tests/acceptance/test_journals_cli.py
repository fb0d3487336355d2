"""Journals of other systems that are attached by a name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from unittest.mock import ANY
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from psycopg.conninfo import conninfo_to_dict

from journal.database.sync import connect_sync
from journal.tokens import AwaitedEvent, write_token
from tests.fixtures.commands import called, environment, projections, query
from tests.fixtures.postgres import Databases

APP = """
from decimal import Decimal

from pydantic import BaseModel
from projections import EventEnvelope, Session, event_type, handles, projection

@event_type("TOPIC")
class Paid(BaseModel):
    amount: Decimal

@projection("payments", entity_type="aggregate", batch_size=10)
class Payments:
    @handles(Paid)
    async def paid(self, session: Session, event: Paid, envelope: EventEnvelope) -> None:
        await session.execute("INSERT INTO paid VALUES ($1, $2, $3)", envelope.source_id, envelope.seq_nr, event.amount)
"""
PAID = "CREATE TABLE paid (account text, seq_nr bigint, amount numeric, PRIMARY KEY (account, seq_nr))"
MAPPING = """
source = "order_id"
number = "version"
position = "id"
bound = "sequence"
entity_type = { constant = "order" }
event_type = "kind"
payload = "body"
"""
ORDERS = """
CREATE TABLE orders (id bigserial, order_id text, version int, kind text, body jsonb, UNIQUE (order_id, version))
"""


class Has:
    """Equals a text that has another in it."""

    def __init__(self, part: str) -> None:
        self._part = part

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self._part in " ".join(other.split())

    def __hash__(self) -> int:
        return hash(self._part)

    def __repr__(self) -> str:
        return f"... {self._part} ..."


class Account(Aggregate):
    @event("Opened")
    def __init__(self) -> None: ...

    @event("Paid")
    def pay(self, amount: Decimal) -> None: ...


class Bank(Application[UUID]):
    name = "bank"


@pytest.fixture
def read_side(databases: Databases, template: str) -> Iterator[str]:
    with databases.fresh(template) as dsn:
        with connect_sync(dsn) as connection:
            connection.execute(PAID)
        yield dsn


@pytest.fixture
def bank_dsn(empty_dsn: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with nothing in it; the environment has the password, if there is one."""
    parts = urlsplit(empty_dsn)
    if parts.password is None:
        return empty_dsn
    monkeypatch.setenv("PGPASSWORD", parts.password)
    return parts._replace(netloc=f"{parts.username}@{parts.netloc.rpartition('@')[2]}").geturl()


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "bank.py").write_text(APP.replace("TOPIC", f"{__name__}:Account.Paid"))
    return tmp_path


def pay(dsn: str, *amounts: str) -> None:
    """An account that the package itself saves, with so many payments."""
    said = conninfo_to_dict(dsn)
    settings = {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": str(said["dbname"]),
        "POSTGRES_HOST": str(said["host"]),
        "POSTGRES_PORT": str(said.get("port", 5432)),
        "POSTGRES_USER": str(said.get("user", "postgres")),
        "POSTGRES_PASSWORD": os.environ.get("PGPASSWORD", "-"),
    }
    with closing(Bank(env=settings)) as bank:
        account = Account()
        for amount in amounts:
            account.pay(Decimal(amount))
        bank.save(account)


def attached(read_side: str) -> list[dict[str, object]]:
    listed = called("journals", "--json", "--read-side", read_side)
    assert listed.returncode == 0, listed.stderr
    found: list[dict[str, object]] = json.loads(listed.stdout)["journals"]
    return found


def mapping(directory: Path) -> str:
    (directory / "orders.toml").write_text(MAPPING)
    return str(directory / "orders.toml")


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_journal_of_eventsourcing_is_attached_and_projected(
    app: Path, bank_dsn: str, read_side: str, processes: int
) -> None:
    pay(bank_dsn, "1.50", "2.50")
    attach = ["journals", "attach", "eventsourcing", bank_dsn, "--name", "bank", "--table", "bank_events"]
    both = ["--journal", "bank", "--read-side", read_side]
    work = ["worker", "bank", *both, "--until-caught-up", "--processes", str(processes)]

    done = called(*attach, "--read-side", read_side)
    assert done.returncode == 0, done.stderr
    assert "journal 'bank' can be read" in done.stdout
    assert "the first page of 1,000 events takes" in done.stdout
    assert "it is attached: projections worker MODULE --journal bank" in done.stdout
    first = projections(*work, cwd=app)
    pay(bank_dsn, "3")
    (behind,) = json.loads(called("lag", "--json", *both).stdout)["projections"]
    status = called("status", *both)
    second = projections(*work, "--driver", "psycopg", cwd=app)

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert query(read_side, "SELECT sum(amount)::text, count(*) FROM paid") == [("7.00", 3)]
    assert behind["backlog"] == 2
    assert status.returncode == 0, status.stderr
    assert json.loads(called("lag", "--json", *both).stdout)["projections"][0]["backlog"] == 0
    (one,) = attached(read_side)
    assert (one["name"], one["kind"], one["dsn"], one["read_by"]) == (
        "bank",
        "eventsourcing",
        bank_dsn,
        ["payments"],
    )
    shown = called("journals", "show", "bank", "--json", "--read-side", read_side)
    assert json.loads(shown.stdout) == one | {"tables": ['"public"."bank_events"'], "bound": "sequence"}
    assert "late commits by  sequence" in called("journals", "show", "bank", "--read-side", read_side).stdout
    again = called(*attach, "--read-side", read_side)
    assert (again.returncode, "is attached already: detach it first" in again.stderr) == (1, True)


@pytest.mark.slow
def test_what_it_has_not_is_refused(app: Path, bank_dsn: str, read_side: str, dsn: str) -> None:
    pay(bank_dsn, "1")
    where = ["--read-side", read_side]
    named = ["service=bank", "--name", "bank", "--table", "bank_events"]
    service = app / "services.conf"
    service.write_text(
        "[bank]\n" + "".join(f"{key}={value}\n" for key, value in conninfo_to_dict(bank_dsn).items())
    )
    env = environment(PGSERVICEFILE=str(service)) | {"PROJECTIONS_DSN": dsn}
    work = ["worker", "bank", "--journal", "bank", *where, "--until-caught-up"]
    assert projections("journals", "attach", "eventsourcing", *named, *where, env=env).returncode == 0
    assert projections(*work, cwd=app, env=env).returncode == 0
    token = write_token([AwaitedEvent("a", 1, datetime.now(UTC), 1)])

    for command, said in (
        (["wait", "payments", "--token", token, "--journal", "bank"], "journal 'bank' is of another system"),
        (["worker", "--subscriptions", "--journal", "bank"], "match the journal of their own database"),
        (["mode", "payments", "inline"], "reads journal 'bank' of another database"),
        (["lag"], "reads journal 'bank' of another database"),
    ):
        result = projections(*command, *where, cwd=app, env=env)
        assert (result.returncode, said in result.stderr) == (2, True), result.stderr
    for command in ("status", "offsets verify"):
        assert projections(*command.split(), "--journal", "bank", *where, env=env).returncode == 0


@pytest.mark.slow
def test_a_projection_goes_on_where_one_of_the_package_stood(
    app: Path, bank_dsn: str, read_side: str
) -> None:
    pay(bank_dsn, "1", "2", "4")
    attach = ["journals", "attach", "eventsourcing", bank_dsn, "--name", "bank", "--table", "bank_events"]
    called(*attach, "--read-side", read_side)
    both = ["--journal", "bank", "--read-side", read_side]
    move = ["offsets", "import", "bank:Payments", *both]

    def moved(*more: str) -> tuple[int, str]:
        done = projections(*move, *more, cwd=app)
        return done.returncode, done.stdout + done.stderr

    assert moved() == (2, ANY)
    assert moved("--from", "eventsourcing", "--position", "3") == (2, ANY)
    assert moved("--from", "eventsourcing") == (1, Has("nothing is stored of 'payments' by eventsourcing"))
    assert moved("--position", "9") == (1, Has("the offsets are ahead of journal 'bank'"))
    with connect_sync(read_side) as connection:
        connection.execute(
            "CREATE TABLE payments_tracking (application_name text PRIMARY KEY, notification_id bigint)"
        )
        connection.execute("INSERT INTO payments_tracking VALUES ('bank', 3)")
    assert moved("--from", "eventsourcing", "--dry-run") == (0, Has("nothing is stored"))
    assert moved("--from", "eventsourcing") == (0, Has("events up to position 3 count as handled"))
    assert moved("--from", "eventsourcing") == (1, Has("has begun already"))
    work = projections("worker", "bank", *both, "--until-caught-up", cwd=app)
    assert work.returncode == 0, work.stderr
    assert query(read_side, "SELECT seq_nr, amount::text FROM paid") == [(4, "4")]


@pytest.mark.slow
def test_what_projections_read_is_not_detached_unless_forced(
    app: Path, bank_dsn: str, read_side: str
) -> None:
    pay(bank_dsn, "1")
    where = ["--read-side", read_side]
    called(
        "journals", "attach", "eventsourcing", bank_dsn, "--name", "bank", "--table", "bank_events", *where
    )
    work = ["worker", "bank", "--journal", "bank", *where, "--until-caught-up"]
    assert projections(*work, cwd=app).returncode == 0

    refused = called("journals", "detach", "bank", *where)
    assert (refused.returncode, "journal 'bank' is read by 'payments'" in refused.stderr) == (1, True)
    assert called("journals", "detach", "bank", "--force", *where).stdout == "journal 'bank' is detached\n"

    assert attached(read_side) == []
    for command in (work, ["lag", "--journal", "bank", *where]):
        result = projections(*command, cwd=app)
        assert (result.returncode, "no journal 'bank' is attached" in result.stderr) == (1, True)
    for verb in ("detach", "show"):
        result = called("journals", verb, "bank", *where)
        assert (result.returncode, "no journal 'bank' is attached" in result.stderr) == (1, True)


@pytest.mark.slow
def test_a_mapped_table_whose_dsn_is_in_the_environment(
    tmp_path: Path, bank_dsn: str, read_side: str
) -> None:
    with connect_sync(bank_dsn) as connection:
        connection.execute(ORDERS)
    attach = [
        "journals",
        "attach",
        "table",
        "--journal-variable",
        "ORDERS_DSN",
        "--name",
        "orders",
        "--table",
        "public.orders",
    ]
    attach += ["--mapping", mapping(tmp_path), "--read-side", read_side]

    dry = projections(*attach, "--dry-run", "--json", env=environment(ORDERS_DSN=bank_dsn))
    assert dry.returncode == 0, dry.stderr
    said = json.loads(dry.stdout)
    assert (said["table"], said["attached"]) == ('"public"."orders"', False)
    assert "CREATE INDEX CONCURRENTLY" in said["advice"][0]
    assert said["page_ms"] > 0
    assert attached(read_side) == []

    assert projections(*attach, env=environment(ORDERS_DSN=bank_dsn)).returncode == 0
    lag = ["lag", "--journal", "orders", "--read-side", read_side]
    assert projections(*lag, env=environment(ORDERS_DSN=bank_dsn)).returncode == 0
    unset = projections(*lag)
    assert (unset.returncode, "the environment variable ORDERS_DSN is not set" in unset.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["eventsourcing", "postgresql://u:secret@h/b", "--table", "x"], "holds a password"),
        (["eventsourcing", "postgresql://h/b?%70assword=secret"], "holds a password"),
        (["eventsourcing", "host=h password = 'secret'"], "holds a password"),
        (["eventsourcing"], "either a DSN or an environment variable"),
        (["eventsourcing", "HERE", "--journal-variable", "BANK"], "either a DSN or an environment variable"),
        (["eventsourcing", "HERE", "--name", "journal"], "cannot be the name of a journal"),
        (["eventsourcing", "HERE", "--name", "a=b"], "cannot be the name of a journal"),
        (["eventsourcing", "HERE"], "table must be given"),
        (["eventsourcing", "HERE", "--table", "none"], 'relation "public.none" does not exist'),
        (["message-db", "HERE"], 'relation "message_store.messages" does not exist'),
        (["table", "HERE", "--table", "orders"], "must be given"),
        (["pekko-r2dbc", "HERE", "--mapping", "MAPPING"], "'source' is not known"),
        (["mysql", "HERE"], "is not one of"),
    ],
)  # fmt: skip
def test_what_cannot_be_attached(
    tmp_path: Path, bank_dsn: str, read_side: str, arguments: list[str], said: str
) -> None:
    places = {"HERE": bank_dsn, "MAPPING": mapping(tmp_path)}
    named = [places.get(one, one) for one in arguments]

    result = called("journals", "attach", "--name", "bank", *named, "--read-side", read_side)

    assert result.returncode in {1, 2}
    assert said in result.stderr
    assert "secret" not in result.stderr
    assert attached(read_side) == []


def test_a_role_without_the_privilege_is_told_which(tmp_path: Path, bank_dsn: str, read_side: str) -> None:
    with connect_sync(bank_dsn) as connection:
        connection.execute(ORDERS)
        connection.execute(
            "DROP ROLE IF EXISTS journals_login; CREATE ROLE journals_login LOGIN PASSWORD 'p'"
        )
        connection.execute("GRANT SELECT ON orders TO journals_login")
    try:
        parts = urlsplit(bank_dsn)
        login = parts._replace(netloc=f"journals_login:p@{parts.netloc.rpartition('@')[2]}").geturl()
        result = projections(
            "journals", "attach", "table", "--journal-variable", "ORDERS_DSN", "--name", "orders", "--table", "orders",
            "--mapping", mapping(tmp_path), "--read-side", read_side, env=environment(ORDERS_DSN=login),
        )  # fmt: skip
        assert result.returncode == 1
        assert "GRANT SELECT ON SEQUENCE" in result.stderr
        assert attached(read_side) == []
    finally:
        with connect_sync(bank_dsn) as connection:
            connection.execute("DROP OWNED BY journals_login; DROP ROLE journals_login")
