"""The examples are complete applications: each is run as its first lines say, against a real database."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import yaml

from projections.cli import main
from tests.docs.test_operation_examples import _parse
from tests.fixtures.ports import unused_port

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs/examples"
MANIFESTS = ROOT / "docs/operations/examples/kubernetes.yaml"

ADA, NOBODY = ({"Authorization": f"Bearer {token}"} for token in ("token of ada", "no token"))


def environment(dsn: str, folder: Path) -> dict[str, str]:
    path = f"{ROOT}{os.pathsep}{folder}"
    secrets = {"SECRET_KEY": "x" * 50, "ORDERS_TOKENS": json.dumps({"token of ada": "ada"})}
    return {
        **os.environ,
        "PROJECTIONS_DSN": dsn,
        "PYTHONPATH": path,
        "PYTHONDONTWRITEBYTECODE": "1",
        **secrets,
    }


def ran(dsn: str, folder: str, *arguments: str) -> str:
    """What a program of a folder prints; it must succeed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=EXAMPLES / folder,
        env=environment(dsn, EXAMPLES / folder),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def projections(dsn: str, folder: str, *arguments: str) -> str:
    return ran(dsn, folder, str(Path(sys.executable).parent / "projections"), *arguments)


@contextmanager
def serving(dsn: str, folder: str, path: str, *arguments: str) -> Iterator[httpx.Client]:
    """A server of a folder, once it answers; ended with SIGTERM."""
    port = unused_port()
    command = [sys.executable, *(one.replace("PORT", str(port)) for one in arguments)]
    with subprocess.Popen(
        command, cwd=EXAMPLES / folder, env=environment(dsn, EXAMPLES / folder), stderr=subprocess.DEVNULL
    ) as server:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as client:
                until_it_answers(client, path, server)
                yield client
        finally:
            server.terminate()


def until_it_answers(client: httpx.Client, path: str, server: subprocess.Popen[Any]) -> None:
    while server.poll() is None:
        try:
            client.get(path)
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the server has ended")


@pytest.mark.slow
def test_a_script_appends_projects_and_looks(dsn: str) -> None:
    ran(dsn, "script", "ledger.py", "deposit", "account-1", "10")
    ran(dsn, "script", "ledger.py", "deposit", "account-1", "5")
    ran(dsn, "script", "ledger.py", "deposit", "account-2", "7")

    balances = ran(dsn, "script", "ledger.py", "balances")
    again = ran(dsn, "script", "ledger.py", "balances")

    assert balances == again == "account-1 15\naccount-2 7\n"


@pytest.mark.slow
def test_fastapi_commits_orders_with_their_events_and_waits_for_its_writes(dsn: str) -> None:
    pytest.importorskip("fastapi")
    ran(dsn, "fastapi_app", "orders.py")

    with serving(
        dsn, "fastapi_app", "/docs", "-m", "uvicorn", "orders:app", "--host", "127.0.0.1", "--port", "PORT"
    ) as client:
        placed = [
            client.post("/orders", json={"order_id": f"o-{n}", "amount": n}, headers=ADA) for n in (3, 4)
        ]
        refused = client.post("/orders", json={"order_id": "o-5", "amount": 0}, headers=ADA)
        strangers = [client.get("/turnover", headers=headers).status_code for headers in ({}, NOBODY)]
        projections(dsn, "fastapi_app", "worker", "orders", "--until-caught-up")
        found = client.get(
            "/turnover", params={"after": placed[-1].headers["Projections-Token"]}, headers=ADA
        )

    assert [answer.status_code for answer in placed] == [201, 201]
    assert refused.status_code == 422
    assert set(strangers) <= {401, 403}
    assert found.json() == {"orders": 2, "amount": 7}
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (2,)


@pytest.mark.slow
def test_django_commits_orders_with_their_events(dsn: str) -> None:
    pytest.importorskip("django")
    ran(dsn, "django_app", "manage.py", "migrate", "-v", "0")
    ran(dsn, "django_app", "manage.py", "makemigrations", "--check", "--dry-run")

    with serving(
        dsn, "django_app", "/turnover/ada", "manage.py", "runserver", "--noreload", "127.0.0.1:PORT"
    ) as client:
        forged = client.post("/orders", data={"customer": "ada", "amount": "3"})
        own = {"X-CSRFToken": client.cookies["csrftoken"]}
        placed = client.post("/orders", data={"customer": "ada", "amount": "3"}, headers=own)
        refused = client.post("/orders", data={"customer": "ada", "amount": "0"}, headers=own)
        projections(dsn, "django_app", "worker", "shop.projections", "--until-caught-up")
        found = client.get("/turnover/ada")

    assert (forged.status_code, placed.status_code) == (403, 201)
    assert refused.status_code == 500  # the constraint of the model: neither the order nor its event
    assert found.json() == {"orders": 1, "amount": 3}
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT count(*) FROM projections.events").fetchone() == (1,)


@pytest.mark.slow
def test_alembic_installs_the_schema_and_makes_the_tables(empty_dsn: str) -> None:
    pytest.importorskip("alembic")
    ran(empty_dsn, "alembic_app", "-m", "alembic", "upgrade", "head")
    ran(empty_dsn, "alembic_app", "-m", "alembic", "downgrade", "base")
    ran(empty_dsn, "alembic_app", "-m", "alembic", "upgrade", "head")  # over the schema that stayed

    with psycopg.connect(empty_dsn) as connection:
        tables = connection.execute(
            "SELECT to_regclass('turnover'), to_regclass('projections.events')"
        ).fetchone()

    assert tables == ("turnover", "projections.events")
    projections(empty_dsn, "alembic_app", "schema", "verify")


@pytest.mark.slow
def test_spark_reads_what_the_script_has_appended(dsn: str) -> None:
    pytest.importorskip("pyspark")
    for account, amount in (("account-1", "10"), ("account-1", "5"), ("account-2", "7")):
        ran(dsn, "script", "ledger.py", "deposit", account, amount)

    assert ran(dsn, "spark_app", "busiest.py") == "account-1 2 15\naccount-2 1 7\n"


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.30", "1.34"])
def test_kubernetes_takes_the_manifests(version: str) -> None:
    validator = pytest.importorskip("kubernetes_validate")

    for manifest in yaml.safe_load_all(MANIFESTS.read_text()):
        validator.validate(manifest, version, strict=True)


@pytest.mark.slow
def test_a_wrong_manifest_is_found() -> None:
    validator = pytest.importorskip("kubernetes_validate")
    manifests = list(yaml.safe_load_all(MANIFESTS.read_text()))
    [deployment] = [one for one in manifests if one["kind"] == "Deployment"]
    deployment["spec"]["replicaz"] = 4

    with pytest.raises(validator.ValidationError):
        validator.validate(deployment, "1.34", strict=True)


def test_the_image_has_what_it_copies_and_runs_a_command_that_there_is() -> None:
    folder = EXAMPLES / "fastapi_app"
    text = (folder / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(\S+) \.$", text, re.MULTILINE)
    program, *arguments = json.loads(re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)[0])

    assert copied == ["requirements.txt", "orders.py"]
    assert all((folder / source).exists() for source in copied)
    assert re.search(r"^USER \d+$", text, re.MULTILINE)
    assert program == "projections"
    _parse(main, arguments)
