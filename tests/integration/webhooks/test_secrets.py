"""Secrets of endpoints: which can be, how they are stored, and how their key is changed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography.fernet import Fernet

from journal import Database, NotFound
from projections.webhooks import Endpoints, EndpointSettings, generate_secret
from projections.webhooks.credentials import NO_CREDENTIALS, OAuthFacts
from projections.webhooks.encryption import FernetCipher
from projections.webhooks.errors import InvalidEndpoint, InvalidSecret
from projections.webhooks.signing import SigningKey
from tests.fixtures.projections import fetchval

SETTINGS = EndpointSettings(url="https://example.com/hook")
OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()


async def test_secrets_are_stored_anew_with_the_newest_key(database: Database) -> None:
    plain = await Endpoints(database).create("acme", SETTINGS)
    old = await Endpoints(database, FernetCipher([OLD])).create("acme", SETTINGS)

    assert await Endpoints(database, FernetCipher([NEW, OLD])).renew_secrets() == 2

    endpoints = Endpoints(database, FernetCipher([NEW]))
    for made in (plain, old):
        assert await endpoints.secrets("acme", made.endpoint.endpoint_id) == [made.secret]


async def test_one_that_can_not_be_read_keeps_all_as_they_are(database: Database) -> None:
    plain = await Endpoints(database).create("acme", SETTINGS)
    await Endpoints(database, FernetCipher([OLD])).create("acme", SETTINGS)

    with pytest.raises(InvalidSecret):
        await Endpoints(database, FernetCipher([NEW])).renew_secrets()

    assert await Endpoints(database).secrets("acme", plain.endpoint.endpoint_id) == [plain.secret]


async def test_rotating_again_prolongs_no_secret_that_was_to_end_sooner(database: Database) -> None:
    endpoints = Endpoints(database)
    endpoint_id = (await endpoints.create("acme", SETTINGS)).endpoint.endpoint_id
    await endpoints.rotate_secret("acme", endpoint_id, grace=timedelta(hours=1))
    await endpoints.rotate_secret("acme", endpoint_id, grace=timedelta(days=1))

    left = (
        "SELECT array_agg(expires_at < now() + interval '2 hours' ORDER BY secret_id) "
        "FROM projections.webhook_secrets"
    )
    assert await fetchval(database, left) == [True, False, None]


async def test_an_endpoint_has_ten_secrets_at_most(database: Database) -> None:
    endpoints = Endpoints(database)
    first = await endpoints.create("acme", SETTINGS)
    endpoint_id = first.endpoint.endpoint_id
    made = [(await endpoints.rotate_secret("acme", endpoint_id)).secret for _ in range(10)]

    assert await endpoints.secrets("acme", endpoint_id) == made[::-1]


async def test_another_tenant_reads_no_secret(database: Database) -> None:
    endpoints = Endpoints(database)
    endpoint_id = (await endpoints.create("acme", SETTINGS)).endpoint.endpoint_id
    facts = OAuthFacts(token_url="https://login.example.com/", client_id="acme")
    await endpoints.set_oauth("acme", endpoint_id, facts, "s3cret")

    with pytest.raises(NotFound):
        await endpoints.secrets("globex", endpoint_id)
    assert await endpoints.credentials("globex", endpoint_id) == NO_CREDENTIALS


async def test_a_public_key_signs_nothing(database: Database) -> None:
    key = generate_secret("v1a")
    assert isinstance(key, SigningKey)
    endpoints = Endpoints(database)
    made = await endpoints.create("acme", SETTINGS)

    with pytest.raises(InvalidSecret, match="whsk_"):
        await endpoints.create("acme", SETTINGS, key.public)
    with pytest.raises(InvalidSecret, match="whsk_"):
        await endpoints.rotate_secret("acme", made.endpoint.endpoint_id, key.public.reveal())


async def test_a_filter_with_a_number_that_is_none_is_refused(database: Database) -> None:
    settings = SETTINGS.model_copy(update={"filter": {"data": {"a": float("inf")}}})

    with pytest.raises(InvalidEndpoint, match=r"filter\.data\.a"):
        await Endpoints(database).create("acme", settings)
