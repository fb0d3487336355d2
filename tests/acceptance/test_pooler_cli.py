"""Every command through a pooler that lends a session for each transaction, with nothing said about it."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from journal import append_sync
from journal.database.sync import connect_sync
from projections.cli import main
from tests.fixtures.certificates import Authority
from tests.fixtures.commands import (
    APP,
    COMMAND,
    SEEN,
    Running,
    append_events,
    called,
    environment,
    landed,
    projections,
    seen,
)
from tests.fixtures.pgbouncer import pooler_beside
from tests.fixtures.postgres import Databases

NONE = "00000000-0000-0000-0000-000000000000"
COMMANDS = """
schema install
schema upgrade
schema verify
worker app:Delays --until-caught-up
audit delays --handled HANDLED
audit delays --committed COMMITTED --handled HANDLED
status
status delays
lag
lag delays --slices
workers list
workers show NONE
pause delays
resume delays
wait delays --token TOKEN
mode delays inline
mode delays live
rescale delays --ranges 3
rebuild delays --app app:Delays
rebuilds list
rebuilds cancel delays
rebuilds drop-old delays
verify delays --app app:Delays
offsets list
offsets show delays
offsets verify
offsets set delays --from 2020-01-01T00:00:00Z --yes
offsets clear delays --yes
parked list
parked show delays N1
parked retry delays --all
parked drop delays --all --yes
subscribe billing --topic Landed
subscriptions list billing
subscriptions show 1
subscriptions release 1
subscriptions waiting list
subscriptions waiting show 1
subscriptions waiting retry 1
subscriptions waiting drop 1 --yes
subscriptions remove 1 --yes
publish order.paid {}
worker --subscriptions --until-caught-up
groups list
groups show billing
groups rescale billing --ranges 2
groups rewind billing --from beginning --yes
groups dead list billing
groups dead show billing 1
groups dead drop billing 1 --yes
groups dead retry billing --all
groups give-up billing old --yes
groups remove billing --yes
webhooks endpoints list
webhooks endpoints show ENDPOINT
webhooks endpoints change ENDPOINT --description changed
webhooks endpoints pause ENDPOINT
webhooks endpoints resume ENDPOINT
webhooks endpoints disable ENDPOINT
webhooks endpoints enable ENDPOINT
webhooks endpoints rotate-secret ENDPOINT
webhooks endpoints renew-secrets
webhooks endpoints test ENDPOINT
webhooks endpoints verify ENDPOINT
webhooks endpoints set-certificate ENDPOINT CLIENT
webhooks endpoints remove-certificate ENDPOINT
webhooks endpoints set-oauth ENDPOINT --token-url https://login.example.com/token --client-id acme --secret-file SECRET
webhooks endpoints remove-oauth ENDPOINT
webhooks limits list
webhooks limits change timeout --most 20s
webhooks send acme order.paid {}
webhooks schedules add acme daily 0_0_*_*_* order.paid
webhooks schedules list
webhooks schedules show SCHEDULE
webhooks schedules pause SCHEDULE
webhooks schedules resume SCHEDULE
webhooks schedules run SCHEDULE
webhooks schedules remove SCHEDULE --yes
webhooks deliveries list
webhooks deliveries show ENDPOINT NONE
webhooks deliveries retry ENDPOINT NONE
webhooks deliveries retry --endpoint ENDPOINT --state done --yes
webhooks deliveries drop ENDPOINT NONE --yes
webhooks dead list
webhooks dead show ENDPOINT NONE
webhooks dead retry --all
webhooks dead drop --all --yes
webhooks events list
webhooks events show NONE
webhooks erase acme NONE --yes
webhooks attempts list
webhooks attempts show NONE
webhooks stats
webhooks metrics
webhooks endpoints add acme https://example.com/b
webhooks endpoints remove ENDPOINT --yes
archive restore DIRECTORY
archive verify DIRECTORY --against-journal
archive export DIRECTORY --entity-type plane --until 2020-01-01T00:00:00Z
backfill FILE --entity-type plane --dry-run
journals list
journals attach table --journal-variable ORDERS_DSN --name orders --mapping MAPPING
journals show orders
offsets import app:Gated --position 0 --journal orders --dry-run
journals detach orders
captures list
captures add seen
captures release seen
partitions list
partitions change events --ahead 3
partitions schedule
maintain
doctor
remove delays --yes
schema print
schema uninstall --yes
""".strip().splitlines()
ORDERS = """
CREATE TABLE orders (id bigserial PRIMARY KEY, order_id text, version int, kind text, body jsonb)
"""
MAPPING = """
table = "orders"
source = "order_id"
number = "version"
position = "id"
bound = "sequence"
entity_type = { constant = "order" }
event_type = "kind"
payload = "body"
"""
REFUSED = {
    "doctor": "",
    "rebuild ": "this connection goes through a pooler",
    "rebuilds cancel": "this connection goes through a pooler",
    "rebuilds drop-old": "this connection goes through a pooler",
    "verify": "write by themselves",
    "parked show": "is not parked",
    "workers show": "there is no worker",
    "subscriptions release": "is not stopped",
    "subscriptions waiting show": "no event 1 waits",
    "subscriptions waiting retry": "no event 1 waits",
    "subscriptions waiting drop": "no event 1 waits",
    "groups give-up": "old",
    "groups dead show": "not a dead letter",
    "groups dead drop": "not a dead letter",
    "webhooks endpoints test": "",
    "webhooks erase": "there is no message",
    "webhooks endpoints verify": "",
    "webhooks deliveries show": "no ",
    "webhooks deliveries retry ENDPOINT": "no ",
    "webhooks deliveries drop": "no ",
    "webhooks dead show": "no ",
    "webhooks events show": "no ",
    "webhooks attempts show": "no ",
    "archive restore": "",
    "archive verify": "",
}
"""What is refused for another reason than the pooler: it asks the database for what is not there."""
ELSEWHERE = {
    "archive erase", "archive repair", "monitor", "webhooks deliver", "webhooks serve", "webhooks page",
    "webhooks link", "webhooks listen", "demo",
}  # fmt: skip
"""Run until they are stopped: below; or without a database; or load a database of their own."""


class Place:
    """A database behind a pooler, with what commands name."""

    def __init__(self, dsn: str, directory: Path) -> None:
        self.dsn = dsn
        self.directory = directory
        self.names = {
            "DIRECTORY": str(directory / "archive"),
            "NONE": NONE,
            "FILE": str(directory / "flights.csv"),
            "MAPPING": str(directory / "orders.toml"),
            "CLIENT": str(directory / "client.pem"),
            "SECRET": str(directory / "secret.txt"),
            "HANDLED": "SELECT source_id, seq_nr FROM seen WHERE projection = 'delays' ORDER BY source_id, seq_nr",
            "COMMITTED": "SELECT source_id, seq_nr FROM projections.events WHERE event_type = 'Landed'",
        }

    def made(self, name: str, *command: str) -> None:
        said = called(*command, "--json", "--dsn", self.dsn).stdout
        self.names[name] = re.findall(rf'"{name.lower()}_id": "?([^",]+)', said)[0]

    def arguments(self, line: str) -> list[str]:
        words = [self.names.get(word, word) for word in line.split()]
        return [word.replace("_", " ") if "*" in word else word for word in words]


@pytest.fixture(scope="module")
def place(databases: Databases, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """What every command is run on, one after the other: it leaves what the next ones need."""
    directory = tmp_path_factory.mktemp("pooled")
    (directory / "app.py").write_text(APP.replace('"delays", ', '"delays", tables=("seen",), ', 1))
    (directory / "flights.csv").write_text(
        "source_id,event_type,payload,db_timestamp\na,Landed,{},2020-01-01T00:00:00Z\n"
    )
    (directory / "orders.toml").write_text(MAPPING)
    (directory / "client.pem").write_text(Authority().client("acme"))
    (directory / "secret.txt").write_text("s3cret")
    with (
        databases.fresh(template) as dsn,
        pooler_beside(dsn) as address,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("ORDERS_DSN", dsn)
        with connect_sync(dsn) as connection:
            connection.execute(SEEN)
            connection.execute(ORDERS)
        append_events(dsn, 19)
        place = Place(address, directory)
        with connect_sync(dsn) as connection:
            place.names["TOKEN"] = append_sync(connection, [landed("N19")]).token
        place.made("ENDPOINT", "webhooks", "endpoints", "add", "acme", "https://example.com/hooks")
        place.made("SCHEDULE", "webhooks", "schedules", "add", "acme", "hourly", "0 * * * *", "order.paid")
        yield place


@pytest.mark.slow  # each leaves what the next one needs: all or none
@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_works(place: Place, line: str) -> None:
    arguments = place.arguments(line)
    own = () if line == "schema print" else ("--dsn", place.dsn)
    if arguments[0] in {"worker", "rebuild", "verify"} or "app:Gated" in arguments:
        result = projections(*arguments, *own, cwd=place.directory)
    else:
        result = called(*arguments, *own)

    reason = next((REFUSED[name] for name in REFUSED if line.startswith(name)), None)
    refused = 2 if arguments[0] == "verify" else 1
    assert result.returncode == (0 if reason is None else refused), result.stderr
    assert (reason or "") in result.stderr
    assert not any(one in result.stderr for one in ("startup parameter", "prepared statement"))


def test_every_command_is_run() -> None:
    def leaves(command: click.Command, name: str, context: click.Context) -> Iterator[str]:
        if not isinstance(command, click.Group):
            yield name
            return
        for part in command.list_commands(context):
            found = command.get_command(context, part)
            assert found is not None
            yield from leaves(found, f"{name} {part}".strip(), click.Context(found, parent=context))

    known = set(leaves(main, "", click.Context(main)))
    assert {
        one for one in known if not any(f"{line} ".startswith(f"{one} ") for line in COMMANDS)
    } == ELSEWHERE


@pytest.mark.slow
@pytest.mark.parametrize("command", ["webhooks deliver", "webhooks serve", "webhooks page", "monitor"])
def test_a_command_that_runs_on_starts_and_ends(dsn: str, command: str) -> None:
    served = "--http=127.0.0.1:0"
    with pooler_beside(dsn) as address, subprocess.Popen(
        [*COMMAND, *command.split(), served, "--dsn", address, "--log-format", "json"],
        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        env=environment(PROJECTIONS_PAGE_KEYS=f"{'A' * 43}="),
    ) as process:  # fmt: skip
        try:
            run = Running(process)
            run.until("serving")
            run.signal(signal.SIGTERM)
            assert run.end() == 0
        finally:
            process.kill()


@pytest.mark.slow
def test_the_flag_works_as_before(app: Path, filled: str) -> None:
    with pooler_beside(filled) as address:
        result = projections(
            "worker", "app:Delays", "--dsn", address, "--pgbouncer", "--until-caught-up", cwd=app
        )

    assert (result.returncode, seen(filled)) == (0, 100)
