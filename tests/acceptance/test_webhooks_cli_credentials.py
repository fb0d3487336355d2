"""Credentials of endpoints as a user sets and removes them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from journal import Database
from tests.fixtures.certificates import Authority
from tests.fixtures.commands import called
from tests.fixtures.projections import execute
from tests.fixtures.webhooks import endpoint


def ran(*arguments: str, code: int = 0) -> str:
    result = called("webhooks", "endpoints", *arguments)
    assert result.returncode == code, result.stderr
    return result.stdout + result.stderr


async def test_a_certificate_is_set_shown_and_told_of_when_it_has_expired(
    database: Database, dsn: str, tmp_path: Path
) -> None:
    await endpoint(database, "ep_1")
    pem = tmp_path / "client.pem"
    pem.write_text(Authority().client("acme"))
    assert "shows CN=acme, good until" in ran("set-certificate", "ep_1", str(pem), "--dsn", dsn)
    shown = ran("show", "ep_1", "--dsn", dsn)
    assert "CN=acme, good until" in shown
    assert "PRIVATE KEY" not in shown + ran("show", "ep_1", "--json", "--dsn", dsn)
    assert "certificate expires" in ran("list", "--dsn", dsn)
    pem.write_text(Authority().client("acme", good_for=timedelta(days=31)))
    ran("set-certificate", "ep_1", str(pem), "--dsn", dsn)
    assert "certificate" not in ran("list", "--dsn", dsn)
    await execute(
        database,
        "UPDATE projections.webhook_credentials SET facts = "
        "json_build_object('subject', 'CN=acme', 'fingerprint', '', 'not_before', '2019-01-01T00:00:00Z', "
        "'not_after', '2020-01-01T00:00:00Z')",
    )
    assert "EXPIRED" in ran("show", "ep_1", "--dsn", dsn)
    assert "certificate expired" in ran("list", "--dsn", dsn)
    pem.write_text(Authority().client("acme", good_for=timedelta(days=-1)))
    assert "the certificate has expired" in ran("set-certificate", "ep_1", str(pem), "--dsn", dsn, code=2)
    assert "shows no certificate" in ran("remove-certificate", "ep_1", "--dsn", dsn)
    assert "certificate" not in ran("list", "--dsn", dsn)


async def test_a_client_of_oauth_is_set_and_its_secret_not_shown(
    database: Database, dsn: str, tmp_path: Path
) -> None:
    await endpoint(database, "ep_1")
    secret = tmp_path / "secret"
    secret.write_text("s3cret-of-acme\n")
    client = ["--client-id", "acme", "--secret-file", str(secret), "--dsn", dsn]
    url = "https://login.example.com/token"
    said = ran("set-oauth", "ep_1", "--token-url", url, *client)
    said += ran("show", "ep_1", "--dsn", dsn) + ran("show", "ep_1", "--json", "--dsn", dsn)
    assert "sends access tokens of client 'acme'" in said
    assert f"acme, tokens of {url}" in said
    assert "s3cret-of-acme" not in said
    assert "sends no access token" in ran("remove-oauth", "ep_1", "--dsn", dsn)
    assert "Missing option" in ran("set-oauth", "ep_1", "--client-id", "acme", "--dsn", dsn, code=2)
